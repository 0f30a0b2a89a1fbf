"""Window joins: rows of two streams with equal keys in the same window.

The windows are those of an assigner (tumbling, sliding, cumulative), or the ones that the rows bring along from
aggregates before (`same_window`). A window gives its matches, and its rows without a partner, when the watermark passes
its end. A row whose windows have all closed is late; in those that are open it still joins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.engine.frames import stacked
from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START, Outcome
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.joins.chunks import Chunks, Stretch, resplit_chunks
from headrace.joins.numbers import NUMBERED, number_results
from headrace.joins.sides import LEFT_PLACE, RIGHT_PLACE, JoinColumns, Side, arrived, late_rows, later_by
from headrace.time.instants import BEGINNING, INSTANT
from headrace.windows.assigners import Aligned, Assigner, Cumulative, SameWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import InputTurn, Turn
    from headrace.engine.state import Segments

_INDEX: Final = "index"
_START, _END = "#start", "#end"
_REASON: Final = "all windows of the row have closed"


@dataclass(frozen=True)
class WindowJoin:
    """Joins rows of the same window.

    Args:
        columns: What is compared, and what a joined row has.
        windows: The windows.
        grace: How long after its end a window still takes rows.
    """

    columns: JoinColumns
    windows: Aligned | Cumulative | SameWindow
    grace: int = 0

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Keep the rows that came, then join the windows that the watermark has passed."""
        before, watermark = (later_by(mark, self.grace) for mark in (turn.watermark_before, turn.watermark))
        saved = _load(state)
        late: list[pl.DataFrame] = []
        dismissed: list[pl.DataFrame] = []
        held = []
        for side, each in zip((self.columns.left, self.columns.right), turn.inputs, strict=True):
            chunks = Chunks(state, side.name, saved.get(side.name))
            self._keep(chunks, side, each, before, late, dismissed)
            held.append(chunks)
        left, right = held
        parts = []
        for window in self._closed({*left.stretches, *right.stretches}, before, watermark):
            parts += self._joined(window, left, right)
        results = number_results(parts, saved)
        for name, chunks in zip(("left", "right"), held, strict=True):
            chunks.drop(watermark)
            saved[name] = chunks.record()
        state.put(_INDEX, record_to_bytes(saved))
        return Outcome(
            rows=results,
            late=stacked(late),
            dismissed=stacked(dismissed),
            watermark=watermark,
            keys=left.rows + right.rows,
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row."""
        del rows
        own = self.columns.schema()
        times = {EVENT_TIME: own.pop(EVENT_TIME)}
        return pl.Schema({**own, WINDOW_START: INSTANT, WINDOW_END: INSTANT, **times, **NUMBERED})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        told = {"windows": self.windows.describe(), "grace": str(self.grace)}
        return {"operator": "window join", **self.columns.fingerprint(), **told}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows of open windows over other key groups."""
        known = [_load(state) for state in old]
        sides: dict[str, list[list[Any]]] = {
            side.name: resplit_chunks(old, new, side.name, side.keys, [saved.get(side.name) for saved in known])
            for side in (self.columns.left, self.columns.right)
        }
        following = max(saved["next"] for saved in known)
        for number, state in enumerate(new):
            own = {name: records[number] for name, records in sides.items()}
            state.put(_INDEX, record_to_bytes({**own, "next": following}))

    def _keep(
        self,
        chunks: Chunks,
        side: Side,
        turn: InputTurn,
        before: int,
        late: list[pl.DataFrame],
        dismissed: list[pl.DataFrame],
    ) -> None:
        """Keep the rows of a side by the stretch of time that they share windows with."""
        if turn.rows.is_empty():
            return
        placed = self._placed(turn.rows)
        timeless = placed.filter(pl.any_horizontal(pl.col(EVENT_TIME, _START, _END).is_null()))
        if timeless.height:
            dismissed.append(timeless.drop(_START, _END).with_columns(reason=pl.lit("the row is in no window")))
            placed = placed.filter(pl.all_horizontal(pl.col(EVENT_TIME, _START, _END).is_not_null()))
        behind = placed.filter(pl.col(_END) <= before)
        if behind.height:
            late.append(late_rows(side, behind, before, pl.col(_END), _REASON))
            placed = placed.filter(pl.col(_END) > before)
        for (start, end), rows in placed.partition_by(
            _START, _END, as_dict=True, include_key=False, maintain_order=True
        ).items():
            chunks.add((int(start), int(end)), arrived(side, rows, BEGINNING, reason=_REASON).rows)

    def _placed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Say in which stretch of time each row lies, and when the last window ends that holds it."""
        if isinstance(self.windows, SameWindow):
            return rows.with_columns(
                pl.col(WINDOW_START).to_physical().alias(_START), pl.col(WINDOW_END).to_physical().alias(_END)
            )
        width, offset = self.windows.slice, self.windows.offset
        time = pl.col(EVENT_TIME).to_physical()
        sliced = rows.with_columns((time - (time - offset) % width).alias(_START))
        return sliced.with_columns(self.windows.last_end(pl.col(_START)).alias(_END))

    def _closed(self, stretches: set[Stretch], before: int, watermark: int) -> list[Stretch]:
        """List the windows with rows that the watermark has passed in this turn, in the order of their ends."""
        if isinstance(self.windows, SameWindow):
            found = {stretch for stretch in stretches if before < stretch[1] <= watermark}
        else:
            found = {
                window
                for start, _ in stretches
                for window in self.windows.holding(start)
                if before < window[1] <= watermark
            }
        return sorted(found, key=lambda window: (window[1], window[0]))

    def _joined(self, window: Stretch, left: Chunks, right: Chunks) -> list[pl.DataFrame]:
        spec = self.columns
        lefts, rights = (self._rows(chunks, window) for chunks in (left, right))
        parts: list[pl.DataFrame] = []
        if lefts is None or rights is None:
            if lefts is not None and (spec.pads_left or spec.how == "anti"):
                parts.append(spec.padded_left(lefts))
            if rights is not None and spec.pads_right:
                parts.append(spec.padded_right(rights))
        else:
            pairs = spec.pairs(lefts.with_row_index(LEFT_PLACE), rights.with_row_index(RIGHT_PLACE))
            parts = _given(spec, lefts, rights, pairs)
        start, end = window
        times = (
            pl.lit(end - 1, dtype=pl.Int64).cast(INSTANT).alias(EVENT_TIME),
            pl.lit(start, dtype=pl.Int64).cast(INSTANT).alias(WINDOW_START),
            pl.lit(end, dtype=pl.Int64).cast(INSTANT).alias(WINDOW_END),
        )
        order = [*spec.result, WINDOW_START, WINDOW_END, EVENT_TIME]
        return [part.with_columns(times).select(order) for part in parts if part.height]

    def _rows(self, chunks: Chunks, window: Stretch) -> pl.DataFrame | None:
        if isinstance(self.windows, SameWindow):
            return chunks.of([window])
        start, end = window
        return chunks.of(sorted(each for each in chunks.stretches if start <= each[0] < end))


def _load(state: Segments) -> dict[str, Any]:
    value = state.get(_INDEX)
    return {"next": 0} if value is None else record_from_bytes(value)


def _given(spec: JoinColumns, left: pl.DataFrame, right: pl.DataFrame, pairs: pl.DataFrame) -> list[pl.DataFrame]:
    """Give the results of rows that are all there."""
    parts = [] if spec.left_only else [spec.matched(pairs)]
    if spec.waits_left:
        met = pairs.get_column(LEFT_PLACE).unique()
        chosen = left.with_row_index(LEFT_PLACE).filter(pl.col(LEFT_PLACE).is_in(met.implode()) == (spec.how == "semi"))
        parts.append(spec.padded_left(chosen))
    if spec.pads_right:
        met = pairs.get_column(RIGHT_PLACE).unique()
        chosen = right.with_row_index(RIGHT_PLACE).filter(~pl.col(RIGHT_PLACE).is_in(met.implode()))
        parts.append(spec.padded_right(chosen))
    return parts


def supported(windows: Assigner) -> bool:
    """Tell whether rows can be joined by these windows."""
    return isinstance(windows, Aligned | Cumulative | SameWindow)
