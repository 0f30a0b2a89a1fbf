"""The whole way, from simulated vehicles to pixels: `headrace demo`, and a browser that opens the address it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import polars as pl
import pytest
from tests.dashboard.browser.looking import wait_drawn

from headrace.dashboard.cleaning import clean
from headrace.dashboard.declaration import declare_all
from headrace.dev.jars import default_directory
from headrace.events import Codec, Result
from headrace.kafka import Connection
from headrace.kafka.consumer import Consumer
from headrace.kafka.producer import Producer
from headrace_transit.jobs import all_jobs
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.dashboard.browser.conftest import OpenPage

    from headrace.dashboard.declaration import Declaration

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(480)]

ROOT = Path(__file__).resolve().parents[3]
#: Seconds that a stage may take on a loaded machine; on a quiet one the whole way takes about one minute.
PATIENCE = 240
LAYERS = (
    "vehicle-distribution",
    "delay-distribution",
    "final-stop-distribution",
    "final-stop-distribution.pairs",
    "flow-direction",
)
STOPS = "emergency-stop-pattern"
#: Entries of a layer that are compared with the topic.
COMPARED = 40
#: All that a page shows of some jobs, read at one moment.
SHOWN = """([jobs, most]) => Object.fromEntries(jobs.map((job) => [
  job, window.headrace.keys(job).slice(0, most).map((key) => window.headrace.entry(job, key)),
]))"""


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
                [sys.executable, "-m", "headrace.cli", "demo", "--json", "--vehicles", "100", "--port", "0"],
                env=environment,
                cwd=home,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as said:
            for line in said:
                self.lines.append(json.loads(line))

    def end(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(10)

    def wait(self, condition: Callable[[], Any], *, what: str) -> Any:
        """Wait until something is so; where it is not, what the demo said tells why."""
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert self.process.poll() is None, f"the demo ended:\n{self.errors.read_text()}"
            said = "\n".join([self.errors.read_text(), *(str(line) for line in self.lines[-3:])])
            assert time.monotonic() < end, f"still waiting for {what}; the demo said:\n{said}"
            time.sleep(0.2)
        return found

    @property
    def url(self) -> str | None:
        """Where its dashboard can be opened, as soon as the first results are there."""
        return next((str(line["url"]) for line in self.lines if line.get("event") == "dashboard"), None)

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
        demo.end()


def records(connection: Connection, declaration: Declaration) -> dict[tuple[str, int | None], list[dict[str, Any]]]:
    """What stands in a result topic, by key and end of window; more than one where a late event made a window anew."""
    found: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
    with Consumer(connection, [declaration.topic], start="beginning") as consumer:
        values = [record.value for record in consumer]
    frame = Codec().decode(values, types=[Result]).frame
    rows = clean(frame.with_columns(kafka_timestamp=pl.col("event_time")), declaration)
    for row, key in enumerate(rows.key):
        columns = {**rows.values, **rows.places}
        found.setdefault((key, rows.window_end[row]), []).append({name: each[row] for name, each in columns.items()})
    return found


def brake(connection: Connection, vehicle: str) -> None:
    """Let a vehicle brake as nobody does at a stop: a report every second, into the same topic as all others."""
    with Producer(connection) as producer:
        for speed in (12.0, 8.0, 4.0, 0.0, 0.0):
            now = datetime.now(UTC)
            frame = pl.DataFrame(
                {
                    "event_time": [now],
                    "ingestion_time": [now],
                    "vehicle_id": [vehicle],
                    "latitude": [60.25],
                    "longitude": [25.05],
                    "speed": [speed],
                    "acceleration": [0.0 if speed == 12.0 else -4.0],
                    "line": ["<i>7</i>"],
                }
            )
            (value,) = Codec().encode(frame, VehiclePosition).to_pylist()
            producer.send(VEHICLE_POSITIONS, value, key=vehicle.encode())
            time.sleep(1)


def has_results(url: str, job: str) -> bool:
    """Whether the dashboard has something to show of a job."""
    answer = httpx.get(f"{url}/api/jobs/{job}/cells", params={"limit": 1}, timeout=PATIENCE)
    return bool(answer.is_success and answer.json()["total"])


def test_the_city_is_alive(demo: Demo, open_page: OpenPage) -> None:
    url = demo.wait(lambda: demo.url, what="the address of the dashboard")
    connection = Connection(bootstrap=demo.bootstrap)
    declared = declare_all(all_jobs().values())
    # The browser draws on the processor and so takes it from Spark: it comes when there is something to see.
    for job in LAYERS:
        demo.wait(partial(has_results, url, job), what=f"results of {job}")
    layers = f"#layers={','.join([*LAYERS, STOPS])}"
    with open_page(url + layers, viewport={"width": 800, "height": 440}, reduced_motion="reduce") as page:
        page.set_default_timeout(PATIENCE * 1000)

        # Every layer draws, and what it shows is what stands in its topic for that cell and window.
        for job in LAYERS:
            wait_drawn(page, job)
        seen = page.evaluate(SHOWN, [LAYERS, COMPARED])
        for job in LAYERS:
            written = records(connection, declared[job])
            assert seen[job]
            for each in seen[job]:
                wanted = written[each["key"], each["windowEnd"]]
                places = {name: each[name] for name in ("cell", "target") if name in wanted[0]}
                assert {**each["values"], **places} in wanted, (job, each["key"])

        # An emergency stop takes the way of every other event, appears and is listed, as text.
        brake(connection, "<b>99/1</b>")
        card = page.locator(f'.card[data-card="{STOPS}"]')
        card.get_by_text("<b>99/1</b>", exact=False).first.wait_for()
        assert "<i>7</i>" in card.inner_text()
        wait_drawn(page, STOPS)

        # The pipeline page has figures of every stage.
        page.get_by_role("button", name="Pipeline").click()
        page.locator("td, th", has_text="input.vehicle-position").first.wait_for()
        status = page.evaluate("async () => (await fetch('api/pipeline')).json()")
        (query,) = status["queries"]
        assert query["state"] == "running"
        assert query["failed"] == {}
        assert query["batch_ms"] > 0
        assert query["state_rows"] > 0
        assert {lag["topic"] for lag in status["partitions"]} == {"input.vehicle-position", "input.stop-event"}
        assert all(lag["committed"] is not None for lag in status["partitions"])
        legs = {leg["stage"] for leg in status["latency"]}
        assert {"window end to result", "result to dashboard", "dashboard to browser and back"} <= legs
        assert {stage["name"] for stage in status["stages"]} == {"ingest", "kafka", "spark", "results", "dashboard"}
