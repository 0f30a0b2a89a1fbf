"""A process that starts a command and does not let it outlive the one who asked for it.

Run as a script, by path and without site packages, so that it starts in milliseconds and needs nothing:

    python -I -S guard.py LIFELINE_FD REPORT_FD GRACE_SECONDS -- COMMAND...

The parent holds the other end of the lifeline, a pipe. When the parent is gone, however it died, the kernel closes
that end, and the guard stops the command: SIGTERM first, SIGKILL after the grace. SIGTERM or SIGINT to the guard do
the same. A forked child of the parent may hold the pipe open, too, so the guard also looks at its parent's process id
now and then.

A parent that wants the command to stay after all writes "R" into the lifeline before it ends.

The other direction is covered by the kernel (Linux): the command gets SIGKILL when the guard itself is killed, and
what the command left running is inherited by the guard, which ends it. The guard exits with the command's status.

See `headrace.dev.process` for the side of the parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_POLL_SECONDS = 0.5
_DESCENDANTS_SECONDS = 2.0
RELEASE = b"R"
"""What a parent writes into the lifeline to let the command outlive it."""


def _prctl(option: int, value: int) -> None:
    """Best effort: other systems than Linux have no prctl, and there the lifeline must do."""
    if _LIBC is not None:
        _LIBC.prctl(option, value, 0, 0, 0)


def _load_libc() -> ctypes.CDLL | None:
    return ctypes.CDLL(None) if sys.platform == "linux" else None


_LIBC = _load_libc()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _children() -> list[int]:
    with contextlib.suppress(OSError), open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123
        return [int(pid) for pid in file.read().split()]
    return []


def _end_descendants() -> None:
    """End what the command left behind; orphans become our children, since we are their subreaper."""
    asked: set[int] = set()
    began = time.monotonic()
    while (left := _children()) and time.monotonic() - began < 2 * _DESCENDANTS_SECONDS:
        number = signal.SIGTERM if time.monotonic() - began < _DESCENDANTS_SECONDS else signal.SIGKILL
        for pid in left:
            if pid not in asked or number == signal.SIGKILL:
                asked.add(pid)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(0.01)


def _run(lifeline: int, report: int, grace: float, command: list[str]) -> int:
    parent = os.getppid()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda _number, _frame: None)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # Everything else that was handed to us is for the command: a lock that lives as long as it does, say.
    for descriptor in (lifeline, report, wake_read, wake_write):
        os.set_inheritable(descriptor, False)
    try:
        child = subprocess.Popen(
            command,
            close_fds=False,
            process_group=0,
            # The guard has one thread, which makes preexec_fn safe and the thread-bound death signal right.
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )
    except OSError as error:
        os.write(report, json.dumps({"errno": error.errno}).encode())
        return 127
    os.write(report, json.dumps({"pid": child.pid}).encode())
    os.close(report)

    stop_at: float | None = None
    released = False
    watched = [lifeline, wake_read]
    while child.poll() is None:
        now = time.monotonic()
        if stop_at is not None and now >= stop_at:
            _signal_group(child.pid, signal.SIGKILL)
            child.wait()
            break
        wait = _POLL_SECONDS if stop_at is None else min(_POLL_SECONDS, stop_at - now)
        ready, _, _ = select.select(watched, [], [], wait)
        if lifeline in ready:
            # The order matters: a parent may release us and end before we come to look.
            said = os.read(lifeline, 4096)
            released |= RELEASE in said
            if not said:
                watched.remove(lifeline)
        stop = not released and (lifeline not in watched or os.getppid() != parent)
        if wake_read in ready:
            stop |= any(number != signal.SIGCHLD for number in os.read(wake_read, 4096))
        if stop and stop_at is None:
            stop_at = time.monotonic() + grace
            _signal_group(child.pid, signal.SIGTERM)
    _end_descendants()
    code = child.returncode
    return code if code >= 0 else 128 - code


def main(arguments: list[str]) -> int:
    """Run the guard; see the module's docstring."""
    lifeline, report, grace, dashes, *command = arguments
    if dashes != "--" or not command:
        raise SystemExit(__doc__)
    return _run(int(lifeline), int(report), float(grace), command)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
