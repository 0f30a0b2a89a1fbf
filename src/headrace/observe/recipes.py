"""Which events make a job answer, and what gives it something to do: what whoever wrote the job has to say.

A `Markers` object knows the recipes of some jobs, a `Load` starts a process that writes events for them. Packages offer
them by the entry point groups `headrace.markers` and `headrace.loads`; `headrace latency` needs the first, `headrace
evaluate` both.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl
    from google.protobuf.message import Message

    from headrace.config import Settings


@dataclass(frozen=True, slots=True)
class MarkerEvent:
    """One event of a marker, ready for Kafka."""

    topic: str
    key: bytes
    value: bytes


class Recipe(Protocol):
    """How one job is made to answer."""

    @property
    def job(self) -> str:
        """The job's name."""
        ...

    @property
    def result_topic(self) -> str:
        """Where its results are."""
        ...

    @property
    def late_topic(self) -> str:
        """Where events go that came too late for it."""
        ...

    def events(self, marker: int, *, at: int) -> Sequence[MarkerEvent]:
        """Make the events of a marker.

        Args:
            marker: Its number; its cells are those from `recognition.first_place(marker)` on.
            at: The event time of the last of them, in microseconds since the epoch.
        """
        ...


@dataclass(frozen=True)
class Markers:
    """The latency markers of some jobs.

    Args:
        name: What to call them all.
        jobs: The names of the jobs.
        recipe: Makes the recipe of one of them with the settings that it runs with; raises a `PlanError` if it cannot.
    """

    name: str
    jobs: tuple[str, ...]
    recipe: Callable[[str, Settings], Recipe]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Some events of a load, to see how many bytes they take.

    Args:
        type: Their message type.
        frame: The events.
        keys: The Kafka key of each.
    """

    type: type[Message]
    frame: pl.DataFrame
    keys: Sequence[bytes]


@dataclass(frozen=True, kw_only=True)
class Load:
    """A generator of events by the clock on the wall, for evaluations.

    The module is run as a process of its own, with `--bootstrap HOST:PORT --rate EVENTS_PER_SECOND --seed N`, and
    writes until SIGTERM. Once a second it prints a line of JSON, `{"event": "feed", "behind": SECONDS}`: how far it is
    behind its schedule.

    Args:
        name: What to call it.
        topics: The topics that it writes.
        module: The module that is run: `parcels.load`.
        sample: Gives some of its events.
        description: What it is like, in sentences for the report: what is sent how often, how late, what is unusual.
    """

    name: str
    topics: tuple[str, ...]
    module: str
    sample: Callable[[], Sample]
    description: str = ""

    def command(self, *, bootstrap: str, rate: int, seed: int, **options: Any) -> list[str]:
        """Give the command that runs it.

        Args:
            bootstrap: The Kafka to write to.
            rate: Events per second.
            seed: The same seed gives the same events.
            options: Further options of the module.
        """
        more = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
        words = ("--bootstrap", bootstrap, "--rate", str(rate), "--seed", str(seed), *more)
        return [sys.executable, "-m", self.module, *words]
