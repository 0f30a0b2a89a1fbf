"""A real Prometheus scrapes real endpoints: every panel gets data, and an alert fires for a fault and ends with it."""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import httpx
import numpy as np
import pytest
import yaml
from scripts.grafana import INGEST, RUN
from tests.deploy.test_monitoring import ALERTS

from headrace.dev.ports import free_port
from headrace.ingest.metrics import IngestMetrics
from headrace.ingest.report import Tally
from headrace.observe.metrics import MetricsEndpoint
from headrace.spark.run.metrics import RunMetrics
from headrace.spark.run.progress import BatchDone, DeadLetterAlarm, JobFigures, StateChange

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.long]

PATIENCE = 120.0
_PARTITION = {"watermark": 0, "idle": False, "holds_back": True, "absurd": 0, "ahead": 0, "newest": 1}
BATCH = BatchDone(
    0,
    rows_in=100,
    results=10,
    late=1,
    dead_letters=2,
    duration_ms=400,
    watermark=None,
    backlog=5,
    limit=1_000,
    state_rows=7,
    state_bytes=700,
    phases={"addBatch": 300},
    counters={"j": {"jumps": 1, "state.bytes/s": 50, "state.keys/s": 5}},
    seconds=0.4,
    jobs={"j": JobFigures(100, 10, 1, {"null_key": 1}, ({"partition": "t/0", **_PARTITION},))},
    unreadable={"malformed": 1},
    backlogs={("t", 0): 5},
)


class Prometheus:
    """A server in a directory of its own, which scrapes once a second."""

    def __init__(self, directory: Path, targets: dict[str, str]) -> None:
        found = shutil.which("prometheus")
        if found is None:
            pytest.skip("prometheus is not installed (Debian: the package prometheus)")
        rules = yaml.safe_load(ALERTS.read_text())
        for group in rules["groups"]:
            for rule in group["rules"]:
                rule.pop("for", None)  # the tests with promtool have that
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(directory / "alerts.yaml")],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": [address]}]} for job, address in targets.items()
            ],
        }
        (directory / "alerts.yaml").write_text(yaml.safe_dump(rules))
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(configuration))
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/v1"
        self._process = subprocess.Popen(
            [
                found,
                f"--config.file={directory / 'prometheus.yaml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def ask(self, expression: str) -> list[dict[str, Any]]:
        answer = httpx.get(f"{self._url}/query", params={"query": expression}, timeout=20)
        result: list[dict[str, Any]] = answer.raise_for_status().json()["data"]["result"]
        return result

    def firing(self) -> set[str]:
        return {each["metric"]["alertname"] for each in self.ask('ALERTS{alertstate="firing"}')}


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            if condition():
                return
        except (httpx.TransportError, httpx.HTTPStatusError):
            pass  # it has not started yet
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def test_panels_have_data_and_an_alert_fires_while_its_fault_lasts(tmp_path: Path) -> None:
    run, ingest = RunMetrics("q", ["j"]), IngestMetrics(["f"])
    tally = Tally()
    tally.dismissed["filtered"] += 1
    batches = 0

    def work() -> None:
        nonlocal batches
        batches += 1
        now = time.time_ns() // 1_000
        run(replace(BATCH, batch=batches, watermarks={"j": now - 1_000_000}))
        tally.messages += 100
        tally.message_bytes += 1_000
        tally.events["t"] += 100
        tally.add_lags(np.full(100, 0.2))
        ingest.report(tally.report("f", waiting=0, elapsed=float(batches), rate=100.0))

    def panels_without_data() -> list[str]:
        work()
        wanted = [(title, expression) for title, _, targets in [*RUN, *INGEST] for expression, _ in targets]
        filled = ((title, text.replace("$query", "q").replace("$__rate_interval", "20s")) for title, text in wanted)
        return [title for title, expression in filled if not prometheus.ask(expression)]

    run(StateChange("running"))
    work()
    with ExitStack() as stack:
        endpoints = [
            stack.enter_context(MetricsEndpoint(0, run, monitored=run)),
            stack.enter_context(MetricsEndpoint(0, ingest, monitored=ingest)),
        ]
        addresses = [endpoint.url.split("/")[2] for endpoint in endpoints]
        targets = dict(zip(("headrace-run", "headrace-ingest"), addresses, strict=True))
        prometheus = stack.enter_context(Prometheus(tmp_path, targets))
        until(lambda: not panels_without_data(), "every panel has data")
        # Without their waiting times, those that look at a rate see the little that the test sends.
        harmless = {"HeadraceDeadLetters", "HeadraceLateEvents"}
        assert prometheus.firing() <= harmless
        run(DeadLetterAlarm(True, 0.9, 200, "malformed", "x"))
        until(lambda: "HeadraceMostlyDeadLetters" in prometheus.firing(), "the alert fires")
        run(DeadLetterAlarm(False, 0.1, 200, "malformed", "x"))
        until(lambda: "HeadraceMostlyDeadLetters" not in prometheus.firing(), "the alert ends")
        endpoints[0].close()
        until(lambda: "HeadraceRunDown" in prometheus.firing(), "a run that has gone is noticed")
