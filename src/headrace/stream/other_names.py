"""What steps are called elsewhere: a method that streams lack, and what to write instead."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEY_BY: Final = 'key_by("depot")'
_WITH_COLUMNS: Final = 'with_columns(grams=pl.col("kg") * 1000)'
_BATCHES: Final = f"{_WITH_COLUMNS}, or map_batches(function) for a function from frame to frame"
_JOB: Final = 'Job("late", stream), which writes its results to a topic'
_INSTEAD: Final = {
    "group_by": _KEY_BY,
    "groupby": _KEY_BY,
    "groupBy": _KEY_BY,
    "keyBy": _KEY_BY,
    "partition_by": _KEY_BY,
    "agg": "aggregate(n=count())",
    "where": 'filter(pl.col("celsius") > 10)',
    "map": _BATCHES,
    "apply": _BATCHES,
    "flatMap": "flat_map",
    "withColumn": _WITH_COLUMNS,
    "with_column": _WITH_COLUMNS,
    "withWatermark": 'watermark(bounded("5s"))',
    "assign_timestamps_and_watermarks": 'watermark(bounded("5s"))',
    "merge": "union",
    "concat": "union",
    "unique": 'deduplicate("id", within="1h"), or distinct()',
    "dropDuplicates": 'deduplicate("id", within="1h")',
    "to_topic": _JOB,
    "to": _JOB,
    "sink": _JOB,
    "write": _JOB,
    "writeStream": _JOB,
    "collect": "headrace.preview(stream, rows), which shows results",
    "show": "headrace.preview(stream, rows), which shows results",
    "run": "headrace.run(Job(...)) for Kafka, headrace.inprocess.run(stream, rows) without",
}


def instead(name: str, known: Iterable[str]) -> str:
    """Say what to write instead of a method that there is not; empty if nothing comes to mind.

    Args:
        name: The name that was tried.
        known: The methods that there are.

    >>> instead("group_by", ["key_by"]), instead("fliter", ["filter", "key_by"]), instead("xyz", ["filter"])
    ('Write key_by("depot").', 'Did you mean filter?', '')
    """
    if name in _INSTEAD:
        return f"Write {_INSTEAD[name]}."
    close = difflib.get_close_matches(name, known, n=1)
    return f"Did you mean {close[0]}?" if close else ""
