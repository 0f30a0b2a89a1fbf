"""Deduplication: the first of several equal rows passes, the others are dropped.

Two rows are the same if they have the same key and their event times are less than `within` apart. The first to
*arrive* passes, whatever the order of the times; what passed is remembered for as long as a row that may equal it can
still be told: a row more than `within` behind the watermark is late, so a row that passed is forgotten when the
watermark is twice `within` past it. The answer depends on the order in which rows arrive, not on how they are cut into
batches.

What passed lies in pages by key (`headrace.engine.keyed_state`): a turn reads the pages of its rows, and those in which
rows could have been forgotten for some time, and writes those in which a row was added or forgotten.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.contents import instants, tables_in
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import EVENT_TIME, Outcome
from headrace.engine.resplit import resplit_table
from headrace.engine.row_pages import Layouts
from headrace.engine.state import frame_from_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.duration import text
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import MemorySegments, Segments, Turn

_INDEX, _PASSED = "index", "passed"
_TIME, _NUMBER, _BUCKET, _CLUSTER = "#time", "#number", "#bucket", "#cluster"

#: Rounds over all keys at once, before the keys that are left are gone through one by one.
_ROUNDS = 8


@dataclass(frozen=True)
class DeduplicateOperator:
    """Drops rows that equal one that passed.

    Args:
        keys: The columns that make two rows the same.
        within: How far apart in event time they may be, in microseconds.

    >>> from headrace.engine import MemorySegments, Turn
    >>> operator = DeduplicateOperator(("event",), within=10)
    >>> rows = pl.DataFrame({"event": [1, 1, 2, 1], "event_time": [0, 9, 3, 10]}).cast({"event_time": INSTANT})
    >>> operator.turn(MemorySegments(), Turn(rows, watermark=0, now=0)).rows.cast({"event_time": pl.Int64}).rows()
    [(1, 0), (2, 3), (1, 10)]
    """

    keys: tuple[str, ...]
    within: int

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: which one came first is known only there."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Rows pass as they are."""
        return rows

    def fingerprint(self) -> dict[str, str]:
        """Name the columns and the time, which buckets depend on."""
        return {"operator": "deduplicate", "keys": ",".join(self.keys), "within": text(self.within)}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Let new rows pass, then forget what no row can equal any more."""
        index = self._index(state)
        before, index.watermark = index.watermark, max(index.watermark, turn.watermark)
        passed = late = dismissed = None
        rows = turn.rows
        if rows.height:
            timeless = pl.col(EVENT_TIME).is_null()
            dismissed = rows.filter(timeless).with_columns(pl.lit("event_time is null").alias("reason"))
            behind = pl.col(EVENT_TIME).to_physical() < before - self.within
            late = self._late(rows.filter(behind), before)
            rows = rows.filter(~behind)
        if rows.height or index.passed.is_due(index.watermark, BEGINNING):
            passed = self._pass(state, index, rows)
        index.save(state)
        return Outcome(rows=_some(passed), late=_some(late), dismissed=_some(dismissed), keys=index.passed.rows)

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        """Read rows that passed that were kept for another time; what is forgotten already does not come back."""
        del state  # it has the same form
        return {**fingerprint, "within": ""} == {**self.fingerprint(), "within": ""}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread what passed over other key groups."""
        known = [self._index(state) for state in old]
        watermark = min(index.watermark for index in known)
        tables = resplit_table(old, new, _PASSED, self.keys, [index.passed for index in known], patience=self.within)
        for state, passed in zip(new, tables, strict=True):
            _Index(watermark, passed).save(state)

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show what passed and is remembered, with the time until which it is."""
        self._index(state)  # which brings an older form into today's
        passed = tables_in(state.content).get(_PASSED)
        if passed is None:
            return {}
        return {"passed": passed.with_columns(instants(passed.get_column(_TIME).alias(EVENT_TIME))).drop(_TIME)}

    def _late(self, rows: pl.DataFrame, watermark: int) -> pl.DataFrame:
        mark = pl.lit(watermark, dtype=pl.Int64)
        return rows.with_columns(
            (mark - self.within - pl.col(EVENT_TIME).to_physical()).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(INSTANT).alias("watermark"),
        )

    def _pass(self, state: Segments, index: _Index, rows: pl.DataFrame) -> pl.DataFrame:
        layouts = Layouts(state)
        table = self._table(state, index, layouts)
        time = pl.col(EVENT_TIME).to_physical()
        arrived = rows.select(*self.keys, time.alias(_TIME)).with_row_index(_NUMBER)
        # What is forgotten after this turn still counts in it: its rows are judged by the watermark before.
        remembered = table.take(hashes_of([arrived], self.keys), watermark=index.watermark)
        fresh = self._first_ones(self._unlike(arrived, remembered))
        self._remember(table, index, fresh.select(*self.keys, _TIME), remembered)
        if index.passed.pages == 0:
            layouts.forget()
        return rows[fresh.get_column(_NUMBER).sort()]

    def _table(self, state: Segments, index: _Index, layouts: Layouts) -> KeyedTable:
        return KeyedTable(state, _PASSED, self.keys, layouts, index.passed, patience=self.within)

    def _unlike(self, rows: pl.DataFrame, passed: pl.DataFrame | None) -> pl.DataFrame:
        """Leave out the rows that equal one that passed."""
        if passed is None or rows.is_empty():
            return rows
        apart = (pl.col(_TIME) - pl.col("#passed")).abs()
        known = rows.select(*self.keys).unique()
        old = passed.join(known, on=self.keys, how="semi").rename({_TIME: "#passed"})
        # Rows that passed lie at least `within` apart, so a row meets a handful of them at most, not all of its key's.
        bucket = (pl.col(_TIME) // self.within).alias(_BUCKET)
        spread = pl.concat(
            [old.with_columns((pl.col("#passed") // self.within + step).alias(_BUCKET)) for step in (-1, 0, 1)]
        )
        met = rows.with_columns(bucket).join(spread, on=[*self.keys, _BUCKET]).filter(apart < self.within)
        return rows.join(met, on=_NUMBER, how="anti", maintain_order="left")

    def _first_ones(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Choose the rows that pass, given that all of them are new.

        Rows of a key fall into clusters with gaps of `within` or more between them. The first of a cluster to arrive
        passes and takes its equals with it; what is left makes new clusters. Nearly always one round is enough.
        """
        passed = []
        for _ in range(_ROUNDS):
            if rows.is_empty():
                break
            rows = rows.sort(*self.keys, _TIME)
            begins = (pl.struct(*self.keys) != pl.struct(*self.keys).shift()) | (pl.col(_TIME).diff() >= self.within)
            rows = rows.with_columns(begins.fill_null(value=True).cum_sum().alias(_CLUSTER))
            first = rows.filter(pl.col(_NUMBER) == pl.col(_NUMBER).min().over(_CLUSTER))
            passed.append(first.drop(_CLUSTER))
            beside = first.select(_CLUSTER, pl.col(_TIME).alias("#passed"))
            rows = rows.join(beside, on=_CLUSTER)
            rows = rows.filter((pl.col(_TIME) - pl.col("#passed")).abs() >= self.within).drop(_CLUSTER, "#passed")
        if rows.height:
            passed.append(self._one_by_one(rows))
        return pl.concat(passed) if passed else rows

    def _one_by_one(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Choose the rows that pass where many rows of one key follow each other closely."""
        rows = rows.sort(_NUMBER)
        seen: dict[tuple[Any, ...], list[int]] = {}
        chosen = []
        for place, (*key, time) in enumerate(rows.select(*self.keys, _TIME).iter_rows()):
            times = seen.setdefault(tuple(key), [])
            at = bisect_left(times, time)
            if all(abs(time - near) >= self.within for near in times[max(at - 1, 0) : at + 1]):
                insort(times, time)
                chosen.append(place)
        return rows[chosen]

    def _remember(
        self, table: KeyedTable, index: _Index, passed: pl.DataFrame, remembered: pl.DataFrame | None = None
    ) -> None:
        """Keep rows that passed, beside those that were remembered, as long as a row to come can equal them."""
        # No row that is still to come, and not late, can equal one that is as old as this.
        oldest = index.watermark - 2 * self.within
        kept = passed.filter(pl.col(_TIME) > oldest)
        stays = None if remembered is None else (remembered.get_column(_TIME) > oldest).to_numpy()
        table.put(kept, kept.get_column(_TIME) + 2 * self.within, stays=stays)

    def _index(self, state: Segments) -> _Index:
        saved = state.get(_INDEX)
        if saved is None:
            return _Index()
        record = record_from_bytes(saved)
        index = _Index(record["watermark"], TableIndex.of(record.get(_PASSED)))
        if _PASSED not in record:
            self._convert(state, index, record["buckets"])
        return index

    def _convert(self, state: Segments, index: _Index, buckets: dict[str, list[int]]) -> None:
        """Read the buckets of time that the version before kept, and write them in pages."""
        names = [f"{_PASSED}/{bucket}/{chunk}" for bucket, chunks in buckets.items() for chunk in chunks]
        frames = []
        for name in names:
            value = state.get(name)
            if value is None:
                raise StateError(
                    f"chunk {name} of the rows that passed is missing",
                    hint="The checkpoint is incomplete; restore it, or start the job afresh.",
                )
            frames.append(frame_from_bytes(value))
            state.delete(name)
        if frames:
            self._remember(self._table(state, index, Layouts(state)), index, pl.concat(frames))


@dataclass
class _Index:
    """How far event time has come, and where the rows are that passed."""

    watermark: int = BEGINNING
    passed: TableIndex = field(default_factory=TableIndex)

    def save(self, state: Segments) -> None:
        state.put(_INDEX, record_to_bytes({"watermark": self.watermark, _PASSED: self.passed.record()}))


def _some(frame: pl.DataFrame | None) -> pl.DataFrame | None:
    return frame if frame is not None and frame.height else None
