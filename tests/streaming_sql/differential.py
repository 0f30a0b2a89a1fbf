"""Random queries over random bounded tables, in Headrace and in DuckDB; and the same queries as streams with restarts.

`python -m tests.streaming_sql.differential --queries 10000` runs many, with a seed that makes a run repeatable. The
queries are of the part of SQL that both know, see `random_queries`.
"""

# ruff: noqa: S608, T201

from __future__ import annotations

import argparse
import datetime as dt
import math
import random
import sys
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
from tests.streaming_sql.random_queries import COLUMNS, Generator, Query, random_table

from headrace.engine.operator import IS_RETRACTION
from headrace.errors import HeadraceError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.streaming_sql.constants import constant_sources
from headrace.streaming_sql.passing import runnable
from headrace.streaming_sql.query import plan_relation
from headrace.streaming_sql.relation import CatalogTable
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.relation import Relation


def table_of(name: str) -> CatalogTable:
    """A table as a stream; no row of a random table is late."""
    stream = Stream.rows(name, COLUMNS).watermark(bounded("1min"))
    return CatalogTable(stream, "ts", "", {each: each for each in COLUMNS})


def ours(query: str, tables: dict[str, pl.DataFrame], cuts: Sequence[int] = (), *, restart: int = -1) -> list[Any]:
    """Run a query as a stream in batches, and give the table that it leaves.

    Args:
        query: The query.
        tables: Its tables.
        cuts: How many rows of each table each batch brings; none: all at once.
        restart: Behind which batch a runner goes on from the snapshot of another.
    """
    relation = plan_relation(query, {name: table_of(name) for name in tables}, bounded=True, warn=lambda _: None)
    stream = runnable(relation.stream)
    runner = Runner(stream, key_groups=2)
    sources = {entry.source.name for entry in runner.pipeline.entries}
    frames = [runner.step(dict(constant_sources(relation.stream))).results] if constant_sources(relation.stream) else []
    start = 0
    most = max(frame.height for frame in tables.values())
    for number, size in enumerate([*cuts, most] if cuts else [most]):
        fed = {
            name: frame.slice(start, size).with_columns(event_time=pl.col("ts"))
            for name, frame in tables.items()
            if name in sources
        }
        start += size
        if fed:
            frames.append(runner.step(fed).results)
        if number == restart:
            runner = Runner(stream, key_groups=2, snapshot=runner.snapshot())
    frames.append(runner.finish().results)
    return final_rows(relation, frames)


def final_rows(relation: Relation, frames: Sequence[pl.DataFrame]) -> list[Any]:
    """Give the rows that are left of all changes.

    Raises:
        AssertionError: A row was taken back that never came.
    """
    shown = [column.physical for column in relation.columns if column.shown and column.physical]
    left: dict[str, list[Any]] = {}
    for frame in frames:
        signs = frame.get_column(IS_RETRACTION).to_list() if IS_RETRACTION in frame.columns else [False] * frame.height
        values = frame.select(pl.col(name).alias(f"c{place}") for place, name in enumerate(shown)).rows()
        for row, sign in zip(values, signs, strict=True):
            held = left.setdefault(repr(row), [row, 0])
            held[1] += -1 if sign else 1
    below = [row for row, count in left.values() if count < 0]
    assert not below, f"taken back, but never given: {below[:2]}"
    return [row for row, count in left.values() for _ in range(count)]


def theirs(query: str, tables: dict[str, pl.DataFrame]) -> list[Any]:
    """Run a query in DuckDB."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, frame in tables.items():
            connection.register(f"{name}_rows", frame.to_arrow())
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
        return connection.execute(query).fetchall()


def normal(value: Any) -> Any:
    """Bring a value to a form that can be compared and sorted."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float | Decimal):
        number = float(value)
        return "nan" if math.isnan(number) else f"{number + 0.0:.9g}"
    if isinstance(value, dt.datetime):
        return (value if value.tzinfo else value.replace(tzinfo=dt.UTC)).astimezone(dt.UTC).isoformat()
    return repr(value)


def table_text(rows: Sequence[Any]) -> list[tuple[str, ...]]:
    """Give rows in an order of their own."""
    return sorted(tuple(normal(value) for value in row) for row in rows)


@dataclass(frozen=True)
class Difference:
    """Where the two gave different tables, or one of them failed."""

    query: Query
    seed: int
    told: str


def compare(seed: int, *, streams: bool = True) -> Difference | None:
    """Run one random query in both, and as a stream in random batches with a restart."""
    rng = random.Random(seed)
    tables = {"t": random_table(rng, rng.randint(0, 25)), "u": random_table(rng, rng.randint(0, 12))}
    query = Generator(rng).query()
    try:
        wanted = table_text(theirs(query.theirs, tables))
    except duckdb.Error as problem:
        return Difference(query, seed, f"DuckDB cannot: {problem}")
    try:
        found = table_text(ours(query.ours, tables))
    except (HeadraceError, AssertionError, pl.exceptions.PolarsError) as problem:
        return Difference(query, seed, f"{type(problem).__name__}: {problem}")
    if found != wanted:
        return Difference(query, seed, f"{_some(found, wanted)}")
    if streams:
        cuts = [rng.randint(1, 6) for _ in range(rng.randint(1, 4))]
        again = table_text(ours(query.ours, tables, cuts, restart=rng.randint(0, len(cuts) - 1)))
        if again != wanted:
            return Difference(query, seed, f"in batches {cuts}: {_some(again, wanted)}")
    return None


def _some(found: list[tuple[str, ...]], wanted: list[tuple[str, ...]]) -> str:
    extra = [row for row in found if row not in wanted][:3]
    missing = [row for row in wanted if row not in found][:3]
    return f"{len(found)} rows, {len(wanted)} in DuckDB; only ours {extra}; only theirs {missing}"


def main() -> int:
    """Run many queries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=10, help="how many differences to show")
    given = parser.parse_args()
    differences = 0
    for number in range(given.queries):
        found = compare(given.seed + number)
        if found is None:
            continue
        differences += 1
        if differences <= given.show:
            print(f"seed {found.seed}\n  {found.query.ours}\n  {found.query.theirs}\n  {found.told}\n", flush=True)
    print(f"{given.queries:,} queries, {differences} differences")
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
