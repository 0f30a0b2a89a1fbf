"""Values on their way between frames, answers and a cache on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.enrich.cache import Answer


def plain_schema(gives: dict[str, Any] | pl.Schema) -> pl.Schema:
    """Bring the columns that a user names into the form that frames have.

    >>> plain_schema({"stop": pl.String})["stop"]
    String
    """
    return pl.Schema(gives).to_frame().schema


def check_gives(schema: pl.Schema, what: str, name: str) -> None:
    """Refuse types that cannot be written down in a cache.

    >>> check_gives(pl.Schema({"at": pl.Datetime()}), "column", "stops")
    Traceback (most recent call last):
    ...
    headrace.errors.PlanError: enrichment 'stops': column 'at' is Datetime(...) and cannot be kept in a cache. ...
    """
    for column, kind in schema.items():
        if not (kind.is_integer() or kind.is_float() or kind in (pl.String, pl.Boolean)):
            raise PlanError(
                f"enrichment {name!r}: {what} {column!r} is {kind} and cannot be kept in a cache",
                hint="Use text, numbers and booleans; write a time as text, or as microseconds.",
            )


def frame_of(answers: Sequence[Answer], gives: pl.Schema) -> pl.DataFrame:
    """Put answers into columns; nulls where there is none."""
    nothing = (None,) * len(gives)
    rows = [nothing if answer is None else answer for answer in answers]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(gives)
    return pl.DataFrame(
        [pl.Series(name, values, dtype=kind) for (name, kind), values in zip(gives.items(), columns, strict=True)]
    )
