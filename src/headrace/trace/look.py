"""One turn of one step, as far as it is about a key: what a step's explanation is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    ORIGINAL,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.savepoints.contents import is_key
from headrace.time.duration import text as duration_text
from headrace.time.instants import BEGINNING, instant
from headrace.trace.story import ALWAYS, Event, time_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from headrace.engine.operator import Outcome
    from headrace.stream.stages import Stage
    from headrace.time.watermarks import PartitionReport
    from headrace.trace.events import Events

#: So many partitions are named in a sentence.
_NAMED = 5
_PANE = (WINDOW_START, WINDOW_END, PANE_INDEX, PANE_TIMING, PANE_IS_LAST, PANE_MODE, IS_RETRACTION)


@dataclass(frozen=True)
class Standing:
    """How far the time of a step has come.

    Args:
        watermark: Its watermark.
        partitions: Where each source partition stands.
        now: Processing time.
    """

    watermark: int = BEGINNING
    partitions: tuple[PartitionReport, ...] = ()
    now: int = BEGINNING

    @property
    def holder(self) -> PartitionReport | None:
        """The partition that the watermark goes by: the slowest that is not idle."""
        active = [each for each in self.partitions if not each.idle]
        return min(active, key=lambda each: each.watermark, default=None)

    @property
    def text(self) -> str:
        """Say where the watermark stands, and who holds it back."""
        return self.told("stands")

    def told(self, verb: str) -> str:
        """Say where the watermark stands or stood, and who holds it back."""
        stands = f"the watermark {verb} at {time_text(self.watermark)}"
        held, idle = self.holder, [each for each in self.partitions if each.idle]
        if held is None:
            return f"{stands}; all partitions are idle" if idle else stands
        if held.newest is None and held.rows == 0 and held.watermark <= BEGINNING:
            silent = [each.partition for each in self.partitions if not each.idle and each.watermark == held.watermark]
            names = ", ".join(silent) if len(silent) <= _NAMED else f"{', '.join(silent[:_NAMED])} and others"
            return f"{stands}, held back by {names}, which {'has' if len(silent) == 1 else 'have'} brought no event yet"
        if held.behind > 0:
            newest = "" if held.newest is None else f", whose newest event is of {time_text(held.newest)}"
            furthest = f", {duration_text(held.behind)} behind the furthest partition"
            return f"{stands}, held back by {held.partition}{newest}{furthest}"
        newest = "" if held.newest is None else f"; the newest event is of {time_text(held.newest)}"
        return stands + newest + (f"; idle: {', '.join(each.partition for each in idle)}" if idle else "")


@dataclass(frozen=True)
class Look:
    """One turn of one step.

    Args:
        stage: The step.
        key: The values of the key.
        batch: The number of the batch.
        rows: The rows of the key that came, with the numbers of their events; None for none.
        before: What was kept of the key before; empty where nothing came.
        after: What is kept of it now.
        content: The segments before.
        outcome: What the operator gave.
        was: How far time had come before.
        stands: How far it has come now.
        events: All events, by number.
        by_time: The events of the key that came to the step so far, by time: rows that wait lose their numbers.
    """

    stage: Stage
    key: tuple[Any, ...]
    batch: int
    rows: pl.DataFrame | None
    before: dict[str, pl.DataFrame]
    after: dict[str, pl.DataFrame]
    content: dict[str, bytes]
    outcome: Outcome
    was: Standing
    stands: Standing
    events: Events = field(repr=False)
    by_time: Mapping[int, Event] = field(default_factory=dict, repr=False)

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns."""
        return next((each.keys for each in self.stage.inputs if len(each.keys) == len(self.key)), ())

    def of_key(self, rows: pl.DataFrame | None) -> pl.DataFrame | None:
        """Choose the rows of the key; None for none."""
        keys = self.keys
        if rows is None or len(keys) != len(self.key) or any(key not in rows.columns for key in keys):
            return None
        mine = rows.filter(is_key(keys, self.key))
        return mine if mine.height else None

    def results(self) -> pl.DataFrame | None:
        """Give the results of the key; None for none."""
        found = self.of_key(self.outcome.rows)
        return None if found is None else found.drop(ORIGINAL, strict=False)

    def numbers(self, rows: pl.DataFrame | None) -> set[bytes]:
        """Give the numbers of the events that rows are of."""
        if rows is None or ORIGINAL not in rows.columns:
            return set()
        return set(rows.get_column(ORIGINAL).drop_nulls())

    def came(self) -> Iterator[tuple[Event | None, dict[str, Any]]]:
        """Give the rows of the key that came, with their events; a row of a step before has none."""
        for row in [] if self.rows is None else self.rows.to_dicts():
            yield self.event(row), row

    def event(self, row: dict[str, Any]) -> Event | None:
        """Take the event of a row out of it."""
        number = row.pop(ORIGINAL, None)
        return self.by_time.get(self.time(row)) if number is None else self.events[int(number)]

    def name(self, event: Event | None, row: dict[str, Any]) -> str:
        """Name a row that came."""
        if event is not None:
            return event.text
        return f"the row of {time_text(self.time(row))} ({self.shown(row)})"

    def time(self, row: dict[str, Any]) -> int:
        """Give the event time of a row."""
        time = row.get(EVENT_TIME)
        return BEGINNING if time is None else instant(time)

    def shown(self, row: dict[str, Any]) -> str:
        """Show the values of a row, without its key and pane."""
        hidden = {*self.keys, *_PANE, EVENT_TIME, "key_group"}
        return ", ".join(f"{name} = {value}" for name, value in row.items() if name not in hidden) or "without values"

    def span(self, row: dict[str, Any]) -> tuple[int, int]:
        """Tell the stretch of event time that a result is about."""
        start, end = row.get(WINDOW_START), row.get(WINDOW_END)
        if end is not None:
            return (BEGINNING if start is None else instant(start), instant(end) - 1)
        time = self.time(row)
        return (time, time) if time > BEGINNING else ALWAYS


def window_text(row: dict[str, Any]) -> str:
    """Name the window of a row."""
    start, end = row.get(WINDOW_START), row.get(WINDOW_END)
    if end is None:
        return "the window without an end"
    return f"the window [{'...' if start is None else time_text(instant(start))}, {time_text(instant(end))})"
