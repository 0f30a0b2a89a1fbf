"""A job that catches up alone: dead letters, ownership and events that have expired. Real Kafka, no Spark."""

from __future__ import annotations

import json as text
import threading
import uuid
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.events import Codec
from headrace.formats import json
from headrace.kafka import Consumer, FencedError, Producer, Topics, TopicSpec, commit_spec
from headrace.kafka.topics import DEAD_LETTERS, dead_letter_spec
from headrace.spark.run.catchup import CatchUp, Companion, MissedEventsLostError
from headrace.spark.run.isolation import StoppedJob
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.formats import Format

pytestmark = pytest.mark.broker

PLAIN = json(schema={"depot": pl.String, "at": pl.String}, time="at")
#: Refuses one record more: it wants another type.
STRICT = json(schema={"depot": pl.String, "at": pl.String, "weight": pl.Int64}, time="at")


class Place:
    """A topic of scans, and jobs that read it."""

    def __init__(self, broker: EmbeddedBroker, directory: Path) -> None:
        self.connection = broker.connection
        self.directory = directory
        self.topic = f"scans-{uuid.uuid4().hex[:8]}"
        self.names = [f"{self.topic}-{name}" for name in ("one", "two")]
        results = [TopicSpec(name=f"analytics.{name}{end}") for name in self.names for end in ("", ".late")]
        specs = [TopicSpec(name=self.topic, partitions=1), *results, dead_letter_spec(), commit_spec()]
        Topics(self.connection).ensure(specs)

    def job(self, name: str, format_: Format = PLAIN) -> Job:
        scans = Stream.topic(self.topic, format=format_).watermark(bounded("1s"))
        return Job(name, scans.key_by("depot").window(tumbling("10s")).aggregate(n=count()))

    def send(self) -> int:
        """Send records of which two cannot be read, and one that has a text for a number."""
        values = [
            text.dumps({"depot": "Turku", "at": f"2026-03-02T07:30:{second:02}Z", "weight": 5}) for second in range(30)
        ]
        values[3] = "{broken"
        values[20] = "also broken"
        values[25] = values[25].replace("5}", '"heavy"}')
        with Producer(self.connection) as producer:
            for value in values:
                producer.send(self.topic, value.encode())
        return len(values)

    def catch_up(self, job: Job, until: int, *, begin: int = 0, **options: Any) -> None:
        CatchUp(
            job=job,
            stopped=StoppedJob(job.name, {self.topic: {0: begin}}, "it failed"),
            connection=self.connection,
            groups=2,
            partitions={self.topic: 1},
            query="+".join(self.names),
            token="checkpoint",
            delivery="exactly_once",
            encoding="json",
            directory=self.directory / job.name,
            tell=lambda _: None,
            run_id="run",
            stop=threading.Event(),
            **options,
        ).run({}, {self.topic: {0: until}}, 7)

    def dead_letters(self) -> list[int]:
        """The offsets of the records of our topic that are dead letters."""
        with Consumer(self.connection, [DEAD_LETTERS]) as consumer:
            told = [text.loads(record.value or b"{}") for record in consumer]
        details = [letter["details"] for letter in told]
        return sorted(int(each.get("offset", 0)) for each in details if each.get("topic") == self.topic)

    def results(self, name: str) -> list[int]:
        with Consumer(self.connection, [f"analytics.{name}"]) as consumer:
            frames = Codec().decode([record.value for record in consumer]).frames
        return [number for frame in frames.values() for number in frame.get_column("n").to_list()]


@pytest.fixture
def place(broker: EmbeddedBroker, tmp_path: Path) -> Place:
    return Place(broker, tmp_path)


def test_what_nobody_else_has_read_becomes_dead_letters(place: Place) -> None:
    job = place.job(place.names[0])
    place.catch_up(job, place.send())
    assert place.dead_letters() == [3, 20]


def test_what_another_job_has_read_has_its_dead_letters(place: Place) -> None:
    one, two = (place.job(name) for name in place.names)
    until = place.send()
    place.catch_up(one, until, companions=[Companion(two)])
    assert place.dead_letters() == []


def test_a_format_that_refuses_more_has_dead_letters_of_its_own(place: Place) -> None:
    one, two = place.job(place.names[0], STRICT), place.job(place.names[1])
    place.catch_up(one, place.send(), companions=[Companion(two)])
    assert place.dead_letters() == [25]


def test_two_jobs_that_were_both_away_write_each_dead_letter_once(place: Place) -> None:
    one, two = (place.job(name) for name in place.names)
    until = place.send()
    # The second stopped at offset 10: what it read before has its dead letters.
    place.catch_up(one, until, companions=[Companion(two, {place.topic: {0: 10}})])
    assert place.dead_letters() == [20]
    place.catch_up(two, until, begin=10, companions=[Companion(one)])
    assert place.dead_letters() == [20]


def test_results_that_were_taken_over_before_catching_up_began_are_left_alone(place: Place) -> None:
    job = place.job(place.names[0])

    def taken_over() -> None:
        raise FencedError("the results were taken over")

    with pytest.raises(FencedError):
        place.catch_up(job, place.send(), check_owner=taken_over)
    assert place.results(job.name) == []


def test_expired_events_that_a_job_has_missed_are_named_and_skipped_only_on_request(place: Place) -> None:
    job = place.job(place.names[0])
    until = place.send()
    admin = AdminClient(place.connection.client_config())
    for future in admin.delete_records([TopicPartition(place.topic, 0, 12)]).values():
        future.result(10)
    with pytest.raises(MissedEventsLostError) as caught:
        place.catch_up(job, until, begin=5)
    assert f"{place.topic} partition 0: offsets 5 to 11 have expired" in caught.value.message
    assert "--accept-loss" in caught.value.hint
    assert place.results(job.name) == []
    place.catch_up(job, until, begin=5, accept_loss=True)
    assert place.results(job.name) == [8]
    assert place.dead_letters() == [20]
