"""The logical plan: what a `Stream` is made of until it is run.

Nodes are frozen and linked from the result back to the sources. They describe; `headrace.stream.pipeline` turns them
into stages of steps and operators that a runner executes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from headrace.formats.envelope import EnvelopeFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from headrace.cep.measures import Measure
    from headrace.cep.pattern import Pattern
    from headrace.engine import Operator
    from headrace.formats import Format
    from headrace.stream.steps import Step
    from headrace.time.watermarks import WatermarkStrategy
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner
    from headrace.windows.panes import Mode
    from headrace.windows.triggers import Trigger

#: What a failing user-defined aggregate does: fail the job, or send its rows to the dead letters.
OnError: TypeAlias = Literal["fail", "dead_letter"]


@dataclass(frozen=True)
class TopicSource:
    """Records of a Kafka topic, read in one format.

    Args:
        topic: The topic.
        format: How its records are read.
        schema: The columns, both times included.
    """

    topic: str
    format: Format
    schema: pl.Schema

    @property
    def type_name(self) -> str | None:
        """The type of the events, if they are in Headrace's envelope."""
        return self.format.type_name if isinstance(self.format, EnvelopeFormat) else None

    @property
    def name(self) -> str:
        """The name that rows are fed under."""
        return self.topic

    @property
    def text(self) -> str:
        """Describe the source in a line of `explain()`."""
        what = f"as {self.format.text}" if self.type_name is None else f"of {self.type_name}"
        return f"topic {self.topic} {what}"


@dataclass(frozen=True)
class FrameSource:
    """Rows that the caller feeds: a frame in process, a DataFrame on Spark."""

    name: str
    schema: pl.Schema
    frame: Any = field(default=None, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Describe the source in a line of `explain()`."""
        return f"rows {self.name}"


Source: TypeAlias = TopicSource | FrameSource


@dataclass(frozen=True)
class Read:
    """The beginning of a plan."""

    source: Source


@dataclass(frozen=True)
class Watermark:
    """How the event time of the source advances."""

    input: Node
    strategy: WatermarkStrategy
    idle_after: int | None


@dataclass(frozen=True)
class Stateless:
    """One stateless step."""

    input: Node
    step: Step


@dataclass(frozen=True)
class Union:
    """Several streams of the same columns as one."""

    inputs: tuple[Node, ...]


@dataclass(frozen=True)
class KeyBy:
    """The columns that belong together from here on."""

    input: Node
    keys: tuple[str, ...]


@dataclass(frozen=True)
class Window:
    """Which windows a row belongs to, when they fire, and how long they wait for late rows."""

    input: Node
    assigner: Assigner
    trigger: Trigger | None
    mode: Mode
    allowed_lateness: int


@dataclass(frozen=True)
class Aggregated:
    """One result row per key and firing."""

    input: Node
    aggregates: tuple[tuple[str, Aggregate], ...]
    on_error: OnError

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`, and name it in messages."""
        return f"aggregate {', '.join(f'{name}={aggregate.describe()}' for name, aggregate in self.aggregates)}"


@dataclass(frozen=True)
class Matched:
    """One result row per match of a pattern in the rows of a key, and per time-out where that is asked for."""

    input: Node
    pattern: Pattern
    measures: tuple[tuple[str, Measure], ...]
    timed_out: bool = False

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`, and name it in messages."""
        what = "match or time-out of" if self.timed_out else "match"
        return f"{what} {' '.join(self.pattern.names)} -> {', '.join(name for name, _ in self.measures)}"


@dataclass(frozen=True)
class Processed:
    """A user's own operator, or one of ours that needs no more than its contract."""

    input: Node
    build: Callable[[tuple[str, ...], pl.Schema], Operator]
    name: str

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`."""
        return self.name


Node: TypeAlias = Read | Watermark | Stateless | Union | KeyBy | Window | Aggregated | Matched | Processed
