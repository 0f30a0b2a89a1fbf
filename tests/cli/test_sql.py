"""`headrace sql` over files."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

QUERY = """
    SELECT shop, low, rises FROM prices MATCH_RECOGNIZE (
      PARTITION BY shop ORDER BY day
      MEASURES bottom.price AS low, COUNT(up.*) AS rises
      PATTERN (bottom up+) DEFINE up AS price > PREV(price))
    """
LISTS = "SELECT * FROM prices MATCH_RECOGNIZE (ORDER BY day MEASURES ARRAY_AGG(day) AS days PATTERN (A B))"
PRICES = pl.DataFrame(
    {"shop": ["a"] * 4 + ["b"] * 2, "day": [1, 2, 3, 4, 1, 2], "price": [9, 7, 8, 10, 5, 4]},
)


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "jsonl"])
def test_a_query_over_a_file_of_each_kind(cli: Cli, home: Path, ending: str) -> None:
    path = home / f"prices.{ending}"
    {"csv": PRICES.write_csv, "parquet": PRICES.write_parquet, "json": PRICES.write_json, "jsonl": PRICES.write_ndjson}[
        ending
    ](path)
    result = cli("sql", QUERY, "--table", f"prices={path}", "--format", "json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"shop": "a", "low": 7, "rises": 2}


def test_results_as_a_table_and_as_csv(cli: Cli, home: Path) -> None:
    PRICES.write_csv(home / "p.csv")
    assert cli("sql", QUERY, "-t", "prices=p.csv").stdout.split() == ["shop", "low", "rises", "a", "7", "2"]
    assert cli("sql", QUERY, "-t", "prices=p.csv", "-f", "csv").stdout == "shop,low,rises\na,7,2\n"


def test_the_query_from_standard_input(home: Path) -> None:
    PRICES.write_csv(home / "p.csv")
    result = CliRunner().invoke(app, ["sql", "-", "-t", "prices=p.csv", "-f", "csv"], input=QUERY)
    assert result.stdout == "shop,low,rises\na,7,2\n"


def test_several_tables_and_times(cli: Cli, home: Path) -> None:
    (home / "events.csv").write_text("at,who\n2025-01-01T10:00:00,a\n2025-01-01T10:00:05,b\n2025-01-01T10:00:30,a\n")
    (home / "names.json").write_text('[{"who": "a", "name": "Anna"}, {"who": "b", "name": "Ben"}]')
    query = """SELECT m.n, names.name FROM events MATCH_RECOGNIZE (ORDER BY at MEASURES LAST(who) AS who, COUNT(*) AS n
               PATTERN (X Y) WITHIN INTERVAL '10' SECOND) AS m JOIN names ON m.who = names.who"""
    result = cli("sql", query, "-t", "events=events.csv", "-t", "names=names.json", "-f", "json")
    assert json.loads(result.stdout) == {"n": 2, "name": "Ben"}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([QUERY], ExitCode.USAGE, "there is no table"),
        ([QUERY, "-t", "prices"], ExitCode.USAGE, "NAME=FILE"),
        ([QUERY, "-t", "prices=none.csv"], ExitCode.USAGE, "there is no file none.csv"),
        ([QUERY, "-t", "prices=p.txt"], ExitCode.USAGE, "ending .txt"),
        ([QUERY, "-t", "prices=broken.parquet"], ExitCode.USAGE, "broken.parquet cannot be read"),
        (["SELECT 1 FROM", "-t", "prices=p.csv"], None, "line 1"),
        (["SELECT * FROM others", "-t", "prices=p.csv"], None, "others"),
        ([LISTS, "-t", "prices=p.csv", "-f", "csv"], ExitCode.USAGE, "CSV has no lists or structs, as in days"),
    ],
)
def test_what_is_wrong_is_said(cli: Cli, home: Path, words: list[str], code: ExitCode | None, message: str) -> None:
    PRICES.write_csv(home / "p.csv")
    (home / "p.txt").write_text("x")
    (home / "broken.parquet").write_text("x")
    result = cli("sql", *words)
    assert result.exit_code == (code or result.exit_code)
    assert result.exit_code != 0
    assert message in result.stderr
