"""One trial: the pipeline at one volume, once.

In order: broker; jobs (`headrace run`), until their first micro-batch is done, since that one starts Java code and
Python workers and takes many times as long as the others; readers; load; warming up under load; the time that is
measured, with markers; a few seconds for what is still on its way; the end of load and jobs; the comparison with a
batch. Everything that is said and seen is written down, then summarised.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import HeadraceError, JobError
from headrace.evaluate import measures
from headrace.evaluate.backlog import BacklogWatch
from headrace.evaluate.judgement import FOREIGN_CORES, judge_backlog, judge_load
from headrace.evaluate.meter import OTHERS, Meter, mean_cores, most_memory
from headrace.evaluate.parts import Part, jobs_command
from headrace.evaluate.visibility import ReaderKind, ResultWatch
from headrace.observe.latency import latency_report, write_outcomes
from headrace.observe.probe import Probe, wall
from headrace.observe.tracker import Tracker
from headrace.stream.message_types import types_of
from headrace.time.duration import SECOND
from headrace.time.instants import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import polars as pl

    from headrace.evaluate.plan import Plan, Trial
    from headrace.evaluate.subject import Subject

#: Seconds that jobs may take until their first batch is done, that they may take to catch up before measuring begins
#: anyway, and that results may be on their way at the end.
_START_PATIENCE = 240.0
_CATCH_UP = 60.0
_DRAIN = 15.0
_PARITY_PATIENCE = 600.0
#: Seconds of events that may be in the backlog when measuring begins.
_CAUGHT_UP = 3.0


class InterruptedTrialError(HeadraceError, RuntimeError):
    """The user wants to stop."""


@dataclass
class _Scene:
    """What is running."""

    parts: list[Part] = field(default_factory=list)
    watches: dict[ReaderKind, ResultWatch] = field(default_factory=dict)
    backlog: BacklogWatch | None = None
    begin: int = 0
    end: int = 0


class TrialRun:
    """Runs one trial.

    Args:
        plan: The evaluation it belongs to.
        subject: The jobs of the plan, with what it takes to measure them.
        trial: Which volume, how long.
        directory: Where its raw data go.
        stop: Set it to give up.
        tell: Is told which phase it is in, and how many seconds that will take.
    """

    def __init__(
        self,
        plan: Plan,
        subject: Subject,
        trial: Trial,
        directory: Path,
        *,
        stop: threading.Event,
        tell: Callable[[str, float], None],
    ) -> None:
        self._plan = plan
        self._trial = trial
        self._directory = directory
        self._work = directory / "work"
        self._stop = stop
        self._tell = tell
        self._subject = subject
        self._jobs = subject.jobs
        self._tracker = Tracker(patience=30 * SECOND)
        self._scene = _Scene()

    def run(self) -> dict[str, Any]:
        """Run it.

        Returns:
            What was found, as JSON can hold it.

        Raises:
            InterruptedTrialError: `stop` was set.
            HeadraceError: A part could not be started, or ended by itself.
        """
        shutil.rmtree(self._directory, ignore_errors=True)
        self._work.mkdir(parents=True)
        load_before = os.getloadavg()[0]
        meter = Meter()
        broker = EmbeddedBroker(ServerSettings(data_dir=self._work / "kafka"))
        try:
            self._tell("broker", 5)
            broker.start()
            self._measure(broker, meter)
            record = self._record(meter.samples()) | {"load_average_before": round(load_before, 2)}
            if self._trial.parity:
                self._tell("comparing with a batch", 45)
                record["parity"] = self._parity(broker, record["watermarks"])
        finally:
            for watch in self._scene.watches.values():
                watch.close()
            if self._scene.backlog is not None:
                self._scene.backlog.close()
            for part in reversed(self._scene.parts):
                part.stop()
            broker.stop()
            meter.close()
            shutil.rmtree(self._work, ignore_errors=True)
        judge(record)
        (self._directory / "trial.json").write_text(json.dumps(record, indent=1) + "\n", "utf-8")
        return record

    # ---------------------------------------------------------------- running

    def _measure(self, broker: EmbeddedBroker, meter: Meter) -> None:
        scene, trial, plan = self._scene, self._trial, self._plan
        connection = broker.connection
        self._tell("starting the jobs", 35)
        command = jobs_command(
            plan.jobs, bootstrap=connection.bootstrap, home=self._work, master=plan.master, settings=plan.settings
        )
        jobs = Part("headrace run", command, log=self._directory / "jobs.log")
        scene.parts.append(jobs)
        self._until(lambda: bool(jobs.told("progress")), _START_PATIENCE, "the jobs to finish a first batch")
        topics = {topic: name for name, job in self._jobs.items() for topic in job.result_topics}
        kinds: tuple[ReaderKind, ...] = ("committed", "uncommitted") if plan.uncommitted else ("committed",)
        scene.watches = {kind: ResultWatch(connection, topics, kind=kind) for kind in kinds}
        backlog = scene.backlog = BacklogWatch(connection, list(self._jobs.values()))
        self._tell("warming up", plan.warm_up)
        command = self._subject.load.command(bootstrap=connection.bootstrap, rate=trial.rate, seed=plan.seed)
        load = Part("the load generator", command, log=self._directory / "load.log")
        scene.parts.append(load)
        meter.watch({"broker": broker.pid, "jobs": jobs.pid, "load": load.pid, "measuring": os.getpid()})
        self._sleep(plan.warm_up)
        self._until(lambda: (backlog.newest() or 0) <= _CAUGHT_UP * trial.rate, _CATCH_UP, None)
        recipes = self._subject.recipes()
        with Probe(
            connection,
            recipes,
            self._tracker,
            every=plan.marker_every,
            uncommitted=plan.uncommitted,
            seed=plan.seed,
            types=types_of(self._jobs.values()),
        ) as probe:
            self._tell("measuring", trial.seconds)
            scene.begin = wall()
            sender = threading.Thread(
                target=probe.run, args=(int(trial.seconds * SECOND), self._stop), name="markers", daemon=True
            )
            sender.start()
            self._sleep(trial.seconds)
            scene.end = wall()
            sender.join(timeout=5)
            probe.check()
            # The load goes on: results of the last windows come only when event time does.
            self._tell("waiting for the last results", _DRAIN)
            self._until(lambda: not self._tracker.waiting(now=wall()), _DRAIN, None)
        self._tell("stopping", 10)
        backlog.close()
        load.stop()
        time.sleep(1.0)
        jobs.stop()
        meter.close()
        for watch in scene.watches.values():
            watch.check()
            watch.close()

    def _sleep(self, seconds: float) -> None:
        self._until(lambda: False, seconds, None)

    def _until(self, done: Callable[[], bool], seconds: float, what: str | None) -> None:
        """Wait for something, and see that all parts run meanwhile.

        Args:
            done: Whether it is there.
            seconds: How long to wait at most.
            what: What is waited for, if it is an error that it does not come.
        """
        deadline = time.monotonic() + seconds
        while not done():
            for part in self._scene.parts:
                part.check()
            left = deadline - time.monotonic()
            if left <= 0:
                if what is not None:
                    raise JobError(f"waited {seconds:.0f} s for {what}", hint=f"See the logs in {self._directory}.")
                return
            if self._stop.wait(min(0.2, left)):
                raise InterruptedTrialError("stopped")

    def _parity(self, broker: EmbeddedBroker, watermarks: dict[str, int]) -> dict[str, Any]:
        words = ["--bootstrap", broker.bootstrap, "--watermarks", json.dumps(watermarks)]
        words += ["--scratch", str(self._work / "parity"), "--master", self._plan.master]
        command = [sys.executable, "-m", "headrace.evaluate.parity", *words]
        comparing = Part("the comparison with a batch", command, log=self._directory / "parity.log")
        self._scene.parts = [comparing]
        wanted = len(watermarks)
        self._until(lambda: len(comparing.told("parity")) >= wanted, _PARITY_PATIENCE, "the comparison with a batch")
        comparing.stop()
        return {line.pop("job"): line for line in comparing.told("parity")}

    # ---------------------------------------------------------------- summing up

    def _record(self, samples: pl.DataFrame) -> dict[str, Any]:
        scene, trial = self._scene, self._trial
        begin, end = scene.begin, scene.end
        jobs, load = scene.parts
        progress, feed = jobs.told("progress"), load.told("feed")
        kept = judge_load(feed, begin=begin, end=end, wanted=trial.rate)
        assert scene.backlog is not None  # noqa: S101 - made when the load was
        waiting = scene.backlog.samples()
        backlog = measures.backlog_series(waiting, begin=begin, end=end)
        outcomes = self._tracker.outcomes(now=wall())
        sightings = {kind: watch.sightings() for kind, watch in scene.watches.items()}
        self._write(progress, feed, outcomes, sightings, {"resources": samples, "backlog": waiting})
        latency = {
            name: {
                kind: measures.latency_summary(seen, name, begin=begin, end=end, windowed=bool(job.windows))
                for kind, seen in sightings.items()
            }
            for name, job in self._jobs.items()
        }
        last = progress[-1]
        watermarks = last.get("watermarks") or dict.fromkeys(self._jobs, last.get("watermark"))
        return {
            "name": trial.name,
            "volume": trial.volume,
            "windowed": [name for name, job in self._jobs.items() if job.windows],
            "rate": trial.rate,
            "repetition": trial.repetition,
            "searching": trial.searching,
            "seconds": trial.seconds,
            "begin": begin,
            "end": end,
            "reasons": list(kept.reasons),
            "load": {"rate": kept.rate, "most_behind": kept.most_behind},
            "throughput": measures.throughput(progress, begin=begin, end=end),
            "batches": measures.batch_times(progress, begin=begin, end=end),
            "backlog": judge_backlog(backlog, rate=trial.rate).to_dict(),
            "latency": latency,
            "markers": {name: told.to_dict() for name, told in latency_report(outcomes).items()},
            "cores": mean_cores(samples, begin=begin, end=end),
            "memory_mb": most_memory(samples, begin=begin, end=end),
            "late": sum(line.get("late") or 0 for line in progress),
            "dead_letters": sum(line.get("dead_letters") or 0 for line in progress),
            "watermarks": {name: _instant(text) for name, text in watermarks.items() if text},
            "parity": {},
        }

    def _write(
        self,
        progress: Sequence[dict[str, Any]],
        feed: Sequence[dict[str, Any]],
        outcomes: pl.DataFrame,
        sightings: dict[ReaderKind, pl.DataFrame],
        others: dict[str, pl.DataFrame],
    ) -> None:
        for name, lines in (("progress", progress), ("load", feed)):
            text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
            (self._directory / f"{name}.jsonl").write_text(text, "utf-8")
        for name, frame in others.items():
            frame.write_parquet(self._directory / f"{name}.parquet")
        write_outcomes(outcomes, self._directory / "markers.parquet")
        for kind, seen in sightings.items():
            seen.write_parquet(self._directory / f"results-{kind}.parquet")


def _instant(text: str) -> int:
    from datetime import datetime

    return instant(datetime.fromisoformat(text))


def judge(record: dict[str, Any]) -> None:
    """Say whether the trial is valid, whether its volume was held, and what to know about it."""
    warnings = []
    foreign = record["cores"].get(OTHERS, 0.0)
    if foreign > FOREIGN_CORES:
        warnings.append(f"something else on the machine used {foreign:.2f} cores")
    missing = {
        job: kinds["committed"]["missing"] for job, kinds in record["latency"].items() if kinds["committed"]["missing"]
    }
    for job, count in missing.items():
        warnings.append(f"{count} windows of {job} had no result in time")
    silent = [job for job, kinds in record["latency"].items() if not kinds["committed"]["results"]]
    warnings += [f"{job} gave no result" for job in silent]
    wrong = [job for job, found in record["parity"].items() if not found["right"]]
    warnings += [f"results of {job} are not those of the batch: {record['parity'][job]['example']}" for job in wrong]
    if record["late"]:
        warnings.append(f"{record['late']} events were refused as late")
    record["warnings"] = warnings
    record["valid"] = not record["reasons"]
    flat = record["backlog"]["held"]
    record["held"] = None if flat is None else bool(flat and not missing and not silent)
