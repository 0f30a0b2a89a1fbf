"""Runs jobs on Spark until they are stopped: session, query, sinks, restarts, and the story of it as it goes."""

from __future__ import annotations

import contextlib
import errno
import logging
import shutil
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from py4j.protocol import Py4JError
from pyspark.errors import PySparkRuntimeError

from headrace.errors import EnvironmentProblem, FailedJobError, HeadraceError, PlanError, StateError
from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.connection import AccessError
from headrace.kafka.ranges import LogEnds
from headrace.kafka.rights import check_rights
from headrace.kafka.topics import COMMITS, DEAD_LETTERS
from headrace.savepoints.compatibility import check_possible as check_possible_steps
from headrace.savepoints.compatibility import plan_jobs
from headrace.savepoints.rescale import rescaled
from headrace.spark.checkpoint.continuity import (
    BEGINNING,
    accept_loss,
    begin_topics,
    check_sources,
    find_gaps,
    forget_plan,
    read_progress,
    read_span,
    refuse,
    remember_topics,
)
from headrace.spark.checkpoint.identity import claim, note
from headrace.spark.checkpoint.moving import batches_before, clear, complete, move, put_aside
from headrace.spark.checkpoint.positions import Span
from headrace.spark.checkpoint.saved_state import saved_state
from headrace.spark.checkpoint.stale_checkpoint import (
    check_possible,
    find_ahead,
    find_pending,
    refuse_old,
    refuse_promise,
    stops_of,
    with_end,
    without,
)
from headrace.spark.checkpoint.step_notes import note_steps, noted_steps
from headrace.spark.checkpoint.watermarks_file import StandingFile
from headrace.spark.output.committed_offsets import OffsetMirror
from headrace.spark.output.delivery import Deliveries
from headrace.spark.output.job_sinks import JobSinks
from headrace.spark.output.records import Writer
from headrace.spark.output.sink import TRANSACTION_BYTES
from headrace.spark.run.batches import Batches
from headrace.spark.run.catchup import CatchUp, CatchUpStopped, Companion, MissedEventsLostError, has_returned
from headrace.spark.run.changes import JobChanges
from headrace.spark.run.dead_letter_watch import DeadLetterWatch
from headrace.spark.run.failure import disk_full, explain_failure, is_data_loss
from headrace.spark.run.isolation import Attendance, Return, StoppedJob, StoppedJobs
from headrace.spark.run.progress import JobChange, RunEvent, StateChange
from headrace.spark.run.rights import rights_of
from headrace.spark.run.serving import Requests
from headrace.spark.run.supervisor import Restarts, supervise
from headrace.spark.session import environment, user_code
from headrace.spark.session.session import forget_java, is_alive, spark_settings, start_session
from headrace.spark.source.advice import Advice, AdviceFile
from headrace.spark.source.backpressure import FIRST, RecordSizes, Throttle, bound_by_memory, byte_bound_by_memory
from headrace.spark.source.batch_timing import Punctuality
from headrace.spark.stages.query import source_topics, streaming_query
from headrace.spark.stages.slots import Slots
from headrace.stream.message_types import types_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.engine.limits import StateLimit
    from headrace.events import Encoding
    from headrace.kafka import Connection
    from headrace.logs import LogFormat
    from headrace.savepoints.state import State
    from headrace.spark.checkpoint.continuity import Gap, Progress
    from headrace.spark.checkpoint.identity import Identity
    from headrace.spark.checkpoint.positions import Places, Position
    from headrace.spark.output.tokens import Token
    from headrace.stream import Delivery, Job

log = logging.getLogger(__name__)

_HOW_TO_RETURN = "Its state is kept: mend it and start again, and it takes in what it has missed"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How jobs run.

    Args:
        connection: The Kafka to read from and write to.
        checkpoint: Where offsets and state are kept.
        jars: Jars that Spark loads for code of the user's own; Headrace needs none to read and write Kafka.
        master: Where Spark runs, such as "local[2]".
        key_groups: Key groups per job: the most that state can be spread over.
            Another number than before spreads it anew.
        state_partitions: Spark's state partitions; as many as there are cores.
        cadence_ms: The least time between the starts of two batches; 0: as soon as the last one is out.
        driver_memory: Heap of the driver.
        state_memory_mb: Memory of the state store beside the heap; what does not fit is on disk.
        max_events_per_batch: The most events a batch reads; None: as many as memory allows.
        max_bytes_per_batch: The most bytes a batch reads, by what is known of records' lengths; None: as many as
            memory allows.
        target_batch_ms: What a batch may take while there is a backlog; batches grow and shrink towards it.
        first_batch_events: What the first batch after a start may read, before its time is known.
        starting: Where to begin without a checkpoint.
        fresh: Forget the checkpoint.
        delivery: What readers may rely on, for all jobs; None: as each job says.
        apart_rows: A job that gives more rows than this in a batch is written by its state partitions from then on,
            not by the driver; None: never.
        transaction_bytes: What one transaction holds at most; a batch with more results is written in several.
        state_limit: How much state each stateful step of a job may keep; None: as much as there is room for.
        restarts: How often a failed query is started again.
        accept_loss: Go on where Kafka no longer holds what the checkpoint wants to read next.
        accept_old_checkpoint: Go on with a checkpoint that is older than its results, and write only what comes after.
        take_over: Write results that another checkpoint has written so far; the query that did is stopped.
        reset_steps: Names of steps that begin without state; that which they had is forgotten.
        restore: Fills the directory of a checkpoint that is not there yet; see `headrace.spark.checkpoint.savepoints`.
        encoding: How results, late events and dead letters are written.
        python: The interpreter of executors on other machines; ours, by its path, if not given.
        log_format: How Spark's Java process writes its log.
        ship: A directory for an archive of our packages, which then travels to executors; None: they have them.
        settings: Further Spark settings, which win over ours.
    """

    connection: Connection
    checkpoint: Path
    jars: Sequence[Path] = ()
    master: str = "local[2]"
    key_groups: int = 2
    state_partitions: int = 2
    cadence_ms: int = 0
    driver_memory: str = "2g"
    state_memory_mb: int = 512
    max_events_per_batch: int | None = None
    max_bytes_per_batch: int | None = None
    target_batch_ms: int = 2_500
    first_batch_events: int = FIRST
    starting: Literal["earliest", "latest"] = "earliest"
    fresh: bool = False
    delivery: Delivery | None = None
    apart_rows: int | None = 100_000
    transaction_bytes: int = TRANSACTION_BYTES
    state_limit: StateLimit | None = None
    restarts: Restarts = field(default_factory=Restarts)
    accept_loss: bool = False
    accept_old_checkpoint: bool = False
    take_over: bool = False
    reset_steps: Sequence[str] = ()
    restore: Callable[[Path], None] | None = None
    encoding: Encoding = "binary"
    python: str | None = None
    log_format: LogFormat = "text"
    ship: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)


def run_jobs(
    jobs: Sequence[Job], options: RunOptions, report: Callable[[RunEvent], None], stop: threading.Event
) -> None:
    """Run jobs in one query until `stop` is set.

    Args:
        jobs: What to run; their order does not matter.
        options: How.
        report: Is told what happens, from the threads in which it happens.
        stop: Set it to end the run after the batch under way.

    Raises:
        HeadraceError: The query cannot run, or failed too often; the message says why.
    """
    if not jobs:
        raise PlanError("no job to run", hint="Name at least one; `headrace jobs` lists them.")
    if options.transaction_bytes < 1:
        raise PlanError(
            f"transaction_bytes is {options.transaction_bytes}: a transaction could hold no result",
            hint="Give 1 or more; the default suits most.",
        )
    # Java, and the processes that it starts, may have another working directory than this one.
    options = replace(options, checkpoint=options.checkpoint.absolute())
    ordered = sorted(jobs, key=lambda job: job.name)
    with claim(
        options.checkpoint,
        ordered,
        key_groups=options.key_groups,
        state_partitions=options.state_partitions,
        fresh=options.fresh,
        reset=options.reset_steps,
        restore=options.restore,
    ) as identity:
        run = _Run(ordered, options, identity, report, stop)
        try:
            # What is wrong before anything has run will not pass; the same later on may.
            run.prepare()
            supervise(run.attempt, restarts=options.restarts, batch=lambda: run.last, report=report, stop=stop)
        except HeadraceError as problem:
            report(StateChange("failed", str(problem)))
            raise
        finally:
            run.close()
    report(StateChange("stopped"))


@dataclass(frozen=True)
class _Fit:
    """How a checkpoint that can be gone on with fits.

    Args:
        progress: How far it has come.
        gaps: What its topics have lost.
        pending: What is out and not done, where something has to be changed.
        changes: Whether something has to be changed before it goes on.
    """

    progress: Progress | None
    gaps: Sequence[Gap] = ()
    pending: Sequence[Token] = ()
    changes: bool = False


class _Run:
    """One run of a query, over all its restarts; Spark's session is kept as long as its Java process lives."""

    def __init__(
        self,
        jobs: Sequence[Job],
        options: RunOptions,
        identity: Identity,
        report: Callable[[RunEvent], None],
        stop: threading.Event,
    ) -> None:
        self.last = -1
        self._jobs = jobs
        self._options = options
        self._identity = identity
        self._report = report
        self._stop = stop
        self._tried = False
        self._stopped = StoppedJobs(options.checkpoint)
        self._absent: set[str] = set()
        self._returning: dict[str, Return] = {}
        self._failed: dict[str, int] = {}
        self._caught_up = False
        self._spark: SparkSession | None = None
        self._reset = tuple(options.reset_steps)
        self._requests = Requests(options.checkpoint, report, stop)
        self._watch = DeadLetterWatch()
        self._deliveries = Deliveries(
            options.connection,
            jobs,
            chosen=options.delivery,
            token=identity.token,
            # Those that the checkpoint had may have written apart.
            partitions=max(options.state_partitions, identity.state_partitions),
            apart_rows=options.apart_rows,
            most=options.transaction_bytes,
            path=str(options.checkpoint.absolute()),
            fresh=options.fresh,
            take_over=options.take_over,
            query=identity.query,
        )
        self._sinks = JobSinks(jobs, identity.token)
        complete(options.checkpoint, identity)
        self._requests.begin()
        self._stops: list[Position] = []
        self._whole: list[Position] = []

    def attempt(self) -> None:
        """Start the query and run it until it is stopped or fails; a job that keeps failing is left out."""
        while True:
            try:
                self._attempt()
            except FailedJobError as problem:
                if not self._leave_out(problem):
                    raise
            else:
                return

    def _leave_out(self, problem: FailedJobError) -> bool:
        """Go on without a job whose own code fails; False where it may pass, or where no other job is left."""
        job = problem.job
        again = self._failed.get(job) == self.last
        self._failed[job] = self.last
        if len(self._jobs) - len(self._absent) <= 1 or job in self._absent:
            return False
        if job in self._sinks.jobs:
            return False  # what it misses would have to reach its sinks later, under tokens of its own
        if (not again and self._options.restarts.most) or self._stop.is_set():
            return False  # it is tried once more
        progress = read_progress(self._options.checkpoint)
        if progress is not None and any(not progress.position.includes(stop) for stop in self._stops):
            return False  # what is read again must be read by all whose results are out
        # What is out of the batch already, by the driver or by some partitions, cannot be taken back.
        if progress is None or self._is_partly_out(progress.committed + 1, job, _planned(progress)):
            return False
        self._absent.add(job)
        back = self._returning.pop(job, None)
        before = self._stopped.read().get(job)
        if back is not None and before is not None and progress.committed < back.batch:
            # What it took in when it caught up is not in the checkpoint yet: the notes of that stay valid.
            self._stopped.add(replace(before, message=problem.message))
        else:
            self._stopped.add(StoppedJob(job, progress.next, problem.message))
        log.error("%s; the others go on without it", problem, exc_info=problem)
        self._report(JobChange(job, "stopped", f"{problem.reason}. {_HOW_TO_RETURN}"))
        return True

    def _is_partly_out(self, batch: int, job: str, span: Span | None) -> bool:
        """Ask Kafka, after the query has ended, whether some of a job's results of a batch are out."""
        try:
            self._deliveries.open()
            return self._deliveries.took_part(batch, job, span)
        finally:
            self._deliveries.close()

    def _adapt(self, spark: SparkSession) -> None:
        """Make the checkpoint one of these jobs: some may be new, others gone, and Spark's plan another one."""
        options, identity = self._options, self._identity
        progress = read_progress(options.checkpoint)
        self._check_steps(identity)
        after = identity.fitted(
            self._jobs,
            state_partitions=options.state_partitions,
            key_groups=options.key_groups,
            reset=self._reset,
        )
        for each in identity.dropped(self._jobs, self._reset):
            self._report(StateChange("starting", f"the state of step {each.step} of {each.job} is forgotten"))
        # A restart of this run must not forget what has gathered since.
        self._reset = ()
        if progress is not None:
            progress = self._begin_topics(progress)
            self._forget_old_stops(spark, progress)
            changes = JobChanges(identity, self._jobs, self._stopped, progress, self._deliveries)
            changes.note(Topics(options.connection) if options.starting == "earliest" else None, self._report)
            if after.moved != identity.moved:
                changes.check_move(after)
                groups = f", from {identity.key_groups} to {after.key_groups} key groups"
                groups = groups if identity.key_groups != after.key_groups else ""
                self._report(StateChange("starting", f"moving the saved state to another plan of stages{groups}"))
                move(spark, options.checkpoint, identity, after, progress)
        elif after.moved != identity.moved:
            after = replace(after, moved=identity.moved)
        if after != identity:
            note(options.checkpoint, after)
        note_steps(options.checkpoint, after, self._jobs)
        self._identity = after

    def _begin_topics(self, progress: Progress) -> Progress:
        """Let topics that the checkpoint has not read before begin where they would in a new one."""
        options = self._options
        unread = [topic for topic in source_topics(self._jobs) if topic not in progress.next]
        if not unread:
            return progress
        log_ends = LogEnds(options.connection)
        places = log_ends.partitions(unread)
        begins = log_ends.begins(places) if options.starting == "earliest" else log_ends.ends(places)
        if not any(begins.values()):
            return progress
        begun = any(not progress.position.includes(end) for end in self._sinks.ends())
        if progress.planned is not None and (begun or find_pending(progress, self._deliveries.tokens())):
            raise StateError(
                f"{', '.join(unread)} cannot be added now: results of the last batch are out, and the checkpoint "
                f"{options.checkpoint} has not done it yet",
                hint="Run the jobs as they were once more and stop them, then add the topic.",
            )
        by_topic: Places = {}
        for (topic, partition), offset in begins.items():
            by_topic.setdefault(topic, {})[partition] = offset
        begin_topics(progress, by_topic)
        return read_progress(options.checkpoint) or progress

    def _check_steps(self, identity: Identity) -> None:
        """Refuse state that a changed job cannot read, before anything is changed."""
        noted = {entry.job: entry for entry in noted_steps(self._options.checkpoint)}
        known = [noted[job] for job in identity.jobs if job in noted]
        jobs = {job.name: job.pipeline for job in self._jobs}
        plans = plan_jobs(jobs, known, key_groups=self._options.key_groups, reset=self._reset)
        check_possible_steps(plans, where=str(self._options.checkpoint))
        for plan in plans:
            if plan.action == "migrate":
                self._report(StateChange("starting", f"step {plan.step} of {plan.job} is migrated: {plan.detail}"))

    def _bring_in(self) -> None:
        """Let the first batch after a move of the state bring it in."""
        options, identity = self._options, self._identity
        progress = read_progress(options.checkpoint)
        if not identity.moved or progress is None:
            return
        stopped = self._stopped.read()
        if progress.committed >= 0:
            clear(options.checkpoint, identity, stopped)
            return
        for job in self._jobs:
            if job.name not in stopped and job.name not in self._returning:
                state = rescaled(job.pipeline, put_aside(options.checkpoint, identity, job.name), options.key_groups)
                self._returning[job.name] = Return(0, f"moved/{identity.moved}", state, {})
        self._whole = []
        if progress.planned is not None:
            self._stops = [*self._stops, progress.planned]
            self._whole = [progress.planned]

    def _catch_up(self, spark: SparkSession) -> None:
        """Let jobs that stopped in an earlier run take in what they have missed; who fails again stays out."""
        options, jobs = self._options, {job.name: job for job in self._jobs}
        for name, stopped in self._stopped.read().items():
            if name not in jobs:
                continue  # it was taken out of the set, and may come back
            job = jobs[name]
            progress = read_progress(options.checkpoint)
            if progress is None:
                continue
            state = self._saved(spark, progress, [name])[name]
            batch, until, span = progress.committed + 1, progress.next, _planned(progress)
            if span is not None and self._deliveries.begun_without(batch, name, span):
                # Spark will only repeat it for the state of those who took part, and for what is not out yet.
                batch, until = batch + 1, span.end.offsets
            if job.sinks:
                raise StateError(
                    f"job {name!r} stopped in an earlier run and has to catch up, which it cannot do with sinks "
                    f"besides Kafka ({', '.join(sink.text for sink in job.sinks)}); why it stopped: {stopped.message}",
                    hint="Start it once without its sinks, until `headrace run` says that it has returned.",
                )
            self._report(JobChange(name, "catching_up", f"stopped since {stopped.since}"))
            topics = Topics(options.connection)
            try:
                back = CatchUp(
                    job=job,
                    stopped=stopped,
                    connection=options.connection,
                    groups=options.key_groups,
                    partitions={topic: len(topics.held(topic).partitions) for topic in job.sources},
                    query=self._deliveries.query,
                    token=self._identity.token,
                    delivery=self._deliveries.modes[name],
                    encoding=options.encoding,
                    directory=self._stopped.directory(name),
                    tell=partial(self._tell_left, name),
                    run_id=self._deliveries.run,
                    stop=self._stop,
                    state_limit=options.state_limit,
                    companions=self._companions(name),
                    check_owner=self._deliveries.check_owner,
                    accept_loss=options.accept_loss,
                ).run(rescaled(job.pipeline, state, options.key_groups), until, batch)
            except (FailedJobError, MissedEventsLostError) as problem:
                self._absent.add(name)
                if len(self._absent) == len(self._jobs):
                    raise  # nobody is left who could go on
                log.error("%s; the others go on without it", problem, exc_info=problem)
                told = f"{problem.reason}. {_HOW_TO_RETURN}" if isinstance(problem, FailedJobError) else str(problem)
                self._report(JobChange(name, "stopped", told))
            else:
                self._returning[name] = back
                self._absent.discard(name)
                self._report(JobChange(name, "returned", f"from batch {batch} on"))

    def _forget_old_stops(self, spark: SparkSession, progress: Progress) -> None:
        """Forget the stops of jobs that have taken part again since, whether they are run now or not.

        One that is not run now is then noted as taken out where the query stands, and not where it stopped before.
        """
        stopped = self._stopped.read()
        for name, state in self._saved(spark, progress, list(stopped)).items():
            if has_returned(state, stopped[name]):
                self._forget_stop(name)

    def _saved(self, spark: SparkSession, progress: Progress, jobs: Sequence[str]) -> dict[str, State]:
        """Read the state of jobs, in Spark's part of the checkpoint or put aside by a move."""
        checkpoint, identity = self._options.checkpoint, self._identity
        saved = saved_state(spark, checkpoint, identity, jobs) if jobs and progress.committed >= 0 else {}
        return {name: saved.get(name) or put_aside(checkpoint, identity, name) for name in jobs}

    def _companions(self, name: str) -> list[Companion]:
        """Tell the other jobs, and up to where those have taken part that have stopped as well."""
        stopped = self._stopped.read()
        away = {job: each.places for job, each in stopped.items() if job not in self._returning}
        return [Companion(job, away.get(job.name)) for job in self._jobs if job.name != name]

    def _tell_left(self, job: str, left: int) -> None:
        self._report(JobChange(job, "catching_up", f"{left:,} events left"))

    def _forget_stop(self, job: str) -> None:
        self._stopped.remove(job)
        shutil.rmtree(self._stopped.directory(job), ignore_errors=True)

    def _attempt(self) -> None:
        try:
            if self._tried:
                self.prepare()
            self._tried = True
            self._look()
            self._deliveries.open()
            self._sinks.open()
            self._fit()
            spark = self._session()
            if not self._caught_up:
                self._adapt(spark)
                self._catch_up(spark)
                # Only now: what failed on the way is tried again before the query starts without what was missed.
                self._caught_up = True
            self._bring_in()
            self._query(spark)
        except CatchUpStopped:
            log.info("catching up was stopped; the next start goes on with it")
        except Py4JError as problem:
            self._raise_java_ended(problem)
        except PySparkRuntimeError as problem:
            if problem.getCondition() != "JAVA_GATEWAY_EXITED":
                raise
            self._raise_java_ended(problem)
        except OSError as problem:
            if isinstance(problem, HeadraceError):
                raise
            if problem.errno in _DISK:
                raise disk_full(self._options.checkpoint) from problem
            self._raise_java_ended(problem)
        finally:
            self._sinks.close()
            self._deliveries.close()

    def _raise_java_ended(self, problem: Exception) -> None:
        """Say that Java is gone, unless it was ended together with us: a signal may go to the whole process group."""
        if self._stop.wait(_SIGNAL_SECONDS):
            log.info("Spark's Java process has ended while the run was being stopped: %s", problem)
            return
        raise _java_ended() from problem

    def close(self) -> None:
        """Let go of Spark."""
        # Java may have had the same signal, and end at the same time.
        with contextlib.suppress(Py4JError, OSError):
            if self._spark is not None and is_alive(self._spark):
                self._spark.stop()
        self._spark = None

    def prepare(self) -> None:
        """See that everything is there, before anything costly is started."""
        options = self._options
        options.connection.check()
        check_rights(options.connection, rights_of(self._jobs, query=self._identity.query))
        topics = Topics(options.connection)
        sources = source_topics(self._jobs)
        check_sources(options.checkpoint, _sources_by_job(self._jobs))
        outputs = [topic for job in self._jobs for topic in (*job.result_topics, job.late_topic)]
        topics.require([*sources, *outputs, DEAD_LETTERS, COMMITS])
        self._check_commits(topics)
        gaps = find_gaps(options.checkpoint, topics, sources)
        if gaps and not options.accept_loss:
            raise refuse(options.checkpoint, gaps)

    def _look(self) -> None:
        """Refuse a checkpoint that does not fit before anybody is fenced: it may be a copy of one that is in use."""
        try:
            self._judge(self._deliveries.look(stable=False))
        except StateError:
            # Somebody's open transaction may hide that going on was chosen in the meantime.
            self._judge(self._deliveries.look(stable=True))

    def _judge(self, tokens: Mapping[str, Token]) -> _Fit:
        """See that the checkpoint fits its topics and what is out, or that going on was chosen and is possible.

        Args:
            tokens: What is out, by author.

        Raises:
            StateError: It does not.
        """
        options = self._options
        topics, sources = Topics(options.connection), source_topics(self._jobs)
        tokens = {author: with_end(options.checkpoint, token) for author, token in tokens.items()}
        progress = read_progress(options.checkpoint)
        ahead = find_ahead(progress, tokens)
        if any(not token.accepted for token in ahead.values()) and not options.accept_old_checkpoint:
            raise refuse_old(options.checkpoint, progress, ahead.values())
        self._check_promises(progress, tokens)
        gaps = find_gaps(options.checkpoint, topics, sources)
        if gaps and (not options.accept_loss or progress is None):
            raise refuse(options.checkpoint, gaps)
        if not ahead and not gaps:
            return _Fit(progress)
        kept = {author: without(token, gaps) for author, token in tokens.items()}
        pending = list(find_pending(progress, kept).values())
        check_possible(options.checkpoint, progress, pending, stopped=self._stopped.read(), topics=topics)
        return _Fit(progress, gaps, pending, changes=True)

    def _check_promises(self, progress: Progress | None, tokens: Mapping[str, Token]) -> None:
        """See that nothing that is out is written again because its job makes another promise now.

        At least once, a batch under way may come again.
        """
        modes = self._deliveries.modes
        for author, token in tokens.items():
            one = {author: token}
            again = "" if find_ahead(progress, one) else "at_least_once"
            moved = {job: mode for job, mode in self._deliveries.moved(author, token).items() if modes[job] != again}
            if moved and find_pending(progress, one):
                raise refuse_promise(self._options.checkpoint, moved, modes)

    def _fit(self) -> None:
        """See that the checkpoint fits its topics and what is out; make it so where that was chosen."""
        options, deliveries = self._options, self._deliveries
        deliveries.amend(partial(with_end, options.checkpoint))
        fit = self._judge(deliveries.tokens())
        self._stops = []
        if fit.changes:
            deliveries.amend(partial(without, gaps=fit.gaps))
            # From now on the next start needs no choice either: the tokens say that it was made.
            deliveries.amend(
                lambda token: (
                    replace(token, accepted=True) if any(each in fit.pending for each in token.pieces) else token
                )
            )
            self._go_on(fit.progress, fit.gaps, fit.pending)
        self._tell_repeats(fit.progress)
        remember_topics(options.checkpoint, Topics(options.connection), _sources_by_job(self._jobs))

    def _go_on(self, progress: Progress | None, gaps: Sequence[Gap], pending: Sequence[Token]) -> None:
        """Let a checkpoint go on that is older than its results, or that has lost events."""
        if progress is not None and gaps:
            accept_loss(gaps, progress)
            told = "; ".join(map(str, gaps))
            log.warning("going on without what is lost: %s", told)
            self._report(StateChange("starting", f"going on without what is lost: {told}"))
        elif progress is not None:
            forget_plan(progress)
        # A sink may hold one batch less than Kafka.
        self._stops = stops_of(read_progress(self._options.checkpoint), pending, self._sinks.ends())
        if self._stops:
            told = f"results are out up to batch {max(token.batch for token in pending)}; up to there, events are read "
            told += "again for the state and nothing is written"
            log.warning("the checkpoint is older than its results: %s", told)
            self._report(StateChange("starting", told))

    def _tell_repeats(self, progress: Progress | None) -> None:
        """Say that results come again which nobody promised once, where that is more than the batch under way."""
        repeated = find_ahead(progress, {str(place): token for place, token in enumerate(self._deliveries.repeated())})
        if repeated:
            last = max(token.batch for token in repeated.values())
            told = f"the checkpoint is older than its results, which are out up to batch {last}: "
            told += "under at_least_once they are written again from there on"
            log.warning(told)
            self._report(StateChange("starting", told))

    def _check_commits(self, topics: Topics) -> None:
        """See that tokens do not expire, once a run and where any are written."""
        if self._tried or set(self._deliveries.modes.values()) == {"at_least_once"}:
            return
        try:
            topics.require_compacted(COMMITS)
        except AccessError as problem:
            log.warning("cannot check that %s is compacted, which it must be: %s", COMMITS, problem)

    def _session(self) -> SparkSession:
        if self._spark is not None and not is_alive(self._spark):
            forget_java()
            self._spark = None
        if self._spark is None:
            self._report(StateChange("starting", f"Spark on {self._options.master}"))
            options = self._options
            self._spark = start_session(
                "headrace", master=options.master, settings=_settings(options), python=options.python
            )
            if not options.master.startswith("local"):
                modules = user_code.pack_modules(options.checkpoint.parent / "modules")
                if modules is not None:
                    self._spark.sparkContext.addPyFile(str(modules))
        return self._spark

    def _known_partitions(self, topics: Topics) -> dict[str, int]:
        """Count the partitions that the query begins with.

        A batch that comes again must not know a partition that was added since: it would hold the watermark back, and
        a window whose result is out would fire a second time later. The batch that first lists it makes it known.
        """
        names, progress = source_topics(self._jobs), read_progress(self._options.checkpoint)
        if progress is None:
            return {name: len(topics.held(name).partitions) for name in names}
        return {name: 1 + max(progress.next.get(name, ()), default=-1) for name in names}

    def _query(self, spark: SparkSession) -> None:
        options = self._options
        codec = Codec(types_of(self._jobs))
        topics = Topics(options.connection)
        most = options.max_events_per_batch or bound_by_memory()
        throttle = Throttle(target=options.target_batch_ms / 1000, most=most, first=options.first_batch_events)
        advice = AdviceFile(options.checkpoint / "advice")
        most_bytes = options.max_bytes_per_batch or byte_bound_by_memory()
        before = advice.read()
        record_sizes = RecordSizes(None if before is None else before.record_bytes)
        advice.write(Advice(throttle.limit, most_bytes=most_bytes, record_bytes=dict(record_sizes.known)))
        attendance = Attendance(frozenset(self._absent), dict(self._returning))
        self._deliveries.attendance = attendance
        slots = Slots.numbered({job.name: job.pipeline for job in self._jobs}, options.key_groups, self._identity.slots)
        self._sinks.batches_before = batches_before(options.checkpoint)
        frame = streaming_query(
            spark,
            self._jobs,
            connection=options.connection.portable(),
            starting=options.starting,
            beginning=options.checkpoint / BEGINNING,
            advice=advice,
            cadence=options.cadence_ms / 1e3,
            groups=options.key_groups,
            codec=codec,
            partitions=self._known_partitions(topics),
            attendance=attendance,
            slots=slots,
            stops=self._stops,
            whole=self._whole
            + [end for token in self._deliveries.tokens().values() if (end := token.part_end) is not None],
            state_limit=options.state_limit,
        )
        batches = Batches(
            spark,
            options.connection,
            [Writer(job, codec, options.encoding) for job in self._jobs],
            slots,
            deliveries=self._deliveries,
            sinks=self._sinks,
            report=self._report,
            standing=StandingFile(options.checkpoint),
            throttle=throttle,
            record_sizes=record_sizes,
            most_bytes=most_bytes,
            punctuality=Punctuality(
                {job.name: job.pipeline for job in self._jobs if job.name not in self._absent},
                cadence=options.cadence_ms * 1_000,
            ),
            advice=advice,
            watch=self._watch,
            token=self._identity.token,
            spans=partial(read_span, options.checkpoint),
            absent=frozenset(self._absent),
        )
        detail = "the first batch starts Java code and Python workers; this takes 10 to 30 s"
        self._report(StateChange("warming", detail))
        writer = frame.writeStream.outputMode("update").foreachBatch(batches.write)
        writer = writer.option("checkpointLocation", str(options.checkpoint / "spark"))
        query = writer.start()
        batches.query = query
        try:
            self._follow(query, batches, spark)
        finally:
            self.last = max(self.last, batches.last)
            # What has failed has ended already; what is given up for another reason must not run on.
            with contextlib.suppress(Py4JError, OSError):
                query.stop()

    def _follow(self, query: StreamingQuery, batches: Batches, spark: SparkSession) -> None:
        mirror = OffsetMirror(self._options.connection, [job for job in self._jobs if job.name not in self._absent])
        while not self._stop.wait(0.1) and query.isActive:
            mirror.show(query.lastProgress)
            self._requests.serve(spark, self._identity)
        stopped = query.isActive
        if stopped:
            self._report(StateChange("stopping", "the batch under way"))
            batches.stop(query)
            mirror.finish(query.lastProgress)
            self._requests.finish(spark, self._identity)
        problem = query.exception()
        if batches.failure is not None:
            raise batches.failure
        if stopped and problem is not None:
            # Ending a query in the middle of a batch looks to Spark like a failure of that batch; it will be repeated.
            log.info("the batch under way was given up: %s", problem)
        elif problem is not None:
            raise self._explained(str(problem))

    def _explained(self, text: str) -> HeadraceError:
        sources = source_topics(self._jobs)
        if is_data_loss(text):
            gaps = find_gaps(self._options.checkpoint, Topics(self._options.connection), sources)
            if gaps:
                return refuse(self._options.checkpoint, gaps)
        return explain_failure(text, topics=sources, checkpoint=self._options.checkpoint)


#: What may pass between a signal that ends Java and our own notice of the same signal.
_SIGNAL_SECONDS = 0.5


def _planned(progress: Progress) -> Span | None:
    """Tell what the batch reads that comes after the last one that is done, if Spark has planned it."""
    return None if progress.planned is None else Span(progress.position, progress.planned)


def _sources_by_job(jobs: Sequence[Job]) -> dict[str, tuple[str, ...]]:
    return {job.name: tuple(job.sources) for job in jobs}


#: No room, no room for this user, a file too large for a limit.
_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _java_ended() -> EnvironmentProblem:
    return EnvironmentProblem(
        "Spark's Java process has ended",
        hint="It may have run out of memory: raise spark.driver_memory, or look into the log of the kernel.",
    )


_LOOPBACK = ("spark.driver.host", "spark.driver.bindAddress")


def _settings(options: RunOptions) -> dict[str, str]:
    ours = spark_settings(
        jars=options.jars,
        state_partitions=options.state_partitions,
        driver_memory=options.driver_memory,
        state_memory_mb=options.state_memory_mb,
        local_directory=options.checkpoint.parent / "spark-local",
        log_format=options.log_format,
    )
    if options.master.startswith("local"):
        ours |= user_code.local_settings()
    else:
        # Executors on other machines must reach the driver: by a name that Spark finds, or that a user sets.
        ours = {name: value for name, value in ours.items() if name not in _LOOPBACK}
        ours |= environment.settings(environment.pack(options.ship)) if options.ship is not None else {}
    return ours | options.settings
