"""Records: events that bring columns of their own, held to what a reader declares."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError, SchemaError
from headrace.events import Codec, Column, Record, Result
from headrace.events.codec import MAX_VALUE_BYTES
from headrace.kafka.ranges import Chunk
from headrace.spark.source.arrow_stage import ArrowStage
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace.windows import max as maximum

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHEMA = pl.Schema({"icao24": pl.String, "altitude": pl.Float64, "squawk": pl.Int32})


def frame(**columns: list[Any]) -> pl.DataFrame:
    height = len(next(iter(columns.values())))
    return pl.DataFrame({"event_time": [NOON + timedelta(seconds=n) for n in range(height)], **columns})


@pytest.mark.parametrize("engine", ["auto", "python"])
@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_a_record_comes_back_as_it_was(engine: Any, encoding: Any) -> None:
    codec = Codec(engine=engine)
    sent = frame(
        icao24=["a1", None], altitude=[1.5, 2.5], ground=[True, False], day=[date(2026, 5, 1), None], tags=[["x"], []]
    )
    decoded = codec.decode(codec.encode(sent, Record, encoding=encoding), types=[Record])
    assert decoded.dead.height == 0
    assert decoded.frame.drop("ingestion_time").equals(sent)


def test_declared_columns_are_what_comes_out() -> None:
    codec = Codec()
    values = [
        *codec.encode(frame(icao24=["a1"], altitude=[100.0], other=["x"]), Record).to_pylist(),
        *codec.encode(frame(altitude=[100], squawk=[7], icao24=["a2"]), Record).to_pylist(),  # whole numbers will do
        *codec.encode(frame(icao24=["a3"], altitude=["high"]), Record).to_pylist(),
        *codec.encode(frame(other=[1]), Record).to_pylist(),
        *codec.encode(frame(icao24=["a5"], squawk=[2**40]), Record).to_pylist(),
        *codec.encode(frame(icao24=["a6"], altitude=[None]), Record).to_pylist(),
        *codec.encode(frame(icao24=["a7"], squawk=[1.5]), Record).to_pylist(),
    ]
    decoded = codec.decode(values, types=[Record], columns={"headrace.v1.Record": SCHEMA})
    assert decoded.frame.schema == pl.Schema(
        {"event_time": pl.Datetime("us", "UTC"), "ingestion_time": pl.Datetime("us", "UTC"), **SCHEMA}
    )
    assert decoded.frame.select(*SCHEMA).rows() == [
        ("a1", 100.0, None), ("a2", 100.0, 7), (None, None, None), ("a6", None, None),
    ]  # fmt: skip
    assert decoded.dead["reason"].to_list() == ["malformed_details"] * 3
    assert "'altitude' is str, which cannot be read as f64" in decoded.dead["text"][0]
    assert "'squawk'" in decoded.dead["text"][1]


def test_declared_columns_without_rows_have_their_types() -> None:
    decoded = Codec().decode([b"rubbish"], types=[Record], columns=SCHEMA)
    assert {name: decoded.frame.schema[name] for name in SCHEMA} == dict(SCHEMA)


def test_columns_that_nobody_wants_do_not_count_towards_the_limit_of_a_batch() -> None:
    codec = Codec()
    values = [
        codec.write(
            Record(columns=[Column(name=f"c{batch}-{n}", integer=n) for n in range(600)] + [Column(name="x", real=1)]),
            event_time=NOON,
        )
        for batch in range(3)
    ]
    wanted = pl.Schema({"x": pl.Float64})
    assert codec.decode(values, types=[Record], columns=wanted).frame["x"].to_list() == [1.0] * 3
    assert codec.decode(values, types=[Record]).dead.height == 2


def test_the_fields_of_a_result_keep_their_types() -> None:
    codec = Codec()
    value = codec.write(Result(job="j", columns=[Column(name="vehicles", integer=3)]), event_time=NOON)
    both = pl.Schema({"vehicles": pl.Int64, "job": pl.String})
    assert codec.decode([value], types=[Result], columns=both).frame.select(*both).row(0) == (3, "j")
    with pytest.raises(SchemaError, match="String, not Int64"):
        codec.decode([value], types=[Result], columns=pl.Schema({"job": pl.Int64}))


_CELLS = st.builds(
    lambda name, text, value: Column(name=name, type=text, **value),
    st.sampled_from(["icao24", "altitude", "squawk", "x", "event_time", ""]),
    st.sampled_from(["", "i64", "f64", "str", "u8", "date", "list[i64]", "rubbish", "datetime[us,UTC]"]),
    st.one_of(
        st.just({}),
        st.integers(-(2**63), 2**63 - 1).map(lambda n: {"integer": n}),
        st.floats().map(lambda n: {"real": n}),
        st.text(max_size=5).map(lambda t: {"text": t}),
        st.booleans().map(lambda b: {"boolean": b}),
    ),
)


@given(st.lists(st.lists(_CELLS, max_size=4), max_size=8))
@settings(deadline=None)
def test_any_record_is_a_row_of_the_declared_types_or_a_dead_letter(rows: list[list[Column]]) -> None:
    codec = Codec()
    values = [codec.write(Record(columns=row), event_time=NOON) for row in rows]
    decoded = codec.decode(values, types=[Record], columns=SCHEMA)
    assert decoded.frame.height + decoded.dead.height == len(rows)
    assert {name: decoded.frame.schema[name] for name in SCHEMA} == dict(SCHEMA)
    # One by one gives the same: a row does not depend on its neighbours.
    alone = [codec.decode([value], types=[Record], columns=SCHEMA) for value in values]
    kept = [part.frame for part in alone if part.frame.height]
    assert sum(part.dead.height for part in alone) == decoded.dead.height
    if kept:
        assert pl.concat(kept).equals(decoded.frame)
    assert all(len(value) < MAX_VALUE_BYTES for value in values)


# ---------------------------------------------------------------- streams of records


def counting(name: str, topic: str, schema: dict[str, Any]) -> Job:
    stream = (
        Stream.topic(topic, schema={"sensor": pl.String, **schema})
        .watermark(bounded("1s"))
        .key_by("sensor")
        .window(tumbling("10s"))
        .aggregate(rows=count(), most=maximum("value"))
    )
    return Job(name=name, stream=stream)


@pytest.mark.parametrize(
    ("kind", "schema", "words"),
    [
        (Record, None, "columns of their own"),
        (Record, {}, "columns of their own"),
        (Record, {"columns": pl.String}, "'columns'"),
        (Record, {"kafka_offset": pl.Int64}, "'kafka_offset'"),
        (Record, {"x": pl.Object}, "'x'"),
        (Result, {"job": pl.Int64}, "'job'"),
    ],
)
def test_declarations_that_cannot_be(kind: Any, schema: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Stream.topic("t", kind, schema=schema)


def test_a_type_with_a_schema_of_its_own_takes_no_other() -> None:
    from headrace_transit.schemas import VehiclePosition

    with pytest.raises(PlanError, match="schema of its own"):
        Stream.topic("t", VehiclePosition, schema={"speed": pl.Float64})


def chunk(topic: str, *values: bytes) -> Chunk:
    return Chunk(topic, 0, pa.array(values, pa.binary()), pa.array(range(len(values)), pa.int64()))


def test_topics_may_use_the_same_name_for_different_columns() -> None:
    codec = Codec()
    jobs = [counting("a", "input.a", {"value": pl.Float64}), counting("b", "input.b", {"value": pl.Int64})]
    stage = ArrowStage({job.name: job.pipeline for job in jobs}, 1, codec, {})
    real = codec.encode(frame(sensor=["k"], value=[1.5]), Record).to_pylist()
    whole = codec.encode(frame(sensor=["k"], value=[7]), Record).to_pylist()
    out = stage(iter([chunk("input.a", real[0]), chunk("input.b", whole[0], real[0])]), None)
    kinds = out.column("kind").to_pylist()
    assert kinds.count("clock") == 2
    assert kinds.count("dead") == 1  # a fraction where a whole number is declared


def test_jobs_that_contradict_each_other_are_refused_when_they_are_put_together() -> None:
    jobs = [counting("a", "input.a", {"value": pl.Float64}), counting("b", "input.a", {"value": pl.Int64})]
    with pytest.raises(PlanError, match="another job as"):
        ArrowStage({job.name: job.pipeline for job in jobs}, 1, Codec())
