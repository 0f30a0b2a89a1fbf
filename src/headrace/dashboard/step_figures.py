"""The graph of a job with the figures of each step: what is known of it from progress records, offsets and results.

A run tells its rates, its late rows and its state for the whole query. Where a query has one job, and the job one
stateful step, they are figures of the step; else they are marked as those of the query. Nothing is divided by guess.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

from headrace.dashboard.cleaning import plain_text
from headrace.dashboard.diagnosis import NO_WORD
from headrace.dashboard.job_graph import NoRows, job_graph

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.dashboard.board import Board
    from headrace.dashboard.job_graph import EdgeLine, JobGraph, StepBox
    from headrace.dashboard.probe import Probe, Run
    from headrace.dashboard.reader import Reader
    from headrace.stream import Job

Of = Literal["step", "job", "query"]


class StepFigures:
    """Knows the graph of every job, and finds the figures of its steps.

    Args:
        jobs: The jobs that are shown.
        boards: What is shown, by job or output.
        reader: Reads the results.
        probe: Looks at the pipeline.
    """

    def __init__(self, jobs: Iterable[Job], boards: Mapping[str, Board], reader: Reader, probe: Probe) -> None:
        self.graphs: dict[str, JobGraph] = {job.name: job_graph(job) for job in jobs}
        self._boards = boards
        self._reader = reader
        self._probe = probe

    def to_dict(self, job: str) -> dict[str, Any]:
        """The graph of a job as the protocol has it, with the figures of now."""
        graph = self.graphs[job]
        now, wall = time.monotonic(), time.time_ns() // 1_000_000
        run = self._probe.run_of(job)
        known = _Known(job, graph, run, now, wall)
        steps = [self._step(box, known) for box in graph.steps]
        return {
            "job": job,
            "query": None if run is None else run.query,
            "steps": steps,
            "edges": [self._edge(edge, graph, known) for edge in graph.edges],
        }

    def _step(self, box: StepBox, known: _Known) -> dict[str, Any]:
        figures: list[dict[str, Any]] = []
        if box.kind == "source" and box.topic is not None:
            figures = self._source(box.topic, known)
        elif box.kind == "stateful":
            figures = known.state()
        elif box.kind == "results" and box.output is not None:
            figures = [
                _figure("written", self._results(box.output, known), "per_second", "step"),
                _figure("keys shown", self._boards[box.output].overview().entries, "rows", "step"),
            ]
        elif box.kind == "late":
            figures = [_figure("late", known.rate("late"), "per_second", known.of_job)]
        elif box.counted is not None:
            dropped = None if known.run is None else known.run.told.counters.get(known.job, {}).get(box.counted, 0)
            figures = [_figure("dropped in the last batch", dropped, "rows", "step")]
        return {
            "id": box.id,
            "kind": box.kind,
            "title": plain_text(box.title),
            "detail": [plain_text(line) for line in box.detail],
            "topic": box.topic,
            "figures": figures,
        }

    def _source(self, topic: str, known: _Known) -> list[dict[str, Any]]:
        probe = self._probe
        with probe.lock:
            written, read = probe.written.get(topic), probe.read.get((known.job, topic))
            lags = [place.backlog for place in probe.partitions if (place.job, place.topic) == (known.job, topic)]
            incoming = None if written is None else written.per_second(now=known.now)
            taken = None if read is None else read.per_second(now=known.now)
        backlog = None if not lags or None in lags else sum(lag for lag in lags if lag is not None)
        return [
            _figure("written", incoming, "per_second", "step"),
            _figure("read", taken, "per_second", "job"),
            _figure("backlog", backlog, "records", "job"),
            _figure("dead letters", known.rate("dead_letters"), "per_second", known.of_source),
        ]

    def _results(self, output: str, known: _Known) -> float:
        with self._reader.arrivals.lock:
            return self._reader.arrivals.rates[output].per_second(now=known.now)

    def _edge(self, edge: EdgeLine, graph: JobGraph, known: _Known) -> dict[str, Any]:
        source, target = (next(box for box in graph.steps if box.id == name) for name in (edge.source, edge.target))
        rate: float | None = None
        if target.kind == "results" and target.output is not None:
            rate = self._results(target.output, known)
        elif target.kind == "late" and known.of_job != "query":
            rate = known.rate("late")
        elif source.kind == "source" and source.topic is not None:
            with self._probe.lock:
                read = self._probe.read.get((known.job, source.topic))
                rate = None if read is None else read.per_second(now=known.now)
        return {
            "id": edge.id,
            "source": edge.source,
            "target": edge.target,
            "rate": None if rate is None else round(rate, 1),
            "sampled": not isinstance(edge.rows, NoRows),
        }


class _Known:
    """What a run says of a job now."""

    def __init__(self, job: str, graph: JobGraph, run: Run | None, now: float, wall: int) -> None:
        self.job, self.run, self.now, self.wall = job, run, now, wall
        alone = run is not None and run.jobs == (job,)
        stateful = sum(box.kind == "stateful" for box in graph.steps)
        sources = sum(box.kind == "source" for box in graph.steps)
        self.of_job: Of = "job" if alone else "query"
        self.of_source: Of = "step" if alone and sources == 1 else self.of_job
        self.of_state: Of = "step" if alone and stateful == 1 else self.of_job
        self.silent = run is None or now - run.heard >= NO_WORD

    def rate(self, name: str) -> float | None:
        """Rows per second of the run; None while it is not heard."""
        return None if self.run is None or self.silent else self.run.rates[name].per_second(now=self.now)

    def state(self) -> list[dict[str, Any]]:
        """State, and how far the watermark is behind the clock."""
        told = None if self.run is None else self.run.told
        mark = None if self.run is None else self.run.watermark(self.job)
        return [
            _figure("watermark gap", None if mark is None else self.wall - mark, "ms", "job"),
            _figure("state rows", None if told is None else told.state_rows, "rows", self.of_state),
            _figure("state size", None if told is None else told.state_bytes, "bytes", self.of_state),
        ]


def _figure(name: str, value: float | None, unit: str, of: Of) -> dict[str, Any]:
    return {"name": name, "value": None if value is None else round(value, 1), "unit": unit, "of": of}
