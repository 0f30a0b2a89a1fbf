"""Markers on their way through a real pipeline: sends them by a schedule, reads what comes of them.

A `Probe` needs only Kafka. It knows nothing of the jobs it asks: a `Recipe` says, for one job, which events make it
give a recognisable result. Markers leave one per job and interval, at a random moment of each: markers at a fixed
distance would meet micro-batches and windows always in the same phase, and say little about the others.

Three threads work beside each other, so that none waits for another: one keeps the schedule and hands events to the
producer, one serves the producer's acknowledgements, one reads results (and another one, if asked, as a reader that
does not wait for transactions to end).
"""

from __future__ import annotations

import contextlib
import threading
import time
from random import Random
from typing import TYPE_CHECKING, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from headrace.errors import BrokerError, PlanError
from headrace.events import Codec
from headrace.kafka import Consumer, Topics
from headrace.kafka.connection import kafka_error
from headrace.observe.recognition import MARKERS, recognise, recognise_late
from headrace.time.duration import MINUTE, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import TracebackType

    from confluent_kafka import Message

    from headrace.events import TypeRegistry
    from headrace.kafka import Connection, Record
    from headrace.observe.recipes import Recipe
    from headrace.observe.tracker import Tracker

#: Numbers per interval: more than there are jobs. Jobs read the same topics, so no two markers may share a key or a
#: cell, whichever job they are for.
LANES = 16
#: The longest window and the wait for it: what a marker's event may still be part of.
_REST = 10 * MINUTE


def wall() -> int:
    """Tell the time in microseconds since the epoch."""
    return time.time_ns() // 1_000


def fresh_number(now: int, *, every: int) -> int:
    """Choose a first number so that a run meets no marker of a run shortly before it.

    Args:
        now: The time.
        every: Microseconds between two markers of a job.

    >>> fresh_number(60_000_000, every=1_000_000), fresh_number(61_000_000, every=1_000_000)
    (960, 976)
    """
    return now // every * LANES % MARKERS


def schedule(*, begin: int, end: int, every: int, seed: int) -> Iterator[int]:
    """Give the instants of markers: one in each interval, at a random moment of it.

    >>> due = list(schedule(begin=0, end=5_000_000, every=1_000_000, seed=1))
    >>> [instant // 1_000_000 for instant in due]
    [0, 1, 2, 3, 4]
    """
    draw = Random(seed)  # noqa: S311 - a schedule, not a secret
    for beginning in range(begin, end, every):
        yield beginning + int(draw.random() * min(every, end - beginning))


def ends(connection: Connection, topics: Sequence[str]) -> dict[tuple[str, int], int]:
    """Tell where topics end now.

    A consumer that is told to start at the end finds out where that is when it first reads, and misses what was
    written until then.
    """
    admin = Topics(connection)
    return {(name, part.partition): part.latest for name in topics for part in admin.get(name).partitions}


class Probe:
    """Sends markers and watches for their results, until it is closed.

    Args:
        connection: The Kafka of the pipeline.
        recipes: Of the jobs to ask.
        tracker: Is told what happens.
        every: Microseconds between two markers of a job.
        uncommitted: Also read as somebody who does not wait for transactions to end.
        seed: Of the moments at which markers leave.
        types: The message types of the events that jobs read, for those that come too late.

    Raises:
        BrokerError: Kafka cannot be reached, or a topic is missing.
    """

    def __init__(
        self,
        connection: Connection,
        recipes: Sequence[Recipe],
        tracker: Tracker,
        *,
        every: int = SECOND,
        uncommitted: bool = False,
        seed: int = 1,
        types: TypeRegistry | None = None,
    ) -> None:
        if not recipes:
            raise PlanError("no job to send markers to", hint="Name at least one.")
        if len(recipes) > LANES:
            raise PlanError(f"{len(recipes)} jobs at once", hint=f"Send markers to at most {LANES}.")
        if every < 1_000:
            raise PlanError(f"a marker every {every} us", hint="Give at least 1ms.")
        self._connection = connection
        self._recipes = list(recipes)
        self._tracker = tracker
        self._every = every
        self._seed = seed
        self._types = types
        self._problem: BrokerError | None = None
        self._closing = threading.Event()
        self._producer = Client(
            connection.client_config(client_id="headrace-markers", linger_ms=0, acks="all", enable_idempotence=True)
        )
        readers = [self._reader(committed=kind) for kind in ([True, False] if uncommitted else [True])]
        self._threads = [
            threading.Thread(target=self._guarded(work), name=name, daemon=True)
            for work, name in [(self._serve, "acknowledgements"), *((reader, "marker results") for reader in readers)]
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def check(self) -> None:
        """Raise what went wrong in a thread, if anything did."""
        if self._problem is not None:
            raise self._problem

    def run(self, duration: int, stop: threading.Event) -> int:
        """Send markers by the schedule.

        Args:
            duration: Microseconds to go on.
            stop: Set it to end earlier.

        Returns:
            How many markers were sent.

        Raises:
            BrokerError: Kafka went away.
        """
        begin = wall()
        first = fresh_number(begin, every=self._every)
        agenda = sorted(
            (due, first + index * LANES + recipe_number, recipe_number)
            for recipe_number in range(len(self._recipes))
            for index, due in enumerate(
                schedule(begin=begin, end=begin + duration, every=self._every, seed=self._seed * 1_000 + recipe_number)
            )
        )
        sent = 0
        for due, marker, recipe_number in agenda:
            if not self._wait(due, stop):
                break
            self._send(self._recipes[recipe_number], marker, due)
            sent += 1
        return sent

    def drain(self, stop: threading.Event, *, longest: int = _REST) -> None:
        """Wait until every marker has an outcome, or `longest` microseconds are over."""
        deadline = wall() + longest
        while not stop.wait(0.1) and wall() < deadline and self._tracker.waiting(now=wall()):
            self.check()

    def close(self) -> None:
        """End the threads; what is not known by now will not be."""
        self._closing.set()
        for thread in self._threads:
            thread.join(timeout=5)
        with contextlib.suppress(KafkaException):
            self._producer.flush(2)

    def _wait(self, due: int, stop: threading.Event) -> bool:
        while True:
            self.check()
            ahead = (due - wall()) / SECOND
            if ahead <= 0:
                return not stop.is_set()
            if stop.wait(min(ahead, 1.0)):
                return False

    def _send(self, recipe: Recipe, marker: int, due: int) -> None:
        events = recipe.events(marker % MARKERS, at=due)
        self._tracker.generated(recipe.job, marker % MARKERS, at=due, sent=wall())
        for event in events:
            last = self._acknowledged(recipe.job, marker % MARKERS) if event is events[-1] else self._failed
            try:
                self._producer.produce(event.topic, event.value, event.key, on_delivery=last)
            except (BufferError, KafkaException) as problem:
                text = "its buffer is full" if isinstance(problem, BufferError) else kafka_error(problem).str()
                raise BrokerError(f"A marker cannot be sent: {text}", hint="Is Kafka still there?") from problem

    def _acknowledged(self, job: str, marker: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            self._failed(error, message)
            if error is None:
                self._tracker.ingested(job, marker, at=wall())

        return note

    def _failed(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self._problem is None:
            text = f"A marker did not reach {message.topic()}: {error.str()}"
            self._problem = BrokerError(text, hint="Is Kafka still there?")

    def _guarded(self, work: Callable[[], None]) -> Callable[[], None]:
        def target() -> None:
            try:
                work()
            except BrokerError as problem:
                self._problem = self._problem or problem

        return target

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._producer.poll(0.1)

    def _reader(self, *, committed: bool) -> Callable[[], None]:
        results = {recipe.result_topic: recipe.job for recipe in self._recipes}
        late = {recipe.late_topic: recipe.job for recipe in self._recipes} if committed else {}
        codec = Codec(self._types)
        # Opened here and not in the thread: what comes from now on is seen, and a missing topic is told at once.
        names = [*results, *late]
        start = ends(self._connection, names)
        consumer = Consumer(self._connection, names, start=start, follow=True, committed=committed)

        def note(record: Record, now: int) -> None:
            if record.topic in late:
                marker = recognise_late(record, codec)
                if marker is not None:
                    self._tracker.refused(late[record.topic], marker)
                return
            found = recognise(record, codec, seen=now)
            if found is None:
                return
            if committed:
                self._tracker.seen(results[record.topic], found.marker, found.sighting)
            else:
                self._tracker.seen_uncommitted(results[record.topic], found.marker, at=now)

        def read() -> None:
            with consumer:
                while not self._closing.is_set():
                    records = consumer.read(timeout=0.2)
                    now = wall()
                    for record in records:
                        note(record, now)

        return read
