"""What names a result; these tests need no Spark session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.events import Codec
from headrace.spark.output.records import Writer
from headrace.stream import Job, Output, Stream
from headrace.time import bounded
from headrace.windows import count, top_k, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)


def _job(**window: str) -> Job:
    stream = Stream.topic("input.records", VehiclePosition).watermark(bounded("1s")).key_by("line")
    counts = stream.window(tumbling("5s"), **window).aggregate(n=count())  # type: ignore[arg-type]
    return Job("records", counts.select("line", "n", "window_start", "window_end", "event_time"))


def test_results_without_their_pane_are_told_apart_by_key_and_window() -> None:
    ends = [START, START, START + timedelta(seconds=5)]
    frame = pl.DataFrame(
        {"line": ["1", "2", "1"], "n": [3, 3, 3], "event_time": ends, "window_end": ends}
    ).with_columns((pl.col("window_end") - timedelta(seconds=5)).alias("window_start"))
    codec = Codec()
    (sent,) = Writer(_job(), codec).results(frame, 0)
    keys = codec.decode(sent.values).frame.get_column("idempotency_key")
    assert keys.n_unique() == 3


def test_a_window_that_may_fire_again_must_keep_what_tells_its_results_apart() -> None:
    with pytest.raises(PlanError, match="no pane_index and no is_retraction, though a window may fire again"):
        Writer(_job(allowed_lateness="10s"), Codec())


def test_a_window_that_may_fire_again_must_keep_its_window() -> None:
    stream = Stream.topic("input.records", VehiclePosition).watermark(bounded("1s")).key_by("line")
    counts = stream.window(tumbling("5s"), allowed_lateness="10s").aggregate(n=count())
    job = Job("records", counts.select("line", "n", "pane_index", "is_retraction"))
    with pytest.raises(PlanError, match="no window_end, though a window may fire again"):
        Writer(job, Codec())


@cache
def _writer(kinds: tuple[tuple[str, Any], ...]) -> Writer:
    source = Stream.rows("rows", dict(kinds)).watermark(bounded("1s"))
    counts = source.key_by(*dict(kinds)).window(tumbling("5s")).aggregate(n=count())
    return Writer(Job("records", counts), Codec())


def _idempotency_keys(rows: list[tuple[Any, ...]], kinds: dict[str, Any]) -> list[str]:
    """The idempotency keys of results with these keys, all of one window, each result in a batch of its own."""
    writer, told = _writer(tuple(kinds.items())), []
    for row in rows:
        keys = pl.DataFrame([row], schema=kinds, orient="row")
        window = {"window_start": START, "window_end": START + timedelta(seconds=5), "event_time": START}
        frame = keys.with_columns(
            pl.lit(1).alias("n"),
            pl.lit(0, dtype=pl.Int64).alias("pane_index"),
            pl.lit(value=False).alias("is_retraction"),
            *(pl.lit(value).alias(name) for name, value in window.items()),
        )
        (sent,) = writer.results(frame, 0)
        told += writer.codec.decode(sent.values).frame.get_column("idempotency_key").to_list()
    return told


_TEXTS = st.none() | st.text(alphabet="xy|\\:\x1f0123é", max_size=4)


_KEYS = st.tuples(_TEXTS, _TEXTS, st.none() | st.integers(-12, 12))


@settings(deadline=None)
@given(one=_KEYS, other=_KEYS)
def test_different_keys_never_have_the_same_idempotency_key(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    told = _idempotency_keys([one, other], {"a": pl.String, "b": pl.String, "c": pl.Int64})
    assert (told[0] == told[1]) == (one == other)


def test_the_separator_in_a_key_makes_no_two_results_alike() -> None:
    one, other = _idempotency_keys([("x|y", "z"), ("x", "y|z")], {"a": pl.String, "b": pl.String})
    assert one != other


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("1", pl.String), (1, pl.Int64)),
        (("", pl.String), (None, pl.String)),
        (("true", pl.String), (True, pl.Boolean)),
        ((1, pl.Int64), (True, pl.Boolean)),
        (("61", pl.String), (b"a", pl.Binary)),
        ((b"a", pl.Binary), ("a", pl.String)),
        ((0, pl.Int64), (datetime(1970, 1, 1, tzinfo=UTC), pl.Datetime("us", "UTC"))),
        ((datetime(1970, 1, 1, tzinfo=UTC).date(), pl.Date), (timedelta(0), pl.Duration("us"))),
    ],
    ids=lambda each: f"{each[0]!r}",
)
def test_keys_of_different_types_have_different_idempotency_keys(one: tuple[Any, Any], other: tuple[Any, Any]) -> None:
    (first,), (second,) = (_idempotency_keys([(value,)], {"k": kind}) for value, kind in (one, other))
    assert first != second


def test_an_idempotency_key_does_not_change_with_versions_nor_with_the_width_of_a_number() -> None:
    pinned = "c740119a91035beade84147ee0b0f599"
    assert _idempotency_keys([("6", 1)], {"line": pl.String, "direction": pl.Int32}) == [pinned]
    assert _idempotency_keys([("6", 1)], {"line": pl.Categorical(), "direction": pl.UInt8}) == [pinned]


def test_several_results_of_one_key_and_window_have_idempotency_keys_of_their_own() -> None:
    stream = Stream.topic("input.records", VehiclePosition).watermark(bounded("1s")).key_by("line")
    tops = stream.window(tumbling("5s")).aggregate(top=top_k("vehicle_id", 3)).flat_map("item", pl.col("top"))
    job = Job("records", tops.select("line", "window_end", vehicle=pl.col("item").struct.field("value")))
    frame = pl.DataFrame({"line": ["6", "6", "7"], "vehicle": ["a", "b", "a"]}).with_columns(
        pl.lit(START).alias("window_end"), pl.lit(START).alias("event_time")
    )
    codec = Codec()
    (sent,) = Writer(job, codec).results(frame, 0)
    assert codec.decode(sent.values).frame.get_column("idempotency_key").n_unique() == 3


def _counts() -> Stream:
    stream = Stream.topic("input.records", VehiclePosition).watermark(bounded("1s"))
    return stream.key_by("line", "direction").window(tumbling("5s")).aggregate(n=count())


def _twice() -> Stream:
    return _counts().key_by("line").same_window().aggregate(n=count())


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: _counts().select("line", "n", "window_end"), "'select line, n, window_end' drops the key direction"),
        (lambda: _counts().drop("line", "direction"), "'drop line, direction' drops the key line, direction"),
        (lambda: _counts().map_batches(lambda rows: rows.drop("line"), name="f"), "its results lack the key line"),
        (lambda: _twice().drop("line"), "'drop line' drops the key line"),
        (lambda: _counts().with_columns(line=pl.lit("6")), "'with_columns line' replaces the key line"),
        (lambda: _counts().flat_map("line", pl.concat_list("line")), "'flat_map line' replaces the key line"),
    ],
    ids=["select", "drop", "function", "second aggregate", "with_columns", "flat_map"],
)
def test_a_job_that_drops_its_key_is_refused_when_it_is_built(build: Callable[[], Stream], words: str) -> None:
    with pytest.raises(PlanError, match=words) as refusal:
        Job("records", build())
    assert refusal.value.hint


def test_an_output_that_drops_its_key_is_refused_when_its_job_is_built() -> None:
    counts = _counts()
    with pytest.raises(PlanError, match=r"job 'records.other': 'drop direction' drops the key direction"):
        Job("records", counts, outputs={"other": Output(counts.drop("direction"))})


def test_a_key_that_is_kept_under_its_name_is_no_problem() -> None:
    assert Job("records", _counts().select("n", "direction", line=pl.col("line"))).pipeline.result_keys
