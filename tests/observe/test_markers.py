"""Every job answers its marker, and the answer is recognised; in process, with the events that Kafka would get."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest

from headrace.broker import Record
from headrace.errors import PlanError
from headrace.events import Codec, StopEvent, VehiclePosition
from headrace.inprocess import Runner
from headrace.observe.recognition import MARKERS, recognise
from headrace.spark.records import Writer
from headrace.time.instants import instant
from headrace.transit.jobs import all_jobs
from headrace.transit.markers import recipe_of
from headrace.transit.simulator import Fleet
from headrace.transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
_TYPES = {VEHICLE_POSITIONS: VehiclePosition, STOP_EVENTS: StopEvent}


def answers(job_name: str, markers: dict[int, datetime]) -> dict[int, list[int]]:
    """Run a job over a simulated minute with markers in it; gives the `due` times of each marker's results."""
    job = all_jobs()[job_name]
    recipe = recipe_of(job_name)
    codec = Codec()
    by_topic: dict[str, list[bytes]] = defaultdict(list)
    for marker, at in markers.items():
        for event in recipe.events(marker, at=instant(at)):
            by_topic[event.topic].append(event.value)
    fleet = Fleet(vehicles=50, seed=2, start=START)
    traffic = {VEHICLE_POSITIONS: fleet.positions(0, seconds=40), STOP_EVENTS: fleet.stop_events(0, seconds=40)}
    rows = {}
    for topic in job.sources:
        frame = traffic[topic]
        values = codec.encode(frame, _TYPES[topic]).to_pylist() + by_topic[topic]
        decoded = codec.decode(values, types=[_TYPES[topic]])
        assert decoded.dead.is_empty()
        rows[topic] = decoded.frame.with_columns(ingestion_time=pl.col("event_time"))
    runner = Runner(job.stream)
    step = runner.step(rows[job.sources[0]] if len(rows) == 1 else rows)
    results = pl.concat([step.results, runner.finish().results])
    found = defaultdict(list)
    for outgoing in Writer(job, codec).results(results, instant(START)):
        record = Record(
            topic=outgoing.topic, partition=0, offset=0, timestamp=5, key=outgoing.key, value=outgoing.value
        )
        seen = recognise(record, codec, seen=7)
        if seen is not None:
            assert (seen.sighting.written, seen.sighting.seen) == (5, 7)
            found[seen.marker].append(seen.sighting.due)
    return dict(found)


@pytest.mark.parametrize("job", list(all_jobs()))
def test_every_job_answers_its_markers(job: str) -> None:
    markers = {number: START + timedelta(seconds=5 + index) for index, number in enumerate((0, 7, 500, MARKERS - 1))}
    found = answers(job, markers)
    assert set(found) == set(markers)
    for number, dues in found.items():
        # The first answer is that of the first window the event is in, or of the event itself.
        wait = min(dues) - instant(markers[number])
        assert 0 <= wait <= 5_000_000
        assert len(dues) == len(set(dues))


def test_a_job_without_a_recipe_is_told() -> None:
    with pytest.raises(PlanError, match="no latency marker for the job 'elsewhere'"):
        recipe_of("elsewhere")
