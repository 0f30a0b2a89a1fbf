"""The way out of the simulator: Headrace's producer, which a feed that is stopped does not wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from headrace.kafka.producer import Producer

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from types import TracebackType

    from headrace.kafka import Connection
    from headrace.kafka.producer import Compression, Headers


class KafkaOutlet:
    """Sends keyed events to Kafka: idempotent, acknowledged by all replicas, in order per key.

    When the local buffer is full, `send_all` waits for room: a slow broker slows the feed down, it does not make it
    forget. An event that could not be delivered is an error, raised by the next call.

    Args:
        connection: Where Kafka is.
        stop: Ends a wait for room.
        compression: How batches are compressed; "none" takes a third less of our time and more of the network and disk.
    """

    def __init__(self, connection: Connection, *, stop: threading.Event, compression: Compression = "lz4") -> None:
        self._producer = Producer(connection, client_id="headrace-feed", compression=compression)
        self._stop = stop

    def send_all(
        self, topic: str, keys: Sequence[str], values: Sequence[bytes], *, headers: Headers | None = None
    ) -> int:
        """Hand over events; waits while the buffer is full.

        Args:
            topic: Where they go.
            keys: Of each event.
            values: Of each event.
            headers: Of every event.

        Returns:
            How many were handed over: all of them, unless the feed was stopped during a wait.

        Raises:
            BrokerError: One of these or of those before cannot be delivered.
        """
        return self._producer.send_all(topic, values, keys=keys, headers=headers, stop=self._stop)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything is delivered, or raise."""
        self._producer.flush(timeout)

    def __len__(self) -> int:
        """How many events were handed over and are not delivered yet."""
        return len(self._producer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._producer.close()
        else:
            # What went wrong should be seen now, not after a minute of trying to deliver the rest.
            self._producer.discard()
