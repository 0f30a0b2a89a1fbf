"""What a run refuses before Spark starts, and what a failed query's text is turned into."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import BrokerError, EnvironmentProblem, HeadraceError, JobError, PlanError, StateError
from headrace.kafka import COMMITS, DEAD_LETTERS, Connection, Topics, TopicSpec
from headrace.kafka.connection import AccessError
from headrace.kafka.producer import ExpiredError, FencedError, TimeoutTooLongError
from headrace.sinks.idempotency import idempotency_keys
from headrace.spark.checkpoint.identity import claim, note
from headrace.spark.run.failure import explain_failure
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from headrace.spark.checkpoint.identity import Identity


def job(name: str = "refused", topic: str = "input.refused") -> Job:
    stream = Stream.topic(topic, VehiclePosition).watermark(bounded("1s"))
    return Job(name, stream.key_by("line").window(tumbling("5s")).aggregate(reports=count()))


def run(connection: Connection, checkpoint: Path, *jobs: Job) -> None:
    options = RunOptions(connection=connection, checkpoint=checkpoint, jars=[])
    run_jobs(jobs, options, lambda _: None, threading.Event())


def test_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="no job to run"):
        run(Connection(bootstrap="127.0.0.1:1"), tmp_path)


@pytest.mark.broker
def test_a_missing_topic_is_named_before_spark_starts(broker: EmbeddedBroker, tmp_path: Path) -> None:
    Topics(broker.connection).ensure([TopicSpec(name="input.refused-here")])
    with pytest.raises(BrokerError, match=r"input\.refused"):
        run(broker.connection, tmp_path / "c", job())


@pytest.mark.broker
def test_a_commits_topic_that_forgets_is_refused_before_spark_starts(tmp_path: Path) -> None:
    refused = job()
    needed = [*refused.sources, *refused.result_topics, refused.late_topic, DEAD_LETTERS]
    with EmbeddedBroker(ServerSettings(data_dir=tmp_path / "broker")) as broker:
        topics = Topics(broker.connection)
        topics.ensure([*(TopicSpec(name=name) for name in needed), TopicSpec(name=COMMITS, partitions=1)])
        with pytest.raises(StateError, match=r"headrace\.commits is not compacted .cleanup\.policy is del") as caught:
            run(broker.connection, tmp_path / "c", refused)
    assert "--add-config cleanup.policy=compact" in caught.value.hint


def test_an_unreachable_broker_is_named_before_spark_starts(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1") as caught:
        run(Connection(bootstrap="127.0.0.1:1"), tmp_path / "c", job())
    assert "headrace broker" in caught.value.hint


class TestCheckpoint:
    def _claim(
        self, path: Path, *names: str, groups: int = 4, partitions: int = 2, fresh: bool = False
    ) -> AbstractContextManager[Identity]:
        jobs = [job(name) for name in names] or [job()]
        return claim(path, jobs, key_groups=groups, state_partitions=partitions, fresh=fresh)

    def test_a_second_run_finds_its_own(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c") as first:
            pass
        with self._claim(tmp_path / "c") as second:
            assert second == first

    def test_a_fresh_start_is_another_one(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c") as first:
            (tmp_path / "c" / "spark").mkdir()
        with self._claim(tmp_path / "c", groups=8, fresh=True) as second:
            assert second.token != first.token
        assert not (tmp_path / "c" / "spark").exists()

    def test_two_runs_at_the_same_time_are_refused(self, tmp_path: Path) -> None:
        with (
            self._claim(tmp_path / "c"),
            pytest.raises(StateError, match=rf"in use by process {os.getpid()}"),
            self._claim(tmp_path / "c", fresh=True),
        ):
            pass

    def test_one_that_was_made_for_something_else_is_refused(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c"):
            pass
        with pytest.raises(StateError) as caught, self._claim(tmp_path / "c", "other"):
            pass
        assert "is of refused, and none of them is run now, but other" in str(caught.value)
        assert "--fresh" in caught.value.hint

    def test_another_number_of_key_groups_moves_the_state(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c", "a"):
            pass
        with self._claim(tmp_path / "c", "a", groups=8) as identity:
            after = identity.fitted([job("a")], state_partitions=2, key_groups=8)
        assert after.moved
        assert (after.key_groups, after.slots) == (8, identity.slots)
        assert identity.kept_slots(after) == {("a", "aggregate-by-line")}

    def test_a_step_that_is_reset_gets_another_slot_and_one_that_is_gone_is_dropped(self, tmp_path: Path) -> None:
        two = Job("a", job("a").stream.key_by("line").window(tumbling("1min")).aggregate(m=count()).named("second"))
        with claim(tmp_path / "c", [two], key_groups=4, state_partitions=2, fresh=False) as identity:
            pass
        after = identity.fitted([two], state_partitions=2, reset=["second"])
        assert after.moved
        assert identity.kept_slots(after) == {("a", "aggregate-by-line")}
        assert after.slots["a", "second"] > max(identity.slots.values())
        with self._claim(tmp_path / "c", "a") as again:
            assert [each.step for each in again.dropped([job("a")], ())] == ["second"]
            fewer = again.fitted([job("a")], state_partitions=2)
        assert fewer.moved
        assert list(fewer.slots) == [("a", "aggregate-by-line")]
        with (
            pytest.raises(StateError, match="has no state of 'third', which is to be reset"),
            claim(tmp_path / "c", [two], key_groups=4, state_partitions=2, fresh=False, reset=["third"]),
        ):
            pass

    def test_steps_keep_their_slots_whatever_the_order_and_whoever_comes(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c", "b", "c") as first:
            assert first.slots == {("b", "aggregate-by-line"): 0, ("c", "aggregate-by-line"): 1}
            note(tmp_path / "c", first.fitted([job("c"), job("b"), job("a")], state_partitions=2))
        with self._claim(tmp_path / "c", "a", "c") as second:
            assert second.slots == {**first.slots, ("a", "aggregate-by-line"): 2}
            assert second.token == first.token
            assert second.query == "b+c"
            assert not second.moved
            after = second.fitted([job("c")], state_partitions=2)
            assert after.slots == second.slots, "a job that is taken out keeps its state"

    def test_another_plan_of_stages_moves_the_state(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c", "a", "b") as identity:
            pass
        assert not identity.fitted([job("b"), job("a")], state_partitions=2).moved
        after = identity.fitted([job("a")], state_partitions=3)
        assert after.moved
        assert {step.job: step.level for step in after.steps} == {"a": 0, "b": -1}
        back = after.fitted([job("a"), job("b")], state_partitions=3)
        assert back.moved == after.moved
        assert {step.job: step.level for step in back.steps} == {"a": 0, "b": 0}
        longer = job("a").stream.key_by("line").window(tumbling("1min")).aggregate(m=count())
        assert identity.fitted([Job("a", longer), job("b")], state_partitions=2).levels == 2

    def test_a_step_that_is_gone_is_named(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c", "a"):
            pass
        renamed = Job("a", job("a").stream.named("per-line"))
        with (
            pytest.raises(
                StateError, match=r"has the state of 'aggregate-by-line' of job 'a'.*'per-line' instead"
            ) as caught,
            claim(tmp_path / "c", [renamed], key_groups=4, state_partitions=2, fresh=False),
        ):
            pass
        assert ".named(" in caught.value.hint
        assert "--reset-step aggregate-by-line" in caught.value.hint
        reset = {"reset": ["aggregate-by-line"]}
        with claim(tmp_path / "c", [renamed], key_groups=4, state_partitions=2, fresh=False, **reset) as identity:
            assert list(identity.fitted([renamed], state_partitions=2, **reset).slots.values()) == [1]

    def test_one_of_an_earlier_layout_is_refused_with_what_to_do(self, tmp_path: Path) -> None:
        (tmp_path / "c").mkdir()
        old = {"token": "t", "jobs": ["refused"], "key_groups": 4, "state_partitions": 2, "version": 2}
        (tmp_path / "c" / "headrace.json").write_text(json.dumps(old))
        with (
            pytest.raises(StateError, match="has layout 2, and this version of Headrace reads layout 3") as caught,
            self._claim(tmp_path / "c"),
        ):
            pass
        assert "--fresh" in caught.value.hint

    def test_a_damaged_one_is_refused(self, tmp_path: Path) -> None:
        with self._claim(tmp_path / "c"):
            (tmp_path / "c" / "headrace.json").write_text(json.dumps({"token": 1}))
        with pytest.raises(StateError, match="cannot be read"), self._claim(tmp_path / "c"):
            pass

    def test_a_directory_that_cannot_be_written_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(EnvironmentProblem, match="checkpoint directory"), self._claim(tmp_path / "file" / "c"):
            pass


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("... org.apache.kafka.common.errors.UnknownTopicOrPartitionException: no", BrokerError, "input.a"),
        ("java.io.IOException: No space left on device", EnvironmentProblem, "disk is full"),
        ("Some data may have been lost because they are not available in Kafka", StateError, "no longer holds"),
        ("TimeoutException: Timed out waiting for a node assignment. Call: describeTopics", BrokerError, "in time"),
        ("Traceback ...\nheadrace.errors.StateError: the saved state does not fit\nmore", StateError, "does not fit"),
        ("Traceback ...\nheadrace.errors.JobError: step 'filter' failed\n", JobError, "step 'filter' failed"),
        # Not of the job's making: a job that fails twice at the same batch is given up.
        ("SparkException: Python worker failed to connect back.", EnvironmentProblem, "did not start in time"),
        ("Traceback\nValueError: odd\n", JobError, "ValueError: odd"),
        ("nothing that is known", JobError, "nothing that is known"),
        ("=== Streaming Query ===\n", JobError, "no reason"),
    ],
)
def test_a_failed_query_is_explained(text: str, kind: type[HeadraceError], words: str) -> None:
    problem = explain_failure(text, topics=["input.a"], checkpoint=Path("c"))
    assert isinstance(problem, kind)
    assert words in str(problem)


@pytest.mark.parametrize(
    "kind",
    [
        AccessError,
        ExpiredError,
        FencedError,
        TimeoutTooLongError,
        BrokerError,
        EnvironmentProblem,
        JobError,
        StateError,
    ],
)
def test_an_error_of_a_task_keeps_its_kind(kind: type[HeadraceError]) -> None:
    # A task's error arrives as the text of its traceback; the kind decides whether the run is started again.
    text = f"Traceback ...\n{kind.__module__}.{kind.__qualname__}: what was wrong\n\n\tat org.apache.spark..."
    problem = explain_failure(text, topics=[], checkpoint=Path("c"))
    assert type(problem) is kind
    assert problem.message == "what was wrong"


def test_results_of_the_same_moment_have_keys_of_their_own_and_the_same_ones_again() -> None:
    frame = pl.DataFrame({"k": ["a", "a", "b"], "event_time": pl.Series([1, 1, 1]).cast(pl.Datetime("us", "UTC"))})
    told = idempotency_keys(frame, ["k"], "job")
    assert told.is_unique().all()
    assert told.to_list() == idempotency_keys(frame, ["k"], "job").to_list()
    assert told.to_list() != idempotency_keys(frame, ["k"], "another").to_list()
