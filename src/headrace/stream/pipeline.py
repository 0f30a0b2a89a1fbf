"""From plan to pipeline: entries (source, watermark, stateless steps), then stages (key, operator, stateless steps).

    entry --+
            +-- stage (keys, operator, steps) -- stage ... -- finish
    entry --+

A runner feeds entries, spreads rows over key groups by each stage's keys, calls the operators, and hands what leaves
the last stage to `finish`. Two decisions are made here and nowhere else: which operator does a window's work, and
whether what needs two stages in general can be done in one (a same-window aggregate; windows of what goes on in step).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.cep.operator import PatternOperator
from headrace.engine.operator import IS_RETRACTION
from headrace.errors import PlanError
from headrace.stream import plan
from headrace.stream.columns import operator_columns, source_columns
from headrace.stream.relay import MergedFold, RelayOperator, UnreadWindows
from headrace.stream.steps import apply_steps, fitted
from headrace.time.strategies import ascending
from headrace.windows.assigners import Aligned, SameWindow
from headrace.windows.chained import ChainedFold
from headrace.windows.operator import WindowOperator
from headrace.windows.panes import Panes
from headrace.windows.sequences import Sequence, SequenceOperator
from headrace.windows.sliced import SlicedOperator
from headrace.windows.triggers import default

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine import Operator
    from headrace.stream.steps import Step
    from headrace.time.watermarks import WatermarkStrategy


@dataclass(frozen=True)
class Entry:
    """One source, and what happens to its rows before the first stage.

    Args:
        source: Where rows come from.
        strategy: How its event time advances.
        idle_after: A partition without events for this long does not hold the others back.
        steps: The stateless steps on its rows.
        columns: The columns of the source that are used.
        untimed: How many of the steps come before the watermark strategy looks at the rows.
    """

    source: plan.Source
    strategy: WatermarkStrategy = field(default_factory=ascending)
    idle_after: int | None = None
    steps: tuple[Step, ...] = ()
    columns: tuple[str, ...] = ()
    untimed: int = 0


@dataclass(frozen=True)
class Stage:
    """One operator on keyed rows, and the stateless steps on its results.

    Args:
        name: What it is called in messages.
        keys: The key columns of its rows.
        operator: What it does.
        schema: The columns of its rows.
        steps: The stateless steps on its results.
        fold: A same-window aggregate that rides on this stage, or None.
        window_text: Its windows in words, or nothing.
        fires_again: Whether a window may fire more than once.
    """

    name: str
    keys: tuple[str, ...]
    operator: Operator
    schema: pl.Schema
    steps: tuple[Step, ...] = ()
    fold: ChainedFold | None = None
    window_text: str = ""
    fires_again: bool = False


@dataclass(frozen=True)
class Branch:
    """A further way from the last stage's operator to results.

    Args:
        name: What the output is called.
        steps: The stateless steps on what the operator gives.
        fold: A same-window aggregate, or None.
        last_steps: The stateless steps after the merge of the fold.
        schema: The columns of the results.
        keys: The key columns of the results.
    """

    name: str
    steps: tuple[Step, ...]
    fold: ChainedFold | None
    last_steps: tuple[Step, ...]
    schema: pl.Schema
    keys: tuple[str, ...]

    def finish(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn what left the last stage in one batch, from all key groups together, into results."""
        return _finished(rows, self.fold, self.steps, self.last_steps, self.schema)


@dataclass(frozen=True)
class Pipeline:
    """What a runner executes.

    Args:
        entries: Where rows come from.
        stages: The stateful stages, in order.
        schema: The columns of the results.
        last_steps: The stateless steps after the merge of the last stage's fold.
        branches: Further outputs, made of what the last stage's operator gives.
    """

    entries: tuple[Entry, ...]
    stages: tuple[Stage, ...]
    schema: pl.Schema
    last_steps: tuple[Step, ...] = ()
    branches: tuple[Branch, ...] = ()

    @property
    def result_keys(self) -> tuple[str, ...]:
        """The key columns of the results."""
        last = self.stages[-1]
        return last.keys if last.fold is None else last.fold.keys

    @property
    def result_steps(self) -> tuple[Step, ...]:
        """The stateless steps between the key of the results and the results."""
        last = self.stages[-1]
        return last.steps if last.fold is None else self.last_steps

    @property
    def windows(self) -> Aligned | None:
        """The windows of the first stage, if they end at the same times for every key."""
        operator = self.stages[0].operator
        windows = operator.second if isinstance(operator, RelayOperator) else operator
        if isinstance(windows, SlicedOperator | WindowOperator) and isinstance(windows.assigner, Aligned):
            return windows.assigner
        return None

    def finish(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Turn what left the last stage in one batch, from all key groups together, into results."""
        last = self.stages[-1]
        return _finished(rows, last.fold, last.steps, self.last_steps, self.schema)

    def with_branches(self, others: Mapping[str, Pipeline]) -> Pipeline:
        """Add what other pipelines do after the last stage's operator, which they share with this one.

        Args:
            others: By the name of the output.
        """
        return replace(self, branches=tuple(other.as_branch(name) for name, other in others.items()))

    def as_branch(self, name: str) -> Branch:
        """Take what follows the last stage's operator."""
        last = self.stages[-1]
        return Branch(name, last.steps, last.fold, self.last_steps, self.schema, self.result_keys)


def _finished(
    rows: pl.DataFrame,
    fold: ChainedFold | None,
    steps: tuple[Step, ...],
    last_steps: tuple[Step, ...],
    schema: pl.Schema,
) -> pl.DataFrame:
    results = apply_steps(last_steps, rows if fold is None else fold.finish(rows))
    promised = pl.Schema({name: results.schema.get(name, kind) for name, kind in schema.items()})
    return fitted(results, promised, steps=(*steps, *last_steps))


def trunk(node: plan.Node) -> plan.Node | None:
    """Find the last stateful step of a plan that is no same-window aggregate: what outputs of a job must share."""
    if isinstance(node, plan.Read | plan.Union):
        return None
    if isinstance(node, plan.Aggregated):
        window = node.input
        same = isinstance(window, plan.Window) and isinstance(window.assigner, SameWindow)
        return trunk(window.input) if same and isinstance(window, plan.Window) else node
    if isinstance(node, plan.Matched | plan.Processed):
        return node
    return trunk(node.input)


@dataclass
class _Draft:
    entries: list[Entry]
    stages: list[Stage]
    keys: tuple[str, ...] = ()
    unmarked: list[plan.Source] = field(default_factory=list)


def compile_plan(node: plan.Node, schema: pl.Schema, *, fuse: bool = True, prune: bool = True) -> Pipeline:
    """Compile a plan.

    Args:
        node: The plan's result.
        schema: Its columns.
        fuse: Fold a same-window aggregate into the stage before it where that gives the same answer.
        prune: Leave out the columns that nobody reads; late rows then lack them too.
    """
    draft = _draft(node)
    if draft.stages and draft.unmarked:
        raise PlanError(
            f"{draft.unmarked[0].text} has no watermark",
            hint='Call .watermark(bounded("1s")) right after the source, with the disorder you expect.',
        )
    if not draft.stages:
        raise PlanError(
            "a stream without a stateful step",
            hint="Add key_by and window(...).aggregate(...), or process(...); filtering alone needs no Headrace.",
        )
    pipeline = Pipeline(tuple(draft.entries), tuple(draft.stages), schema)
    pipeline = _pruned(pipeline) if prune else pipeline
    return _fused(pipeline) if fuse else pipeline


def _pruned(pipeline: Pipeline) -> Pipeline:
    """Leave out the columns that nobody reads."""
    first, *others = pipeline.stages
    needed = operator_columns(first.operator, first.schema)
    entries = tuple(
        replace(entry, columns=tuple(source_columns(entry.steps, needed, entry.source.schema, entry.strategy)))
        for entry in pipeline.entries
    )
    schema = pl.Schema({name: first.schema[name] for name in needed})
    return replace(pipeline, entries=entries, stages=(replace(first, schema=schema), *others))


def _draft(node: plan.Node) -> _Draft:
    if isinstance(node, plan.Read):
        return _Draft([Entry(node.source)], [], unmarked=[node.source])
    if isinstance(node, plan.Union):
        return _union(node)
    if isinstance(node, plan.Window):
        raise PlanError("a window without an aggregate", hint="Call aggregate(...) after window(...).")
    if isinstance(node, plan.Aggregated):
        return _aggregated(node)
    draft = _draft(node.input)
    if isinstance(node, plan.KeyBy):
        draft.keys = node.keys
    elif isinstance(node, plan.Watermark):
        draft.entries = [_with_watermark(entry, node, draft) for entry in draft.entries]
        draft.unmarked = []
    elif isinstance(node, plan.Stateless):
        if draft.stages:
            last = draft.stages[-1]
            draft.stages[-1] = replace(last, steps=(*last.steps, node.step))
        else:
            draft.entries = [replace(entry, steps=(*entry.steps, node.step)) for entry in draft.entries]
    else:
        schema = _schema_into_next_stage(draft)
        if isinstance(node, plan.Matched):
            operator: Operator = PatternOperator(
                node.pattern, key=draft.keys, measures=dict(node.measures), mark_timed_out=node.timed_out
            )
            name = node.text
        else:
            operator, name = node.build(draft.keys, schema), node.name
        draft.stages.append(Stage(name, draft.keys, operator, schema))
    return draft


def _with_watermark(entry: Entry, node: plan.Watermark, draft: _Draft) -> Entry:
    if draft.stages:
        raise PlanError("watermark after an aggregate", hint="Set it right after the source; later stages inherit it.")
    return replace(entry, strategy=node.strategy, idle_after=node.idle_after, untimed=len(entry.steps))


def _union(node: plan.Union) -> _Draft:
    drafts = [_draft(part) for part in node.inputs]
    if any(draft.stages for draft in drafts):
        raise PlanError("union of aggregated streams", hint="Join the sources first, then aggregate.")
    entries = [entry for draft in drafts for entry in draft.entries]
    return _Draft(entries, [], unmarked=[source for draft in drafts for source in draft.unmarked])


def _aggregated(node: plan.Aggregated) -> _Draft:
    window = node.input
    if not isinstance(window, plan.Window):
        raise PlanError("aggregate without a window", hint="Call window(...) or same_window() right before it.")
    draft = _draft(window.input)
    revised = False
    if draft.stages:
        revised = draft.stages[-1].fires_again
        window = _continued(window, draft)
    schema = _schema_into_next_stage(draft)
    if revised and IS_RETRACTION not in schema:
        raise PlanError(
            f"{node.text}: the aggregate before it may revise its results, but column {IS_RETRACTION!r} is gone",
            hint=f"Keep {IS_RETRACTION!r} in select() or map_batches(): it tells what is taken back.",
        )
    operator = _window_operator(draft.keys, window, node, revised=revised)
    text = "" if isinstance(window.assigner, SameWindow) else window.assigner.describe()
    fires_again = _fires_again(window) or revised
    draft.stages.append(Stage(node.text, draft.keys, operator, schema, window_text=text, fires_again=fires_again))
    return draft


def _continued(window: plan.Window, draft: _Draft) -> plan.Window:
    """Make a chain of windows right: what fires again takes back what it said, and is waited for as long."""
    last = draft.stages[-1]
    before = last.operator
    if not isinstance(before, WindowOperator):
        return window
    if before.panes.mode == "value" and last.fires_again:
        panes = replace(before.panes, mode="value_and_retraction")
        draft.stages[-1] = replace(last, operator=replace(before, panes=panes))
    same = isinstance(window.assigner, SameWindow)
    return replace(window, allowed_lateness=before.lateness) if same else window


def _schema_into_next_stage(draft: _Draft) -> pl.Schema:
    if draft.stages:
        last = draft.stages[-1]
        frame = last.operator.schema(last.schema).to_frame()
        return apply_steps(last.steps, frame).schema
    entry = draft.entries[0]
    return apply_steps(entry.steps, entry.source.schema.to_frame()).schema


def _window_operator(keys: tuple[str, ...], window: plan.Window, node: plan.Aggregated, *, revised: bool) -> Operator:
    plain = not _fires_again(window) and window.mode == "value" and node.on_error == "fail" and not revised
    if isinstance(window.assigner, Aligned) and plain:
        return SlicedOperator(keys, window.assigner, node.aggregates, step=node.text)
    on_error: Literal["dead_letter", "raise"] = "dead_letter" if node.on_error == "dead_letter" else "raise"
    if isinstance(window.assigner, Sequence):
        if _fires_again(window):
            raise PlanError(
                f"a trigger or allowed lateness on {window.assigner.describe()}",
                hint="Such a window ends with a row, in the order of event time, and fires once, then; leave them out.",
            )
        return SequenceOperator(
            keys, window.assigner, dict(node.aggregates), retractions=revised, on_error=on_error, step=node.text
        )
    return WindowOperator(
        keys=keys,
        assigner=window.assigner,
        aggregates=dict(node.aggregates),
        trigger=window.trigger or default(),
        allowed_lateness=window.allowed_lateness,
        panes=Panes(mode=window.mode),
        retractions=revised,
        on_error=on_error,
        step=node.text,
    )


def _fires_again(window: plan.Window) -> bool:
    return window.trigger is not None or window.allowed_lateness > 0


def _fused(pipeline: Pipeline) -> Pipeline:
    """Do in one stage what need not be two."""
    return _relayed(_folded(pipeline))


def _relayed(pipeline: Pipeline) -> Pipeline:
    """Keep windows of what a stage lets go on in step with the watermark within that stage; see `stream.relay`."""
    if len(pipeline.stages) < 2:
        return pipeline
    *earlier, first, second = pipeline.stages
    windows = second.operator
    if (
        not isinstance(windows, SlicedOperator)
        or second.fold is not None
        or not getattr(first.operator, "in_step", False)
    ):
        return pipeline
    unread = UnreadWindows(windows.keys, windows.assigner, windows.aggregates, windows.step)
    stage = Stage(
        f"{first.name}, {second.name}",
        first.keys,
        RelayOperator(first.operator, first.steps, unread, second.schema),
        first.schema,
        fold=MergedFold(windows.keys, windows.aggregates, windows.step),
        window_text=second.window_text,
    )
    return replace(pipeline, stages=(*earlier, stage), last_steps=second.steps)


def _folded(pipeline: Pipeline) -> Pipeline:
    """Fold a same-window aggregate into the stage before it.

    All key groups see the same watermark in the same batch, so they fire a window in the same batch: its second
    aggregate needs no state, only a merge of what the groups say. That holds where a window fires once; one that may
    fire again needs a stage.
    """
    if len(pipeline.stages) < 2:
        return pipeline
    *earlier, first, second = pipeline.stages
    following = second.operator
    if not (isinstance(following, WindowOperator) and isinstance(following.assigner, SameWindow)):
        return pipeline
    if not isinstance(first.operator, SlicedOperator) or following.on_error != "raise":
        return pipeline
    fold = ChainedFold(second.keys, tuple(following.aggregates.items()), following.step)
    stage = replace(first, fold=fold)
    return replace(pipeline, stages=(*earlier, stage), last_steps=second.steps)
