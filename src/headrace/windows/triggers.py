"""Triggers: when a window fires.

A window gathers rows; a trigger decides when its result is worth a pane. A trigger is a frozen description. What it has
seen of one window is a small JSON value, and all of its moves are pure: old state in, new state out. The window
operator asks `should_fire` only when something happened to the window: rows arrived, the watermark passed its end, or
the processing time that `timer` named has come, which needs no new row.

Rows arrive in batches, so a window fires **at most once per batch and reason** (rows, watermark, processing time).
`after_count(3)` therefore means "as soon as there are three or more": a batch that brings seven gives one pane of
seven.

A trigger may *finish*: it will not fire again, the window is closed, and rows that still come for it are late. Wrap
it in `repeatedly` to start over instead. `after_watermark(early=..., late=...)` repeats its two parts by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.time.duration import micros, text
from headrace.windows.firing import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterProcessingTime,
    AfterWatermark,
    Moment,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
)
from headrace.windows.time_triggers import AfterEnd, EveryInterval

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = [
    "Moment",
    "Trigger",
    "after_all",
    "after_any",
    "after_count",
    "after_each",
    "after_end",
    "after_processing_time",
    "after_watermark",
    "check_trigger",
    "default",
    "every_interval",
    "never",
    "or_finally",
    "repeatedly",
]


def default() -> Trigger:
    """Fire when the watermark passes the end of the window, and again with every batch of rows after that.

    >>> default().describe()
    'default'
    """
    return Repeatedly(AfterWatermark())


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> Trigger:
    """Fire when the watermark passes the end of the window.

    Args:
        early: Fires before that, again and again.
        late: Fires after that for rows that still come, again and again. Without it the trigger finishes on time, and
            rows that still come are late.

    >>> after_watermark(early=after_processing_time("10s"), late=after_count(1)).describe()
    'after_watermark(early=after_processing_time(10s), late=after_count(1))'
    """
    return AfterWatermark(_repeated(early), _repeated(late))


def after_processing_time(delay: str | timedelta | int = 0, *, every: str | timedelta | int | None = None) -> Trigger:
    """Fire some time after the first row since the last firing, by the clock; needs no new row for it.

    Args:
        delay: How long after the first row.
        every: Wait further, to the next whole multiple of this time, so that all windows fire together.

    >>> after_processing_time(every="1min").describe()
    'after_processing_time(every=1min)'
    """
    length = micros(delay, what="the delay of after_processing_time")
    step = None if every is None else micros(every, what="every")
    if length < 0 or (step is not None and step <= 0):
        raise PlanError(f"after_processing_time({delay!r}, every={every!r})", hint="Give times above zero.")
    return AfterProcessingTime(length, step)


def every_interval(length: str | timedelta | int) -> Trigger:
    """Fire at every interval of event time inside the window, at its end, and for rows that still come.

    Intervals are whole multiples of their length since the epoch. The first pane comes when the watermark passes the
    end of the interval that the window's first row lies in; then one per interval, also without new rows. Where the
    watermark passes several intervals in one step there is one pane.

    Args:
        length: How long an interval is.

    >>> every_interval("10s").describe()
    'every_interval(10s)'
    """
    step = micros(length, what="the length of every_interval")
    if step <= 0:
        raise PlanError(f"every_interval({length!r})", hint="Give a time above zero.")
    return EveryInterval(step)


def after_end(delay: str | timedelta | int) -> Trigger:
    """Fire when the watermark has passed the end of the window by a delay, once.

    The window must be kept for so long: `allowed_lateness` is the delay or more. Rows that come in the meantime are in
    the one pane, whose timing is "late".

    Args:
        delay: How long after the end.

    >>> after_end("5s").describe()
    'after_end(5s)'
    """
    length = micros(delay, what="the delay of after_end")
    if length < 0:
        raise PlanError(f"after_end({delay!r})", hint="Give zero or more.")
    return AfterEnd(length)


def after_count(n: int) -> Trigger:
    """Fire when there are `n` or more rows.

    >>> after_count(100).describe()
    'after_count(100)'
    """
    if n < 1:
        raise PlanError(f"after_count({n})", hint="Give a number of 1 or more.")
    return AfterCount(n)


def repeatedly(of: Trigger) -> Trigger:
    """Start a trigger over whenever it finishes.

    >>> repeatedly(after_count(2)).describe()
    'repeatedly(after_count(2))'
    """
    return Repeatedly(of)


def after_each(*of: Trigger) -> Trigger:
    """Run triggers one after the other.

    >>> after_each(after_count(1), after_count(10)).describe()
    'after_each(after_count(1), after_count(10))'
    """
    return AfterEach(_some(of, "after_each"))


def after_any(*of: Trigger) -> Trigger:
    """Fire when any of the triggers does.

    >>> after_any(after_count(10), after_watermark()).describe()
    'after_any(after_count(10), after_watermark())'
    """
    return AfterAny(_some(of, "after_any"))


def after_all(*of: Trigger) -> Trigger:
    """Fire when all of the triggers would.

    >>> after_all(after_count(10), after_watermark()).describe()
    'after_all(after_count(10), after_watermark())'
    """
    return AfterAll(_some(of, "after_all"))


def or_finally(main: Trigger, until: Trigger) -> Trigger:
    """Fire as `main` does, until `until` fires for the last time.

    >>> or_finally(repeatedly(after_count(5)), after_watermark()).describe()
    'or_finally(repeatedly(after_count(5)), after_watermark())'
    """
    return OrFinally((main, until))


def never() -> Trigger:
    """Do not fire before the window expires.

    >>> never().describe()
    'never()'
    """
    return Never()


def check_trigger(trigger: Trigger, *, ends: bool = True, closes: bool = True, lateness: int | None = None) -> None:
    """Refuse a trigger that, or a part of which, never fires.

    Args:
        trigger: The trigger of a window step.
        ends: Whether the windows end.
        closes: Whether a window gives what is left when it expires.
        lateness: How long after its end a window is kept, if that is to be checked as well.

    >>> check_trigger(after_all(after_count(1), never()))
    Traceback (most recent call last):
    ...
    headrace.errors.PlanError: trigger after_all(after_count(1), never()) never fires: never() does not. ...
    """
    if isinstance(trigger, Never) and ends and closes:
        return
    needed = trigger.needs_lateness()
    if lateness is not None and ends and needed > lateness:
        raise PlanError(
            f"trigger {trigger.describe()} with an allowed lateness of {text(lateness)}: the window is gone before it "
            "fires",
            hint=f"Give allowed_lateness={text(needed)!r} or more.",
        )
    if not trigger.can_fire(ends=ends):
        blame = next((part for part in _leaves(trigger) if not part.can_fire(ends=ends)), trigger)
        if not ends and isinstance(blame, AfterWatermark):
            hint = "A global window has no end to wait for; use after_count or after_processing_time."
        else:
            hint = "Leave it out, or use after_watermark()."
        raise PlanError(f"trigger {trigger.describe()} never fires: {blame.describe()} does not", hint=hint)
    for part in _all(trigger):
        if isinstance(part, AfterEach):
            for number, before in enumerate(part.of[:-1]):
                if not before.can_finish():
                    raise PlanError(
                        f"in {part.describe()}, {part.of[number + 1].describe()} never gets its turn: "
                        f"{before.describe()} does not finish",
                        hint="Take away its repeatedly, or end it with or_finally.",
                    )
        if part is not trigger and not part.can_fire(ends=ends):
            raise PlanError(
                f"in {trigger.describe()}, {part.describe()} never fires", hint="Leave that part of the trigger out."
            )


def _leaves(trigger: Trigger) -> list[Trigger]:
    return [part for part in _all(trigger) if not part.parts()]


def _all(trigger: Trigger) -> list[Trigger]:
    return [trigger, *(inner for part in trigger.parts() for inner in _all(part))]


def _repeated(part: Trigger | None) -> Trigger | None:
    return part if part is None or isinstance(part, Repeatedly) else Repeatedly(part)


def _some(of: tuple[Trigger, ...], what: str) -> tuple[Trigger, ...]:
    if not of:
        raise PlanError(f"{what}() has no triggers", hint="Give one or more.")
    return of
