"""Temporal joins: a row of a stream meets the version of a table that held at its time.

A version holds from its time, included, to the time of the next one of its key; of equal times the later arrival
counts; a delete is a version without a row. A left row waits until the watermark has passed its time. Then no version
that it could need is missing, so its result is never revised. A left row earlier than the watermark is late.

Versions are kept by key, as long as a row that is not late may need them: all that are later than the watermark, and
the newest before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.engine.frames import stacked
from headrace.engine.operator import Outcome
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.joins.kept_rows import KeptRows, key_numbers, resplit_kept
from headrace.joins.numbers import NUMBERED, number_results
from headrace.joins.sides import LEFT_TIME, RIGHT_TIME, JoinColumns, arrived, later_by
from headrace.time.duration import text as duration_text
from headrace.time.instants import BEGINNING, END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import Turn
    from headrace.engine.state import Segments

#: Whether a version deletes its key.
GONE: Final = "#gone"
_INDEX: Final = "index"
_KEY, _ORDER, _NEXT, _NEW, _PLACE, _FOUND = "#key", "#order", "#next", "#new", "#place", "#found"


@dataclass(frozen=True)
class TemporalJoin:
    """Joins rows with the versions of a table.

    Args:
        columns: What is compared, and what a joined row has; versions carry `#gone` beside.
        routed: The places among the keys of those that name a row of the table.
        grace: How far the join stays behind the watermark.
        retention: How long a delete is kept, in microseconds; None for ever.
        tolerance: How old a version may be at most; None: any age.
    """

    columns: JoinColumns
    routed: tuple[int, ...]
    grace: int = 0
    retention: int | None = None
    tolerance: int | None = None

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Keep what came, then give the rows that the watermark has passed."""
        before, watermark = (later_by(mark, self.grace) for mark in (turn.watermark_before, turn.watermark))
        reason = f"earlier than the watermark{f' less the grace of {duration_text(self.grace)}' * bool(self.grace)}"
        spec = self.columns
        rows = arrived(spec.left, turn.inputs[0].rows, before, reason=reason)
        versions = arrived(spec.right, turn.inputs[1].rows, BEGINNING, reason=reason)
        saved = _load(state)
        left = KeptRows(state, "left", self._routed(spec.left.keys), saved.get("left"))
        right = KeptRows(state, "right", self._routed(spec.right.keys), saved.get("right"))
        due = self._due(left, rows.rows, watermark)
        found = self._versions(right, versions.rows, due, watermark, saved)
        results = number_results(self._joined(due, found), saved)
        saved |= {"left": left.record(), "right": right.record()}
        state.put(_INDEX, record_to_bytes(saved))
        return Outcome(
            rows=results,
            late=rows.late,
            dismissed=stacked([each.dismissed for each in (rows, versions) if each.dismissed is not None]),
            watermark=watermark,
            keys=left.rows + right.rows,
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row."""
        del rows
        return pl.Schema({**self.columns.schema(), **NUMBERED})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        told = {"routed": str(self.routed), "grace": str(self.grace), "tolerance": str(self.tolerance)}
        return {"operator": "temporal join", **self.columns.fingerprint(), **told}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows that wait, and the versions, over other key groups."""
        known = [_load(state) for state in old]
        sides: dict[str, list[list[Any]]] = {
            side.name: resplit_kept(
                old, new, side.name, self._routed(side.keys), [saved.get(side.name) for saved in known]
            )
            for side in (self.columns.left, self.columns.right)
        }
        # A key comes from one key group, so its versions keep their order; later ones come behind all of them.
        counters = {name: max(saved[name] for saved in known) for name in ("next", "order")}
        for number, state in enumerate(new):
            own = {name: records[number] for name, records in sides.items()}
            state.put(_INDEX, record_to_bytes({**own, **counters}))

    def _routed(self, keys: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(keys[place] for place in self.routed)

    def _due(self, left: KeptRows, fresh: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """Give the left rows whose time the watermark has passed, and keep the others."""
        passed = pl.col(LEFT_TIME) < watermark
        held = left.take([], fresh, due=watermark)
        waiting = fresh.filter(~passed)
        is_due = held.select(passed).to_series()
        left.put((~is_due).to_numpy(), waiting, waiting.get_column(LEFT_TIME) + 1)
        return pl.concat([held.filter(is_due), fresh.filter(passed)])

    def _versions(
        self, right: KeptRows, fresh: pl.DataFrame, due: pl.DataFrame, watermark: int, saved: dict[str, Any]
    ) -> pl.DataFrame:
        """Bring the versions up to date, and give those of the keys of some rows."""
        keys = self._routed(self.columns.right.keys)
        start = saved["order"]
        saved["order"] = start + fresh.height
        fresh = fresh.with_columns(pl.int_range(start, start + fresh.height, dtype=pl.Int64).alias(_ORDER))
        held = right.take(
            [(fresh, keys), (due, self._routed(self.columns.left.keys))], fresh, due=watermark
        ).with_row_index(_PLACE)
        both = pl.concat(
            [held, fresh.with_columns(pl.lit(None, dtype=held.schema[_PLACE]).alias(_PLACE))], how="diagonal"
        )
        both, _ = key_numbers(both, keys, both.clear(), keys, _KEY)
        ordered = both.sort(_KEY, RIGHT_TIME, _ORDER).unique([_KEY, RIGHT_TIME], keep="last", maintain_order=True)
        ordered = ordered.with_columns(pl.col(RIGHT_TIME).shift(-1).over(_KEY).alias(_NEXT))
        needed = ordered.filter(self._needed(watermark))
        # A key is written anew if a version of it came, or one is not needed any more.
        kept_count = needed.select(pl.col(_PLACE).is_not_null().sum()).item()
        touched = needed.clear().select(_KEY)
        if fresh.height or kept_count < held.height:
            came = both.filter(pl.col(_PLACE).is_null()).select(_KEY)
            gone = both.filter(pl.col(_PLACE).is_not_null()).join(needed, on=_PLACE, how="anti").select(_KEY)
            touched = pl.concat([came, gone]).unique()
        untouched = needed.filter(pl.col(_PLACE).is_not_null()).join(touched, on=_KEY, how="anti")
        stays = held.select(pl.col(_PLACE).is_in(untouched.get_column(_PLACE).implode())).to_series().to_numpy()
        written = needed.join(touched, on=_KEY, how="semi", maintain_order="left")
        right.put(stays, written.drop(_PLACE, _KEY, _NEXT), self._expiry(written))
        return ordered

    def _needed(self, watermark: int) -> pl.Expr:
        """Whether a version may still be asked for: it holds at the watermark, or later."""
        needed = pl.col(_NEXT).is_null() | (pl.col(_NEXT) > watermark)
        if self.retention is not None:
            forgotten = pl.col(GONE) & pl.col(_NEXT).is_null() & (pl.col(RIGHT_TIME) + self.retention < watermark)
            needed &= ~forgotten
        if self.tolerance is not None:
            needed &= pl.col(RIGHT_TIME) + self.tolerance >= watermark
        return needed if watermark > BEGINNING else pl.lit(value=True)

    def _expiry(self, versions: pl.DataFrame) -> pl.Series:
        """Tell when a version is not needed any more: when the next one holds at the watermark."""
        due = pl.col(_NEXT)
        if self.retention is not None:
            due = pl.when(pl.col(GONE) & due.is_null()).then(pl.col(RIGHT_TIME) + self.retention + 1).otherwise(due)
        if self.tolerance is not None:
            due = pl.min_horizontal(due, pl.col(RIGHT_TIME) + self.tolerance + 1)
        return versions.select(due.alias("due")).to_series()

    def _joined(self, due: pl.DataFrame, versions: pl.DataFrame) -> list[pl.DataFrame]:
        """Join rows with the versions that held at their times."""
        if due.is_empty():
            return []
        spec = self.columns
        joinable, keyless = due, due.clear()
        if not spec.null_safe:
            joinable, keyless = due.filter(spec.left.has_key), due.filter(~spec.left.has_key)
        pairs = self._pairs(joinable.with_row_index(_FOUND), versions)
        met = joinable.with_row_index(_FOUND).get_column(_FOUND).is_in(pairs.get_column(_FOUND).implode())
        parts = [] if spec.left_only else [spec.matched(pairs)]
        if spec.how == "semi":
            parts.append(spec.padded_left(joinable.filter(met)))
        elif spec.how in ("left", "anti"):
            parts += [spec.padded_left(joinable.filter(~met)), spec.padded_left(keyless)]
        return parts

    def _pairs(self, left: pl.DataFrame, versions: pl.DataFrame) -> pl.DataFrame:
        """Find the version at the time of each row, if it is not a delete and the rest of the key fits."""
        spec = self.columns
        lefts, rights = key_numbers(
            left, self._routed(spec.left.keys), versions.drop(_KEY, _PLACE, _NEXT), self._routed(spec.right.keys), _KEY
        )
        found = lefts.sort(LEFT_TIME, maintain_order=True).join_asof(
            rights.sort(RIGHT_TIME, maintain_order=True),
            left_on=LEFT_TIME,
            right_on=RIGHT_TIME,
            by=_KEY,
            strategy="backward",
            tolerance=self.tolerance,
            coalesce=False,
            check_sortedness=False,
        )
        conditions = [pl.col(GONE) == pl.lit(value=False)]
        for place, (one, two) in enumerate(zip(spec.left.keys, spec.right.keys, strict=True)):
            if place not in self.routed:
                conditions.append(pl.col(one).eq_missing(pl.col(two)) if spec.null_safe else pl.col(one) == pl.col(two))
        conditions += [] if spec.where is None else [spec.where]
        return found.filter(*conditions).sort(_FOUND)


def _load(state: Segments) -> dict[str, Any]:
    value = state.get(_INDEX)
    return {"next": 0, "order": 0} if value is None else record_from_bytes(value)


#: A retention is never longer.
LONGEST_RETENTION: Final = END // 4
