"""What is said about a pipeline in which state: a table."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.dashboard.diagnosis import Facts, JobFacts, RunFacts, diagnose, job_state

RUN = RunFacts("speeds", ("speeds",), "running", silent=0.5, batch_ms=400, rows_in=300.0)
JOB = JobFacts(
    "speeds", "analytics.speeds", entries=10, silent=2.0, step=5.0, run=RUN, watermark_lag=1_500, backlog=120
)
FAILED = {"speeds": "step 'map_batches' failed: ValueError: no speed. Mend it and start again"}
PAIR = replace(RUN, query="both", jobs=("counts", "speeds"), failed=FAILED)
FINE = Facts(incoming=300.0, since_event=1.0, runs=(RUN,), jobs=(JOB,), viewers=3)


def with_run(**changes: object) -> Facts:
    run = replace(RUN, **changes)  # type: ignore[arg-type]
    return replace(FINE, runs=(run,), jobs=(replace(JOB, run=run),))


def with_job(**changes: object) -> Facts:
    return replace(FINE, jobs=(replace(JOB, **changes),))  # type: ignore[arg-type]


def test_all_is_well() -> None:
    judged = diagnose(FINE)
    assert {name: (found.severity, found.text) for name, found in judged.items()} == dict.fromkeys(
        ("ingest", "kafka", "spark", "results", "dashboard"), ("ok", "")
    )


@pytest.mark.parametrize(
    ("facts", "stage", "severity", "words"),
    [
        (replace(FINE, broker="gone", broker_text="Cannot reach Kafka."), "kafka", "error", "Cannot reach Kafka."),
        (replace(FINE, broker="gone"), "spark", "unknown", ""),
        (replace(FINE, since_event=40.0), "ingest", "warning", "for 40 s. Start a feed: headrace simulate"),
        (replace(FINE, since_event=None), "ingest", "warning", "No events have come in yet"),
        (replace(FINE, dead=30.0), "ingest", "warning", "headrace tail input.dead-letter"),
        (with_job(backlog=5_000), "kafka", "warning", "5,000 events to catch up with"),
        (with_job(backlog=50_000), "kafka", "error", "more cores"),
        (
            with_run(state="failed", detail="disk full"),
            "spark",
            "error",
            "failed: disk full. Start it again: headrace run",
        ),
        (with_run(state="stopped"), "spark", "error", "has been stopped"),
        (with_run(silent=31.0), "spark", "error", "fell silent 31 s ago"),
        (with_run(state="warming", detail="the first batch"), "spark", "warning", "is warming. the first batch"),
        (with_run(restarts=2), "spark", "warning", "started again 2 times"),
        (
            replace(FINE, runs=(PAIR,)),
            "spark",
            "error",
            "speeds has failed and is left out; the others of both go on. Step 'map_batches' failed: ValueError: "
            "no speed. Mend it and start again: headrace run counts speeds.",
        ),
        (with_job(run=PAIR, backlog=50_000), "kafka", "ok", ""),
        (with_job(run=replace(PAIR, failed={}), backlog=50_000), "kafka", "error", "more cores"),
        (with_run(batch_ms=9_000.0), "spark", "warning", "takes 9.0 s"),
        (with_run(late=30.0), "spark", "warning", "10.0 % of the events come too late"),
        (with_run(late=5.0, jobs=("counts", "speeds")), "spark", "ok", ""),
        (
            with_run(late=30.0, jobs=("counts", "speeds")),
            "spark",
            "warning",
            "5.0 % of the events come too late for a job",
        ),
        (with_job(watermark_lag=90_000), "spark", "warning", "90 s behind the clock"),
        (with_job(watermark_lag=90_000_000_000), "spark", "ok", ""),
        (replace(FINE, runs=()), "spark", "unknown", "headrace run --all"),
        (with_job(silent=60.0), "results", "warning", "no new results"),
        (with_job(missing=True), "results", "warning", "There is no topic analytics.speeds"),
        (with_job(refused=7), "results", "warning", "7 records"),
        (replace(FINE, viewers=4, behind=2), "dashboard", "warning", "2 of 4 viewers"),
        (replace(FINE, viewers=40, behind=2), "dashboard", "ok", ""),
    ],
)
def test_what_is_said(facts: Facts, stage: str, severity: str, words: str) -> None:
    found = diagnose(facts)[stage]
    assert found.severity == severity
    assert words in found.text


def test_each_finding_has_its_own_severity() -> None:
    found = diagnose(replace(FINE, runs=(replace(PAIR, restarts=1),)))["spark"]
    assert [severity for severity, _ in found.findings] == ["error", "warning"]


@pytest.mark.parametrize(
    ("job", "state", "words"),
    [
        (JOB, "live", ""),
        (replace(JOB, missing=True), "missing", "Start the job: headrace run speeds"),
        (replace(JOB, silent=None), "waiting", "its first window has not ended yet"),
        (replace(JOB, silent=None, step=None), "waiting", "nothing that it looks for has happened"),
        (replace(JOB, silent=None, run=None), "waiting", "Is the job running?"),
        (replace(JOB, silent=None, run=replace(RUN, state="warming")), "waiting", "Spark is starting"),
        (replace(JOB, silent=99.0), "silent", "its input may have stopped"),
        (replace(JOB, silent=99.0, run=None), "silent", "Is the job running?"),
        (replace(JOB, silent=99.0, step=None), "live", ""),
        (replace(JOB, silent=40.0, step=60.0), "live", ""),
        (replace(JOB, run=replace(RUN, state="stopped")), "stopped", "Start it again"),
        (replace(JOB, run=replace(RUN, state="failed", detail="why")), "failed", "failed: why"),
        (replace(JOB, run=PAIR), "failed", "ValueError: no speed. Mend it and start again: headrace run counts speeds"),
        (replace(JOB, job="counts", run=PAIR), "live", ""),
        (replace(JOB, job="speeds.pairs", started_by="speeds", run=PAIR), "failed", "speeds.pairs has failed"),
        (replace(JOB, run=replace(RUN, silent=99.0)), "stopped", "fell silent"),
    ],
)
def test_the_state_of_a_job(job: JobFacts, state: str, words: str) -> None:
    found, text = job_state(job)
    assert found == state
    assert words in text
    assert bool(text) == (state != "live")
