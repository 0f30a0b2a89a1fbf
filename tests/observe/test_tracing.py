"""Results carry the times of the newest event that their job had seen, so that latency can be read off them later."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.events import Codec
from headrace.inprocess import Runner
from headrace.spark.output.records import Writer
from headrace.spark.source.exchange import Parcel
from headrace.time.instants import instant
from headrace_transit.jobs import all_jobs
from headrace_transit.markers import recipe_of
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    import polars as pl

START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
JOB = all_jobs()["emergency-stop-pattern"]


def written(*times: dict[str, Any]) -> pl.DataFrame:
    """The result of an emergency stop, as a batch would write them whose first key group told these times."""
    events = recipe_of(JOB.name).events(1, at=instant(START))
    rows = Codec().decode([event.value for event in events], types=[VehiclePosition]).frame
    runner = Runner(JOB.stream)
    results = [runner.step(rows).results, runner.finish().results]
    parcel = Parcel()
    parcel.add_frames(0, "result", results)
    table = parcel.to_arrow()
    bodies = {"result": table.column("body").to_pylist(), "time": [json.dumps(told).encode() for told in times]}
    outgoing = Writer(JOB, Codec()).outgoing(bodies, instant(START), Counter())
    return Codec().decode([value for records in outgoing for value in records.values]).frame


def told(newest: dict[str, int | None], *, ingested: int | None) -> dict[str, Any]:
    """What a stage tells of the time that it has reached."""
    partitions = [{"partition": name, "newest": micros} for name, micros in newest.items()]
    return {"step": "stops", "partitions": partitions, "ingested": ingested, "watermark": 0, "now": 0, "rows": 1}


def test_a_result_tells_how_new_its_newest_event_was() -> None:
    newest = {"in/0": instant(START) + 5_000, "in/1": instant(START) + 9_000, "in/2": None}
    results = written(told(newest, ingested=instant(START) + 11_000))
    assert results.height == 1
    assert results["newest_event_time"].dt.epoch("us").unique().to_list() == [instant(START) + 9_000]
    assert results["newest_ingestion_time"].dt.epoch("us").unique().to_list() == [instant(START) + 11_000]


def test_what_is_not_known_is_left_empty() -> None:
    for results in (written(), written(told({"in/0": None}, ingested=None))):
        assert results.height == 1
        assert results["newest_event_time"].null_count() == results.height
        assert results["newest_ingestion_time"].null_count() == results.height
