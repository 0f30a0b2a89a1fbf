"""Streams as values: what they print, that they can be built upon twice, and what their steps do to rows."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from headrace import formats
from headrace.errors import JobError, PlanError
from headrace.formats.envelope import EnvelopeFormat
from headrace.inprocess import Runner, run
from headrace.stream import Job, Output, Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded, punctuated
from headrace.windows import (
    after_count,
    after_watermark,
    count,
    latest,
    sliding,
    sum,  # noqa: A004
    tumbling,
)
from headrace_transit.schemas import VehiclePosition

COLUMNS = {"vehicle": pl.String, "speed": pl.Int64}


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, tz=UTC)


def readings() -> Stream:
    return Stream.rows("readings", COLUMNS)


def rows(*given: tuple[str | None, int | None, float]) -> pl.DataFrame:
    columns = {"vehicle": pl.String, "speed": pl.Int64, "event_time": pl.Datetime("us", "UTC")}
    return pl.DataFrame([(k, v, at(t)) for k, v, t in given], schema=columns, orient="row")


def per_vehicle(stream: Stream) -> Stream:
    return stream.watermark(bounded(0)).key_by("vehicle").window(tumbling("10s")).aggregate(n=count())


def values(stream: Stream, frame: pl.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(run(stream, frame).results.select(columns).rows(), key=str)


def test_a_plan_prints_every_step_in_the_words_it_was_written_in() -> None:
    stream = (
        Stream.topic("input.vehicle-position", VehiclePosition)
        .watermark(bounded("1s"), idle_after="30s")
        .with_columns(fast=pl.col("speed") > 10)
        .select("vehicle_id", "fast", "route")
        .filter(pl.col("fast"))
        .flat_map("letter", pl.col("route").str.split(""))
        .map_batches(lambda frame: frame, name="checked")
        .deduplicate("vehicle_id", "letter", within="1min")
        .key_by("vehicle_id", "letter")
        .window(
            sliding("30s", every="5s", offset="1s"),
            trigger=after_watermark(early=after_count(3)),
            mode="delta",
            allowed_lateness="5s",
        )
        .aggregate(n=count(), newest=latest("fast"))
        .key_by("newest")
        .same_window()
        .aggregate(vehicles=count())
    )
    assert stream.explain().splitlines() == [
        "topic input.vehicle-position of headrace.v1.VehiclePosition",
        "  watermark bounded(1s), idle after 30s",
        "  with_columns fast",
        "  select vehicle_id, fast, route",
        '  filter col("fast")',
        "  flat_map letter",
        "  map_batches checked",
        "  key_by vehicle_id, letter",
        "  deduplicate by vehicle_id, letter within 1min",
        "  key_by vehicle_id, letter",
        "  window sliding(30s every 5s, offset 1s), trigger after_watermark(early=after_count(3)), "
        "mode delta, allowed lateness 5s",
        "  aggregate n=count(), newest=latest(fast)",
        "  key_by newest",
        "  window same_window",
        "  aggregate vehicles=count()",
    ]


def test_a_union_prints_its_parts_and_a_job_its_topics() -> None:
    both = readings().union(Stream.rows("others", COLUMNS).filter(pl.col("speed") > 0))
    job = Job("counts", per_vehicle(both), description="How many")
    assert job.explain().splitlines() == [
        "counts: How many",
        "union of",
        "  rows readings",
        "  rows others",
        '    filter [(col("speed")) > (dyn int: 0)]',
        "  watermark bounded(0s)",
        "  key_by vehicle",
        "  window tumbling(10s)",
        "  aggregate n=count()",
        "  to analytics.counts, exactly once (late events to analytics.counts.late)",
        "  state of aggregate-by-vehicle",
    ]
    assert job.windows == "tumbling(10s)"
    assert Job("other", job.stream, result_topic="somewhere").late_topic == "somewhere.late"


def test_a_stream_is_frozen() -> None:
    stream = readings()
    with pytest.raises(FrozenInstanceError):
        stream.keys = ("vehicle",)  # type: ignore[misc]


def test_two_streams_can_be_built_upon_one_without_touching_it() -> None:
    base = readings().watermark(bounded(0)).filter(pl.col("speed") > 0)
    before = base.explain()
    fast = base.filter(pl.col("speed") > 5).key_by("vehicle").window(tumbling("10s")).aggregate(n=count())
    all_ = base.key_by("vehicle").window(tumbling("10s")).aggregate(n=count())
    frame = rows(("a", 1, 1), ("a", 9, 2), ("a", 0, 3))
    assert values(fast, frame, "n") == [(1,)]
    assert values(all_, frame, "n") == [(2,)]
    assert base.explain() == before
    assert base.keys == ()


def test_a_stream_may_meet_itself_again_in_a_union() -> None:
    base = readings().watermark(bounded(0))
    slow, fast = (base.filter(each).with_columns(kind=pl.lit(name)) for name, each in _SPEEDS.items())
    both = slow.union(fast).key_by("kind").window(tumbling("10s")).aggregate(n=count())
    runner = Runner(both)
    first = runner.step(rows(("a", 1, 1), ("a", 9, 2), ("b", 9, 3), ("b", 3, 12)))
    assert sorted(first.results.select("kind", "n").rows()) == [("fast", 2), ("slow", 1)]
    assert runner.finish().results.select("kind", "n").rows() == [("slow", 1)]


_SPEEDS = {"slow": pl.col("speed") < 5, "fast": pl.col("speed") >= 5}


def test_with_columns_computes_all_from_what_came_in() -> None:
    stream = per_vehicle(readings().with_columns(speed=pl.col("speed") + 1, vehicle=pl.col("speed").cast(pl.String)))
    assert values(stream, rows(("a", 1, 0), ("b", 2, 0)), "vehicle") == [("1",), ("2",)]


def test_select_keeps_the_event_time_and_may_compute() -> None:
    chosen = readings().select("vehicle", double=pl.col("speed") * 2)
    assert chosen.schema.names() == ["event_time", "vehicle", "double"]
    stream = chosen.watermark(bounded(0)).key_by("vehicle").window(tumbling("10s")).aggregate(total=sum("double"))
    assert values(stream, rows(("a", 1, 0), ("a", 2, 0)), "vehicle", "total") == [("a", 6)]


def test_filter_drops_what_is_not_true_and_null_is_not() -> None:
    stream = per_vehicle(readings().filter(pl.col("speed") > 1))
    assert values(stream, rows(("a", 1, 0), ("a", None, 0), ("a", 2, 0)), "n") == [(1,)]


def test_flat_map_gives_each_element_a_row_and_none_to_an_empty_list() -> None:
    split = readings().flat_map("part", pl.col("vehicle").str.split("/").list.filter(pl.element() != ""))
    stream = split.watermark(bounded(0)).key_by("part").window(tumbling("10s")).aggregate(n=count())
    frame = rows(("x/y", 1, 0), ("", 2, 0), (None, 3, 0), ("y", 4, 0))
    assert values(stream, frame, "part", "n") == [("x", 1), ("y", 2)]


def test_map_batches_is_a_function_on_frames_and_knows_its_columns_from_a_run_without_rows() -> None:
    seen: list[int] = []

    def doubled(frame: pl.DataFrame) -> pl.DataFrame:
        seen.append(frame.height)
        return pl.concat([frame, frame]).with_columns(pl.lit("x").alias("mark"))

    stream = readings().map_batches(doubled)
    assert stream.schema["mark"] == pl.String
    assert seen == [0]
    assert values(per_vehicle(stream), rows(("a", 1, 0)), "n") == [(2,)]


def test_the_watermark_looks_at_rows_as_they_are_where_it_stands() -> None:
    flushed = readings().with_columns(flush=pl.col("speed") < 0).watermark(punctuated(pl.col("flush")))
    runner = Runner(flushed.key_by("vehicle").window(tumbling("10s")).aggregate(n=count()))
    assert runner.step(rows(("a", 1, 5), ("a", 1, 100))).results.is_empty()
    assert runner.step(rows(("a", -1, 50))).results.select("n").rows() == [(1,)]
    shifted = readings().with_columns(event_time=pl.col("event_time").dt.offset_by("1h")).watermark(bounded(0))
    batch = Runner(shifted.key_by("vehicle").window(tumbling("10s")).aggregate(n=count())).step(rows(("a", 1, 5)))
    assert batch.watermark == 3605 * 1_000_000


def test_results_have_the_columns_and_types_that_the_stream_promised() -> None:
    for lateness in ("0s", "5s"):
        stream = (
            readings()
            .watermark(bounded(0))
            .key_by("vehicle")
            .window(tumbling("10s"), allowed_lateness=lateness)
            .aggregate(n=count(), total=sum("speed"), newest=latest("speed"))
            .with_columns(half=pl.col("total") / 2)
            .key_by("newest")
            .same_window()
            .aggregate(n=count(), most=sum("half"))
        )
        results = run(stream, rows(("a", 1, 0), ("b", 1, 0))).results
        assert results.schema == stream.schema
        assert Runner(stream).step().results.schema == stream.schema


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (
            readings().with_columns(number=pl.col("vehicle").cast(pl.Int64)),
            r"step 'with_columns number' failed: .*conversion.*example row: .*'vehicle': 'x'.*'speed': 7",
        ),
        (
            readings().filter(pl.col("vehicle").str.to_integer() > 1),
            r"step 'filter .*' failed: .*example row: .*'vehicle': 'x'",
        ),
        (
            readings().map_batches(lambda frame: frame.filter([1 // (7 - v) >= 0 for v in frame["speed"]]), name="div"),
            r"step 'map_batches div' failed: ZeroDivisionError: .*example row: .*'vehicle': 'x'",
        ),
        (
            readings().with_columns(
                speed=pl.col("speed").map_batches(lambda s: s // (1 if 7 not in s else [][1]), return_dtype=pl.Int64)
            ),
            r"step 'with_columns speed' failed: .*IndexError.*example row: .*'vehicle': 'x'",
        ),
        (
            readings().map_batches(lambda frame: frame if frame.is_empty() else frame.to_dicts(), name="odd"),  # type: ignore[arg-type, return-value]
            r"step 'odd' returned list, not a Polars DataFrame",
        ),
        (
            readings().map_batches(lambda frame: frame if frame.is_empty() else frame.drop("vehicle"), name="odd"),
            r"after map_batches odd, column 'vehicle' is not there, but it was String when the plan was made",
        ),
        (
            readings().map_batches(lambda frame: frame.cast({"vehicle": pl.Categorical}) if frame.height else frame),
            r"column 'vehicle' is Categorical, but it was String",
        ),
    ],
)
def test_a_step_that_fails_is_told_by_name_with_a_row_that_makes_it_fail(broken: Stream, words: str) -> None:
    runner = Runner(per_vehicle(broken))
    good = [(str(number), 1, number) for number in range(9)]
    with pytest.raises(JobError, match=words):
        runner.step(rows(*good, ("x", 7, 3)))


def test_a_step_on_results_that_fails_is_told_too() -> None:
    stream = per_vehicle(readings()).with_columns(number=pl.col("vehicle").cast(pl.Int64))
    with pytest.raises(JobError, match=r"step 'with_columns number' failed.*'vehicle': 'x'"):
        run(stream, rows(("1", 1, 1), ("x", 1, 1)))
    odd = per_vehicle(readings()).map_batches(lambda frame: frame if frame.is_empty() else frame.drop("n"))
    with pytest.raises(JobError, match="column 'n' is not there"):
        run(odd, rows(("1", 1, 1)))


def test_a_pipeline_reads_only_the_columns_it_needs() -> None:
    wide = Stream.rows("wide", dict.fromkeys("abcdefgh", pl.Int64))
    stream = (
        wide.watermark(punctuated(pl.col("h") == 1))
        .filter(pl.col("a") > 0)
        .with_columns(c=pl.col("b") + 1, g=pl.col("f"))
        .key_by("d")
        .window(tumbling("1s"))
        .aggregate(total=sum("c"))
    )
    pipeline = compile_plan(stream.node, stream.schema)
    assert set(pipeline.entries[0].columns) == {"event_time", "a", "b", "d", "f", "h"}
    assert set(pipeline.stages[0].schema) == {"event_time", "c", "d"}
    whole = compile_plan(stream.node, stream.schema, prune=False)
    assert set(whole.stages[0].schema) == {"event_time", *"abcdefgh"}


@pytest.mark.parametrize(
    "chooser",
    [
        lambda wide: wide.filter(pl.all_horizontal(pl.all().is_not_null())),
        lambda wide: wide.with_columns(c=pl.sum_horizontal(pl.col("^[a-c]$"))),
        lambda wide: wide.map_batches(lambda frame: frame),
    ],
    ids=["all", "by pattern", "function"],
)
def test_a_step_that_chooses_columns_by_itself_gets_them_all(chooser: Any) -> None:
    wide = Stream.rows("wide", dict.fromkeys("abcd", pl.Int64)).watermark(bounded(0))
    stream = chooser(wide).key_by("d").window(tumbling("1s")).aggregate(total=sum("c"))
    assert set(compile_plan(stream.node, stream.schema).entries[0].columns) == {"event_time", *"abcd"}


def test_an_aggregate_that_chooses_columns_by_itself_gets_them_all() -> None:
    wide = Stream.rows("wide", dict.fromkeys("abcd", pl.Int64)).watermark(bounded(0))
    stream = wide.key_by("d").window(tumbling("1s")).aggregate(total=sum(pl.sum_horizontal(pl.col("^[a-c]$"))))
    assert set(compile_plan(stream.node, stream.schema).entries[0].columns) == {"event_time", *"abcd"}


def test_a_result_column_that_every_record_has_already_is_refused_where_the_job_is_written() -> None:
    stream = Stream.rows("readings", {"key": pl.String}).watermark(bounded("1s"))
    windowed = stream.key_by("key").window(tumbling("5s")).aggregate(n=count())
    with pytest.raises(PlanError, match="result column key"):
        Job("clash", windowed)


def test_a_format_that_cannot_write_the_results_of_a_job_is_refused_when_the_job_is_built() -> None:
    source = Stream.topic("lines", format=formats.text("line")).watermark(bounded("1s"))
    counts = source.key_by("line").window(tumbling("1s")).aggregate(n=count())
    job = Job("lines", counts, format=formats.text("line"), outputs={"all": Output(counts, format=formats.json())})
    assert "to analytics.lines as text, exactly once" in job.explain()
    assert "to analytics.lines.all as json, exactly once" in job.explain()
    with pytest.raises(PlanError, match=r"cannot write its results as text: .* column 'words'"):
        Job("lines", counts, format=formats.text("words"))
    with pytest.raises(PlanError, match="the envelope as its format"):
        Job("lines", counts, format=EnvelopeFormat("headrace.v1.Record", ()))


def test_joined_rows_are_results_as_they_are() -> None:
    columns = {"customer": pl.String, "euros": pl.Float64}
    orders = Stream.topic("orders", schema={"customer": pl.String, "order": pl.String}).watermark(bounded("1s"))
    payments = Stream.topic("payments", schema=columns).watermark(bounded("1s"))
    joined = payments.join(orders, on="customer", within=("-1h", "0s"))
    assert "ingestion_time" in joined.schema
    job = Job("paid", joined, outputs={"all": Output(joined)})
    assert "ingestion_time" not in job.stream.schema
    assert "ingestion_time" not in job.outputs["all"].stream.schema
    at = datetime(2026, 1, 1, tzinfo=UTC)
    given = {
        "orders": pl.DataFrame({"event_time": [at], "ingestion_time": [at], "customer": ["a"], "order": ["o1"]}),
        "payments": pl.DataFrame({"event_time": [at], "ingestion_time": [at], "customer": ["a"], "euros": [2.5]}),
    }
    assert Runner(job).step(given).results.select("order", "euros").rows() == [("o1", 2.5)]
