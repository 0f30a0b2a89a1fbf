"""A signal to the whole process group reaches Java and the workers as well: that is a stop and no crash."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from headrace.cli.jobs import known_jobs
from headrace.dev.jars import default_directory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)], ids=["terminated", "interrupted"]
)
def test_a_signal_to_the_process_group_is_a_stop(bench: Bench, tmp_path: Path, number: int, code: int) -> None:
    job = known_jobs()["vehicle-distribution"]
    bench.prepare(job)
    settings = {
        "HEADRACE_PATHS__HOME": str(tmp_path),
        "HEADRACE_PATHS__JARS": str(default_directory()),
        "HEADRACE_SPARK__DRIVER_MEMORY": "1g",
    }
    words = ["run", job.name, "--json", "--take-over", "--master", "local[1]", "--bootstrap", bench.broker.bootstrap]
    with (tmp_path / "errors.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *words],
            stdout=subprocess.PIPE,
            stderr=log,
            env=os.environ | settings,
            start_new_session=True,
        )
    assert process.stdout is not None
    states: list[dict[str, Any]] = []  # since the signal
    signalled = False
    try:
        for line in process.stdout:
            event = json.loads(line)
            if event.get("event") == "state":
                if signalled:
                    states.append(event)
                elif event["state"] == "running":
                    os.killpg(process.pid, number)
                    signalled = True
        process.wait(60)
    finally:
        process.kill()
        process.stdout.close()
    told = (tmp_path / "errors.log").read_text()[-2000:]
    names = [event["state"] for event in states]
    assert names[-1:] == ["stopped"], (states, told)
    assert not {"restarting", "failed"} & set(names), states
    assert process.returncode == code, told
