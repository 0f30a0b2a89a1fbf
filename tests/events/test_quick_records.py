"""Records read quickly are what the general way makes of them, whatever their bytes are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events import Codec, Record, decoding
from headrace.events.quick_records import read_records
from headrace.events.schemas.envelope_pb2 import Event
from headrace.events.schemas.records_pb2 import Column

if TYPE_CHECKING:
    from headrace.events.decoding import Decoded

AT = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = pl.Schema({"n": pl.Int64, "text": pl.String, "big": pl.UInt64, "real": pl.Float64, "yes": pl.Boolean})
KINDS = {**SCHEMA, "small": pl.Int32(), "day": pl.Date(), "list": pl.List(pl.Int64())}
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200),
    "text": st.text(max_size=300) | st.sampled_from(["", "a", "ä", "x" * 127, "x" * 128]),
    "big": st.integers(0, 2**64 - 1) | st.integers(0, 300),
    "real": st.floats(allow_nan=True),
    "yes": st.booleans(),
    "small": st.integers(-(2**31), 2**31 - 1),
    "day": st.dates(),
    "list": st.lists(st.integers(-5, 5), max_size=3),
}


def both_ways(values: list[bytes], schema: pl.Schema) -> tuple[Decoded, Decoded]:
    codec = Codec()
    batch = pa.record_batch({"value": pa.array(values, pa.binary()), "offset": pa.array(range(len(values)))})

    def read() -> Decoded:
        return codec.decode(batch, types=["headrace.v1.Record"], columns=schema, keep=["offset", "value"])

    quick = read()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(decoding, "read_records", lambda *_, **__: None)
        return quick, read()


def same(quick: Decoded, general: Decoded) -> None:
    assert quick.frame.schema == general.frame.schema
    assert quick.frame.equals(general.frame)
    assert quick.dead.equals(general.dead)
    assert quick.ignored == general.ignored


@st.composite
def frames(draw: st.DrawFn) -> pl.DataFrame:
    names = draw(st.permutations(list(KINDS)).flatmap(lambda order: st.integers(1, 8).map(lambda n: order[:n])))
    rows = draw(st.integers(1, 6))
    columns = {
        name: pl.Series(name, draw(st.lists(st.none() | VALUES[name], min_size=rows, max_size=rows)), KINDS[name])
        for name in names
    }
    return pl.DataFrame({"event_time": [AT] * rows, **columns})


@given(first=frames(), second=frames(), asked=st.permutations(list(SCHEMA)), kept=st.integers(0, 5))
@settings(max_examples=60, deadline=None)
def test_the_quick_way_gives_what_the_general_way_gives(
    first: pl.DataFrame, second: pl.DataFrame, asked: list[str], kept: int
) -> None:
    values = [value for frame in (first, second, first) for value in Codec().encode(frame, Record).to_pylist()]
    same(*both_ways(values, pl.Schema({name: SCHEMA[name] for name in asked[:kept]})))


@given(frame=frames(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_records_with_broken_bytes_meet_the_same_end(frame: pl.DataFrame, data: st.DataObject) -> None:
    values = Codec().encode(frame, Record).to_pylist()
    broken = []
    for value in values * 2:
        event = Event.FromString(value)
        details = bytearray(event.details.value)
        for _ in range(data.draw(st.integers(0, 2))):
            place = data.draw(st.integers(0, max(0, len(details) - 1)))
            kind = data.draw(st.sampled_from(["flip", "cut", "add"]))
            if kind == "flip" and details:
                details[place] = data.draw(st.integers(0, 255))
            elif kind == "cut":
                del details[place:]
            else:
                details[place:place] = data.draw(st.binary(min_size=1, max_size=3))
        event.details.value = bytes(details)
        broken.append(event.SerializeToString())
    same(*both_ways([*values, *broken], SCHEMA))


@pytest.mark.parametrize(
    "cells",
    [
        [Column(name="event_time", text="mine")],
        [Column(name="n", integer=1), Column(name="n", integer=2)],
        [Column(name="kafka_offset", integer=1)],
        [Column(name="n", type="i32", integer=1)],
        [Column(name="n", type="nonsense")],
        [Column(name="n", real=1.5)],
        [Column(name="x" * 200, integer=1)],
        [Column(name="ä", text="ö"), Column(name="text", text="ü")],
        [Column(name="other", type="x" * 200)],
        [],
    ],
)
def test_what_is_not_taken_quickly_is_read_all_the_same(cells: list[Column]) -> None:
    event = Event()
    event.event_timestamp.FromDatetime(AT)
    event.details.type_url = "type.googleapis.com/headrace.v1.Record"
    event.details.value = Record(columns=cells).SerializeToString()
    same(*both_ways([event.SerializeToString()] * 3, SCHEMA))


def test_alike_records_are_taken_quickly_and_one_other_does_not_change_that() -> None:
    frame = pl.DataFrame({"event_time": [AT] * 100, "n": range(100), "text": [f"t{n}" for n in range(100)]})
    values = [Event.FromString(each).details.value for each in Codec().encode(frame, Record).to_pylist()]
    values[50] = Record(columns=[Column(name="n", integer=-1)]).SerializeToString()
    read = read_records(pa.array(values, pa.binary()), pl.Schema({"n": pl.Int64, "big": pl.UInt64}))
    assert read is not None
    assert read.fits is not None
    assert read.fits.tolist() == [place != 50 for place in range(100)]
    assert read.frame.get_column("n").to_list() == [n for n in range(100) if n != 50]
    assert read.frame.get_column("big").null_count() == 99
