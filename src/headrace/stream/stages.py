"""What a runner executes: entries, stages, the edges between them, and outputs.

    entry ----> stage (keys, operator) ----> output
                        |
    entry ----> stage (several inputs) ----> output

An entry feeds one input of one stage; a source that two stages read has two entries. A stage's level is the longest
path to it, so all that a level reads is there when the levels before it are done. `headrace.stream.pipeline` makes a
pipeline of a plan.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.keygroups import split_by_group
from headrace.stream.relay import RelayOperator
from headrace.stream.steps import apply_steps, fitted
from headrace.time.strategies import ascending
from headrace.windows.assigners import Aligned
from headrace.windows.operator import WindowOperator
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Operator
    from headrace.stream.plan import Source
    from headrace.stream.steps import Step
    from headrace.time.watermarks import AllIdle, WatermarkStrategy
    from headrace.windows.chained import ChainedFold


@dataclass(frozen=True)
class Entry:
    """One source, and what happens to its rows before the stage that they are for.

    Args:
        source: Where rows come from.
        strategy: How its event time advances.
        idle_after: A partition without events for this long does not hold the others back.
        steps: The stateless steps on its rows.
        columns: The columns of the source that are used.
        untimed: How many of the steps come before the watermark strategy looks at the rows.
        stage: The stage that the rows are for.
        input: Which of its inputs.
        all_idle: What the time of the source does when no partition brings events.
    """

    source: Source
    strategy: WatermarkStrategy = field(default_factory=ascending)
    idle_after: int | None = None
    steps: tuple[Step, ...] = ()
    columns: tuple[str, ...] = ()
    untimed: int = 0
    stage: int = 0
    input: int = 0
    all_idle: AllIdle = "max"


@dataclass(frozen=True)
class StageInput:
    """Rows that an operator is given.

    Args:
        keys: Their key columns.
        schema: Their columns.
        null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.
        everywhere: Whether every key group gets all rows.
    """

    keys: tuple[str, ...]
    schema: pl.Schema
    null_keys: bool = False
    everywhere: bool = False

    def spread(self, rows: pl.DataFrame, groups: int) -> dict[int, pl.DataFrame]:
        """Sort rows to key groups; groups without rows are absent."""
        if not self.everywhere:
            return split_by_group(rows, self.keys, groups)
        return dict.fromkeys(range(groups), rows) if rows.height else {}


@dataclass(frozen=True)
class Stage:
    """One operator on keyed rows.

    Args:
        name: What it is called in messages.
        step: What its state is found by.
        operator: What it does.
        inputs: The rows that it is given.
        level: The longest path to it.
        window_text: Its windows in words, or nothing.
        fires_again: Whether a window may fire more than once.
    """

    name: str
    step: str
    operator: Operator
    inputs: tuple[StageInput, ...]
    level: int = 0
    window_text: str = ""
    fires_again: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of its first input."""
        return self.inputs[0].keys

    @property
    def schema(self) -> pl.Schema:
        """The columns of its first input."""
        return self.inputs[0].schema


@dataclass(frozen=True, eq=False)
class Edge:
    """The way of a stage's results to a later stage.

    Args:
        source: The stage.
        target: The later one.
        input: Which of its inputs.
        steps: The stateless steps in between.
    """

    source: int
    target: int
    input: int = 0
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ResultEdge:
    """The way of a stage's results out of the pipeline.

    Args:
        name: What the output is called; empty: the results of the job itself.
        stage: The stage.
        steps: The stateless steps on what its operator gives.
        schema: The columns of the results.
        keys: The key columns of the results.
        fold: A same-window aggregate, or None.
        last_steps: The stateless steps after the merge of the fold.
        part: Tells the stages apart that give results to one output; empty where there is one.
        updating: Whether results may be taken back, by later ones with `is_retraction`.
        unnumbered: Whether results of one key and time are told apart by nothing that they carry.
    """

    name: str
    stage: int
    steps: tuple[Step, ...]
    schema: pl.Schema
    keys: tuple[str, ...]
    fold: ChainedFold | None = None
    last_steps: tuple[Step, ...] = ()
    part: str = ""
    updating: bool = False
    unnumbered: bool = False

    @property
    def after_key(self) -> tuple[Step, ...]:
        """The stateless steps between the key of the results and the results."""
        return self.steps if self.fold is None else self.last_steps

    def finish(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn what left the stage in one batch, from all key groups together, into results."""
        results = apply_steps(self.last_steps, rows if self.fold is None else self.fold.finish(rows))
        schema = type(self.schema)({name: results.schema.get(name, kind) for name, kind in self.schema.items()})
        return fitted(results, schema, steps=(*self.steps, *self.last_steps))


@dataclass(frozen=True)
class Pipeline:
    """What a runner executes.

    Args:
        entries: Where rows come from.
        stages: The stateful stages, those of an earlier level first.
        edges: The ways between stages.
        outputs: The ways out, those of the job's own results first.
    """

    entries: tuple[Entry, ...]
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    outputs: tuple[ResultEdge, ...]

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return 1 + max(stage.level for stage in self.stages)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the job's own results."""
        return self.outputs[0].schema

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The key columns of the job's own results."""
        return self.outputs[0].keys

    @property
    def output_names(self) -> tuple[str, ...]:
        """The names of the further outputs."""
        return tuple(dict.fromkeys(output.name for output in self.outputs if output.name))

    @property
    def folded(self) -> bool:
        """Whether somebody has to merge what the key groups say of an output."""
        return any(output.fold is not None for output in self.outputs)

    @property
    def windows(self) -> Aligned | None:
        """The windows of the first stage, if they end at the same times for every key."""
        operator = self.stages[0].operator
        windows = operator.second if isinstance(operator, RelayOperator) else operator
        if isinstance(windows, SlicedOperator | WindowOperator) and isinstance(windows.assigner, Aligned):
            return windows.assigner
        return None

    def results_of(self, name: str) -> tuple[ResultEdge, ...]:
        """Find the ways to an output."""
        return tuple(output for output in self.outputs if output.name == name)

    def entries_of(self, stage: int) -> tuple[int, ...]:
        """Tell the numbers of the entries that feed a stage."""
        return tuple(number for number, entry in enumerate(self.entries) if entry.stage == stage)

    def edges_to(self, stage: int) -> tuple[Edge, ...]:
        """Find the ways to a stage."""
        return tuple(edge for edge in self.edges if edge.target == stage)

    def edges_from(self, stage: int) -> tuple[Edge, ...]:
        """Find the ways from a stage to later ones."""
        return tuple(edge for edge in self.edges if edge.source == stage)

    def outputs_of(self, stage: int) -> tuple[ResultEdge, ...]:
        """Find the ways from a stage out of the pipeline."""
        return tuple(output for output in self.outputs if output.stage == stage)


def by_output(pipeline: Pipeline, ways: Sequence[pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """Put results together by the name of their output; the job's own come first, under "".

    Args:
        pipeline: Where they come from.
        ways: The results, by way out in the order of the pipeline.
    """
    given: dict[str, list[pl.DataFrame]] = {}
    for way, frame in zip(pipeline.outputs, ways, strict=True):
        given.setdefault(way.name, []).append(frame)
    return {name: pl.concat(frames) for name, frames in given.items()}
