"""Moving state to another plan of Spark's.

Spark keeps state by stateful operator and partition, and refuses a plan with more or fewer of them. So where a level is
added or goes, or the number of state partitions changes, the state of all steps is read out of Spark's directory and
put aside in files, by job and step; Spark begins anew where the last batch ended, and the first batch brings the state
in. A crash at any moment leaves the old plan with its state, or the new one with the files:

1. `moved/<mark>/` gets a file per job, and `beginning.json`: where the last batch ended, and where one ends that was
   planned after it; and how many batches were done, since sinks besides Kafka count on.
2. `headrace.json` names the mark. From here on the new plan counts.
3. Spark's directory is removed and the beginning put in its place (`complete`, also at the next start).
4. The first batch unpacks the state. When it is done the files go, but for those of jobs that take no part.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from headrace.savepoints.durable_files import make_directory, write_durably
from headrace.spark.checkpoint.continuity import BEGINNING
from headrace.spark.checkpoint.identity import note
from headrace.spark.checkpoint.saved_state import State, read_state, saved_state, write_state

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.spark.checkpoint.continuity import Progress
    from headrace.spark.checkpoint.identity import Identity

_DIRECTORY = "moved"


def move(spark: SparkSession, checkpoint: Path, before: Identity, after: Identity, progress: Progress) -> None:
    """Move the state of all steps to another plan.

    Args:
        spark: A session; the query must not run.
        checkpoint: The query's checkpoint.
        before: What it holds.
        after: What it is to hold; its mark is another one.
        progress: How far it has come.
    """
    directory = checkpoint / _DIRECTORY / after.moved
    states = saved_state(spark, checkpoint, before) if progress.committed >= 0 else {}
    for job in before.jobs:
        state = states.get(job) or put_aside(checkpoint, before, job)
        if state:
            write_state(directory / f"{job}.arrow", state)
    make_directory(directory)
    planned = {} if progress.planned is None else {"planned": progress.planned.to_dict()}
    batches = batches_before(checkpoint) + progress.committed + 1
    told = {**progress.position.to_dict(), **planned, "mark": after.moved, "batches": batches}
    write_durably(directory / BEGINNING, json.dumps(told))
    note(checkpoint, after)
    complete(checkpoint, after)


def batches_before(checkpoint: Path) -> int:
    """Tell how many batches were done before Spark began to count them anew; 0 where the state was never moved."""
    begun = checkpoint / BEGINNING
    return int(json.loads(begun.read_text("utf-8")).get("batches", 0)) if begun.exists() else 0


def complete(checkpoint: Path, identity: Identity) -> None:
    """Let Spark begin anew after a move, if that was not done yet."""
    if not identity.moved:
        return
    begun = checkpoint / BEGINNING
    if begun.exists() and json.loads(begun.read_text("utf-8")).get("mark") == identity.moved:
        return
    shutil.rmtree(checkpoint / "spark", ignore_errors=True)
    write_durably(begun, (checkpoint / _DIRECTORY / identity.moved / BEGINNING).read_text("utf-8"))


def put_aside(checkpoint: Path, identity: Identity, job: str) -> State:
    """Read the state of a job that the last move has put aside; nothing where there is none."""
    path = checkpoint / _DIRECTORY / identity.moved / f"{job}.arrow"
    return read_state(path) if identity.moved and path.exists() else {}


def clear(checkpoint: Path, identity: Identity, keep: Collection[str]) -> None:
    """Remove what was put aside and is in Spark's state now, and what an earlier move has left.

    Args:
        checkpoint: The query's checkpoint.
        identity: What it holds.
        keep: Jobs that have taken no part since the move.
    """
    for directory in (checkpoint / _DIRECTORY).glob("*"):
        if directory.name != identity.moved:
            shutil.rmtree(directory, ignore_errors=True)
            continue
        for path in directory.glob("*.arrow"):
            if path.stem not in keep:
                path.unlink(missing_ok=True)
