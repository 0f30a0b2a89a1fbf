"""Processor time and memory of each part of a pipeline, and of everything else on the machine.

A part is a process with all its children: Spark's JVM starts Python workers, which come and go. Processor time of a
process that has ended is kept. Memory is the proportional set size where the system tells it (pages that several
workers share are counted once), else the resident set size.

What the rest of the machine uses is told, too: figures of a pipeline that had to share its cores with somebody else
mean little, and a report must say so.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl
import psutil

from headrace.observe.probe import wall
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The part that stands for the rest of the machine.
OTHERS = "others"
#: Columns of `Meter.samples`: cores used since the sample before, and memory now.
SCHEMA = pl.Schema({"at": INSTANT, "part": pl.String(), "cores": pl.Float64(), "memory_mb": pl.Float64()})

_EVERY = 2.0


class Meter:
    """Samples parts of a pipeline every two seconds, in a thread of its own.

    Args:
        every: Seconds between two samples.
    """

    def __init__(self, *, every: float = _EVERY) -> None:
        self._every = every
        self._parts: dict[str, int] = {}
        self._spent: dict[str, dict[int, float]] = defaultdict(dict)
        self._rows: list[tuple[int, str, float, float]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="meter", daemon=True)
        self._before = self._reading()
        self._at = time.monotonic()
        self._thread.start()

    def watch(self, parts: Mapping[str, int]) -> None:
        """Watch further parts, by the process id of each."""
        with self._lock:
            self._parts.update(parts)

    def close(self) -> None:
        """End it."""
        self._closing.set()
        self._thread.join(timeout=10)

    def samples(self) -> pl.DataFrame:
        """Tell all samples, with the columns of `SCHEMA`."""
        with self._lock:
            rows = list(self._rows)
        plain = pl.Schema({name: pl.Int64() if kind == INSTANT else kind for name, kind in SCHEMA.items()})
        return pl.DataFrame(rows, schema=plain, orient="row").cast(SCHEMA)

    def _run(self) -> None:
        while not self._closing.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        now, at = wall(), time.monotonic()
        reading = self._reading()
        memory = self._memory()
        span = at - self._at
        # The machine's time holds that of all parts; a process that ended between two samples leaves a little in it.
        with self._lock:
            # What a part used before it was watched is not of this time.
            known = [part for part in reading if part in self._before]
            used = {part: (reading[part] - self._before[part]) / span for part in known}
            mine = sum(cores for part, cores in used.items() if part != OTHERS)
            for part, cores in used.items():
                share = max(0.0, cores - mine) if part == OTHERS else max(0.0, cores)
                self._rows.append((now, part, share, memory.get(part, 0.0)))
        self._before, self._at = reading, at

    def _reading(self) -> dict[str, float]:
        """Give the processor seconds of each part since it began, and of the whole machine as `OTHERS`."""
        with self._lock:
            parts = dict(self._parts)
        reading = {}
        for part, pid in parts.items():
            for process in tree(pid):
                try:
                    times = process.cpu_times()
                except psutil.Error:
                    continue  # it has ended; what it used so far is known
                self._spent[part][process.pid] = times.user + times.system
            reading[part] = sum(self._spent[part].values())
        machine = psutil.cpu_times()
        idle = machine.idle + getattr(machine, "iowait", 0.0)
        reading[OTHERS] = sum(machine[:8]) - idle
        return reading

    def _memory(self) -> dict[str, float]:
        with self._lock:
            parts = dict(self._parts)
        return {part: sum(_memory_of(process) for process in tree(pid)) / 2**20 for part, pid in parts.items()}


def tree(pid: int) -> list[psutil.Process]:
    """Give a process and all its children; none if it has ended."""
    try:
        top = psutil.Process(pid)
        children = top.children(recursive=True)
    except psutil.Error:
        return []
    # This process is the parent of all parts; as a part of its own it is itself alone.
    return [top] if pid == os.getpid() else [top, *children]


def _memory_of(process: psutil.Process) -> float:
    try:
        full = process.memory_full_info()
        return float(getattr(full, "pss", 0) or full.rss)
    except psutil.Error:
        return 0.0


def mean_cores(samples: pl.DataFrame, *, begin: int, end: int) -> dict[str, float]:
    """Tell the mean number of cores that each part used between two instants."""
    return dict(_within(samples, begin, end).group_by("part").agg(pl.col("cores").mean()).sort("part").rows())


def most_memory(samples: pl.DataFrame, *, begin: int, end: int) -> dict[str, float]:
    """Tell the most memory of each part, in MB, between two instants."""
    counted = _within(samples, begin, end).filter(pl.col("part") != OTHERS)
    return dict(counted.group_by("part").agg(pl.col("memory_mb").max()).sort("part").rows())


def _within(samples: pl.DataFrame, begin: int, end: int) -> pl.DataFrame:
    at = pl.col("at").dt.epoch("us")
    return samples.filter(at.is_between(begin, end))
