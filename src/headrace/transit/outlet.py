"""The way out of the simulator: a Kafka producer that loses nothing silently."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaException, Producer

from headrace.broker import Topics
from headrace.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from confluent_kafka import KafkaError, Message

    from headrace.broker import Connection, TopicSpec

#: Seconds that Kafka may be away before an event counts as lost.
_PATIENCE = 60.0


class KafkaOutlet:
    """Sends keyed events to Kafka: idempotent, acknowledged by all replicas, in order per key.

    Sending is asynchronous. When the local buffer is full, `send` waits for room: a slow broker slows the feed down, it
    does not make it forget. An event that could not be delivered is an error, raised by the next call.

    Args:
        connection: Where Kafka is.
        topics: Topics to create if they are missing.
    """

    def __init__(self, connection: Connection, *, topics: Sequence[TopicSpec] = ()) -> None:
        connection.check()
        Topics(connection).ensure(topics)
        self._bootstrap = connection.bootstrap
        self._failed = 0
        self._reason = ""
        settings = connection.client_config()
        self._producer = Producer(
            settings
            | {
                "enable.idempotence": True,
                "linger.ms": 10,
                "batch.size": 262_144,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 400_000,
                "queue.buffering.max.kbytes": 262_144,
                "delivery.timeout.ms": int(_PATIENCE * 1000),
                # The partitioner of Kafka's Java clients, so that every client puts a vehicle into the same partition.
                "partitioner": "murmur2_random",
                # A callback per event would cost as much as sending it.
                "delivery.report.only.error": True,
                "on_delivery": self._undelivered,
            }
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            # Something else went wrong: give up what is unsent rather than hide that error behind a long wait.
            self._producer.purge()
        self._producer.flush(5)

    @property
    def waiting(self) -> int:
        """Events that were handed over and are not delivered yet."""
        return len(self._producer)

    def send(self, topic: str, keys: Sequence[str], values: Sequence[bytes]) -> None:
        """Hand over events; waits while the buffer is full."""
        produce = self._producer.produce
        for key, value in zip(keys, values, strict=True):
            while True:
                try:
                    produce(topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
                    self._check()
                except KafkaException as error:
                    raise BrokerError(
                        f"Kafka did not take an event for {topic}: {error.args[0].str()}",
                        hint="The producer cannot go on; start the feed again.",
                    ) from error
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Wait until everything is delivered."""
        left = self._producer.flush(_PATIENCE)
        self._check()
        if left:
            raise BrokerError(
                f"{left:,} events are still not delivered to {self._bootstrap} after {_PATIENCE:.0f} s",
                hint="Is the broker up and has it room? `headrace broker status` tells.",
            )

    def _undelivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed += 1
            self._reason = self._reason or f"{error.str()} (topic {message.topic()})"

    def _check(self) -> None:
        if self._failed:
            raise BrokerError(
                f"Kafka at {self._bootstrap} did not take {self._failed:,} events: {self._reason}",
                hint="See that the broker is up and that the topic exists; `headrace doctor` checks both.",
            )
