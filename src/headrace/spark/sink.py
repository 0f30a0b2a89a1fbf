"""The sink: the results of a batch go out in one Kafka transaction, with a token that says which batch it was.

Spark repeats a batch after a crash. The token of a batch is written to a compacted topic in the same transaction as
its results, so after a restart the topic tells whether the batch is already out; then it is not written again.
Readers with `read_committed` see every result once. A driver that was taken for dead is fenced by its transactional id.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.broker.consumer import Consumer
from headrace.broker.producer import TransactionalProducer
from headrace.broker.topics import COMMITS
from headrace.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.broker import Connection


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record on its way out."""

    topic: str
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Sink(Protocol):
    """Takes batches under a token."""

    def open(self) -> None:
        """Get ready to write; called once before the first batch."""
        ...

    def committed(self, batch: int) -> bool:
        """Tell whether a batch is already out."""
        ...

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:
        """Write a batch so that it is out as a whole, or not at all; return how many records it had."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


class KafkaSink:
    """Writes batches to Kafka in transactions.

    Args:
        connection: Where to write.
        query: Names the query among all that write to this Kafka.
        token: Names the checkpoint whose batch numbers count; a fresh start has another.
    """

    def __init__(self, connection: Connection, *, query: str, token: str) -> None:
        self._connection = connection
        self._query = query
        self._token = token
        self._producer: TransactionalProducer | None = None
        self._last = -1

    def open(self) -> None:
        """Fence whoever wrote under this name before, and read which batch was the last."""
        self._producer = TransactionalProducer(self._connection, transactional_id=f"headrace.{self._query}")
        self._producer.prepare()
        # Only now is it certain that nobody else adds a token: the one who wrote before is fenced.
        self._last = self._read_token()

    def committed(self, batch: int) -> bool:
        """Tell whether a batch is already out."""
        return batch <= self._last

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:
        """Write the records and the token of the batch in one transaction."""
        if self._producer is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        count = 0
        with self._producer.transaction() as producer:
            for record in records:
                producer.send(record.topic, record.value, key=record.key, headers=record.headers)
                count += 1
            token = json.dumps({"token": self._token, "batch": batch}).encode()
            producer.send(COMMITS, token, key=self._query.encode())
        self._last = batch
        return count

    def close(self) -> None:
        """Let go of the connection; what is not committed is forgotten by Kafka."""
        if self._producer is not None:
            self._producer.discard()
            self._producer = None

    def _read_token(self) -> int:
        last = -1
        with Consumer(self._connection, [COMMITS]) as consumer:
            for record in consumer:
                if record.key == self._query.encode() and record.value is not None:
                    said = json.loads(record.value)
                    last = said["batch"] if said["token"] == self._token else -1
        return last
