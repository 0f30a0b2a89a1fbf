"""A routing service is asked by the workers of a Spark query: its answers are in the results; without it events go on.

The service is a real HTTP server that this process runs. One query goes through all its moods: it answers, is down,
answers with errors, and answers again.
"""

from __future__ import annotations

import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from aiohttp import web
from tests.enrich.routing import RoutingServer

from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import collect, count, tumbling
from headrace_transit.gtfs import TRIP
from headrace_transit.routing import routing_service
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import BatchDone

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

TOPIC = "input.enriched"
START = datetime(2026, 1, 1, 6, tzinfo=UTC)
#: Seconds of event time of each phase: two windows.
PHASE = 10


@pytest.fixture
def server() -> Iterator[RoutingServer]:
    running = RoutingServer(
        {
            ("HSL:1", 0, "2026-01-01", 6 * 3600 + 60 * number): (f"HSL:S{number}", 60.1 + number / 1000, 24.9)
            for number in range(60)
        }
    )
    running.start()
    yield running
    running.stop()


def job(server: RoutingServer) -> Job:
    service = routing_service(
        server.url, retries=1, failures=3, cool_down="100ms", keep_failed="10ms", patience="20s", timeout="5s"
    )
    stream = (
        Stream.topic(TOPIC, VehiclePosition)
        .watermark(bounded("1s"))
        .enrich(service, on=TRIP)
        .key_by("line")
        .window(tumbling("5s"))
        .aggregate(reports=count(), known=count("final_stop"), stops=collect("final_stop"))
    )
    return Job("enriched", stream)


def reports(phase: int) -> pl.DataFrame:
    """A vehicle on trip 0, which is known from the first phase on, and one on a trip that begins with the phase."""
    rows = [
        {
            "event_time": START + timedelta(seconds=second),
            "vehicle_id": f"v{trip}",
            "line": "1",
            "route": "1",
            "direction": 1,
            "operating_day": "2026-01-01",
            "trip_start": f"06:{trip:02d}",
        }
        for second in range(phase * PHASE, (phase + 1) * PHASE)
        for trip in (0, phase + 1)
    ]
    frame = pl.DataFrame(rows, schema_overrides={"direction": pl.Int32, "event_time": pl.Datetime("us", "UTC")})
    return frame.with_columns(ingestion_time=pl.col("event_time"))


def test_results_are_enriched_and_go_on_without_the_service(bench: Bench, server: RoutingServer) -> None:
    work = job(server)
    bench.prepare(work, partitions=1)

    async def fails(_: int) -> web.Response:
        return web.Response(status=500)

    def away() -> None:
        server.stop()

    def broken() -> None:
        server.mood = fails
        server.start()

    def healed() -> None:
        server.mood = None
        time.sleep(0.5)  # longer than the service is left alone after it has failed

    moods: list[Callable[[], None]] = [lambda: None, away, broken, healed, lambda: None]
    counted: list[Counter[str]] = []

    def next_phase() -> None:
        phase = len(counted)
        moods[phase]()
        counted.append(Counter())
        bench.send_rows(TOPIC, reports(phase), VehiclePosition, "vehicle_id")

    def through(batches: list[BatchDone]) -> bool:
        last = batches[-1]
        if last is not seen[-1]:
            seen.append(last)
            counted[-1].update(last.counters.get(work.name, {}))
        passed = instant(START + timedelta(seconds=len(counted) * PHASE - 2))
        if last.watermark is None or last.watermark < passed or counted[-1].total() < 2 * PHASE:
            return False
        if len(counted) < len(moods):
            next_phase()
            return False
        return True

    seen: list[BatchDone | None] = [None]
    next_phase()
    bench.run(work, until=through)

    # Every event went on, and what became of its question is counted: trip 0 is known all the time.
    assert [each.total() for each in counted] == [2 * PHASE] * len(moods)
    assert counted[0] == counted[3] == counted[4] == {"final_stop.found": 2 * PHASE}
    for without in counted[1:3]:
        assert without["final_stop.found"] == PHASE
        assert without["final_stop.failed"] + without["final_stop.refused"] == PHASE
    assert counted[1]["final_stop.failed"] > 0

    found = bench.read(work.result_topic).sort("window_end")
    known = {0: 10, 1: 5, 2: 5, 3: 10, 4: 10}
    last = len(moods) * PHASE // 5 - 1  # the window that the watermark has not passed
    wanted = [(START + timedelta(seconds=5 * (n + 1)), 10, known[n // 2]) for n in range(last)]
    assert found.select("window_end", "reports", "known").rows() == wanted
    for number, stops in enumerate(found.get_column("stops").to_list()):
        phase = number // 2
        assert Counter(stops) == Counter({"S0": 5} | ({f"S{phase + 1}": 5} if known[phase] == 10 else {}))
