"""Topics: declared, created, compared, listed, deleted.

A job declares the topics it reads and writes as `TopicSpec`s. `Topics.ensure` creates what is missing and reports
what is there but different; it never changes or deletes a topic that holds data. Nothing creates a topic by accident,
since the embedded broker does not make them on first use.

Names follow one scheme: `input.*` is what comes in, `analytics.*` what jobs make of it. Beside them stand the topics
for what does not fit: `input.dead-letter` for messages that cannot be decoded, `<result>.late` for events that came
too late.
"""

from __future__ import annotations

import difflib
import re
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType
from confluent_kafka.cimpl import NewTopic

from headrace.errors import BrokerError, ConfigError, StateError
from headrace.kafka.connection import AccessError, Connection, ErrorWatch, kafka_error
from headrace.time.duration import DAY, HOUR, micros

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future
    from datetime import timedelta

    _Condition = Callable[[dict[str, int]], bool]

CleanupPolicy = Literal["delete", "compact", "compact,delete"]
Compression = Literal["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]

DEAD_LETTERS = "input.dead-letter"
"""Where messages go that cannot be decoded."""

COMMITS = "headrace.commits"
"""Where exactly-once sinks note which batches are out; compacted, so that the last note of each key stays."""

FOREVER = -1
"""For `TopicSpec.retention`: keep everything."""

#: What a partition says of itself that was made a moment ago: it has no leader yet, or has not heard who it is.
_NOT_LED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_LEADER_EPOCH)
#: Copies of a new topic where nobody says how many and there are as many brokers.
_USUAL_COPIES = 3
_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")


def late_topic(result: str) -> str:
    """The topic for events that came too late for a job.

    >>> late_topic("analytics.vehicle-distribution")
    'analytics.vehicle-distribution.late'
    """
    return f"{result}.late"


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """A topic as it should be.

    Args:
        name: Its name.
        partitions: How many partitions; at least as many as tasks are to read it side by side.
        retention: How long records are kept: "7d", a timedelta, microseconds, or `FOREVER`; the broker's own setting
            if not given.
        cleanup: What happens to old records: deleted, or compacted to the last one of each key.
        compression: How the broker stores records; "producer" keeps what the producer chose.
        max_message_bytes: The largest batch it takes, the broker's own setting if not given.
        replication: How many copies; those of the connection if not given. Each copy needs a broker of its own.
        min_insync_replicas: How many copies must have a record before it counts as written; as the connection says if
            not given.

    Raises:
        ConfigError: The name or a number is not legal.

    >>> TopicSpec(name="input.vehicle-position", retention="1h").config()["retention.ms"]
    '3600000'
    >>> TopicSpec(name="input/vehicle")
    Traceback (most recent call last):
    headrace.errors.ConfigError: The topic name 'input/vehicle' is not legal. Use letters, digits, '.', '_' and '-', ...
    """

    name: str
    partitions: int = 4
    retention: str | timedelta | int | None = None
    cleanup: CleanupPolicy = "delete"
    compression: Compression = "producer"
    max_message_bytes: int | None = None
    replication: int | None = None
    min_insync_replicas: int | None = None

    def __post_init__(self) -> None:
        if not _LEGAL_NAME.fullmatch(self.name) or self.name in (".", ".."):
            raise ConfigError(
                f"The topic name {self.name!r} is not legal",
                hint="Use letters, digits, '.', '_' and '-', at most 249 of them.",
            )
        for what, number in (("copies", self.replication), ("copies in sync", self.min_insync_replicas)):
            if number is not None and number < 1:
                raise ConfigError(f"Topic {self.name} has {number} {what}", hint="Give at least 1.")
        if self.partitions < 1:
            raise ConfigError(f"Topic {self.name} has {self.partitions} partitions", hint="Give at least 1.")
        kept = None if self.retention is None else micros(self.retention, what=f"retention of topic {self.name}")
        if kept is not None and kept != FOREVER and kept < 1000:
            raise ConfigError(f"Topic {self.name} keeps records for {self.retention}", hint="Give at least 1ms.")

    def config(self) -> dict[str, str]:
        """The topic's settings in Kafka's words, without those that are left to the broker."""
        settings: dict[str, str] = {"cleanup.policy": self.cleanup}
        if self.compression != "producer":
            settings["compression.type"] = self.compression
        if self.retention is not None:
            kept = micros(self.retention)
            settings["retention.ms"] = str(kept if kept == FOREVER else kept // 1000)
            if kept != FOREVER:
                # A segment is deleted as a whole, when its newest record has expired: it must not collect for longer.
                settings["segment.ms"] = str(min(kept, 7 * DAY) // 1000)
        if self.max_message_bytes is not None:
            settings["max.message.bytes"] = str(self.max_message_bytes)
        if self.min_insync_replicas is not None:
            settings["min.insync.replicas"] = str(self.min_insync_replicas)
        if "compact" in self.cleanup:
            # The active segment is never compacted. Without this, a slow topic would wait a week.
            settings["segment.ms"] = str(HOUR // 1000)
        return settings


def dead_letter_spec(*, name: str = DEAD_LETTERS, partitions: int = 1) -> TopicSpec:
    """The topic for messages that cannot be decoded: kept for long, since somebody has to look at them.

    Args:
        name: Its name.
        partitions: How many partitions; there should be little in it.
    """
    return TopicSpec(name=name, partitions=partitions, retention="30d", compression="zstd")


def late_spec(result: str, *, partitions: int = 1) -> TopicSpec:
    """The topic for events that came too late for a job.

    Args:
        result: The job's result topic.
        partitions: How many partitions.
    """
    return TopicSpec(name=late_topic(result), partitions=partitions, retention="30d", compression="zstd")


def commit_spec(*, name: str = COMMITS) -> TopicSpec:
    """The topic where exactly-once sinks note which batches are out.

    Args:
        name: Its name.
    """
    return TopicSpec(name=name, partitions=1, cleanup="compact")


@dataclass(frozen=True, kw_only=True)
class TopicDifference:
    """A setting of an existing topic that is not as declared."""

    topic: str
    setting: str
    declared: str
    actual: str

    def __str__(self) -> str:
        return f"topic {self.topic} has {self.setting} {self.actual}, but {self.declared} is declared"


@dataclass(frozen=True, kw_only=True)
class Ensured:
    """What `Topics.ensure` did and found."""

    created: tuple[str, ...] = ()
    existing: tuple[str, ...] = ()
    differences: tuple[TopicDifference, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PartitionInfo:
    """A partition and the offsets it holds: `[earliest, latest)`."""

    partition: int
    earliest: int
    latest: int

    @property
    def count(self) -> int:
        """How many offsets it holds: records, and the marks of transactions; fewer records if it is compacted."""
        return self.latest - self.earliest


@dataclass(frozen=True, kw_only=True)
class TopicInfo:
    """A topic as it is."""

    name: str
    partitions: tuple[PartitionInfo, ...]
    config: Mapping[str, str] = field(default_factory=dict)
    replication: int = 1

    @property
    def count(self) -> int:
        """How many offsets all partitions hold; see `PartitionInfo.count`."""
        return sum(partition.count for partition in self.partitions)


class Topics:
    """The topics of a Kafka cluster.

    Args:
        connection: How to reach it.
        timeout: Seconds to wait for an answer.

    >>> topics = Topics(Connection(bootstrap="127.0.0.1:9092"))  # doctest: +SKIP
    >>> topics.ensure([TopicSpec(name="input.vehicle-position"), dead_letter_spec()])  # doctest: +SKIP
    Ensured(created=('input.vehicle-position', 'input.dead-letter'), existing=(), differences=())
    """

    def __init__(self, connection: Connection, *, timeout: float = 15.0) -> None:
        self._connection = connection
        self._watch = ErrorWatch(connection)
        self._admin = AdminClient(connection.client_config() | {"error_cb": self._watch})
        self._timeout = timeout

    def ensure(self, specs: Iterable[TopicSpec], *, strict: bool = False) -> Ensured:
        """Create the topics that are missing, and compare those that are there.

        Args:
            specs: The topics as they should be.
            strict: Whether a difference is an error.

        Raises:
            BrokerError: A topic cannot be created, or (if `strict`) differs.
        """
        wanted = {spec.name: spec for spec in specs}
        present = self._partitions()
        missing = [spec for name, spec in wanted.items() if name not in present]
        created = self._create([self._with_copies(spec) for spec in missing])
        existing = [name for name in wanted if name not in created]
        differences = self._compare([self._as_declared(wanted[name]) for name in existing])
        if strict and differences:
            raise BrokerError(
                "; ".join(map(str, differences)).capitalize(),
                hint="Change the declaration, or delete the topic (with its data) to have it made anew.",
            )
        return Ensured(created=tuple(created), existing=tuple(existing), differences=tuple(differences))

    def require(self, names: Iterable[str]) -> None:
        """See that topics are there.

        Raises:
            BrokerError: One is missing; names what is most like it.
        """
        present = self._partitions()
        for name in names:
            if name not in present:
                raise missing_topic(name, present)

    def overview(self, *, internal: bool = False) -> list[TopicInfo]:
        """All topics by name, with the offsets they hold.

        Args:
            internal: Whether to list Kafka's own topics, too.
        """
        names = [name for name in self._partitions() if internal or not name.startswith("__")]
        return self._describe(sorted(names))

    def held(self, name: str) -> TopicInfo:
        """A topic with its offsets alone, for whoever may not ask for its settings.

        Raises:
            BrokerError: There is no such topic.
        """
        self.require([name])
        (info,) = self._describe([name])
        return info

    def missing(self, names: Iterable[str]) -> list[str]:
        """Tell which topics are not there."""
        present = self._partitions()
        return [name for name in names if name not in present]

    def get(self, name: str) -> TopicInfo:
        """A topic with its offsets and settings.

        Raises:
            BrokerError: There is no such topic.
        """
        self.require([name])
        (info,) = self._describe([name])
        return replace(info, config=self._configs([name])[name])

    def require_compacted(self, name: str) -> None:
        """See that a topic keeps the last record of each key for ever.

        Raises:
            StateError: Its records expire.
            AccessError: We may not see its settings.
            BrokerError: There is no such topic, or Kafka does not answer.
        """
        self.require([name])
        policy = self._configs([name])[name].get("cleanup.policy", "")
        if policy != "compact":
            raise StateError(
                f"topic {name} is not compacted (cleanup.policy is {policy or 'not set'}): the notes in it about which "
                "batches are out expire, and results would then be written twice",
                hint="Change it, nothing in it is lost by that: kafka-configs.sh --bootstrap-server "
                f"{self._connection.bootstrap} --alter --entity-type topics --entity-name {name} "
                "--add-config cleanup.policy=compact",
            )

    def ids(self, names: Sequence[str]) -> dict[str, str]:
        """The identity that Kafka gave to each topic: one that is deleted and made anew has another.

        Raises:
            BrokerError: There is no such topic.
        """
        self.require(names)
        futures = self._admin.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        return {
            name: str(self._await(future, f"Cannot describe topic {name}").topic_id) for name, future in futures.items()
        }

    def await_stable(self, name: str, *, timeout: float = 90.0) -> None:
        """Wait until a reader of committed records sees all that was committed to a topic so far.

        A transaction that nobody has ended hides everything behind its first record from such readers, also what
        others have committed since. Kafka ends it at its time-out.

        Args:
            name: The topic.
            timeout: Seconds to wait; above the longest time-out of a transaction.

        Raises:
            BrokerError: A transaction is still open after that time, or Kafka does not answer.
        """
        pairs = [TopicPartition(name, partition) for partition in range(self._partitions().get(name, 0))]
        ends = self._offsets(pairs, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        deadline = time.monotonic() + timeout
        while True:
            stable = self._offsets(pairs, OffsetSpec.latest(), committed=True)  # type: ignore[no-untyped-call]
            if all(stable[place] >= end for place, end in ends.items()):
                return
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"Topic {name} has had an open transaction for {timeout:g} s, which hides what came after it",
                    hint="Kafka's own tool can end it: kafka-transactions.sh find-hanging, then abort.",
                )
            time.sleep(0.05)

    def delete(self, names: Sequence[str]) -> None:
        """Delete topics with all their data, and wait until they are gone.

        Raises:
            BrokerError: One is missing or cannot be deleted.
        """
        self.require(names)
        futures = self._admin.delete_topics(list(names), request_timeout=self._timeout)
        for name, future in futures.items():
            self._await(future, f"Cannot delete topic {name}")
        self._until(lambda present: not present.keys() & set(names), f"{', '.join(names)} to disappear")

    def _as_declared(self, spec: TopicSpec) -> TopicSpec:
        """Add what was set for all topics to a declaration."""
        ours = self._connection
        return replace(
            spec,
            replication=ours.replication if spec.replication is None else spec.replication,
            min_insync_replicas=(
                ours.min_insync_replicas if spec.min_insync_replicas is None else spec.min_insync_replicas
            ),
        )

    def _with_copies(self, spec: TopicSpec) -> TopicSpec:
        """Complete a declaration for a new topic: Kafka's own default is one copy, also on a cluster of many brokers.

        Raises:
            BrokerError: There are fewer brokers than copies.
            ConfigError: More copies must have a record than there are.
        """
        spec = self._as_declared(spec)
        brokers = len(self._metadata().brokers)
        copies = min(brokers, _USUAL_COPIES) if spec.replication is None else spec.replication
        if copies > brokers:
            raise BrokerError(
                f"Cannot create topic {spec.name} with {copies} copies: Kafka at {self._connection.bootstrap} has "
                f"{brokers} broker{'s' if brokers > 1 else ''}",
                hint=f"Each copy needs a broker of its own: lower the replication (broker.replication) to {brokers}.",
            )
        needed = spec.min_insync_replicas
        if needed is None and copies >= _USUAL_COPIES:
            needed = _USUAL_COPIES - 1
        if needed is not None and needed > copies:
            raise ConfigError(
                f"Topic {spec.name} would have {copies} cop{'ies' if copies > 1 else 'y'}, of which {needed} must have "
                "each record: nothing could be written to it",
                hint="Lower broker.min_insync_replicas, or raise broker.replication (up to the number of brokers).",
            )
        return replace(spec, replication=copies, min_insync_replicas=needed)

    def _create(self, specs: Sequence[TopicSpec]) -> list[str]:
        if not specs:
            return []
        new = [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=-1 if spec.replication is None else spec.replication,
                config=spec.config(),
            )
            for spec in specs
        ]
        created: list[str] = []
        for name, future in self._admin.create_topics(new, request_timeout=self._timeout).items():
            # Somebody else may have created it in the meantime; it is compared like any other, then.
            if self._await(future, f"Cannot create topic {name}", accept=(KafkaError.TOPIC_ALREADY_EXISTS,)):
                created.append(name)
        # The answer comes before every broker knows the topic: whoever produces at once would not find it.
        wanted = {spec.name for spec in specs}
        self._until(lambda present: wanted <= present.keys(), f"{', '.join(wanted)} to be ready")
        return created

    def _compare(self, specs: Sequence[TopicSpec]) -> list[TopicDifference]:
        if not specs:
            return []
        metadata = self._metadata()
        present = _ready(metadata)
        configs = self._configs([spec.name for spec in specs])
        differences: list[TopicDifference] = []
        for spec in specs:
            pairs = [("partitions", str(spec.partitions), str(present.get(spec.name, 0)))]
            if spec.replication is not None:
                pairs.append(("replication", str(spec.replication), str(_copies(metadata, spec.name))))
            config = configs[spec.name]
            pairs += [(key, value, config.get(key, "")) for key, value in spec.config().items()]
            differences += [
                TopicDifference(topic=spec.name, setting=setting, declared=declared, actual=actual)
                for setting, declared, actual in pairs
                if declared != actual
            ]
        return differences

    def _describe(self, names: Sequence[str]) -> list[TopicInfo]:
        metadata = self._metadata()
        present = _ready(metadata)
        pairs = [TopicPartition(name, partition) for name in names for partition in range(present.get(name, 0))]
        earliest = self._offsets(pairs, OffsetSpec.earliest())  # type: ignore[no-untyped-call]
        latest = self._offsets(pairs, OffsetSpec.latest())  # type: ignore[no-untyped-call]
        return [
            TopicInfo(
                name=name,
                partitions=tuple(
                    PartitionInfo(
                        partition=partition, earliest=earliest[name, partition], latest=latest[name, partition]
                    )
                    for partition in range(present.get(name, 0))
                ),
                replication=_copies(metadata, name),
            )
            for name in names
        ]

    def _offsets(
        self, pairs: Sequence[TopicPartition], spec: OffsetSpec, *, committed: bool = False
    ) -> dict[tuple[str, int], int]:
        if not pairs:
            return {}
        found: dict[tuple[str, int], int] = {}
        deadline = time.monotonic() + self._timeout
        asked = list(pairs)
        while asked:
            futures = self._admin.list_offsets(
                dict.fromkeys(asked, spec),
                request_timeout=self._timeout,
                isolation_level=IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED,
            )
            asked = []
            for pair, future in futures.items():
                # A topic that was just created is known before its partitions are led: ask those again.
                patient = _NOT_LED if time.monotonic() < deadline else ()
                answer = self._await(future, f"Cannot read the offsets of {pair.topic}", accept=patient)
                if answer is None:
                    asked.append(pair)
                else:
                    found[pair.topic, pair.partition] = answer.offset
            if asked:
                time.sleep(0.02)
        return found

    def _configs(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
        futures = self._admin.describe_configs(resources, request_timeout=self._timeout)
        return {
            resource.name: {
                key: entry.value
                for key, entry in self._await(future, f"Cannot read the settings of {resource.name}").items()
                if entry.value is not None
            }
            for resource, future in futures.items()
        }

    def _partitions(self) -> dict[str, int]:
        """The number of partitions of each topic that is ready for use."""
        return _ready(self._metadata())

    def _metadata(self) -> Any:
        try:
            return self._admin.list_topics(timeout=self._timeout)
        except KafkaException as error:
            self._admin.poll(0)
            raise self._watch.explain(kafka_error(error)) from error

    def _until(self, done: _Condition, what: str) -> None:
        deadline = time.monotonic() + self._timeout
        while not done(self._partitions()):
            if time.monotonic() > deadline:
                raise BrokerError(f"Kafka did not get {what} within {self._timeout:g} s", hint="Look at its log.")
            time.sleep(0.02)

    def _await(self, future: Future[Any], what: str, *, accept: Sequence[int] = ()) -> Any:
        try:
            return future.result(self._timeout + 5) or True
        except KafkaException as error:
            cause = kafka_error(error)
            if cause.code() in accept:
                return None
            if cause.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):  # noqa: SLF001
                self._admin.poll(0)
                raise self._watch.explain(cause) from error
            if cause.code() in _REFUSED:
                raise AccessError(
                    f"{what}: {cause.str()}", hint="Your user may not do this; ask who runs the cluster."
                ) from error
            raise BrokerError(f"{what}: {cause.str()}", hint=_HINTS.get(cause.code(), "")) from error


def _ready(metadata: Any) -> dict[str, int]:
    return {
        name: len(topic.partitions)
        for name, topic in metadata.topics.items()
        if topic.error is None and all(partition.leader >= 0 for partition in topic.partitions.values())
    }


def _copies(metadata: Any, name: str) -> int:
    """The fewest copies that a partition of a topic has."""
    topic = metadata.topics.get(name)
    return 0 if topic is None else min((len(each.replicas) for each in topic.partitions.values()), default=0)


_REFUSED = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
)
_HINTS = {
    KafkaError.INVALID_REPLICATION_FACTOR: "The cluster has fewer brokers; lower the replication of the topic.",
    KafkaError.POLICY_VIOLATION: "The cluster has rules for topics; ask who runs it.",
}


def missing_topic(name: str, present: Iterable[str]) -> BrokerError:
    """The error for a topic that is not there.

    Args:
        name: The topic that was asked for.
        present: The topics that are there.

    >>> missing_topic("input.vehicle", ["input.vehicles", "analytics.cells"]).hint
    'Did you mean input.vehicles? `headrace topics` lists all.'
    """
    like = difflib.get_close_matches(name, list(present), n=3)
    guess = f"Did you mean {' or '.join(like)}? " if like else ""
    return BrokerError(f"There is no topic {name}", hint=f"{guess}`headrace topics` lists all.")
