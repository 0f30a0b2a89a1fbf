"""Scripts: events, watermark, processing time and restarts, step by step, and the panes that must come out.

A `Harness` runs one window operator on one key group. Each of its moves is one turn and gives what that turn gave, so
a test reads like the story it tells; `restart` writes all state to bytes and goes on from those. `run_script` does
the same from plain data, for tables of cases:

    run_script(operator, [
        {"events": [{"event_time": 1, "k": "a"}]},
        {"watermark": 10},
        {"expect": [{"k": "a", "n": 1, "timing": "on_time"}]},
    ])

Times are microseconds. An expected pane is compared by the fields it names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import polars as pl

from headrace.engine import MemorySegments, Turn
from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.time.instants import BEGINNING, INSTANT
from headrace.windows.ledger import CLOSED, Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from headrace.engine import Outcome, Segments
    from headrace.windows import WindowOperator

Pane = dict[str, Any]

_SHORT = {
    EVENT_TIME: "timestamp",
    PANE_INDEX: "index",
    PANE_TIMING: "timing",
    PANE_IS_LAST: "is_last",
    PANE_MODE: "mode",
    IS_RETRACTION: "is_retraction",
}


class Driver(Protocol):
    """What drives a window operator step by step; a `Harness` in process, or a runner that sends batches to a cluster.

    Each move is one batch and returns its panes. A driver that cannot make a move raises `UnsupportedNotationError`,
    and the case that asked for it is unsupported.
    """

    at: int
    now: int
    late: list[dict[str, Any]]
    dismissed: list[dict[str, Any]]

    def events(self, rows: Sequence[Mapping[str, Any]] | pl.DataFrame) -> list[Pane]:
        """Bring rows, as one batch."""
        ...

    def watermark(self, at: int) -> list[Pane]:
        """Move the watermark."""
        ...

    def watermark_without_timers(self, at: int) -> list[Pane]:
        """Move the watermark, but hold back what it makes fire until it moves again."""
        ...

    def processing_time(self, now: int) -> list[Pane]:
        """Move the clock."""
        ...

    def restart(self) -> None:
        """Go on from what is saved."""
        ...

    def open_windows(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the windows in the state: those that still take rows, and those that are closed."""
        ...


class Harness:
    """One window operator on one key group, driven by hand.

    Args:
        operator: The operator.
        schema: Columns of the rows beside `event_time`, needed only where the first move brings no rows.
        now: Processing time at the beginning.

    >>> from headrace.windows import WindowOperator, count, tumbling
    >>> harness = Harness(WindowOperator(("k",), tumbling(10), {"n": count()}))
    >>> harness.events([{"event_time": 1, "k": "a"}])
    []
    >>> [(pane["k"], pane["n"], pane["timing"]) for pane in harness.watermark(10)]
    [('a', 1, 'on_time')]
    """

    def __init__(self, operator: WindowOperator, *, schema: Mapping[str, Any] | None = None, now: int = 0) -> None:
        self.operator = operator
        self.segments = MemorySegments()
        self.at = BEGINNING
        self.now = now
        self.panes: list[Pane] = []
        self.late: list[dict[str, Any]] = []
        self.dismissed: list[dict[str, Any]] = []
        self._schema = {EVENT_TIME: INSTANT, **(schema or {})}
        self._hold = False

    def events(self, rows: Sequence[Mapping[str, Any]] | pl.DataFrame) -> list[Pane]:
        """Bring rows, as one batch; `event_time` in microseconds."""
        frame = rows if isinstance(rows, pl.DataFrame) else event_frame(rows, self._schema)
        if frame.height:
            self._schema = dict(frame.schema)
        return self._turn(frame)

    def watermark(self, at: int) -> list[Pane]:
        """Move the watermark."""
        self.at = max(self.at, at)
        self._hold = False
        return self._turn(None)

    def watermark_without_timers(self, at: int) -> list[Pane]:
        """Move the watermark, but hold back what it makes fire until it moves again."""
        self.at = max(self.at, at)
        self._hold = True
        return self._turn(None)

    def processing_time(self, now: int) -> list[Pane]:
        """Move the clock."""
        self.now = now
        return self._turn(None)

    def restart(self) -> None:
        """Write all state to bytes, and go on from those."""
        self.segments = MemorySegments({name: bytes(value) for name, value in self.segments.content.items()})

    def open_windows(self) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Return the windows in the state: those that still take rows, and those that are closed."""
        return windows_in(self.segments)

    def take(self, turn: Turn, *, event_timers: bool) -> Outcome:
        """Let the operator take a turn; a harness on another engine overrides this."""
        return self.operator.turn(self.segments, turn, event_timers=event_timers)

    def _turn(self, rows: pl.DataFrame | None) -> list[Pane]:
        frame = rows if rows is not None else pl.DataFrame(schema=self._schema)
        outcome = self.take(Turn(frame, self.at, self.now), event_timers=not self._hold)
        panes = [] if outcome.rows is None else [_pane(row) for row in _plain(outcome.rows).to_dicts()]
        self.panes += panes
        if outcome.late is not None:
            self.late += _plain(outcome.late).to_dicts()
        if outcome.dismissed is not None:
            self.dismissed += _plain(outcome.dismissed).to_dicts()
        return panes


def windows_in(segments: Segments) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Return the windows in a state: those that still take rows, and those that are closed."""
    ledger = Ledger.load(segments, ())
    books, _ = ledger.read(ledger.buckets, None)
    if books is None:
        return set(), set()
    bounds = books.select(WINDOW_START, WINDOW_END, CLOSED).rows()
    return {(s, e) for s, e, closed in bounds if not closed}, {(s, e) for s, e, closed in bounds if closed}


class ScriptError(AssertionError):
    """What came out of a script is not what it expects."""


def run_script(
    operator: WindowOperator,
    steps: Iterable[Mapping[str, Any]],
    *,
    make: Callable[[WindowOperator], Driver] = Harness,
) -> Driver:
    """Run steps on an operator; every pane must be expected by the next `expect` step, or at the end.

    Args:
        operator: The operator.
        steps: Each a mapping with one entry: `events`, `watermark`, `processing_time`, `restart` or `expect`.
        make: Makes what drives the operator: in process, unless told.

    Returns:
        The driver, with all late and dismissed rows.
    """
    harness = make(operator)
    waiting: list[Pane] = []
    for step in steps:
        ((kind, what),) = step.items()
        if kind == "events":
            waiting += harness.events(what)
        elif kind == "watermark":
            waiting += harness.watermark(what)
        elif kind == "processing_time":
            waiting += harness.processing_time(what)
        elif kind == "restart":
            harness.restart()
        elif kind == "expect":
            waiting = unmatched(what, waiting)
            if waiting:
                raise ScriptError(f"Unexpected output: {waiting}")
        else:
            raise ScriptError(f"Unknown step: {kind}")
    if waiting:
        raise ScriptError(f"Unexpected output at the end: {waiting}")
    return harness


def unmatched(expected: Sequence[Mapping[str, Any]], panes: Sequence[Pane]) -> list[Pane]:
    """Match expected panes with those that came, by the fields they name; return the panes that nobody expected."""
    left = list(panes)
    for wanted in expected:
        for pane in left:
            if all(pane.get(name) == value for name, value in wanted.items()):
                left.remove(pane)
                break
        else:
            raise ScriptError(f"Unmatched output: {dict(wanted)} is not in {left}")
    return left


def event_frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, Any] | None = None) -> pl.DataFrame:
    """Make rows of a stream from plain records; `event_time` in microseconds.

    >>> dict(event_frame([{"event_time": 1, "k": "a"}]).schema)
    {'event_time': Datetime(time_unit='us', time_zone='UTC'), 'k': String}
    """
    if not rows:
        return pl.DataFrame(schema=dict(schema or {EVENT_TIME: INSTANT}))
    names = list(dict.fromkeys(name for row in rows for name in row))
    known = {name: kind for name, kind in (schema or {}).items() if name in names and name != EVENT_TIME}
    frame = pl.DataFrame(
        {
            name: pl.Series([row.get(name) for row in rows], dtype=pl.Int64 if name == EVENT_TIME else known.get(name))
            for name in names
        }
    )
    return frame.with_columns(pl.col(EVENT_TIME).cast(INSTANT))


def _plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.selectors.datetime().cast(pl.Int64), pl.selectors.duration().cast(pl.Int64))


def _pane(row: dict[str, Any]) -> Pane:
    pane = {_SHORT.get(name, name): value for name, value in row.items()}
    pane["window"] = [pane.pop(WINDOW_START), pane.pop(WINDOW_END)]
    return pane
