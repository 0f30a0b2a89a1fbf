"""`preview`: what a stream makes of some rows or records, to look at in a notebook or a terminal.

They arrive in the order in which they are given, a few at a time, so that the watermark moves as it would and rows
that come too late are seen as such. At the end every open window fires.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any, TypeAlias

import polars as pl

from headrace.engine.frames import stacked
from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import PlanError
from headrace.formats.times import EventTime, kafka_time
from headrace.inprocess.runner import Runner
from headrace.stream import Job, Stream
from headrace.stream.doubts import doubts
from headrace.stream.plan import TopicSource

#: Input as a caller has it: a frame, rows as mappings, or the values of the records of a topic.
Given: TypeAlias = pl.DataFrame | Sequence[Mapping[str, Any]] | Sequence[bytes] | Sequence[str]

_INSTANT = pl.Datetime("us", "UTC")
#: More steps than this take longer than one wants to wait.
_STEPS = 200


@dataclass(frozen=True, repr=False)
class Preview:
    """What came out.

    Args:
        results: Result rows, in the order in which they came.
        late: Rows that came after all their windows had expired.
        dismissed: Rows that could not be used, with `reason`.
        outputs: Result rows of a job's further outputs, by name.
        dead: Records that could not be read, with `reason`, `text` and `value`.
        notes: What may not be as it was meant: times without a unit, event times in 1970.
    """

    results: pl.DataFrame
    late: pl.DataFrame
    dismissed: pl.DataFrame
    outputs: Mapping[str, pl.DataFrame]
    dead: pl.DataFrame
    notes: tuple[str, ...] = ()

    def _parts(self) -> dict[str, pl.DataFrame]:
        """Give what is worth showing: the results always, the others where there are any."""
        named = {"late rows": self.late, "dismissed rows": self.dismissed, "dead letters": self.dead}
        more = {f"results of {name}": frame for name, frame in self.outputs.items()}
        return {"results": self.results, **more, **{name: frame for name, frame in named.items() if frame.height}}

    def __repr__(self) -> str:
        shown = (f"{_title(name, frame)}\n{frame}" for name, frame in self._parts().items())
        return "\n".join([*shown, *(f"Note: {note}" for note in self.notes)])

    def _repr_html_(self) -> str:
        shown = (f"<h4>{_title(name, frame)}</h4>{frame._repr_html_()}" for name, frame in self._parts().items())
        return "".join([*shown, *(f"<p>Note: {escape(note)}</p>" for note in self.notes)])


def _title(name: str, frame: pl.DataFrame) -> str:
    if frame.height == 1:
        for many, one in (("results", "result"), ("rows", "row"), ("letters", "letter")):
            name = name.replace(many, one)
    return f"{frame.height:,} {name}"


def preview(stream: Stream | Job, rows: Given | Mapping[str, Given], *, batch: int | None = None) -> Preview:
    """Run a stream or a job in this process over some rows, and show results and late rows.

    Args:
        stream: What to run.
        rows: A frame, or rows such as `{"event_time": "2026-01-01T12:00:00Z", "depot": "north"}`, where columns that
            are not given are null; for a topic also the values of its records, as bytes or text, which its format
            reads; where that needs Kafka's timestamp, they have the time of this call. By the name of the source where
            there are several.
        batch: How many rows arrive at once; one by one, or in 200 parts if there are more.

    Raises:
        PlanError: The rows do not fit the stream.

    >>> from headrace import Stream, bounded, tumbling
    >>> from headrace.windows import count
    >>> stream = (
    ...     Stream.rows("scans", {"depot": pl.String}).watermark(bounded("0s"))
    ...     .key_by("depot").window(tumbling("10s")).aggregate(scans=count())
    ... )
    >>> at = "2026-01-01T12:00:{:02}Z".format
    >>> shown = preview(stream, [{"event_time": at(second), "depot": "north"} for second in (1, 12, 3)])
    >>> shown.results["scans"].to_list(), shown.late["event_time"].dt.second().to_list()
    ([1, 1], [3])
    """
    if not isinstance(stream, Stream | Job):
        raise PlanError(f"preview of a {type(stream).__name__}", hint="Give a stream or a job: preview(stream, rows).")
    runner = Runner(stream)
    schemas = {entry.source.name: entry.source.schema for entry in runner.pipeline.entries}
    given = _by_source(rows, list(schemas))
    fed = {name: _fed(part, schemas[name], name) for name, part in given.items()}
    size = max((len(part) for part in fed.values()), default=0)
    chunk = max(1, -(-size // _STEPS)) if batch is None else batch
    if chunk < 1:
        raise PlanError(f"batch is {batch}", hint="Give 1 or more.")
    now = time.time_ns() // 1_000 if _needs_kafka_time(runner, fed) else None
    steps = [
        runner.step({name: part[start : start + chunk] for name, part in fed.items()}, now=now)
        for start in range(0, size, chunk)
    ]
    steps.append(runner.finish())
    results = pl.concat([step.results for step in steps])
    return Preview(
        results=results,
        notes=(*doubts(stream.stream if isinstance(stream, Job) else stream), *_wrong_unit(results)),
        late=_joined(step.late for step in steps),
        dismissed=_joined(step.dismissed for step in steps),
        outputs={name: pl.concat([step.outputs[name] for step in steps]) for name in steps[-1].outputs},
        dead=_joined(step.dead for step in steps),
    )


def _wrong_unit(results: pl.DataFrame) -> list[str]:
    """Say that event times are at the start of 1970, as they are when seconds are read as milliseconds."""
    times = results.get_column(EVENT_TIME) if EVENT_TIME in results.columns else pl.Series(dtype=_INSTANT)
    newest = times.max()
    if not isinstance(newest, datetime) or newest >= datetime(1980, 1, 1, tzinfo=UTC):
        return []
    return [f"event time is {newest:%Y-%m-%d}; are times counted in another unit than time_format says?"]


def _needs_kafka_time(runner: Runner, fed: Mapping[str, pl.DataFrame | list[bytes]]) -> bool:
    """Tell whether some rows are values of records whose format takes Kafka's timestamp for the time of the event."""
    for entry in runner.pipeline.entries:
        if isinstance(fed.get(entry.source.name), list) and isinstance(entry.source, TopicSource):
            form = entry.source.format
            at = getattr(form, "time", kafka_time())
            if "timestamp" in form.reads and isinstance(at, EventTime) and at.place == "timestamp":
                return True
    return False


def _joined(parts: Any) -> pl.DataFrame:
    found = stacked([part for part in parts if part is not None])
    return pl.DataFrame() if found is None else found


def _by_source(rows: Given | Mapping[str, Given], names: list[str]) -> dict[str, Given]:
    if isinstance(rows, Mapping):
        unknown = [name for name in rows if name not in names]
        if unknown:
            raise PlanError(f"there is no source {unknown[0]!r}", hint=f"The sources are: {', '.join(names)}.")
        return dict(rows)
    if len(set(names)) > 1:
        raise PlanError(
            f"the stream has the sources {', '.join(names)}, and it is not said whose rows these are",
            hint=f"Give them by name: {{{names[0]!r}: rows}}.",
        )
    return {names[0]: rows}


def _fed(rows: Given, schema: pl.Schema, name: str) -> pl.DataFrame | list[bytes]:
    """Give rows as a frame, or the values of records as they are."""
    if isinstance(rows, pl.DataFrame):
        return _frame(rows, schema, name)
    values = [row.encode() if isinstance(row, str) else row for row in rows if isinstance(row, bytes | str)]
    if len(values) == len(rows):
        return values
    return _frame(pl.DataFrame(list(rows), infer_schema_length=None), schema, name)


def _frame(frame: pl.DataFrame, schema: pl.Schema, name: str) -> pl.DataFrame:
    if EVENT_TIME not in frame.columns:
        raise PlanError(
            f"the rows for {name!r} lack {EVENT_TIME}",
            hint=f"They need it, and may have: {', '.join(schema)}. Records as they are on a topic are bytes or text: "
            "[b'{...}'].",
        )
    unknown = [column for column in frame.columns if column not in schema]
    if unknown:
        raise PlanError(
            f"the rows for {name!r} have {', '.join(unknown)}, which the stream does not",
            hint=f"Its columns are: {', '.join(schema)}.",
        )
    frame = frame.with_columns(_instants(frame[EVENT_TIME], name))
    if INGESTION_TIME in schema and INGESTION_TIME not in frame.columns:
        frame = frame.with_columns(pl.col(EVENT_TIME).alias(INGESTION_TIME))
    lacking = [pl.lit(None, kind).alias(column) for column, kind in schema.items() if column not in frame.columns]
    try:
        return frame.with_columns(lacking).select([pl.col(column).cast(kind) for column, kind in schema.items()])
    except pl.exceptions.PolarsError as problem:
        told = str(problem).split("\n", 1)[0]
        raise PlanError(
            f"the rows for {name!r} do not fit the stream: {told}", hint=f"Its columns: {schema}."
        ) from problem


def _instants(times: pl.Series, name: str) -> pl.Series:
    """Understand event times: datetimes, ISO 8601, or microseconds since the epoch."""
    try:
        if times.dtype == pl.String:
            return times.str.to_datetime(time_unit="us", time_zone="UTC", strict=True)
        if isinstance(times.dtype, pl.Datetime) and times.dtype.time_zone is None:
            return times.dt.replace_time_zone("UTC").cast(_INSTANT)
        return times.cast(_INSTANT)
    except pl.exceptions.PolarsError as problem:
        raise PlanError(
            f"{EVENT_TIME} of the rows for {name!r} is no time: {str(problem).splitlines()[0]}",
            hint='Write "2026-01-01T12:00:00Z", or give datetimes.',
        ) from problem
