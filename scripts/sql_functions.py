"""Writes docs/sql-functions.md: the functions of SQL from the tables that the planner reads.

    python scripts/sql_functions.py           # writes the page
    python scripts/sql_functions.py --check   # fails if the page is not up to date

Each example was run: what the page says that it gives is what it gave.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace import sql
from headrace.streaming_sql.aggregates import AGGREGATES
from headrace.streaming_sql.function_table import FUNCTIONS

if TYPE_CHECKING:
    from headrace.streaming_sql.functions import ScalarFunction

PAGE = Path(__file__).resolve().parents[1] / "docs" / "sql-functions.md"
_BEGIN = """# Functions of SQL

This page is written by `scripts/sql_functions.py` from the tables that the planner reads; every example was run.
Functions of MATCH_RECOGNIZE are in [match-recognize.md](match-recognize.md), functions of your own in
[sql-statements.md](sql-statements.md#create-function).

Names are read without regard to case. With null among its arguments a function gives null, unless it says otherwise.
"""
_OVER = """
## Functions of OVER

Behind each of these stands `OVER (PARTITION BY ... ORDER BY ...)`; every aggregate can stand there, too. See
[sql-queries.md](sql-queries.md#over).

| function | what it gives |
|---|---|
| `ROW_NUMBER()` | the number of the row in its partition, from 1 |
| `RANK()`, `DENSE_RANK()` | its rank; rows that are equal in ORDER BY have the same one |
| `LAG(value [, n [, default]])` | the value of the row n rows before; 1 if n is left out |
| `LEAD(value [, n [, default]])` | the value of the row n rows behind; the row waits for it |
| `FIRST_VALUE(value)`, `LAST_VALUE(value)` | the value of the first and of the last row of the frame |
"""


def scalar_rows() -> list[tuple[str, ScalarFunction, str]]:
    """Give the functions by their groups, with what their examples give."""
    functions = sorted((each for each in FUNCTIONS.values() if each.example), key=lambda each: (each.group, each.name))
    return [(each.group, each, given(each.example)) for each in functions]


def given(example: str) -> str:
    """Run an example."""
    found: Any = sql(f"SELECT {example} AS v", {})
    return repr(found.get_column("v").to_list()[0])


def page() -> str:
    """Write the page."""
    parts = [_BEGIN]
    for group, found in groupby(scalar_rows(), key=lambda each: each[0]):
        parts.append(
            f"\n## {group[:1].upper()}{group[1:]}\n\n| function | what it does | example | gives |\n|---|---|---|---|\n"
        )
        parts += [
            f"| {code(each.signature)} | {cell(each.does)} | {code(each.example)} | {code(value)} |\n"
            for _, each, value in found
        ]
    parts.append(
        "\n## Aggregates\n\nAll but `COUNT(*)` leave nulls out. Of no values an aggregate is null, a count 0.\n"
    )
    parts.append(
        "`FILTER (WHERE ...)` and `DISTINCT` can be written with each.\n\n| function | what it gives |\n|---|---|\n"
    )
    parts += [f"| {code(each.signature)} | {cell(each.does)} |\n" for _, each in sorted(AGGREGATES.items())]
    parts.append(_OVER)
    return "".join(parts)


def cell(text: str) -> str:
    """Write a text as a cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def code(text: str) -> str:
    """Write a cell in the type of code."""
    return f"`{cell(text)}`" if text else ""


def main() -> None:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    text = page()
    if not chosen.check:
        PAGE.write_text(text, encoding="utf-8")
    elif PAGE.read_text(encoding="utf-8") != text:
        sys.exit(f"{PAGE} is not up to date: run python scripts/sql_functions.py")


if __name__ == "__main__":
    main()
