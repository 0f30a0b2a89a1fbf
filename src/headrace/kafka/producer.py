"""Writing to Kafka: every record arrives once and in order, or an error says that it did not.

`Producer` is for everything that may be repeated after a crash: ingestion, the simulator, dead letters. Within one
run it neither loses nor doubles a record (idempotent, acknowledged by all replicas). `TransactionalProducer` makes a
group of records, in any topics, visible at once or never, also over a crash; exactly-once sinks are made with it.

Both buffer. `send` returns at once as long as there is room, and waits (back-pressure) when there is not; a record that
cannot be delivered raises a `BrokerError` from a later call, `flush` at the latest.
"""

from __future__ import annotations

import contextlib
import itertools
import time
import warnings
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from headrace.errors import BrokerError
from headrace.kafka.connection import AccessError, Connection, ErrorWatch, kafka_error
from headrace.kafka.topics import missing_topic

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from confluent_kafka import Message

Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"

_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001
_UNKNOWN_PARTITION = KafkaError._UNKNOWN_PARTITION  # noqa: SLF001
_TIMED_OUT = (KafkaError._MSG_TIMED_OUT, KafkaError._TIMED_OUT, KafkaError._TRANSPORT)  # noqa: SLF001
_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)  # noqa: SLF001

_REFUSED = (
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class FencedError(BrokerError):
    """Another producer with the same transactional id has taken over; this one can write no more.

    Kafka says the same of a transaction that it ended itself at its time-out: who took over is for the caller to find
    out (`ExpiredError`).
    """


class ExpiredError(BrokerError):
    """Kafka ended a transaction at its time-out; nothing of it is visible, and it can be written again."""


class TimeoutTooLongError(BrokerError):
    """The broker does not allow transactions to stay open for so long."""


#: What Python says of a call in a library that failed and set no exception.
_LOST_EXCEPTION = "without setting an exception"


def _cause(error: KafkaException | SystemError) -> KafkaError:
    """What a client raised; a fatal error that comes while it calls us back is hidden behind a SystemError.

    Raises:
        SystemError: It is a real one.
    """
    if isinstance(error, SystemError):
        if isinstance(error.__cause__, KafkaException):
            return kafka_error(error.__cause__)
        if _LOST_EXCEPTION not in str(error):
            raise error
        # The client has lost what it wanted to raise; a fatal error is asked for once more (`_first_cause`).
        return KafkaError(KafkaError._FATAL, "Kafka's client failed without saying why", fatal=True)  # noqa: SLF001
    return kafka_error(error)


class Producer:
    """An idempotent producer.

    Args:
        connection: How to reach Kafka.
        client_id: A name for the broker's log.
        compression: How batches are compressed on their way and on the broker's disk.
        linger: Seconds to wait for more records before a batch is sent.
        delivery_timeout: Seconds within which a record must arrive, retries included.

    >>> with Producer(Connection(bootstrap="127.0.0.1:9092")) as producer:  # doctest: +SKIP
    ...     producer.send("input.vehicle-position", b"...", key=b"22/817")
    """

    def __init__(
        self,
        connection: Connection,
        *,
        client_id: str = "headrace",
        compression: Compression = "lz4",
        linger: float = 0.01,
        delivery_timeout: float = 60.0,
    ) -> None:
        self._connection = connection
        self._delivery_timeout = delivery_timeout
        self._watch = ErrorWatch(connection, patience=delivery_timeout)
        self._failed: KafkaError | None = None
        self._failed_topic = ""
        self._unpolled = 0
        self._discarded = False
        self._client = Client(
            connection.client_config(
                client_id=client_id,
                compression_type=compression,
                linger_ms=linger * 1000,
                delivery_timeout_ms=int(delivery_timeout * 1000),
                enable_idempotence=True,
                acks="all",
                # The broker's limit is what counts; ours would only be a second one.
                message_max_bytes=100_000_000,
                queue_buffering_max_messages=500_000,
                queue_buffering_max_kbytes=128 * 1024,
                batch_size=512 * 1024,
                # How long a topic may be unknown, right after it was created, before its records fail.
                topic_metadata_propagation_max_ms=3000,
                # Python is called for failures only: a call for each success would halve the throughput.
                **{"delivery.report.only.error": True},
                **self._transactional(),
            )
            | {"error_cb": self._watch, "on_delivery": self._on_delivery}
        )

    def _transactional(self) -> dict[str, str | float]:
        return {}

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._failed is None and not self._discarded:
            self._failed = error
            self._failed_topic = message.topic() or ""

    def send(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> None:
        """Hand over a record; waits while the buffer is full.

        Args:
            topic: Where it goes.
            value: What it says; None marks its key as deleted in a compacted topic.
            key: Records with the same key go to the same partition, in order.
            headers: Further fields beside the value.
            timestamp: Its time in microseconds since the epoch, now if not given; Kafka keeps milliseconds.
            partition: The partition, chosen by the key if not given.

        Raises:
            BrokerError: This or an earlier record cannot be delivered.
        """
        options: dict[str, Any] = {}
        if headers is not None:
            options["headers"] = list(headers)
        if timestamp is not None:
            options["timestamp"] = timestamp // 1000
        if partition is not None:
            options["partition"] = partition
        deadline = 0.0
        while True:
            try:
                self._client.produce(topic, value, key, **options)
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + self._delivery_timeout
                if now > deadline:
                    raise self._watch.explain() from None
                self.poll(0.1)
            except KafkaException as error:
                raise self._error(kafka_error(error), topic) from error
            else:
                break
        self._unpolled += 1
        if self._unpolled >= 1000:
            self.poll()

    def send_all(
        self,
        topic: str,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Headers | None = None,
        each_headers: Sequence[Headers] | None = None,
        stop: threading.Event | None = None,
    ) -> int:
        """Hand over many records at once, which is about three times as fast; waits while the buffer is full.

        Args:
            topic: Where they go.
            values: What they say; None for a tombstone.
            keys: Of each; None: they have none.
            headers: Of every record.
            each_headers: Of each record, beside those of every record.
            stop: Ends a wait for room.

        Returns:
            How many were handed over: all of them, unless `stop` was set during a wait.

        Raises:
            BrokerError: One of these or of those before cannot be delivered.
        """
        common: list[tuple[str, str | bytes | None]] = [] if headers is None else list(headers)
        produce = partial(self._client.produce, headers=common) if common else self._client.produce
        each_key = itertools.repeat(None, len(values)) if keys is None else keys
        sent = 0
        try:
            for place, (key, value) in enumerate(zip(each_key, values, strict=True)):
                if each_headers is not None:
                    produce = partial(self._client.produce, headers=[*common, *each_headers[place]])
                try:
                    produce(topic, value, key)
                except BufferError:
                    while True:
                        if not self._wait_for_room(stop):
                            return sent
                        with contextlib.suppress(BufferError):
                            produce(topic, value, key)
                            break
                sent += 1
        except KafkaException as error:
            raise self._error(kafka_error(error), topic) from error
        self.poll()
        return sent

    def _wait_for_room(self, stop: threading.Event | None) -> bool:
        """Wait until a good part of the buffer is free; False if the sender is to stop."""
        enough = len(self) * 9 // 10
        deadline = time.monotonic() + self._delivery_timeout
        while len(self) > enough:
            if stop is not None and stop.is_set():
                return False
            if time.monotonic() > deadline:
                raise self._watch.explain()
            self.poll(0.05)
        return True

    def poll(self, timeout: float = 0.0) -> None:
        """Let the client report; `send` does so now and then, a quiet producer should do so every second or so.

        Args:
            timeout: Seconds to wait for a report.

        Raises:
            BrokerError: A record could not be delivered.
        """
        self._unpolled = 0
        try:
            self._client.poll(timeout)
        except (KafkaException, SystemError) as error:
            raise self._error(_cause(error), "") from error
        self._raise_failure()

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything has arrived.

        Args:
            timeout: Seconds to wait, the delivery time-out and a little more if not given.

        Raises:
            BrokerError: Something could not be delivered, or not in time.
        """
        try:
            left = self._client.flush(self._delivery_timeout + 5 if timeout is None else timeout)
        except (KafkaException, SystemError) as problem:
            raise self._error(_cause(problem), "") from problem
        self._raise_failure()
        if left:
            error = self._watch.explain()
            raise BrokerError(f"{left} records are not delivered yet. {error.message}", hint=error.hint)

    def close(self) -> None:
        """Deliver what is buffered, and end.

        Raises:
            BrokerError: Something could not be delivered.
        """
        try:
            self.flush()
        finally:
            self.discard()

    def discard(self) -> None:
        """End at once, and drop what is still buffered."""
        self._discarded = True
        self._client.purge()
        # A transaction that cannot be given up any more ends by its time-out; nobody needs to hear of that. The client
        # may call back with an exception pending, which Python calls a SystemError.
        with contextlib.suppress(KafkaException, SystemError), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            self._client.flush(1)
            self._client.close()

    def __len__(self) -> int:
        """How many records are buffered or under way."""
        return len(self._client)

    def __bool__(self) -> bool:
        return True

    def _raise_failure(self) -> None:
        if self._failed is not None:
            error, self._failed = self._failed, None
            raise self._error(error, self._failed_topic)
        if self._watch.fatal is not None:
            raise self._error(self._watch.fatal, "")

    def _error(self, error: KafkaError, topic: str) -> BrokerError:
        if error.code() == KafkaError._FATAL:  # noqa: SLF001
            error = self._first_cause(error)
        code = error.code()
        if code in _FENCED:
            return FencedError(
                "Another producer has taken over the transactional id of this one, or Kafka has ended its transaction "
                f"at the time-out: {error.str()}",
                hint="If two jobs write with the same id, give one of them another name, or stop it.",
            )
        if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return TimeoutTooLongError(
                f"the transaction time-out of {self._connection.transaction_timeout:g} s is longer than Kafka at "
                f"{self._connection.bootstrap} allows (transaction.max.timeout.ms of the broker, 15 minutes if it is "
                "not set)",
                hint="Lower broker.transaction_timeout_ms, or ask who runs the cluster to raise the broker's limit.",
            )
        if code in _REFUSED:
            under = getattr(self, "transactional_id", "")
            what = (
                f"under the transactional id {under}" if code == _REFUSED[0] else f"to topic {topic}" if topic else ""
            )
            return AccessError(
                f"Kafka at {self._connection.bootstrap} does not allow {self._connection.sasl_username or 'us'!r} to "
                f"write {what}".rstrip(),
                hint="Ask who runs the cluster for the right; `headrace rights JOB` lists all that a job needs.",
            )
        if code in _UNKNOWN_TOPIC:
            return missing_topic(topic, self._topic_names())
        if code == _UNKNOWN_PARTITION:
            return BrokerError(f"Topic {topic} has no such partition", hint="`headrace topics` shows what it has.")
        if code == KafkaError.MSG_SIZE_TOO_LARGE:
            return BrokerError(
                f"A record is too large for topic {topic}: {error.str()}",
                hint="Raise max_message_bytes of the topic, or make records smaller.",
            )
        if code in _TIMED_OUT:
            names = self._topic_names() if topic else []
            if names and topic not in names:
                return missing_topic(topic, names)
            lost = self._watch.explain(error)
            if not topic:
                return lost
            what = f"Records for topic {topic} did not arrive within {self._delivery_timeout:g} s"
            if names:
                return BrokerError(
                    f"{what}, though Kafka at {self._connection.bootstrap} answers",
                    hint="It may be overloaded or just starting; its log may say more.",
                )
            return BrokerError(f"{what}. {lost.message}", hint=lost.hint)
        return BrokerError(f"Cannot write to {topic or 'Kafka'}: {error.str()}")

    def _first_cause(self, error: KafkaError) -> KafkaError:
        """Find out what was fatal: the client says so once, to who listens, and "fatal" ever after."""
        asked = self._ask_fatal()
        if asked is not None:
            return asked
        deadline = time.monotonic() + 1.0
        while self._watch.fatal is None and time.monotonic() < deadline:
            try:
                self._client.poll(0.05)
            except (KafkaException, SystemError) as told:
                cause = _cause(told)
                if cause.code() != KafkaError._FATAL:  # noqa: SLF001
                    return cause
        return self._watch.fatal or error

    def _ask_fatal(self) -> KafkaError | None:
        """What was fatal, if the client can be asked."""
        return None

    def _topic_names(self) -> list[str]:
        with contextlib.suppress(KafkaException):
            return list(self._client.list_topics(timeout=2).topics)
        return []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        # The error on its way matters more than what goes wrong now, and may be a Ctrl-C: do not wait for long.
        with contextlib.suppress(BrokerError, KafkaException):
            self.flush(2)
        self.discard()


#: Seconds that Kafka gets at least to make the first transaction of a producer ready.
_LEAST_TO_PREPARE = 10.0


class TransactionalProducer(Producer):
    """A producer whose records become visible in groups, or not at all.

    Starting a second one with the same id fences the first: a job that was thought dead and comes back can do no harm.
    Making the first transaction ready takes about half a second; keep the producer for the next ones.

    Args:
        connection: How to reach Kafka.
        transactional_id: A name that stays the same over restarts, one per writer.
        client_id: A name for the broker's log.
        compression: How batches are compressed on their way and on the broker's disk.
        linger: Seconds to wait for more records before a batch is sent.
        timeout: Seconds after which the broker gives up a transaction that nobody ends, and waits of ours end; that of
            the connection if not given.

    >>> producer = TransactionalProducer(connection, transactional_id="job-1")  # doctest: +SKIP
    >>> with producer.transaction():  # doctest: +SKIP
    ...     producer.send("analytics.cells", b"...")
    ...     producer.send("headrace.commits", b"...", key=b"job-1")
    """

    def __init__(
        self,
        connection: Connection,
        *,
        transactional_id: str,
        client_id: str = "headrace",
        compression: Compression = "lz4",
        linger: float = 0.0,
        timeout: float | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout = connection.transaction_timeout if timeout is None else timeout
        self._ready = False
        super().__init__(
            connection, client_id=client_id, compression=compression, linger=linger, delivery_timeout=self._timeout
        )

    def _transactional(self) -> dict[str, str | float]:
        return {"transactional.id": self.transactional_id, "transaction.timeout.ms": int(self._timeout * 1000)}

    def prepare(self) -> None:
        """Fence others with the same id, and finish what a crashed one left; `begin` does so if need be.

        Raises:
            BrokerError: Kafka cannot be reached or refuses.
        """
        if not self._ready:
            # A broker that is new first makes the topic of its transactions, however short ours may be.
            self._do(self._client.init_transactions, max(self._timeout, _LEAST_TO_PREPARE))
            self._ready = True

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            FencedError: Another producer has taken over.
            BrokerError: Kafka cannot be reached or refuses.
        """
        self.prepare()
        self._do(lambda _: self._client.begin_transaction(), self._timeout)

    def commit(self) -> None:
        """Make everything since `begin` visible; waits until all of it has arrived.

        Raises:
            FencedError: Another producer has taken over; nothing is visible.
            BrokerError: Something could not be delivered, or Kafka went away in between. Whether the records are
                visible can only be found out by reading; go on with a new producer.
        """
        self._do(self._client.commit_transaction, self._timeout)
        self._raise_failure()

    def abort(self, timeout: float | None = None) -> None:
        """Drop everything since `begin`.

        Args:
            timeout: Seconds to wait, the producer's time-out if not given.

        Raises:
            FencedError: Another producer has taken over; nothing is visible anyway.
            BrokerError: Kafka cannot be reached or refuses; it gives up the transaction by itself after the time-out.
        """
        self._do(self._client.abort_transaction, self._timeout if timeout is None else timeout)
        self._failed = None  # what failed is what was dropped

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """A block whose records become visible when it ends, and never if it raises.

        The one exception is an error while committing; see `commit`.
        """
        self.begin()
        try:
            yield self
            self.commit()
        except BaseException:
            # The first error is the one to see, and it may be a Ctrl-C. A fenced producer has nothing left to abort.
            with contextlib.suppress(BrokerError):
                self.abort(min(self._timeout, 5.0))
            raise

    def _ask_fatal(self) -> KafkaError | None:
        # A client that cannot go on answers every call about transactions with its first fatal error, also if the
        # exception that should have told it was lost while the client called us back.
        try:
            self._client.begin_transaction()
        except KafkaException as told:
            cause = kafka_error(told)
            return cause if cause.fatal() and cause.code() != KafkaError._FATAL else None  # noqa: SLF001
        return None

    def _do(self, step: Callable[[float], None], timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while True:
            try:
                step(max(0.1, deadline - time.monotonic()))
            except (KafkaException, SystemError) as error:
                cause = _cause(error)
                # A coordinator that has just started says so without marking it as worth another attempt.
                loading = cause.code() == KafkaError.COORDINATOR_LOAD_IN_PROGRESS
                if (cause.retriable() or loading) and time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                raise self._error(cause, "") from error
            return
