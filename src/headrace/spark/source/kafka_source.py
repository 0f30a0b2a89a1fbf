"""The source of a query: Kafka's partitions, read and turned into exchange rows in one Python call per task.

Spark plans batches of offsets and notes them in its checkpoint; the tasks read the offsets themselves and run the Arrow
stage on what they read, so an event never passes through Java (docs/adr/0012 says what that saves). The time of a batch
is planned with its offsets: a batch that is repeated after a crash reads the same events and hears the same time.

A batch has two times. `now` is the machine's clock, which may be set; it never goes back here. `steady` is what
idleness is measured by: it starts as `now` does and goes on by the monotonic clock.

Partitions are listed for every batch, after their ends were asked for. So a partition that is not listed was added
after everything that the batch reads, and no event of it can be behind the batch's watermark for that reason. A new
one holds the watermark back from the batch that first lists it, and is read from its beginning.

When nothing comes in, time alone makes a batch once a second, so that idle partitions, processing-time triggers and
time-outs work without new events.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition

from headrace.kafka.ranges import LogEnds, Place, Range, lost, shared_reader
from headrace.savepoints.durable_files import write_durably
from headrace.spark.checkpoint.positions import Position
from headrace.spark.session.worker import settle
from headrace.spark.source.exchange import SPARK_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from headrace.kafka import Connection
    from headrace.spark.source.advice import Advice, AdviceFile
    from headrace.spark.source.arrow_stage import ArrowStage
    from headrace.spark.stages.shipping import Packed

#: Without events, time makes a batch this often, in microseconds.
BEAT = 1_000_000
#: A batch smaller than this is one task: a second one costs more than it saves.
_ROWS_FOR_A_TASK = 2_000
#: How long to wait for events before Spark is told that there are none; else it asks a hundred times a second.
_WAIT_SECONDS = 0.05
_ASK_SECONDS = 0.005
_FORMAT = "headrace-kafka"
#: What is assumed of a record that nobody has seen one like: the longest that Kafka takes by default.
_LONGEST = 1 << 20

Starting = Literal["earliest", "latest"] | int
Offsets = dict[str, dict[str, int]]
"""By topic and by partition, as Spark notes it."""


@dataclass
class Reading(InputPartition):
    """What one task reads.

    Args:
        ranges: The offsets.
        now: The time of the batch, None for one that has none.
        steady: The same by the clock that idleness is measured with.
        added: Partitions that the batch is the first to know of.
    """

    ranges: tuple[Range, ...]
    now: int | None
    steady: int | None = None
    added: tuple[Place, ...] = ()


@dataclass(frozen=True)
class KafkaPlan:
    """What there is to read and what to do with it.

    Args:
        connection: How to reach Kafka.
        topics: What to read.
        stage: What tasks do with it; what it has learnt of the schemas stays in the process.
        tasks: How many tasks run side by side.
        starting: Where a query without a checkpoint begins; a number is a time in microseconds.
        beginning: Where that is noted: a first batch that is repeated must begin where it did.
        advice: Where the driver tells how to plan batches; None: each reads all that is there.
        cadence: Seconds from one batch to the next at least.
        stops: Where results are out beyond the checkpoint, in order: batches end exactly there, with that time.
        whole: Those of the stops whose batch must come again in one piece, since a part of it is out.
    """

    connection: Connection
    topics: tuple[str, ...]
    stage: Packed[ArrowStage]
    tasks: int
    starting: Starting = "earliest"
    beginning: Path | None = None
    advice: AdviceFile | None = None
    cadence: float = 0.0
    stops: tuple[Position, ...] = ()
    whole: tuple[Position, ...] = ()

    def read(self, reading: Reading) -> Iterator[pa.RecordBatch]:
        """Read one task's part."""
        settle()
        stage = self.stage.open()
        chunks = shared_reader(self.connection).read(reading.ranges, parts=stage.reads)
        yield stage(chunks, reading.now, steady=reading.steady, added=reading.added)


class KafkaStreamReader(DataSourceStreamReader):
    """Plans batches; lives in a process of its own beside the driver."""

    def __init__(self, plan: KafkaPlan) -> None:
        self._plan = plan
        self._checked = False
        self._planned: float | None = None
        self._records = 0

    @cached_property
    def _log(self) -> LogEnds:
        return LogEnds(self._plan.connection)

    @cached_property
    def _places(self) -> list[Place]:
        """The partitions that are known; a topic may get more of them while it is read (`_list_again`)."""
        return self._log.partitions(self._plan.topics)

    def _list_again(self) -> list[Place]:
        self._places = list(dict.fromkeys([*self._places, *self._log.partitions(self._plan.topics)]))
        return self._places

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Tell where a query without a checkpoint begins; the same again when it is asked again."""
        path = self._plan.beginning
        if path is not None and path.exists():
            return Position.from_dict(json.loads(path.read_text("utf-8"))).to_dict()
        first: dict[str, Any] = {"offsets": _by_topic(self._first()), "now": _now()}
        if path is not None:
            write_durably(path, json.dumps(first))
        return first

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's signature
        """Plan the next batch; the same offset again means that there is none."""
        # Spark's limit is that of the start of the query; ours follows what batches took.
        advice = self._plan.advice.read() if self._plan.advice is not None else None
        early = self._early(advice)
        time.sleep(min(early, _WAIT_SECONDS))
        if early > _WAIT_SECONDS:
            return start  # it will ask again; a query that is to stop is not kept waiting
        begin = self._begin(start)
        stop = self._next_stop(start)
        if stop is not None:
            return self._up_to(stop, begin, start, advice)
        ends = self._wait_for_more(begin, start)
        planned = time.monotonic()
        now, steady = self._times(start, planned)
        if ends == begin and steady - _steady(start) < BEAT:
            return start
        bounded = ends if advice is None else self._bounded(begin, ends, advice)
        # Partitions that are listed only now are known from this batch on, and read from the next one on.
        offsets = dict.fromkeys(self._list_again(), 0) | bounded
        self._planned = planned
        return {"offsets": _by_topic(offsets), "now": now, "steady": steady}

    def _up_to(
        self, stop: Position, begin: dict[Place, int], start: dict[str, Any], advice: Advice | None
    ) -> dict[str, Any]:
        """Plan a batch that ends where results are out, or before it where that is too much for one batch.

        It has the times of the stop, not of now: no window may end earlier than it did when its results went out.
        """
        self._check(begin, self._log.ends(self._places) | self._unread(begin))
        # Partitions that were added later are not made known yet: they would hold the watermark back.
        known = _flat(start["offsets"])
        places = dict.fromkeys([*known, *((topic, partition) for topic, partition, _ in stop.places())])
        ends = {place: max(known.get(place, 0), stop.at(*place)) for place in places}
        # A batch of which a part is out must come again as it was.
        whole = any(stop.matches(end) for end in self._plan.whole)
        bounded = ends if advice is None or whole else self._bounded(known, ends, advice)
        steady = stop.now if stop.steady is None else stop.steady
        return {
            "offsets": _by_topic(bounded),
            "now": max(stop.now, start["now"]),
            "steady": max(steady, _steady(start)),
        }

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Tell where the partitions end, for the backlog."""
        return {"offsets": _by_topic(self._log.ends(self._places))}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Share a batch out among tasks."""
        begin, until = _flat(start["offsets"]), _flat(end["offsets"])
        ranges = [Range(*place, begin.get(place, 0), offset) for place, offset in until.items()]
        parts = shared_out(ranges, self._plan.tasks, end["now"], _steady(end))
        # One task is enough to make new partitions known; every key group hears of it.
        parts[0].added = tuple(place for place in until if place not in begin)
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's part; runs in a worker."""
        assert isinstance(partition, Reading)  # noqa: S101 - what `partitions` made
        return self._plan.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept until a batch is out."""

    def _first(self) -> dict[Place, int]:
        starting = self._plan.starting
        if isinstance(starting, int):
            return self._log.at(self._places, starting)
        return self._log.begins(self._places) if starting == "earliest" else self._log.ends(self._places)

    def _begin(self, start: dict[str, Any]) -> dict[Place, int]:
        begin = _flat(start["offsets"])
        # A partition that was added since then begins at its beginning.
        return {place: begin.get(place, 0) for place in dict.fromkeys([*begin, *self._places])}

    def _unread(self, begin: dict[Place, int]) -> dict[Place, int]:
        """Tell the offsets of topics that are not read now: only jobs read them that may come back."""
        return {place: offset for place, offset in begin.items() if place[0] not in self._plan.topics}

    def _bounded(self, begin: dict[Place, int], ends: dict[Place, int], advice: Advice) -> dict[Place, int]:
        """Bound a batch by events and bytes.

        Lengths are estimated from the batches before. Where nothing is known of a partition, and where a batch reads a
        backlog or much more than the last one, some of its records are looked at first: a batch is noted before it is
        read, so one that is too large would be repeated for ever.
        """
        planned = limited(begin, ends, advice.most)
        if advice.most_bytes is None:
            return planned
        sizes = {_place(name): size for name, size in advice.record_bytes.items()}
        unknown = [place for place, end in planned.items() if end > begin.get(place, 0) and place not in sizes]
        if not unknown:
            planned = limited(begin, planned, None, most_bytes=advice.most_bytes, sizes=sizes)
        burst = planned != ends or _count(begin, planned) > 2 * self._records
        if unknown or burst:
            planned = self._fitting(begin, planned, advice.most_bytes, sizes)
        # Where batches without events come between, the next one is no burst.
        self._records = max(_count(begin, planned), self._records // 2)
        return planned

    def _fitting(
        self, begin: dict[Place, int], planned: dict[Place, int], most_bytes: int, sizes: dict[Place, int]
    ) -> dict[Place, int]:
        """Shorten a batch until records that are looked at in it say that it fits.

        Down to a quarter of its records at a time: long ones near its end say nothing of those before them.
        """
        while _count(begin, planned) * _LONGEST > most_bytes:
            seen = dict(sizes)
            for place, size in self._sampled(begin, planned):
                seen[place] = max(size, seen.get(place, 0))
            fitting = limited(begin, planned, None, most_bytes=most_bytes, sizes=seen)
            quarter = limited(begin, planned, _count(begin, planned) // 4)
            if _count(begin, fitting) >= _count(begin, quarter):
                return fitting
            planned = quarter
        return planned

    def _sampled(self, begin: dict[Place, int], ends: dict[Place, int]) -> Iterator[tuple[Place, int]]:
        """Look at the first, the middle and the last record of each partition, and tell how long each is."""
        ranges = [(place, begin.get(place, 0), end) for place, end in ends.items() if end > begin.get(place, 0)]
        for part in (0.0, 0.5, 1.0):
            offsets = [(place, start + int((end - 1 - start) * part)) for place, start, end in ranges]
            reader = shared_reader(self._plan.connection, ahead=False)
            for chunk in reader.read([Range(*place, at, at + 1) for place, at in offsets]):
                yield (chunk.topic, chunk.partition), chunk.bytes

    def _next_stop(self, start: dict[str, Any]) -> Position | None:
        """Tell the first stop that lies ahead."""
        here = Position.from_dict(start)
        return next((stop for stop in self._plan.stops if not here.includes(stop)), None)

    def _early(self, advice: Advice | None) -> float:
        """Tell how many seconds too early it is for a batch: in view of windows that end soon, or by the cadence.

        Spark could keep the cadence itself, but by a clock that may be set back: it would wait for that hour.
        """
        since = math.inf if self._planned is None else time.monotonic() - self._planned
        foreseen = None
        if advice is not None:
            foreseen = advice.wait(_now(), 0 if self._planned is None else int(since * 1e6))
        return max(0.0, self._plan.cadence - since) if foreseen is None else foreseen / 1e6

    def _times(self, start: dict[str, Any], moment: float) -> tuple[int, int]:
        """Tell processing time and steady time.

        Args:
            start: What the batch before was planned with.
            moment: What the monotonic clock says.
        """
        wall = _now()
        if self._planned is None:
            # The first batch of a process: the monotonic clock does not say how long the query was away.
            return max(wall, start["now"]), max(wall, _steady(start))
        elapsed = int((moment - self._planned) * 1e6)
        # If the clock was set back, processing time goes on at half speed until the clock has caught up.
        return max(wall, start["now"] + elapsed // 2), _steady(start) + elapsed

    def _wait_for_more(self, begin: dict[Place, int], start: dict[str, Any]) -> dict[Place, int]:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            ends = self._log.ends(self._places) | self._unread(begin)
            self._check(begin, ends)
            moment = time.monotonic()
            _, steady = self._times(start, moment)
            if ends != begin or steady - _steady(start) >= BEAT or moment > deadline:
                return ends
            time.sleep(_ASK_SECONDS)

    def _check(self, begin: dict[Place, int], ends: dict[Place, int]) -> None:
        """See that Kafka still holds what comes next; expiry is asked for once, since a task notices it later."""
        for (topic, partition), offset in begin.items():
            end = ends.get((topic, partition))
            if end is None or end < offset:
                what = "is gone" if end is None else f"ends at offset {end}, before offset {offset}"
                raise lost(f"{topic} partition {partition}", what)
        if not self._checked:
            for (topic, partition), first in self._log.begins(self._places).items():
                wanted = begin.get((topic, partition), first)
                if first > wanted:
                    gone = f"offsets {wanted} to {first - 1} have expired"
                    raise lost(f"{topic} partition {partition}", gone)
            self._checked = True


class KafkaRangeReader(DataSourceReader):
    """Reads closed ranges of offsets, for a batch."""

    def __init__(self, plan: KafkaPlan, ranges: Sequence[Range]) -> None:
        self._plan = plan
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Share the ranges out among tasks."""
        return list(shared_out(self._ranges, self._plan.tasks, None, None))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one task's part; runs in a worker."""
        assert isinstance(partition, Reading)  # noqa: S101 - what `partitions` made
        return self._plan.read(partition)


def limited(
    begin: Mapping[Place, int],
    ends: Mapping[Place, int],
    most: int | None,
    *,
    most_bytes: int | None = None,
    sizes: Mapping[Place, int] | None = None,
) -> dict[Place, int]:
    """Bound a batch: each partition gives the same share of what it holds, so that their event times stay together.

    Args:
        begin: Where the batch begins.
        ends: Where the partitions end.
        most: The most records; None: any number.
        most_bytes: The most bytes; None: any number.
        sizes: How long a record of each partition is; one that nothing is known of is taken for 1 MiB.

    >>> limited({("t", 0): 0, ("t", 1): 100}, {("t", 0): 1000, ("t", 1): 400}, most=130)
    {('t', 0): 100, ('t', 1): 130}
    >>> limited({("t", 0): 0}, {("t", 0): 7}, most=None)
    {('t', 0): 7}
    >>> limited({("t", 0): 0}, {("t", 0): 1000}, most=500, most_bytes=100_000, sizes={("t", 0): 1_000})
    {('t', 0): 100}
    """
    records = {place: end - begin.get(place, 0) for place, end in ends.items()}
    total = sum(records.values())
    share = 1.0
    if most is not None and total > most:
        share = most / total
    if most_bytes is not None:
        known = sizes or {}
        size = sum(count * known.get(place, _LONGEST) for place, count in records.items())
        if size > most_bytes:
            share = min(share, most_bytes / size)
    if share == 1.0:
        return dict(ends)
    # A partition that has records gives one at least, or it would hold the others' event time back.
    return {
        place: min(end, begin.get(place, 0) + max(1, int(records[place] * share))) if records[place] > 0 else end
        for place, end in ends.items()
    }


def shared_out(ranges: Sequence[Range], tasks: int, now: int | None, steady: int | None = None) -> list[Reading]:
    """Share ranges out among tasks so that each has about the same to read; there is always one to tell the time.

    >>> one, two = shared_out([Range("t", 0, 0, 90_000), Range("t", 1, 0, 50_000), Range("t", 2, 5, 60_005)], 2, now=7)
    >>> [each.partition for each in one.ranges], [each.partition for each in two.ranges]
    ([0], [2, 1])
    >>> len(shared_out([Range("t", 0, 0, 10), Range("t", 1, 0, 10)], 2, now=7))
    1
    """
    wanted = sorted((each for each in ranges if len(each)), key=len, reverse=True)
    rows = sum(len(each) for each in wanted)
    count = max(1, min(tasks, len(wanted), rows // _ROWS_FOR_A_TASK))
    parts: list[list[Range]] = [[] for _ in range(count)]
    for each in wanted:
        min(parts, key=lambda part: sum(len(one) for one in part)).append(each)
    return [Reading(tuple(part), now, steady) for part in parts]


def backlogs_of(progress: Any) -> dict[Place, int] | None:
    """Tell how many events of each partition are in Kafka and not yet read; None where a query's progress is silent."""
    behind: dict[Place, int] = {}
    for source in progress.sources:
        latest, end = _told(source.latestOffset), _told(source.endOffset)
        if latest is None or end is None:
            return None
        read = _flat(end["offsets"])
        for place, last in _flat(latest["offsets"]).items():
            behind[place] = behind.get(place, 0) + max(0, last - read.get(place, 0))
    return behind


def offsets_of(progress: Any) -> list[tuple[str, int, int]]:
    """Tell up to where a query has read: topic, partition, offset."""
    told = (_told(source.endOffset) for source in progress.sources)
    return [(*place, offset) for end in told if end is not None for place, offset in _flat(end["offsets"]).items()]


def stream_rows(spark: SparkSession, plan: KafkaPlan) -> DataFrame:
    """Give the exchange rows of a running query."""
    name = _register(spark, plan, ())
    return spark.readStream.format(name).load()


def range_rows(spark: SparkSession, plan: KafkaPlan, ranges: Sequence[Range]) -> DataFrame:
    """Give the exchange rows of closed ranges."""
    name = _register(spark, plan, ranges)
    return spark.read.format(name).load()


def _register(spark: SparkSession, plan: KafkaPlan, ranges: Sequence[Range]) -> str:
    # The plan travels inside the class, as it travels inside a function elsewhere: options are text, and shown.
    class KafkaSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return _FORMAT

        def schema(self) -> str:
            return SPARK_SCHEMA

        def reader(self, schema: Any) -> DataSourceReader:  # noqa: ARG002 - Spark's signature
            return KafkaRangeReader(plan, ranges)

        def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's signature
            return KafkaStreamReader(plan)

    spark.dataSource.register(KafkaSource)
    return _FORMAT


def _count(begin: Mapping[Place, int], ends: Mapping[Place, int]) -> int:
    return sum(end - begin.get(place, 0) for place, end in ends.items())


def _place(name: str) -> Place:
    topic, _, number = name.rpartition("/")
    return topic, int(number)


def _told(offset: Any) -> dict[str, Any] | None:
    told = json.loads(offset) if isinstance(offset, str) and offset.startswith("{") else offset
    return told if isinstance(told, dict) and "offsets" in told else None


def _by_topic(offsets: Mapping[Place, int]) -> Offsets:
    told: Offsets = {}
    for (topic, partition), offset in sorted(offsets.items()):
        told.setdefault(topic, {})[str(partition)] = offset
    return told


def _flat(offsets: Offsets) -> dict[Place, int]:
    return {(topic, int(partition)): offset for topic, those in offsets.items() for partition, offset in those.items()}


def _steady(offset: Mapping[str, Any]) -> int:
    """Read steady time from an offset; one that was noted by an earlier version has processing time only."""
    steady: int = offset.get("steady", offset["now"])
    return steady


def _now() -> int:
    return time.time_ns() // 1_000
