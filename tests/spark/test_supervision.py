"""What a run does after a failure: it starts again where that helps, and not where it does not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace.errors import (
    BrokerError,
    ConfigError,
    EnvironmentProblem,
    HeadraceError,
    JobError,
    PlanError,
    SchemaError,
    StateError,
)
from headrace.kafka.connection import AccessError
from headrace.kafka.producer import FencedError
from headrace.spark.run.supervisor import Restarts, may_pass, supervise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.spark.run.progress import RunEvent

QUICK = Restarts(most=3, pause=(0.001, 0.004), good_run=0.0)


class Story:
    """An attempt that fails as it is told, and how far it came each time."""

    def __init__(self, *failures: HeadraceError | None, batches: Iterator[int] | None = None) -> None:
        self._failures = list(failures)
        self._batches = batches or iter(range(1000))
        self.batch = -1
        self.attempts = 0
        self.told: list[RunEvent] = []
        self.stop = threading.Event()

    def attempt(self) -> None:
        self.attempts += 1
        self.batch = next(self._batches)
        failure = self._failures.pop(0)
        if failure is not None:
            raise failure

    def run(self, restarts: Restarts = QUICK) -> None:
        supervise(self.attempt, restarts=restarts, batch=lambda: self.batch, report=self.told.append, stop=self.stop)


def test_a_failure_that_passes_is_not_seen() -> None:
    story = Story(BrokerError("away"), EnvironmentProblem("the disk is full"), None)
    story.run()
    assert story.attempts == 3
    assert [event.to_dict()["state"] for event in story.told] == ["restarting", "restarting"]
    assert "the disk is full" in story.told[1].to_dict()["detail"]


@pytest.mark.parametrize(
    "lasting",
    [
        PlanError("a window without an aggregate"),
        StateError("made for something else"),
        SchemaError("no such type"),
        ConfigError("no such setting"),
        FencedError("another run has begun"),
        AccessError("not allowed"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_failure_that_would_come_back_ends_the_run(lasting: HeadraceError) -> None:
    story = Story(lasting)
    assert not may_pass(lasting)
    with pytest.raises(type(lasting)) as caught:
        story.run()
    assert caught.value is lasting
    assert story.attempts == 1


def test_it_is_not_tried_for_ever() -> None:
    story = Story(*(BrokerError("away", hint="Start it.") for _ in range(10)), batches=iter([5] * 10))
    with pytest.raises(BrokerError, match=r"away .after 3 restarts in a row.") as caught:
        story.run()
    assert caught.value.hint == "Start it."
    assert story.attempts == 4


def test_progress_between_failures_counts_as_good() -> None:
    story = Story(*(BrokerError("away") for _ in range(9)), None)
    story.run()
    assert story.attempts == 10


def test_a_run_of_no_time_is_not_a_good_one() -> None:
    story = Story(*(BrokerError("away") for _ in range(9)), None)
    with pytest.raises(BrokerError):
        story.run(Restarts(most=3, pause=(0.001, 0.004), good_run=60.0))
    assert story.attempts == 4


def test_an_error_of_the_job_at_the_same_batch_ends_it_the_second_time() -> None:
    story = Story(*(JobError("division by zero") for _ in range(5)), batches=iter([7] * 5))
    with pytest.raises(JobError, match="twice, at the same batch"):
        story.run()
    assert story.attempts == 2
    story = Story(JobError("worker lost"), JobError("worker lost"), None, batches=iter([7, 9, 11]))
    story.run()
    assert story.attempts == 3


def test_stopping_ends_the_pause() -> None:
    story = Story(BrokerError("away"))
    threading.Timer(0.05, story.stop.set).start()
    story.run(Restarts(most=3, pause=(3600.0, 3600.0)))  # an hour, which no test is given
    assert story.attempts == 1


@pytest.mark.parametrize("most", [0, 3])
def test_what_ends_while_it_is_stopped_is_no_failure(most: int) -> None:
    story = Story(EnvironmentProblem("Spark's Java process has ended"), None)
    story.stop.set()
    story.run(Restarts(most=most, pause=(0.001, 0.001)))
    assert story.attempts == 1
    assert story.told == [], "nothing is started again, and nothing is told of a failure"
    lasting = Story(StateError("made for something else"))
    lasting.stop.set()
    with pytest.raises(StateError):
        lasting.run()


def test_no_restarts_on_request() -> None:
    story = Story(BrokerError("away"))
    with pytest.raises(BrokerError) as caught:
        story.run(Restarts(most=0))
    assert str(caught.value) == "away"
