"""Results in plain JSON, as the boards read them."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl

from headrace.dashboard.cleaning import clean
from headrace.dashboard.declaration import declare
from headrace.dashboard.plain_results import plain_reader, read_plain
from headrace.formats import csv, json
from headrace.kafka.consumer import Record
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
COUNTS = (
    Stream.topic("scans", format=json(schema={"depot": pl.String}, time="at"))
    .watermark(bounded("0s"))
    .key_by("depot")
    .window(tumbling("10s"))
    .aggregate(scans=count())
)


def test_results_are_read_with_their_key_and_window_and_others_are_left_out() -> None:
    job = Job("scans", COUNTS.select("depot", "scans", "window_start", "window_end"), format=json())
    rows = pl.DataFrame({"event_time": [START], "depot": ["north"], "scans": [3], "window_end": [START]})
    (value,) = json().encode(rows).to_pylist()
    headers = (("headrace-idempotency-key", b"abc"),)
    records = [
        Record(
            topic="analytics.scans",
            partition=0,
            offset=number,
            timestamp=1_000_000,
            key=b"north",
            value=each,
            headers=headers,
        )
        for number, each in enumerate([b"rubbish", value, b'{"depot":7}', None])
    ]
    declaration = declare(job)
    assert declaration.format is not None
    reader = plain_reader(declaration.format, declaration.schema)
    assert reader is not None
    frame = read_plain(reader, records)
    assert frame.select("key", "depot", "scans", "idempotency_key", "window_end").rows() == [
        ("north", "north", 3, "abc", START)
    ]
    shown = clean(frame, declaration)
    assert shown.values["scans"] == [3]
    assert shown.window_end == [int(START.timestamp() * 1_000)]


def test_results_of_other_formats_are_not_shown() -> None:
    job = Job("scans", COUNTS, format=csv({"depot": pl.String, "scans": pl.UInt64}))
    declaration = declare(job)
    assert declaration.format is not None
    assert plain_reader(declaration.format, declaration.schema) is None
