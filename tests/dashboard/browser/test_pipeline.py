"""The whole way, from simulated vehicles to pixels: `headrace demo`, and a browser that opens the address it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.dashboard.browser.looking import entry, switch_on, wait_drawn
from tests.dashboard.city import until

from headrace.broker import Connection
from headrace.broker.consumer import Consumer
from headrace.broker.jars import default_directory
from headrace.broker.producer import Producer
from headrace.dashboard.cleaning import clean
from headrace.dashboard.declaration import declare_all
from headrace.events import Codec, Result, VehiclePosition
from headrace.transit.jobs import all_jobs
from headrace.transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page
    from tests.dashboard.browser.conftest import OpenPage

    from headrace.dashboard.declaration import Declaration

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("HEADRACE_LONG"), reason="takes minutes: HEADRACE_LONG=1 runs the whole way to pixels"
    ),
]

ROOT = Path(__file__).resolve().parents[3]
#: A loaded machine takes its time for Spark's first micro-batch.
PATIENCE = 400
LAYERS = (
    "vehicle-distribution",
    "delay-distribution",
    "final-stop-distribution",
    "final-stop-distribution.pairs",
    "flow-direction",
)
STOPS = "emergency-stop-pattern"


class Demo:
    """A running demo: what it says, line by line."""

    def __init__(self, home: Path) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PATHS__HOME": str(home / "data"),
            "HEADRACE_PATHS__JARS": str(default_directory()),
            "HEADRACE_SPARK__DRIVER_MEMORY": "800m",
        }
        self.lines: list[dict[str, Any]] = []
        self.errors = home / "errors.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", "demo", "--json", "--vehicles", "120", "--port", "0"],
                env=environment,
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def told(self, event: str) -> dict[str, Any] | None:
        assert self.process.poll() is None, self.errors.read_text()
        return next((line for line in self.lines if line.get("event") == event), None)

    @property
    def bootstrap(self) -> str:
        text = self.errors.read_text()
        return "127.0.0.1:" + text.split("127.0.0.1:")[1].split()[0]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    demo = Demo(tmp_path_factory.mktemp("demo"))
    try:
        yield demo
    finally:
        demo.process.send_signal(signal.SIGINT)
        try:
            demo.process.wait(30)
        finally:
            demo.process.kill()


def records(connection: Connection, declaration: Declaration) -> dict[tuple[str, int | None], dict[str, Any]]:
    """What is in a result topic, by key and end of window."""
    minutes = time.time_ns() // 1000 - 180_000_000
    found: dict[tuple[str, int | None], dict[str, Any]] = {}
    with Consumer(connection, [declaration.topic], start=minutes) as consumer:
        values = [record.value for record in consumer]
    frame = Codec().decode(values, types=[Result]).frame
    rows = clean(frame.with_columns(kafka_timestamp=pl.col("event_time")), declaration)
    for row, key in enumerate(rows.key):
        found[key, rows.window_end[row]] = {name: column[row] for name, column in rows.values.items()} | {
            name: column[row] for name, column in rows.places.items()
        }
    return found


def emergency_stop(connection: Connection, vehicle: str) -> None:
    """A vehicle that brakes as nobody does at a stop, into the same topic as all others."""
    now = datetime.now(UTC)
    speeds = [12.0, 8.0, 4.0, 0.0, 0.0]
    frame = pl.DataFrame(
        {
            "event_time": [now - timedelta(seconds=len(speeds) - second) for second in range(len(speeds))],
            "ingestion_time": [now] * len(speeds),
            "vehicle_id": vehicle,
            "latitude": 60.25,
            "longitude": 25.05,
            "speed": speeds,
            "acceleration": [0.0, -4.0, -4.0, -4.0, 0.0],
            "line": "<i>7</i>",
        }
    )
    values = Codec().encode(frame, VehiclePosition).to_pylist()
    with Producer(connection) as producer:
        for value in values:
            producer.send(VEHICLE_POSITIONS, value, key=vehicle.encode())


def shown(page: Page, job: str) -> list[dict[str, Any]]:
    """Some of the entries of a layer."""
    keys = page.evaluate("job => window.headrace.keys(job)", job)[:25]
    return [found for key in keys if (found := entry(page, job, key)) is not None]


def test_the_city_is_alive(demo: Demo, open_page: OpenPage) -> None:
    url = until(lambda: demo.told("dashboard"), what="the address of the dashboard", seconds=PATIENCE)["url"]
    connection = Connection(bootstrap=demo.bootstrap)
    declared = declare_all(all_jobs().values())
    with open_page(url) as page:
        page.set_default_timeout(PATIENCE * 1000)
        wait_drawn(page, "vehicle-distribution", 5)
        for job in LAYERS:
            switch_on(page, job)

        # Every layer draws, and what it shows is what stands in its topic for that cell and window.
        for job in LAYERS:
            wait_drawn(page, job)
            seen = shown(page, job)
            written = records(connection, declared[job])
            assert seen
            for each in seen:
                wanted = written[each["key"], each["windowEnd"]]
                got = {**each["values"], **{name: each[name] for name in ("cell", "target") if name in wanted}}
                assert got == wanted, (job, each["key"])

        # An emergency stop takes the way of every other event, appears and is listed, as text.
        switch_on(page, STOPS)
        emergency_stop(connection, "<b>99/1</b>")
        card = page.locator(f'.card[data-card="{STOPS}"]')
        card.get_by_text("<b>99/1</b>", exact=False).first.wait_for()
        assert "<i>7</i>" in card.inner_text()

        # The pipeline page has figures of every stage.
        page.get_by_role("button", name="Pipeline").click()
        page.wait_for_function("() => document.body.innerText.includes('input.vehicle-position')")
        status = page.evaluate("async () => (await fetch('api/pipeline')).json()")
        (query,) = status["queries"]
        assert query["state"] == "running"
        assert query["batch_ms"] > 0
        assert query["state_rows"] > 0
        assert {lag["topic"] for lag in status["partitions"]} == {"input.vehicle-position", "input.stop-event"}
        assert all(lag["committed"] is not None for lag in status["partitions"])
        legs = {leg["stage"] for leg in status["latency"]}
        assert {"window end to result", "result to dashboard", "dashboard to browser and back"} <= legs
        assert {stage["name"] for stage in status["stages"]} == {"ingest", "kafka", "spark", "results", "dashboard"}
