"""The demo as a user has it: a process, a view, Ctrl-C; and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from headrace.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
MARK = "DEMO_TEST_MARK"
#: A loaded machine takes its time for Spark's first micro-batch.
PATIENCE = 400


class Demo:
    """A demo in a home of its own, whose processes can be told from all others by a mark in their environment."""

    def __init__(self, home: Path) -> None:
        from headrace.dev.jars import default_directory

        self.home = home
        self.mark = uuid.uuid4().hex
        self.log = home / "output.txt"
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PATHS__HOME": str(home / "data"),
            "HEADRACE_PATHS__JARS": str(default_directory()),
            "HEADRACE_SPARK__DRIVER_MEMORY": "800m",
            MARK: self.mark,
        }

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", "demo", "--vehicles", "40", *words],
                env=self._environment,
                cwd=self.home,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def processes(self) -> list[psutil.Process]:
        """Every process of this demo, parents and orphans alike."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def child(self, word: str) -> psutil.Process | None:
        """The process whose command line has this word and that is no guard."""
        for process in self.processes():
            try:
                line = process.cmdline()
            except psutil.Error:
                continue
            if word in line and not any(part.endswith("guard.py") for part in line):
                return process
        return None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], object], process: subprocess.Popen[bytes], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def assert_nothing_left(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while left := self.processes():
            assert time.monotonic() < deadline, [process.cmdline() for process in left]
            time.sleep(0.1)


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path)
    yield demo
    for process in demo.processes():
        process.kill()


def test_demo_counts_vehicles_and_continues(demo: Demo) -> None:
    assert demo.start("--for", "20", "--json").wait(PATIENCE) == 0, demo.output
    demo.assert_nothing_left(0)
    summary = json.loads(demo.output.splitlines()[-1])
    assert summary["event"] == "summary"
    assert summary["events"] > 0
    assert summary["results"] > 0
    assert summary["first_result"] > 0
    assert summary["total"] > 0
    assert summary["busiest"][0]["key"].startswith("89")

    # A second run, for people this time, continues: no topic is new.
    assert demo.start("--for", "10").wait(PATIENCE) == 0, demo.output
    assert "all there" in demo.output
    assert "First result after" in demo.output
    assert "Busiest cell: 89" in demo.output
    demo.assert_nothing_left(0)


def test_ctrl_c_ends_everything_within_ten_seconds_and_there_is_only_one(demo: Demo) -> None:
    process = demo.start()
    demo.wait_until(lambda: "First result after" in demo.output, process, PATIENCE)

    second = demo.start()
    assert second.wait(60) == ExitCode.ENVIRONMENT
    assert f"a demo is already running: process {process.pid}, data in {demo.home / 'data'}" in demo.output

    process.send_signal(signal.SIGINT)
    assert process.wait(10) == ExitCode.INTERRUPTED
    demo.assert_nothing_left(0)
    assert "Traceback" not in demo.output


def test_kill_9_of_the_parent_leaves_nothing(demo: Demo) -> None:
    process = demo.start()
    demo.wait_until(lambda: "First result after" in demo.output, process, PATIENCE)
    assert len(demo.processes()) >= 6
    process.kill()
    process.wait(5)
    demo.assert_nothing_left(20)


@pytest.mark.parametrize(
    ("word", "who", "code"),
    [
        ("simulate", "the simulator ended", ExitCode.FAILURE),
        ("run", "the Spark job ended", ExitCode.FAILURE),
        ("kafka.Kafka", "embedded broker", ExitCode.BROKER),
    ],
)
def test_a_part_that_dies_is_named(demo: Demo, word: str, who: str, code: ExitCode) -> None:
    process = demo.start()
    demo.wait_until(lambda: demo.child("run"), process, 120)
    victim = demo.child(word)
    assert victim is not None
    victim.kill()
    assert process.wait(60) == code, demo.output
    assert who in demo.output
    assert "Traceback" not in demo.output
    demo.assert_nothing_left(0)


def test_a_taken_port_is_an_error_if_it_was_chosen(demo: Demo) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert demo.start("--port", str(port)).wait(120) == ExitCode.ENVIRONMENT
    assert f"Port {port}" in demo.output
    demo.assert_nothing_left(0)
