"""`headrace new` and `headrace dev` as a user has them: results of the project's own job, then nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer

from headrace.errors import ExitCode

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
MARK = "DEV_TEST_MARK"
PATIENCE = 300


def exchange(bootstrap: str) -> list[dict[str, Any]]:
    """Send scans of a depot of its own by a plain client until a result of it can be read by another one."""
    producer = Producer({"bootstrap.servers": bootstrap})
    reader = {"bootstrap.servers": bootstrap, "group.id": "plain", "isolation.level": "read_committed"}
    consumer = Consumer({**reader, "auto.offset.reset": "earliest"})
    consumer.subscribe(["analytics.parcels-per-depot"])
    now = datetime.now(UTC).isoformat()
    producer.produce("parcels.scans", json.dumps({"depot": "visitor", "parcel": "v", "scanned_at": now}).encode())
    assert producer.flush(30) == 0
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60
    while not any(result["depot"] == "visitor" for result in found):
        assert time.monotonic() < deadline, found
        message = consumer.poll(1)
        if message is not None:
            found.append(json.loads(message.value() or b""))
    consumer.close()
    return found


def test_a_new_project_shows_its_results_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    from headrace.dev.jars import default_directory

    mark = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | {
        "PYTHONPATH": str(ROOT / "src"),
        "HEADRACE_PATHS__JARS": str(default_directory()),
        "HEADRACE_SPARK__DRIVER_MEMORY": "800m",
        "HEADRACE_DASHBOARD__PORT": "0",
        MARK: mark,
    }
    headrace = [sys.executable, "-m", "headrace.cli"]
    subprocess.run([*headrace, "new", "parcels"], cwd=tmp_path, env=environment, check=True, timeout=60)
    project = tmp_path / "parcels"
    log = tmp_path / "output.txt"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*headrace, "dev", "--json"],
            cwd=project,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def reports() -> list[dict[str, object]]:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.startswith("{")]
        return [json.loads(line) for line in lines]

    def left() -> list[list[str]]:
        found = []
        for each in psutil.process_iter():
            try:
                if each.environ().get(MARK) == mark and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each.cmdline())
            except psutil.Error:
                continue
        return found

    try:
        deadline = time.monotonic() + PATIENCE
        while not any(report.get("busiest") for report in reports()):
            assert process.poll() is None, log.read_text(errors="replace")
            assert time.monotonic() < deadline, log.read_text(errors="replace")
            time.sleep(0.5)
        busiest = next(report["busiest"] for report in reports() if report.get("busiest"))
        assert isinstance(busiest, list)
        assert {each["key"] for each in busiest} <= {"north", "south", "harbour"}
        assert any(report.get("event") == "dashboard" for report in reports())
        status = subprocess.run(
            [*headrace, "broker", "status", "--json"],
            cwd=project,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        results = exchange(json.loads(status.stdout)["bootstrap"])
        assert all(result["scans"] == 1 for result in results if result["depot"] == "visitor"), results
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitCode.INTERRUPTED
        assert left() == []
        assert "Traceback" not in log.read_text(errors="replace")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)
