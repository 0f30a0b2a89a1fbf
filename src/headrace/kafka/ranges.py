"""Closed ranges of offsets, read into Arrow as fast as the client can.

A job's task is told which offsets of which partitions it has to read. `RangeReader` gives them as chunks of values,
each of one partition and in its order. The client behind it is kept for the next task of the same process, since
connecting takes longer than reading a small batch. What a range holds never changes, so a task that is repeated reads
the same.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import groupby
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Consumer as Client
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.errors import BrokerError, StateError
from headrace.kafka.connection import Connection, ErrorWatch, kafka_error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.formats import RecordPart

#: Messages taken from the client at once: more do not fit the processor's caches.
_POLL = 10_000
#: Values of so many bytes are handed on together, however few they are: a task holds a few times as much at once.
CHUNK_BYTES = 32 << 20
#: What is fetched of a partition to look at one record; Kafka gives a whole set of records, however long it is.
_SAMPLE_BYTES = 1 << 18
_POLL_SECONDS = 0.01
#: When a broker does not know where a partition ends, it is asked again after this time.
_AGAIN_SECONDS = 0.05
_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
_NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
_GONE = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)  # noqa: SLF001
_partition, _value, _offset = methodcaller("partition"), methodcaller("value"), methodcaller("offset")
_key, _headers, _timestamp = methodcaller("key"), methodcaller("headers"), methodcaller("timestamp")
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
#: Milliseconds beyond this have no microseconds in 64 bits; a producer may send any number.
_MOST_MILLIS = 2**62 // 1_000
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)  # noqa: SLF001
#: What a broker says of a partition that was just added and that it does not serve yet.
_NOT_YET = (*_UNKNOWN, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION)
#: For so long it may say so.
_NOT_YET_SECONDS = 10.0

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets of one partition, from `start` to before `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Chunk:
    """Values of one partition, in its order.

    Args:
        topic: Where they are.
        partition: Its number.
        values: What the records say; null for one that marks its key as deleted.
        offsets: The place of each.
        keys: Their keys; None unless asked for.
        headers: Their headers as lists of structs of `key` and `value`; None unless asked for.
        timestamps: Kafka's timestamps in microseconds, UTC; None unless asked for.
    """

    topic: str
    partition: int
    values: pa.BinaryArray
    offsets: pa.Int64Array
    keys: pa.BinaryArray | None = None
    headers: pa.ListArray | None = None
    timestamps: pa.TimestampArray | None = None

    @property
    def bytes(self) -> int:
        """How long the values are together."""
        return int(pc.sum(pc.binary_length(self.values)).as_py() or 0)


class RangeReader:
    """Reads ranges.

    Args:
        connection: How to reach Kafka.
        patience: Seconds without any record before reading fails.
        buffer_bytes: The most that the client fetches ahead.
        ahead: Whether it fetches ahead at all; to look at single records takes a tenth of the time without.
    """

    def __init__(
        self, connection: Connection, *, patience: float = 60.0, buffer_bytes: int = 32 << 20, ahead: bool = True
    ) -> None:
        self._patience = patience
        # How many records a poll takes: as many as are surely not too long together, before their length is known.
        self._poll_records = CHUNK_BYTES >> 20
        self._watch = ErrorWatch(connection, patience=patience)
        self._client = Client(
            connection.client_config(
                group_id="headrace.no-group",  # asked for by the client, never used: partitions are assigned by hand
                enable_auto_commit=False,
                enable_auto_offset_store=False,
                auto_offset_reset="error",
                isolation_level="read_committed",
                allow_auto_create_topics=False,
                fetch_message_max_bytes=4 << 20 if ahead else _SAMPLE_BYTES,
                queued_max_messages_kbytes=buffer_bytes >> 10,
                queued_min_messages=100_000 if ahead else 1,
                # A fetch under way at the end of a partition holds up the next task's first one.
                fetch_wait_max_ms=10,
                fetch_queue_backoff_ms=5 if ahead else 0,
            )
            | {"error_cb": self._watch, "enable.partition.eof": True}
        )

    def read(
        self,
        ranges: Sequence[Range],
        *,
        rows: int = 100_000,
        parts: Mapping[str, frozenset[RecordPart]] | None = None,
    ) -> Iterator[Chunk]:
        """Read ranges.

        Args:
            ranges: What to read, at most one of each partition.
            rows: How many values a chunk has at most, about; it has fewer where they are longer than `CHUNK_BYTES`
                together.
            parts: What else to read of the records of a topic; values and offsets alone are read fastest.

        Raises:
            StateError: Kafka no longer holds what is asked for.
            BrokerError: Kafka is gone.
        """
        open_ranges = {(each.topic, each.partition): each for each in ranges if len(each)}
        wanted = parts or {}
        gathered: dict[Place, _Gathered] = {
            place: _Gathered(wanted.get(place[0], frozenset())) for place in open_ranges
        }
        if not open_ranges:
            return
        self._client.assign([TopicPartition(each.topic, each.partition, each.start) for each in open_ranges.values()])
        try:
            while open_ranges:
                for place, messages in self._poll(open_ranges).items():
                    part = gathered[place]
                    size = part.add(messages)
                    if messages:
                        self._poll_records = max(1, min(_POLL, CHUNK_BYTES * len(messages) // max(1, size)))
                    if messages and place in open_ranges:
                        # To ask for more than is left would be to wait for it.
                        open_ranges[place] = replace(open_ranges[place], start=(messages[-1].offset() or 0) + 1)
                    if place not in open_ranges or part.rows >= rows or part.bytes >= CHUNK_BYTES:
                        yield from part.take(*place)
            for place, part in gathered.items():
                yield from part.take(*place)
        finally:
            self._client.unassign()

    def _poll(self, open_ranges: dict[Place, Range]) -> dict[Place, list[Message]]:
        """Take what is there of the open ranges, and close those whose end was seen."""
        left = sum(len(each) for each in open_ranges.values())
        deadline = time.monotonic() + self._patience
        while not (messages := self._client.consume(min(self._poll_records, left), timeout=_POLL_SECONDS)):
            self._watch.check(self._client)
            if time.monotonic() > deadline:
                where = ", ".join(f"{topic}/{partition}" for topic, partition in open_ranges)
                raise BrokerError(
                    f"Kafka gave no record of {where} for {self._patience:.0f} s",
                    hint="See that the broker runs (headrace broker status), then start again.",
                )
        found: dict[Place, list[Message]] = {}
        for place, those in _by_place(messages, open_ranges).items():
            bounds = open_ranges.get(place)
            if bounds is not None:
                found[place] = self._within(place, bounds, those, open_ranges)
        return found

    def _within(
        self, place: Place, bounds: Range, messages: list[Message], open_ranges: dict[Place, Range]
    ) -> list[Message]:
        """Leave out what lies behind the end, notices that the end was reached, and errors, which are raised."""
        first, last = messages[0].offset() or 0, messages[-1].offset() or 0
        # Where the offsets have no gap there is no notice among them, unless at an end.
        whole = last - first == len(messages) - 1 and last < bounds.end - 1
        if whole and messages[0].error() is None and messages[-1].error() is None:
            return messages
        kept = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() == _NO_GROUP:
                    continue  # the client asks for the group that it was named, though nobody uses one
                if error.code() != _EOF:
                    raise read_error(error, place, bounds.start)
            elif (message.offset() or 0) < bounds.end:
                kept.append(message)
            # Control records and compaction leave gaps: the end is where something at or behind it shows up.
            if (message.offset() or 0) >= bounds.end - (error is None):
                open_ranges.pop(place, None)
        if place not in open_ranges and open_ranges:
            self._client.incremental_unassign([TopicPartition(*place)])
        return kept


class _Gathered:
    """What was read of one partition and not yet given away."""

    def __init__(self, parts: frozenset[RecordPart]) -> None:
        self.bytes = 0
        self._parts = parts
        self._keys: list[Any] = []
        self._headers: list[Any] = []
        self._timestamps: list[Any] = []
        self._values: list[Any] = []
        self._offsets: list[range | list[Any]] = []

    @property
    def rows(self) -> int:
        return len(self._values)

    def add(self, messages: list[Message]) -> int:
        """Take messages in, and tell how many bytes they hold."""
        # Messages hold on to the client's buffers: let go of them soon.
        values = list(map(_value, messages))
        self._values += values
        size = sum(map(len, filter(None, values)))
        self.bytes += size
        if "key" in self._parts:
            self._keys += map(_key, messages)
        if "headers" in self._parts:
            self._headers += map(_headers, messages)
        if "timestamp" in self._parts:
            self._timestamps += map(_timestamp, messages)
        if messages:
            first, last = messages[0].offset() or 0, messages[-1].offset() or 0
            gapless = last - first == len(messages) - 1
            self._offsets.append(range(first, last + 1) if gapless else list(map(_offset, messages)))
        return size

    def take(self, topic: str, partition: int) -> Iterator[Chunk]:
        if self._values:
            offsets = np.concatenate([np.asarray(part, np.int64) for part in self._offsets])
            yield Chunk(
                topic,
                partition,
                binary_array(self._values),
                pa.array(offsets),
                pa.array(self._keys, pa.binary()) if "key" in self._parts else None,
                _header_array(self._headers) if "headers" in self._parts else None,
                _timestamp_array(self._timestamps) if "timestamp" in self._parts else None,
            )
            self._values, self._offsets, self.bytes = [], [], 0
            self._keys, self._headers, self._timestamps = [], [], []


def _header_array(headers: list[Any]) -> pa.ListArray:
    rows = [None if those is None else [{"key": key, "value": value} for key, value in those] for those in headers]
    return pa.array(rows, _HEADERS)


def _timestamp_array(stamps: list[tuple[int, int]]) -> pa.TimestampArray:
    """Make instants of the client's pairs of kind and milliseconds; null where Kafka has none, or an absurd one."""
    kinds, millis = np.array(stamps, np.int64).reshape(-1, 2).T
    missing = (kinds == TIMESTAMP_NOT_AVAILABLE) | (np.abs(millis) > _MOST_MILLIS)
    micros = np.where(missing, 0, millis) * 1_000
    return pa.array(micros, pa.int64(), mask=missing).cast(pa.timestamp("us", "UTC"))


def binary_array(values: list[Any]) -> pa.BinaryArray:
    """Make an Arrow array of values; by joining them, which is several times as fast as one by one.

    >>> binary_array([b"ab", None, b""]).to_pylist()
    [b'ab', None, b'']
    >>> binary_array([b"ab", b"", b"c"]).to_pylist()
    [b'ab', b'', b'c']
    """
    if None in values:
        return pa.array(values, pa.binary())
    offsets = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise BrokerError(f"{len(values)} values are more than 2 GiB together", hint="Read fewer at once.")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(b"".join(values))]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def _by_place(messages: list[Message], open_ranges: Mapping[Place, Range]) -> dict[Place, list[Message]]:
    topics = {topic for topic, _ in open_ranges}
    found: dict[Place, list[Message]] = {}
    if len(topics) == 1:
        (topic,) = topics
        partitions = set(map(_partition, messages))
        if len(partitions) == 1:
            return {(topic, partitions.pop()): messages}
        for partition, those in groupby(messages, _partition):
            found.setdefault((topic, partition), []).extend(those)
    else:
        for message in messages:
            found.setdefault((message.topic() or "", message.partition() or 0), []).append(message)
    return found


def read_error(error: KafkaError, place: Place, start: int) -> StateError | BrokerError:
    """Say what it means that a range cannot be read."""
    where = f"{place[0]} partition {place[1]}"
    if error.code() in _GONE:
        return lost(where, f"offset {start} is not there any more")
    if error.code() in _UNKNOWN:
        return BrokerError(f"{where} is gone: the topic was deleted", hint="Create it anew and start with --fresh.")
    return BrokerError(f"cannot read {where}: {error.str()}", hint="See that the broker runs, then start again.")


def lost(where: str, what: str) -> StateError:
    """Say that Kafka no longer holds what a job wants to read next, and what can be done."""
    return StateError(
        f"Kafka no longer holds what the job wants to read next: {where}: {what}",
        hint="The topic was made anew, or what it held has expired. Start afresh (--fresh) to begin with what is "
        "there; what is gone cannot be counted.",
    )


_readers: list[tuple[Connection, bool, RangeReader]] = []


def shared_reader(connection: Connection, *, ahead: bool = True) -> RangeReader:
    """Give the reader that this process keeps for a connection.

    Args:
        connection: How to reach Kafka.
        ahead: See `RangeReader`.
    """
    for known, way, reader in _readers:
        if known == connection and way == ahead:
            return reader
    _readers.append((connection, ahead, RangeReader(connection, ahead=ahead)))
    return _readers[-1][2]


class LogEnds:
    """Asks where partitions begin and end.

    Args:
        connection: How to reach Kafka.
        timeout: Seconds to wait for an answer.
    """

    def __init__(self, connection: Connection, *, timeout: float = 30.0) -> None:
        self._watch = ErrorWatch(connection)
        self._admin = AdminClient(connection.client_config() | {"error_cb": self._watch})
        self._timeout = timeout
        self._answered: set[Place] = set()
        self._listed: set[str] = set()

    def partitions(self, topics: Sequence[str]) -> list[Place]:
        """List the partitions of topics.

        Only these topics are asked for, so it costs little in a large cluster. A topic that was listed before is asked
        for again for some seconds when it is missing: a broker that has just come up may not know it yet.
        """
        deadline = time.monotonic() + min(_NOT_YET_SECONDS, self._timeout)
        while True:
            found = self._described(topics)
            missing = [topic for topic in topics if topic not in found]
            if not missing:
                self._listed |= found.keys()
                return [(topic, number) for topic in topics for number in found[topic]]
            if time.monotonic() > deadline or not self._listed.issuperset(missing):
                raise BrokerError(
                    f"a topic is missing: {', '.join(missing)}",
                    hint="Create the topics (headrace topics create), or name the broker that has them (--bootstrap).",
                )
            time.sleep(_AGAIN_SECONDS)

    def _described(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """Ask for the partitions of topics; a topic that Kafka does not know is left out."""
        if not topics:
            return {}
        asked = self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=self._timeout)
        found: dict[str, list[int]] = {}
        for topic, future in asked.items():
            try:
                found[topic] = sorted(partition.id for partition in future.result().partitions)
            except KafkaException as error:
                if kafka_error(error).code() not in _UNKNOWN:
                    raise self._watch.explain(kafka_error(error)) from error
        return found

    def ends(self, places: Sequence[Place]) -> dict[Place, int]:
        """Tell the offset behind the last committed record of each partition."""
        return self._known(places, OffsetSpec.latest())  # type: ignore[no-untyped-call]

    def at(self, places: Sequence[Place], time: int) -> dict[Place, int]:
        """Tell the first offset that is not older than a time, in microseconds; the end where there is none."""
        found = self._ask(places, OffsetSpec.for_timestamp(-(-time // 1000)))
        ends = self.ends(places)
        return {place: offset if offset >= 0 else ends[place] for place, offset in found.items()}

    def begins(self, places: Sequence[Place]) -> dict[Place, int]:
        """Tell the first offset that each partition still holds."""
        return self._known(places, OffsetSpec.earliest())  # type: ignore[no-untyped-call]

    def _known(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        """Ask until there is an answer: a broker that has just come up may say that it does not know."""
        deadline = time.monotonic() + self._timeout
        while True:
            found = self._ask(places, spec)
            unknown = sorted(place for place, offset in found.items() if offset < 0)
            if not unknown:
                return found
            if time.monotonic() > deadline:
                topic, partition = unknown[0]
                raise BrokerError(
                    f"Kafka does not say where {topic} partition {partition} begins and ends",
                    hint="Is the broker that leads the partition running?",
                )
            time.sleep(_AGAIN_SECONDS)

    def _ask(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        deadline = time.monotonic() + min(_NOT_YET_SECONDS, self._timeout)
        while True:
            asked = self._admin.list_offsets(
                {TopicPartition(*place): spec for place in places},
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            )
            try:
                found = {(each.topic, each.partition): int(future.result().offset) for each, future in asked.items()}
            except KafkaException as error:
                self._refuse(places, error, deadline)
                time.sleep(_AGAIN_SECONDS)
            else:
                self._answered |= found.keys()
                return found

    def _refuse(self, places: Sequence[Place], error: KafkaException, deadline: float) -> None:
        """Raise what it means that offsets are not told, unless there is a partition that is not served yet."""
        code = kafka_error(error).code()
        if code in _NOT_YET and time.monotonic() < deadline and not self._answered.issuperset(places):
            return
        if code in _UNKNOWN:
            raise BrokerError(
                f"a topic is gone: {', '.join(sorted({topic for topic, _ in places}))}",
                hint="Create it anew (headrace topics create) and start with --fresh.",
            ) from error
        raise self._watch.explain(kafka_error(error)) from error
