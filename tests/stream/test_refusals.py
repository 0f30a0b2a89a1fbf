"""What cannot work is refused while it is being written, in words that say why and what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.engine import Operator, Outcome
from headrace.errors import PlanError
from headrace.inprocess import Runner, run
from headrace.stream import Job, Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded, punctuated
from headrace.time.strategies import perfect
from headrace.windows import (
    after_all,
    after_count,
    count,
    custom,
    global_,
    latest,
    never,
    sliding,
    sum,  # noqa: A004
    tumbling,
)
from headrace.windows import max as highest

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine import Segments, Turn
    from headrace.windows import Aggregate

COLUMNS = {"vehicle": pl.String, "speed": pl.Float64, "stops": pl.List(pl.Int64), "line": pl.Int64}


def source(name: str = "positions") -> Stream:
    return Stream.rows(name, COLUMNS)


def timed() -> Stream:
    return source().watermark(bounded("1s"))


def keyed() -> Stream:
    return timed().key_by("vehicle")


def counted() -> Stream:
    return keyed().window(tumbling("10s")).aggregate(n=count())


def revised() -> Stream:
    return keyed().window(tumbling("10s"), allowed_lateness="5s").aggregate(n=count())


def planned(stream: Stream) -> object:
    return compile_plan(stream.node, stream.schema)


class Nothing(Operator):
    """Gives nothing."""

    def __init__(self, columns: dict[str, pl.DataType]) -> None:
        self.columns = columns

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        return Outcome()

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return pl.Schema(self.columns)

    def fingerprint(self) -> dict[str, str]:
        return {}


INSTANT = pl.Datetime("us", "UTC")

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    # Joins and enrichment
    "join of streams": (
        lambda: timed().join(timed(), on="vehicle"),
        r"join of two streams without a bound in time.*within=.*window=.*as_table",
    ),
    "enrich by a stream": (
        lambda: timed().enrich(timed(), on="vehicle"),  # type: ignore[arg-type]
        r"enrich takes a table, a function or a service, and this is another stream.*Join the two streams: join\(",
    ),
    "enrich by a frame": (
        lambda: timed().enrich(pl.DataFrame({"vehicle": ["a"], "x": [1]}), on="vehicle"),  # type: ignore[arg-type]
        r"this is a DataFrame.*enrich\(table\(frame\), on=...\)",
    ),
    "enrich by a lazy frame": (
        lambda: timed().enrich(pl.LazyFrame({"vehicle": ["a"]}), on="vehicle"),  # type: ignore[arg-type]
        r"this is a LazyFrame.*table\(frame.collect\(\)\)",
    ),
    "enrich by a function": (
        lambda: timed().enrich(lambda keys: keys, on="vehicle"),  # type: ignore[arg-type, return-value]
        r"this is a function.*enrich\(bulk\(function, gives=",
    ),
    "enrich by a text": (
        lambda: timed().enrich("stops", on="vehicle"),  # type: ignore[arg-type]
        r"this is a str.*table\(...\), bulk\(...\) or http\(...\)",
    ),
    # Windows, keys, aggregates
    "window without key": (lambda: timed().window(tumbling("1s")), r"window without a key.*Call key_by"),
    "same_window without key": (lambda: counted().same_window(), r"same_window without a key"),
    "process without key": (
        lambda: timed().process(lambda keys, schema: Nothing({"event_time": INSTANT})),
        r"process without a key",
    ),
    "keep_for of a window": (
        lambda: keyed().window(tumbling("1s")).aggregate(n=count(), keep_for="1h"),
        r"keep_for of an aggregate of a window.*leave it out",
    ),
    "on_error without window": (
        lambda: keyed().aggregate(n=count(), on_error="dead_letter"),
        r"on_error of an aggregate without a window.*window\(...\)",
    ),
    "aggregate of nothing": (lambda: keyed().window(tumbling("1s")).aggregate(), r"aggregate of nothing.*count\(\)"),
    "window without aggregate": (
        lambda: planned(keyed().window(tumbling("1s"))),
        r"a window without an aggregate.*aggregate\(...\)",
    ),
    "window in window": (
        lambda: keyed().window(tumbling("1s")).window(tumbling("2s")),
        r"window between window and aggregate",
    ),
    "step in window": (
        lambda: keyed().window(tumbling("1s")).filter(pl.col("speed") > 1),
        r"filter between window and aggregate.*right after window",
    ),
    "key in window": (
        lambda: keyed().window(tumbling("1s")).key_by("line"),
        r"key_by between window and aggregate",
    ),
    "union in window": (
        lambda: timed().union(keyed().window(tumbling("1s"))),
        r"union between window and aggregate",
    ),
    "same_window without aggregate": (
        lambda: keyed().same_window(),
        r"same_window without an aggregate before it.*Use window",
    ),
    "same_window after its bounds were dropped": (
        lambda: counted().select("n", "window_end").key_by("n").same_window(),
        r"same_window without an aggregate before it",
    ),
    "negative lateness": (
        lambda: keyed().window(tumbling("1s"), allowed_lateness=-1),
        r"allowed_lateness.*cannot be negative",
    ),
    "lateness on a global window": (
        lambda: keyed().window(global_(), trigger=after_count(1), allowed_lateness="1s"),
        r"allowed_lateness on a window without end \(global\)",
    ),
    "global window without trigger": (
        lambda: keyed().window(global_()),
        r"never fires.*global window has no end",
    ),
    "trigger that never fires": (
        lambda: keyed().window(tumbling("1s"), trigger=after_all(after_count(1), never())),
        r"after_all\(after_count\(1\), never\(\)\) never fires: never\(\) does not",
    ),
    "window of no length": (lambda: tumbling("0s"), r"size of a tumbling window is 0s"),
    "window with gaps": (lambda: sliding("1s", every="2s"), r"leave gaps"),
    # Columns
    "unknown column in with_columns": (
        lambda: source().with_columns(x=pl.col("sped")),
        r"with_columns cannot work: .*sped.*The columns here are: vehicle, speed",
    ),
    "unknown column in select": (lambda: source().select("sped"), r"select cannot work: .*sped"),
    "unknown column in filter": (lambda: source().filter(pl.col("sped") > 1), r"filter cannot work: .*sped"),
    "unknown column in flat_map": (lambda: source().flat_map("s", pl.col("stop")), r"flat_map cannot work: .*stop"),
    "unknown column in key_by": (
        lambda: source().key_by("vehicle", "lin"),
        r"key_by\('lin'\): there is no such column.*line",
    ),
    "unknown column in aggregate": (
        lambda: keyed().window(tumbling("1s")).aggregate(x=latest("sped")),
        r"aggregate cannot work: .*sped.*speed",
    ),
    "unknown column in deduplicate": (
        lambda: timed().deduplicate("id", within="1min"),
        r"'id'.*there is no such column",
    ),
    "text in a sum": (
        lambda: keyed().window(tumbling("1s")).aggregate(x=sum("vehicle")),
        r"aggregate cannot work",
    ),
    "filter by a number": (lambda: source().filter(pl.col("line")), r"filter cannot work"),
    "flat_map of no list": (lambda: source().flat_map("s", pl.col("line")), r"flat_map cannot work"),
    "key twice": (lambda: source().key_by("line", "line"), r"key_by names 'line' twice"),
    "no key": (lambda: source().key_by(), r"key_by without a column"),
    "key of floating-point numbers": (lambda: source().key_by("speed"), r"'speed' is a floating-point number"),
    "key that is a list": (lambda: source().key_by("stops"), r"'stops' of type List.* cannot be a key"),
    "key that becomes a float": (
        lambda: source().key_by("line").with_columns(line=pl.col("line") / 2),
        r"'line' is a floating-point number",
    ),
    "key named like a result's column": (
        lambda: counted().key_by("window_end").window(tumbling("1min")),
        r"the key window_end has the name of a column that every result has",
    ),
    "taken name": (
        lambda: keyed().window(tumbling("1s")).aggregate(window_end=count()),
        r"'window_end' is taken",
    ),
    "taken name of the key": (
        lambda: keyed().window(tumbling("1s")).aggregate(vehicle=count()),
        r"'vehicle' is taken",
    ),
    "hidden name": (lambda: source().with_columns(**{"#x": pl.lit(1)}), r"'#x'.*begin with #"),
    "hidden name in rows": (lambda: Stream.rows("r", {"#x": pl.Int64}), r"'#x'"),
    "hidden name of an aggregate": (
        lambda: keyed().window(tumbling("1s")).aggregate(**{"#n": count()}),
        r"'#n'",
    ),
    "event_time dropped": (
        lambda: source().map_batches(lambda rows: rows.drop("event_time")),
        r"map_batches drops event_time.*Keep it",
    ),
    "event_time of another type": (
        lambda: source().with_columns(event_time=pl.col("line")),
        r"with_columns makes event_time a Int64",
    ),
    "key dropped": (lambda: keyed().select("speed"), r"select drops the key vehicle"),
    "retraction mark dropped": (
        lambda: planned(revised().select("n").key_by("n").window(tumbling("1min")).aggregate(x=count())),
        r"may revise its results, but column 'is_retraction' is gone",
    ),
    # Functions of the user
    "map_batches of no frame": (
        lambda: source().map_batches(lambda rows: rows.to_dicts(), name="listed"),  # type: ignore[arg-type, return-value]
        r"map_batches cannot work: step 'listed' returned list, not a Polars DataFrame",
    ),
    "map_batches that raises": (
        lambda: source().map_batches(lambda rows: {"a": rows}["b"]),
        r"map_batches cannot work: KeyError: 'b'.*vehicle",
    ),
    "operator without time": (
        lambda: keyed().process(lambda keys, schema: Nothing({"n": pl.Int64()}), name="gone"),
        r"process gone: the operator's results have no event_time",
    ),
    "operator with other columns than told": (
        lambda: keyed().process(lambda keys, schema: Nothing({"event_time": INSTANT}), schema={"n": pl.Int64()}),
        r"the operator's results have the columns .*event_time.*, not .*'n'",
    ),
    "aggregate that cannot take back": (
        lambda: planned(revised().key_by("n").same_window().aggregate(x=_unretractable())),
        r"cannot take back rows",
    ),
    # Watermarks, unions, jobs
    "watermark after key_by": (lambda: source().key_by("line").watermark(bounded("1s")), r"watermark after key_by"),
    "watermark after aggregate": (lambda: counted().watermark(bounded("1s")), r"watermark after an aggregate"),
    "mark of an unknown column": (
        lambda: source().watermark(punctuated(pl.col("flush"))),
        r"watermark punctuated.* cannot work: .*flush",
    ),
    "watermark from an unknown column": (lambda: source().watermark(perfect("w")), r"watermark perfect\(w\).*w"),
    "no watermark": (
        lambda: planned(source().key_by("line").window(tumbling("1s")).aggregate(n=count())),
        r"rows positions has no watermark.*bounded",
    ),
    "no watermark in one source of a union": (
        lambda: planned(timed().union(source("others")).key_by("line").window(tumbling("1s")).aggregate(n=count())),
        r"rows others has no watermark",
    ),
    "no stateful step": (lambda: planned(timed().filter(pl.col("line") > 1)), r"without a stateful step"),
    "union of different columns": (
        lambda: source().union(source().with_columns(line=pl.col("line").cast(pl.String))),
        r"different columns: line Int64, line String",
    ),
    "union of results and rows": (
        lambda: planned(timed().union(timed().deduplicate("line", within="1s"))),
        r"union of results with the rows of rows positions as they are.*stateful step",
    ),
    "two steps of one name": (
        lambda: planned(counted().named("n").key_by("vehicle").same_window().aggregate(m=count()).named("n")),
        r"two steps are named 'n': aggregate n=count.*; and aggregate m=count.*named",
    ),
    "a name for a step without state": (lambda: timed().named("n"), r"named\('n'\) after watermark.*keeps no state"),
    "a name that is none": (lambda: counted().named("Per Line"), r"the name 'Per Line' of a step.*lower-case"),
    "several inputs of which one has no key": (
        lambda: keyed().process_with(timed(), build=None, schema=pl.Schema(), name="meet"),  # type: ignore[arg-type]
        r"process_with without a key",
    ),
    "several inputs with keys of different types": (
        lambda: keyed().process_with(
            timed().key_by("line"),
            build=None,  # type: ignore[arg-type]
            schema=pl.Schema(),
            name="meet",
        ),
        r"keys of different types: vehicle String; line Int64.*[Cc]ast",
    ),
    "deduplicate by nothing": (lambda: timed().deduplicate(within="1s"), r"deduplicate without a column"),
    "deduplicate within nothing": (lambda: timed().deduplicate("line", within=0), r"deduplicate within 0"),
    "deduplicate results": (
        lambda: counted().deduplicate("vehicle", within="1s"),
        r"deduplicate after an aggregate",
    ),
    "idle after no time": (lambda: source().watermark(bounded(0), idle_after="0s"), r"idle_after '0s'.*above zero"),
    "job that cannot be planned": (
        lambda: Job("count", source().key_by("line").window(tumbling("1s")).aggregate(n=count())),
        r"rows positions has no watermark",
    ),
    "bad job name": (lambda: Job("Vehicle Count", counted()), r"job name 'Vehicle Count'.*lower-case"),
    "job name too long": (lambda: Job("a" * 64, counted()), r"63 at most"),
    "empty job name": (lambda: Job("", counted()), r"job name ''"),
    "unknown delivery": (
        lambda: Job("counts", counted(), delivery="twice"),  # type: ignore[arg-type]
        r"delivery 'twice'.*exactly_once, at_least_once, at_most_once",
    ),
    # Rows in process
    "rows for which source": (
        lambda: Runner(
            timed()
            .union(source("others").watermark(bounded(0)))
            .key_by("line")
            .window(tumbling("1s"))
            .aggregate(n=count())
        ).step(pl.DataFrame()),
        r"rows for which source.*positions, others",
    ),
    "rows for an unknown source": (
        lambda: Runner(counted()).step({"other": pl.DataFrame()}),
        r"no source 'other'.*positions",
    ),
    "rows without their columns": (
        lambda: Runner(counted()).step(pl.DataFrame({"vehicle": ["a"]})),
        r"lack speed, stops, line, event_time",
    ),
}


def _unretractable() -> Aggregate:
    return custom(
        ["n"], create=int, add=lambda s, rows: s, merge=lambda a, b: a, result=int, dtype=pl.Int64, name="sketchy"
    )


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused(case: str) -> None:
    build, words = REFUSED[case]
    with pytest.raises(PlanError) as caught:
        build()
    assert caught.value.hint
    assert re.search(words, str(caught.value), re.DOTALL), str(caught.value)


def test_what_the_refusal_of_a_join_advises_works() -> None:
    left = timed().select("vehicle", "speed", line=pl.lit(None, pl.Int64))
    right = timed().select("vehicle", "line", speed=pl.lit(None, pl.Float64)).select("vehicle", "speed", "line")
    joined = left.union(right).key_by("vehicle").window(tumbling("1min"))
    stream = joined.aggregate(speed=highest("speed"), line=highest("line"))
    at = pl.Series("event_time", [0, 1_000_000]).cast(INSTANT)
    rows = pl.DataFrame({"vehicle": ["a", "a"], "speed": [3.0, 5.0], "stops": [[], []], "line": [7, 7]}, schema=COLUMNS)
    results = run(stream, rows.with_columns(at)).results
    assert results.select("vehicle", "speed", "line").rows() == [("a", 5.0, 7)]


def test_what_looks_like_it_but_works_is_not_refused() -> None:
    planned(keyed().window(tumbling("1s"), trigger=never()).aggregate(n=count()))
    planned(keyed().window(global_(), trigger=after_count(2)).aggregate(n=count()))
    planned(counted().select("n", "window_start", "window_end").key_by("n").same_window().aggregate(x=count()))
    planned(timed().deduplicate("line", within="1s").key_by("line").window(tumbling("1s")).aggregate(n=count()))
    planned(timed().key_by("line").process(lambda keys, schema: Nothing({"event_time": INSTANT})))
    planned(source().watermark(punctuated(pl.col("line") == 0)).key_by("line").window(tumbling(1)).aggregate(n=count()))
