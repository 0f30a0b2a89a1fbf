"""OVER against DuckDB, whatever the order of arrival, the batches, the key groups and restarts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables.changed_rows import INSTANT

from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.tables import dense_rank, first_value, lag, last_value, lead, rank, row_number
from headrace.time import bounded
from headrace.windows import collect, count, distinct, mean
from headrace.windows import max as max_
from headrace.windows import sum as sum_

MODEST = settings(max_examples=6, deadline=None)
SCHEMA = {"k": pl.String, "v": pl.Int64, "s": pl.Int64, "n": pl.Int64}


@st.composite
def feeds(draw: st.DrawFn) -> list[pl.DataFrame]:
    """Rows in batches, out of order by 5 seconds at most; no two rows of a key have the same time unless it is told."""
    rows = draw(
        st.lists(
            st.tuples(st.sampled_from("ab"), st.one_of(st.none(), st.integers(-3, 3)), st.integers(0, 30)), max_size=30
        )
    )
    delays = draw(st.lists(st.integers(0, 5), min_size=len(rows), max_size=len(rows)))
    arrived = [row for _, row in sorted(zip(delays, rows, strict=True), key=lambda pair: pair[0] + pair[1][2])]
    whole = pl.DataFrame([(*row, number) for number, row in enumerate(arrived)], schema=SCHEMA, orient="row")
    whole = whole.with_columns((pl.col("s") * 1_000_000).cast(INSTANT).alias("event_time"))
    cuts = sorted(draw(st.lists(st.integers(0, whole.height), max_size=4)))
    edges = [0, *cuts, whole.height]
    return [whole.slice(low, high - low) for low, high in pairwise(edges)]


def stream() -> Stream:
    schema = {"k": pl.String, "v": pl.Int64, "s": pl.Int64, "n": pl.Int64}
    return Stream.rows("rows", schema).watermark(bounded("6s")).key_by("k")


def results(step: Stream, batches: list[pl.DataFrame], *, groups: int, restart: int) -> pl.DataFrame:
    """Run a stream over all batches to the end."""
    runner = Runner(step, key_groups=groups)
    found = []
    for number, batch in enumerate(batches):
        found.append(runner.step(batch).results)
        if number == restart:
            runner = Runner(runner.pipeline, key_groups=groups, snapshot=runner.snapshot())
    found.append(runner.finish().results)
    return pl.concat(found).drop("event_time").sort("n")


def in_duckdb(functions: str, frame: str, batches: list[pl.DataFrame], order: str = "s") -> pl.DataFrame:
    """Ask DuckDB for the same."""
    query = f"""
        SELECT k, v, s, n, {functions} FROM rows
        WINDOW w AS (PARTITION BY k ORDER BY {order} {frame}), o AS (PARTITION BY k ORDER BY {order})
    """  # noqa: S608 - texts of this file
    with duckdb.connect() as connection:
        connection.register("rows", pl.concat(batches).drop("event_time").to_arrow())
        return connection.sql(query).pl().sort("n")


FRAMES: dict[str, tuple[dict[str, Any], str, str]] = {
    "rows 0": ({"rows": 0}, "ROWS BETWEEN 0 PRECEDING AND CURRENT ROW", "s, n"),
    "rows 2": ({"rows": 2}, "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "s, n"),
    "rows all": ({"rows": "all"}, "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "s, n"),
    "range 4s": ({"range": "4s"}, "RANGE BETWEEN 4 PRECEDING AND CURRENT ROW", "s"),
    "range 0": ({"range": 0}, "RANGE BETWEEN 0 PRECEDING AND CURRENT ROW", "s"),
    "range all": ({}, "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "s"),
}


@pytest.mark.parametrize("frame", FRAMES)
@given(feeds(), st.sampled_from([1, 3]), st.integers(-1, 3))
@MODEST
def test_aggregates_of_frames(frame: str, batches: list[pl.DataFrame], groups: int, restart: int) -> None:
    arguments, sql, order = FRAMES[frame]
    step = stream().over(
        **arguments,
        number=count(),
        total=sum_("v", or_null=True),
        average=mean("v"),
        most=max_("v"),
        different=distinct("v"),
    )
    functions = """
        count(*) OVER w AS number, CAST(sum(v) OVER w AS BIGINT) AS total, avg(v) OVER w AS average,
        max(v) OVER w AS most, count(DISTINCT v) OVER w AS different
    """
    found = results(step, batches, groups=groups, restart=restart)
    expected = in_duckdb(functions, sql, batches, order)
    assert found.with_columns(pl.col("average").round(9)).rows() == (
        expected.with_columns(pl.col("average").round(9)).rows()
    )


@given(feeds(), st.sampled_from([1, 3]), st.integers(-1, 3))
@MODEST
def test_numbers_and_neighbours(batches: list[pl.DataFrame], groups: int, restart: int) -> None:
    step = stream().over(
        rows=3,
        place=row_number(),
        place_1=rank(),
        place_2=dense_rank(),
        before=lag("n", 2, default=-1),
        after=lead("n", 2),
        next_one=lag("n", -1),
        opened=first_value("v"),
        closed=last_value("v"),
    )
    order = "(PARTITION BY k ORDER BY s, n)"
    functions = f"""
        row_number() OVER {order} AS place, rank() OVER o AS place_1, dense_rank() OVER o AS place_2,
        lag(n, 2, -1) OVER {order} AS before, lead(n, 2) OVER {order} AS after, lead(n) OVER {order} AS next_one,
        first_value(v) OVER w AS opened, last_value(v) OVER w AS closed
    """
    sql = "ROWS BETWEEN 3 PRECEDING AND CURRENT ROW"
    query = functions.replace("OVER w", "OVER (PARTITION BY k ORDER BY s, n " + sql + ")")
    found = results(step, batches, groups=groups, restart=restart)
    assert found.rows() == in_duckdb(query, "", batches).rows()


@given(feeds(), st.sampled_from([1, 3]), st.integers(-1, 3))
@MODEST
def test_first_value_of_all_and_order_of_arrival(batches: list[pl.DataFrame], groups: int, restart: int) -> None:
    step = stream().over(order="arrival", opened=first_value("v"), total=sum_("n"), place=rank())
    functions = """
        first_value(v) OVER w AS opened, CAST(sum(n) OVER w AS BIGINT) AS total, row_number() OVER w AS place
    """
    found = results(step, batches, groups=groups, restart=restart)
    assert found.rows() == in_duckdb(functions, "ROWS UNBOUNDED PRECEDING", batches, "n").rows()


def test_a_row_behind_the_watermark_is_late() -> None:
    runner = Runner(stream().over(rows=1, total=sum_("v")))
    rows = pl.DataFrame(
        {"k": ["a"] * 2, "v": [1, 2], "s": [0, 0], "n": [0, 1], "event_time": pl.Series([20, 40]) * 1_000_000}
    )
    rows = rows.with_columns(pl.col("event_time").cast(INSTANT))
    assert runner.step(rows).results.get_column("total").to_list() == [1]
    late = runner.step(rows.head(1)).late
    assert late is not None
    assert late.get_column("lateness").dt.total_seconds().to_list() == [14]
    assert runner.finish().results.get_column("total").to_list() == [3]


def test_many_rows_of_one_key_are_carried_on_in_blocks() -> None:
    rows = pl.DataFrame({"k": "a", "v": range(1_000), "s": 0, "n": range(1_000)})
    rows = rows.with_columns((pl.col("n") * 1_000).cast(INSTANT).alias("event_time"))
    runner = Runner(stream().over(rows="all", total=sum_("v"), listed=collect("v")))
    found = pl.concat([runner.step(rows.slice(0, 600)).results, runner.step(rows.slice(600)).results])
    found = pl.concat([found, runner.finish().results]).sort("n")
    assert found.get_column("total").to_list() == rows.get_column("v").cum_sum().to_list()
    assert found.get_column("listed").list.len().to_list() == list(range(1, 1_001))


def test_what_cannot_be_asked() -> None:
    with pytest.raises(PlanError, match="over with rows and range"):
        stream().over(rows=1, range="1s", total=sum_("v"))
    with pytest.raises(PlanError, match="over of nothing"):
        stream().over(rows=1)
    with pytest.raises(PlanError, match="the column 'v' is taken"):
        stream().over(rows=1, v=sum_("v"))
    with pytest.raises(PlanError, match="-1 preceding"):
        stream().over(rows=-1, total=sum_("v"))
    with pytest.raises(PlanError, match="over of an updating stream"):
        stream().aggregate(total=sum_("v")).over(rows=1, x=row_number())
