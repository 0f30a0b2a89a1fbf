"""The parts of a pipeline as processes: started, listened to, stopped.

Every part is guarded (it ends with us, however we end) and writes its log to a file. A part that ends by itself is an
error that says which one it was and the last lines of its log.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

from headrace.dev.process import GuardedProcess
from headrace.errors import HeadraceError, JobError
from headrace.observe.probe import wall

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LINES = 6


class Part:
    """A process that tells what it does in lines of JSON on its standard output.

    Args:
        name: What it is, for people.
        command: What to run.
        log: Where its standard error goes.
        grace: Seconds that it is given to end when it is stopped.
    """

    def __init__(self, name: str, command: Sequence[str], *, log: Path, grace: float = 20.0) -> None:
        self.name = name
        self._log = log
        self._told: list[dict[str, Any]] = []
        self._lock = threading.Lock()
        self._stopping = False
        log.parent.mkdir(parents=True, exist_ok=True)
        read_end, write_end = os.pipe()
        try:
            with log.open("wb") as file:
                self._process = GuardedProcess(command, grace=grace, stdout=write_end, stderr=file.fileno())
        except HeadraceError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end,), name=f"{name} output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def told(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Give what it said so far, each with `at` (microseconds since the epoch).

        Args:
            kind: Only lines whose `event` is this.
        """
        with self._lock:
            return [line for line in self._told if kind is None or line.get("event") == kind]

    def check(self) -> None:
        """See that it runs.

        Raises:
            JobError: It has ended.
        """
        code = self._process.poll()
        if code is not None and not self._stopping:
            raise JobError(
                f"{self.name} ended with exit code {code}; the last it said: {self._last_words()}",
                hint=f"Its whole log: {self._log}.",
            )

    def stop(self) -> None:
        """End it, in order; does nothing if it has ended."""
        self._stopping = True
        self._process.stop()
        self._reader.join(timeout=5)

    def _read(self, descriptor: int) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                now = wall()
                try:
                    said = json.loads(line)
                except ValueError:
                    continue  # not for us
                if isinstance(said, dict):
                    with self._lock:
                        self._told.append({"at": now, **said})

    def _last_words(self) -> str:
        try:
            with self._log.open(encoding="utf-8", errors="replace") as file:
                last = deque((line.strip() for line in file if line.strip()), maxlen=_LINES)
        except OSError:
            last = deque()
        return " | ".join(last) or "(nothing)"


def jobs_command(jobs: Sequence[str], *, bootstrap: str, home: Path, master: str, settings: Sequence[str]) -> list[str]:
    """Give the command that runs jobs as a user would: `headrace run`."""
    assignments = [f"paths.home={home}", *settings]
    words = [word for assignment in assignments for word in ("--set", assignment)]
    options = ["--bootstrap", bootstrap, "--master", master, "--fresh", "--json"]
    return [sys.executable, "-m", "headrace.cli", *words, "run", *jobs, *options]
