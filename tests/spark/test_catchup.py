"""A job that catches up alone: dead letters, ownership and events that have expired. Real Kafka, no Spark."""

from __future__ import annotations

import json as text
import threading
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.events import Codec
from headrace.formats import json
from headrace.kafka import Consumer, FencedError, Producer, Topics, TopicSpec, commit_spec
from headrace.kafka.topics import DEAD_LETTERS, dead_letter_spec
from headrace.spark.checkpoint.continuity import find_gaps, read_progress
from headrace.spark.checkpoint.identity import Identity
from headrace.spark.checkpoint.moving import put_down
from headrace.spark.checkpoint.positions import Position
from headrace.spark.run.catchup import CatchUp, Companion, MissedEventsLostError
from headrace.spark.run.isolation import StoppedJob, StoppedJobs
from headrace.spark.run.runner import RunOptions, _Run
from headrace.spark.stages.stage_turn import RETURN
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.formats import Format
    from headrace.kafka import Connection
    from headrace.spark.checkpoint.continuity import Progress

pytestmark = pytest.mark.broker

PLAIN = json(schema={"depot": pl.String, "at": pl.String}, time="at")
#: Refuses one record more: it wants another type.
STRICT = json(schema={"depot": pl.String, "at": pl.String, "weight": pl.Int64}, time="at")


class Place:
    """A topic of scans, and jobs that read it."""

    def __init__(self, connection: Connection, directory: Path) -> None:
        self.connection = connection
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
            frames = Codec().decode([record.value for record in consumer]).frames
        ours = [frame.filter(pl.col("topic") == self.topic) for frame in frames.values()]
        return sorted(offset for letters in ours for offset in letters.get_column("offset").to_list())

    def results(self, name: str) -> list[int]:
        with Consumer(self.connection, [f"analytics.{name}"]) as consumer:
            frames = Codec().decode([record.value for record in consumer]).frames
        return [number for frame in frames.values() for number in frame.get_column("n").to_list()]


@pytest.fixture
def place(broker: EmbeddedBroker, tmp_path: Path) -> Place:
    return Place(broker.connection, tmp_path)


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


class Checkpoint:
    """A checkpoint of two jobs whose state was just moved: it is in files, so that no Spark is needed to read it."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.jobs = [place.job(name) for name in sorted(place.names)]
        self.path = place.directory / "checkpoint"
        self.stopped = StoppedJobs(self.path)
        fresh = Identity.fresh(self.jobs, key_groups=2, state_partitions=2)
        self.identity = replace(fresh, token="checkpoint", moved="move")

    def put_down(self, returned: str) -> None:
        """The second job stopped at offset 7, and the query is at 20 now."""
        name = self.jobs[1].name
        state = {name: {(self.jobs[1].steps[0], 0): {"clock": b"{}", RETURN: returned.encode()}}}
        put_down(self.path, self.identity, state, Position({self.place.topic: {0: 20}}, 5).to_dict())
        self.stopped.add(StoppedJob(name, {self.place.topic: {0: 7}}, "it failed", mark="stop"))

    def adapt(self, *jobs: Job, starting: Literal["earliest", "latest"] = "earliest") -> Progress:
        """Start as far as the checkpoint is made one of these jobs."""
        options = RunOptions(connection=self.place.connection, checkpoint=self.path, starting=starting)
        run = _Run(jobs, options, self.identity, lambda _: None, threading.Event())
        run._deliveries.open()
        try:
            run._adapt(cast("Any", None))
        finally:
            run._deliveries.close()
        progress = read_progress(self.path)
        assert progress is not None
        return progress


def test_a_job_that_came_back_and_is_taken_out_then_has_stopped_where_the_query_stands(place: Place) -> None:
    checkpoint = Checkpoint(place)
    one, two = checkpoint.jobs
    checkpoint.put_down(returned="stop/3")
    checkpoint.adapt(one)
    found = checkpoint.stopped.read()[two.name]
    assert found.places == {place.topic: {0: 20}}
    assert found.mark != "stop", "what its state says of its return is about the stop before"


def test_a_job_that_has_not_come_back_is_still_where_it_stopped(place: Place) -> None:
    checkpoint = Checkpoint(place)
    one, two = checkpoint.jobs
    checkpoint.put_down(returned="another stop/3")
    checkpoint.adapt(one)
    assert checkpoint.stopped.read()[two.name].places == {place.topic: {0: 7}}


@pytest.mark.parametrize(("starting", "begin"), [("earliest", 4), ("latest", 30)])
def test_a_topic_that_is_new_to_a_checkpoint_begins_where_it_would_in_a_new_one(
    place: Place, tmp_path: Path, starting: Literal["earliest", "latest"], begin: int
) -> None:
    checkpoint = Checkpoint(place)
    checkpoint.put_down(returned="stop/3")
    other = Place(place.connection, tmp_path)
    other.send()
    admin = AdminClient(place.connection.client_config())
    for future in admin.delete_records([TopicPartition(other.topic, 0, 4)]).values():
        future.result(10)
    added = other.job(other.names[0])
    progress = checkpoint.adapt(*sorted([*checkpoint.jobs, added], key=lambda job: job.name), starting=starting)
    assert progress.next == {place.topic: {0: 20}, other.topic: {0: begin}}
    assert find_gaps(checkpoint.path, Topics(place.connection), [other.topic]) == []
