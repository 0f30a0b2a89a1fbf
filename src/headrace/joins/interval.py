"""Interval joins: rows of two streams with equal keys whose times are not too far apart.

A left row at t meets the right rows with times in [t + lower, t + upper], bounds included. A match is given in the turn
in which its second row comes. A row without a partner that an outer (or anti) join gives anyway is given once, when the
watermark says that no partner can come any more: at the latest `upper` (for a right row: minus `lower`) after its time.
A row earlier than the watermark is late: it goes to the late output, and takes part in nothing.

Both sides are kept by time and key (`headrace.joins.time_slices`): a turn reads the keys of its rows in the slices that
the bounds can reach, and a slice is dropped as a whole when its time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from headrace.engine.frames import stacked
from headrace.engine.keyed_state import hashes_of
from headrace.engine.operator import Outcome
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.joins.numbers import NUMBERED, number_results
from headrace.joins.sides import (
    LEFT_PLACE,
    LEFT_TIME,
    RIGHT_PLACE,
    RIGHT_TIME,
    JoinColumns,
    Side,
    arrived,
    later_by,
)
from headrace.joins.time_slices import TimeSlices, resplit_slices
from headrace.time.duration import text as duration_text
from headrace.time.instants import END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import Turn
    from headrace.engine.state import Segments

#: Whether a kept row has had a partner.
MATCHED: Final = "#matched"
_DUE: Final = "#due"
_INDEX: Final = "index"
_STRETCH, _RIGHT_STRETCH = "#stretch", "#right_stretch"
#: With more rows of its key than this for each row, near pairs are looked for by stretches of time.
_MANY_PARTNERS: Final = 4


@dataclass(frozen=True)
class _Held:
    """The rows of one side that a turn looks at: those that were kept first, then those that came.

    Args:
        rows: All of them.
        kept: How many of them were kept before.
    """

    rows: pl.DataFrame
    kept: int

    @property
    def fresh(self) -> pl.DataFrame:
        return self.rows[self.kept :]

    @property
    def old(self) -> pl.DataFrame:
        return self.rows[: self.kept]


@dataclass(frozen=True)
class IntervalJoin:
    """Joins rows whose times are at most so far apart.

    Args:
        columns: What is compared, and what a joined row has.
        lower: The least difference of the right time to the left one, in microseconds.
        upper: The greatest.
        grace: How far the join stays behind the watermark.
    """

    columns: JoinColumns
    lower: int
    upper: int
    grace: int = 0

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Find the matches of the rows that came, then give up on the rows whose time is over."""
        before, watermark = (later_by(mark, self.grace) for mark in (turn.watermark_before, turn.watermark))
        reason = f"earlier than the watermark{f' less the grace of {duration_text(self.grace)}' * bool(self.grace)}"
        spec = self.columns
        came = [
            arrived(side, each.rows, before, reason=reason)
            for side, each in zip((spec.left, spec.right), turn.inputs, strict=True)
        ]
        saved = _load(state)
        left_slices, right_slices = (self._slices(state, side, saved) for side in (spec.left, spec.right))
        parts: list[pl.DataFrame] = []
        left_rows, right_rows = (
            self._joinable(side, each.rows, parts) for side, each in zip((spec.left, spec.right), came, strict=True)
        )
        left = self._held(left_slices, spec.left, left_rows, right_rows, watermark)
        right = self._held(right_slices, spec.right, right_rows, left_rows, watermark)
        pairs = self._pairs(left, right)
        if not spec.left_only:
            parts.insert(0, spec.matched(pairs))
        self._settle(left_slices, spec.left, left, pairs.get_column(LEFT_PLACE), watermark, parts)
        self._settle(right_slices, spec.right, right, pairs.get_column(RIGHT_PLACE), watermark, parts)
        results = number_results(parts, saved)
        state.put(
            _INDEX,
            record_to_bytes({"left": left_slices.record(), "right": right_slices.record(), "next": saved["next"]}),
        )
        return Outcome(
            rows=results,
            late=stacked([each.late for each in came if each.late is not None]),
            dismissed=stacked([each.dismissed for each in came if each.dismissed is not None]),
            watermark=later_by(watermark, self._behind),
            keys=left_slices.rows + right_slices.rows,
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row."""
        del rows
        return pl.Schema({**self.columns.schema(), **NUMBERED})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        bounds = {"lower": str(self.lower), "upper": str(self.upper), "grace": str(self.grace)}
        return {"operator": "interval join", **self.columns.fingerprint(), **bounds}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the kept rows of both sides over other key groups."""
        known = [_load(state) for state in old]
        sides: dict[str, list[list[Any]]] = {
            side.name: resplit_slices(old, new, side.name, side.keys, [saved[side.name] for saved in known])
            for side in (self.columns.left, self.columns.right)
        }
        following = max(saved["next"] for saved in known)
        for number, state in enumerate(new):
            own = {name: records[number] for name, records in sides.items()}
            state.put(_INDEX, record_to_bytes({**own, "next": following}))

    @property
    def _behind(self) -> int:
        """How much earlier than the watermark a result may be.

        A match has the later time of both rows, and the one that came is not earlier than the watermark. A row that is
        given alone has its own time, and is given when its wait is over.
        """
        spec = self.columns
        left = self.upper if spec.waits_left else 0
        right = -self.lower if spec.pads_right else 0
        return max(left, right, 0)

    def _wait(self, side: Side) -> int:
        """Tell how long after its time a row of a side may meet a partner."""
        return self.upper if side.name == "left" else -self.lower

    def _slices(self, state: Segments, side: Side, saved: dict[str, Any]) -> TimeSlices:
        return TimeSlices(state, side.name, side.keys, side.time, max(self.upper - self.lower, 0), saved[side.name])

    def _waits(self, side: Side) -> bool:
        """Whether it matters if a row of a side has had a partner."""
        return self.columns.waits_left if side.name == "left" else self.columns.pads_right

    def _given_alone(self, side: Side) -> bool:
        """Whether rows of a side without a partner are given."""
        spec = self.columns
        return spec.pads_left or spec.how == "anti" if side.name == "left" else spec.pads_right

    def _alone(self, side: Side, rows: pl.DataFrame) -> pl.DataFrame:
        return self.columns.padded_left(rows) if side.name == "left" else self.columns.padded_right(rows)

    def _joinable(self, side: Side, rows: pl.DataFrame, parts: list[pl.DataFrame]) -> pl.DataFrame:
        """Leave out the rows that no row can match; where they are given alone, that is certain at once."""
        if not self.columns.null_safe and any(rows.get_column(key).null_count() for key in side.keys):
            if self._given_alone(side):
                parts.append(self._alone(side, rows.filter(~side.has_key)))
            rows = rows.filter(side.has_key)
        return rows.with_columns(pl.lit(value=False).alias(MATCHED)) if self._waits(side) else rows

    def _held(self, slices: TimeSlices, side: Side, own: pl.DataFrame, others: pl.DataFrame, watermark: int) -> _Held:
        """Read the kept rows of a side that rows of the other one may match, and those whose time is over."""
        other = self.columns.right if side.name == "left" else self.columns.left
        hashes, low, high = np.zeros(0, dtype=np.uint64), 0, 0
        if others.height and self.lower <= self.upper:
            hashes = hashes_of([others.select(other.keys)], other.keys) if other.keys else np.zeros(1, dtype=np.uint64)
            first, last = others.select(first=pl.col(other.time).min(), last=pl.col(other.time).max()).row(0)
            low, high = (
                (first - self.upper, last - self.lower)
                if side.name == "left"
                else (first + self.lower, last + self.upper)
            )
        kept = slices.take(hashes, low, high, watermark)
        if kept is None:
            return _Held(own, 0)
        return _Held(pl.concat([kept.select(own.columns), own], how="vertical_relaxed"), kept.height)

    def _pairs(self, left: _Held, right: _Held) -> pl.DataFrame:
        """Find the matches in which at least one row is new."""
        lefts, rights = (
            held.rows.drop(MATCHED, strict=False).with_row_index(place)
            for held, place in ((left, LEFT_PLACE), (right, RIGHT_PLACE))
        )
        found = [self._near_pairs(lefts[left.kept :], rights)]
        if left.kept and right.fresh.height:
            found.append(self._near_pairs(lefts[: left.kept], rights[right.kept :]))
        return pl.concat(found)

    def _near_pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Find the pairs whose times are near.

        A key with many rows has far more pairs than near ones. Then time is cut into stretches as long as the interval:
        a left row has its partners in two of them at most, and the stretch is compared as a part of the key.
        """
        spec = self.columns
        near = (pl.col(RIGHT_TIME) - pl.col(LEFT_TIME)).is_between(self.lower, self.upper)
        if self.lower > self.upper:
            return spec.pairs(left.clear(), right.clear(), near)
        partners = spec.partners_by_key(left, right)
        if partners is None or partners.sum() <= _MANY_PARTNERS * (left.height + right.height):
            return spec.pairs(left, right, near)
        width = self.upper - self.lower + 1
        first, last = ((pl.col(LEFT_TIME) + bound) // width for bound in (self.lower, self.upper))
        lefts = pl.concat(
            [left.with_columns(first.alias(_STRETCH)), left.filter(last > first).with_columns(last.alias(_STRETCH))]
        )
        rights = right.with_columns((pl.col(RIGHT_TIME) // width).alias(_RIGHT_STRETCH))
        by_stretch = replace(
            spec,
            left=replace(spec.left, keys=(*spec.left.keys, _STRETCH)),
            right=replace(spec.right, keys=(*spec.right.keys, _RIGHT_STRETCH)),
        )
        found = by_stretch.pairs(lefts, rights, near).sort(LEFT_PLACE, RIGHT_PLACE)
        return found.drop(_STRETCH, _RIGHT_STRETCH)

    def _settle(
        self, slices: TimeSlices, side: Side, held: _Held, met: pl.Series, watermark: int, parts: list[pl.DataFrame]
    ) -> None:
        """Give what is certain of one side's rows now, and keep those that may meet another partner."""
        rows, spec = held.rows, self.columns
        wait = self._wait(side)
        alive = (rows.get_column(side.time).to_numpy() + wait) >= watermark
        changed = np.zeros(rows.height, dtype=bool)
        if self._waits(side):
            before = rows.get_column(MATCHED).to_numpy()
            newly = np.zeros(rows.height, dtype=bool)
            newly[met.unique().to_numpy()] = True
            newly &= ~before
            if spec.left_only:
                if spec.how == "semi":
                    parts.append(spec.padded_left(rows.filter(newly)))
                alone = ~alive & ~newly & ~before
                alive &= ~newly
            else:
                alone = ~alive & ~newly & ~before
                changed = newly
            if self._given_alone(side):
                parts.append(self._alone(side, rows.filter(alone)))
            due = pl.when(~pl.col(MATCHED)).then(pl.col(side.time) + wait + 1).alias(_DUE)
            rows = rows.with_columns(pl.Series(MATCHED, before | newly)).with_columns(due)
        places = np.flatnonzero((alive & changed)[: held.kept])
        slices.put(
            (alive & ~changed)[: held.kept],
            rows[: held.kept][places],
            places,
            rows[held.kept :].filter(alive[held.kept :]),
            _DUE if self._waits(side) else None,
        )
        slices.drop(watermark - wait)


def _load(state: Segments) -> dict[str, Any]:
    value = state.get(_INDEX)
    return {"left": None, "right": None, "next": 0} if value is None else record_from_bytes(value)


#: No interval is longer: times and bounds together stay within 64 bits.
LONGEST: Final = END // 4
