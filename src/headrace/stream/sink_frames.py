"""What a job gave, in the form that sinks take, whichever runner it comes from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import ORIGINAL
from headrace.events.letters import SCHEMA
from headrace.formats.origin import origin
from headrace.sinks.contract import BatchFrames
from headrace.sinks.idempotency import KEY_COLUMN, idempotency_keys

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.stream.job import Job
    from headrace.stream.stages import ResultEdge


def sink_frames(
    job: Job,
    results: Iterable[tuple[ResultEdge, pl.DataFrame]],
    *,
    late: Iterable[pl.DataFrame] = (),
    dismissed: Iterable[pl.DataFrame] = (),
    dead: Iterable[pl.DataFrame] = (),
    batch: str = "",
) -> BatchFrames:
    """Put together what a job's sinks get.

    Args:
        job: The job.
        results: Result rows, by the way out that they took.
        late: Late rows, as they left a stage.
        dismissed: Rows that the job could not use, with `reason`.
        dead: Dead letters of records that could not be read; those of topics that the job does not read are left out.
        batch: Names the batch, the same when it is repeated.
    """
    letters = [dismissed_letters(job.name, frame) for frame in dismissed if frame.height]
    letters += [each for frame in dead if (each := _of_topics(frame, job.sources)).height]
    late_rows = [_as_read(frame) for frame in late if frame.height]
    tables: dict[str, list[pl.DataFrame]] = {}
    for way, frame in results:
        if frame.height:
            tables.setdefault(_table(job, way), []).append(keyed_results(job, way, frame, batch=batch))
    return BatchFrames(
        job.name,
        {table: pl.concat(parts) for table, parts in tables.items()},
        late=pl.concat(late_rows, how="diagonal_relaxed") if late_rows else None,
        dead_letters=pl.concat(letters, how="diagonal_relaxed").select(list(SCHEMA)) if letters else None,
    )


def keyed_results(job: Job, way: ResultEdge, frame: pl.DataFrame, *, batch: str = "") -> pl.DataFrame:
    """Give each result its idempotency key, unless they have them.

    Args:
        job: The job.
        way: The way out that the results took.
        frame: The results of one batch.
        batch: Names the batch, the same when it is repeated.
    """
    if KEY_COLUMN in frame.columns:
        return frame
    table = _table(job, way)
    # Results of several steps in one output may be alike in key and window.
    name = f"{table}#{way.part}" if way.part else table
    told_by_batch = way.updating or way.unnumbered
    return frame.with_columns(idempotency_keys(frame, way.keys, name, batch=batch if told_by_batch else ""))


def _table(job: Job, way: ResultEdge) -> str:
    return job.output_name(way.name) if way.name else job.name


def dismissed_letters(job: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Make dead letters of rows that a job could not use: as they were read, or their columns as JSON.

    Args:
        job: The name of the job.
        frame: The rows, with `reason`.
    """
    topics: list[str | None] = [None] * frame.height
    if ORIGINAL in frame.columns:
        read = [origin(stored) for stored in frame.get_column(ORIGINAL).to_list()]
        rows, topics = [each.value for each in read], [each.topic for each in read]
    else:
        rows = [json.dumps(row, default=str).encode() for row in frame.drop("reason").to_dicts()]
    return pl.DataFrame(
        {
            "reason": frame.get_column("reason"),
            "text": [f"dismissed by job {job}"] * frame.height,
            "value": rows,
            "value_size": pl.Series([len(row) for row in rows], dtype=pl.UInt64),
            "key_size": pl.Series([0] * frame.height, dtype=pl.UInt64),
            "topic": pl.Series(topics, dtype=pl.String),
            "job": [job] * frame.height,
        }
    )


def _of_topics(letters: pl.DataFrame, topics: tuple[str, ...]) -> pl.DataFrame:
    """Take the letters of some topics; those that name no topic are everybody's."""
    return letters.filter(pl.col("topic").is_null() | pl.col("topic").is_in(list(topics)))


def _as_read(frame: pl.DataFrame) -> pl.DataFrame:
    """Show late rows with the records that they were read from."""
    if ORIGINAL not in frame.columns:
        return frame
    read = [origin(stored) for stored in frame.get_column(ORIGINAL).to_list()]
    return frame.drop(ORIGINAL).with_columns(
        pl.Series("record_value", [each.value or None for each in read], pl.Binary),
        pl.Series("record_topic", [each.topic for each in read], pl.String),
        pl.Series("record_format", [each.format for each in read], pl.String),
    )
