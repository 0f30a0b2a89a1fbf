"""Operators of tables against what is computed anew from the rows that are left, and against DuckDB."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tables.changed_rows import SCHEMA, Changes, changes, check, source

from headrace.windows import count, distinct, latest, mean, top_k
from headrace.windows import max as max_
from headrace.windows import min as min_
from headrace.windows import sum as sum_

if TYPE_CHECKING:
    from tests.tables.changed_rows import Row

    from headrace.stream import Stream

MODEST = settings(max_examples=10, deadline=None)
HOW = {"groups": st.sampled_from([1, 3]), "restart": st.integers(-1, 2), "splits": st.booleans()}

AGGREGATES = {
    "n": count(),
    "known": count("v"),
    "total": sum_("v", or_null=True),
    "average": mean("x"),
    "least": min_("v"),
    "most": max_("x"),
    "different": distinct("v"),
}


def in_duckdb(query: str, **tables: list[Row]) -> list[tuple[Any, ...]]:
    """Ask DuckDB about rows."""
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, pl.DataFrame(rows, schema=SCHEMA, orient="row").to_arrow())
        found = connection.sql(query).pl()
    return found.with_columns(pl.col(pl.Float64).round(9) + 0.0).rows()


def grouped(by: str) -> str:
    """The aggregates in SQL."""
    return f"""
        SELECT {by} count(*) AS n, count(v) AS known, CAST(sum(v) AS BIGINT) AS total, avg(x) AS average,
            min(v) AS least, max(x) AS most, count(DISTINCT v) AS different
        FROM rows {"GROUP BY k" if by else ""}
    """  # noqa: S608 - a text of this file


@pytest.mark.parametrize("appends", [True, False])
@given(data=st.data())
@MODEST
def test_groups(appends: bool, data: st.DataObject) -> None:
    stream = source(appends=appends).key_by("k", null_keys=True).aggregate(**AGGREGATES)
    check(
        stream,
        {"rows": data.draw(changes(appends=appends))},
        lambda rows: in_duckdb(grouped("k,"), rows=rows),
        **data.draw(st.fixed_dictionaries(HOW)),
    )


@given(changes(), st.fixed_dictionaries(HOW))
@MODEST
def test_one_group_of_all_rows(feed: Changes, how: dict[str, Any]) -> None:
    """Its row is there from the first row on, and stays when all rows are gone."""
    first = next((number for number, batch in enumerate(feed.batches) if batch), None)
    if first is None:
        return
    kept = Changes(feed.batches[first:], feed.tables[first:])
    check(source().aggregate(**AGGREGATES), {"rows": kept}, lambda rows: in_duckdb(grouped(""), rows=rows), **how)


def sorted_first(rows: list[Row]) -> list[Row]:
    """Rows by descending `v`, then by all columns, nulls as the smallest: no two different rows are alike."""
    return sorted(
        rows, key=lambda row: [(value is not None, value if value is not None else 0) for value in order(row)]
    )


def order(row: Row) -> tuple[Any, ...]:
    """What the tests of top-N order rows by."""
    return (None if row[1] is None else row[1], row[2], row[3])


@pytest.mark.parametrize("appends", [True, False])
@given(data=st.data())
@MODEST
def test_first_rows_of_each_key(appends: bool, data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 3))
    stream = source(appends=appends).with_columns(t=pl.col("event_time"))
    stream = stream.key_by("k", null_keys=True).top(n, by=["v", "x", "t"], descending=False, rank="place").drop("t")

    def expected(rows: list[Row]) -> list[tuple[Any, ...]]:
        groups: dict[str | None, list[Row]] = defaultdict(list)
        for row in sorted_first(rows):
            groups[row[0]].append(row)
        return [(*row[:3], place) for group in groups.values() for place, row in enumerate(group[:n], 1)]

    check(stream, {"rows": data.draw(changes(appends=appends))}, expected, **data.draw(st.fixed_dictionaries(HOW)))


@pytest.mark.parametrize("numbering", ["rank", "dense_rank"])
@given(data=st.data())
@MODEST
def test_ranks_of_equal_rows(numbering: str, data: st.DataObject) -> None:
    stream = source().key_by("k", null_keys=True).top(2, by="v", rank="place", numbering=numbering)  # type: ignore[arg-type]
    query = f"""
        SELECT k, v, x, place FROM (
            SELECT *, {numbering}() OVER (PARTITION BY k ORDER BY v DESC NULLS LAST) AS place FROM rows
        ) WHERE place <= 2
    """  # noqa: S608 - one of two texts above
    check(
        stream,
        {"rows": data.draw(changes())},
        lambda rows: in_duckdb(query, rows=rows),
        **data.draw(st.fixed_dictionaries(HOW)),
    )


@given(changes(), st.fixed_dictionaries(HOW))
@MODEST
def test_distinct(feed: Changes, how: dict[str, Any]) -> None:
    stream = source().select("k", "x").distinct()
    check(stream, {"rows": feed}, lambda rows: in_duckdb("SELECT DISTINCT k, x FROM rows", rows=rows), **how)


SETS: dict[str, Any] = {
    "INTERSECT": lambda left, right: left.intersect(right),
    "INTERSECT ALL": lambda left, right: left.intersect(right, all=True),
    "EXCEPT": lambda left, right: left.subtract(right),
    "EXCEPT ALL": lambda left, right: left.subtract(right, all=True),
    "UNION": lambda left, right: left.union(right).distinct(),
}


@pytest.mark.parametrize("operation", SETS)
@given(data=st.data())
@settings(MODEST, max_examples=6)
def test_set_operations(operation: str, data: st.DataObject) -> None:
    left, right = (source(name).select("k", "v") for name in ("one", "two"))
    stream: Stream = SETS[operation](left, right)
    query = f"SELECT k, v FROM one {operation} SELECT k, v FROM two"  # noqa: S608 - one of five texts above
    check(
        stream,
        {name: data.draw(changes()) for name in ("one", "two")},
        lambda one, two: in_duckdb(query, one=one, two=two),
        **data.draw(st.fixed_dictionaries(HOW)),
    )


@given(changes(), st.fixed_dictionaries(HOW))
@MODEST
def test_an_aggregate_of_an_aggregate(feed: Changes, how: dict[str, Any]) -> None:
    """How many groups have each size: what the first takes back, the second subtracts."""
    sizes = source().key_by("k", null_keys=True).aggregate(n=count())
    query = "SELECT n, count(*) FROM (SELECT k, count(*) AS n FROM rows GROUP BY k) GROUP BY n"
    stream = sizes.key_by("n").aggregate(groups=count())
    check(stream, {"rows": feed}, lambda rows: in_duckdb(query, rows=rows), **how)


@given(changes(), st.fixed_dictionaries(HOW))
@MODEST
def test_aggregates_of_all_values(feed: Changes, how: dict[str, Any]) -> None:
    def expected(rows: list[Row]) -> list[tuple[Any, ...]]:
        found = []
        for key in {row[0] for row in rows}:
            own = [row for row in rows if row[0] == key]
            numbers = Counter(row[1] for row in own if row[1] is not None)
            most = sorted(numbers.items(), key=lambda item: (-item[1], item[0]))[:1]
            newest = max(((row[3], row[1]) for row in own if row[1] is not None), default=(0, None))
            listed = [{"value": value, "count": times} for value, times in most]
            found.append((key, repr(listed), newest[1]))
        return found

    stream = source().key_by("k", null_keys=True).aggregate(often=top_k("v", 1), last=latest("v"))
    check(stream, {"rows": feed}, expected, **how)
