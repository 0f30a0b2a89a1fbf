"""The processes that `headrace demo` starts: other `headrace` commands, guarded and watched.

A child writes its log to a file of bounded size in the log directory. When it ends by itself, `Child.check` turns that
into an error that says which one it was, the last lines of its log and what to do, with the exit code that the child
ended with.
"""

from __future__ import annotations

import contextlib
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
    from headrace.dev.logs import pieces_of

    lines: deque[str] = deque(maxlen=count)
    for piece in pieces_of(path):
        with contextlib.suppress(OSError), piece.open(encoding="utf-8", errors="replace") as file:
            lines.extend(line.rstrip() for line in file if line.strip())
    return list(lines)


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
        from headrace.dev.logs import BoundedLog
        from headrace.dev.process import GuardedProcess

        self.name = name
        self._reader: threading.Thread | None = None
        self._log = BoundedLog(log)
        self.log = self._log.path
        try:
            if on_line is None:
                self.process = GuardedProcess(command, grace=grace, stdout=self._log.fileno())
                return
            read_end, write_end = os.pipe()
            try:
                self.process = GuardedProcess(command, grace=grace, stdout=write_end, stderr=self._log.fileno())
            except HeadraceError:
                os.close(read_end)
                raise
            finally:
                os.close(write_end)
        except HeadraceError:
            self._log.close()
            raise
        finally:
            self._log.release()
        self._reader = threading.Thread(target=self._read, args=(read_end, on_line), name=f"{name} output", daemon=True)
        self._reader.start()

    @staticmethod
    def _read(descriptor: int, on_line: Callable[[str], None]) -> None:
        with open(descriptor, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                on_line(line)

    @property
    def is_done(self) -> bool:
        """Whether it has ended in order, as a run does that is stopped."""
        return self.process.poll() == 0

    def check(self) -> None:
        """See that it still runs.

        Raises:
            ChildEndedError: It has ended.
        """
        code = self.process.poll()
        if code is None:
            return
        self._log.close()
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
        self._log.close(timeout=1)
        if self._reader is not None:
            self._reader.join(timeout=1)


def stop_all(children: Sequence[Child]) -> None:
    """Stop several children at the same time."""
    threads = [threading.Thread(target=child.stop, name=f"stop {child.name}") for child in children]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
