"""What is wrong with the pipeline, in sentences that say what to do. Figures in, judgements out.

Each stage of an event's way (ingestion, Kafka, Spark, results, dashboard) is judged on its own: `ok`, `warning`,
`error`, or `unknown` where there is nothing to judge by.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.dashboard.progress_record import DeadLetters

Severity = Literal["ok", "warning", "error", "unknown"]
JobState = Literal["waiting", "live", "silent", "stopped", "failed", "missing"]

#: Seconds without an event, without a word from a run.
NO_EVENTS = 10.0
NO_WORD = 15.0
#: Seconds of incoming events that wait in Kafka: worth a look, and trouble.
BACKLOG_WARNING = 10.0
BACKLOG_ERROR = 60.0
#: Milliseconds that a micro-batch may take before it is worth a look.
SLOW_BATCH = 5_000
#: Milliseconds by which event time may be behind the clock before it is worth a look; from a day on it is a replay.
WATERMARK_LAG = 60_000
REPLAY = 86_400_000
#: The share of events that may be late or dead before it is worth a look.
LOSSES = 0.01


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a query.

    `failed` has the jobs whose own code failed, with the reason: they are left out, and the others go on. `refused` is
    there while most of its input becomes dead letters.
    """

    query: str
    jobs: tuple[str, ...]
    state: str
    detail: str = ""
    silent: float = 0.0
    restarts: int = 0
    batch_ms: float | None = None
    rows_in: float = 0.0
    late: float = 0.0
    dead_letters: float = 0.0
    failed: Mapping[str, str] = field(default_factory=dict)
    refused: DeadLetters | None = None

    @property
    def command(self) -> str:
        """What starts it."""
        return f"headrace run {' '.join(self.jobs)}"

    @property
    def alive(self) -> bool:
        """Whether it is at work, as far as it is known."""
        return self.state in ("starting", "warming", "running", "restarting") and self.silent < NO_WORD


@dataclass(frozen=True, slots=True)
class JobFacts:
    """What is known of a job's results.

    Args:
        job: Its name.
        topic: Its result topic.
        started_by: The job whose run computes it: itself, or the one that it is a further output of.
        missing: Whether that topic is not there.
        entries: How many values are shown.
        silent: Seconds since the last result, None if there was none.
        step: Seconds between two windows; None where results come when they come.
        run: The query that runs it.
        watermark_lag: Milliseconds from its watermark to the clock.
        backlog: Records that it has not read yet.
        refused: Records of its topic that were no results.
    """

    job: str
    topic: str
    started_by: str = ""
    missing: bool = False
    entries: int = 0
    silent: float | None = None
    step: float | None = None
    run: RunFacts | None = None
    watermark_lag: int | None = None
    backlog: int | None = None
    refused: int = 0

    @property
    def command(self) -> str:
        """What starts it."""
        return f"headrace run {self.started_by or self.job}"

    @property
    def reason(self) -> str | None:
        """Why its own code failed; None if it did not."""
        return None if self.run is None else self.run.failed.get(self.started_by or self.job)

    @property
    def at_work(self) -> bool:
        """Whether its query runs, and it takes part in it."""
        return self.run is not None and self.run.alive and self.reason is None


@dataclass(frozen=True, slots=True)
class PartFacts:
    """How a part of the dashboard itself is doing.

    Args:
        name: Its name.
        text: What it does.
        stages: The stages whose figures it finds.
        stale: Whether these figures are out of date.
        failing: Whether it fails and is started again and again.
        reason: Why.
        as_of: The time of its figures, for people; empty if there are none yet.
    """

    name: str
    text: str
    stages: tuple[str, ...] = ()
    stale: bool = False
    failing: bool = False
    reason: str = ""
    as_of: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that is judged."""

    broker: str = "connected"
    broker_text: str = ""
    incoming: float | None = None
    since_event: float | None = None
    dead: float = 0.0
    runs: tuple[RunFacts, ...] = ()
    jobs: tuple[JobFacts, ...] = ()
    viewers: int = 0
    behind: int = 0
    malformed: int = 0
    malformed_reason: str = ""
    parts: tuple[PartFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class Judgement:
    """What is to be said about a stage: each finding with its own severity; the worst one is the stage's."""

    severity: Severity = "ok"
    findings: tuple[tuple[Severity, str], ...] = ()

    @property
    def text(self) -> str:
        """All of it."""
        return " ".join(text for _, text in self.findings)


_ORDER: dict[Severity, int] = {"ok": 0, "unknown": 1, "warning": 2, "error": 3}


class _Verdict:
    """Gathers findings; the worst one is the stage's."""

    def __init__(self, severity: Severity = "ok") -> None:
        self.severity: Severity = severity
        self.findings: list[tuple[Severity, str]] = []

    def say(self, severity: Severity, text: str) -> None:
        self.findings.append((severity, text))
        if _ORDER[severity] > _ORDER[self.severity]:
            self.severity = severity

    def done(self) -> Judgement:
        return Judgement(self.severity, tuple(self.findings))


def diagnose(facts: Facts) -> dict[str, Judgement]:
    """Judge every stage.

    >>> diagnose(Facts(broker="gone", broker_text="Cannot reach Kafka at 127.0.0.1:9092."))["kafka"].severity
    'error'
    """
    gone = facts.broker == "gone"
    judged = {
        "ingest": Judgement("unknown") if gone else _ingest(facts),
        "kafka": _kafka(facts),
        "spark": Judgement("unknown") if gone else _spark(facts),
        "results": Judgement("unknown") if gone else _results(facts),
        "dashboard": _dashboard(facts),
    }
    # While Kafka is gone every figure is old, and that is said once.
    return judged if gone else {name: _with_age(name, found, facts.parts) for name, found in judged.items()}


def _with_age(stage: str, found: Judgement, parts: tuple[PartFacts, ...]) -> Judgement:
    """Say it where the figures of a stage are out of date: they may look fine, and nobody knows."""
    verdict = _Verdict(found.severity)
    for severity, text in found.findings:
        verdict.say(severity, text)
    for part in parts:
        if part.stale and stage in part.stages:
            as_of = f"are of {part.as_of}" if part.as_of else "have never come"
            verdict.say("warning", f"These figures {as_of}: the dashboard's {part.text} brings nothing new.")
    return verdict.done()


def _ingest(facts: Facts) -> Judgement:
    if facts.incoming is None:
        return Judgement("unknown")
    verdict = _Verdict()
    if facts.since_event is None or facts.since_event >= NO_EVENTS:
        since = "yet" if facts.since_event is None else f"for {facts.since_event:.0f} s"
        verdict.say(
            "warning",
            f"No events have come in {since}. Start a feed: headrace simulate, headrace replay or headrace ingest.",
        )
    elif facts.incoming and facts.dead > LOSSES * facts.incoming:
        verdict.say(
            "warning",
            f"{facts.dead:.1f} dead letters a second beside {facts.incoming:.0f} events. Look at why: "
            "headrace tail input.dead-letter.",
        )
    return verdict.done()


def _kafka(facts: Facts) -> Judgement:
    if facts.broker == "gone":
        text = facts.broker_text or "Kafka cannot be reached. Start it: headrace broker start."
        return Judgement("error", (("error", text),))
    if facts.broker == "connecting":
        return Judgement("unknown")
    verdict = _Verdict()
    for job in (job for job in facts.jobs if job.started_by in ("", job.job)):
        rate = facts.incoming or 0.0
        if job.backlog is None or not job.at_work or job.backlog <= max(rate, 100.0) * BACKLOG_WARNING:
            continue
        seconds = job.backlog / max(rate, 1.0)
        severity: Severity = "error" if job.backlog > max(rate, 100.0) * BACKLOG_ERROR else "warning"
        verdict.say(
            severity,
            f"{job.job} has {job.backlog:,} events to catch up with ({seconds:.0f} s of input). If this grows, "
            "give Spark more cores (spark.master) or run fewer jobs beside each other.",
        )
    return verdict.done()


def _spark(facts: Facts) -> Judgement:
    if not facts.runs:
        return Judgement("unknown", (("unknown", "No run has been heard of. Start one: headrace run --all."),))
    verdict = _Verdict()
    for run in facts.runs:
        _judge_run(run, verdict)
    for job in (job for job in facts.jobs if job.started_by in ("", job.job)):
        lag = job.watermark_lag
        if lag is not None and WATERMARK_LAG < lag < REPLAY and job.at_work:
            verdict.say(
                "warning",
                f"Event time of {job.job} is {lag / 1000:.0f} s behind the clock: it is catching up, or a source "
                "partition holds it back (headrace watermarks).",
            )
    return verdict.done()


def _judge_run(run: RunFacts, verdict: _Verdict) -> None:
    command = run.command
    if run.state == "failed":
        verdict.say("error", f"{run.query} has failed: {run.detail or 'see its log'}. Start it again: {command}.")
    elif run.state in ("stopped", "stopping"):
        verdict.say("error", f"{run.query} has been stopped. Start it again: {command}.")
    elif run.silent >= NO_WORD:
        verdict.say(
            "error",
            f"{run.query} fell silent {run.silent:.0f} s ago without saying that it stopped. Look at its log, or "
            f"start it again: {command}.",
        )
    elif run.state != "running":
        verdict.say("warning", f"{run.query} is {run.state}. {run.detail}".strip())
    for job, why in run.failed.items():
        others = f"; the others of {run.query} go on" if run.alive and len(run.jobs) > len(run.failed) else ""
        verdict.say("error", f"{job} has failed and is left out{others}. {_ended(why)} {command}.")
    if run.alive and run.refused is not None:
        refused = run.refused
        verdict.say(
            "error",
            f"{100 * refused.share:.0f} % of the last {refused.records:,} records for {run.query} became dead letters. "
            f"The first reason: {refused.reason} Sample: {refused.sample} "
            "Look at them: headrace tail input.dead-letter.",
        )
    if run.restarts:
        times = "once" if run.restarts == 1 else f"{run.restarts} times"
        verdict.say("warning", f"{run.query} was started again {times}. Its log says why.")
    if run.alive and run.batch_ms is not None and run.batch_ms > SLOW_BATCH:
        verdict.say(
            "warning",
            f"A micro-batch of {run.query} takes {run.batch_ms / 1000:.1f} s. Give Spark more cores, or limit "
            "spark.max_events_per_batch.",
        )
    # Events are counted once for the query, late ones once for each job that they are too late for.
    readers = max(1, len(run.jobs) - len(run.failed))
    if run.alive and run.rows_in and run.late > LOSSES * run.rows_in * readers:
        whom = run.query if readers == 1 else f"a job of {run.query}, on average"
        verdict.say(
            "warning",
            f"{100 * run.late / run.rows_in / readers:.1f} % of the events come too late for {whom}. "
            "`headrace watermarks` recommends a longer delay.",
        )


def _results(facts: Facts) -> Judgement:
    verdict = _Verdict("ok" if any(job.silent is not None for job in facts.jobs) else "unknown")
    for job in facts.jobs:
        state, text = job_state(job)
        if state in ("silent", "missing"):
            verdict.say("warning", text)
        if job.refused:
            verdict.say(
                "warning",
                f"{job.refused:,} records of {job.topic} are no results of {job.job} and were left out. Another "
                "program writes there, or the job's columns have changed.",
            )
    return verdict.done()


def _dashboard(facts: Facts) -> Judgement:
    verdict = _Verdict()
    for part in facts.parts:
        if part.failing:
            verdict.say(
                "error",
                f"The {part.text} failed and is started again: {part.reason or 'see the log'}. "
                "The log of the dashboard has the cause.",
            )
        elif part.stale and not part.stages:
            verdict.say("warning", f"The {part.text} have been the same since {part.as_of or 'the start'}.")
    if facts.malformed:
        verdict.say(
            "warning",
            f"{facts.malformed:,} records of headrace.progress are malformed and were skipped "
            f"(the last one: {facts.malformed_reason}). Another program writes there, or a run of another version.",
        )
    if facts.behind and 2 * facts.behind >= facts.viewers:
        verdict.say(
            "warning",
            f"{facts.behind} of {facts.viewers} viewers do not keep up; they get the newest state, less often.",
        )
    return verdict.done()


def job_state(job: JobFacts) -> tuple[JobState, str]:
    """The state of a job's results, and a sentence about it where something is missing. It has no figures that tick.

    >>> job_state(JobFacts("speeds", "analytics.speeds", missing=True))[0]
    'missing'
    """
    command, run = job.command, job.run
    if run is not None and job.reason is not None:
        return "failed", f"{job.job} has failed and is left out. {_ended(job.reason)} {run.command}."
    if job.missing:
        return "missing", f"There is no topic {job.topic} yet. Start the job: {command}."
    if run is not None and run.state == "failed":
        return "failed", f"The job has failed: {run.detail or 'see its log'}. Start it again: {command}."
    if run is not None and run.state in ("stopped", "stopping"):
        return "stopped", f"The job has been stopped. Start it again: {command}."
    if run is not None and run.silent >= NO_WORD:
        return "stopped", f"The job fell silent without saying that it stopped. Start it again: {command}."
    if job.silent is None:
        return "waiting", _waiting(job)
    # A pattern answers when something happens; windows answer one after the other.
    patience = None if job.step is None else max(NO_WORD, 3 * job.step)
    if patience is not None and job.silent > patience:
        if run is None:
            return "silent", f"No new results come. Is the job running? Start it: {command}."
        return "silent", "The job runs, but no new results come: its input may have stopped (headrace simulate)."
    return "live", ""


def _ended(why: str) -> str:
    """A reason, which says what to do where the run could say it, ready for the command that does it."""
    told = why.strip().rstrip(".") or "Its log says why: mend it and start again"
    return f"{told[0].upper()}{told[1:]}:"


def _waiting(job: JobFacts) -> str:
    if job.run is None:
        return f"No results yet. Is the job running? Start it: {job.command}."
    if job.run.state in ("starting", "warming"):
        return "Spark is starting; the first results come after 20 to 40 s."
    if job.step is None:
        return "The job runs; nothing that it looks for has happened yet."
    return "The job runs; its first window has not ended yet."
