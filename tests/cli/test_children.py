"""Children, locks and signals of the demo, without Kafka or Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
import typer

from headrace import Job, Stream, bounded, tumbling
from headrace.cli.children import Child, ChildEndedError, headrace_command, last_lines, stop_all
from headrace.cli.options import Globals
from headrace.cli.singleton import only_one
from headrace.cli.stage import Stage
from headrace.cli.stopping import stop_on_signals
from headrace.config import Settings
from headrace.errors import EnvironmentProblem, ExitCode
from headrace.windows import count


def wait_for_end(child: Child) -> None:
    child.process.wait(20)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(5, ExitCode.BROKER), (6, ExitCode.JOB), (0, ExitCode.FAILURE), (77, ExitCode.FAILURE), (130, ExitCode.FAILURE)],
)
def test_a_child_that_ends_is_explained_with_its_exit_code(tmp_path: Path, code: int, expected: ExitCode) -> None:
    log = tmp_path / "logs" / "x.log"
    child = Child("the simulator", ["sh", "-c", f"echo one; echo two >&2; exit {code}"], log=log)
    wait_for_end(child)
    with pytest.raises(ChildEndedError, match=f"the simulator ended with exit code {code}") as caught:
        child.check()
    assert "one" in caught.value.message
    assert "two" in caught.value.message
    assert str(log) in caught.value.hint
    assert caught.value.exit_code == expected


def test_a_child_that_says_nothing(tmp_path: Path) -> None:
    child = Child("x", ["true"], log=tmp_path / "x.log")
    wait_for_end(child)
    with pytest.raises(ChildEndedError, match="it logged nothing"):
        child.check()


def test_a_running_child_is_fine_and_can_be_stopped(tmp_path: Path) -> None:
    children = [Child(f"sleeper {n}", ["sleep", "60"], log=tmp_path / f"{n}.log") for n in range(2)]
    for child in children:
        child.check()
    stop_all(children)
    assert [child.process.returncode for child in children] == [128 + signal.SIGTERM] * 2


def test_standard_output_is_read_and_standard_error_logged(tmp_path: Path) -> None:
    heard: list[str] = []
    done = threading.Event()

    def hear(line: str) -> None:
        heard.append(line)
        if len(heard) == 2:
            done.set()

    child = Child("x", ["sh", "-c", "echo a; echo problem >&2; echo b"], log=tmp_path / "x.log", on_line=hear)
    assert done.wait(20)
    child.stop()
    assert heard == ["a\n", "b\n"]
    assert last_lines(tmp_path / "x.log") == ["problem"]


def test_last_lines_of_a_long_log_and_of_none(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("".join(f"line {n}\n\n" for n in range(100)))
    assert last_lines(log, 2) == ["line 98", "line 99"]
    assert last_lines(tmp_path / "absent") == []


def test_a_child_command_gets_the_same_settings() -> None:
    options = Globals(file=Path("a.toml"), assignments=("broker.port=1",), debug=True)
    assert headrace_command(options, "simulate") == [
        *(sys.executable, "-m", "headrace.cli"),
        *("--config", "a.toml", "--set", "broker.port=1", "--debug", "simulate"),
    ]


def test_only_one_holds_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "home" / "demo.lock"
    with only_one(lock, what="a demo"):
        with (
            pytest.raises(EnvironmentProblem, match=f"a demo is already running: process {os.getpid()}") as caught,
            only_one(lock, what="a demo"),
        ):
            pass
        assert str(lock.parent) in caught.value.message
        assert "HEADRACE_HOME" in caught.value.hint
    with only_one(lock, what="a demo"):
        pass


def test_a_lock_that_cannot_be_made_is_explained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(EnvironmentProblem, match="cannot write"), only_one(tmp_path / "file" / "x", what="a demo"):
        pass


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, None), (signal.SIGHUP, None)])
def test_signals_ask_politely_and_ctrl_c_has_its_exit_code(number: int, code: int | None) -> None:
    before = signal.getsignal(number)
    with stop_on_signals() as stop:
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    assert signal.getsignal(number) is before
    if code is None:
        stop.finish()
    else:
        with pytest.raises(typer.Exit) as caught:
            stop.finish()
        assert caught.value.exit_code == code


def test_a_second_ctrl_c_insists_but_an_echo_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with stop_on_signals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(5)
        signal.raise_signal(signal.SIGINT)
        monkeypatch.setattr("headrace.cli.stopping._INSIST_SECONDS", 0.0)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_thread_can_wait_without_signals() -> None:
    seen: list[bool] = []

    def work() -> None:
        with stop_on_signals() as stop:
            seen.append(stop.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]


def test_fresh_forgets_broker_data_and_checkpoint_and_nothing_else(tmp_path: Path) -> None:
    from headrace.cli.jobs import pick
    from headrace.cli.stage import forget

    settings = Settings.load(environ={"HEADRACE_HOME": str(tmp_path)}, directory=tmp_path)
    kept = [tmp_path / "broker" / "mine.txt", tmp_path / "checkpoints" / "other" / "x", tmp_path / "jars" / "a.jar"]
    gone = [tmp_path / "broker" / "kafka" / "t-0" / "log", tmp_path / "checkpoints" / "vehicle-distribution" / "x"]
    for path in [*kept, *gone]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    forget(settings, pick(["vehicle-distribution"]))
    assert [path.exists() for path in kept] == [True] * 3
    assert [path.exists() for path in gone] == [False] * 2


# -------------------------------------------------------------------- logs

#: What a process says in a few days: 50 MB.
TALK = "\nimport os\nfor n in range(500): os.write(2, b'%06d a warning of Spark\\n' % n + b'x' * 99_999 + b'\\n')\n"


def settled(directory: Path, last: str) -> int:
    """Wait for the last words of a log, and give the size of all its files."""
    deadline = time.monotonic() + 30
    while last not in " ".join(last_lines(directory / "run.log", 3)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert last in " ".join(last_lines(directory / "run.log", 3))
    return sum(piece.stat().st_size for piece in directory.iterdir())


def test_the_log_of_a_child_does_not_grow_for_ever(tmp_path: Path) -> None:
    child = Child("the Spark job", [sys.executable, "-c", TALK], log=tmp_path / "run.log", on_line=lambda _line: None)
    child.process.wait(60)
    with pytest.raises(ChildEndedError):
        child.check()
    assert settled(tmp_path, "000499 a warning") <= 25_000_000


def test_the_log_of_spark_does_not_grow_for_ever(tmp_path: Path) -> None:
    """Standard error of a whole process and of those it starts, as `headrace run` has it."""
    program = (
        "import subprocess, sys\nfrom pathlib import Path\nfrom headrace.cli.run import quiet_spark\n"
        f"with quiet_spark(Path({str(tmp_path / 'run.log')!r})):\n"
        f"    subprocess.run([sys.executable, '-c', {TALK!r}], check=True)\n"
        "sys.stderr.write('for the terminal')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120, check=True)
    assert done.stderr == b"for the terminal"
    assert settled(tmp_path, "000499 a warning") <= 25_000_000


@pytest.mark.parametrize(("code", "in_order"), [(0, True), (6, False)])
def test_everything_ends_in_order_with_jobs_that_were_stopped(tmp_path: Path, code: int, in_order: bool) -> None:
    child = Child("the Spark job", ["sh", "-c", f"exit {code}"], log=tmp_path / "run.log")
    wait_for_end(child)
    job = make_job()
    stage = Stage(Globals(), Settings(), [job], [job.name], job, children=[child], jobs_process=child)
    with pytest.raises(BaseException) as ended:
        stage.check()
    assert isinstance(ended.value, ChildEndedError) is not in_order
    stop_all([child])
    assert getattr(ended.value, "number", None) == (signal.SIGTERM if in_order else None)


def make_job() -> Job:
    doors = Stream.rows("doors", {"door": pl.String}).watermark(bounded("1s")).key_by("door")
    return Job("doors", doors.window(tumbling("10s")).aggregate(openings=count()))
