"""Joins of a stream with a table as it is now: the newest rows that are known when a row is processed.

Changes of the table that come in the same batch count before the rows of the stream. Results are given at once and are
not revised by later changes of the table. Where rows of the left side may themselves be taken back, what was given for
them is kept, and taken back as it was given.

With a loading phase the rows of the stream wait until the table has been read to some time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.engine.changelog import net
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Outcome
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.joins.chunks import Chunks, resplit_chunks
from headrace.joins.kept_rows import KeptRows, resplit_kept
from headrace.joins.multiset import CHANGE, COUNT, PARTNERS, deltas, keep, kept_form, merged, repeated
from headrace.joins.numbers import NUMBERED, number_results
from headrace.joins.sides import LEFT_PLACE, JoinColumns
from headrace.time.instants import BEGINNING, END

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import Turn
    from headrace.engine.state import Segments

_INDEX: Final = "index"
_MET: Final = "#met"
#: The stretch of time that rows wait in while the table is read.
_ALWAYS: Final = (BEGINNING, END)


@dataclass(frozen=True)
class LatestJoin:
    """Joins rows with a table as it is when they are processed.

    Args:
        columns: What is compared, and what a joined row has.
        load_until: The time that the table must have been read to before the first row is joined; None: none.
        left_updates: Whether rows of the left side may be taken back.
        stays: Where every key group has the whole table: the columns by which left rows are spread over key groups.
    """

    columns: JoinColumns
    load_until: int | None = None
    left_updates: bool = False
    stays: tuple[str, ...] | None = None

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Bring the table up to date, then join the rows that came."""
        spec = self.columns
        saved = self._load(state)
        table = KeptRows(state, "right", spec.right.keys, saved.get("right"))
        given = KeptRows(state, "given", spec.left.keys, saved.get("given"))
        waiting = Chunks(state, "waiting", saved.get("waiting"))
        rows, dismissed = _timed(turn.inputs[0].rows)
        left = spec.left.taken_in_updating(rows)
        left = self._loaded(waiting, left, turn, saved)
        changes = deltas(spec.right, turn.inputs[1].rows)
        held = table.take([(changes, spec.right.keys), (left, spec.left.keys)], kept_form(changes))
        now = merged(held, changes)
        keep(table, held, now)
        present = repeated(now.filter(pl.col(COUNT) + pl.col(CHANGE) > 0), pl.col(COUNT) + pl.col(CHANGE))
        parts = self._joined(given, left, present.select(kept_form(changes).drop(COUNT, PARTNERS).columns), saved)
        if self.left_updates:
            filled = [part for part in parts if part.height]
            results = net(pl.concat(filled)) if filled else None
        else:
            results = number_results([part.drop(IS_RETRACTION) for part in parts], saved)
        if not saved["loading"]:
            saved["until"] = max(saved["until"], turn.inputs[0].watermark)
        saved |= {"right": table.record(), "given": given.record(), "waiting": waiting.record()}
        state.put(_INDEX, record_to_bytes(saved))
        return Outcome(
            rows=results if results is not None and results.height else None,
            dismissed=dismissed,
            watermark=saved["until"],
            keys=table.rows + given.rows + waiting.rows,
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row."""
        del rows
        own = {IS_RETRACTION: pl.Boolean()} if self.left_updates else NUMBERED
        return pl.Schema({**self.columns.schema(), **own})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        told = {"left_updates": str(self.left_updates), "loading": str(self.load_until is not None)}
        if self.stays is not None:
            told["stays"] = ",".join(self.stays)
        return {"operator": "latest join", **self.columns.fingerprint(), **told}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the table, what was given, and the rows that wait over other key groups."""
        known = [self._load(state) for state in old]
        left, right = self.columns.left.keys, self.columns.right.keys
        route = left if self.stays is None else self.stays
        tables = [saved.get("right") for saved in known]
        if self.stays is None:
            table = resplit_kept(old, new, "right", right, tables)
        else:  # every key group has the same
            table = [resplit_kept(old[:1], [state], "right", right, tables[:1])[0] for state in new]
        records = {
            "right": table,
            "given": resplit_kept(old, new, "given", left, [saved.get("given") for saved in known], route=route),
            "waiting": resplit_chunks(old, new, "waiting", route, [saved.get("waiting") for saved in known]),
        }
        # All key groups have the same time, so they all load, or none does.
        common = {
            "next": max(saved["next"] for saved in known),
            "loading": any(saved["loading"] for saved in known),
            "until": min(saved["until"] for saved in known),
        }
        for number, state in enumerate(new):
            own = {name: each[number] for name, each in records.items()}
            state.put(_INDEX, record_to_bytes({**common, **own}))

    def _load(self, state: Segments) -> dict[str, Any]:
        value = state.get(_INDEX)
        if value is None:
            return {"next": 0, "loading": self.load_until is not None, "until": BEGINNING}
        return record_from_bytes(value)

    def _loaded(self, waiting: Chunks, left: pl.DataFrame, turn: Turn, saved: dict[str, Any]) -> pl.DataFrame:
        """Let rows wait while the table is read; give them all when it has been."""
        if not saved["loading"] or self.load_until is None:
            return left
        read = turn.inputs[1].watermark
        # A table that is idle does not count for the watermark of the turn, and has nothing more to be read.
        if read < self.load_until and turn.watermark <= read:
            if left.height:
                waiting.add(_ALWAYS, left)
            return left.clear()
        saved["loading"] = False
        before = waiting.of([_ALWAYS])
        waiting.drop(END)
        return left if before is None else pl.concat([before, left])

    def _joined(
        self, given: KeptRows, left: pl.DataFrame, right: pl.DataFrame, saved: dict[str, Any]
    ) -> list[pl.DataFrame]:
        """Join the rows that came with the table; what is taken back is found in what was given."""
        if left.is_empty():
            return []
        if not self.left_updates:
            return self._results(self._met(left.drop(IS_RETRACTION), right), retraction=False)
        netted = net(left)
        back = netted.filter(pl.col(IS_RETRACTION)).drop(IS_RETRACTION)
        fresh = self._met(netted.filter(~pl.col(IS_RETRACTION)).drop(IS_RETRACTION), right, saved["next"])
        saved["next"] += netted.height
        names = back.columns
        held = given.take([(netted, self.columns.left.keys)], fresh)
        # A row that was added several times is taken back as often: the first of its results go.
        wanted = back.group_by(names).len("#back")
        numbered = held.with_columns(pl.int_range(held.height, dtype=pl.Int64).alias("#place"))
        copies = numbered.with_columns(pl.col(LEFT_PLACE).rank("dense").over(names).alias("#copy"))
        gone = copies.join(wanted, on=names, how="inner", nulls_equal=True, maintain_order="left").filter(
            pl.col("#copy") <= pl.col("#back")
        )
        stays = ~numbered.select(pl.col("#place").is_in(gone.get_column("#place").implode())).to_series()
        given.put(stays.to_numpy(), fresh)
        return [
            *self._results(gone.select(fresh.columns), retraction=True),
            *self._results(fresh, retraction=False),
        ]

    def _met(self, left: pl.DataFrame, right: pl.DataFrame, first: int = 0) -> pl.DataFrame:
        """Give left rows with their partners; a row without one has nulls in their place, and `#met` false."""
        spec = self.columns
        numbered = left.with_columns(pl.int_range(first, first + left.height, dtype=pl.Int64).alias(LEFT_PLACE))
        pairs = spec.pairs(numbered, right).with_columns(pl.lit(value=True).alias(_MET))
        alone = numbered.join(pairs, on=LEFT_PLACE, how="anti", maintain_order="left")
        if spec.how == "semi":
            pairs = pairs.unique(LEFT_PLACE, keep="first", maintain_order=True)
        kept = pairs.clear() if spec.how == "anti" else pairs
        if spec.how in ("left", "anti"):
            kept = pl.concat([kept, alone.with_columns(pl.lit(value=False).alias(_MET))], how="diagonal")
        return kept

    def _results(self, found: pl.DataFrame, *, retraction: bool) -> list[pl.DataFrame]:
        spec = self.columns
        mark = pl.lit(retraction).alias(IS_RETRACTION)
        if spec.left_only:
            return [spec.padded_left(found).with_columns(mark)]
        return [
            spec.matched(found.filter(_MET)).with_columns(mark),
            spec.padded_left(found.filter(~pl.col(_MET))).with_columns(mark),
        ]


def _timed(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    if not rows.get_column(EVENT_TIME).null_count():
        return rows, None
    timeless = rows.filter(pl.col(EVENT_TIME).is_null())
    return rows.filter(pl.col(EVENT_TIME).is_not_null()), timeless.with_columns(reason=pl.lit("event_time is null"))
