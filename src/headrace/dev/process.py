"""Child processes that never outlive their parent.

A stream job starts other processes: a broker, a simulated fleet, a Spark driver. When the terminal is closed or the
parent is killed with SIGKILL, no clean-up code runs, and such children would stay, holding ports and memory. A
`GuardedProcess` cannot: between it and us stands a guard (see `headrace.dev.guard`) that sees our end and ends the
child.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from headrace.dev.guard import RELEASE
from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

_GUARD = Path(__file__).with_name("guard.py")


class GuardedProcess:
    """A command that runs as long as it likes, but no longer than we do.

    Ctrl-C in a terminal does not reach it: it has a session of its own, and is stopped in order by `stop`.

    Args:
        command: The program and its arguments.
        grace: Seconds between SIGTERM and SIGKILL when it is stopped.
        stdout: Where its output goes, nowhere if not given.
        stderr: Where its errors go, to `stdout` if not given.
        env: Its environment, ours if not given.
        cwd: Its working directory, ours if not given.
        pass_fds: Open file descriptors that it inherits.

    Raises:
        EnvironmentProblem: The program cannot be started.

    >>> with GuardedProcess(["sleep", "60"]) as process:
    ...     process.poll() is None
    True
    >>> process.returncode
    143
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        grace: float = 10.0,
        stdout: IO[bytes] | int | None = None,
        stderr: IO[bytes] | int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self.command = tuple(command)
        self._grace = grace
        lifeline_read, self._lifeline = os.pipe()
        report_read, report_write = os.pipe()
        guard = [sys.executable, "-I", "-S", str(_GUARD), str(lifeline_read), str(report_write), str(grace), "--"]
        try:
            self._guard = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL if stdout is None else stdout,
                stderr=subprocess.STDOUT if stderr is None else stderr,
                env=None if env is None else dict(env),
                cwd=cwd,
                pass_fds=(lifeline_read, report_write, *pass_fds),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._lifeline)
            os.close(report_read)
            raise _cannot_start(command, error.errno or 0) from error
        finally:
            os.close(lifeline_read)
            os.close(report_write)
        with open(report_read, "rb") as report:  # noqa: PTH123
            said = json.loads(report.read() or b"{}")
        if "pid" not in said:
            self._guard.wait()
            self._close()
            raise _cannot_start(command, said.get("errno", 0))
        self.pid: int = said["pid"]

    @property
    def returncode(self) -> int | None:
        """The exit status, 128 + n if signal n ended it; None while it runs."""
        return self.poll()

    def poll(self) -> int | None:
        """Look whether it has ended, and how."""
        code = self._guard.poll()
        if code is not None:
            self._close()
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended.

        Args:
            timeout: Seconds to wait at most.

        Raises:
            TimeoutError: It still runs.
        """
        try:
            code = self._guard.wait(timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{self.command[0]} (process {self.pid}) still runs after {timeout} s") from None
        self._close()
        return code

    def stop(self) -> int:
        """Stop it: SIGTERM, and SIGKILL after the grace. Does nothing when it has ended already."""
        if self._guard.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._guard.send_signal(signal.SIGTERM)
        return self.wait(self._grace + 30)

    def release(self) -> None:
        """Let it outlive us after all; from now on, only its process id leads to it.

        Raises:
            EnvironmentProblem: It has ended already.
        """
        try:
            os.write(self._lifeline, RELEASE)
        except OSError as error:
            raise EnvironmentProblem(f"{self.command[0]} has ended with {self.poll()}") from error
        self._close()
        # Popen warns about processes that it leaves behind. This one is meant to stay.
        self._guard.returncode = 0

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        state = "running" if self._guard.poll() is None else f"ended with {self._guard.returncode}"
        return f"<GuardedProcess {self.command[0]} pid={self.pid} {state}>"


def _cannot_start(command: Sequence[str], number: int) -> EnvironmentProblem:
    why = os.strerror(number) if number else "the guard process did not start"
    return EnvironmentProblem(
        f"Cannot start {command[0]}: {why}", hint="Check that the program is there and runs by hand."
    )
