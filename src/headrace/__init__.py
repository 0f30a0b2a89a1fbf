"""Headrace: live answers from event streams, in Python.

`Stream` describes what is to be computed, `Job` gives it a name and a result topic. `headrace.inprocess` runs a stream
in this process, `headrace.spark` on Spark. A first job needs `headrace` for streams, windows and watermarks,
`headrace.windows` for triggers and aggregates, `headrace.patterns` for patterns, and `headrace.formats` for records
that others write; `sql` runs SQL over frames and streams. `preview` shows what a stream makes of some rows,
`run` runs jobs on Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.moved import find_moved_modules

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from headrace.errors import HeadraceError, MissingExtraError
    from headrace.inprocess.previews import preview
    from headrace.inprocess.sql_queries import sql
    from headrace.patterns import Pattern
    from headrace.spark.run.launch import run
    from headrace.stream import Display, Job, Output, Stream
    from headrace.time import ascending, bounded, percentile, perfect, punctuated
    from headrace.windows import count_window, delta, global_, punctuation, session, sliding, tumbling

    __version__: str

__all__ = [
    "Stream",
    "Job",
    "Output",
    "Display",
    "Pattern",
    "sql",
    "preview",
    "run",
    "ascending",
    "bounded",
    "percentile",
    "perfect",
    "punctuated",
    "tumbling",
    "sliding",
    "session",
    "global_",
    "count_window",
    "delta",
    "punctuation",
    "HeadraceError",
    "__version__",
]

# Looked up when they are used: the command line and Spark's workers import parts of the package and should not pay for
# all of it.
_HOMES = {
    "Stream": "headrace.stream",
    "Job": "headrace.stream",
    "Output": "headrace.stream",
    "Display": "headrace.stream",
    "Pattern": "headrace.patterns",
    "sql": "headrace.inprocess.sql_queries",
    "preview": "headrace.inprocess.previews",
    "run": "headrace.spark.run.launch",
    "ascending": "headrace.time",
    "bounded": "headrace.time",
    "percentile": "headrace.time",
    "perfect": "headrace.time",
    "punctuated": "headrace.time",
    "tumbling": "headrace.windows",
    "sliding": "headrace.windows",
    "session": "headrace.windows",
    "global_": "headrace.windows",
    "count_window": "headrace.windows",
    "delta": "headrace.windows",
    "punctuation": "headrace.windows",
    "HeadraceError": "headrace.errors",
}

find_moved_modules()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("headrace")
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    from headrace.errors import MissingExtraError

    try:
        return getattr(import_module(_HOMES[name]), name)
    except MissingExtraError as problem:
        return _lacking(name, problem)


def _lacking(name: str, problem: MissingExtraError) -> Callable[..., NoReturn]:
    """Stand in for a function whose extra is not installed: `from headrace import *` must not fail for it."""

    def lacking(*_: object, **__: object) -> NoReturn:
        raise problem

    lacking.__name__ = name
    lacking.__doc__ = problem.hint
    return lacking


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
