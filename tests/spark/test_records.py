"""What names a result; these tests need no Spark session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.events import Codec, VehiclePosition
from headrace.spark.records import Writer
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

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
