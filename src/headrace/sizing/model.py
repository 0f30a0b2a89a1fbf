"""The model behind `headrace size`: a line for cores, a line for memory, and plain arithmetic for the rest.

**Cores** that a run keeps busy: a fixed part for the micro-batches, a part per job, and a part per event by what is
done with it; each result costs as an event that gives a result. **Memory**: a fixed part, one that grows with the rate,
one that grows with the keys. **State**: bytes by key, times the slices of a window that are open at a time. **Kafka**:
what comes in and what goes out, times copies and days.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, get_args

from headrace.errors import PlanError

Kind = Literal["windows", "patterns", "every"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

#: Of its cores a run should keep busy no more than this, so that it can catch up after a pause.
BUSY: Final = 0.7
_MILLION = 1e6
_GB = 1e9
_DAY = 86_400.0
#: Bytes of a result with its window and its keys on Kafka, as an event's.
_RESULT_BYTES = 200.0


@dataclass(frozen=True, kw_only=True)
class Load:
    """What an installation has to bear.

    Args:
        events_per_second: At the busiest time.
        keys: Keys that are active within a window, or that a pattern may wait for.
        window: Length of the windows in seconds; 0: none.
        slide: Seconds from one window to the next; as long as the window if not given.
        kind: What is done with events: aggregated in windows, matched by a pattern, or a result for every event.
        jobs: Jobs that run in one query on the same events.
        event_bytes: Of an event on Kafka.
        retention_days: How long Kafka keeps events and results.
        copies: Copies of each topic.

    Raises:
        PlanError: One of them makes no sense.
    """

    events_per_second: float
    keys: float = 10_000
    window: float = 60.0
    slide: float | None = None
    kind: Kind = "windows"
    jobs: int = 1
    event_bytes: float = 200.0
    retention_days: float = 3.0
    copies: int = 3

    def __post_init__(self) -> None:
        positive = {"events_per_second": self.events_per_second, "event_bytes": self.event_bytes}
        positive |= {"jobs": self.jobs, "copies": self.copies}
        for name, value in positive.items():
            if not (math.isfinite(value) and value > 0):
                raise PlanError(f"{name} is {value}", hint="Give a number above 0.")
        for name, value in {"keys": self.keys, "window": self.window, "retention_days": self.retention_days}.items():
            if not (math.isfinite(value) and value >= 0):
                raise PlanError(f"{name} is {value}", hint="Give 0 or more.")
        if self.slide is not None and not 0 < self.slide <= self.window:
            raise PlanError(
                f"slide is {self.slide} s, and the window {self.window} s",
                hint="Give a slide above 0 that is no longer than the window.",
            )

    @property
    def results_per_second(self) -> float:
        """At most: a result per key and window, and never more than one per event and open window."""
        if self.kind == "every":
            return self.events_per_second
        if self.kind == "patterns" or not self.window:
            return 0.0
        slide = self.slide or self.window
        return min(self.keys / slide, self.events_per_second * self.window / slide)

    @property
    def slices(self) -> float:
        """Slices of a window that are open at a time."""
        return self.window / (self.slide or self.window) if self.kind == "windows" and self.window else 1.0


@dataclass(frozen=True, kw_only=True)
class Size:
    """What it takes.

    Args:
        busy_cores: Cores that the run keeps busy, without Kafka.
        cores: Cores to give it.
        memory_gb: Memory of the run.
        state_gb: State before compression; the disk of the checkpoint holds several versions of it.
        partitions: Of each input topic.
        key_groups: `spark.key_groups`.
        kafka_disk_gb: On all brokers together.
        kafka_in_mb: Megabytes a second that all brokers together write, copies included.
        read_mb: Megabytes a second that the run reads.
        cores_error: Median error of the model for cores, on measurements that it had not seen.
        memory_error: The same for memory.
        worst_cores_error: The largest error for cores.
        worst_memory_error: The same for memory.
        extrapolated: Whether that is more than what was measured.
    """

    busy_cores: float
    cores: int
    memory_gb: float
    state_gb: float
    partitions: int
    key_groups: int
    kafka_disk_gb: float
    kafka_in_mb: float
    read_mb: float
    cores_error: float
    memory_error: float
    worst_cores_error: float
    worst_memory_error: float
    extrapolated: bool


@cache
def _fitted() -> dict[str, Any]:
    fitted: dict[str, Any] = json.loads(files("headrace.sizing").joinpath("fitted.json").read_text("utf-8"))
    return fitted


def size(load: Load) -> Size:
    """Say what a load takes.

    Args:
        load: The load.
    """
    fitted = _fitted()
    of_cores, of_memory = fitted["cores"], fitted["memory_mb"]
    seconds = of_cores["seconds_per_million_events"]
    results = load.results_per_second if load.kind != "every" else 0.0
    busy = of_cores["fixed"] + of_cores["per_job"] * load.jobs
    busy += (load.events_per_second * seconds[load.kind] + results * seconds["every"]) / _MILLION
    cores = max(1, math.ceil(busy / BUSY))
    memory = of_memory["fixed"] + of_memory["per_million_events_a_second"] * load.events_per_second / _MILLION
    memory += of_memory["per_million_keys"] * load.keys * load.slices / _MILLION
    written = load.events_per_second * load.event_bytes + load.results_per_second * _RESULT_BYTES
    measured = fitted["measured"]
    return Size(
        busy_cores=busy,
        cores=cores,
        memory_gb=memory / 1000,
        state_gb=load.keys * load.slices * fitted["bytes_per_key"][load.kind] / _GB,
        partitions=max(4, 2 * cores),
        key_groups=max(2, 2 * cores),
        kafka_disk_gb=written * load.copies * load.retention_days * _DAY / _GB,
        kafka_in_mb=written * load.copies / _MILLION,
        read_mb=load.events_per_second * load.event_bytes / _MILLION,
        cores_error=of_cores["error"]["median"],
        memory_error=of_memory["error"]["median"],
        worst_cores_error=of_cores["error"]["largest"],
        worst_memory_error=of_memory["error"]["largest"],
        extrapolated=cores > measured["cores"] or load.keys > _MILLION,
    )
