"""Mistakes that a newcomer makes in jobs.py: each is told with its line, and with what to write instead."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace import Stream, bounded
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.formats import json
from headrace.registry import load_jobs

if TYPE_CHECKING:
    from pathlib import Path

BEGIN = """\
import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.formats import json
from headrace.windows import count, mean
readings = Stream.topic("oven.readings", format=json(schema={"oven": pl.String, "celsius": pl.Float64}, time="at"))
timed = readings.watermark(bounded("2s"))
"""
COUNTED = '.key_by("oven").window(tumbling("10s")).aggregate(n=count())'

MISTAKES = {
    "an unknown key": ('h = Job("h", timed.key_by("ovn"))', "key_by('ovn'): there is no such column", "oven, celsius"),
    "an unknown column": (
        'h = Job("h", timed.key_by("oven").window(tumbling("10s")).aggregate(n=mean("celcius")))',
        '"celcius"',
        "oven, celsius",
    ),
    "no watermark": (f'h = Job("h", readings{COUNTED})', "has no watermark", '.watermark(bounded("1s"))'),
    "no name": (f"h = Job(timed{COUNTED})", "missing 1 required", 'Job("late", stream)'),
    "no job": (f"h = timed{COUNTED}", "there is no job in", "Job("),
    "two names alike": (
        f'a = Job("h", timed{COUNTED}); b = Job("h", timed{COUNTED})',
        "two jobs named 'h'",
        "another name",
    ),
    "no unit": ('h = tumbling("10")', "'10' is not a duration", '"30s"'),
    "no aggregate": (
        'h = Job("h", timed.key_by("oven").window(tumbling("10s")))',
        "gives nothing by itself",
        ".aggregate(",
    ),
    "a text for a filter": ('timed.filter("celsius > 10")', "that is no expression", 'pl.col("celsius") > 10'),
    "a function for a filter": (
        'timed.filter(lambda row: row["celsius"] > 10)',
        "that is no expression",
        "map_batches",
    ),
    "other rows in a column": (
        'timed.with_columns(warmer=pl.col("celsius") > pl.col("celsius").mean())',
        "with_columns looks at other rows",
        "Aggregate in a window",
    ),
    "times in a format that is guessed": (
        'timed.with_columns(made=pl.col("oven").str.to_datetime())',
        "guessed from the first row",
        "Say the format",
    ),
    "other rows in a filter": (
        'timed.filter(pl.col("celsius").shift(1) > 10)',
        "filter looks at other rows",
        "previous(",
    ),
    "other rows in results": (
        f'timed{COUNTED}.select("oven", share=pl.col("n") / pl.col("n").sum())',
        "select looks at other rows",
        "Aggregate in a window",
    ),
    "other rows in a list": (
        'timed.flat_map("all", pl.col("celsius").implode())',
        "flat_map looks at other rows",
        "window",
    ),
    "an expression without a name": (
        'timed.with_columns(pl.col("celsius") + 273)',
        "the column has no name",
        "with_columns(fahrenheit=",
    ),
    "a selection without a name": ('timed.select(pl.col("celsius") + 273)', "the column has no name", "warm=pl.col"),
    "an aggregate without a name": (
        'timed.key_by("oven").window(tumbling("10s")).aggregate(count())',
        "aggregate(count()): the column has no name",
        "aggregate(n=count())",
    ),
    "a mean of a text": (
        'timed.key_by("oven").window(tumbling("10s")).aggregate(m=mean("oven"))',
        "mean(oven) of String: it takes numbers",
        "cast",
    ),
    "an aggregate not called": (
        'timed.key_by("oven").window(tumbling("10s")).aggregate(n=count)',
        "aggregate n=count: a function, and no aggregate",
        "Call it: n=count(...)",
    ),
    "an aggregate by its name": (
        'timed.key_by("oven").window(tumbling("10s")).aggregate(n="count")',
        "aggregate n: the str 'count', and no aggregate",
        "n=count()",
    ),
    "an expression as an aggregate": (
        'timed.key_by("oven").window(tumbling("10s")).aggregate(m=pl.col("celsius").mean())',
        "aggregate m: an expression of Polars",
        'mean("celsius")',
    ),
    "an expression as the key": (
        'timed.key_by(pl.col("oven").str.to_lowercase())',
        "key_by of an expression",
        "with_columns(depot=",
    ),
    "a list as the key": ('timed.key_by(["oven"])', "key_by of the list ['oven']", "Name columns"),
    "a step by another engine's name": ('timed.group_by("oven")', "streams have no group_by", 'key_by("depot")'),
    "a step with a slip": ("timed.fliter(1)", "streams have no fliter. Did you mean filter?", ""),
    "name and stream in the wrong order": (
        f'Job(timed{COUNTED}, "h")',
        "a job whose name is a Stream",
        "name comes first",
    ),
    "lines of CSV without columns": (
        f'from headrace.formats import csv; h = Job("h", timed{COUNTED}, format=csv())',
        "csv() without a schema",
        "Name the columns in the order",
    ),
    "columns without types": (
        'json(schema=["oven", "celsius"], time="at")',
        "the schema is a list, and not a mapping",
        'schema={"depot": pl.String',
    ),
    "a watermark of a text": ('readings.watermark("2s")', "watermark('2s'): that is no strategy", 'bounded("5s")'),
    "nothing but a filter": ('Job("h", timed.filter(pl.col("celsius") > 10))', "no stateful step", "key_by and window"),
    "capitals in the name": (f'h = Job("My Oven", timed{COUNTED})', "job name 'My Oven'", "lower-case letters"),
    "a format not called": (f'h = Job("h", timed{COUNTED}, format=json)', "has the format json", "format=json(...)"),
    "a source's format not called": ('Stream.topic("t", format=json)', "has the format json", "format=json(...)"),
    "columns in the place of the type": (
        'Stream.topic("t", {"a": pl.String})',
        "for the type of its events",
        "schema=",
    ),
    "a stream's name only": (
        'h = Job("h", "oven.readings")',
        "job 'h' of a str, not of a stream",
        'Job("late", stream)',
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_line_and_the_remedy(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, told, remedy = MISTAKES[mistake]
    path = tmp_path / "bakery_jobs.py"
    path.write_text(BEGIN + line + "\n")
    monkeypatch.setattr(sys, "path", list(sys.path))
    try:
        with pytest.raises(HeadraceError) as caught:
            load_jobs(str(path), Settings())
    finally:
        sys.modules.pop("bakery_jobs", None)
    problem = caught.value
    assert told in problem.message
    assert remedy in f"{problem.message} {problem.hint}"
    if mistake not in ("no job", "two names alike"):  # they are of the whole file
        assert f"{path}:7: " in problem.message


def test_types_of_python_are_types_of_columns() -> None:
    found = json(schema={"a": str, "b": int, "c": float, "d": bool}).schema
    assert found == {"a": pl.String, "b": pl.Int64, "c": pl.Float64, "d": pl.Boolean}
    with pytest.raises(HeadraceError, match="set is no type of a column"):
        json(schema={"a": set})


def test_a_field_of_a_struct_as_a_key_is_told_how_it_becomes_a_column() -> None:
    doors = Stream.topic("doors", format=json(schema={"door": pl.Struct({"open": pl.Boolean})}))
    with pytest.raises(HeadraceError, match=r"there is no such column.*with_columns\(open=pl.col\(\"door\"\).struct"):
        doors.watermark(bounded("1s")).key_by("door.open")
