"""`headrace.run`: run jobs on Spark from a script or a notebook, until Ctrl-C or for some seconds."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.config import Settings
from headrace.dev import find_java
from headrace.errors import PlanError
from headrace.kafka import Connection, Topics
from headrace.kafka.job_topics import ensure_topics
from headrace.registry import Registry
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job


@dataclass
class RunSummary:
    """What a run has done.

    Args:
        batches: Micro-batches.
        events: Events that were read.
        results: Results that were written.
        late: Events that came too late.
        dead_letters: Records that could not be read.
    """

    batches: int = 0
    events: int = 0
    results: int = 0
    late: int = 0
    dead_letters: int = 0

    def add(self, batch: BatchDone) -> None:
        """Count a batch."""
        self.batches += 1
        self.events += batch.rows_in
        self.results += batch.results
        self.late += batch.late
        self.dead_letters += batch.dead_letters


def run(
    *jobs: Job,
    bootstrap: str | Connection,
    seconds: float | None = None,
    checkpoint: str | Path | None = None,
    report: Callable[[RunEvent], None] | None = None,
    stop: threading.Event | None = None,
    **options: Any,
) -> RunSummary:
    """Run jobs on Spark in one query, until Ctrl-C, for some seconds, or until an event is set.

    Topics that the jobs write are made if they are missing. A second run goes on where the first one stopped.

    Args:
        jobs: What to run.
        bootstrap: The Kafka: its address, or a `Connection` with how to get in.
        seconds: How long, from the first micro-batch that is done; None: until Ctrl-C.
        checkpoint: Where offsets and state are kept; `.headrace/checkpoints/<names of the jobs>` if not given.
        report: Is told what happens, from the threads in which it happens.
        stop: Set it to end the run after the batch under way.
        options: Further options of `headrace.spark.run.runner.RunOptions`, such as `master="local[4]"` or `fresh=True`.

    Raises:
        HeadraceError: A topic to read is missing, or the query cannot run or failed too often.
    """
    if not jobs:
        raise PlanError("no job to run", hint='Write headrace.run(job, bootstrap="HOST:PORT").')
    connection = Connection(bootstrap=bootstrap) if isinstance(bootstrap, str) else bootstrap
    find_java()
    connection.check()
    ensure_topics(Topics(connection), jobs, Registry(Settings()).things("topics"))
    names = "+".join(sorted(job.name for job in jobs))
    chosen = RunOptions(
        connection=connection,
        checkpoint=Path(".headrace", "checkpoints", names) if checkpoint is None else Path(checkpoint),
        **options,
    )
    ended = threading.Event() if stop is None else stop
    summary, first = RunSummary(), threading.Event()

    def tell(event: RunEvent) -> None:
        if isinstance(event, BatchDone):
            summary.add(event)
            first.set()
        if report is not None:
            report(event)

    _until_interrupted(lambda: run_jobs(jobs, chosen, tell, ended), ended, first, seconds)
    return summary


def _until_interrupted(
    work: Callable[[], None], stop: threading.Event, first: threading.Event, seconds: float | None
) -> None:
    """Work in a thread of its own, since pyspark would take over Ctrl-C in the main one; Ctrl-C ends it in order."""
    problems: list[BaseException] = []

    def target() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - it is raised again below, in the caller's thread
            problems.append(problem)

    thread = threading.Thread(target=target, name="jobs", daemon=True)
    thread.start()
    until: float | None = None
    while thread.is_alive():
        try:
            thread.join(0.2)
        except KeyboardInterrupt:
            if stop.is_set():
                raise  # a second Ctrl-C is from somebody who does not want to wait
            stop.set()
        if seconds is not None and until is None and first.is_set():
            until = time.monotonic() + seconds
        if until is not None and time.monotonic() >= until:
            stop.set()
    if problems:
        raise problems[0]
