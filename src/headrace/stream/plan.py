"""The logical plan: what a `Stream` is made of until it is run.

A plan is a graph of frozen nodes, linked from the results back to the sources. A node knows its inputs, the columns and
keys of the rows that leave it, its line in `explain()`, and whether it keeps state. Nodes are compared by identity, so
a stream that is used twice is computed once. Nodes describe; `headrace.stream.pipeline` turns them into stages of steps
and operators that a runner executes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from headrace.cep.operator import PatternOperator
from headrace.engine.operator import IS_RETRACTION
from headrace.errors import PlanError
from headrace.formats.envelope import EnvelopeFormat
from headrace.stream.windowing import fires_again, retracting, window_operator
from headrace.time.duration import text as duration_text
from headrace.windows.assigners import SameWindow

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from headrace.cep.measures import Measure
    from headrace.cep.pattern import Pattern
    from headrace.engine import Operator
    from headrace.formats import Format
    from headrace.stream.steps import Step
    from headrace.time.key_time import KeyTime
    from headrace.time.watermarks import AllIdle, WatermarkStrategy
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


@dataclass(frozen=True, eq=False, kw_only=True)
class Node(ABC):
    """One step of a plan.

    Args:
        schema: The columns of the rows that leave it.
        keys: The key columns of those rows, where a key was set.
    """

    #: Whether rows leave it; those of a window leave only its aggregate.
    complete: ClassVar[bool] = True

    schema: pl.Schema
    keys: tuple[str, ...] = ()

    @property
    @abstractmethod
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose rows it takes, in order."""

    @property
    @abstractmethod
    def text(self) -> str:
        """Describe the step in a line of `explain()`."""

    @property
    def stateful(self) -> bool:
        """Whether this step, or one before it, keeps state."""
        return any(node.stateful for node in self.inputs)

    @property
    def updating(self) -> bool:
        """Whether its rows may be taken back: they carry `is_retraction`, and consumers must subtract."""
        return any(node.updating for node in self.inputs)

    @property
    def retracts(self) -> bool:
        """Whether it takes rows back without being asked; windows that fire again do so only for who needs it."""
        return any(node.retracts for node in self.inputs)

    @property
    def null_keys(self) -> bool:
        """Whether rows whose key is null belong to a key of their own; otherwise they are dismissed."""
        return any(node.null_keys for node in self.inputs)


@dataclass(frozen=True, eq=False, kw_only=True)
class Single(Node):
    """A node with one input."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input."""
        return (self.input,)


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Node):
    """The beginning of a plan."""

    source: Source

    @property
    def inputs(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def text(self) -> str:
        """Describe the source."""
        return self.source.text


@dataclass(frozen=True, eq=False, kw_only=True)
class Watermark(Single):
    """How the event time of the source advances.

    Args:
        strategy: How it follows from the events of a partition.
        idle_after: A partition without events for so many microseconds does not hold the others back.
        all_idle: What it does when no partition brings events.
        key_time: What is promised of the order within a key; None for nothing.
    """

    strategy: WatermarkStrategy
    idle_after: int | None
    all_idle: AllIdle = "max"
    key_time: KeyTime | None = None

    @property
    def text(self) -> str:
        """Describe the strategy."""
        per_key = "" if self.key_time is None else f", {self.key_time.describe()}"
        idle = f", idle after {duration_text(self.idle_after)}" if self.idle_after is not None else ""
        together = "" if self.all_idle == "max" else f", all idle: {self.all_idle}"
        return f"watermark {self.strategy.describe()}{per_key}{idle}{together}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateless(Single):
    """One stateless step."""

    step: Step

    @property
    def text(self) -> str:
        """Describe the step."""
        return self.step.text


@dataclass(frozen=True, eq=False, kw_only=True)
class Changelog(Stateless):
    """A step that says which rows take back earlier ones: from here on the stream is updating."""

    @property
    def updating(self) -> bool:
        """Its rows may be taken back."""
        return True

    @property
    def retracts(self) -> bool:
        """It takes rows back."""
        return True


@dataclass(frozen=True, eq=False, kw_only=True)
class Union(Node):
    """Several streams of the same columns as one."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams."""
        return self.parts

    @property
    def text(self) -> str:
        """Head the list of streams."""
        return "union of"


@dataclass(frozen=True, eq=False, kw_only=True)
class KeyBy(Single):
    """The columns that belong together from here on.

    Args:
        null_keys: Whether null is a key like others, as in GROUP BY; otherwise such rows are dismissed.
        everywhere: Whether every key group gets all rows, whatever their key is.
    """

    null_keys: bool = False
    everywhere: bool = False

    @property
    def text(self) -> str:
        """Name the columns."""
        return f"key_by {', '.join(self.keys)}"


@dataclass(frozen=True, eq=False, kw_only=True)
class Window(Single):
    """Which windows a row belongs to, when they fire, and how long they wait for late rows."""

    complete: ClassVar[bool] = False

    assigner: Assigner
    trigger: Trigger | None
    mode: Mode
    allowed_lateness: int

    @property
    def text(self) -> str:
        """Describe the windows and when they fire."""
        parts = [f"window {self.assigner.describe()}"]
        if self.trigger is not None:
            parts.append(f"trigger {self.trigger.describe()}")
        if self.mode != "value":
            parts.append(f"mode {self.mode}")
        if self.allowed_lateness:
            parts.append(f"allowed lateness {duration_text(self.allowed_lateness)}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Upstream:
    """What a stateful step is told about the steps before it.

    Args:
        revised: Whether an earlier result may be taken back.
        lateness: How long the windows before wait for late rows, in microseconds.
    """

    revised: bool = False
    lateness: int = 0


@dataclass(frozen=True, eq=False, kw_only=True)
class Stateful(Node):
    """A step that keeps state.

    Args:
        name: What its state is found by, as the user named it; empty: it is derived.
    """

    name: str = ""

    @property
    def stateful(self) -> bool:
        """It keeps state."""
        return True

    @property
    def updating(self) -> bool:
        """Its results stay."""
        return False

    @property
    def retracts(self) -> bool:
        """Its results stay."""
        return False

    @property
    def null_keys(self) -> bool:
        """Its results have no key yet."""
        return False

    @property
    def takes_updates(self) -> bool:
        """Whether it understands rows that take back earlier ones; if not, it refuses an updating input."""
        return False

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it does, in a word: a part of its name where the user gave none."""

    @property
    @abstractmethod
    def described(self) -> str:
        """What it does, in words."""

    @property
    def text(self) -> str:
        """Describe the step, with the name that the user gave it."""
        return f"{self.described} named {self.name}" if self.name else self.described

    @property
    def derived_name(self) -> str:
        """Its name where the user gave none, to be numbered among its likes."""
        keys = self.inputs[0].keys
        return f"{self.kind}-by-{'-'.join(keys)}" if keys else self.kind

    @abstractmethod
    def build(self, upstream: Upstream, *, retracts: bool = False) -> Operator:
        """Make the operator.

        Args:
            upstream: What the steps before it do.
            retracts: Whether what follows needs to be told what a later result takes back.
        """

    def fires_again(self, upstream: Upstream) -> bool:
        """Whether it may revise a result."""
        del upstream
        return False

    @property
    def window_text(self) -> str:
        """Its windows in words, or nothing."""
        return ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Aggregated(Stateful):
    """One result row per key and firing."""

    input: Window
    aggregates: tuple[tuple[str, Aggregate], ...]
    on_error: OnError

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The window."""
        return (self.input,)

    @property
    def kind(self) -> str:
        """An aggregate."""
        return "aggregate"

    @property
    def described(self) -> str:
        """Name the aggregates."""
        return f"aggregate {', '.join(f'{name}={aggregate.describe()}' for name, aggregate in self.aggregates)}"

    @property
    def same_window(self) -> bool:
        """Whether it continues the windows of the aggregate before."""
        return isinstance(self.input.assigner, SameWindow)

    @property
    def window_text(self) -> str:
        """Its windows in words; those of the aggregate before are not told again."""
        return "" if self.same_window else self.input.assigner.describe()

    @property
    def updating(self) -> bool:
        """Whether a window may fire more than once."""
        own = fires_again(self.input.trigger, self.input.allowed_lateness)
        return own or self.input.updating

    @property
    def retracts(self) -> bool:
        """Whether panes are taken back."""
        return self.input.mode == "value_and_retraction" or self.input.retracts

    @property
    def takes_updates(self) -> bool:
        """Its aggregates subtract; those that cannot refuse."""
        return True

    def fires_again(self, upstream: Upstream) -> bool:
        """Whether a window may fire more than once."""
        return upstream.revised or fires_again(self.input.trigger, self._lateness(upstream))

    def build(self, upstream: Upstream, *, retracts: bool = False) -> Operator:
        """Choose the operator that does the work of these windows."""
        rows = self.input.schema
        if upstream.revised and IS_RETRACTION not in rows:
            raise PlanError(
                f"{self.described}: the aggregate before it may revise its results, but column {IS_RETRACTION!r} is "
                "gone",
                hint=f"Keep {IS_RETRACTION!r} in select() or map_batches(): it tells what is taken back.",
            )
        operator = window_operator(
            self.input.keys,
            self.input.assigner,
            self.aggregates,
            trigger=self.input.trigger,
            mode=self.input.mode,
            allowed_lateness=self._lateness(upstream),
            on_error="dead_letter" if self.on_error == "dead_letter" else "raise",
            revised=upstream.revised,
            step=self.described,
            null_keys=self.input.null_keys,
        )
        return retracting(operator) if retracts and self.fires_again(upstream) else operator

    def _lateness(self, upstream: Upstream) -> int:
        return upstream.lateness if self.same_window else self.input.allowed_lateness


@dataclass(frozen=True, eq=False, kw_only=True)
class Matched(Stateful):
    """One result row per match of a pattern in the rows of a key, and per time-out where that is asked for."""

    input: Node
    pattern: Pattern
    measures: tuple[tuple[str, Measure], ...]
    timed_out: bool = False
    key_time: KeyTime | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The rows to look at."""
        return (self.input,)

    @property
    def kind(self) -> str:
        """A match."""
        return "match"

    @property
    def described(self) -> str:
        """Name the elements of the pattern and the measures."""
        what = "match or time-out of" if self.timed_out else "match"
        return f"{what} {' '.join(self.pattern.names)} -> {', '.join(name for name, _ in self.measures)}"

    def build(self, upstream: Upstream, *, retracts: bool = False) -> Operator:
        """Make the operator that looks for the pattern."""
        del upstream, retracts
        return PatternOperator(
            self.pattern,
            key=self.input.keys,
            measures=dict(self.measures),
            mark_timed_out=self.timed_out,
            key_time=self.key_time,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Processed(Stateful):
    """An operator that needs no more than its contract: a user's own, or one of ours.

    Args:
        does: What it is, in a word.
        description: What it does, in words.
        make: Makes the operator from the key columns and the columns that come in.
        gives_updates: Whether its results may be taken back, by rows with `is_retraction`.
        takes_updates: Whether it understands rows that take back earlier ones.
    """

    input: Node
    does: str
    description: str
    make: Callable[[tuple[str, ...], pl.Schema], Operator]
    gives_updates: bool = False
    takes_updates: bool = False

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The rows that the operator is given."""
        return (self.input,)

    @property
    def kind(self) -> str:
        """What it is."""
        return self.does

    @property
    def described(self) -> str:
        """What it does."""
        return self.description

    @property
    def updating(self) -> bool:
        """Whether its results may be taken back."""
        return self.gives_updates

    @property
    def retracts(self) -> bool:
        """Whether its results may be taken back."""
        return self.gives_updates

    def fires_again(self, upstream: Upstream) -> bool:
        """Whether its results may be taken back."""
        del upstream
        return self.gives_updates

    def build(self, upstream: Upstream, *, retracts: bool = False) -> Operator:
        """Make the operator."""
        del upstream, retracts
        return self.make(self.input.keys, self.input.schema)


@dataclass(frozen=True, eq=False, kw_only=True)
class Combined(Stateful):
    """An operator with several inputs, each with keys and a watermark of its own.

    Args:
        does: What it is, in a word.
        description: What it does, in words.
        make: Makes the operator from the key columns and the columns of each input.
        gives_updates: Whether its results may be taken back, by rows with `is_retraction`.
        takes_updates: Whether it understands rows that take back earlier ones.
        result_keys: The columns of its results that name a key group, if these are not the key of the first input.
    """

    parts: tuple[Node, ...]
    does: str
    description: str
    make: Callable[[tuple[tuple[str, ...], ...], tuple[pl.Schema, ...]], Operator]
    gives_updates: bool = False
    takes_updates: bool = False
    result_keys: tuple[str, ...] | None = None

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The streams that meet."""
        return self.parts

    @property
    def kind(self) -> str:
        """What it is."""
        return self.does

    @property
    def described(self) -> str:
        """What it does."""
        return self.description

    @property
    def updating(self) -> bool:
        """Whether its results may be taken back."""
        return self.gives_updates

    @property
    def retracts(self) -> bool:
        """Whether its results may be taken back."""
        return self.gives_updates

    def fires_again(self, upstream: Upstream) -> bool:
        """Whether its results may be taken back."""
        del upstream
        return self.gives_updates

    def build(self, upstream: Upstream, *, retracts: bool = False) -> Operator:
        """Make the operator."""
        del upstream, retracts
        return self.make(tuple(part.keys for part in self.parts), tuple(part.schema for part in self.parts))


def nodes_of(*results: Node) -> tuple[Node, ...]:
    """List the nodes of a plan, each once, inputs before what reads them."""
    listed: dict[Node, None] = {}
    for result in results:
        _list(result, listed)
    return tuple(listed)


def _list(node: Node, listed: dict[Node, None]) -> None:
    if node not in listed:
        for part in node.inputs:
            _list(part, listed)
        listed[node] = None


def step_names(*results: Node) -> dict[Stateful, str]:
    """Name the stateful steps of a plan: as the user did, or else by what they do, their keys, and a number.

    A derived name does not depend on the steps around it, only on its likes before it in the plan.

    Raises:
        PlanError: Two steps have the same name.
    """
    names: dict[Stateful, str] = {}
    taken: dict[str, Stateful] = {}
    likes: dict[str, int] = {}
    for node in nodes_of(*results):
        if not isinstance(node, Stateful):
            continue
        name = node.name
        if not name:
            likes[node.derived_name] = number = likes.get(node.derived_name, 0) + 1
            name = node.derived_name if number == 1 else f"{node.derived_name}-{number}"
        if name in taken:
            raise PlanError(
                f"two steps are named {name!r}: {taken[name].described}; and {node.described}",
                hint="The state of a step is found by its name: give each another one with named(...).",
            )
        taken[name] = node
        names[node] = name
    return names
