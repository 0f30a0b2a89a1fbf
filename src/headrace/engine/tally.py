"""Tallies: what steps count on the way, told with the batch they counted it in.

A step that leaves something out (a jump too long to be followed, an event that could not be enriched) says so by
`count`. Whoever runs the step opens a tally around it and passes the figures on: the in-process runner with the batch,
Spark's tasks beside the results, so that a batch that is repeated after a crash is not counted twice.

>>> with tallied() as counts:
...     count("jumps_too_long", 2)
...     count("jumps_too_long")
>>> counts
{'jumps_too_long': 3}
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_open: ContextVar[dict[str, int] | None] = ContextVar("tally", default=None)


def count(name: str, number: int = 1) -> None:
    """Count something under a name; where nobody has opened a tally, nothing happens.

    Call it from a step itself, such as a function of `map_batches`. Polars calls functions inside expressions
    (`pl.Expr.map_batches`) on threads of its own, which know of no tally.
    """
    counts = _open.get()
    if counts is not None and number:
        counts[name] = counts.get(name, 0) + number


@contextmanager
def tallied(into: dict[str, int] | None = None) -> Iterator[dict[str, int]]:
    """Take down what is counted inside.

    Args:
        into: Add to these figures; without it, begin with none.
    """
    counts: dict[str, int] = {} if into is None else into
    token = _open.set(counts)
    try:
        yield counts
    finally:
        _open.reset(token)
