"""Every job answers its marker, and the answer is recognised; in process, with the events that Kafka would get."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.config import Settings
from headrace.errors import PlanError
from headrace.events import Codec, Result, TypeRegistry
from headrace.inprocess import Runner
from headrace.kafka import Record
from headrace.observe.recognition import MARKERS, recognise
from headrace.time.instants import instant
from headrace_transit.gtfs import final_stops
from headrace_transit.jobs import all_jobs
from headrace_transit.markers import recipe_of, recipes
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.settings import TransitSettings
from headrace_transit.simulated_gtfs import write_feed
from headrace_transit.simulator import Fleet
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.inprocess.runner import Batch
    from headrace_transit.markers import VehicleRecipe

START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
_OUTPUT_KEYS = {"pairs": ["cell", "final_cell"]}
_TYPES = {VEHICLE_POSITIONS: VehiclePosition, STOP_EVENTS: StopEvent}


def answers(job_name: str, markers: dict[int, datetime]) -> dict[int, list[int]]:
    """Run a job over a simulated minute with markers in it; gives the `due` times of each marker's results."""
    job = all_jobs()[job_name]
    recipe = recipe_of(job_name)
    codec = Codec(TypeRegistry(VehiclePosition, StopEvent))
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
    runner = Runner(job)
    steps = [runner.step(rows[job.sources[0]] if len(rows) == 1 else rows), runner.finish()]
    found = defaultdict(list)
    for record in records(recipe, steps, codec):
        seen = recognise(record, codec, seen=7)
        if seen is not None:
            assert (seen.sighting.written, seen.sighting.seen) == (5, 7)
            found[seen.marker].append(seen.sighting.due)
    return dict(found)


def records(recipe: VehicleRecipe, steps: list[Batch], codec: Codec) -> Iterator[Record]:
    """The results as Kafka would hold them."""
    job = all_jobs()[recipe.job]
    if recipe.output:
        results, keys = pl.concat([step.outputs[recipe.output] for step in steps]), _OUTPUT_KEYS[recipe.output]
    else:
        results, keys = pl.concat([step.results for step in steps]), list(job.pipeline.result_keys)
    key = results.select(pl.concat_str(keys, separator="|")).to_series().alias("key")
    names = key.to_frame().with_columns(idempotency_key=pl.int_range(pl.len()).cast(pl.String), job=pl.lit(job.name))
    values = codec.encode(results.hstack(names), Result).to_pylist()
    for name, value in zip(key.to_list(), values, strict=True):
        yield Record(topic=recipe.result_topic, partition=0, offset=0, timestamp=5, key=name.encode(), value=value)


@pytest.mark.parametrize("job", recipes())
def test_every_job_answers_its_markers(job: str) -> None:
    markers = {number: START + timedelta(seconds=5 + index) for index, number in enumerate((0, 7, 500, MARKERS - 1))}
    found = answers(job, markers)
    assert set(found) == set(markers)
    for number, dues in found.items():
        # The first answer is that of the first window the event is in, or of the event itself.
        wait = min(dues) - instant(markers[number])
        assert 0 <= wait <= 5_000_000
        assert len(dues) == len(set(dues))


def test_a_feed_of_trips_is_asked_for_a_trip_that_it_knows(tmp_path: Path) -> None:
    settings = Settings(sections=(TransitSettings(gtfs=write_feed(tmp_path / "gtfs")),))
    (event,) = recipe_of("final-stop-distribution", settings).events(1, at=instant(START))
    codec = Codec(TypeRegistry(VehiclePosition))
    position = codec.payload(codec.read(event.value))  # type: ignore[arg-type]
    assert isinstance(position, VehiclePosition)
    known = final_stops(tmp_path / "gtfs")
    assert (position.route, position.trip_start) in set(known.select("route", "trip_start").rows())


def test_a_routing_service_tells_no_trip() -> None:
    settings = Settings(sections=(TransitSettings(routing_url="http://127.0.0.1:1/graphql"),))
    with pytest.raises(PlanError, match="needs a trip of the timetable"):
        recipe_of("final-stop-distribution", settings)


def test_a_job_without_a_recipe_is_told() -> None:
    with pytest.raises(PlanError, match="no latency marker for the job 'elsewhere'"):
        recipe_of("elsewhere")
