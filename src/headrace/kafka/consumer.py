"""Reading topics from a point in time, without a consumer group.

A `Consumer` is for looking: the command `tail`, tests, a sink that reads its own commit notes. It is told where to
start (the beginning, the end, a time, or offsets), sees committed records only, and ends at what was there when it
started or follows what comes. It leaves no trace in the cluster. Jobs read with Spark.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Consumer as Client

from headrace.errors import BrokerError
from headrace.kafka.connection import Connection, ErrorWatch, kafka_error
from headrace.kafka.topics import missing_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

Start = Literal["beginning", "end"] | int | Mapping[tuple[str, int], int]
"""The beginning or end of the topics, microseconds since the epoch, or an offset for each (topic, partition)."""

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001
_NO_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
#: What a broker answers for a partition that is being created or moves to another broker.
_MOVING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
#: Seconds to wait for a partition to be led by somebody.
_LEADER_PATIENCE = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record as Kafka holds it.

    Args:
        topic: Where it is.
        partition: Its partition.
        offset: Its place there.
        timestamp: Its time, in microseconds since the epoch.
        key: What it is about, if anything.
        value: What it says; None if it marks its key as deleted.
        headers: Fields beside the value.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def header(self, name: str) -> bytes | None:
        """The last header of that name, None if there is none.

        >>> record = Record(topic="t", partition=0, offset=0, timestamp=0, key=None, value=b"", headers=(("a", b"1"),))
        >>> record.header("a")
        b'1'
        """
        return next((value for key, value in reversed(self.headers) if key == name), None)


class Consumer:
    """Reads topics, record by record.

    Args:
        connection: How to reach Kafka.
        topics: What to read.
        start: Where to start.
        follow: Whether to go on when the end is reached, and wait for more.
        committed: Whether to leave out records of transactions that are under way or were given up.
        patience: Seconds for which Kafka may be gone before reading fails.

    Attributes:
        positions: The offset at which each (topic, partition) begins; negative for the beginning or the end.

    Raises:
        BrokerError: Kafka cannot be reached, or there is no such topic.

    >>> with Consumer(Connection(bootstrap="127.0.0.1:9092"), ["input.dead-letter"]) as consumer:  # doctest: +SKIP
    ...     for record in consumer:
    ...         record.offset, record.value
    """

    def __init__(
        self,
        connection: Connection,
        topics: Sequence[str],
        *,
        start: Start = "beginning",
        follow: bool = False,
        committed: bool = True,
        patience: float = 30.0,
    ) -> None:
        self._follow = follow
        self._watch = ErrorWatch(connection, patience=patience)
        self._client = Client(
            connection.client_config(
                group_id="headrace.no-group",  # asked for by the client, never used: partitions are assigned by hand
                enable_auto_commit=False,
                auto_offset_reset="error",
                isolation_level="read_committed" if committed else "read_uncommitted",
                fetch_wait_max_ms=100,
                fetch_min_bytes=1,
                allow_auto_create_topics=False,
            )
            | {"error_cb": self._watch, "enable.partition.eof": True}
        )
        try:
            partitions = self._partitions(connection, topics)
            self._unread = {(p.topic, p.partition) for p in partitions}
            places = self._positions(partitions, start)
            self.positions = {(place.topic, place.partition): place.offset for place in places}
            self._client.assign(places)
        except BaseException:
            self._client.close()
            raise

    def _partitions(self, connection: Connection, topics: Sequence[str]) -> list[TopicPartition]:
        connection.check(timeout=10)  # fails sooner than this client would, and says why
        try:
            metadata = self._client.list_topics(timeout=10)
        except KafkaException as error:
            raise self._watch.explain(kafka_error(error)) from error
        for topic in topics:
            if topic not in metadata.topics:
                raise missing_topic(topic, metadata.topics)
        return [TopicPartition(topic, number) for topic in topics for number in metadata.topics[topic].partitions]

    def _positions(self, partitions: Sequence[TopicPartition], start: Start) -> list[TopicPartition]:
        if isinstance(start, Mapping):
            return [
                TopicPartition(p.topic, p.partition, start.get((p.topic, p.partition), OFFSET_BEGINNING))
                for p in partitions
            ]
        if start == "beginning":
            return [TopicPartition(p.topic, p.partition, OFFSET_BEGINNING) for p in partitions]
        try:
            ends = self._ask_leaders(lambda: self._ends(partitions))
            if start == "end":
                return ends
            # Kafka looks for the first record that is not older, in milliseconds: round up, not to get one that is.
            milliseconds = -(-start // 1000)
            found = self._ask_leaders(lambda: self._at_time(partitions, milliseconds))
        except KafkaException as error:
            raise self._watch.explain(kafka_error(error)) from error
        # No record is so new yet: begin where the partition ended before the question.
        return [end if place.offset == OFFSET_END else place for place, end in zip(found, ends, strict=True)]

    def _ends(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Tell where partitions end now.

        The client itself would look for an end when it begins to fetch, and skip what was written in between.
        """
        return [
            TopicPartition(p.topic, p.partition, self._client.get_watermark_offsets(p, timeout=15)[1])
            for p in partitions
        ]

    def _at_time(self, partitions: Sequence[TopicPartition], milliseconds: int) -> list[TopicPartition]:
        """Tell where the first record of each partition is that is not older than a time."""
        asked = [TopicPartition(p.topic, p.partition, milliseconds) for p in partitions]
        found = self._client.offsets_for_times(asked, timeout=15)
        for place in found:
            if place.error is not None:  # told by partition, not raised
                raise KafkaException(place.error)
        return found

    def _ask_leaders(self, ask: Callable[[], list[TopicPartition]]) -> list[TopicPartition]:
        """Ask the leaders of partitions, and once more while they change: right after a topic was created they do."""
        deadline = time.monotonic() + _LEADER_PATIENCE
        while True:
            try:
                return ask()
            except KafkaException as error:
                if kafka_error(error).code() not in _MOVING or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)
            self._client.list_topics(timeout=10)  # the client learns who leads

    def read(self, *, limit: int = 1000, timeout: float = 1.0) -> list[Record]:
        """Read what is there.

        Args:
            limit: How many records at most.
            timeout: Seconds to wait for the first of them.

        Returns:
            Records in the order of their partitions; empty when there were none in time, or at the end (see `done`).

        Raises:
            BrokerError: Kafka is gone, or a record is.
        """
        deadline = time.monotonic() + timeout
        records: list[Record] = []
        while not records and not self.done:
            left = deadline - time.monotonic()
            first = self._client.poll(min(max(left, 0.0), 0.25))
            if first is None:
                self._watch.check(self._client)
                if left <= 0:
                    break
                continue
            # The first is worth waiting for; the others are taken if they are there.
            for message in (first, *self._client.consume(limit - 1, timeout=0)):
                self._take(message, records)
        return records

    def _take(self, message: Message, records: list[Record]) -> None:
        place = (message.topic() or "", message.partition() or 0)
        error = message.error()
        if error is None:
            # Behind the end of a partition there may be more by now: not ours unless we follow.
            if self._follow or place in self._unread:
                records.append(_record(message))
        elif error.code() == _EOF:
            self._unread.discard(place)
        elif error.code() == _NO_GROUP:
            pass  # the client asks for the group that it was named, though nobody uses one
        else:
            raise self._error(error, message)

    @property
    def done(self) -> bool:
        """Whether everything up to the end was read; never so when following."""
        return not self._follow and not self._unread

    def __iter__(self) -> Iterator[Record]:
        while not self.done:
            yield from self.read()

    def close(self) -> None:
        """End reading."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _error(self, error: KafkaError, message: Message) -> BrokerError:
        code = error.code()
        where = f"{message.topic()} partition {message.partition()}"
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):  # noqa: SLF001
            return BrokerError(f"Topic {message.topic()} is gone: it was deleted while it was read")
        if code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):  # noqa: SLF001
            return BrokerError(
                f"The offset asked for in {where} is not there: {error.str()}",
                hint="Its records may have expired. Start at the beginning, or at a later time.",
            )
        return BrokerError(f"Cannot read {where}: {error.str()}")


def _record(message: Message) -> Record:
    _, milliseconds = message.timestamp()
    return Record(
        topic=message.topic() or "",
        partition=message.partition() or 0,
        offset=message.offset() or 0,
        timestamp=milliseconds * 1000,
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple((header[0], _bytes(header[1])) for header in message.headers() or ()),
    )


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
