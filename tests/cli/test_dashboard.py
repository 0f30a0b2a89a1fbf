"""`headrace dashboard` as a process: it says where it is, ends on request, and refuses what would be unsafe."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from headrace.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Cli

    from headrace.dev import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def started(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "dashboard", "--json", "--port", "0", "-b", broker.bootstrap],
        env=environment | {"PYTHONPATH": str(ROOT / "src"), "HEADRACE_PATHS__HOME": str(tmp_path)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate(timeout=10)


@pytest.mark.broker
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, ExitCode.INTERRUPTED), (signal.SIGTERM, ExitCode.OK)])
def test_it_serves_until_it_is_stopped(started: subprocess.Popen[str], number: int, code: int) -> None:
    assert started.stdout is not None
    told = json.loads(started.stdout.readline())
    assert told["event"] == "listening"
    jobs = httpx.get(told["url"] + "/api/jobs").json()["jobs"]
    assert {"vehicle-distribution", "emergency-stop-pattern", "final-stop-distribution.pairs"} <= {
        job["job"] for job in jobs
    }
    started.send_signal(number)
    _, errors = started.communicate(timeout=20)
    assert (started.returncode, errors) == (code, "")
    with pytest.raises(httpx.ConnectError):
        httpx.get(told["url"])


def test_an_open_address_is_refused(cli: Cli) -> None:
    result = cli("dashboard", "--host", "0.0.0.0", "-b", "127.0.0.1:1")  # noqa: S104 - it is refused
    assert result.exit_code == ExitCode.CONFIG
    assert "open to everybody" in result.stderr
    assert "HEADRACE_DASHBOARD__TOKEN" in result.stderr


def test_a_short_token_is_refused_and_not_repeated(cli: Cli) -> None:
    result = cli("dashboard", "-b", "127.0.0.1:1", env={"HEADRACE_DASHBOARD__TOKEN": "hunter2"})
    assert result.exit_code == ExitCode.CONFIG
    assert "hunter2" not in result.output


def test_an_unknown_job_and_a_missing_kafka_are_explained(cli: Cli) -> None:
    unknown = cli("dashboard", "vehicle-distributio", "-b", "127.0.0.1:1")
    assert unknown.exit_code == ExitCode.USAGE
    assert "Did you mean vehicle-distribution?" in unknown.stderr
    gone = cli("dashboard", "-b", "127.0.0.1:1")
    assert gone.exit_code == ExitCode.BROKER
    assert "Cannot reach Kafka at 127.0.0.1:1" in gone.stderr


@pytest.mark.broker
def test_a_port_that_was_asked_for_and_is_taken(cli: Cli, broker: EmbeddedBroker) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        result = cli("dashboard", "--port", other.getsockname()[1], "-b", broker.bootstrap)
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "is taken by" in result.stderr
