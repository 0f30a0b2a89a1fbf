"""The comparison: what the results hold against what the input calls for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from chaos.feed import LATE
from chaos.jobs import BOUND, TOPIC, expected, given, jobs
from headrace.events import Codec, TypeRegistry
from headrace.kafka import DEAD_LETTERS, Consumer
from headrace.time.instants import instant
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.kafka import Connection


@dataclass(frozen=True)
class Input:
    """All that the input topic holds.

    Args:
        events: Events that are in time.
        late: Vehicles of events that are not.
        rubbish: Values that are none, with their places.
    """

    events: pl.DataFrame
    late: Counter[str]
    rubbish: Counter[tuple[bytes, int, int]]

    @property
    def watermark(self) -> int:
        """How far event time comes with it."""
        ends = self.events.group_by("partition").agg(pl.col("event_time").max()).get_column("event_time")
        least: Any = ends.min()
        return instant(least - BOUND)


@dataclass
class Verdict:
    """What was found, per kind of output."""

    expected: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    duplicated: Counter[str] = field(default_factory=Counter)

    def add(self, what: str, wanted: Counter[Any], got: Counter[Any]) -> None:
        self.expected += wanted.total()
        self.lost[what] += (wanted - got).total()
        self.duplicated[what] += (got - wanted).total()

    @property
    def exact(self) -> bool:
        return self.expected > 0 and not self.lost.total() and not self.duplicated.total()


def read_input(connection: Connection) -> Input:
    with Consumer(connection, [TOPIC]) as consumer:
        records = list(consumer)
    values = pa.array([record.value for record in records], pa.binary())
    places = pa.array([record.partition * 2**40 + record.offset for record in records], pa.int64())
    batch = pa.RecordBatch.from_arrays([values, places], names=["value", "offset"])
    decoded = Codec(TypeRegistry(VehiclePosition)).decode(batch, keep=["offset"])
    (frame,) = decoded.frames.values()
    frame = frame.with_columns(partition=pl.col("kafka_offset").floordiv(2**40))
    is_late = pl.col("vehicle_id").str.starts_with(LATE)
    late = frame.filter(is_late)
    rubbish = Counter(
        (record.value or b"", record.partition, record.offset)
        for record in records
        if (record.value or b"").startswith(b"\xff")
    )
    in_time = frame.filter(~is_late)
    return Input(in_time, Counter(late.get_column("vehicle_id").to_list()), rubbish)


def judge(connection: Connection, read: Input, *, committed: bool) -> Verdict:
    """Compare all outputs with what the input calls for."""
    verdict = Verdict()
    wanted = expected(read.events)
    for job in jobs():
        name = job.name
        results = _read(connection, job.result_topic, committed=committed)
        # What comes after the last watermark of the input cannot be there; everything before must be.
        verdict.add(
            name,
            Counter({answer: n for answer, n in wanted.items() if answer[0] == name}),
            given(name, results) if results is not None else Counter(),
        )
        late = _read(connection, job.late_topic, committed=committed)
        got = Counter(late.get_column("key").to_list()) if late is not None else Counter()
        keys = read.late if name == "chaos-spread" else Counter({"1": read.late.total()} if read.late else {})
        verdict.add(f"{name}, late events", keys, got)
    dead = _read(connection, DEAD_LETTERS, committed=committed)
    places: Counter[Any] = Counter()
    if dead is not None:
        ours = dead.filter(pl.col("topic") == TOPIC)
        places = Counter(ours.select("value", "partition", "offset").iter_rows())
    verdict.add("dead letters", read.rubbish, places)
    return verdict


def _read(connection: Connection, topic: str, *, committed: bool) -> pl.DataFrame | None:
    with Consumer(connection, [topic], committed=committed) as consumer:
        values = [record.value for record in consumer]
    frames = Codec().decode(values).frames
    return next(iter(frames.values()), None)
