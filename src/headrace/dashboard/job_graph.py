"""A job as a graph of steps, from its sources to its results, made of its plan.

Each box is something that a person wrote: a source, a stateless step, a window with its aggregate, a pattern, an
output. `key_by` and the watermark of a source are told in the box that they belong to. An edge knows how its rows can
be seen: in a topic, by running stateless steps on rows of a topic, or not at all.

`job_graph` is the only place of the dashboard that knows how plans are built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from headrace.stream import plan
from headrace.stream.steps import Drop, Filter, Select, WithColumns
from headrace.time.duration import text
from headrace.windows.assigners import SameWindow

if TYPE_CHECKING:
    from headrace.stream import Job
    from headrace.stream.steps import Step

StepKind = Literal["source", "stateless", "stateful", "results", "late"]

#: Steps that are expressions on columns: the dashboard can run them on a few rows as Spark does. What a job does to a
#: whole batch (`map_batches`, `enrich`) may ask a service or take long, and is not run.
_EXPRESSIONS = (WithColumns, Select, Drop, Filter)

_INSIDE = (
    "Rows between two steps of a running query stay inside Spark, so they cannot be shown. "
    "Results, late rows and the rows before the first stateful step can."
)


@dataclass(frozen=True)
class SourceRows:
    """Rows of a topic, after some stateless steps.

    Args:
        source: The topic and its format.
        steps: The steps.
    """

    source: plan.TopicSource
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True)
class ResultRows:
    """Rows in a result topic.

    Args:
        name: The job, or `<job>.<output>`.
        topic: The topic.
    """

    name: str
    topic: str


@dataclass(frozen=True)
class LateRows:
    """Rows in the topic of late events."""

    topic: str


@dataclass(frozen=True)
class NoRows:
    """Rows that cannot be shown."""

    reason: str


EdgeRows = SourceRows | ResultRows | LateRows | NoRows


@dataclass(frozen=True)
class StepBox:
    """A step.

    Args:
        id: Its name in the graph.
        kind: What it is.
        title: What it does, in a line.
        detail: Further lines: keys, windows, watermark.
        topic: What it reads or writes.
        output: The name that results have on the dashboard, if it is their topic.
        counted: The name under which a filter counts what it drops.
    """

    id: str
    kind: StepKind
    title: str
    detail: tuple[str, ...] = ()
    topic: str | None = None
    output: str | None = None
    counted: str | None = None


@dataclass(frozen=True)
class EdgeLine:
    """The rows that go from one step to another."""

    source: str
    target: str
    rows: EdgeRows

    @property
    def id(self) -> str:
        """Its name in the graph."""
        return f"{self.source}.{self.target}"


@dataclass(frozen=True)
class JobGraph:
    """The steps of a job and what goes between them.

    Args:
        job: Its name.
        steps: From the sources to the outputs.
        edges: In the same order.
    """

    job: str
    steps: tuple[StepBox, ...]
    edges: tuple[EdgeLine, ...]

    def edge(self, name: str) -> EdgeLine | None:
        """The edge of that name."""
        return next((edge for edge in self.edges if edge.id == name), None)


def job_graph(job: Job) -> JobGraph:
    """Make the graph of a job.

    >>> import polars as pl
    >>> from headrace import Job, Stream, bounded, tumbling
    >>> from headrace.windows import count
    >>> scans = Stream.topic("scans", schema={"depot": pl.String}).watermark(bounded("1s"))
    >>> graph = job_graph(Job("busy", scans.key_by("depot").window(tumbling("10s")).aggregate(scans=count())))
    >>> graph.steps[0].kind, graph.steps[-1].kind
    ('source', 'late')
    """
    draft = _Draft(job)
    ends = draft.visit(job.stream.node)
    draft.output(ends, "results", job.name, job.result_topic)
    for name, output in job.outputs.items():
        draft.output(draft.visit(output.stream.node), f"results-{name}", job.output_name(name), job.output_topic(name))
    draft.late()
    return JobGraph(job.name, tuple(draft.boxes), tuple(draft.edges))


@dataclass(frozen=True)
class _End:
    """Where a part of a plan ends: the last box, and how the rows behind it can be seen."""

    box: str
    rows: EdgeRows


@dataclass
class _Draft:
    job: Job
    boxes: list[StepBox] = field(default_factory=list)
    edges: list[EdgeLine] = field(default_factory=list)
    #: Outputs of a job share nodes: each is drawn once.
    _known: dict[int, tuple[_End, ...]] = field(default_factory=dict)
    _keys: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def visit(self, node: plan.Node) -> tuple[_End, ...]:
        if id(node) not in self._known:
            self._known[id(node)] = self._draw(node)
        return self._known[id(node)]

    def _draw(self, node: plan.Node) -> tuple[_End, ...]:
        if isinstance(node, plan.Read):
            return (self._source(node.source),)
        if isinstance(node, plan.Union):
            return tuple(end for part in node.inputs for end in self.visit(part))
        if isinstance(node, plan.KeyBy | plan.Window):
            return self.visit(node.input)
        if isinstance(node, plan.Watermark):
            return self._watermark(node)
        if isinstance(node, plan.Stateless):
            ends = self.visit(node.input)
            counted = node.step.counted if isinstance(node.step, Filter) else ""
            box = self._box("stateless", readable(node.step.text), counted=counted or None)
            self._connect(ends, box)
            return (_End(box.id, _after(ends, node.step)),)
        ends = tuple(end for part in node.inputs for end in self.visit(part))
        box = self._box("stateful", node.text, _grouping(node))
        self._connect(ends, box)
        return (_End(box.id, NoRows(_INSIDE)),)

    def _source(self, source: plan.Source) -> _End:
        if isinstance(source, plan.TopicSource):
            box = self._box("source", source.topic, (f"read as {source.format.text}",), topic=source.topic)
            return _End(box.id, SourceRows(source))
        return _End(self._box("source", source.text).id, NoRows("These rows are fed by a program, not by a topic."))

    def _watermark(self, node: plan.Watermark) -> tuple[_End, ...]:
        ends = self.visit(node.input)
        line = node.text
        for end in ends:
            at = next(place for place, box in enumerate(self.boxes) if box.id == end.box)
            box = self.boxes[at]
            self.boxes[at] = StepBox(
                box.id, box.kind, box.title, (*box.detail, line), box.topic, box.output, box.counted
            )
        return ends

    def output(self, ends: tuple[_End, ...], name: str, job: str, topic: str) -> None:
        box = StepBox(name, "results", topic, (), topic, job)
        self.boxes.append(box)
        for end in ends:
            self.edges.append(EdgeLine(end.box, box.id, ResultRows(job, topic)))

    def late(self) -> None:
        """Rows may be late for any stateful step but one on the windows of the step before."""
        topic = self.job.late_topic
        judges = [box.id for box in self.boxes if box.kind == "stateful" and "same window" not in box.detail]
        self.boxes.append(StepBox("late", "late", topic, (), topic))
        self.edges += [EdgeLine(box, "late", LateRows(topic)) for box in judges]

    def _box(
        self,
        kind: StepKind,
        title: str,
        detail: tuple[str, ...] = (),
        *,
        topic: str | None = None,
        counted: str | None = None,
    ) -> StepBox:
        number = sum(box.kind == kind for box in self.boxes)
        box = StepBox(f"{kind}-{number}", kind, title, detail, topic, None, counted)
        self.boxes.append(box)
        return box

    def _connect(self, ends: tuple[_End, ...], box: StepBox) -> None:
        self.edges += [EdgeLine(end.box, box.id, end.rows) for end in ends]


def readable(expression: str) -> str:
    """Polars' text of an expression with fewer marks.

    >>> readable('filter [([(col("weight")) > (dyn float: 1.5)]) & (col("depot").is_not_null())]')
    'filter [[weight > 1.5] & depot.is_not_null()]'
    """
    plain = re.sub(r'col\("([^"()]+)"\)', r"\1", re.sub(r"\bdyn (?:int|float): ", "", expression))
    before = ""
    while plain != before:
        # A bracket around one value or one group says nothing; one behind a name is a call.
        before, plain = plain, re.sub(r"(?<![\w)])\(([\w.]+(?:\(\))?|\[[^()\[\]]*\]|\"[^\"]*\")\)", r"\1", plain)
    return plain


def _after(ends: tuple[_End, ...], step: Step) -> EdgeRows:
    """How the rows behind a stateless step can be seen."""
    if len(ends) != 1:
        return NoRows("The step takes rows of several inputs; the rows of each are on the edges before it.")
    rows = ends[0].rows
    if not isinstance(rows, SourceRows):
        return rows
    if not isinstance(step, _EXPRESSIONS):
        return NoRows("The step runs a function of the job, which the dashboard does not call.")
    return SourceRows(rows.source, (*rows.steps, step))


def _grouping(node: plan.Node) -> tuple[str, ...]:
    """The keys and windows of a stateful step."""
    lines = [f"by {', '.join(keys)}" for keys in dict.fromkeys(part.keys for part in node.inputs if part.keys)]
    before = node.inputs[0]
    if isinstance(before, plan.Window):
        if isinstance(before.assigner, SameWindow):
            lines.append("same window")
        else:
            lines.append(f"window {before.assigner.describe()}")
        if before.trigger is not None:
            lines.append(f"trigger {before.trigger.describe()}")
        if before.allowed_lateness:
            lines.append(f"allowed lateness {text(before.allowed_lateness)}")
    return tuple(lines)
