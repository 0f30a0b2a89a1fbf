"""Deduplication: the first of several equal rows passes, the others are dropped.

Two rows are the same if they have the same key and their event times are less than `within` apart. The first to
*arrive* passes, whatever the order of the times; what passed is remembered for as long as a row that may equal it can
still be told: a row more than `within` behind the watermark is late, so a row that passed is forgotten when the
watermark is twice `within` past it. The answer depends on the order in which rows arrive, not on how they are cut into
batches.

What passed is kept in buckets of event time, `within` wide. A row can only equal rows of its own bucket and the two
beside it, so a turn reads the buckets near its rows, appends one chunk to those it adds to, and merges chunks only when
many have gathered.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import EVENT_TIME, Outcome
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.duration import text
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

_INDEX = "index"
_TIME, _NUMBER, _BUCKET, _CLUSTER = "#time", "#number", "#bucket", "#cluster"

#: A bucket's chunks are merged into one when there are more than this.
MAX_CHUNKS = 8
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
        index = _Index.load(state)
        passed = late = dismissed = None
        if turn.rows.height:
            timeless = pl.col(EVENT_TIME).is_null()
            dismissed = turn.rows.filter(timeless).with_columns(pl.lit("event_time is null").alias("reason"))
            behind = pl.col(EVENT_TIME).to_physical() < index.watermark - self.within
            late = self._late(turn.rows.filter(behind), index.watermark)
            passed = self._pass(state, index, turn.rows.filter(~behind))
        index.watermark = max(index.watermark, turn.watermark)
        self._forget(state, index)
        index.save(state)
        return Outcome(rows=_some(passed), late=_some(late), dismissed=_some(dismissed))

    def _late(self, rows: pl.DataFrame, watermark: int) -> pl.DataFrame:
        mark = pl.lit(watermark, dtype=pl.Int64)
        return rows.with_columns(
            (mark - self.within - pl.col(EVENT_TIME).to_physical()).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(INSTANT).alias("watermark"),
        )

    def _pass(self, state: Segments, index: _Index, rows: pl.DataFrame) -> pl.DataFrame:
        time = pl.col(EVENT_TIME).to_physical()
        arrived = rows.select(*self.keys, time.alias(_TIME)).with_row_index(_NUMBER)
        new = self._unlike(arrived, self._remembered(state, index, arrived))
        fresh = self._first_ones(new)
        self._remember(state, index, fresh)
        return rows[fresh.get_column(_NUMBER).sort()]

    def _remembered(self, state: Segments, index: _Index, arrived: pl.DataFrame) -> pl.DataFrame | None:
        near = {
            bucket + step
            for bucket in (arrived.get_column(_TIME) // self.within).unique().to_list()
            for step in (-1, 0, 1)
        }
        chunks = [chunk for bucket in sorted(near & index.buckets.keys()) for chunk in index.read(state, bucket)]
        return pl.concat(chunks) if chunks else None

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

    def _remember(self, state: Segments, index: _Index, fresh: pl.DataFrame) -> None:
        parts = fresh.select(*self.keys, _TIME, (pl.col(_TIME) // self.within).alias(_BUCKET)).partition_by(
            _BUCKET, as_dict=True, include_key=False, maintain_order=True
        )
        for (bucket,), part in parts.items():
            index.append(state, int(bucket), part)

    def _forget(self, state: Segments, index: _Index) -> None:
        # The last time of a bucket is one before the next begins; a row at least as old as the horizon equals nothing.
        horizon = index.watermark - 2 * self.within
        for bucket in [each for each in index.buckets if (each + 1) * self.within <= horizon]:
            index.drop(state, bucket)


@dataclass
class _Index:
    """Which buckets there are, in how many chunks."""

    watermark: int
    next_chunk: int
    buckets: dict[int, list[int]]

    @classmethod
    def load(cls, state: Segments) -> _Index:
        saved = state.get(_INDEX)
        if saved is None:
            return cls(BEGINNING, 0, {})
        record = record_from_bytes(saved)
        buckets = {int(bucket): chunks for bucket, chunks in record["buckets"].items()}
        return cls(record["watermark"], record["next_chunk"], buckets)

    def save(self, state: Segments) -> None:
        buckets = {str(bucket): chunks for bucket, chunks in self.buckets.items()}
        record = {"watermark": self.watermark, "next_chunk": self.next_chunk, "buckets": buckets}
        state.put(_INDEX, record_to_bytes(record))

    def read(self, state: Segments, bucket: int) -> list[pl.DataFrame]:
        frames = []
        for chunk in self.buckets[bucket]:
            value = state.get(f"passed/{bucket}/{chunk}")
            if value is None:
                raise StateError(
                    f"chunk passed/{bucket}/{chunk} of the rows that passed is missing",
                    hint="The checkpoint is incomplete; restore it, or start the job afresh.",
                )
            frames.append(frame_from_bytes(value))
        return frames

    def append(self, state: Segments, bucket: int, rows: pl.DataFrame) -> None:
        if len(self.buckets.get(bucket, ())) >= MAX_CHUNKS:
            rows = pl.concat([*self.read(state, bucket), rows])
            self.drop(state, bucket)
        state.put(f"passed/{bucket}/{self.next_chunk}", frame_to_bytes(rows))
        self.buckets.setdefault(bucket, []).append(self.next_chunk)
        self.next_chunk += 1

    def drop(self, state: Segments, bucket: int) -> None:
        for chunk in self.buckets.pop(bucket):
            state.delete(f"passed/{bucket}/{chunk}")


def _some(frame: pl.DataFrame | None) -> pl.DataFrame | None:
    return frame if frame is not None and frame.height else None
