"""Names in a query: which column of which table is meant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.streaming_sql.errors import error_at, similar
from headrace.streaming_sql.values import Bound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from headrace.streaming_sql.relation import Column, Relation


@dataclass(frozen=True)
class Found:
    """A column, and the fields that are taken of it."""

    column: Column
    fields: tuple[str, ...] = ()


class Scope:
    """The columns that can be named.

    Args:
        text: The query.
        columns: The columns.
        outer: The columns of the query around, which a subquery can name.
    """

    def __init__(self, text: str, columns: Sequence[Column], outer: Scope | None = None) -> None:
        self.text = text
        self.columns = tuple(columns)
        self.outer = outer

    @classmethod
    def of(cls, text: str, relation: Relation, outer: Scope | None = None) -> Scope:
        """The columns of a relation."""
        return cls(text, relation.columns, outer)

    @property
    def tables(self) -> list[str]:
        """The aliases of the tables."""
        return list(dict.fromkeys(column.table for column in self.columns if column.table))

    def find(self, node: exp.Column) -> Found:
        """Find the column that is meant.

        Raises:
            QueryError: There is none, or more than one.
        """
        found = self._find(node)
        if found is None:
            raise self._unknown(node)
        return found

    def knows(self, node: exp.Column) -> bool:
        """Tell whether a name is that of a column here, and not only of the query around."""
        return self._find(node) is not None

    def resolve(self, node: exp.Column) -> Bound:
        """Bind a column."""
        found = self.find(node)
        column = found.column
        if not column.physical:
            raise error_at(self.text, node, f"column {column.name!r} has no value that can be computed with",
                           hint=_why_not(column))  # fmt: skip
        bound = Bound(pl.col(column.physical), column.dtype)
        for name in found.fields:
            bound = _field(bound, name, self.text, node)
        return bound

    def _find(self, node: exp.Column) -> Found | None:
        parts = [part.name for part in node.parts]
        if len(parts) > 1:
            matches = self._named(parts[1], node, table=parts[0])
            if matches is not None:
                return Found(matches, tuple(parts[2:]))
        match = self._named(parts[0], node)
        return None if match is None else Found(match, tuple(parts[1:]))

    def _named(self, name: str, node: exp.Column, table: str | None = None) -> Column | None:
        among = self.columns if table is None else [each for each in self.columns if _same(each.table, table)]
        found = [each for each in among if each.name == name] or [each for each in among if _same(each.name, name)]
        if len(found) > 1 and len({(each.physical, each.role) for each in found}) > 1:
            tables = list(dict.fromkeys(f"{each.table}.{each.name}" if each.table else each.name for each in found))
            raise error_at(
                self.text,
                node,
                f"column {name!r} is ambiguous",
                hint=f"Write {' or '.join(tables)}."
                if len(tables) > 1
                else "Give the columns different names with AS.",
            )
        return found[0] if found else None

    def _unknown(self, node: exp.Column) -> Exception:
        parts = [part.name for part in node.parts]
        if len(parts) > 1 and not any(_same(table, parts[0]) for table in self.tables):
            return error_at(self.text, node, f"unknown table or column {parts[0]!r}",
                            hint=similar(parts[0], [*self.tables, *(each.name for each in self.columns)]))  # fmt: skip
        table = parts[0] if len(parts) > 1 else None
        known = [each.name for each in self.columns if table is None or _same(each.table, table)]
        name = parts[1] if len(parts) > 1 else parts[0]
        where = f" in {table}" if table else ""
        return error_at(self.text, node, f"unknown column {name!r}{where}", hint=similar(name, known))


def _field(bound: Bound, name: str, text: str, node: exp.Column) -> Bound:
    from headrace.streaming_sql.expressions import Binder

    return Binder(text, lambda _: bound).field(bound, name, node)


def _same(one: str, other: str) -> bool:
    return one.lower() == other.lower()


def _why_not(column: Column) -> str:
    if column.role == "proctime":
        return "It stands for the time of arrival: use it in ORDER BY, OVER and FOR SYSTEM_TIME AS OF."
    if column.role == "rank":
        return "Filter it in WHERE of the query around, such as WHERE rn <= 3."
    return "Name it in GROUP BY."
