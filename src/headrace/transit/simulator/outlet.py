"""The way out of the simulator: Headrace's producer, with a fast way to hand over many events at once."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from headrace.broker.connection import kafka_error
from headrace.broker.producer import Producer

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence
    from types import TracebackType

    from headrace.broker import Connection
    from headrace.broker.producer import Headers

_PATIENCE = 60.0


class KafkaOutlet(Producer):
    """Sends keyed events to Kafka: idempotent, acknowledged by all replicas, in order per key.

    When the local buffer is full, `send_all` waits for room: a slow broker slows the feed down, it does not make it
    forget. An event that could not be delivered is an error, raised by the next call.

    Args:
        connection: Where Kafka is.
        stop: Ends a wait for room.
    """

    def __init__(self, connection: Connection, *, stop: threading.Event) -> None:
        super().__init__(connection, client_id="headrace-feed", delivery_timeout=_PATIENCE)
        self._stop = stop

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # What went wrong should be seen now, not after a minute of trying to deliver the rest.
            self.discard()

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
        # The loop of `send` without its options: this is the busiest line of the simulator.
        produce = self._client.produce if headers is None else partial(self._client.produce, headers=list(headers))
        sent = 0
        try:
            for key, value in zip(keys, values, strict=True):
                try:
                    produce(topic, value, key)
                except BufferError:
                    if not self._wait_for_room():
                        return sent
                    produce(topic, value, key)
                sent += 1
        except KafkaException as error:
            raise self._error(kafka_error(error), topic) from error
        self.poll()
        return sent

    def _wait_for_room(self) -> bool:
        """Wait until a good part of the buffer is free; False if the feed is to stop."""
        enough = len(self) * 9 // 10
        deadline = time.monotonic() + _PATIENCE
        while len(self) > enough:
            if self._stop.is_set():
                return False
            if time.monotonic() > deadline:
                raise self._watch.explain()
            self.poll(0.05)
        return True
