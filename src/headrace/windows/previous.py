"""The row before: each row of a key gets values of the row before it, in the order of event time.

"A vehicle changed its cell" is a statement about two rows that follow each other. Rows arrive in any order, so a row is
held until the watermark has passed it; then nothing can come between it and the row before, and it goes on with the
values of that one. Of rows with the same key and time, those with smaller values come first, so the answer depends
neither on the order of arrival nor on how rows are cut into batches.

The newest row of each key is remembered for `within` of event time: a row further away than that is no row before. What
is remembered lies in shards by the hash of the key, and there are more of them the more keys there are: a turn reads
and writes the shards of its rows, and now and then one more to forget what is too old.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.keygroups import key_groups
from headrace.engine.operator import EVENT_TIME, Outcome
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.time.duration import text
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

_INDEX, _WAITING = "index", "waiting"
_TIME, _ROW, _SHARD, _FOLLOWED = "#time", "#row", "#shard", "#followed"

#: A shard holds about so many keys; then there are twice as many shards.
SHARD_KEYS = 16_384
#: Key groups are told apart by the same hash; a prime has nothing in common with their number.
_PRIME = 65_521


@dataclass(frozen=True)
class PreviousOperator:
    """Adds values of the row before.

    Args:
        keys: The key columns.
        columns: The new columns, and those of the row before that they are taken from.
        within: How far before in event time it may be, in microseconds.

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

    #: What leaves in a turn is older than the turn's watermark, and nothing older will: see `headrace.stream.relay`.
    in_step = True

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
        return {"operator": "previous", "keys": ",".join(self.keys), "columns": told, "within": text(self.within)}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Let the rows go on that the watermark has passed, in their order."""
        index = _Index.load(state)
        before, watermark = index.watermark, max(index.watermark, turn.watermark)
        fresh, late, timeless = _judged(turn.rows, before)
        waiting = _read(state, _WAITING)
        held = fresh if waiting is None else pl.concat([waiting, fresh], how="diagonal")
        ready = held.get_column(EVENT_TIME).to_physical() < watermark
        passed = self._pass(state, index, held.filter(ready))
        _write(state, _WAITING, held.filter(~ready))
        index.watermark = watermark
        self._sweep(state, index)
        index.save(state)
        return Outcome(rows=passed, late=late, dismissed=timeless)

    def _pass(self, state: Segments, index: _Index, rows: pl.DataFrame) -> pl.DataFrame | None:
        if rows.is_empty():
            return None
        if sum(index.sizes.values()) > SHARD_KEYS * index.shards:
            self._split(state, index)
        told = rows.select(
            *self.keys,
            pl.col(EVENT_TIME).to_physical().alias(_TIME),
            *self._values(),
            pl.int_range(pl.len(), dtype=pl.UInt32).alias(_ROW),
        )
        told = self._sharded(told, index.shards)
        touched = [0] if index.shards == 1 else told.get_column(_SHARD).unique().to_list()
        known = [part for shard in touched if (part := _read(state, index.name(shard))) is not None]
        ordered = pl.concat([*known, told], how="diagonal").sort(*self.keys, _TIME, *self._names(), maintain_order=True)
        same = pl.all_horizontal(pl.col(key) == pl.col(key).shift() for key in self.keys).fill_null(value=False)
        near = same & (pl.col(_TIME) - pl.col(_TIME).shift() <= self.within)
        before = [
            pl.when(near).then(pl.col(mark).shift()).alias(name)
            for mark, (name, _) in zip(self._names(), self.columns, strict=True)
        ]
        marked = ordered.with_columns(*before, same.shift(-1).fill_null(value=False).alias(_FOLLOWED))
        newest = marked.filter(~pl.col(_FOLLOWED)).select(name for name in told.columns if name != _ROW)
        self._remember(state, index, newest, touched)
        found = marked.filter(pl.col(_ROW).is_not_null())
        return rows[found.get_column(_ROW)].with_columns(found.get_column(name) for name, _ in self.columns)

    def _names(self) -> list[str]:
        return [f"#value{number}" for number in range(len(self.columns))]

    def _values(self) -> list[pl.Expr]:
        return [pl.col(source).alias(name) for name, (_, source) in zip(self._names(), self.columns, strict=True)]

    def _sharded(self, rows: pl.DataFrame, shards: int) -> pl.DataFrame:
        if shards == 1:
            return rows.with_columns(pl.lit(0, dtype=pl.Int64).alias(_SHARD))
        return rows.with_columns(pl.Series(_SHARD, key_groups(rows, self.keys, _PRIME) % shards, dtype=pl.Int64))

    def _remember(self, state: Segments, index: _Index, newest: pl.DataFrame, shards: list[int]) -> None:
        parts = {(0,): newest} if index.shards == 1 else newest.partition_by(_SHARD, as_dict=True)
        for shard in shards:
            self._keep(state, index, shard, parts[(shard,)])

    def _keep(self, state: Segments, index: _Index, shard: int, newest: pl.DataFrame) -> None:
        # One that is too far from the watermark now cannot be the row before of any that is still to come.
        kept = newest.filter(pl.col(_TIME) >= index.watermark - self.within)
        _write(state, index.name(shard), kept)
        index.sizes[shard] = kept.height

    def _split(self, state: Segments, index: _Index) -> None:
        """Spread what is remembered over twice as many shards; so each key is moved once per doubling."""
        parts = []
        for shard in sorted(index.sizes):
            part = _read(state, index.name(shard))
            parts += [] if part is None else [part]
            state.delete(index.name(shard))
        index.shards, index.sizes, index.swept = index.shards * 2, {}, 0
        every = self._sharded(pl.concat(parts).drop(_SHARD), index.shards)
        self._remember(state, index, every, every.get_column(_SHARD).unique().to_list())

    def _sweep(self, state: Segments, index: _Index) -> None:
        """Forget what is too old in one shard, often enough to have been at every one within `within`."""
        if index.watermark - index.swept_at < self.within // index.shards:
            return
        part = _read(state, index.name(index.swept))
        if part is not None:
            self._keep(state, index, index.swept, part)
        index.swept, index.swept_at = (index.swept + 1) % index.shards, index.watermark


@dataclass
class _Index:
    """How far event time has come, how what is remembered is spread, and where forgetting has got to."""

    watermark: int = BEGINNING
    shards: int = 1
    sizes: dict[int, int] = field(default_factory=dict)
    swept: int = 0
    swept_at: int = BEGINNING

    @classmethod
    def load(cls, state: Segments) -> _Index:
        saved = state.get(_INDEX)
        if saved is None:
            return cls()
        record = record_from_bytes(saved)
        return cls(**{**record, "sizes": {int(shard): size for shard, size in record["sizes"].items()}})

    def save(self, state: Segments) -> None:
        state.put(_INDEX, record_to_bytes(asdict(self)))

    def name(self, shard: int) -> str:
        return f"newest/{shard}"


def _read(state: Segments, name: str) -> pl.DataFrame | None:
    saved = state.get(name)
    return None if saved is None else frame_from_bytes(saved)


def _write(state: Segments, name: str, rows: pl.DataFrame) -> None:
    if rows.height:
        state.put(name, frame_to_bytes(rows))
    else:
        state.delete(name)


def _judged(rows: pl.DataFrame, watermark: int) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
    """Split rows into those in time, those behind the watermark, and those without a time; mostly all are in time."""
    times = rows.get_column(EVENT_TIME).to_physical()
    timeless = late = None
    if times.null_count():
        timeless = rows.filter(times.is_null()).with_columns(pl.lit("event_time is null").alias("reason"))
        rows = rows.filter(times.is_not_null())
        times = rows.get_column(EVENT_TIME).to_physical()
    behind = times < watermark
    if behind.any():
        mark = pl.lit(watermark, dtype=pl.Int64)
        late = rows.filter(behind).with_columns(
            (mark - pl.col(EVENT_TIME).to_physical()).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(INSTANT).alias("watermark"),
        )
        rows = rows.filter(~behind)
    return rows, late, timeless
