"""The quick window operator: aligned windows that fire once, when the watermark passes their end.

A sliding window of 30 s every 5 s covers six slices of 5 s. Each row is folded into one slice, whatever the number of
windows that hold it; a window is the merge of its slices. `headrace.windows.slices` keeps them, so that a batch pays
for its own rows and not for the keys that were there before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine import Outcome
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
from headrace.engine.resplit import resplit_frames
from headrace.windows.fold import Fold
from headrace.windows.migration import only_aggregates_come_or_go, part_names, same_slices
from headrace.windows.slices import Slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.engine import MemorySegments, Segments, Turn
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Aligned

#: A user's column cannot start with "#".
SLICE = "#slice"
_UTC = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class SlicedOperator:
    """Tumbling and sliding windows that fire once.

    Args:
        keys: The key columns.
        assigner: The windows.
        aggregates: The result columns.
        step: Name of the step, for messages.
    """

    keys: tuple[str, ...]
    assigner: Aligned
    aggregates: tuple[tuple[str, Aggregate], ...]
    step: str = "window"
    fold: Fold = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fold", Fold(self.keys, self.aggregates))

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Fold the rows that are not late into slices; those that are, or that have no time, stay as they are."""
        if watermark is None or rows.height == 0:
            return rows, None
        sliced = self._with_slice(rows)
        kept = self._is_late(watermark).fill_null(value=True)
        return sliced.filter(kept).drop(SLICE), self.fold.partials_of(self.step, sliced.filter(~kept), [SLICE])

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Fold the rows in, then fire the windows that the watermark has passed."""
        slices = Slices(state, self.assigner, partial(self._merged, rows=turn.rows))
        index = slices.index
        late = dismissed = None
        if turn.rows.height:
            sliced = self._with_slice(turn.rows)
            is_late = self._is_late(index.watermark)
            late = self._late_rows(sliced.filter(is_late), index.watermark)
            self._store(slices, self.fold.partials_of(self.step, sliced.filter(~is_late), [SLICE]))
            if turn.rows.get_column(EVENT_TIME).null_count():
                timeless = turn.rows.filter(pl.col(EVENT_TIME).is_null())
                dismissed = timeless.with_columns(pl.lit("event_time is null").alias("reason"))
        if turn.partials is not None:
            self._store(slices, turn.partials)
        results = self._fire(slices, turn.watermark)
        index.watermark = max(index.watermark, turn.watermark)
        slices.forget()
        slices.save()
        late = late if late is not None and late.height else None
        return Outcome(rows=results, late=late, dismissed=dismissed, keys=index.least_keys())

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """Tell which columns of the rows are read; None where it may be all."""
        read = self.fold.reads()
        return None if read is None else ({EVENT_TIME} | read) & set(rows)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the results by firing an empty window."""
        return single_pane(self.fold.results(self.fold.partials(rows.to_frame())), start=0, end=1).schema

    def fingerprint(self) -> dict[str, str]:
        """Name the keys, windows and aggregates that the saved slices depend on."""
        aggregates = {f"aggregate {name}": aggregate.describe() for name, aggregate in self.aggregates}
        return {"keys": ",".join(self.keys), "window": self.assigner.describe(), **aggregates}

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        """Read slices from before aggregates were added or taken out, or windows of the same slices had another size.

        A longer window then holds the slices that are still there.
        """
        if "trigger" in fingerprint or "operator" in fingerprint:
            return False  # what the general operator keeps are windows, and no slices
        mine = self.fingerprint()
        if not only_aggregates_come_or_go(fingerprint, mine, besides=["window"]):
            return False
        if not same_slices(fingerprint.get("window", ""), self.assigner):
            return False
        slices = Slices(state, self.assigner, self._merged)
        slices.rewrite([*self.keys, *part_names(self.aggregates)])
        slices.save()
        return True

    def open_windows(self, state: Segments) -> tuple[int, pl.DataFrame | None]:
        """Take all slices out of the state, as the windows that have not fired yet.

        Returns:
            The watermark, and the partials of each window with its bounds; None where there are none.
        """
        slices = Slices(state, self.assigner, self._merged)
        watermark, found = slices.index.watermark, []
        for end, held in self._open(slices):
            start, stop = pl.lit(end - self.assigner.size), pl.lit(end)
            found.append(
                held.with_columns(start.cast(pl.Int64).alias(WINDOW_START), stop.cast(pl.Int64).alias(WINDOW_END))
            )
        slices.clear()
        return watermark, pl.concat(found, how="diagonal_relaxed") if found else None

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the open windows with what they would give now."""
        slices = Slices(state, self.assigner, self._merged)
        found = [
            single_pane(Fold(self.keys, self.aggregates).results(held), start=end - self.assigner.size, end=end)
            for end, held in self._open(slices)
        ]
        shown = [*self.keys, WINDOW_START, WINDOW_END, *(name for name, _ in self.aggregates)]
        return {"windows": pl.concat(found, how="diagonal_relaxed").select(shown)} if found else {}

    def _open(self, slices: Slices) -> Iterator[tuple[int, pl.DataFrame]]:
        """Give the windows that hold a slice and have not fired: their ends, and their partials."""
        last = max((slices.last_end(start) for start in slices.index.slices), default=slices.index.watermark)
        for end in self._ends(slices, last):
            held = slices.window(end)
            if held is not None:
                yield end, held

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the slices over other key groups; blocks of them are made anew when a window needs them."""
        before = [Slices(state, self.assigner, self._merged) for state in old]
        after = [Slices(state, self.assigner, self._merged) for state in new]
        for start in sorted({start for slices in before for start in slices.index.slices}):
            held = [chunk for slices in before for chunk in slices.chunks_of(start)]
            for slices, mine in zip(after, resplit_frames(held, self.keys, len(new)), strict=True):
                if mine is not None:
                    slices.add(start, mine)
        for slices in after:
            slices.index.watermark = min(each.index.watermark for each in before)
            slices.save()

    def _with_slice(self, rows: pl.DataFrame) -> pl.DataFrame:
        width, offset = self.assigner.slice, self.assigner.offset
        time = pl.col(EVENT_TIME).to_physical()
        return rows.with_columns((time - (time - offset) % width).alias(SLICE))

    def _last_end(self) -> pl.Expr:
        """When the last window that holds a slice ends."""
        size, every, offset = self.assigner.size, self.assigner.every, self.assigner.offset
        start = pl.col(SLICE)
        return start - (start - offset) % every + size

    def _is_late(self, watermark: int) -> pl.Expr:
        return self._last_end() <= watermark

    def _merged(self, partials: list[pl.DataFrame], rows: pl.DataFrame | None = None) -> pl.DataFrame:
        together = pl.concat(partials, how="diagonal_relaxed")
        missing = [name for name in part_names(self.aggregates) if name not in together.columns]
        if missing and rows is not None:
            # All of it was kept before an aggregate was added.
            kinds = self.fold.partials(rows.head(0)).schema
            together = together.with_columns([pl.lit(None, dtype=kinds[name]).alias(name) for name in missing])
        return self.fold.merged(together, compact=True)

    def _store(self, slices: Slices, fresh: pl.DataFrame) -> None:
        for (start,), chunk in fresh.partition_by(SLICE, as_dict=True, maintain_order=True).items():
            slices.add(int(start), chunk.drop(SLICE))

    def _fire(self, slices: Slices, watermark: int) -> pl.DataFrame | None:
        fired = []
        for end in self._ends(slices, watermark):
            held = slices.window(end)
            if held is not None:
                fired.append(single_pane(self.fold.results(held), start=end - self.assigner.size, end=end))
        return pl.concat(fired) if fired else None

    def _ends(self, slices: Slices, watermark: int) -> list[int]:
        """The ends in (watermark before, watermark] of windows that hold a slice; a gap costs nothing."""
        size, every, offset = self.assigner.size, self.assigner.every, self.assigner.offset
        before = slices.index.watermark
        ends: list[int] = []
        for start in sorted(slices.index.slices):
            low = max(start, before, ends[-1] if ends else start)
            first = low + every - (low - offset - size) % every
            ends.extend(range(first, min(slices.last_end(start), watermark) + 1, every))
        return ends

    def _late_rows(self, late: pl.DataFrame, watermark: int) -> pl.DataFrame:
        size = self.assigner.size
        mark = pl.lit(watermark, dtype=pl.Int64)
        return late.with_columns(
            (self._last_end() - size).cast(_UTC).alias(WINDOW_START),
            self._last_end().cast(_UTC).alias(WINDOW_END),
            (mark - self._last_end()).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(_UTC).alias("watermark"),
        ).drop(SLICE)


def single_pane(results: pl.DataFrame, *, start: int, end: int) -> pl.DataFrame:
    """Mark results as the one and only firing of the window [start, end)."""
    return results.with_columns(
        pl.lit(end - 1, dtype=pl.Int64).cast(_UTC).alias(EVENT_TIME),
        pl.lit(start, dtype=pl.Int64).cast(_UTC).alias(WINDOW_START),
        pl.lit(end, dtype=pl.Int64).cast(_UTC).alias(WINDOW_END),
        *only_pane(),
    )


def only_pane() -> list[pl.Expr]:
    """Give the columns that say that a window fires this once."""
    return [
        pl.lit(0, dtype=pl.Int64).alias(PANE_INDEX),
        pl.lit("on_time").alias(PANE_TIMING),
        pl.lit(value=True).alias(PANE_IS_LAST),
        pl.lit("value").alias(PANE_MODE),
        pl.lit(value=False).alias(IS_RETRACTION),
    ]
