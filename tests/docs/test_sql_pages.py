"""The pages about SQL: what they show is run, and the list of functions is that of the planner."""

from __future__ import annotations

import runpy
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT, read_page
from tests.docs.sql_blocks import SqlPage, plain_terminal

if TYPE_CHECKING:
    from pathlib import Path

PAGES = [*sorted((ROOT / "docs").glob("sql*.md")), ROOT / "README.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_sql_on_a_page_gives_what_the_page_says(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plain_terminal(monkeypatch)
    for block, printed, said in SqlPage(read_page(path), tmp_path).outputs():
        if said is not None:
            assert printed.rstrip() == said.rstrip(), f"{block.where} prints something else"


def test_the_functions_are_those_of_the_planner() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "sql_functions.py"))
    assert (ROOT / "docs" / "sql-functions.md").read_text() == script["page"](), (
        "docs/sql-functions.md is not up to date: run python scripts/sql_functions.py"
    )


def test_the_examples_of_functions_give_what_their_table_says() -> None:
    from headrace.streaming_sql.function_table import FUNCTIONS

    script = runpy.run_path(str(ROOT / "scripts" / "sql_functions.py"))
    wrong = [each.name for each in FUNCTIONS.values() if each.example and script["given"](each.example) != each.gives]
    assert not wrong
