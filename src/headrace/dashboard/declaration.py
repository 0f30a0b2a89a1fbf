"""What a job looks like, in the words of the protocol: made of the job's own description."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import polars as pl

from headrace.stream import Display
from headrace.stream.display import FRAME, Kind
from headrace.time.duration import MILLISECOND, SECOND
from headrace.windows.assigners import Aligned

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from headrace.formats import Format
    from headrace.stream import Job

ColumnType = Literal["number", "text", "time", "duration", "boolean", "cell", "list"]

#: How long a value stays after its window, unless the job says otherwise or its windows are farther apart.
DEFAULT_TIME_TO_LIVE = 5 * SECOND

_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the results, as a browser sees it."""

    name: str
    type: ColumnType


@dataclass(frozen=True)
class Declaration:
    """What the page is told about a job, or about a further output of one.

    Args:
        job: Its name; "<job>.<output>" for a further output.
        run: The job that computes it.
        title: Its name for people.
        description: What it answers.
        topic: Where its results are.
        windows: Its windows in words.
        step: Microseconds between the ends of two windows, if they are aligned.
        keys: The columns that its results are keyed by.
        display: How they are shown.
        columns: The columns that entries carry.
        schema: The types of those columns, and of the keys.
        time_to_live: Microseconds for which a value is shown after its window, or after its event time.
        format: How its results are written; None: in the envelope.
    """

    job: str
    run: str
    title: str
    description: str
    topic: str
    windows: str
    step: int | None
    keys: tuple[str, ...]
    display: Display
    columns: tuple[Column, ...]
    schema: pl.Schema
    time_to_live: int
    format: Format | None = None

    @property
    def places(self) -> tuple[str, ...]:
        """The columns that say where a result is; they travel beside the values, not among them."""
        display = self.display
        return tuple(
            name for name in (display.cell, display.target, display.latitude, display.longitude) if name is not None
        )

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns that an entry's values hold."""
        places = self.places
        return tuple(column for column in self.columns if column.name not in places)

    @property
    def number_columns(self) -> tuple[str, ...]:
        """The columns whose history is kept: what can be shown, or all numbers of a table."""
        shown = tuple(dict.fromkeys(value.column for view in self.display.all_views for value in view.values))
        return shown or tuple(column.name for column in self.value_columns if column.type == "number")

    @property
    def keyed_by_cell(self) -> bool:
        """Whether a result's key is its cell and nothing else."""
        return self.display.cell is not None and self.keys == (self.display.cell,) and not self.display.each

    def to_dict(self) -> dict[str, Any]:
        """The declaration as the protocol has it."""
        display = self.display
        return {
            "job": self.job,
            "run": self.run,
            "title": self.title,
            "description": self.description,
            "topic": self.topic,
            "windows": self.windows,
            "step": None if self.step is None else self.step // MILLISECOND,
            "kind": display.kind,
            "keys": list(self.keys),
            "cell": display.cell,
            "target": display.target,
            "latitude": display.latitude,
            "longitude": display.longitude,
            "values": _values(display),
            "labels": list(display.labels),
            "columns": [{"name": column.name, "type": column.type} for column in self.columns],
            "scale": display.scale,
            "domain": None if display.domain is None else list(display.domain),
            "legend": display.legend,
            "time_to_live": self.time_to_live // MILLISECOND,
            "each": display.each,
            "views": [_view(view) for view in display.all_views],
        }


def _values(display: Display) -> list[dict[str, str]]:
    return [{"column": value.column, "label": value.label, "unit": value.unit} for value in display.values]


def _view(display: Display) -> dict[str, Any]:
    return {
        "kind": display.kind,
        "values": _values(display),
        "labels": list(display.labels),
        "top": display.shown_keys,
        "title": display.title,
    }


def declare(job: Job) -> Declaration:
    """Say what a job looks like.

    >>> from headrace_transit.jobs import all_jobs
    >>> job = all_jobs()["vehicle-distribution"]
    >>> shown = declare(job)
    >>> shown.title, shown.display.kind, shown.step, shown.time_to_live
    ('Vehicles', 'cells', 5000000, 5000000)
    """
    return _declaration(
        job,
        job.name,
        job.stream.schema,
        job.picture,
        job.result_topic,
        job.pipeline.result_keys,
        job.description,
        job.format,
    )


def declare_all(jobs: Iterable[Job]) -> dict[str, Declaration]:
    """Say what several jobs and their further outputs look like, by name, in the order of the layers.

    What is on the map comes first, and of the same kind what has the shortest windows: the freshest picture.
    """
    told = [(each, _size(job)) for job in jobs for each in (declare(job), *_outputs(job))]
    told.sort(key=lambda pair: (_KINDS.index(pair[0].display.kind), pair[1], pair[0].job))
    return {each.job: each for each, _ in told}


def _outputs(job: Job) -> Iterator[Declaration]:
    for name, output in job.outputs.items():
        keys = job.pipeline.results_of(name)[0].keys
        display = output.display or Display.fitting(output.stream.schema, keys=keys)
        yield _declaration(
            job,
            job.output_name(name),
            output.stream.schema,
            display,
            job.output_topic(name),
            keys,
            output.description or job.description,
            output.format,
        )


def _declaration(
    job: Job,
    name: str,
    schema: pl.Schema,
    display: Display,
    topic: str,
    keys: tuple[str, ...],
    description: str,
    format: Format | None,  # noqa: A002
) -> Declaration:
    step = _step(job)
    cells = {column for column in (display.cell, display.target) if column is not None}
    lives = display.time_to_live
    if lives is None:
        lives = max(DEFAULT_TIME_TO_LIVE, step or 0)
    return Declaration(
        job=name,
        run=job.name,
        title=display.title or name.replace("-", " ").replace(".", ": ").capitalize(),
        description=description,
        topic=topic,
        windows=job.windows,
        step=step,
        keys=keys,
        display=display,
        columns=tuple(
            Column(told, column_type(told, kind, cells)) for told, kind in schema.items() if told not in FRAME
        ),
        schema=pl.Schema({told: kind for told, kind in schema.items() if told not in FRAME}),
        time_to_live=lives,
        format=format,
    )


def _step(job: Job) -> int | None:
    """Microseconds between two windows."""
    windows = _windows(job)
    return None if windows is None else windows.every


def _size(job: Job) -> float:
    windows = _windows(job)
    return float("inf") if windows is None else windows.size


def _windows(job: Job) -> Aligned | None:
    """The windows of the results; a stage in the same windows as the one before it has none of its own."""
    for stage in reversed(job.pipeline.stages):
        assigner = getattr(stage.operator, "assigner", None)
        if isinstance(assigner, Aligned):
            return assigner
    return None


def column_type(name: str, kind: pl.DataType, cells: Collection[str] = ()) -> ColumnType:
    """The type of a column as a browser sees it.

    Args:
        name: The column.
        kind: Its type.
        cells: The columns that are known to hold H3 cells.
    """
    if name in cells or (kind == pl.UInt64 and (name == "cell" or name.endswith("_cell"))):
        return "cell"
    if kind.is_numeric():
        return "number"
    if kind == pl.Boolean:
        return "boolean"
    if isinstance(kind, pl.Datetime):
        return "time"
    if isinstance(kind, pl.Duration):
        return "duration"
    return "list" if kind.is_nested() else "text"
