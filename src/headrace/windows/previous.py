"""The row before: each row of a key gets values of the row before it, in the order of event time.

"A vehicle changed its cell" is a statement about two rows that follow each other. Rows arrive in any order, so a row is
held until the watermark has passed it; then nothing can come between it and the row before, and it goes on with the
values of that one. Of rows with the same key and time, those with smaller values come first, so the answer depends
neither on the order of arrival nor on how rows are cut into batches.

With time by key a row goes on when its own key has come to it, which mostly is in the batch that brings it. Rows of the
same key and time are then in the order of arrival: what has gone on cannot get another row before it any more.

The newest row of each key is remembered for `within` of event time: a row further away than that is no row before. What
is remembered lies in pages by key (`headrace.engine.keyed_state`): a turn reads and writes the pages of its rows, and
those in which rows have been too old for some time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.contents import instants, tables_in
from headrace.engine.key_clocks import KeyClocks, index_of
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import EVENT_TIME, Outcome
from headrace.engine.resplit import resplit_frames, resplit_table
from headrace.engine.row_pages import Layouts
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.time.duration import text
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import MemorySegments, Segments, Turn
    from headrace.time.key_time import KeyTime

_INDEX, _WAITING = "index", "waiting"
_NEWEST = "newest"
_TIME, _ROW, _SHARD, _FOLLOWED = "#time", "#row", "#shard", "#followed"


@dataclass(frozen=True)
class PreviousOperator:
    """Adds values of the row before.

    Args:
        keys: The key columns.
        columns: The new columns, and those of the row before that they are taken from.
        within: How far before in event time it may be, in microseconds.
        key_time: What is promised of the order within a key; None to go by the watermark alone.

    >>> from headrace.engine import MemorySegments, Turn
    >>> operator = PreviousOperator(("vehicle",), (("came_from", "cell"),), within=100)
    >>> rows = pl.DataFrame({"vehicle": ["a", "b", "a"], "cell": [2, 7, 1], "event_time": [20, 15, 10]})
    >>> turn = Turn(rows.cast({"event_time": INSTANT}), watermark=100, now=0)
    >>> operator.turn(MemorySegments(), turn).rows.select("vehicle", "came_from", "cell").rows()
    [('a', None, 1), ('a', 1, 2), ('b', None, 7)]
    """

    keys: tuple[str, ...]
    columns: tuple[tuple[str, str], ...]
    within: int
    key_time: KeyTime | None = None

    @property
    def in_step(self) -> bool:
        """Whether what leaves in a turn is not older than the watermark before: see `headrace.stream.relay`."""
        return self.key_time is None

    @property
    def time_by_key(self) -> bool:
        """Whether a row can be late that is not behind the watermark."""
        return self.key_time is not None

    @property
    def _clocks(self) -> KeyClocks | None:
        return None if self.key_time is None else KeyClocks(self.keys, self.key_time)

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: which one comes before is known only there."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Rows pass with the new columns."""
        return pl.Schema({**rows, **{name: rows[source] for name, source in self.columns}})

    def fingerprint(self) -> dict[str, str]:
        """Name the key, what is remembered and for how long."""
        told = ", ".join(f"{name}={source}" for name, source in self.columns)
        by_key = {} if self.key_time is None else {"time": "by key"}
        named = {"operator": "previous", "keys": ",".join(self.keys), "columns": told, "within": text(self.within)}
        return named | by_key

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Let the rows go on that the watermark, or their key, has passed, in their order."""
        index = self._index(state)
        reached = turn.watermark if self.key_time is None else self.key_time.floor(turn.watermark)
        before, index.watermark = index.watermark, max(index.watermark, reached)
        rows, timeless = _timed(turn.rows)
        marks = None
        if (clocks := self._clocks) is not None:
            marks = clocks.advance(state, index.clocks, rows, before=before, watermark=index.watermark)
        fresh, late = _judged(rows, before if marks is None else marks.before_each(rows))
        waiting = _read(state, _WAITING)
        held = fresh if waiting is None else pl.concat([waiting, fresh], how="diagonal_relaxed")
        ready = held.get_column(EVENT_TIME).to_physical() < index.watermark
        if marks is not None:
            of_key = marks.after_each(held)
            ready |= (held.get_column(EVENT_TIME).to_physical() <= of_key) & (of_key > index.watermark)
        passed = self._pass(state, index, held.filter(ready))
        _write(state, _WAITING, held.filter(~ready))
        index.save(state)
        watermark = None if marks is None else index.watermark
        return Outcome(rows=passed, late=late, dismissed=timeless, keys=index.newest.rows, watermark=watermark)

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        """Read the newest rows that were kept for another time; what is forgotten already does not come back."""
        del state  # it has the same form
        return {**fingerprint, "within": ""} == {**self.fingerprint(), "within": ""}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the newest rows, and those that wait, over other key groups."""
        known = [self._index(state) for state in old]
        watermark = min(index.watermark for index in known)
        tables = resplit_table(
            old, new, _NEWEST, self.keys, [index.newest for index in known], patience=self.within // 2
        )
        waiting = resplit_frames([_read(state, _WAITING) for state in old], self.keys, len(new))
        marks: list[dict[str, Any]] = [{} for _ in new]
        if (clocks := self._clocks) is not None:
            marks = clocks.resplit(old, [index.clocks for index in known], new)
        for state, newest, mine, clock in zip(new, tables, waiting, marks, strict=True):
            if mine is not None:
                _write(state, _WAITING, mine)
            _Index(watermark, newest, clock).save(state)

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the newest row of each key, and the rows that wait for the watermark."""
        self._index(state)  # which brings an older form into today's
        found = tables_in(state.content)
        shown = {"pending": found[_WAITING]} if _WAITING in found else {}
        if _NEWEST in found:
            newest, names = (
                found[_NEWEST],
                dict(zip(self._names(), (source for _, source in self.columns), strict=True)),
            )
            told = {name: source for name, source in names.items() if source not in newest.columns}
            newest = newest.with_columns(instants(newest.get_column(_TIME).alias(EVENT_TIME))).drop(_TIME)
            shown["newest"] = newest.rename(told) if len({*told.values()}) == len(told) else newest
        return shown

    def _pass(self, state: Segments, index: _Index, rows: pl.DataFrame) -> pl.DataFrame | None:
        if rows.is_empty() and not index.newest.is_due(index.watermark, BEGINNING):
            return None
        layouts = Layouts(state)
        table = KeyedTable(state, _NEWEST, self.keys, layouts, index.newest, patience=self.within // 2)
        told = rows.select(
            *self.keys,
            pl.col(EVENT_TIME).to_physical().alias(_TIME),
            *self._values(),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW),
        )
        known = table.take(hashes_of([told], self.keys), watermark=index.watermark)
        both = told if known is None else pl.concat([known, told], how="diagonal_relaxed")
        # With time by key what has gone on is before what comes; otherwise all rows of one time are there together.
        equal = [] if self.time_by_key else self._names()
        ordered = both.sort(*self.keys, _TIME, *equal, maintain_order=True)
        same = pl.all_horizontal(pl.col(key) == pl.col(key).shift() for key in self.keys).fill_null(value=False)
        near = same & (pl.col(_TIME) - pl.col(_TIME).shift() <= self.within)
        before = [
            pl.when(near).then(pl.col(mark).shift()).alias(name)
            for mark, (name, _) in zip(self._names(), self.columns, strict=True)
        ]
        marked = ordered.with_columns(*before, same.shift(-1).fill_null(value=False).alias(_FOLLOWED))
        newest = marked.filter(~pl.col(_FOLLOWED)).select(name for name in told.columns if name != _ROW)
        self._remember(table, index, newest)
        if index.newest.pages == 0:
            layouts.forget()
        if rows.is_empty():
            return None
        found = marked.filter(pl.col(_ROW).is_not_null())
        return rows[found.get_column(_ROW)].with_columns(found.get_column(name) for name, _ in self.columns)

    def _names(self) -> list[str]:
        return [f"#value{number}" for number in range(len(self.columns))]

    def _values(self) -> list[pl.Expr]:
        return [pl.col(source).alias(name) for name, (_, source) in zip(self._names(), self.columns, strict=True)]

    def _remember(self, table: KeyedTable, index: _Index, newest: pl.DataFrame) -> None:
        # One that is too far from the watermark now cannot be the row before of any that is still to come.
        kept = newest.filter(pl.col(_TIME) >= index.watermark - self.within)
        table.put(kept, kept.get_column(_TIME) + self.within + 1)

    def _index(self, state: Segments) -> _Index:
        saved = state.get(_INDEX)
        if saved is None:
            return _Index()
        record = record_from_bytes(saved)
        index = _Index(record["watermark"], TableIndex.of(record.get(_NEWEST)), index_of(record))
        if _NEWEST not in record:
            self._convert(state, index, sorted(int(shard) for shard in record["sizes"]))
        return index

    def _convert(self, state: Segments, index: _Index, shards: list[int]) -> None:
        """Read the shards that the version before kept, and write them in pages."""
        parts = []
        for shard in shards:
            part = _read(state, f"{_NEWEST}/{shard}")
            parts += [] if part is None else [part.drop(_SHARD)]
            state.delete(f"{_NEWEST}/{shard}")
        if parts:
            table = KeyedTable(state, _NEWEST, self.keys, Layouts(state), index.newest, patience=self.within // 2)
            self._remember(table, index, pl.concat(parts))


@dataclass
class _Index:
    """How far event time has come, where the newest rows are, and where the marks of keys with time by key."""

    watermark: int = BEGINNING
    newest: TableIndex = field(default_factory=TableIndex)
    clocks: dict[str, Any] = field(default_factory=dict)

    def save(self, state: Segments) -> None:
        record = {"watermark": self.watermark, _NEWEST: self.newest.record(), **index_of(self.clocks)}
        state.put(_INDEX, record_to_bytes(record))


def _read(state: Segments, name: str) -> pl.DataFrame | None:
    saved = state.get(name)
    return None if saved is None else frame_from_bytes(saved)


def _write(state: Segments, name: str, rows: pl.DataFrame) -> None:
    if rows.height:
        state.put(name, frame_to_bytes(rows))
    else:
        state.delete(name)


def _timed(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split off rows without a time; mostly all have one."""
    timeless = rows.get_column(EVENT_TIME).is_null()
    if not timeless.any():
        return rows, None
    return rows.filter(~timeless), rows.filter(timeless).with_columns(pl.lit("event_time is null").alias("reason"))


def _judged(rows: pl.DataFrame, passed: int | pl.Series) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split rows into those in time and those behind the watermark, or behind the mark of their key."""
    behind = rows.get_column(EVENT_TIME).to_physical() < passed
    if not behind.any():
        return rows, None
    mark = pl.lit(passed, dtype=pl.Int64)
    late = rows.with_columns(
        (mark - pl.col(EVENT_TIME).to_physical()).cast(pl.Duration("us")).alias("lateness"),
        mark.cast(INSTANT).alias("watermark"),
    )
    return rows.filter(~behind), late.filter(behind)
