"""The build hook: schemas become modules in a wheel, in an editable install, and by hand."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
SCHEMAS = Path("src/headrace/events/schemas")


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree that has schemas but no modules of them."""
    (tmp_path / SCHEMAS).mkdir(parents=True)
    for schema in (ROOT / SCHEMAS).glob("*.proto"):
        shutil.copy(schema, tmp_path / SCHEMAS)
    return tmp_path


def test_every_schema_becomes_a_module_and_a_stub(hook: Any, tree: Path) -> None:
    written = hook.compile_schemas(tree)
    names = {path.stem for path in (tree / SCHEMAS).glob("*.proto")}
    assert {path.name for path in written} == {f"{name}_pb2.{kind}" for name in names for kind in ("py", "pyi")}
    assert "from headrace.events.schemas import envelope_pb2" in (tree / SCHEMAS / "records_pb2.py").read_text()


def test_what_has_not_changed_is_not_written_again(hook: Any, tree: Path) -> None:
    hook.compile_schemas(tree)
    assert hook.compile_schemas(tree) == []
    with (tree / SCHEMAS / "records.proto").open("a") as schema:
        schema.write("message Extra { int32 a = 1; }\n")
    assert {path.name for path in hook.compile_schemas(tree)} == {"records_pb2.py", "records_pb2.pyi"}


def test_a_broken_schema_stops_the_build(hook: Any, tree: Path) -> None:
    (tree / SCHEMAS / "records.proto").write_text('syntax = "proto3"; message { }')
    with pytest.raises(hook.CompileError, match="protoc refused"):
        hook.compile_schemas(tree)
    assert not list((tree / SCHEMAS).glob("*_pb2.py"))


def test_a_tree_without_schemas_stops_the_build(hook: Any, tmp_path: Path) -> None:
    with pytest.raises(hook.CompileError, match=r"no \.proto file"):
        hook.compile_schemas(tmp_path)


def test_the_modules_in_use_are_those_of_the_schemas(hook: Any, tree: Path) -> None:
    hook.compile_schemas(tree)
    for made in (tree / SCHEMAS).glob("*_pb2.py"):
        assert made.read_text() == (ROOT / SCHEMAS / made.name).read_text(), "run: python hatch_build.py"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["build_wheel", "build_editable"])
def test_an_installed_package_has_the_modules(kind: str, tree: Path) -> None:
    for name in ("pyproject.toml", "hatch_build.py"):
        shutil.copy(ROOT / name, tree)
    for name in ("README.md", "LICENSE"):
        (tree / name).write_text("for the build only\n")
    for source in (ROOT / "src/headrace").glob("*.py"):
        shutil.copy(source, tree / "src/headrace")
    for source in (ROOT / "src/headrace/events").rglob("*.py"):
        if "_pb2" not in source.name:
            shutil.copy(source, tree / source.relative_to(ROOT))
    (tree / "src/headrace/__init__.py").touch()
    script = f"from hatchling.build import {kind}; print({kind}('out'))"
    built = subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=True)
    wheel = tree / "out" / built.stdout.split()[-1]
    place = tree / "src"
    if kind == "build_wheel":
        names = zipfile.ZipFile(wheel).namelist()
        assert "headrace/events/schemas/records_pb2.py" in names
        assert "headrace/events/schemas/records_pb2.pyi" in names
        assert "headrace/events/schemas/transit.proto" in names
        place = wheel
    check = "import sys; sys.path.insert(0, sys.argv[1]); import headrace.events; print(headrace.events.__file__)"
    command = [sys.executable, "-I", "-c", check, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(place))
