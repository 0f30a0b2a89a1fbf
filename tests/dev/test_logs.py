"""Logs of other processes are bounded by bytes, and keep the beginning and the newest part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from headrace.cli.children import last_lines
from headrace.dev.logs import BoundedLog, pieces_of

if TYPE_CHECKING:
    from pathlib import Path


def line(number: int) -> bytes:
    return b"line %06d of what somebody says\n" % number


def test_a_log_keeps_its_beginning_and_its_newest_part_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "run.log"
    with BoundedLog(path, most=10_000) as log:
        for number in range(20_000):
            os.write(log.fileno(), line(number))
    kept = {piece.name: piece.read_bytes() for piece in path.parent.iterdir() if not piece.name.startswith(".")}
    assert set(kept) == {"run.log", "run.log.1", "run.log.first"}
    assert sum(map(len, kept.values())) <= 30_000
    assert kept["run.log.first"].startswith(line(0) + line(1))
    newest = (kept["run.log.1"] + kept["run.log"]).splitlines(keepends=True)
    assert newest == [line(number) for number in range(20_000 - len(newest), 20_000)]
    assert len(newest) > 100
    assert pieces_of(path) == [path.parent / name for name in ("run.log.first", "run.log.1", "run.log")]
    assert last_lines(path, 2) == [line(number).decode().strip() for number in (19_998, 19_999)]


def test_a_line_that_is_longer_than_a_piece_is_bounded_too(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with BoundedLog(path, most=1_000) as log:
        os.write(log.fileno(), b"start\n")
        for _ in range(50):
            os.write(log.fileno(), b"x" * 1_000)
        os.write(log.fileno(), b"\nend\n")
    assert sum(piece.stat().st_size for piece in pieces_of(path)) <= 3_000
    assert (tmp_path / "run.log.first").read_bytes().startswith(b"start\n")
    assert last_lines(path, 1) == ["end"]


def test_the_run_before_is_kept_and_runs_at_the_same_time_have_files_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    with BoundedLog(path) as first:
        os.write(first.fileno(), b"first\n")
        with BoundedLog(path) as beside:
            os.write(beside.fileno(), b"beside\n")
    assert beside.path == tmp_path / "run.2.log"
    assert (path.read_bytes(), beside.path.read_bytes()) == (b"first\n", b"beside\n")
    with BoundedLog(path) as second:
        os.write(second.fileno(), b"second\n")
    assert second.path == path
    assert (path.read_bytes(), (tmp_path / "run.log.old").read_bytes()) == (b"second\n", b"first\n")


def test_what_was_said_before_a_kill_is_written(tmp_path: Path) -> None:
    """The process that is logged is killed, and the one that logs it as well: no last words are lost."""
    path = tmp_path / "run.log"
    program = (
        "import os, sys, time\nfrom pathlib import Path\nfrom headrace.dev.logs import BoundedLog\n"
        f"log = BoundedLog(Path({str(path)!r}))\n"
        "os.write(log.fileno(), b'x' * 5_000 + b'\\nlast words\\n')\nprint('said', flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while last_lines(path, 1) != ["last words"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert last_lines(path, 1) == ["last words"]
