"""What triggers are made of: the contract, and one frozen class per kind.

What a trigger has seen of one window is a small JSON value, and all of its moves are pure: old state in, new state
out. See `headrace.windows.triggers` for what they mean and how to write them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.time.duration import text

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What a trigger remembers of one window: any JSON value.
State = Any


@dataclass(frozen=True, slots=True)
class Moment:
    """What a trigger may look at: the end of the window, the watermark, the processing time, and the earliest row.

    The time of the earliest row is there only for a trigger that reads it (`Trigger.reads_time`).
    """

    window_end: int
    watermark: int
    now: int
    earliest: int | None = None

    @property
    def complete(self) -> bool:
        """Whether the watermark has passed the end of the window."""
        return self.watermark >= self.window_end


@dataclass(frozen=True)
class Trigger:
    """The contract of a trigger; see the module."""

    def start(self) -> State:
        """Return the state of a window that has seen nothing."""
        return None

    def on_elements(self, state: State, count: int, at: Moment) -> State:  # noqa: ARG002
        """Take note of rows that arrived."""
        return state

    def should_fire(self, state: State, at: Moment) -> bool:
        """Tell whether the window should fire now."""
        raise NotImplementedError

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Take note of a firing; return the new state and whether the trigger is finished."""
        raise NotImplementedError

    def merge(self, states: Sequence[State], at: Moment) -> State:  # noqa: ARG002 - `at` is the merged window's
        """Make one state of those of windows that became one."""
        return states[0]

    def timer(self, state: State) -> int | None:  # noqa: ARG002
        """Return the processing time at which to be asked again, or None."""
        return None

    def event_timer(self, state: State) -> int | None:  # noqa: ARG002
        """Return the event time at which to be asked again when the watermark has reached it, or None."""
        return None

    def reads_time(self) -> bool:
        """Tell whether it needs to know the time of a window's earliest row."""
        return any(part.reads_time() for part in self.parts())

    def needs_lateness(self) -> int:
        """Tell how long after its end a window must be kept for the trigger to fire."""
        return max((part.needs_lateness() for part in self.parts()), default=0)

    def can_fire(self, *, ends: bool) -> bool:
        """Tell whether it can ever fire, in windows that end or do not end."""
        raise NotImplementedError

    def can_finish(self) -> bool:
        """Tell whether it can ever finish."""
        raise NotImplementedError

    def fires_on_time(self) -> bool:
        """Tell whether the end of the window alone makes it fire."""
        return False

    def parts(self) -> tuple[Trigger, ...]:
        """Return the triggers it is made of."""
        return ()

    def describe(self) -> str:
        """Write the trigger as a user writes it; also its fingerprint in saved state."""
        raise NotImplementedError


@dataclass(frozen=True)
class AfterWatermark(Trigger):
    """Fires when the watermark passes the end of the window; before that by `early`, after that by `late`."""

    early: Trigger | None = None
    late: Trigger | None = None

    def start(self) -> State:
        """Begin before the end of the window."""
        return ["early", self.early.start() if self.early else None]

    def on_elements(self, state: State, count: int, at: Moment) -> State:
        """Hand the rows to the part whose turn it is."""
        phase, inner = state
        part = self._part(phase)
        return [phase, part.on_elements(inner, count, at)] if part else state

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire at the end of the window, or when the part whose turn it is wants to."""
        phase, inner = state
        if phase == "early" and at.complete:
            return True
        part = self._part(phase)
        return part is not None and part.should_fire(inner, at)

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Go on to the late part at the end of the window; without one, finish."""
        phase, inner = state
        if phase == "early" and at.complete:
            return ["late", self.late.start() if self.late else None], self.late is None
        part = self._part(phase)
        if part is None:
            return state, phase == "late"
        inner, _ = part.on_fire(inner, at)
        return [phase, inner], False

    def merge(self, states: Sequence[State], at: Moment) -> State:
        """Stay late if the merged window is complete too; a window that grew beyond the watermark starts over."""
        late = [inner for phase, inner in states if phase == "late"]
        if late and at.complete:
            return ["late", self.late.merge(late, at) if self.late else None]
        early = [inner for phase, inner in states if phase == "early"]
        if not self.early:
            return ["early", None]
        return ["early", self.early.merge(early, at) if early else self.early.start()]

    def timer(self, state: State) -> int | None:
        """Ask the part whose turn it is."""
        phase, inner = state
        part = self._part(phase)
        return part.timer(inner) if part else None

    def event_timer(self, state: State) -> int | None:
        """Ask the part whose turn it is; the end of the window needs no timer."""
        phase, inner = state
        part = self._part(phase)
        return part.event_timer(inner) if part else None

    def can_fire(self, *, ends: bool) -> bool:
        """Fire in windows that end, or early."""
        return ends or (self.early is not None and self.early.can_fire(ends=ends))

    def can_finish(self) -> bool:
        """Finish at the end of the window, unless there is a late part."""
        return self.late is None

    def fires_on_time(self) -> bool:
        """Fire at the end of the window."""
        return True

    def parts(self) -> tuple[Trigger, ...]:
        """Return the early and the late part."""
        return tuple(part for part in (self.early, self.late) if part)

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        parts = [f"{n}={_plain(t).describe()}" for n, t in (("early", self.early), ("late", self.late)) if t]
        return f"after_watermark({', '.join(parts)})"

    def _part(self, phase: str) -> Trigger | None:
        return self.early if phase == "early" else self.late


@dataclass(frozen=True)
class AfterCount(Trigger):
    """Fires when the window has `n` or more rows since it started."""

    n: int

    def start(self) -> State:
        """Begin with no rows."""
        return 0

    def on_elements(self, state: State, count: int, at: Moment) -> State:  # noqa: ARG002
        """Count the rows."""
        return state + count

    def should_fire(self, state: State, at: Moment) -> bool:  # noqa: ARG002
        """Fire at `n` rows."""
        return bool(state >= self.n)

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:  # noqa: ARG002
        """Finish."""
        return state, True

    def merge(self, states: Sequence[State], at: Moment) -> State:  # noqa: ARG002
        """Add the counts."""
        return sum(states)

    def can_fire(self, *, ends: bool) -> bool:  # noqa: ARG002
        """Fire when enough rows come."""
        return True

    def can_finish(self) -> bool:
        """Finish with the first firing."""
        return True

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"after_count({self.n})"


@dataclass(frozen=True)
class AfterProcessingTime(Trigger):
    """Fires `delay` after the first row, by the clock; or at the next whole multiple of `every` after that."""

    delay: int
    every: int | None = None

    def on_elements(self, state: State, count: int, at: Moment) -> State:  # noqa: ARG002
        """Start the clock with the first row."""
        if state is not None:
            return state
        due = at.now + self.delay
        return due if self.every is None else -(-due // self.every) * self.every

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when the time has come."""
        return state is not None and at.now >= state

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:  # noqa: ARG002
        """Finish."""
        return None, True

    def merge(self, states: Sequence[State], at: Moment) -> State:  # noqa: ARG002
        """Keep the earliest time."""
        return min((state for state in states if state is not None), default=None)

    def timer(self, state: State) -> int | None:
        """Return when the time comes."""
        return None if state is None else int(state)

    def can_fire(self, *, ends: bool) -> bool:  # noqa: ARG002
        """Fire some time after a row."""
        return True

    def can_finish(self) -> bool:
        """Finish with the first firing."""
        return True

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        if self.every is None:
            return f"after_processing_time({text(self.delay)})"
        delay = f"{text(self.delay)}, " if self.delay else ""
        return f"after_processing_time({delay}every={text(self.every)})"


@dataclass(frozen=True)
class Repeatedly(Trigger):
    """Starts a trigger over whenever it finishes."""

    of: Trigger

    def start(self) -> State:
        """Begin as the trigger does."""
        return self.of.start()

    def on_elements(self, state: State, count: int, at: Moment) -> State:
        """Hand the rows on."""
        return self.of.on_elements(state, count, at)

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when the trigger does."""
        return self.of.should_fire(state, at)

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Start over where the trigger finishes."""
        state, finished = self.of.on_fire(state, at)
        return (self.of.start() if finished else state), False

    def merge(self, states: Sequence[State], at: Moment) -> State:
        """Merge as the trigger does."""
        return self.of.merge(states, at)

    def timer(self, state: State) -> int | None:
        """Ask the trigger."""
        return self.of.timer(state)

    def event_timer(self, state: State) -> int | None:
        """Ask the trigger."""
        return self.of.event_timer(state)

    def can_fire(self, *, ends: bool) -> bool:
        """Fire if the trigger can."""
        return self.of.can_fire(ends=ends)

    def can_finish(self) -> bool:
        """Never finish."""
        return False

    def fires_on_time(self) -> bool:
        """Fire on time if the trigger does."""
        return self.of.fires_on_time()

    def parts(self) -> tuple[Trigger, ...]:
        """Return the trigger."""
        return (self.of,)

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return "default" if self.of == AfterWatermark() else f"repeatedly({self.of.describe()})"


@dataclass(frozen=True)
class AfterEach(Trigger):
    """Runs triggers one after the other; finishes with the last."""

    of: tuple[Trigger, ...]

    def start(self) -> State:
        """Begin with the first."""
        return [0, self.of[0].start()]

    def on_elements(self, state: State, count: int, at: Moment) -> State:
        """Hand the rows to the trigger whose turn it is."""
        turn, inner = state
        return [turn, self.of[turn].on_elements(inner, count, at)] if turn < len(self.of) else state

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when the trigger whose turn it is does."""
        turn, inner = state
        return bool(turn < len(self.of) and self.of[turn].should_fire(inner, at))

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Go on to the next where one finishes."""
        turn, inner = state
        inner, finished = self.of[turn].on_fire(inner, at)
        if not finished:
            return [turn, inner], False
        turn += 1
        return [turn, self.of[turn].start() if turn < len(self.of) else None], turn == len(self.of)

    def merge(self, states: Sequence[State], at: Moment) -> State:
        """Go on from the furthest."""
        turn = max(state[0] for state in states)
        inner = [state[1] for state in states if state[0] == turn]
        return [turn, self.of[turn].merge(inner, at) if turn < len(self.of) else None]

    def timer(self, state: State) -> int | None:
        """Ask the trigger whose turn it is."""
        turn, inner = state
        return self.of[turn].timer(inner) if turn < len(self.of) else None

    def event_timer(self, state: State) -> int | None:
        """Ask the trigger whose turn it is."""
        turn, inner = state
        return self.of[turn].event_timer(inner) if turn < len(self.of) else None

    def can_fire(self, *, ends: bool) -> bool:
        """Fire if the first can."""
        return self.of[0].can_fire(ends=ends)

    def can_finish(self) -> bool:
        """Finish if all can."""
        return all(part.can_finish() for part in self.of)

    def fires_on_time(self) -> bool:
        """Count on it only where each does."""
        return all(part.fires_on_time() for part in self.of)

    def parts(self) -> tuple[Trigger, ...]:
        """Return the triggers."""
        return self.of

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"after_each({', '.join(part.describe() for part in self.of)})"


@dataclass(frozen=True)
class _Together(Trigger):
    """Runs triggers side by side."""

    of: tuple[Trigger, ...]

    def start(self) -> State:
        """Begin all."""
        return [part.start() for part in self.of]

    def on_elements(self, state: State, count: int, at: Moment) -> State:
        """Hand the rows to all."""
        return [part.on_elements(inner, count, at) for part, inner in zip(self.of, state, strict=True)]

    def merge(self, states: Sequence[State], at: Moment) -> State:
        """Merge each with its own."""
        return [part.merge([state[n] for state in states], at) for n, part in enumerate(self.of)]

    def timer(self, state: State) -> int | None:
        """Take the earliest that lies ahead of none."""
        times = [part.timer(inner) for part, inner in zip(self.of, state, strict=True)]
        return min((time for time in times if time is not None), default=None)

    def event_timer(self, state: State) -> int | None:
        """Take the earliest."""
        times = [part.event_timer(inner) for part, inner in zip(self.of, state, strict=True)]
        return min((time for time in times if time is not None), default=None)

    def parts(self) -> tuple[Trigger, ...]:
        """Return the triggers."""
        return self.of

    def _wishes(self, state: State, at: Moment) -> list[bool]:
        return [part.should_fire(inner, at) for part, inner in zip(self.of, state, strict=True)]

    def _fired(self, state: State, at: Moment) -> tuple[State, list[bool]]:
        """Let those fire that want to; tell which of them finished."""
        states, finished = [], []
        for part, inner, wish in zip(self.of, state, self._wishes(state, at), strict=True):
            after, done = part.on_fire(inner, at) if wish else (inner, False)
            states.append(after)
            finished.append(done)
        return states, finished


@dataclass(frozen=True)
class AfterAny(_Together):
    """Fires when any of its triggers does."""

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when any does."""
        return any(self._wishes(state, at))

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Finish when any does."""
        states, finished = self._fired(state, at)
        return states, any(finished)

    def can_fire(self, *, ends: bool) -> bool:
        """Fire if any can."""
        return any(part.can_fire(ends=ends) for part in self.of)

    def can_finish(self) -> bool:
        """Finish if any can."""
        return any(part.can_finish() for part in self.of)

    def fires_on_time(self) -> bool:
        """Fire on time if any does."""
        return any(part.fires_on_time() for part in self.of)

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"after_any({', '.join(part.describe() for part in self.of)})"


@dataclass(frozen=True)
class AfterAll(_Together):
    """Fires when all of its triggers would."""

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when all do."""
        return all(self._wishes(state, at))

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Finish when all do."""
        states, finished = self._fired(state, at)
        return states, all(finished)

    def timer(self, state: State) -> int | None:
        """Take the latest: before that not all can want to."""
        times = [part.timer(inner) for part, inner in zip(self.of, state, strict=True)]
        return max((time for time in times if time is not None), default=None)

    def event_timer(self, state: State) -> int | None:
        """Take the latest: before that not all can want to."""
        times = [part.event_timer(inner) for part, inner in zip(self.of, state, strict=True)]
        return max((time for time in times if time is not None), default=None)

    def can_fire(self, *, ends: bool) -> bool:
        """Fire if all can."""
        return all(part.can_fire(ends=ends) for part in self.of)

    def can_finish(self) -> bool:
        """Finish if all can."""
        return all(part.can_finish() for part in self.of)

    def fires_on_time(self) -> bool:
        """Fire on time if all do."""
        return all(part.fires_on_time() for part in self.of)

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"after_all({', '.join(part.describe() for part in self.of)})"


@dataclass(frozen=True)
class OrFinally(_Together):
    """Fires as the first of two does, until the second fires, with which it finishes."""

    def should_fire(self, state: State, at: Moment) -> bool:
        """Fire when either does."""
        return any(self._wishes(state, at))

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:
        """Finish with the second, or when the first finishes."""
        last = self._wishes(state, at)[1]
        states, finished = self._fired(state, at)
        return states, last or finished[0]

    def can_fire(self, *, ends: bool) -> bool:
        """Fire if either can."""
        return any(part.can_fire(ends=ends) for part in self.of)

    def can_finish(self) -> bool:
        """Finish with the second."""
        return self.of[0].can_finish() or self.of[1].can_fire(ends=True)

    def fires_on_time(self) -> bool:
        """Fire on time if either does."""
        return any(part.fires_on_time() for part in self.of)

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return f"or_finally({self.of[0].describe()}, {self.of[1].describe()})"


@dataclass(frozen=True)
class Never(Trigger):
    """Does not fire; the window gives its one result when it expires."""

    def should_fire(self, state: State, at: Moment) -> bool:  # noqa: ARG002
        """Do not fire."""
        return False

    def on_fire(self, state: State, at: Moment) -> tuple[State, bool]:  # noqa: ARG002
        """Change nothing."""
        return state, False

    def can_fire(self, *, ends: bool) -> bool:  # noqa: ARG002
        """Do not fire."""
        return False

    def can_finish(self) -> bool:
        """Do not finish."""
        return False

    def describe(self) -> str:
        """Write the trigger as a user writes it."""
        return "never()"


def _plain(part: Trigger) -> Trigger:
    return part.of if isinstance(part, Repeatedly) and part.describe() != "default" else part
