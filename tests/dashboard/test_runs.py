"""What runs say of themselves, on its way from Kafka to a viewer."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.dashboard.city import SECOND, Hand, delays_job, fresh, serving, vehicles_job
from tests.dashboard.viewer import watching

from headrace.spark.run.progress import BatchDone, JobChange, StateChange
from headrace.spark.run.publishing import ProgressTopic

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

pytestmark = pytest.mark.broker


def test_the_pipeline_is_told_by_the_run_itself(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("run"))
    Hand(broker.connection, (job,)).close()
    mark = int((datetime.now(UTC) - 2 * SECOND).timestamp() * 1e6)

    async def story(url: str) -> None:
        async with watching(url) as viewer:
            newest = lambda: viewer.heard["pipeline"][-1]  # noqa: E731 - read anew each time
            with ProgressTopic(broker.connection, query=job.name, jobs=[job]) as publish:
                publish(StateChange("starting"))
                publish(StateChange("warming", "the first batch"))
                await viewer.until(
                    lambda: viewer.heard["pipeline"] and any(q["state"] == "warming" for q in newest()["queries"]),
                    what="the warm-up",
                )
                status = viewer.heard["status"][-1]["jobs"][job.name]
                assert status["state"] == "waiting"
                publish(StateChange("running"))
                publish(
                    BatchDone(
                        batch=7,
                        rows_in=300,
                        results=40,
                        late=0,
                        dead_letters=0,
                        duration_ms=410,
                        watermark=mark,
                        backlog=12,
                        watermarks={job.name: mark},
                        state_rows=900,
                        state_bytes=123_456,
                        phases={"addBatch": 350},
                    )
                )
                publish(StateChange("running"))
                query = await viewer.until(
                    lambda: next((q for q in newest()["queries"] if q["batch"] == 7 and q["query"] == job.name), None),
                    what="a batch",
                )
                assert (query["batch_ms"], query["state_rows"], query["state_bytes"]) == (410, 900, 123_456)
                assert query["phases"] == {"addBatch": 350}
                (watermark,) = [found for found in newest()["watermarks"] if found["job"] == job.name]
                assert watermark["watermark"] == mark // 1000
                publish(StateChange("restarting", "in 1 s (1 of 5): the disk was full"))
                await viewer.until(
                    lambda: any(q["restarts"] == 1 for q in newest()["queries"] if q["query"] == job.name),
                    what="a restart to be counted",
                )
                publish(StateChange("stopped"))
            await viewer.until(
                lambda: viewer.heard["status"][-1]["jobs"][job.name]["state"] == "stopped",
                what="the job to have stopped",
            )
            advice = f"headrace run {job.name}"
            await viewer.until(
                lambda: any(advice in problem["text"] for problem in newest()["problems"]), what="advice on what to do"
            )

    with serving(broker.connection, [job]) as served:
        asyncio.run(story(served.url))


def test_a_job_that_failed_alone_is_told_and_so_is_its_return(broker: EmbeddedBroker) -> None:
    sound, broken = vehicles_job(fresh("sound")), delays_job(fresh("broken"))
    jobs, query = [sound, broken], f"{sound.name}+{broken.name}"
    Hand(broker.connection, tuple(jobs)).close()

    async def story(url: str) -> None:
        async with watching(url) as viewer:

            def heard(name: str) -> str | None:
                return viewer.heard["status"][-1]["jobs"][name]["state"] if viewer.heard["status"] else None

            def about() -> list[dict[str, str]]:
                # Other tests' runs have left their last words in the same topic.
                told = viewer.heard["pipeline"][-1:]
                return [each for shown in told for each in shown["problems"] if broken.name in each["text"]]

            with ProgressTopic(broker.connection, query=query, jobs=jobs) as publish:
                publish(StateChange("running"))
                publish(JobChange(broken.name, "stopped", "step 'x' failed: KeyError: <b>. Mend it and start again"))
                await viewer.until(lambda: heard(broken.name) == "failed", what="the job's failure")
                assert heard(sound.name) != "failed"
                (problem,) = await viewer.until(about, what="a sentence about it")
                assert (problem["stage"], problem["severity"]) == ("spark", "error")
                command = f"headrace run {' '.join(sorted(job.name for job in jobs))}"
                assert problem["text"] == (
                    f"{broken.name} has failed and is left out; the others of {query} go on. Step 'x' failed: "
                    f"KeyError: <b>. Mend it and start again: {command}."
                )
                (told,) = [each for each in viewer.heard["pipeline"][-1]["queries"] if each["query"] == query]
                assert list(told["failed"]) == [broken.name]
                publish(JobChange(broken.name, "returned", "from batch 9 on"))
                await viewer.until(lambda: heard(broken.name) != "failed" and not about(), what="the job's return")

    with serving(broker.connection, jobs) as served:
        asyncio.run(story(served.url))
