"""`headrace state`: what the steps of a job keep, by table, by size and by key."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.job_state import key_values, read_job_state
from headrace.cli.jobs import complete_job, pick
from headrace.cli.options import Globals, Json, UsageError

if TYPE_CHECKING:
    import polars as pl

    from headrace.savepoints import JobState


def state(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="JOB", autocompletion=complete_job, show_default=False, help="The job.")
    ],
    step: Annotated[
        str | None, typer.Option("--step", metavar="STEP", help="Only this step.", show_default=False)
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key", metavar="KEY", help="The rows of a key; several key columns: VALUE,VALUE.", show_default=False
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option("--sql", metavar="QUERY", help="Ask in SQL over the tables of the state.", show_default=False),
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option("--savepoint", metavar="NAME", help="Look into a savepoint instead.", show_default=False),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="The directory of the checkpoint.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most so many rows of a table, and keys.")] = 20,
    timeout: Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the query.")] = (
        600.0
    ),
    json: Json = False,
) -> None:
    """Look into the state of a job, while it runs or when it is stopped; nothing is changed."""
    from headrace.savepoints import JobState, snapshot_of

    if key is not None and sql is not None:
        raise UsageError("--key and --sql exclude each other", hint="Ask for the key in the WHERE of the query.")
    settings = Globals.of(ctx).settings()
    job = pick([name], settings)[0]
    found, where = read_job_state(settings, job.name, checkpoint=checkpoint, savepoint=savepoint, timeout=timeout)
    view = JobState(job.pipeline, snapshot_of(found.states[job.name]))
    view = view if step is None else view.only(step)
    if sql is not None:
        answer = view.sql(sql)
        if json:
            terminal.document(answer.to_dicts())
        else:
            _table(answer.head(limit), of=answer.height)
    elif key is not None:
        _show_key(view, key, limit, json=json)
    elif json:
        terminal.document({"job": job.name, "where": where, "batches": found.manifest.batches, **view.to_dict()})
    else:
        terminal.line(f"{job.name} in {where}, after {found.manifest.batches:,} batches")
        _overview(view, limit)


def _overview(view: JobState, limit: int) -> None:
    import polars as pl

    sizes = view.sizes()
    by_step = sizes.group_by("step", maintain_order=True).agg(
        pl.len().alias("key groups"),
        pl.col("bytes", "segments", "rows").sum(),
        pl.col("bytes").max().alias("largest group"),
        pl.col("watermark").min(),
    )
    _table(by_step)
    tables = view.contents()
    if tables.is_empty():
        terminal.line("No step keeps anything now.")
        return
    terminal.line()
    _table(tables.select("step", "table", "rows", pl.col("name").alias("in --sql"), "columns"))
    keys = view.largest_keys(limit)
    if keys.height:
        terminal.line()
        terminal.line("The largest keys (bytes are an estimate):")
        _table(keys.head(limit))


def _show_key(view: JobState, key: str, limit: int, *, json: bool) -> None:
    found = view.of_key(*key_values(key))
    if json:
        terminal.document(
            {step: {name: rows.to_dicts() for name, rows in tables.items()} for step, tables in found.items()}
        )
        return
    if not found:
        terminal.note(f"No step keeps anything of key {key}. `headrace why` tells what became of its events.")
    for step, tables in found.items():
        for name, rows in tables.items():
            terminal.line(f"{step}, {name}:")
            _table(rows.head(limit), of=rows.height)


def _table(rows: pl.DataFrame, *, of: int | None = None) -> None:
    terminal.rows(rows.columns, [tuple(map(_cell, row)) for row in rows.rows()])
    if of is not None and of > rows.height:
        terminal.note(f"{rows.height:,} of {of:,} rows; --limit shows more.")


def _cell(value: object) -> str:
    from datetime import datetime

    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds")
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value:,}"
