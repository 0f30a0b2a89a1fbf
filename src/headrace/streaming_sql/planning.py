"""Queries as streams: the door to the planner, for all that is not itself a part of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cep.sql.functions import FUNCTIONS
from headrace.engine.changelog import unweighted, weighted
from headrace.engine.operator import EVENT_TIME, INGESTION_TIME, IS_RETRACTION
from headrace.errors import HeadraceError, PlanError
from headrace.stream.sql import sql

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.stream import Stream


@dataclass(frozen=True)
class Planned:
    """A query that was planned.

    Args:
        stream: Its rows. They have further columns: keys, times, and whether a row is taken back.
        columns: The columns that the query names, in its order: each with the name of the stream's column.
    """

    stream: Stream
    columns: tuple[tuple[str, str], ...]

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of the query and their types."""
        return {name: self.stream.schema[physical] for name, physical in self.columns}

    @property
    def is_updating(self) -> bool:
        """Whether rows may be taken back."""
        return self.stream.node.updating

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give the columns of the query of rows of the stream; `is_retraction` stays where rows may be taken back."""
        kept = [pl.col(physical).alias(name) for name, physical in self.columns]
        return frame.select(*kept, IS_RETRACTION) if self.is_updating else frame.select(kept)

    def final(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Give the table that all rows together leave: those that were added and not taken back."""
        rows = pl.concat([self.rows(frame) for frame in frames]) if frames else self.rows(self.stream.schema.to_frame())
        return unweighted(weighted(rows)).drop(IS_RETRACTION) if self.is_updating else rows


def plan(query: str, relations: Mapping[str, Any], *, bounded: bool = False) -> Planned:
    """Plan a query.

    Args:
        query: The query.
        relations: What it may name.
        bounded: Whether its rows come to an end, so that ORDER BY and LIMIT have a meaning.

    Raises:
        PlanError: The query is wrong; the message says where.
    """
    del bounded
    stream: Stream = sql(query, relations)
    names = [name for name in stream.schema if name not in (EVENT_TIME, INGESTION_TIME)] or list(stream.schema)
    return Planned(stream, tuple((name, name) for name in names))


def add_column(stream: Stream, name: str, expression: str) -> Stream:
    """Add a column that is computed from others.

    Args:
        stream: The stream.
        name: The name of the column.
        expression: A scalar expression.

    Raises:
        PlanError: It is wrong; the place in the message is counted from the beginning of the expression.
    """
    # The expression has lines of its own, so that the place of an error is easily counted from it.
    query = f"SELECT *,\n{expression}\nAS {quoted(name)} FROM source"  # noqa: S608 - it is run over one stream
    try:
        found: Stream = sql(query, {"source": stream})
    except HeadraceError as wrong:
        message = re.sub(r"^line (\d+)", lambda line: f"line {max(1, int(line[1]) - 1)}", wrong.message)
        raise PlanError(message, hint=wrong.hint) from wrong
    return found


def quoted(name: str) -> str:
    """Give a name in quotes.

    >>> quoted("a b")
    '"a b"'
    """
    return '"' + name.replace('"', '""') + '"'


def function_names() -> list[str]:
    """Tell the names of the functions that queries may call."""
    return sorted(FUNCTIONS)
