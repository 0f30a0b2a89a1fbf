"""Queries as streams: the door to the planner, for all that is not itself a part of a query."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from headrace.engine.changelog import unweighted, weighted
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.errors import HeadraceError, PlanError
from headrace.streaming_sql.aggregates import AGGREGATES
from headrace.streaming_sql.dialect import parse_query
from headrace.streaming_sql.expressions import Binder
from headrace.streaming_sql.function_table import FUNCTIONS
from headrace.streaming_sql.query import plan_relation
from headrace.streaming_sql.relation import HIDDEN, CatalogTable, relation_of
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import projected

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.stream import Stream
    from headrace.streaming_sql.functions import ScalarFunction
    from headrace.streaming_sql.relation import Relation


@dataclass(frozen=True)
class Planned:
    """A query that was planned.

    Args:
        relation: Its rows and columns.
        cautions: What would keep state without bound, with its place.
    """

    relation: Relation
    cautions: tuple[str, ...] = ()

    @property
    def stream(self) -> Stream:
        """Its rows. They have further columns: times, and whether a row is taken back."""
        return self.relation.stream

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        """The columns that the query names, in its order: each with the name of the stream's column."""
        found: dict[str, str] = {}
        for column in self.relation.columns:
            if not column.shown or not column.physical:
                continue
            name, number = column.name, 1
            while name in found:
                number += 1
                name = f"{column.name}_{number}"
            found[name] = column.physical
        return tuple(found.items())

    @property
    def schema(self) -> dict[str, pl.DataType]:
        """The columns of the query and their types."""
        return {name: self.stream.schema[physical] for name, physical in self.columns}

    @property
    def is_updating(self) -> bool:
        """Whether rows may be taken back."""
        return self.stream.node.updating

    @property
    def named_stream(self) -> Stream:
        """Its rows under the names of the query; a column cannot be called as what the engine has of its own.

        Raises:
            PlanError: One is.
        """
        wrong = [name for name, own in self.columns if name in HIDDEN or (name == EVENT_TIME and own != EVENT_TIME)]
        if wrong:
            raise PlanError(f"a column of the result is named {wrong[0]}", hint="Give it another name with AS.")
        return projected(self.stream, {name: pl.col(own) for name, own in self.columns})

    def called(self, names: Sequence[str]) -> Planned:
        """Give the columns other names."""
        return replace(self, relation=self.relation.called("", names))

    def rows(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give the columns of the query of rows of the stream; `is_retraction` stays where rows may be taken back."""
        kept = [pl.col(physical).alias(name) for name, physical in self.columns]
        return frame.select(*kept, IS_RETRACTION) if self.is_updating else frame.select(kept)

    def final(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """Give the table that all rows together leave, in the order that the query asks for.

        Args:
            frames: The rows of the stream, from their beginning to their end.
        """
        rows = pl.concat(frames) if frames else self.stream.schema.to_frame()
        if self.is_updating:
            names = dict.fromkeys(
                [*(physical for _, physical in self.columns), *(name for name, _ in self.relation.order), IS_RETRACTION]
            )
            rows = unweighted(weighted(rows.select(list(names))))
        if self.relation.order:
            order = [name for name, _ in self.relation.order]
            down = [each for _, each in self.relation.order]
            rows = rows.sort(order, descending=down, nulls_last=down, maintain_order=True)
        return rows.select(pl.col(physical).alias(name) for name, physical in self.columns)


def plan(
    query: str,
    relations: Mapping[str, Any],
    *,
    functions: Mapping[str, ScalarFunction] | None = None,
    bounded: bool = False,
) -> Planned:
    """Plan a query.

    Args:
        query: The query.
        relations: What it may name: streams, tables, `CatalogTable`s and relations.
        functions: Functions beside the built-in ones, by name.
        bounded: Whether its rows come to an end, so that ORDER BY and LIMIT have a meaning.

    Raises:
        PlanError: The query is wrong; the message says where.
    """
    cautions: list[str] = []
    relation = plan_relation(query, relations, functions=functions, bounded=bounded, warn=cautions.append)
    # What comes to an end needs no bound.
    return Planned(relation, () if bounded else tuple(cautions))


def add_column(
    stream: Stream, name: str, expression: str, *, functions: Mapping[str, ScalarFunction] | None = None
) -> Stream:
    """Add a column that is computed from others.

    Args:
        stream: The stream.
        name: The name of the column.
        expression: A scalar expression.
        functions: Functions beside the built-in ones, by name.

    Raises:
        PlanError: It is wrong; the place in the message is counted from the beginning of the expression.
    """
    # The expression has a line of its own, so that the place of an error is easily counted from it.
    query = f"SELECT\n{expression}\nAS {quoted(name)} FROM source"
    columns = {each: each for each in stream.schema if each not in HIDDEN}
    try:
        tree = parse_query(query)
        if not isinstance(tree, exp.Select) or len(tree.expressions) != 1:
            raise PlanError("line 2, column 1: this is not one expression")
        scope = Scope.of(query, relation_of("source", CatalogTable(stream, columns=columns)))
        bound = Binder(query, scope.resolve, functions=functions).bind(tree.expressions[0].unalias())
    except HeadraceError as wrong:
        message = re.sub(r"^line (\d+)", lambda line: f"line {max(1, int(line[1]) - 1)}", wrong.message)
        raise PlanError(message, hint=wrong.hint) from wrong
    return stream.with_columns(**{name: bound.expr})


def quoted(name: str) -> str:
    """Give a name in quotes.

    >>> quoted("a b")
    '"a b"'
    """
    return '"' + name.replace('"', '""') + '"'


def function_names() -> list[str]:
    """Tell the names of the functions that queries may call."""
    return sorted({*FUNCTIONS, *AGGREGATES})
