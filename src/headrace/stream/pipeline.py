"""From plan to pipeline: which stages there are, what rides on them, and how rows get from one to the next.

A stateful step of the plan becomes a stage; stateless steps ride on what leads from an entry or a stage to the next
stage or output. Two decisions are made here and nowhere else: whether what needs two stages in general can be done in
one (a same-window aggregate; windows of what goes on in step), and who must be told what a later result takes back.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import PANE_INDEX
from headrace.errors import PlanError
from headrace.stream import plan
from headrace.stream.columns import operator_columns, source_columns
from headrace.stream.relay import MergedFold, RelayOperator, UnreadWindows
from headrace.stream.stages import Edge, Entry, Pipeline, ResultEdge, Stage, StageInput
from headrace.stream.windowing import retracting
from headrace.time.strategies import ascending
from headrace.windows.assigners import SameWindow
from headrace.windows.chained import ChainedFold
from headrace.windows.operator import WindowOperator
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.engine import Operator
    from headrace.stream.steps import Step
    from headrace.time.watermarks import AllIdle, WatermarkStrategy

__all__ = ["Edge", "Entry", "ResultEdge", "Pipeline", "Stage", "StageInput", "compile_outputs", "compile_plan"]


def compile_plan(
    node: plan.Node, schema: pl.Schema | None = None, *, fuse: bool = True, prune: bool = True
) -> Pipeline:
    """Compile a plan with one output.

    Args:
        node: The plan's result.
        schema: Its columns, where they are not those of the node.
        fuse: Fold a same-window aggregate into the stage before it where that gives the same answer.
        prune: Leave out the columns that nobody reads; late rows then lack them too.
    """
    pipeline = compile_outputs({"": node}, fuse=fuse, prune=prune)
    if schema is None:
        return pipeline
    return replace(pipeline, outputs=tuple(replace(output, schema=schema) for output in pipeline.outputs))


def compile_outputs(nodes: Mapping[str, plan.Node], *, fuse: bool = True, prune: bool = True) -> Pipeline:
    """Compile a plan with several outputs; what they have in common is computed once.

    Args:
        nodes: The results by the name of the output; the job's own has an empty name and comes first.
        fuse: Fold a same-window aggregate into the stage before it where that gives the same answer.
        prune: Leave out the columns that nobody reads; late rows then lack them too.
    """
    graph = _Graph(plan.step_names(*nodes.values()))
    ways = [way for name, node in nodes.items() for way in graph.ways(name, node)]
    if fuse:
        ways = [_folded(way) for way in ways]
    pipeline = _assembled(ways)
    pipeline = _pruned(pipeline) if prune else pipeline
    return _relayed(pipeline) if fuse else pipeline


@dataclass(frozen=True)
class _Origin:
    """A source as it is read at one place of the plan."""

    source: plan.Source
    strategy: WatermarkStrategy = field(default_factory=ascending)
    idle_after: int | None = None
    untimed: int = 0
    marked: bool = False
    all_idle: AllIdle = "max"


@dataclass(frozen=True, eq=False)
class _Draft:
    """A stage to be."""

    node: plan.Stateful
    step: str
    operator: Operator
    inputs: tuple[tuple[_Tail, ...], ...]
    fires_again: bool
    level: int

    @property
    def updating(self) -> bool:
        return self.node.retracts and not isinstance(self.node, plan.Aggregated)

    @property
    def lateness(self) -> int:
        return self.operator.lateness if isinstance(self.operator, WindowOperator) else 0


@dataclass(frozen=True)
class _Tail:
    """Rows at some place of the plan: where they come from, and the stateless steps since then."""

    origin: _Origin | _Draft
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class _Way:
    """An output to be."""

    name: str
    part: str
    draft: _Draft
    steps: tuple[Step, ...]
    schema: pl.Schema
    fold: ChainedFold | None = None
    last_steps: tuple[Step, ...] = ()
    updating: bool = False


class _Graph:
    """Drafts the stages of a plan, each stateful step once."""

    def __init__(self, names: Mapping[plan.Stateful, str]) -> None:
        self._names = names
        self._drafts: dict[plan.Stateful, _Draft] = {}
        self._retracting: dict[_Draft, _Draft] = {}

    def ways(self, name: str, node: plan.Node) -> list[_Way]:
        """Draft what leads to an output."""
        if not node.complete:
            raise PlanError("a window without an aggregate", hint="Call aggregate(...) after window(...).")
        tails = self._tails(node, retracts=False)
        if not any(isinstance(tail.origin, _Draft) for tail in tails):
            raise PlanError(
                "a stream without a stateful step",
                hint="Add key_by and window(...).aggregate(...), or process(...); filtering alone needs no Headrace.",
            )
        ways: list[_Way] = []
        for tail in tails:
            if not isinstance(tail.origin, _Draft):
                raise PlanError(
                    f"a union of results with the rows of {tail.origin.source.text} as they are",
                    hint="Let a stateful step follow the union, or the rows pass one before it.",
                )
            before = sum(way.draft is tail.origin for way in ways)
            part = "" if len(tails) == 1 else tail.origin.step if not before else f"{tail.origin.step}.{before + 1}"
            ways.append(_Way(name, part, tail.origin, tail.steps, node.schema, updating=tail.origin.updating))
        return ways

    def _tails(self, node: plan.Node, *, retracts: bool) -> tuple[_Tail, ...]:
        """Tell where the rows that leave a node come from.

        Args:
            node: The node.
            retracts: Whether what follows needs to be told what a later result takes back.
        """
        if isinstance(node, plan.Stateful):
            draft = self._draft(node)
            return (_Tail(self._with_retractions(draft) if retracts else draft),)
        if isinstance(node, plan.Read):
            return (_Tail(_Origin(node.source)),)
        tails = tuple(tail for part in node.inputs for tail in self._tails(part, retracts=retracts))
        if isinstance(node, plan.Stateless):
            return tuple(_Tail(tail.origin, (*tail.steps, node.step)) for tail in tails)
        if isinstance(node, plan.Watermark):
            return tuple(_marked(tail, node) for tail in tails)
        return tails

    def _draft(self, node: plan.Stateful) -> _Draft:
        known = self._drafts.get(node)
        if known is not None:
            return known
        inputs = tuple(self._tails(part, retracts=node.takes_updates) for part in node.inputs)
        before = [tail.origin for tails in inputs for tail in tails if isinstance(tail.origin, _Draft)]
        for origin in (tail.origin for tails in inputs for tail in tails):
            if isinstance(origin, _Origin) and not origin.marked:
                raise PlanError(
                    f"{origin.source.text} has no watermark",
                    hint='Call .watermark(bounded("1s")) right after the source, with the disorder you expect.',
                )
        upstream = plan.Upstream(
            revised=any(draft.fires_again for draft in before) or any(part.updating for part in node.inputs),
            lateness=max((draft.lateness for draft in before), default=0),
        )
        draft = _Draft(
            node,
            self._names[node],
            node.build(upstream),
            inputs,
            node.fires_again(upstream),
            1 + max((draft.level for draft in before), default=-1),
        )
        self._drafts[node] = draft
        return draft

    def _with_retractions(self, draft: _Draft) -> _Draft:
        """Let windows that fire again take back what they said: only for what counts on it."""
        if not draft.fires_again:
            return draft
        if draft not in self._retracting:
            operator = retracting(draft.operator)
            changed = operator is not draft.operator
            self._retracting[draft] = (
                replace(draft, operator=operator, step=f"{draft.step}.retracting") if changed else draft
            )
        return self._retracting[draft]


def _marked(tail: _Tail, node: plan.Watermark) -> _Tail:
    if not isinstance(tail.origin, _Origin):
        raise PlanError("watermark after an aggregate", hint="Set it right after the source; later stages inherit it.")
    timed = _Origin(
        tail.origin.source, node.strategy, node.idle_after, len(tail.steps), marked=True, all_idle=node.all_idle
    )
    return _Tail(timed, tail.steps)


def _folded(way: _Way) -> _Way:
    """Fold a same-window aggregate into the stage before it.

    All key groups see the same watermark in the same batch, so they fire a window in the same batch: its second
    aggregate needs no state, only a merge of what the groups say. That holds where a window fires once; one that may
    fire again needs a stage.
    """
    following = way.draft.operator
    if not (isinstance(following, WindowOperator) and isinstance(following.assigner, SameWindow)):
        return way
    tails = way.draft.inputs[0]
    first = tails[0].origin
    if len(tails) != 1 or not isinstance(first, _Draft) or following.on_error != "raise":
        return way
    if not isinstance(first.operator, SlicedOperator):
        return way
    fold = ChainedFold(tuple(following.keys), tuple(following.aggregates.items()), following.step, following.null_keys)
    return replace(way, draft=first, steps=tails[0].steps, fold=fold, last_steps=way.steps)


def _assembled(ways: Iterable[_Way]) -> Pipeline:
    """Number the stages that the outputs need, and say what leads to and from each."""
    ways = list(ways)
    drafts: dict[_Draft, None] = {}
    for way in ways:
        _gather(way.draft, drafts)
    ordered = sorted(drafts, key=lambda draft: draft.level)
    numbers = {draft: number for number, draft in enumerate(ordered)}
    entries: list[Entry] = []
    edges: list[Edge] = []
    for draft, number in numbers.items():
        for at, tails in enumerate(draft.inputs):
            for tail in tails:
                if isinstance(tail.origin, _Draft):
                    edges.append(Edge(numbers[tail.origin], number, at, tail.steps))
                else:
                    timed = tail.origin
                    entries.append(
                        Entry(
                            timed.source,
                            timed.strategy,
                            timed.idle_after,
                            tail.steps,
                            untimed=timed.untimed,
                            stage=number,
                            input=at,
                            all_idle=timed.all_idle,
                        )
                    )
    outputs = [
        ResultEdge(
            way.name,
            numbers[way.draft],
            way.steps,
            way.schema,
            _result_keys(way.draft.node) if way.fold is None else way.fold.keys,
            way.fold,
            way.last_steps,
            way.part,
            way.updating,
            _is_unnumbered(way.draft.node, way.schema),
        )
        for way in ways
    ]
    return Pipeline(tuple(entries), tuple(map(_stage, ordered)), tuple(edges), tuple(outputs))


def _gather(draft: _Draft, drafts: dict[_Draft, None]) -> None:
    if draft not in drafts:
        for tails in draft.inputs:
            for tail in tails:
                if isinstance(tail.origin, _Draft):
                    _gather(tail.origin, drafts)
        drafts[draft] = None


def _stage(draft: _Draft) -> Stage:
    inputs = tuple(
        StageInput(
            part.keys,
            part.schema,
            null_keys=part.null_keys,
            everywhere=isinstance(part, plan.KeyBy) and part.everywhere,
        )
        for part in draft.node.inputs
    )
    return Stage(
        draft.node.described,
        draft.step,
        draft.operator,
        inputs,
        draft.level,
        draft.node.window_text,
        draft.fires_again and isinstance(draft.node, plan.Aggregated),
    )


def _result_keys(node: plan.Node) -> tuple[str, ...]:
    own = node.result_keys if isinstance(node, plan.Combined) else None
    return node.inputs[0].keys if own is None else own


def _is_unnumbered(node: plan.Node, results: pl.Schema) -> bool:
    """Tell whether results have lost the numbers that a join gave them."""
    return isinstance(node, plan.Combined) and PANE_INDEX in node.schema and PANE_INDEX not in results


def _pruned(pipeline: Pipeline) -> Pipeline:
    """Leave out the columns of sources that nobody reads."""
    stages = list(pipeline.stages)
    for number, stage in enumerate(stages):
        if len(stage.inputs) == 1 and pipeline.entries_of(number):
            needed = operator_columns(stage.operator, stage.schema)
            schema = pl.Schema({name: stage.schema[name] for name in needed})
            stages[number] = replace(stage, inputs=(replace(stage.inputs[0], schema=schema),))
    entries = tuple(
        replace(
            entry,
            columns=tuple(
                source_columns(
                    entry.steps,
                    list(stages[entry.stage].inputs[entry.input].schema),
                    entry.source.schema,
                    entry.strategy,
                )
            ),
        )
        for entry in pipeline.entries
    )
    return replace(pipeline, entries=entries, stages=tuple(stages))


def _relayed(pipeline: Pipeline) -> Pipeline:
    """Keep windows of what a stage lets go on in step with the watermark within that stage; see `stream.relay`."""
    for number in range(len(pipeline.stages)):
        before = _relayable(pipeline, number)
        if before is not None:
            return _relayed(_joined(pipeline, before, number))
    return pipeline


def _relayable(pipeline: Pipeline, number: int) -> Edge | None:
    """Find the edge over which a stage can be taken into the one before it."""
    second, edges, outputs = pipeline.stages[number], pipeline.edges_to(number), pipeline.outputs_of(number)
    if not isinstance(second.operator, SlicedOperator) or len(edges) != 1 or pipeline.entries_of(number):
        return None
    if pipeline.edges_from(number) or not outputs or any(output.fold is not None for output in outputs):
        return None
    edge = edges[0]
    first = pipeline.stages[edge.source]
    alone = len(pipeline.edges_from(edge.source)) == 1 and not pipeline.outputs_of(edge.source)
    return edge if alone and getattr(first.operator, "in_step", False) else None


def _joined(pipeline: Pipeline, edge: Edge, number: int) -> Pipeline:
    first, second = pipeline.stages[edge.source], pipeline.stages[number]
    windows = second.operator
    assert isinstance(windows, SlicedOperator)  # noqa: S101 - see `_relayable`
    unread = UnreadWindows(windows.keys, windows.assigner, windows.aggregates, windows.step)
    stage = replace(
        first,
        name=f"{first.name}, {second.name}",
        step=f"{first.step}+{second.step}",
        operator=RelayOperator(first.operator, edge.steps, unread, second.schema, second.inputs[0].null_keys),
        window_text=second.window_text,
    )
    fold = MergedFold(windows.keys, windows.aggregates, windows.step)

    def moved(place: int) -> int:
        return place - (place > number)

    stages = [stage if place == edge.source else each for place, each in enumerate(pipeline.stages) if place != number]
    return Pipeline(
        tuple(replace(entry, stage=moved(entry.stage)) for entry in pipeline.entries),
        tuple(stages),
        tuple(
            replace(each, source=moved(each.source), target=moved(each.target))
            for each in pipeline.edges
            if each is not edge
        ),
        tuple(
            replace(output, stage=edge.source, steps=(), fold=fold, last_steps=output.steps, keys=fold.keys)
            if output.stage == number
            else replace(output, stage=moved(output.stage))
            for output in pipeline.outputs
        ),
    )
