"""Triggers that fire by event time: at every interval inside a window, and some time after its end.

Both ask to be asked again when the watermark has come to a time (`Trigger.event_timer`), which needs no new row. A turn
in which the watermark passes several intervals gives one pane.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.time.duration import text
from headrace.windows.firing import Moment, State, Trigger

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class EveryInterval(Trigger):
    """Fires whenever the watermark passes a whole multiple of `every` after the first row, at the end, and after it.

    Args:
        every: The interval.
        offset: How far the watermark must be past the end of an interval.
    """

    every: int
    offset: int = 0

    def on_elements(self, state: State, count: int, at: Moment) -> State:  # noqa: ARG002
        """Wait for the end of the interval that the first row lies in."""
        if state is not None or at.complete:
            return state
        if at.earliest is None:
            return self._after(at.watermark)
        return (at.earliest // self.every + 1) * self.every + self.offset

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire at the end of an interval, and of the window."""
        return at.complete or (state is not None and at.watermark >= state)

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:  # noqa: ARG002
        """Wait for the next interval."""
        following = self._after(at.watermark)
        return (None if at.complete or following >= at.window_end else following), False

    def merge(self, states: Sequence[State], at: Moment) -> State:  # noqa: ARG002
        """Keep the earliest time."""
        return min((state for state in states if state is not None), default=None)

    def event_timer(self, state: State) -> int | None:
        """Return the end of the interval."""
        return None if state is None else int(state)

    def reads_time(self) -> bool:
        """Read the time of the first row."""
        return True

    def can_fire(self, *, ends: bool) -> bool:  # noqa: ARG002
        """Fire when the watermark moves."""
        return True

    def can_finish(self) -> bool:
        """Never finish."""
        return False

    def fires_on_time(self) -> bool:
        """Fire at the end of the window."""
        return True

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"every_interval({text(self.every)})"

    def _after(self, time: int) -> int:
        return ((time - self.offset) // self.every + 1) * self.every + self.offset


@dataclass(frozen=True)
class AfterEnd(Trigger):
    """Fires when the watermark has passed the end of the window by a delay."""

    delay: int

    def on_elements(self, state: State, count: int, at: Moment) -> State:  # noqa: ARG002
        """Wait for the time."""
        return at.window_end + self.delay

    def should_fire(self, state: State, at: Moment) -> bool:  # noqa: ARG002
        """Fire once the time has come."""
        return at.watermark >= at.window_end + self.delay

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:  # noqa: ARG002
        """Finish."""
        return None, True

    def merge(self, states: Sequence[State], at: Moment) -> State:  # noqa: ARG002
        """Wait for the end of the merged window."""
        return at.window_end + self.delay

    def event_timer(self, state: State) -> int | None:
        """Return the time."""
        return None if state is None else int(state)

    def can_fire(self, *, ends: bool) -> bool:
        """Fire in windows that end."""
        return ends

    def can_finish(self) -> bool:
        """Finish with the first firing."""
        return True

    def needs_lateness(self) -> int:
        """Need the window for as long as the delay."""
        return self.delay

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"after_end({text(self.delay)})"
