"""One checkpoint writes the results of a job: others are refused, or take over and fence it. Real Kafka, no Spark."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import BrokerError, HeadraceError, StateError
from headrace.kafka import COMMITS, Consumer, FencedError, Producer, Topics, TopicSpec, commit_spec
from headrace.kafka.producer import ExpiredError
from headrace.spark.output import task_writer as apart
from headrace.spark.output.delivery import Deliveries, author_name
from headrace.spark.output.sink import Author, Outgoing, make_sink
from headrace.spark.output.task_writer import Order, bring_out
from headrace.spark.output.tokens import Token, read_tokens
from headrace.spark.run.isolation import Attendance
from headrace.spark.stages.slots import Slots
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker
    from headrace.spark.output.ownership import Owner
    from headrace.stream import Delivery

pytestmark = pytest.mark.broker


class Place:
    """Two jobs with result topics of their own, and queries over them."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.connection = broker.connection
        mark = uuid.uuid4().hex[:8]
        self.names = [f"one-{mark}", f"two-{mark}"]
        Topics(self.connection).ensure([*(TopicSpec(name=f"analytics.{name}") for name in self.names), commit_spec()])

    def query(self, checkpoint: str, *names: str, path: str = "", **options: Any) -> Deliveries:
        stream = Stream.topic("input.owned", VehiclePosition).watermark(bounded("1s")).key_by("line")
        jobs = [Job(name, stream.window(tumbling("5s")).aggregate(n=count())) for name in sorted(names)]
        settings = {"chosen": None, "apart_rows": None, "partitions": 2, **options}
        return Deliveries(
            self.connection, jobs, token=checkpoint, path=path or f"/checkpoints/{checkpoint}", **settings
        )

    def write(self, query: Deliveries, batch: int, *values: str, mode: Delivery = "exactly_once") -> None:
        written = [value.encode() for value in values]
        query.write(batch, {mode: [Outgoing(f"analytics.{self.names[0]}", written, written)]})

    def seen(self) -> Counter[str]:
        with Consumer(self.connection, [f"analytics.{self.names[0]}"]) as consumer:
            return Counter((record.value or b"").decode() for record in consumer)


@pytest.fixture
def place(broker: EmbeddedBroker) -> Place:
    return Place(broker)


def test_another_set_of_jobs_is_refused_and_the_first_goes_on(place: Place) -> None:
    one, two = place.names
    both = place.query("c1", one, two)
    both.open()
    place.write(both, 0, "a")
    alone = place.query("c2", one)
    with pytest.raises(StateError) as caught:
        alone.open()
    assert f"those of {one} by query {one}+{two} (checkpoint /checkpoints/c1 on " in caught.value.message
    assert f"headrace run {one} {two}" in caught.value.hint
    assert "--take-over" in caught.value.hint
    place.write(both, 1, "b")
    both.close()
    with pytest.raises(StateError, match="another checkpoint"):
        alone.open()
    again = place.query("c1", one, two)
    again.open()
    place.write(again, 2, "c")
    assert place.seen() == Counter("abc")


def test_the_same_job_with_another_checkpoint_is_refused_without_fencing_the_first(place: Place) -> None:
    one, _ = place.names
    first = place.query("c1", one)
    first.open()
    with pytest.raises(StateError, match="another checkpoint"):
        place.query("c2", one, path="/elsewhere").open()
    place.write(first, 0, "a")
    assert place.seen() == Counter("a")


def test_a_fresh_start_at_the_same_place_goes_on_with_its_own_results(place: Place) -> None:
    one, two = place.names
    place.query("c1", one, path="/here").open()
    place.query("c2", one, path="/here", fresh=True).open()
    with pytest.raises(StateError, match="another checkpoint"):
        place.query("c3", one, path="/there", fresh=True).open()
    with pytest.raises(StateError, match="another checkpoint"):
        place.query("c4", one, two, path="/here", fresh=True).open()


@pytest.mark.parametrize("mode", ["exactly_once", "at_least_once", "at_most_once"])
def test_who_takes_over_fences_the_one_that_wrote(place: Place, mode: Delivery) -> None:
    one, two = place.names
    first = place.query("c1", one, two, chosen=mode)
    first.open()
    place.write(first, 0, "a", mode=mode)
    second = place.query("c2", one, chosen=mode, take_over=True)
    second.open()
    place.write(second, 0, "b", mode=mode)
    with pytest.raises(FencedError):
        place.write(first, 1, "late", mode=mode)
    with pytest.raises(StateError, match="another checkpoint"):
        first.open()  # a restart of the first does not take the results back
    place.write(second, 1, "c", mode=mode)
    expected = Counter("abc")
    if mode == "at_least_once":
        expected["late"] = 1  # the batch under way; the next one is not begun
    assert place.seen() == expected


def test_tasks_of_the_one_that_wrote_are_fenced_as_well(place: Place) -> None:
    one, _ = place.names
    first = place.query("c1", one, apart_rows=0)
    first.open()
    order = Order(place.connection, (), first.modes, 0, Slots(4, ()), first.query, "c1", first.run)
    records = [Outgoing(f"analytics.{one}", [b"a"], [b"a"])]
    assert bring_out(order, "exactly_once", 0, 0, [one], records)
    place.query("c2", one, path="/elsewhere", apart_rows=0, take_over=True).open()
    with pytest.raises(FencedError):
        bring_out(order, "exactly_once", 0, 1, [one], records)
    assert place.seen() == Counter("a")


def test_tasks_of_a_query_that_got_more_partitions_are_fenced_as_well(place: Place) -> None:
    one, _ = place.names
    place.query("c1", one, apart_rows=0).open()
    first = place.query("c1", one, apart_rows=0, partitions=5)
    first.open()
    order = Order(place.connection, (), first.modes, 0, Slots(4, ()), first.query, "c1", first.run)
    records = [Outgoing(f"analytics.{one}", [b"a"], [b"a"])]
    assert bring_out(order, "exactly_once", 4, 0, [one], records)
    place.query("c2", one, path="/elsewhere", apart_rows=0, take_over=True).open()
    with pytest.raises(FencedError):
        bring_out(order, "exactly_once", 4, 1, [one], records)
    assert place.seen() == Counter("a")


def test_a_job_that_catches_up_is_fenced_though_it_came_to_its_query_later(place: Place) -> None:
    one, two = place.names
    first = place.query("c1", two, one, query=two)
    first.open()
    author = Author(author_name(two, "exactly_once", catching_up=one), "c1/mark", first.run)
    catching_up = make_sink("exactly_once", place.connection, author)
    catching_up.open()
    place.query("c2", one, path="/elsewhere", take_over=True).open()
    with pytest.raises(FencedError, match="were taken over by"):
        first.check_owner()
    with pytest.raises((FencedError, ExpiredError)):
        catching_up.write(1, [Outgoing(f"analytics.{one}", [b"a"], [b"a"])])
    catching_up.close()
    assert place.seen() == Counter()


def test_of_two_starts_at_the_same_time_one_writes(place: Place) -> None:
    one, two = place.names
    queries = [place.query("c1", one), place.query("c2", one, two)]

    def start(query: Deliveries) -> HeadraceError | None:
        try:
            query.open()
        except HeadraceError as problem:
            return problem
        return None

    with ThreadPoolExecutor(2) as threads:
        problems = list(threads.map(start, queries))
    assert sum(problem is None for problem in problems) <= 1
    written = 0
    for query, problem in zip(queries, problems, strict=True):
        if problem is None:
            place.write(query, 0, "a")
            written += 1
        else:
            assert isinstance(problem, StateError)
    assert place.seen() == (Counter("a") if written else Counter())


def test_results_of_a_version_that_noted_no_owner_are_known_by_its_tokens(place: Place) -> None:
    one, two = place.names
    with Producer(place.connection) as producer:
        token = Token("old", 7, "r1").to_bytes()
        producer.send(COMMITS, token, key=f"{one}+{two}".encode())
    with pytest.raises(StateError, match=f"query {one}\\+{two}"):
        place.query("c2", one).open()
    place.query("old", one, two).open()


def test_a_result_topic_that_was_made_anew_has_no_writer(place: Place) -> None:
    one, _ = place.names
    first = place.query("c1", one)
    first.open()
    place.write(first, 0, "a")
    first.close()
    topics = Topics(place.connection)
    topics.delete([f"analytics.{one}"])
    topics.ensure([TopicSpec(name=f"analytics.{one}")])
    second = place.query("c2", one, path="/elsewhere")
    second.open()
    place.write(second, 0, "b")
    assert place.seen() == Counter("b")


def test_a_take_over_fences_a_query_whose_promise_has_changed(place: Place) -> None:
    one, _ = place.names
    place.query("c1", one).open()
    changed = place.query("c1", one, chosen="at_least_once")
    changed.open()
    place.query("c2", one, take_over=True).open()
    with pytest.raises(FencedError):
        place.write(changed, 1, "a", mode="at_least_once")


def test_a_restart_does_not_take_results_back_though_its_run_was_told_to_take_over(place: Place) -> None:
    one, _ = place.names
    place.query("c1", one).open()
    first = place.query("c1", one, take_over=True)
    first.open()  # there was nothing to take over
    second = place.query("c2", one, take_over=True)
    second.open()
    with pytest.raises(StateError, match="another checkpoint"):
        first.open()
    place.write(second, 0, "a")
    assert place.seen() == Counter("a")


def test_a_restart_does_not_take_results_back_though_its_run_began_afresh(place: Place) -> None:
    one, _ = place.names
    place.query("c0", one, path="/here").open()
    first = place.query("c1", one, path="/here", fresh=True)
    first.open()
    second = place.query("c2", one, path="/here", fresh=True)
    second.open()
    with pytest.raises(StateError, match="another checkpoint"):
        first.open()
    place.write(second, 0, "a")
    assert place.seen() == Counter("a")


def test_a_take_over_that_cannot_fence_leaves_the_results_with_the_other(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, _ = place.names
    first = place.query("c1", one)
    first.open()
    second = place.query("c2", one, take_over=True)

    def fail(owner: Owner) -> None:
        raise BrokerError(f"{owner.query} cannot be fenced")

    with monkeypatch.context() as patched:
        patched.setattr(second, "_fence_query", fail)
        with pytest.raises(BrokerError):
            second.open()
    place.write(first, 0, "a")
    second.open()
    with pytest.raises(FencedError):
        place.write(first, 1, "b")
    assert place.seen() == Counter("a")


def test_a_job_that_is_left_out_is_not_noted_as_written_by_the_tasks(place: Place) -> None:
    one, two = place.names
    query = place.query("c1", one, two, apart_rows=0)
    query.open()
    assert query.apart(0) == (one, two)
    query.attendance = Attendance(frozenset({two}))
    assert query.apart(0) == (one,)


def test_a_token_of_a_task_that_the_driver_covers_no_longer_counts(place: Place) -> None:
    one, _ = place.names
    query = place.query("c1", one, apart_rows=0)
    query.open()
    order = Order(place.connection, (), query.modes, 0, Slots(4, ()), query.query, "c1", query.run, query.most)
    records = [Outgoing(f"analytics.{one}", [b"a"], [b"a"])]
    assert bring_out(order, "exactly_once", 0, 3, [one], records)
    query.write(3, {})
    query.close()
    apart._open.clear()
    again = place.query("c1", one, apart_rows=0)
    again.open()
    author = author_name(again.query, "exactly_once", 0)
    assert read_tokens(place.connection, [author])[author].batch == -1
