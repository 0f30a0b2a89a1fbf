"""`headrace new` and `headrace dev` as a user has them: the built wheel in a fresh environment, an empty directory.

A plain client fills the topic, another one reads results; the source tree is on nobody's path. Then nothing is left.
`pytest --log-cli-level=INFO` shows the seconds until each step.
"""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from tests.packaging.installed import build_wheel, make_environment
from tests.packaging.installed import environment as installed

from headrace.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

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

    began = time.monotonic()

    def note(step: str) -> None:
        logging.getLogger(__name__).info("%.1f s: %s", time.monotonic() - began, step)

    mark = uuid.uuid4().hex
    programs = make_environment(tmp_path / "venv", build_wheel(tmp_path / "dist"), extras="spark,dashboard")
    environment = installed(
        programs,
        HEADRACE_PATHS__JARS=str(default_directory()),
        HEADRACE_SPARK__DRIVER_MEMORY="800m",
        HEADRACE_DASHBOARD__PORT="0",
        **{MARK: mark},
    )
    headrace = [str(programs / "headrace")]

    def tell(*words: str, cwd: Path = tmp_path) -> str:
        command = subprocess.run(
            words, cwd=cwd, env=environment, check=True, capture_output=True, text=True, timeout=60
        )
        return command.stdout

    place = tell(str(programs / "python"), "-c", "import headrace; print(headrace.__file__)")
    assert place.startswith(str(tmp_path / "venv")), place
    note("installed the wheel")
    tell(*headrace, "new", "parcels")
    project = tmp_path / "parcels"
    assert [job["name"] for job in json.loads(tell(*headrace, "jobs", "--json", cwd=project))] == ["parcels-per-depot"]
    note("new: there is a project with one job")
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
        note("dev: the first result is shown")
        status = tell(*headrace, "broker", "status", "--json", cwd=project)
        results = exchange(json.loads(status)["bootstrap"])
        note("a plain consumer has the result of a plain producer's record")
        assert all(result["scans"] == 1 for result in results if result["depot"] == "visitor"), results
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == ExitCode.INTERRUPTED
        note("Ctrl-C: everything has ended")
        assert left() == []
        assert "Traceback" not in log.read_text(errors="replace")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)
