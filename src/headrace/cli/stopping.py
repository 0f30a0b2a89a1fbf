"""Stopping in order: the first signal asks, the second insists.

A command that runs until it is stopped waits on a `Stop` instead of dying in the middle of something. Ctrl-C
(SIGINT), a closed terminal (SIGHUP) and `kill` (SIGTERM) all set it; a second Ctrl-C raises `KeyboardInterrupt` for
whoever is in a hurry.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from headrace.errors import ExitCode

_INSIST_SECONDS = 1.0


class Stop(threading.Event):
    """Set when the user wants the command to end; remembers by which signal."""

    signal: int | None = None

    def finish(self) -> None:
        """End the command with the exit code that fits: 130 after Ctrl-C, 0 after a polite request or no signal.

        Raises:
            typer.Exit: After Ctrl-C.
        """
        if self.signal == signal.SIGINT:
            raise typer.Exit(int(ExitCode.INTERRUPTED))


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Catch the stopping signals for the length of a block."""
    stop = Stop()
    first = 0.0

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal first
        if stop.signal == signal.SIGINT and number == signal.SIGINT:
            # Some tools send a signal twice, to the process and to its group: that is not yet a user who insists.
            if time.monotonic() - first > _INSIST_SECONDS:
                raise KeyboardInterrupt
            return
        first = time.monotonic()
        stop.signal = number
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
