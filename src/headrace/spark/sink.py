"""Sinks: where batches go, and what is promised about them when something crashes in between.

Spark repeats a batch after a crash, so a sink is asked to write some batches twice. What it makes of that is its
promise:

- `ExactlyOnce` writes a batch and its token (`headrace.spark.tokens`) in one Kafka transaction. After a restart the
  token tells whether the batch is out; then it is not written again. Readers with `read_committed` see every result
  once. A writer that was only thought dead is fenced by its transactional id.
- `AtLeastOnce` writes a batch and waits until it has arrived. A batch that Spark repeats is written again.
- `AtMostOnce` commits the token first and writes the batch then. What is lost in between is lost.

A sink of your own needs the four methods of `Sink`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from headrace.broker.producer import FencedError, Producer, TransactionalProducer
from headrace.broker.topics import COMMITS
from headrace.errors import BrokerError
from headrace.spark import faults
from headrace.spark.tokens import Token, read_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.broker import Connection
    from headrace.stream import Delivery


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records of one topic on their way out.

    Args:
        topic: Where they go.
        keys: Of each.
        values: What they say.
        headers: Of every record.
    """

    topic: str
    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __len__(self) -> int:
        return len(self.values)

    def part(self, begin: int, end: int) -> Outgoing:
        """Give some of them."""
        return replace(self, keys=self.keys[begin:end], values=self.values[begin:end])


class Sink(Protocol):
    """Takes batches under a token, their number."""

    def open(self) -> None:
        """Get ready to write; called once before the first batch."""
        ...

    def committed(self, batch: int) -> bool:
        """Tell whether a batch is already out, as far as this sink cares."""
        ...

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:
        """Write a batch, and return how many records it had; when this returns, the promise holds for it."""
        ...

    def close(self) -> None:
        """Let go of what is held."""
        ...


@dataclass(frozen=True)
class Author:
    """Who writes: names and numbers that tokens carry.

    Args:
        name: The key of its tokens; its transactional id is `headrace.<name>`.
        token: Names the checkpoint whose batch numbers count; a fresh start has another.
        run: Names this run of the query.
        of: For a state partition: the name of its query's own writer, whose token says which run is the newest.
        jobs: For a state partition: the jobs whose results it writes.
    """

    name: str
    token: str
    run: str
    of: str = ""
    jobs: tuple[str, ...] = ()

    def note(self, batch: int) -> Token:
        """Make the token of a batch."""
        return Token(self.token, batch, self.run, self.jobs)

    def check(self, found: Mapping[str, Token]) -> None:
        """See in the last tokens that the run is still the one that writes.

        Raises:
            FencedError: A later run of the query has begun.
        """
        newest = found.get(self.of)
        if newest is not None and newest.run != self.run:
            raise FencedError(
                f"another run of {self.of} has begun; this one may write no more", hint="Run a job in one place only."
            )


class _Tokened:
    """A transactional producer under an author's name, and the last token of that author."""

    def __init__(self, connection: Connection, author: Author) -> None:
        self._connection = connection
        self._author = author
        self._transactions: TransactionalProducer | None = None
        self._last = -1

    def open(self) -> None:
        """Fence whoever wrote under this name before, and read which batch was the last.

        Raises:
            FencedError: A later run of the query has begun.
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        author = self._author
        self._transactions = TransactionalProducer(self._connection, transactional_id=f"headrace.{author.name}")
        self._transactions.prepare()
        # Only now is it certain that nobody else adds a token: the one who wrote before is fenced.
        found = read_tokens(self._connection, [author.name, *([author.of] if author.of else [])])
        author.check(found)
        mine = found.get(author.name)
        self._last = mine.batch if mine is not None and mine.token == author.token else -1
        if not author.of:
            # From here on, a task of an earlier run that takes its id anew finds that it is outdated.
            with self._transactions.transaction() as transaction:
                transaction.send(COMMITS, author.note(self._last).to_bytes(), key=author.name.encode())

    def committed(self, batch: int) -> bool:
        """Tell whether a batch is already out."""
        return batch <= self._last

    @property
    def last(self) -> int:
        """The last batch that is out, -1 for none."""
        return self._last

    def _producer(self) -> TransactionalProducer:
        if self._transactions is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        return self._transactions

    def _send_token(self, batch: int) -> None:
        self._producer().send(COMMITS, self._author.note(batch).to_bytes(), key=self._author.name.encode())

    def close(self) -> None:
        """Let go of the connection; what is not committed is forgotten by Kafka."""
        if self._transactions is not None:
            self._transactions.discard()
            self._transactions = None


class ExactlyOnce(_Tokened):
    """Writes batches to Kafka in transactions.

    Args:
        connection: Where to write.
        author: Who writes.
    """

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:
        """Write the records and the token of the batch in one transaction."""
        faults.reach("before-transaction")
        with self._producer().transaction() as producer:
            count = _send(producer, records)
            self._send_token(batch)
            if faults.armed("before-commit"):
                producer.flush()
            faults.reach("before-commit")
        self._last = batch
        faults.reach("after-commit")
        return count


class AtLeastOnce:
    """Writes batches to Kafka, again if it is asked again.

    Args:
        connection: Where to write.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._plain: Producer | None = None

    def open(self) -> None:
        """Make a producer."""
        self._plain = Producer(self._connection, linger=0.0)

    def committed(self, batch: int) -> bool:  # noqa: ARG002 - the contract's
        """Never: what is repeated is written again."""
        return False

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:  # noqa: ARG002 - the contract's
        """Write the records, and wait until all have arrived."""
        if self._plain is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        faults.reach("before-transaction")
        count = _send(self._plain, records)
        self._plain.flush()
        faults.reach("after-commit")
        return count

    def close(self) -> None:
        """Let go of the connection."""
        if self._plain is not None:
            self._plain.discard()
            self._plain = None


class AtMostOnce(_Tokened):
    """Notes a batch as out, and then writes it.

    Args:
        connection: Where to write.
        author: Who writes.
    """

    def __init__(self, connection: Connection, author: Author) -> None:
        super().__init__(connection, author)
        self._plain: Producer | None = None

    def open(self) -> None:
        """Fence whoever wrote under this name before, and read which batch was the last."""
        super().open()
        self._plain = Producer(self._connection, linger=0.0)

    def write(self, batch: int, records: Iterable[Outgoing]) -> int:
        """Commit the token, then write the records."""
        if self._plain is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        faults.reach("before-transaction")
        with self._producer().transaction():
            self._send_token(batch)
        self._last = batch
        faults.reach("after-token")
        count = _send(self._plain, records)
        self._plain.flush()
        faults.reach("after-commit")
        return count

    def close(self) -> None:
        """Let go of the connections."""
        super().close()
        if self._plain is not None:
            self._plain.discard()
            self._plain = None


def make_sink(delivery: Delivery, connection: Connection, author: Author) -> Sink:
    """Make the sink that keeps a promise."""
    if delivery == "at_least_once":
        return AtLeastOnce(connection)
    return ExactlyOnce(connection, author) if delivery == "exactly_once" else AtMostOnce(connection, author)


def _send(producer: Producer, records: Iterable[Outgoing]) -> int:
    if not faults.armed("in-transaction"):
        return sum(_hand_over(producer, each) for each in records)
    every = [each.part(place, place + 1) for each in records for place in range(len(each))]
    middle = len(every) // 2
    count = sum(_hand_over(producer, each) for each in every[:middle])
    producer.flush()
    faults.reach("in-transaction")
    return count + sum(_hand_over(producer, each) for each in every[middle:])


def _hand_over(producer: Producer, records: Outgoing) -> int:
    return producer.send_all(records.topic, records.values, keys=records.keys, headers=records.headers or None)
