"""The processes that `headrace demo` starts: other `headrace` commands, guarded and watched.

A child writes its log to a file in the log directory. When it ends by itself, `Child.check` turns that into an error
that says which one it was, the last lines of its log and what to do, with the exit code that the child ended with.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from headrace.cli.options import Globals
from headrace.errors import ExitCode, HeadraceError

_LINES = 8


class ChildEndedError(HeadraceError, RuntimeError):
    """A process that should go on has ended."""

    def __init__(self, message: str, *, hint: str, code: int) -> None:
        super().__init__(message, hint=hint)
        known = {int(member) for member in ExitCode} - {int(ExitCode.OK), int(ExitCode.INTERRUPTED)}
        self.exit_code = ExitCode(code) if code in known else ExitCode.FAILURE


def headrace_command(options: Globals, *words: str) -> list[str]:
    """The command line that runs another `headrace` command with the same settings and the same Python."""
    return [sys.executable, "-m", "headrace.cli", *options.arguments(), *words]


def last_lines(path: Path, count: int = _LINES) -> list[str]:
    """The last lines of a log that are not empty; none if there is no log."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return list(deque((line.rstrip() for line in file if line.strip()), maxlen=count))
    except OSError:
        return []


class Child:
    """One guarded process with its log.

    Args:
        name: What it is, for people: "the simulator".
        command: What to run.
        log: Where its standard error goes, and its standard output unless it is read.
        on_line: Called with every line of its standard output, from a thread of its own.
        grace: Seconds that it is given to end when it is stopped.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        log: Path,
        on_line: Callable[[str], None] | None = None,
        grace: float = 5.0,
    ) -> None:
        from headrace.broker.process import GuardedProcess

        self.name = name
        self.log = log
        self._reader: threading.Thread | None = None
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            if on_line is None:
                self.process = GuardedProcess(command, grace=grace, stdout=file)
                return
            read_end, write_end = os.pipe()
            try:
                self.process = GuardedProcess(command, grace=grace, stdout=write_end, stderr=file.fileno())
            except HeadraceError:
                os.close(read_end)
                raise
            finally:
                os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end, on_line), name=f"{name} output", daemon=True)
        self._reader.start()

    @staticmethod
    def _read(descriptor: int, on_line: Callable[[str], None]) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                on_line(line)

    def check(self) -> None:
        """See that it still runs.

        Raises:
            ChildEndedError: It has ended.
        """
        code = self.process.poll()
        if code is None:
            return
        said = last_lines(self.log)
        reason = "".join(f"\n    {line}" for line in said) or "\n    (it logged nothing)"
        raise ChildEndedError(
            f"{self.name} ended with exit code {code}; the last it said:{reason}",
            hint=f"Its whole log: {self.log}. `headrace doctor` checks what it needs.",
            code=code,
        )

    def stop(self) -> None:
        """Stop it and wait for its end; does nothing when it has ended."""
        self.process.stop()
        if self._reader is not None:
            self._reader.join(timeout=1)


def stop_all(children: Sequence[Child]) -> None:
    """Stop several children at the same time."""
    threads = [threading.Thread(target=child.stop, name=f"stop {child.name}") for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
