"""Sinks: where batches go, and what is promised about them when something crashes in between.

Spark repeats a batch after a crash, so a sink is asked to write some batches twice. What it makes of that is its
promise:

- `ExactlyOnce` writes a batch and its token (`headrace.spark.output.tokens`) in one Kafka transaction. After a restart
  the token tells whether the batch is out; then it is not written again. Readers with `read_committed` see every result
  once. A writer that was only thought dead is fenced by its transactional id.
  A batch that is larger than a transaction may be is written in several. Records are divided among them by their keys,
  so it does not matter in which order a batch that is repeated gives them; each transaction but the last has a token
  that says how many are out.
- `AtLeastOnce` writes a batch and waits until it has arrived. A batch that Spark repeats is written again. Its token is
  written afterwards: it suppresses nothing, but a query that has been replaced is fenced there, and ends.
- `AtMostOnce` commits the token first and writes the batch then. What is lost in between is lost.

A sink of your own needs the four methods of `Sink`.
"""

from __future__ import annotations

import zlib
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from headrace.errors import BrokerError
from headrace.kafka.producer import ExpiredError, FencedError, Producer, TransactionalProducer
from headrace.kafka.topics import COMMITS
from headrace.spark.output.tokens import Part, Token, read_tokens
from headrace.spark.run import faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from headrace.kafka import Connection
    from headrace.spark.checkpoint.positions import Span
    from headrace.stream import Delivery

#: What one transaction holds at most, in bytes of keys and values.
TRANSACTION_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Records of one topic on their way out.

    Args:
        topic: Where they go.
        keys: Of each.
        values: What they say; None for a tombstone, which says that the key is deleted.
        headers: Of every record.
        names: What divides records among transactions if not their keys: the same when a batch is repeated, which
            values need not be. Records of one key keep their order only if they are divided by their keys.
        each_headers: Of each record, beside `headers`.
    """

    topic: str
    keys: Sequence[bytes]
    values: Sequence[bytes | None]
    headers: tuple[tuple[str, bytes | None], ...] = ()
    names: Sequence[bytes] | None = None
    each_headers: Sequence[tuple[tuple[str, bytes | None], ...]] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, begin: int, end: int) -> Outgoing:
        """Give some of them."""
        return replace(
            self,
            keys=self.keys[begin:end],
            values=self.values[begin:end],
            names=None if self.names is None else self.names[begin:end],
            each_headers=None if self.each_headers is None else self.each_headers[begin:end],
        )

    def size(self) -> int:
        """Count the bytes of keys and values."""
        return sum(map(len, self.keys)) + sum(0 if value is None else len(value) for value in self.values)

    def divided(self, parts: int) -> list[Outgoing]:
        """Divide the records among a number of parts, the same way whatever order they come in.

        >>> records = Outgoing("t", [b"a", b"d", b"a"], [b"1", b"2", b"3"])
        >>> [list(zip(part.keys, part.values)) for part in records.divided(2)]
        [[(b'd', b'2')], [(b'a', b'1'), (b'a', b'3')]]
        """
        places: list[list[int]] = [[] for _ in range(parts)]
        for place, name in enumerate(self.keys if self.names is None else self.names):
            places[zlib.crc32(name) % parts].append(place)
        return [
            Outgoing(
                self.topic,
                [self.keys[place] for place in those],
                [self.values[place] for place in those],
                self.headers,
                each_headers=None if self.each_headers is None else [self.each_headers[place] for place in those],
            )
            for those in places
        ]


class Sink(Protocol):
    """Takes batches under a token: their number, and what they read where that is known."""

    def open(self) -> None:
        """Get ready to write; called once before the first batch."""
        ...

    def committed(self, batch: int, span: Span | None = None) -> bool:
        """Tell whether a batch is already out, as far as this sink cares."""
        ...

    def write(self, batch: int, records: Iterable[Outgoing], span: Span | None = None) -> int:
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
        jobs: The jobs whose results it writes.
    """

    name: str
    token: str
    run: str
    of: str = ""
    jobs: tuple[str, ...] = ()

    def note(self, batch: int, span: Span | None = None, present: tuple[str, ...] = ()) -> Token:
        """Make the token of a batch.

        Args:
            batch: Its number.
            span: What it reads.
            present: For a query: the jobs that took part in it.
        """
        end, absent = (None, ()) if span is None else (span.end, span.absent)
        return Token(self.token, batch, self.run, self.jobs, end=end, absent=absent, present=present)

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
        self._token = author.note(-1)
        #: For a query: the jobs that take part in the next batch that is written.
        self.present: tuple[str, ...] = ()
        self._known_runs = {author.run}

    def open(self) -> None:
        """Fence whoever wrote under this name before, and read which batch was the last.

        Raises:
            FencedError: A later run of the query has begun.
            ExpiredError: Kafka ended our transaction at its time-out.
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        author = self._author
        self._transactions = TransactionalProducer(self._connection, transactional_id=f"headrace.{author.name}")
        self._transactions.prepare()
        # Only now is it certain that nobody else adds a token: the one who wrote before is fenced.
        found = read_tokens(self._connection, [author.name, *([author.of] if author.of else [])])
        author.check(found)
        mine = found.get(author.name)
        if mine is not None:
            self._known_runs.add(mine.run)
        last = mine if mine is not None and mine.token == author.token else author.note(-1)
        if author.of:
            self._token = last
        else:
            # From here on, a task of an earlier run that takes its id anew finds that it is outdated.
            self.amend(last)

    def amend(self, token: Token) -> None:
        """Write a token without a batch: this run's, or what was found out about the last one."""
        token = replace(token, run=self._author.run)
        with self._fenced_by_whom(), self._producer().transaction() as transaction:
            transaction.send(COMMITS, token.to_bytes(), key=self._author.name.encode())
        self._token = token

    def committed(self, batch: int, span: Span | None = None) -> bool:
        """Tell whether a batch is already out."""
        return self._token.covers(batch, span)

    @property
    def token(self) -> Token:
        """The last token; its batch is -1 where nothing is out."""
        return self._token

    @contextmanager
    def _fenced_by_whom(self) -> Iterator[None]:
        """Tell a run that took our id over from Kafka itself, which ends a transaction at its time-out.

        A run that takes over writes its token before anything else. A task does not ask here: it takes its id back if
        its run is still the newest (`headrace.spark.output.task_writer`).

        Raises:
            ExpiredError: Nobody but Kafka has fenced us.
            FencedError: Another run has.
        """
        try:
            yield
        except FencedError as problem:
            name = self._author.name
            if self._author.of:
                raise
            newest = read_tokens(self._connection, [name]).get(name)
            if newest is None or newest.run in self._known_runs:
                raise ExpiredError(
                    f"a transaction of {name} was open for longer than {self._connection.transaction_timeout:g} s, and "
                    "Kafka ended it: this process was paused (stopped, or the machine was asleep), or Kafka is too "
                    "slow for so many results. Nothing of it is visible; it is written again",
                    hint="If this comes again, raise broker.transaction_timeout_ms. A lower spark.transaction_mb helps "
                    "for batches of which nothing is out yet.",
                ) from problem
            raise FencedError(
                f"another run of {name} has begun; this one may write no more", hint="Run a job in one place only."
            ) from problem

    def _producer(self) -> TransactionalProducer:
        if self._transactions is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        return self._transactions

    def _send_token(self, token: Token) -> None:
        self._producer().send(COMMITS, token.to_bytes(), key=self._author.name.encode())

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
        most: Bytes that one transaction holds at most, except for records of one key, which stay together.
    """

    def __init__(self, connection: Connection, author: Author, *, most: int = TRANSACTION_BYTES) -> None:
        super().__init__(connection, author)
        self._most = most

    def write(self, batch: int, records: Iterable[Outgoing], span: Span | None = None) -> int:
        """Write the records and the token of the batch in one transaction, or in several if they are many.

        Raises:
            ExpiredError: Kafka ended the transaction at its time-out.
            FencedError: Another run has begun.
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        every = list(records)
        faults.reach("before-transaction")
        whole = self._author.note(batch, span, self.present)
        begun = self._token.part
        if begun is None or not begun.is_of(batch, span):
            begun = Part(batch, max(1, -(-sum(each.size() for each in every) // self._most)), 0, whole.end)
        # Part by part, the records of all topics.
        parts = [every] if begun.parts == 1 else list(zip(*(each.divided(begun.parts) for each in every), strict=True))
        count = sum(map(len, every))
        for number in range(begun.done, begun.parts):
            last = number + 1 == begun.parts
            with self._fenced_by_whom(), self._producer().transaction() as producer:
                _send(producer, parts[number] if parts else ())
                token = whole if last else self._partly(whole, replace(begun, done=number + 1))
                self._send_token(token)
                if faults.armed("before-commit"):
                    producer.flush()
                faults.reach("before-commit")
            self._token = token
            if not last:
                faults.reach("between-parts")
        faults.reach("after-commit")
        return count

    def _partly(self, whole: Token, part: Part) -> Token:
        """Make the token of a part: the last batch that is out as a whole is still the one before."""
        # Who was left out of either batch counts as absent.
        absent = tuple(sorted({*self._token.absent, *whole.absent}))
        return replace(self._token, run=whole.run, jobs=whole.jobs, absent=absent, present=whole.present, part=part)


class AtLeastOnce(_Tokened):
    """Writes batches to Kafka, again if it is asked again.

    Args:
        connection: Where to write.
        author: Who writes.
    """

    def __init__(self, connection: Connection, author: Author) -> None:
        super().__init__(connection, author)
        self._plain: Producer | None = None

    def open(self) -> None:
        """Make a producer; a query's own writer also fences whoever wrote under its name before."""
        if not self._author.of:
            super().open()
        self._plain = Producer(self._connection, linger=0.0)

    def committed(self, batch: int, span: Span | None = None) -> bool:  # noqa: ARG002 - the contract's
        """Never: what is repeated is written again."""
        return False

    def write(self, batch: int, records: Iterable[Outgoing], span: Span | None = None) -> int:
        """Write the records, and wait until all have arrived."""
        if self._plain is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        faults.reach("before-transaction")
        count = _send(self._plain, records)
        self._plain.flush()
        if not self._author.of:
            # Whoever took the results over has fenced this id: then nothing more is written.
            token = self._author.note(batch, span)
            with self._fenced_by_whom(), self._producer().transaction():
                self._send_token(token)
            self._token = token
        faults.reach("after-commit")
        return count

    def close(self) -> None:
        """Let go of the connections."""
        super().close()
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

    def write(self, batch: int, records: Iterable[Outgoing], span: Span | None = None) -> int:
        """Commit the token, then write the records."""
        if self._plain is None:
            raise BrokerError("the sink is not open", hint="Call open() before the first batch.")
        token = self._author.note(batch, span, self.present)
        faults.reach("before-transaction")
        with self._fenced_by_whom(), self._producer().transaction():
            self._send_token(token)
        self._token = token
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


def make_sink(delivery: Delivery, connection: Connection, author: Author, *, most: int = TRANSACTION_BYTES) -> Sink:
    """Make the sink that keeps a promise.

    Args:
        delivery: The promise.
        connection: Where to write.
        author: Who writes.
        most: Bytes that one transaction holds at most.
    """
    if delivery == "at_least_once":
        return AtLeastOnce(connection, author)
    if delivery == "exactly_once":
        return ExactlyOnce(connection, author, most=most)
    return AtMostOnce(connection, author)


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
    return producer.send_all(
        records.topic,
        records.values,
        keys=records.keys,
        headers=records.headers or None,
        each_headers=records.each_headers,
    )
