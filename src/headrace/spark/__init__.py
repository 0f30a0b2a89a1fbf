"""Spark: the same operators, distributed, with durable state.

    source    ->  Arrow stage              ->  stateful stage           ->  sink
    (Kafka)       (decode, stateless steps,    (one call per key group      (one Kafka transaction
                   key groups)                  and batch)                   a batch)

One query runs any number of jobs. `run_jobs` is the front door:

    source/      planning a batch, reading Kafka, the Arrow stage
    stages/      the query, and one call per key group and batch
    state/       segments in Spark's state store
    checkpoint/  whom a checkpoint belongs to, and whether it still fits
    output/      records, sinks, tokens
    run/         streams, batches, restarts, reports
    session/     the Spark session and what its workers need
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.extras import require

require("spark", by="headrace.spark")

if TYPE_CHECKING:
    from headrace.spark.run.progress import BatchDone
    from headrace.spark.run.runner import RunOptions, run_jobs

__all__ = ["run_jobs", "RunOptions", "BatchDone"]

# Looked up when they are used: workers import parts of this package and should not pay for all of it.
_HOMES = {
    "run_jobs": "headrace.spark.run.runner",
    "RunOptions": "headrace.spark.run.runner",
    "BatchDone": "headrace.spark.run.progress",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace.spark' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
