"""Patterns of events: what a job needs to describe one, and to say what a match gives.

>>> import polars as pl
>>> from headrace.patterns import Pattern
>>> fall = Pattern.begin("high").where(pl.col("price") > 10).followed_by("low").where(pl.col("price") < 5)
>>> fall.names
('high', 'low')

`Stream.match` takes a pattern, and `select` behind it the measures: `first`, `last`, `count` and so on. The engine that
runs patterns is in `headrace.cep`.
"""

from __future__ import annotations

from headrace.cep.conditions import current, matched
from headrace.cep.measures import (
    Measure,
    collect,
    count,
    distinct,
    first,
    largest,
    last,
    mean,
    smallest,
    total,
)
from headrace.cep.pattern import Pattern
from headrace.cep.skip import Skip

__all__ = [
    "Pattern",
    "Skip",
    "current",
    "matched",
    "Measure",
    "first",
    "last",
    "count",
    "total",
    "smallest",
    "largest",
    "mean",
    "collect",
    "distinct",
]
