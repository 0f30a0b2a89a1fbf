"""Running one query over a small table in process, row by row."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import IS_RETRACTION
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.streaming_sql.constants import constant_sources
from headrace.streaming_sql.passing import runnable
from headrace.streaming_sql.query import plan_relation
from headrace.streaming_sql.relation import CatalogTable, Relation
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.streaming_sql.functions import ScalarFunction

START = dt.datetime(2026, 3, 1, 10, tzinfo=dt.UTC)
INSTANT = pl.Datetime("us", "UTC")
COLUMNS: dict[str, Any] = {"k": pl.String(), "v": pl.Int64(), "ts": INSTANT, "a": pl.List(pl.Int64())}
#: (key, value, seconds after the start, array); the fifth row comes late for windows of five seconds.
ROWS: tuple[tuple[Any, ...], ...] = (
    ("a", 1, 1, [1, 2]),
    ("b", 2, 3, []),
    ("a", 3, 6, [3]),
    ("c", None, 12, None),
    ("a", 4, 2, [4]),
    ("b", 7, 21, [7, 7]),
)


def table(name: str = "t") -> CatalogTable:
    """A table with a watermark just behind its newest row, and a time of arrival."""
    stream = Stream.rows(name, COLUMNS).watermark(bounded("0s"))
    return CatalogTable(stream, "ts", "arrived", {each: each for each in COLUMNS})


def planned(
    query: str,
    views: Mapping[str, str] | None = None,
    *,
    functions: Mapping[str, ScalarFunction] | None = None,
    bounded: bool = True,
    cautions: list[str] | None = None,
) -> Relation:
    """Plan a query over the table `t` and views of it."""
    known: dict[str, Any] = {"t": table(), "u": table("u")}
    heard = [] if cautions is None else cautions
    for name, text in (views or {}).items():
        known[name] = plan_relation(text, known, bounded=bounded, warn=heard.append)
    return plan_relation(query, known, functions=functions, bounded=bounded, warn=heard.append)


def changes(
    query: str, views: Mapping[str, str] | None = None, *, rows: Sequence[tuple[Any, ...]] = ROWS, **options: Any
) -> list[tuple[Any, ...]]:
    """What a query gives row by row; a retraction has a minus before it. Times are seconds after the start."""
    relation = planned(query, views, **options)
    runner = Runner(runnable(relation.stream), key_groups=2)
    sources = {entry.source.name for entry in runner.pipeline.entries}
    frames = []
    constants = constant_sources(relation.stream)
    if constants:
        frames.append(runner.step(dict(constants)).results)
    for row in rows:
        fed = {name: frame_of([row]) for name in ("t", "u") if name in sources}
        if fed:
            frames.append(runner.step(fed).results)
    frames.append(runner.finish().results)
    shown = [column.physical for column in relation.columns if column.shown and column.physical]
    return [found for frame in frames for found in _told(frame, shown)]


def frame_of(rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    """Rows as a frame."""
    data = [(k, v, START + dt.timedelta(seconds=second), a) for k, v, second, a in rows]
    frame = pl.DataFrame(data, schema=COLUMNS, orient="row")
    return frame.with_columns(event_time=pl.col("ts"))


def _told(frame: pl.DataFrame, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    signs = frame.get_column(IS_RETRACTION).to_list() if IS_RETRACTION in frame.columns else [False] * frame.height
    found = []
    for row, sign in zip(frame.select(columns).rows(), signs, strict=True):
        values = tuple((v - START).total_seconds() if isinstance(v, dt.datetime) else v for v in row)
        found.append(("-", *values) if sign else values)
    return found


def value(expression: str, **options: Any) -> Any:
    """What an expression over no table gives."""
    ((found,),) = changes(f"SELECT {expression}", rows=(), **options)
    return found


def final(query: str, views: Mapping[str, str] | None = None, **options: Any) -> list[tuple[Any, ...]]:
    """Give the table that a query leaves, in the order of its texts."""
    left: dict[str, tuple[tuple[Any, ...], int]] = {}
    for row in changes(query, views, **options):
        taken_back = bool(row) and row[0] == "-"
        values = row[1:] if taken_back else row
        _, count = left.get(repr(values), (values, 0))
        left[repr(values)] = (values, count + (-1 if taken_back else 1))
    assert all(count >= 0 for _, count in left.values()), "taken back, but never given"
    return sorted((values for values, count in left.values() for _ in range(count)), key=repr)
