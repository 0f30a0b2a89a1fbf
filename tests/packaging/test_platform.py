"""The platform is about no application: what its code says and does names nothing of public transport."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PLATFORM = Path(__file__).parents[2] / "src" / "headrace"
APPLICATION = re.compile(r"vehicle|helsinki|hfp|\bbus(es)?\b", re.IGNORECASE)
_WITH_TEXT = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def said(path: Path) -> Iterator[tuple[int, str]]:
    """Give the names and texts of a module, without comments and docstrings, which may have examples of any domain."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, _WITH_TEXT) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name", "module"):
            name = getattr(node, field, None)
            if isinstance(name, str):
                yield getattr(node, "lineno", 0), name
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            yield node.lineno, node.value


def test_no_code_of_the_platform_names_its_first_application() -> None:
    modules = [path for path in PLATFORM.rglob("*.py") if not path.name.endswith("_pb2.py")]
    assert len(modules) > 300
    found = [
        f"{path.relative_to(PLATFORM)}:{line}: {text[:80]}"
        for path in modules
        for line, text in said(path)
        if APPLICATION.search(text)
    ]
    assert found == []


def test_what_is_looked_for_is_seen(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""A vehicle."""\n# a bus\ndef buses(rows: int) -> str:\n    """Of HFP."""\n    return "Helsinki"\n'
    )
    assert [text for _, text in said(module) if APPLICATION.search(text)] == ["buses", "Helsinki"]
