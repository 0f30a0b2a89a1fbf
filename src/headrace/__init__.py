"""Headrace: live answers from event streams, in Python.

`Stream` describes what is to be computed, `Job` gives it a name and a result topic. `headrace.inprocess` runs a stream
in this process, `headrace.spark` on Spark. What a stream is made of is in `headrace.windows` (windows, triggers,
aggregates), `headrace.time` (watermarks) and `headrace.cep` (patterns); `sql` runs MATCH_RECOGNIZE over
frames and streams.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.cep import Pattern
    from headrace.stream import Job, Stream
    from headrace.stream.sql import sql

__all__ = ["Job", "Pattern", "Stream", "sql"]

# Looked up when they are used: the command line and Spark's workers import parts of the package and should not pay for
# all of it.
_HOMES = {
    "Job": ("headrace.stream", "Job"),
    "Pattern": ("headrace.cep", "Pattern"),
    "Stream": ("headrace.stream", "Stream"),
    "sql": ("headrace.stream.sql", "sql"),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)
