"""Saved state outside of a running query: read out of Spark's checkpoint, and kept in files.

State is by step and key group, as segments by name: in the form in which operators wrote it, without Spark's numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import StateError
from headrace.savepoints.durable_files import make_directory, sync_file
from headrace.spark.stages.partitioning import group_expression
from headrace.spark.state.compression import from_store

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.savepoints.state import State
    from headrace.spark.checkpoint.identity import Identity

_SCHEMA = pl.Schema({"step": pl.String, "group": pl.Int32, "name": pl.String, "value": pl.Binary})


def saved_state(
    spark: SparkSession,
    checkpoint: Path,
    identity: Identity,
    jobs: Iterable[str] | None = None,
    *,
    batch: int | None = None,
) -> dict[str, State]:
    """Read state out of a query's checkpoint, as it was after the last batch that is done.

    Args:
        spark: A session.
        checkpoint: The query's checkpoint.
        identity: What it holds.
        jobs: Whose state; all if not given.
        batch: As it was after this batch; the query may then run, and at most one core is used.
    """
    _ = spark.streams.active  # Spark's reader of state needs what comes up with the first query
    wanted = {*(identity.jobs if jobs is None else jobs)}
    steps = {each.slot: each for each in identity.steps if each.job in wanted}
    states: dict[str, State] = {job: {} for job in wanted}
    slots = [slot for slot, each in steps.items() if each.level >= 0]
    # Spark numbers its stateful operators from the last one to the first; a slot is in one of them, so all are asked.
    for operator in range(identity.levels if slots else 0):
        reader = spark.read.format("statestore").option("stateVarName", "segments").option("operatorId", operator)
        if batch is not None:
            reader = reader.option("batchId", batch)
        rows = reader.load(str(checkpoint / "spark")).selectExpr(
            f"{group_expression('key.group')} AS number", "user_map_key.name AS name", "user_map_value.value AS value"
        )
        mine = rows.where(f"cast(floor(number / {identity.key_groups}) AS int) IN ({', '.join(map(str, slots))})")
        table = (mine if batch is None else mine.coalesce(1)).toArrow()
        for number, name, value in zip(
            *(table.column(column).to_pylist() for column in ("number", "name", "value")), strict=True
        ):
            slot, group = divmod(number, identity.key_groups)
            step = steps[slot]
            states[step.job].setdefault((step.step, group), {})[name] = from_store(value)
    order = identity.slots
    return {
        job: dict(sorted(state.items(), key=lambda entry: (order[job, entry[0][0]], entry[0][1])))
        for job, state in states.items()
    }


def write_state(path: Path, state: State) -> None:
    """Write the state of a job to a file, durably."""
    make_directory(path.parent)
    rows = [(*place, name, value) for place, parts in state.items() for name, value in parts.items()]
    pl.DataFrame(rows, schema=_SCHEMA, orient="row").write_ipc(path)
    sync_file(path)


def read_state(path: Path) -> State:
    """Read the state of a job from a file.

    Raises:
        StateError: The file has another layout.
    """
    frame = pl.read_ipc(path.read_bytes())
    if frame.schema != _SCHEMA:
        raise StateError(
            f"{path} was written by another version of Headrace", hint="Start with the version that wrote it."
        )
    state: State = {}
    for step, group, name, value in frame.iter_rows():
        state.setdefault((step, group), {})[name] = value
    return state
