"""The pipeline page: what reader, probe, boards and viewers know, judged, with an hour of curves."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.dashboard.diagnosis import NO_WORD, Facts, JobFacts, PartFacts, RunFacts, diagnose, job_state
from headrace.dashboard.supervision import Part

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.dashboard.board import Board
    from headrace.dashboard.probe import Probe, Run
    from headrace.dashboard.reader import Reader
    from headrace.dashboard.viewers import Viewers

#: The stages of an event's way, as people call them.
STAGES = {
    "ingest": "Ingestion",
    "kafka": "Kafka",
    "spark": "Spark",
    "results": "Results",
    "dashboard": "Dashboard",
}
#: Which part of the dashboard the figures of a stage come from.
SOURCES = {"ingest": "offsets", "kafka": "offsets", "spark": "progress", "results": "results", "dashboard": "viewers"}
#: Seconds after which the figures as a whole are out of date.
_STALE = 10.0
#: Curves: milliseconds between two points, and how many are kept.
CURVE_STEP = 5_000
CURVE_POINTS = 720
#: Runs that were last heard of before that (milliseconds) are of no interest any more.
FORGET_RUNS = 3_600_000

CURVES = ("at", "events", "results", "late", "dead_letters", "backlog", "batch_ms")


class Figures:
    """Puts the pipeline's figures together.

    Args:
        boards: By job.
        reader: Reads the results.
        probe: Looks at the pipeline.
        viewers: Who is served.
    """

    def __init__(self, boards: Mapping[str, Board], reader: Reader, probe: Probe, viewers: Viewers) -> None:
        self._boards = boards
        self._reader = reader
        self._probe = probe
        self._viewers = viewers
        self._curves: deque[tuple[Any, ...]] = deque(maxlen=CURVE_POINTS)
        self.pipeline: dict[str, Any] = {}
        self.status: dict[str, Any] = {}
        self.part = Part("figures", "figures of the pipeline", stale_after=_STALE)
        self.parts = (reader.part, probe.progress, probe.offsets, viewers.part, self.part)

    def gather(self) -> None:
        """Look at everything once; about once a second."""
        now, wall = time.monotonic(), time.time_ns() // 1_000_000
        facts = self._facts(now, wall)
        self.status = self._status(facts, wall)
        self.pipeline = self._pipeline(facts, now, wall)
        point = tuple(self.pipeline["series"][name] for name in CURVES)
        if not self._curves or point[0] - self._curves[-1][0] >= CURVE_STEP:
            self._curves.append(point)
        self.part.refresh()

    @property
    def unwell(self) -> list[str]:
        """The parts of the dashboard that fail, or whose figures are out of date."""
        return [part.name for part in self.parts if part.is_failing() or part.is_stale()]

    @property
    def malformed(self) -> int:
        """Records of the progress topic that were skipped."""
        return self._probe.malformed.total()

    def history(self) -> dict[str, list[Any]]:
        """The curves of the last hour, by column."""
        points = list(self._curves)
        return {name: [point[column] for point in points] for column, name in enumerate(CURVES)}

    # ---------------------------------------------------------------- facts

    def _facts(self, now: float, wall: int) -> Facts:
        probe = self._probe
        with probe.lock:
            recent = [run for run in probe.runs.values() if wall - run.at < FORGET_RUNS]
            known = {run.query: _run_facts(run, now) for run in recent}
            incoming = probe.incoming.per_second(now=now) if probe.incoming.total or probe.partitions else None
            since = None if probe.last_event is None else now - probe.last_event
            dead = probe.dead.per_second(now=now)
        jobs = tuple(self._job_facts(name, board, known, now, wall) for name, board in self._boards.items())
        broker = self._reader.status
        return Facts(
            broker=broker.state,
            broker_text=broker.text,
            incoming=incoming,
            since_event=since,
            dead=dead,
            runs=tuple(known[name] for name in _current(recent)),
            jobs=jobs,
            viewers=len(self._viewers),
            behind=self._viewers.behind,
            malformed=probe.malformed.total(),
            malformed_reason=probe.malformed_reason,
            parts=tuple(_part_facts(part) for part in self.parts),
        )

    def _job_facts(self, name: str, board: Board, known: dict[str, RunFacts], now: float, wall: int) -> JobFacts:
        job = board.declaration.run
        run = self._probe.run_of(job)
        overview = board.overview()
        mark = None if run is None else run.watermark(job)
        with self._probe.lock:
            lags = [place.backlog for place in self._probe.partitions if place.job == job]
        with self._reader.arrivals.lock:
            refused = self._reader.arrivals.refused[name]
            # The board's clock also moves with the watermark; results are what the reader saw.
            last = self._reader.arrivals.last.get(name)
        step = board.declaration.step
        return JobFacts(
            job=name,
            started_by=job,
            topic=board.declaration.topic,
            missing=name in self._reader.missing,
            entries=overview.entries,
            silent=None if last is None else now - last,
            step=None if step is None else step / 1e6,
            run=None if run is None else known.get(run.query),
            watermark_lag=None if mark is None else wall - mark,
            backlog=None if not lags or None in lags else sum(lag or 0 for lag in lags),
            refused=refused,
        )

    # ---------------------------------------------------------------- messages

    def _status(self, facts: Facts, wall: int) -> dict[str, Any]:
        broker = self._reader.status
        jobs = {}
        for job in facts.jobs:
            overview = self._boards[job.job].overview()
            state, text = job_state(job)
            jobs[job.job] = {
                "state": state,
                "text": text,
                "entries": overview.entries,
                "newest": overview.newest,
                "heard": None if job.silent is None else wall - round(1000 * job.silent),
            }
        return {
            "broker": {"state": broker.state, "since": broker.since, "text": broker.text},
            "jobs": jobs,
            "parts": [part.to_dict() for part in self.parts],
            "malformed": facts.malformed,
        }

    def _pipeline(self, facts: Facts, now: float, wall: int) -> dict[str, Any]:
        judged = diagnose(facts)
        rates = self._rates(facts, now)
        stages = [
            {
                "name": name,
                "title": title,
                "state": judged[name].severity,
                "text": judged[name].text,
                "rates": rates[name],
                **self._freshness(SOURCES[name]),
            }
            for name, title in STAGES.items()
        ]
        problems = [
            {"severity": severity, "stage": name, "text": text}
            for name in STAGES
            for severity, text in judged[name].findings
            if severity in ("warning", "error")
        ]
        queries = self._queries(now, wall)
        return {
            "now": wall,
            "problems": sorted(problems, key=lambda problem: problem["severity"] != "error"),
            "stages": stages,
            "queries": queries,
            "watermarks": [
                {"job": job.job, "watermark": wall - job.watermark_lag, "lag": job.watermark_lag}
                for job in facts.jobs
                if job.watermark_lag is not None and job.job == job.started_by
            ],
            "partitions": self._partitions(),
            "latency": self._latency(now),
            "viewers": {"count": facts.viewers, "behind": facts.behind},
            "parts": [part.to_dict() for part in self.parts],
            "series": {
                "at": wall,
                "events": rates["spark"]["events"],
                "results": rates["results"]["results"],
                "late": rates["spark"]["late"],
                "dead_letters": rates["ingest"]["dead_letters"],
                "backlog": rates["kafka"]["backlog"],
                "batch_ms": max(
                    (query["batch_ms"] for query in queries if query["batch_ms"] is not None), default=None
                ),
            },
        }

    def _freshness(self, name: str) -> dict[str, Any]:
        part = next(part for part in self.parts if part.name == name)
        return {"refreshed": part.refreshed_at, "stale": part.is_stale()}

    def _rates(self, facts: Facts, now: float) -> dict[str, dict[str, float | None]]:
        with self._probe.lock:
            alive = [run for run in self._probe.runs.values() if now - run.heard < 60]
            spark = {name: sum(run.rates[name].per_second(now=now) for run in alive) for name in ("results", "late")}
            spark["events"] = sum(run.rates["rows_in"].per_second(now=now) for run in alive)
            spark["dead_letters"] = sum(run.rates["dead_letters"].per_second(now=now) for run in alive)
        with self._reader.arrivals.lock:
            results = sum(rate.per_second(now=now) for rate in self._reader.arrivals.rates.values())
        backlogs = [job.backlog for job in facts.jobs if job.backlog is not None and job.reason is None]
        return {
            "ingest": {"events": _rounded(facts.incoming), "dead_letters": _rounded(facts.dead)},
            # Jobs of one query read the same topics together: the one that is farthest behind tells.
            "kafka": {"backlog": max(backlogs, default=None)},
            "spark": {name: _rounded(value) if alive else None for name, value in spark.items()},
            "results": {"results": _rounded(results)},
            "dashboard": {
                "updates": _rounded(self._viewers.updates.per_second(now=now)),
                "viewers": len(self._viewers),
            },
        }

    def _queries(self, now: float, wall: int) -> list[dict[str, Any]]:
        with self._probe.lock:
            runs = {run.query: run for run in self._probe.runs.values() if wall - run.at < FORGET_RUNS}
            return [self._query(runs[name], now) for name in _current(list(runs.values()))]

    @staticmethod
    def _query(run: Run, now: float) -> dict[str, Any]:
        p50, p99 = run.durations.quantiles((0.5, 0.99), now=now) or (None, None)
        told = run.told
        return {
            "query": run.query,
            "jobs": list(told.jobs),
            "state": told.state,
            "text": told.detail,
            "failed": dict(told.failed),
            "batch": told.batch,
            "batch_ms": told.batch_ms,
            "batch_ms_p50": p50,
            "batch_ms_p99": p99,
            "phases": dict(told.phases),
            "limit": told.limit,
            "restarts": run.restarts,
            "started": told.started,
            "state_rows": told.state_rows,
            "state_bytes": told.state_bytes,
            "heard": told.at,
            "stale": now - run.heard >= NO_WORD,
            "mostly_dead_letters": None if told.dead_letters is None else asdict(told.dead_letters),
        }

    def _partitions(self) -> list[dict[str, Any]]:
        with self._probe.lock:
            return [
                {
                    "job": place.job,
                    "topic": place.topic,
                    "partition": place.partition,
                    "end": place.end,
                    "committed": place.committed,
                    "backlog": place.backlog,
                }
                for place in self._probe.partitions
            ]

    def _latency(self, now: float) -> list[dict[str, Any]]:
        rows = []
        with self._reader.arrivals.lock:
            held = [(job, leg, samples) for (job, leg), samples in self._reader.arrivals.latencies.items()]
            for job, leg, samples in [*held, ("", "dashboard to browser and back", self._viewers.answers)]:
                quantiles = samples.quantiles((0.5, 0.99), now=now)
                if quantiles is not None:
                    rows.append(
                        {
                            "job": job,
                            "stage": leg,
                            "p50": round(quantiles[0]),
                            "p99": round(quantiles[1]),
                            "count": samples.count(now=now),
                        }
                    )
        return rows


def _run_facts(run: Run, now: float) -> RunFacts:
    quantiles = run.durations.quantiles((0.5,), now=now)
    return RunFacts(
        query=run.query,
        jobs=run.jobs,
        state=run.told.state,
        detail=run.told.detail,
        silent=max(0.0, now - run.heard),
        restarts=run.restarts,
        batch_ms=None if quantiles is None else quantiles[0],
        rows_in=run.rates["rows_in"].per_second(now=now),
        late=run.rates["late"].per_second(now=now),
        dead_letters=run.rates["dead_letters"].per_second(now=now),
        failed=run.told.failed,
        refused=run.told.dead_letters,
    )


def _part_facts(part: Part) -> PartFacts:
    as_of = part.refreshed_at
    return PartFacts(
        name=part.name,
        text=part.text,
        stages=tuple(stage for stage, source in SOURCES.items() if source == part.name),
        stale=part.is_stale(),
        failing=part.is_failing(),
        reason=part.reason,
        as_of="" if as_of is None else f"{datetime.fromtimestamp(as_of / 1000, UTC):%H:%M:%S} UTC",
    )


def _current(runs: list[Run]) -> list[str]:
    """The queries that count: of those that run the same job, the one that was heard of last."""
    newest: dict[str, Run] = {}
    for run in runs:
        for job in run.jobs:
            if job not in newest or run.at > newest[job].at:
                newest[job] = run
    return sorted({run.query for run in newest.values()})


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
