"""`preview`: rows and records in, results, late rows and dead letters out."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest

from headrace import Job, Stream, bounded, preview, tumbling
from headrace.errors import PlanError
from headrace.formats import json as json_format
from headrace.formats import text
from headrace.windows import count

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECONDS = (1, 12, 3, 25)


def counted(source: Stream) -> Stream:
    return source.watermark(bounded("0s")).key_by("depot").window(tumbling("10s")).aggregate(scans=count())


ROWS = counted(Stream.rows("scans", {"depot": pl.String, "weight": pl.Float64}))
TOPIC = counted(Stream.topic("scans", format=json_format({"depot": pl.String}, time="at")))


def texts() -> list[dict[str, Any]]:
    return [{"event_time": f"2026-01-01T12:00:{second:02}Z", "depot": "north"} for second in SECONDS]


@pytest.mark.parametrize(
    ("stream", "rows"),
    [
        (ROWS, texts()),
        (ROWS, pl.DataFrame(texts())),
        (
            ROWS,
            [{**row, "event_time": NOON + timedelta(seconds=each)} for row, each in zip(texts(), SECONDS, strict=True)],
        ),
        (ROWS, {"scans": texts()}),
        (Job("scans", ROWS), texts()),
        (TOPIC, [json.dumps({"at": row["event_time"], "depot": "north"}).encode() for row in texts()]),
    ],
)
def test_rows_and_records_in_any_form_give_the_same(stream: Stream | Job, rows: Any) -> None:
    shown = preview(stream, rows)
    assert shown.results.select(pl.col("window_start").dt.second(), "scans").rows() == [(0, 1), (10, 1), (20, 1)]
    assert shown.late["event_time"].dt.second().to_list() == [3]
    assert shown.dead.is_empty()
    assert "3 results" in repr(shown)
    assert "1 late row\n" in repr(shown)
    assert "<h4>1 late row</h4>" in shown._repr_html_()


def test_all_rows_at_once_are_never_late() -> None:
    shown = preview(ROWS, texts(), batch=4)
    assert shown.results["scans"].to_list() == [2, 1, 1]
    assert shown.late.is_empty()
    assert "late" not in repr(shown)


def test_a_record_that_cannot_be_read_is_shown_with_the_reason() -> None:
    shown = preview(TOPIC, [b"rubbish", b'{"at": "2026-01-01T12:00:01Z", "depot": "north"}'])
    assert shown.dead.select("reason", "value").rows() == [("malformed_json", b"rubbish")]
    assert shown.results.height == 1
    assert "1 dead letter\n" in repr(shown)


def test_no_rows_give_no_results() -> None:
    assert preview(
        ROWS, pl.DataFrame({"event_time": []}, schema={"event_time": pl.Datetime("us", "UTC")})
    ).results.is_empty()
    assert preview(ROWS, []).results.is_empty()
    assert preview(TOPIC, []).results.is_empty()


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([{"depot": "north"}], "lack event_time"),
        ([{"event_time": "noon", "depot": "north"}], "is no time"),
        ([{"event_time": NOON, "depott": "north"}], "have depott, which the stream does not"),
        ([{"event_time": NOON, "weight": "heavy"}], "do not fit the stream"),
        ({"other": texts()}, "there is no source 'other'"),
        ([b"a record"], "which is no topic"),
    ],
)
def test_rows_that_do_not_fit_are_refused(rows: Any, told: str) -> None:
    with pytest.raises(PlanError, match=told):
        preview(ROWS, rows)
    with pytest.raises(PlanError, match="batch is 0"):
        preview(ROWS, texts(), batch=0)


def test_values_of_a_format_that_takes_kafkas_timestamp_have_the_time_of_the_call() -> None:
    lines = Stream.topic("lines", format=text("line")).watermark(bounded("1s")).with_columns(all=pl.lit(1))
    before = datetime.now(UTC)
    shown = preview(lines.key_by("all").window(tumbling("1h")).aggregate(lines=count()), [b"one", b"two", b"\xff"])
    assert shown.results["lines"].sum() == 2
    assert shown.results["window_end"][-1] > before
    assert shown.dead["reason"].to_list() == ["malformed"]


def test_records_may_be_text() -> None:
    values = ['{"at": "2026-01-01T12:00:01Z", "depot": "north"}', b'{"at": "2026-01-01T12:00:12Z", "depot": "north"}']
    assert preview(TOPIC, values).results["scans"].to_list() == [1, 1]  # type: ignore[arg-type]


def test_what_was_hardly_meant_is_noted() -> None:
    stream = Stream.topic("scans", format=json_format({"depot": pl.String}, time="at", time_format="ms"))
    short = stream.watermark(bounded(5)).key_by("depot").window(tumbling(10)).aggregate(scans=count())
    shown = preview(short, [json.dumps({"at": 1_767_225_600, "depot": "<b>"})])
    assert [note.partition(":")[0] for note in shown.notes] == [
        "watermark bounded(5us)",
        "window tumbling(10us)",
        "event time is 1970-01-21; are times counted in another unit than time_format says?",
    ]
    assert "Note: window tumbling(10us): that is 10 millionths of a second." in repr(shown)
    assert "<p>Note: " in shown._repr_html_()
    assert preview(TOPIC, [b'{"at": "2026-01-01T12:00:01Z", "depot": "north"}']).notes == ()


def test_a_preview_of_something_else_says_what_it_takes() -> None:
    with pytest.raises(PlanError, match="preview of a str") as refused:
        preview("scans", [])  # type: ignore[arg-type]
    assert "preview(stream, rows)" in refused.value.hint
    with pytest.raises(PlanError, match="lack event_time") as refused:
        preview(TOPIC, [{"at": "2026-01-01T12:00:01Z", "depot": "north"}])
    assert "are bytes or text" in refused.value.hint
