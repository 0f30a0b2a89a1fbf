"""The scene: broker, feed and driver as processes, started again whenever they end, and what the driver says."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from chaos.feed import PARTITIONS
from chaos.jobs import TOPIC, jobs
from headrace.cli.children import Child
from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.dev.ports import free_port
from headrace.kafka import Topics, TopicSpec
from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec
from headrace.time.instants import instant

if TYPE_CHECKING:
    from types import TracebackType

#: How long anything may take to come back before it counts as broken.
PATIENCE = 150.0
_CLOCK = Path(__file__).with_name("clock.c")
_PROPERTIES = {
    # A transaction that nobody ends is looked for every second instead of every ten.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class BrokenError(RuntimeError):
    """Something did not come back, or came back wrong."""


@dataclass(frozen=True)
class Told:
    """One line of the driver, and when it came."""

    at: float
    event: dict[str, Any]


@dataclass
class Scene:
    """Everything that runs.

    Args:
        home: Where everything is kept; a second scene there goes on with it.
        seed: Decides what the feed writes.
        delivery: The promise under test.
        apart: Whether state partitions write for themselves.
    """

    home: Path
    seed: int
    delivery: str = "exactly_once"
    apart: bool = False
    told: list[Told] = field(default_factory=list)
    restarts: int = 0

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "faults").mkdir(exist_ok=True)
        self._news = threading.Condition()
        self._port = free_port()
        self._broker: EmbeddedBroker | None = None
        self._feed: Child | None = None
        self._driver: Child | None = None
        self.clock = self._build_clock()
        self.disk = self._mount()

    # Processes

    def __enter__(self) -> Self:
        try:
            self.start_broker()
            specs = [TopicSpec(name=TOPIC, partitions=PARTITIONS), dead_letter_spec(), commit_spec()]
            for job in jobs():
                specs += [TopicSpec(name=job.result_topic, partitions=2), late_spec(job.result_topic)]
            Topics(self.broker.connection).ensure(specs)
            self.start_feed()
            self.start_driver()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for child in (self._driver, self._feed):
            if child is not None:
                child.stop()
        if self._broker is not None:
            self._broker.stop()
        if self.disk is not None:
            # A later scene goes on with it.
            shutil.rmtree(self.home / "kept", ignore_errors=True)
            if self.checkpoint.exists():
                shutil.copytree(self.checkpoint, self.home / "kept")
            subprocess.run(["umount", "-l", str(self.disk)], check=False, capture_output=True)

    def start_broker(self) -> None:
        settings = ServerSettings(data_dir=self.home / "kafka", port=self._port, properties=_PROPERTIES)
        self._broker = EmbeddedBroker(settings).start()

    def start_feed(self) -> None:
        self._feed = self._child("feed", str(self.seed), str(self.home))

    def start_driver(self) -> None:
        how = "apart" if self.apart else "together"
        self._driver = self._child("driver", str(self.checkpoint.parent), self.delivery, how)

    def _child(self, module: str, *arguments: str) -> Child:
        environment = {"HEADRACE_FAULTS": str(self.home / "faults"), "CHAOS_CLOCK": str(self.home / "clock")}
        if module == "driver" and self.clock is not None:
            environment["LD_PRELOAD"] = str(self.clock)
        command = ["env", *(f"{name}={value}" for name, value in environment.items())]
        command += [sys.executable, "-m", f"chaos.{module}", self.broker.bootstrap, *arguments]
        log = self.home / f"{module}-{time.time_ns()}.log"
        return Child(module, command, log=log, on_line=self._hear if module == "driver" else None)

    @property
    def broker(self) -> EmbeddedBroker:
        if self._broker is None:
            raise BrokenError("the broker is not started")
        return self._broker

    @property
    def driver(self) -> psutil.Process:
        """The process that runs the jobs."""
        if self._driver is None:
            raise BrokenError("the driver is not started")
        return psutil.Process(self._driver.process.pid)

    @property
    def feed(self) -> psutil.Process:
        """The process that writes events."""
        if self._feed is None:
            raise BrokenError("the feed is not started")
        return psutil.Process(self._feed.process.pid)

    @property
    def checkpoint(self) -> Path:
        return (self.disk or self.home) / "checkpoint"

    def java(self) -> psutil.Process:
        """Spark's Java process."""
        return next(each for each in self.driver.children(recursive=True) if each.name() == "java")

    def workers(self) -> list[psutil.Process]:
        """Spark's Python processes."""
        return [each for each in self.java().children(recursive=True) if "python" in each.name()]

    def end_feed(self) -> None:
        """Stop the feed in order."""
        if self._feed is not None:
            self._feed.stop()

    def revive_driver(self) -> float:
        """Wait for the driver's end, and start it again at once; tells when it ended."""
        if self._driver is None:
            raise BrokenError("the driver is not started")
        deadline = time.monotonic() + PATIENCE
        while _runs(self._driver.process.pid):
            if time.monotonic() > deadline:
                raise BrokenError(f"the driver did not come to the point where it is killed; see {self._driver.log}")
            time.sleep(0.01)
        ended = time.monotonic()
        # Its guard ends Java, too, before the next driver may start.
        self._driver.stop()
        self.start_driver()
        return ended

    def _revive_unasked(self) -> None:
        """Start the driver again if it came to a point that was meant for a task; not if it said why it ends."""
        if self._driver is not None and not _runs(self._driver.process.pid) and not self._ended:
            self.revive_driver()

    # What the driver says

    @property
    def _ended(self) -> bool:
        return any(told.event.get("event") == "ended" for told in self.told)

    def _hear(self, line: str) -> None:
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            with self._news:
                self.restarts += event.get("state") == "restarting"
                self.told.append(Told(time.monotonic(), event))
                self._news.notify_all()

    def await_event(self, since: float, what: str, satisfied: Any = lambda event: True) -> Told:
        """Wait for a batch that was reported after a moment.

        Raises:
            BrokenError: There was none in time, or the run has ended.
        """
        deadline = time.monotonic() + PATIENCE
        seen = 0
        while True:
            self._revive_unasked()
            with self._news:
                for told in self.told[seen:]:
                    if told.at > since and told.event.get("event") == "ended":
                        raise BrokenError(f"the run ended while waiting for {what}: {told.event['problem']}")
                    if told.at > since and told.event.get("event") == "progress" and satisfied(told.event):
                        return told
                seen = len(self.told)
                self._news.wait(timeout=0.5)
            if time.monotonic() > deadline:
                raise BrokenError(f"{what} did not come within {PATIENCE:g} s; logs are in {self.home}")

    def await_watermark(self, watermark: int) -> None:
        """Wait until the jobs' event time has come to a point."""

        def reached(event: dict[str, Any]) -> bool:
            from datetime import datetime

            told = event.get("watermark")
            return told is not None and instant(datetime.fromisoformat(told)) >= watermark

        if not any(reached(told.event) for told in self.told if told.event.get("event") == "progress"):
            self.await_event(0.0, "the last watermark", reached)

    # Means

    def arm(self, point: str, order: str = "kill") -> None:
        """Let something happen at a fault point of the driver or its tasks."""
        draft = self.home / "faults" / f".{point}"
        draft.write_text(order)
        draft.rename(self.home / "faults" / point)

    def disarm(self) -> None:
        for path in (self.home / "faults").iterdir():
            path.unlink()

    def set_clock(self, seconds: int) -> None:
        """Move the driver's clock, and that of all its processes."""
        draft = self.home / ".clock"
        draft.write_text(str(seconds))
        draft.rename(self.home / "clock")

    def _build_clock(self) -> Path | None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            return None
        built = self.home / "clock.so"
        done = subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-o", str(built), str(_CLOCK), "-ldl"], check=False)
        return built if done.returncode == 0 else None

    def _mount(self) -> Path | None:
        """Put the checkpoint on a small disk of its own, where that is allowed."""
        if self.delivery != "exactly_once" or os.geteuid() != 0:
            return None
        disk = self.home / "disk"
        disk.mkdir(exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(disk)], check=False, capture_output=True
        )
        if done.returncode != 0:
            return None
        if (self.home / "kept").exists():
            shutil.copytree(self.home / "kept", disk / "checkpoint")
        return disk


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(process: psutil.Process) -> None:
    """End a process that this scene started, by its id, at once."""
    with contextlib.suppress(psutil.NoSuchProcess):
        os.kill(process.pid, signal.SIGKILL)
