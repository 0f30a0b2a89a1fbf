"""A guarded process never outlives its parent, however the parent ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest

from headrace.dev import GuardedProcess
from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pathlib import Path

SLEEP = ["sleep", "300"]


def gone(pid: int, *, within: float = 10.0) -> bool:
    """Whether a process ends in time; a zombie that nobody collects has ended."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def parent(code: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A Python process of its own that runs `code` and says some process ids on its first line."""
    script = "import os, sys, time\nfrom headrace.dev import GuardedProcess\n" + code
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, [int(pid) for pid in process.stdout.readline().split()]


def finish(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def test_output_and_exit_status_are_those_of_the_command(tmp_path: Path) -> None:
    with (tmp_path / "out").open("wb") as out:
        process = GuardedProcess(["sh", "-c", "echo said; echo complained >&2; exit 7"], stdout=out)
        assert process.wait(10) == 7
    assert (tmp_path / "out").read_text() == "said\ncomplained\n"


def test_stop_asks_first(tmp_path: Path) -> None:
    said = tmp_path / "said"
    process = GuardedProcess(
        ["sh", "-c", f"trap 'echo bye > {said}; exit 3' TERM; echo ready > {said}; sleep 300 & wait"]
    )
    while not said.exists() or not said.read_text():
        time.sleep(0.01)
    assert process.stop() == 3
    assert said.read_text() == "bye\n"
    assert process.stop() == 3


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    script = f"trap '' TERM; touch {ready}; while true; do sleep 1; done"
    process = GuardedProcess(["sh", "-c", script], grace=0.2)
    while not ready.exists():
        time.sleep(0.01)
    assert process.stop() == 128 + signal.SIGKILL
    assert gone(process.pid)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvironmentProblem, match="Cannot start /no/such/program: No such file"):
        GuardedProcess(["/no/such/program"])


def test_waiting_has_an_end() -> None:
    with GuardedProcess(SLEEP) as process, pytest.raises(TimeoutError, match="still runs"):
        process.wait(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_command_dies_with_its_parent(number: int) -> None:
    process, (child,) = parent("p = GuardedProcess(['sleep', '300']); print(p.pid, flush=True); time.sleep(300)")
    assert psutil.pid_exists(child)
    os.kill(process.pid, number)
    process.wait()
    assert gone(child)
    finish(process)


def test_a_parent_that_forked_is_still_recognised_as_dead() -> None:
    # The forked child inherits the lifeline and keeps it open: only the process id of the parent tells.
    code = """
forked = os.fork
p = GuardedProcess(['sleep', '300'])
other = forked()
if other == 0:
    os.close(1)
    time.sleep(300)
print(p.pid, other, flush=True)
time.sleep(300)
"""
    process, (child, other) = parent(code)
    process.kill()
    try:
        assert gone(child)
    finally:
        os.kill(other, signal.SIGKILL)
        finish(process)


def test_the_command_dies_with_its_guard() -> None:
    process = GuardedProcess(SLEEP)
    guard = psutil.Process(process.pid).ppid()
    assert guard != os.getpid()
    os.kill(guard, signal.SIGKILL)
    assert gone(process.pid)
    process.wait(10)


def test_what_the_command_started_is_ended_too(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    # A grandchild in a session of its own, which no signal to a process group reaches.
    process = GuardedProcess(["sh", "-c", f"setsid sleep 300 & echo $! > {note}; wait"])
    while not note.exists() or not note.read_text().strip():
        time.sleep(0.01)
    grandchild = int(note.read_text())
    process.stop()
    assert gone(grandchild)


def test_what_the_command_started_may_end_in_order(tmp_path: Path) -> None:
    said = tmp_path / "said"
    grandchild = f"trap 'echo bye > {said}; exit' TERM; echo ready > {said}; while true; do sleep 0.05; done"
    process = GuardedProcess(["sh", "-c", f'setsid sh -c "{grandchild}" & while ! test -s {said}; do sleep 0.01; done'])
    process.wait(20)
    assert said.read_text() == "bye\n"


def test_a_released_command_stays() -> None:
    code = "p = GuardedProcess(['sleep', '300']); p.release(); print(p.pid, flush=True)"
    process, (child,) = parent(code)
    process.wait()
    time.sleep(1.2)  # longer than the guard's interval of looking at its parent
    try:
        assert psutil.Process(child).status() != psutil.STATUS_ZOMBIE
    finally:
        os.kill(child, signal.SIGTERM)
        finish(process)
    assert gone(child)


def test_releasing_what_has_ended_is_an_error() -> None:
    process = GuardedProcess(["true"])
    process.wait(10)
    with pytest.raises(EnvironmentProblem, match="true has ended with 0"):
        process.release()
