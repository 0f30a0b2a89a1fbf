"""Windows that the rows themselves end: a number of rows, a change of a value, a mark.

Such a window has no end on the clock; it lasts until its key brings the row that ends it. So the order of the rows of
a key matters, and rows come out of order. By default rows wait until the watermark has passed them and are then taken
in the order of event time: the result does not depend on how the stream was cut into batches, and a row behind the
watermark is late. With `order="arrival"` they are taken as they come.

A window fires once, when it is complete; its start is the time of its first row, its end just after its last. When a
source ends, what is still open fires too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
import polars as pl

from headrace.engine.contents import instants, tables_in
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import (
    EVENT_TIME,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
    Outcome,
)
from headrace.engine.resplit import resplit_frames, resplit_table
from headrace.engine.row_pages import Layouts
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.errors import PlanError
from headrace.time.instants import BEGINNING, END, INSTANT
from headrace.windows.assigners import Assigner
from headrace.windows.intake import REASON, Intake
from headrace.windows.ledger import ROWS
from headrace.windows.panes import PANE_COLUMNS, pane_rows

if TYPE_CHECKING:
    import collections.abc
    from collections.abc import Mapping

    from headrace.engine import MemorySegments, Segments, Turn
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.operator import OnError

Order = Literal["event_time", "arrival"]

_OPEN = "open"
_BOUNDS = (WINDOW_START, WINDOW_END)
_WINDOW, _DONE, _SIZE, _ANCHOR = "#window", "#done", "#size", "#anchor"


@dataclass(frozen=True)
class Sequence(Assigner):
    """What windows of this kind share."""

    order: Order = field(default="event_time", kw_only=True)

    def number(self, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Number the windows of each key: add `#window` (0 is the open one) and `#done` (complete with this row).

        Args:
            rows: In order, with `#size` and `#anchor` of the open window of their key, null where there is none.
            keys: The key columns.
        """
        raise NotImplementedError

    def anchor(self) -> pl.Expr:
        """Give what must be kept of a window's first row."""
        return pl.lit(None, dtype=pl.Float64)

    def columns(self) -> list[str]:
        """Name the columns that are read."""
        return []

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:  # noqa: ARG002
        """Refuse: these windows depend on the rows before."""
        raise PlanError(
            f"{self.describe()} needs the rows before to place a row", hint="Run it with a SequenceOperator."
        )


@dataclass(frozen=True)
class CountWindow(Sequence):
    """Windows of `n` rows of a key."""

    n: int

    def number(self, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Count the rows of each key."""
        place = pl.col(_SIZE).fill_null(0) + _per_key(pl.int_range(pl.len(), dtype=pl.Int64), keys)
        return rows.with_columns((place // self.n).alias(_WINDOW), ((place + 1) % self.n == 0).alias(_DONE))

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        return f"count_window({self.n})"


@dataclass(frozen=True)
class Punctuation(Sequence):
    """Windows that end with a marked row."""

    mark: pl.Expr = field(compare=False)

    def number(self, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Start another window after each mark."""
        mark = self.mark.cast(pl.Boolean).fill_null(value=False)
        before = _per_key(mark.cast(pl.Int64).cum_sum() - mark.cast(pl.Int64), keys)
        return rows.with_columns(before.alias(_WINDOW), mark.alias(_DONE))

    def columns(self) -> list[str]:
        """Name the columns of the mark."""
        return self.mark.meta.root_names()

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        return f"punctuation({self.mark})"


@dataclass(frozen=True)
class Delta(Sequence):
    """Windows that end before a value is more than `threshold` away from that of their first row."""

    of: str
    threshold: float

    def number(self, rows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
        """Compare each value with that of the window's first row, row by row: each window depends on the one before."""
        ids = rows.select(pl.struct(keys).rank("dense").alias("id")).to_series() if keys else None
        group = np.zeros(rows.height, dtype=np.int64) if ids is None else ids.to_numpy()
        values = rows.get_column(self.of).cast(pl.Float64).to_numpy()
        anchors = rows.get_column(_ANCHOR).cast(pl.Float64).to_numpy()
        sizes = rows.get_column(_SIZE).fill_null(0).to_numpy()
        numbers = np.zeros(rows.height, dtype=np.int64)
        window, anchor, last = 0, np.nan, None
        for place in range(rows.height):
            if group[place] != last:
                last, window = group[place], 0
                anchor = anchors[place] if sizes[place] else np.nan
            value = values[place]
            # Neither null nor NaN is a change; the first value that is there becomes the anchor.
            if not np.isnan(value):
                if np.isnan(anchor):
                    anchor = value
                elif abs(value - anchor) > self.threshold:
                    window, anchor = window + 1, value
            numbers[place] = window
        numbered = rows.with_columns(pl.Series(_WINDOW, numbers))
        return numbered.with_columns(pl.lit(value=False).alias(_DONE))

    def anchor(self) -> pl.Expr:
        """Keep the first value."""
        values = pl.col(self.of).cast(pl.Float64)
        return values.filter(values.is_not_null() & values.is_not_nan()).first()

    def columns(self) -> list[str]:
        """Name the column that is compared."""
        return [self.of]

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        return f"delta({self.of}, {self.threshold})"


@dataclass(frozen=True)
class SequenceOperator:
    """Windows that rows end, on one key group.

    Args:
        keys: The key columns; none means that all rows belong together.
        assigner: The windows.
        aggregates: The result columns, by name.
        retractions: Refused: a row that takes back cannot be ordered among the others.
        on_error: What happens to rows for which a user's aggregate raises.
        step: Name of the step, for messages.

    >>> from headrace.engine import MemorySegments, Turn
    >>> from headrace.windows import sum
    >>> operator = SequenceOperator((), count_window(2), {"total": sum("v")})
    >>> rows = pl.DataFrame({"event_time": pl.Series([3, 1, 2]).cast(INSTANT), "v": [30, 10, 20]})
    >>> operator.turn(MemorySegments(), Turn(rows, watermark=10, now=0)).rows.get_column("total").to_list()
    [30]
    """

    keys: tuple[str, ...]
    assigner: Sequence
    aggregates: Mapping[str, Aggregate]
    retractions: bool = False
    on_error: OnError = "raise"
    step: str = "window"
    intake: Intake = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.retractions:
            raise PlanError(
                f"step {self.step!r} orders rows by time, but the step before revises its results",
                hint="Let the step before fire once, or use windows by time.",
            )
        if not self.aggregates:
            raise PlanError(f"step {self.step!r} has no aggregates", hint="Give at least one, such as n=count().")
        for name in self.aggregates:
            if name in {*self.keys, *PANE_COLUMNS} or name.startswith("#"):
                hint = "Give it another."
                raise PlanError(f"step {self.step!r} has a result {name!r}, a name that is taken", hint=hint)
        intake = Intake(self.step, tuple(self.keys), self.assigner, tuple(self.aggregates.items()), timed=False)
        object.__setattr__(self, "intake", intake)

    def prepare(
        self,
        rows: pl.DataFrame,
        watermark: int | None,  # noqa: ARG002 - the order of rows cannot be folded away
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Leave the rows as they are."""
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the results, given those of the rows."""
        empty = rows.to_frame().with_columns(pl.lit(0, dtype=pl.Int64).alias(_WINDOW))
        return self._panes(self._fold(empty, dismissed=[])).schema

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved windows depend on."""
        parts = {f"aggregate {name}": aggregate.describe() for name, aggregate in self.aggregates.items()}
        return {"keys": ",".join(self.keys), "window": self.assigner.describe(), **parts}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Let rows wait for the watermark, take those it has passed in order, and give the windows they complete."""
        kept, open_windows = self._index(state)
        watermark = max(kept, turn.watermark)
        dismissed: list[pl.DataFrame] = []
        late, waiting = self._sorted_out(turn.rows, kept, dismissed)
        buffered = state.get("waiting")
        if buffered is not None:
            waiting = pl.concat([frame_from_bytes(buffered), waiting], how="diagonal_relaxed")
        ready_now = (
            pl.lit(value=True) if self.assigner.order == "arrival" else pl.col(EVENT_TIME).cast(pl.Int64) < watermark
        )
        ready, waiting = waiting.filter(ready_now), waiting.filter(~ready_now)
        _keep(state, "waiting", waiting)
        results = self._taken(state, open_windows, ready, dismissed, ended=watermark >= END)
        state.put("index", record_to_bytes({"watermark": watermark, _OPEN: open_windows.record()}))
        return Outcome(
            rows=results,
            late=late if late.height else None,
            dismissed=pl.concat(dismissed, how="diagonal_relaxed") if dismissed else None,
            keys=open_windows.rows,
        )

    def resplit(self, old: collections.abc.Sequence[Segments], new: collections.abc.Sequence[Segments]) -> None:
        """Spread what waits, and the windows that are open, over other key groups."""
        known = [self._index(state) for state in old]
        tables = resplit_table(old, new, _OPEN, self.keys, [index for _, index in known])
        waiting = [frame_from_bytes(value) for state in old if (value := state.get("waiting")) is not None]
        watermark = min(kept for kept, _ in known)
        parts = resplit_frames(waiting, self.keys, len(new))
        for state, index, mine in zip(new, tables, parts, strict=True):
            if mine is not None:
                state.put("waiting", frame_to_bytes(mine))
            state.put("index", record_to_bytes({"watermark": watermark, _OPEN: index.record()}))

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the open windows with what they would give now, and the rows that wait for the watermark."""
        self._index(state)  # which brings an older form into today's
        found = tables_in(state.content)
        shown = {"pending": found["waiting"]} if "waiting" in found else {}
        if _OPEN in found:
            open_windows = found[_OPEN].with_columns(instants(found[_OPEN].get_column(name)) for name in _BOUNDS)
            values = [aggregate.result(name) for name, aggregate in self.aggregates.items()]
            shown["windows"] = open_windows.select(*self.keys, *_BOUNDS, pl.col(ROWS).alias("window_rows"), *values)
        return shown

    def _sorted_out(
        self, rows: pl.DataFrame, kept: int, dismissed: list[pl.DataFrame]
    ) -> tuple[pl.DataFrame, pl.DataFrame]:
        reasons = [pl.when(pl.col(EVENT_TIME).is_null()).then(pl.lit("event_time is null"))]
        reasons += [pl.when(pl.col(key).is_null()).then(pl.lit(f"key column {key!r} is null")) for key in self.keys]
        looked = rows.with_columns(pl.coalesce(reasons).alias(REASON))
        bad = looked.filter(pl.col(REASON).is_not_null())
        if bad.height:
            dismissed.append(bad)
        good = looked.filter(pl.col(REASON).is_null()).drop(REASON)
        time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
        behind = time < kept if self.assigner.order == "event_time" else pl.lit(value=False)
        mark = pl.lit(kept, dtype=pl.Int64)
        late = good.filter(behind).with_columns(
            pl.lit(None, dtype=INSTANT).alias(WINDOW_START),
            pl.lit(None, dtype=INSTANT).alias(WINDOW_END),
            (mark - time).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(INSTANT).alias("watermark"),
        )
        return late, good.filter(~behind)

    def _index(self, state: Segments) -> tuple[int, TableIndex]:
        """Read the watermark of the turn before, and where the open windows are."""
        saved = state.get("index")
        if saved is None:
            return BEGINNING, TableIndex()
        record = record_from_bytes(saved)
        open_windows = TableIndex.of(record.get(_OPEN))
        # The version before kept all of them in one segment.
        whole = None if _OPEN in record else state.get(_OPEN)
        if whole is not None:
            KeyedTable(state, _OPEN, self.keys, Layouts(state), open_windows).put(frame_from_bytes(whole))
            state.delete(_OPEN)
        return record["watermark"], open_windows

    def _taken(
        self,
        state: Segments,
        open_windows: TableIndex,
        ready: pl.DataFrame,
        dismissed: list[pl.DataFrame],
        *,
        ended: bool,
    ) -> pl.DataFrame | None:
        keys = list(self.keys)
        if ready.is_empty() and not (ended and open_windows.rows):
            return None
        layouts = Layouts(state)
        table = KeyedTable(state, _OPEN, keys, layouts, open_windows)
        open_ = table.take(None if ended else hashes_of([ready], keys))
        windows = open_
        if ready.height:
            windows = self._advanced(ready.sort(*keys, EVENT_TIME, maintain_order=True), open_, keys, dismissed)
        if windows is None:
            return None
        complete = windows if ended else windows.filter(pl.col(_DONE))
        table.put(None if ended else windows.filter(~pl.col(_DONE)).drop(_WINDOW, strict=False))
        if open_windows.pages == 0:
            layouts.forget()
        return self._panes(complete.sort(WINDOW_END, maintain_order=True)) if complete.height else None

    def _advanced(
        self, ready: pl.DataFrame, open_: pl.DataFrame | None, keys: list[str], dismissed: list[pl.DataFrame]
    ) -> pl.DataFrame:
        """Put ordered rows into the windows of their keys, and merge those with what was open."""
        known = ready.with_columns(
            pl.lit(None, dtype=pl.Int64).alias(_SIZE), pl.lit(None, dtype=pl.Float64).alias(_ANCHOR)
        )
        if open_ is not None and open_.height:
            carried = open_.select(*keys, pl.col(ROWS).alias(_SIZE), _ANCHOR)
            known = (
                ready.join(carried, on=keys, how="left", maintain_order="left")
                if keys
                else ready.join(carried, how="cross", maintain_order="left")
            )
        fresh = self._fold(self.assigner.number(known, keys).drop(_SIZE, _ANCHOR), dismissed)
        if open_ is None or open_.is_empty():
            return _with_followed(fresh, keys)
        both = pl.concat([open_.with_columns(pl.lit(0, dtype=pl.Int64).alias(_WINDOW)), fresh], how="diagonal_relaxed")
        merges = [expr for name, aggregate in self.aggregates.items() for expr in aggregate.merge(name)]
        merged = both.group_by(*keys, _WINDOW, maintain_order=True).agg(
            *merges,
            pl.col(ROWS).sum(),
            pl.col(WINDOW_START).min(),
            pl.col(WINDOW_END).max(),
            pl.col(_ANCHOR).drop_nulls().first(),
            pl.col(_DONE).any(),
        )
        return _with_followed(merged, keys)

    def _fold(self, numbered: pl.DataFrame, dismissed: list[pl.DataFrame]) -> pl.DataFrame:
        """Fold numbered rows into windows: partials, bounds, what to remember."""
        rows = numbered if _DONE in numbered.columns else numbered.with_columns(pl.lit(value=False).alias(_DONE))
        folded, bad = self.intake.fold_or_dismiss(rows, [_WINDOW], 0, dismiss=self.on_error == "dead_letter")
        if bad is not None:
            dismissed.append(bad.drop(_WINDOW, _DONE, strict=False))
        time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
        bounds = rows.group_by(*self.keys, _WINDOW, maintain_order=True).agg(
            time.min().alias(WINDOW_START),
            (time.max() + 1).alias(WINDOW_END),
            self.assigner.anchor().alias(_ANCHOR),
            pl.col(_DONE).any(),
        )
        return folded.join(bounds, on=[*self.keys, _WINDOW], how="left", maintain_order="left")

    def _panes(self, windows: pl.DataFrame) -> pl.DataFrame:
        results = windows.with_columns(
            *[aggregate.result(name) for name, aggregate in self.aggregates.items()],
            (pl.col(WINDOW_END) - 1).alias(EVENT_TIME),
            pl.lit(0, dtype=pl.Int64).alias(PANE_INDEX),
            pl.lit("on_time").alias(PANE_TIMING),
            pl.lit(value=True).alias(PANE_IS_LAST),
        )
        return pane_rows(results, keys=self.keys, names=list(self.aggregates), mode="value")


def count_window(n: int, *, order: Order = "event_time") -> CountWindow:
    """Make windows of `n` rows of a key.

    >>> count_window(100).describe()
    'count_window(100)'
    """
    if n < 1:
        raise PlanError(f"count_window({n})", hint="Give a number of 1 or more.")
    return CountWindow(n, order=order)


def delta(of: str, threshold: float, *, order: Order = "event_time") -> Delta:
    """Make windows that end when a value has moved by more than `threshold` since their first row.

    Args:
        of: The column; a null or NaN is no move.
        threshold: The row that is further away starts the next window.
        order: How the rows of a key are ordered.

    >>> delta("speed", 5.0).describe()
    'delta(speed, 5.0)'
    """
    if threshold < 0:
        raise PlanError(f"delta({of!r}, {threshold})", hint="Give a threshold of zero or more.")
    return Delta(of, threshold, order=order)


def punctuation(mark: pl.Expr, *, order: Order = "event_time") -> Punctuation:
    """Make windows that end with a row for which `mark` is true.

    >>> punctuation(pl.col("kind") == "DEP").describe()
    'punctuation([(col("kind")) == ("DEP")])'
    """
    return Punctuation(mark, order=order)


def _per_key(expr: pl.Expr, keys: list[str]) -> pl.Expr:
    return expr.over(keys) if keys else expr


def _with_followed(windows: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """Mark windows as complete that another one of their key follows."""
    followed = pl.col(_WINDOW) < _per_key(pl.col(_WINDOW).max(), keys)
    return windows.with_columns((pl.col(_DONE) | followed).alias(_DONE))


def _keep(state: Segments, name: str, frame: pl.DataFrame) -> None:
    if frame.height:
        state.put(name, frame_to_bytes(frame))
    elif state.get(name) is not None:
        state.delete(name)
