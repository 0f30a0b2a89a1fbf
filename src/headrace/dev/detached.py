"""Embedded brokers that stay: started by one process, found and stopped by another.

`start` leaves a broker running when the process that started it ends. What others need to know is in the broker's data
directory (see `headrace.dev.datadir`), so `status` and `stop` need nothing but its path. They see brokers that a
running command has as its child, too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from headrace.dev import archive
from headrace.dev.datadir import BrokerState, DataDirectory
from headrace.dev.jars import JarCache
from headrace.dev.launcher import Launcher
from headrace.dev.progress import Progress, silent
from headrace.errors import BrokerError, EnvironmentProblem
from headrace.kafka.connection import Connection

if TYPE_CHECKING:
    from headrace.dev.java import Java
    from headrace.dev.server import ServerSettings


@dataclass(frozen=True, kw_only=True)
class BrokerStatus:
    """What is known about the broker of a data directory.

    Args:
        data: The directory.
        running: Whether a broker's process lives.
        answers: Whether it answers requests.
        state: What it told about itself; None when there never was one, it ended in order, or it is just starting.
    """

    data: DataDirectory
    running: bool
    answers: bool
    state: BrokerState | None

    @property
    def stale(self) -> bool:
        """Whether a broker told about itself and then died without a word."""
        return self.state is not None and not self.running

    def __str__(self) -> str:
        if self.running and self.state is not None:
            how = "running" if self.answers else "running, but not answering"
            kind = "detached" if self.state.detached else "child of another command"
            return (
                f"{how} at {self.state.bootstrap} (process {self.state.pid}, since {self.state.started_at}, "
                f"Kafka {self.state.kafka_version}, {kind})"
            )
        if self.running:
            return "starting"
        if self.state is not None:
            return f"not running; the last one (process {self.state.pid}) died without being stopped"
        return "not running"


def start(
    settings: ServerSettings, *, cache: JarCache | None = None, java: Java | None = None, progress: Progress = silent
) -> BrokerState:
    """Start a broker that stays when this process ends.

    Until it is ready it is a child like any other, which leaves nothing behind when this process is killed.

    Args:
        settings: How it runs.
        cache: Where its jars are, the user's cache if not given.
        java: The Java to run on, found if not given.
        progress: Told what takes time.

    Raises:
        BrokerError: Another broker uses its directory, or it did not become ready.
        EnvironmentProblem: Java, a jar, the port, the disk or the directory is at fault.
    """
    launcher = Launcher(settings, cache=cache or JarCache(java=java), java=java, progress=progress)
    process, state = launcher.start(detached=True)
    process.release()
    return state


def status(data_dir: Path) -> BrokerStatus:
    """Look at the broker of a data directory.

    Args:
        data_dir: The directory; it need not be there.
    """
    data = DataDirectory(data_dir)
    running = data.in_use()
    state = data.read_state()
    answers = False
    if running and state is not None:
        with contextlib.suppress(BrokerError):
            Connection(bootstrap=state.bootstrap).check(timeout=3)
            answers = True
    return BrokerStatus(data=data, running=running, answers=answers, state=state)


def stop(data_dir: Path, *, timeout: float = 15.0, progress: Progress = silent) -> BrokerState | None:
    """Stop the broker of a data directory, whoever started it.

    Args:
        data_dir: The directory.
        timeout: Seconds to wait for a clean end before it is killed.
        progress: Told what takes time.

    Returns:
        What was stopped; None if nothing ran.

    Raises:
        BrokerError: It is just starting, or does not end.
        EnvironmentProblem: It belongs to another user.
    """
    data = DataDirectory(data_dir)
    state = data.read_state()
    if not data.in_use():
        data.clear_state()
        return None
    if state is None or not _is_broker(state.pid, data):
        raise BrokerError(
            f"A broker is just starting in {data.path}, and has not said yet which process it is",
            hint="Try again in a few seconds.",
        )
    progress(f"stopping the broker at {state.bootstrap} (process {state.pid})")
    clean = _end(state.pid, signal.SIGTERM, data, timeout)
    if not clean and not _end(state.pid, signal.SIGKILL, data, 5.0):
        raise BrokerError(f"The broker in {data.path} (process {state.pid}) does not end", hint="Kill it by hand.")
    data.clear_state()
    if state.class_archive:
        archive.adopt(Path(state.class_archive), clean=clean)
    return state


def _is_broker(pid: int, data: DataDirectory) -> bool:
    """Whether a process is the broker of this directory, and not another one that got its old process id."""
    try:
        return str(data.properties_file) in psutil.Process(pid).cmdline()
    except psutil.Error:
        return False


def _end(pid: int, number: int, data: DataDirectory, timeout: float) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise EnvironmentProblem(
            f"The broker in {data.path} (process {pid}) belongs to another user", hint="Stop it as that user."
        ) from error
    deadline = time.monotonic() + timeout
    while data.in_use():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
