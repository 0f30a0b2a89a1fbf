"""Stopping in order: the first signal asks, the second insists.

A command that runs until it is stopped waits on a `Stop` instead of dying in the middle of something. Ctrl-C
(SIGINT), a closed terminal (SIGHUP) and `kill` (SIGTERM) all set it; a second Ctrl-C raises `KeyboardInterrupt` for
whoever is in a hurry.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import typer

from headrace.errors import ExitCode


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

    def handle(number: int, _frame: FrameType | None) -> None:
        if stop.signal == signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
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
