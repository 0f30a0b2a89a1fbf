"""NEXMark in SQL gives the answers of DuckDB, and of plain loops where a database has no word for it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from benchmarks.nexmark.generator import Auctions
from benchmarks.nexmark.sql_queries import SQL, side_input, tables_of_files, with_more_columns
from benchmarks.nexmark.sql_reference import expected

from headrace.inprocess.sql_answers import answer_in_process
from headrace.streaming_sql import Session
from headrace.streaming_sql.session import Answer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def events() -> pl.DataFrame:
    return with_more_columns(Auctions(rate=100).events(0, 3_000))


@pytest.fixture(scope="module")
def session(events: pl.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Session:
    directory: Path = tmp_path_factory.mktemp("nexmark")
    events.rename({"event_time": "dateTime"}).write_parquet(directory / "events.parquet")
    side_input().write_parquet(directory / "side.parquet")
    made = Session()
    list(made.run(tables_of_files(str(directory / "events.parquet"), str(directory / "side.parquet"))))
    return made


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(tuple(comparable_value(value) for value in row) for row in rows)


def comparable_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return float(value)
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def test_all_queries_are_there() -> None:
    assert list(SQL) == [*(f"q{number}" for number in range(24)), *(f"cep{number}" for number in range(4))]


@pytest.mark.parametrize("query", SQL)
def test_a_query_gives_what_an_independent_computation_gives(
    query: str, session: Session, events: pl.DataFrame
) -> None:
    (answer,) = session.run(SQL[query])
    assert isinstance(answer, Answer)
    found = answer_in_process(answer.planned, answer.tables).rows
    if query == "q12":  # windows by the time of arrival: what counts is that no bid is missing
        found = found.group_by("bidder").agg(pl.col("bids").sum())
    assert found.height > 0
    assert comparable(found.rows()) == comparable(expected(query, events))
