"""Keeps the background work of the dashboard running, and says how it is doing.

The dashboard has several threads and tasks: one reads results, one reads what runs publish, one reads offsets, others
send to viewers and put figures together. Each of them is a `Part`. Whatever ends its work unexpectedly is logged with
its cause, once, and the work is started again after a pause that grows while it keeps failing. A part also notes when
it last did its work: figures of a part that has not done so for a while are stale, and are shown as such.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

PartState = Literal["starting", "running", "waiting", "restarting", "stopped"]

#: Seconds before the first restart, and at most.
FIRST_PAUSE = 1.0
MOST_PAUSE = 30.0
#: Seconds without a failure after which a part that failed counts as well again.
RECOVERY = 10.0
#: Characters of an error that are shown.
_MOST_TEXT = 300


class Part:
    """One piece of background work.

    Args:
        name: What it is called in the API, the metrics and the log.
        text: What it does, for people.
        stale_after: Seconds after which what it has found is out of date.
        expected: Errors that mean that something outside cannot be reached. They are tried again without an entry at
            level error.

    >>> part = Part("offsets", "the reader of offsets", stale_after=10.0)
    >>> part.refresh(now=100.0)
    >>> part.is_stale(now=105.0), part.is_stale(now=111.0)
    (False, True)
    """

    def __init__(
        self, name: str, text: str, *, stale_after: float, expected: tuple[type[BaseException], ...] = ()
    ) -> None:
        self.name = name
        self.text = text
        self.stale_after = stale_after
        self.failures = 0
        self.state: PartState = "starting"
        self.reason = ""
        self.refreshed_at: int | None = None
        self._expected = expected
        self._began = time.monotonic()
        self._refreshed: float | None = None
        self._failed = 0.0
        self._pause = FIRST_PAUSE

    def refresh(self, *, now: float | None = None) -> None:
        """Note that the work was done once more."""
        self._refreshed = time.monotonic() if now is None else now
        self.refreshed_at = time.time_ns() // 1_000_000
        # Work that fails again and again may well succeed for a moment after each start.
        if self.state == "restarting" and self._refreshed - self._failed < RECOVERY:
            return
        if self.state in ("restarting", "waiting"):
            log.info("the dashboard's %s works again", self.text)
        self.state, self.reason, self._pause = "running", "", FIRST_PAUSE

    def is_stale(self, *, now: float | None = None) -> bool:
        """Tell whether what it has found is out of date."""
        last = self._began if self._refreshed is None else self._refreshed
        return (time.monotonic() if now is None else now) - last > self.stale_after

    def is_failing(self) -> bool:
        """Tell whether it has failed for a reason that it should not, and has not worked since."""
        return self.state == "restarting"

    def failed(self, problem: BaseException) -> float:
        """Note that the work has ended with an error.

        Returns:
            Seconds to wait before it is started again.
        """
        reason = f"{type(problem).__name__}: {problem}"[:_MOST_TEXT]
        is_new = reason != self.reason
        self.reason = reason
        if isinstance(problem, self._expected):
            self.state = "waiting"
            log.log(logging.INFO if is_new else logging.DEBUG, "the dashboard's %s has to wait: %s", self.text, reason)
            return FIRST_PAUSE
        self.state = "restarting"
        self._failed = time.monotonic()
        self.failures += 1
        if is_new:
            log.error("the dashboard's %s failed and is started again: %s", self.text, reason, exc_info=problem)
        pause, self._pause = self._pause, min(MOST_PAUSE, 2 * self._pause)
        return pause

    def to_dict(self, *, now: float | None = None) -> dict[str, Any]:
        """Give its state as the protocol has it."""
        return {
            "name": self.name,
            "state": self.state,
            "stale": self.is_stale(now=now),
            "refreshed": self.refreshed_at,
            "failures": self.failures,
            "text": self.reason,
        }


class Worker:
    """A part that works in a thread of its own.

    Args:
        part: Its state.
        work: Is called again whenever it returns or fails. It calls `part.refresh` when it has done something, and
            returns soon after `stop` is set.
        stop: Ends it.
        on_failure: Is told of each error.
    """

    def __init__(
        self,
        part: Part,
        work: Callable[[], None],
        stop: threading.Event,
        *,
        on_failure: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.part = part
        self._work = work
        self._stop = stop
        self._on_failure = on_failure
        self._thread = threading.Thread(target=self._run, name=f"dashboard {part.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait until it has ended, and tell whether it has."""
        if self._thread.is_alive():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._work()
            except Exception as problem:  # noqa: BLE001 - logged with its cause by `failed`, and shown
                pause = self.part.failed(problem)
                if self._on_failure is not None:
                    self._on_failure(problem)
                self._stop.wait(pause)
        self.part.state = "stopped"


async def keep_running(
    part: Part, work: Callable[[], Awaitable[None]], *, on_failure: Callable[[], None] | None = None
) -> None:
    """Run a part as a task, for ever.

    Args:
        part: Its state.
        work: Is called again whenever it returns or fails.
        on_failure: Is called after each error.
    """
    while True:
        try:
            await work()
        except Exception as problem:  # noqa: BLE001 - logged with its cause by `failed`, and shown
            pause = part.failed(problem)
            if on_failure is not None:
                on_failure()
            await asyncio.sleep(pause)
