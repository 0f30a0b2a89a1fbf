"""The SQL around MATCH_RECOGNIZE: read by sqlglot, run by Polars.

Polars' SQL tells upper from lower case in names, does not rename columns in `AS t(a, b)`, and wants its own spelling
of some things; sqlglot's tree is where that is put right before the text goes on.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import sqlglot
from sqlglot import exp

from headrace.cep.sql.lexer import Position, problem
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

_ONE_ROW = "__one_row"
_POLARS_ERRORS = (pl.exceptions.PolarsError, ValueError, TypeError)


@dataclass(frozen=True)
class Rewritten:
    """A text made from parts of a query, and where each part was.

    Args:
        text: The text.
        original: The whole query.
        origins: Pairs of a place in the text and the place in the query it comes from, ascending.
    """

    text: str
    original: str
    origins: tuple[tuple[int, int], ...]

    @classmethod
    def whole(cls, text: str, original: str, after: Position) -> Rewritten:
        """A part of the query that stands right behind a bracket at a position, unchanged."""
        lines = original.split("\n")
        start = sum(len(line) + 1 for line in lines[: after.line - 1]) + after.column
        return cls(text, original, ((0, start),))

    def position(self, line: int, column: int) -> Position:
        """The place in the query of a place in the text."""
        lines = self.text.split("\n")
        return self.at_offset(sum(len(before) + 1 for before in lines[: line - 1]) + max(column - 1, 0))

    def at_offset(self, offset: int) -> Position:
        """The place in the query of a character of the text."""
        index = bisect_right([place for place, _ in self.origins], offset) - 1
        place, origin = self.origins[max(index, 0)]
        target = min(origin + offset - place, len(self.original))
        before = self.original[:target]
        return Position(before.count("\n") + 1, target - (before.rfind("\n") + 1) + 1)


def run(query: Rewritten, frames: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """Runs a query without MATCH_RECOGNIZE."""
    tree = parse(query)
    for name in [alias for alias in tree.find_all(exp.TableAlias) if alias.args.get("columns")]:
        _spell_out_columns(name, frames)
    for select in tree.find_all(exp.Select):
        if select.args.get("where") and not (select.args.get("from") or select.args.get("from_")):
            select.from_(exp.to_identifier(_ONE_ROW, quoted=True), copy=False)  # Polars forgets WHERE without FROM
    frames = {**frames, _ONE_ROW: pl.DataFrame({_ONE_ROW: [0]})}
    fit(tree, frames)
    text = tree.sql(dialect="duckdb", identify=True)
    try:
        with pl.SQLContext(frames=dict(frames)) as context:
            return context.execute(text, eager=True)
    except _POLARS_ERRORS as error:
        first = str(error).strip().split("\n")[0]
        at = _blamed(tree, first, query)
        raise PlanError(
            f"{at}: this part of the query cannot be run: {first}", hint=f"It was run as: {text}"
        ) from error


def fit(tree: exp.Query | exp.Values, frames: Mapping[str, pl.DataFrame]) -> None:
    """Spells a query as Polars wants it."""
    for cast in list(tree.find_all(exp.Cast)):
        _fit_cast(cast)
    _fit_names(tree, frames)


def _blamed(tree: exp.Query | exp.Values, message: str, query: Rewritten) -> Position:
    """Where the name stands that an error of Polars speaks of; the begin of the query if it names none."""
    named = set(re.findall(r"[\w$]+", message))
    for identifier in tree.find_all(exp.Identifier):
        start = identifier.meta.get("start")
        if identifier.name in named and isinstance(start, int):
            return query.at_offset(start)
    return query.at_offset(0)


def parse(query: Rewritten) -> exp.Query | exp.Values:
    """Reads a query without MATCH_RECOGNIZE."""
    try:
        tree = sqlglot.parse_one(query.text, dialect="trino")
    except sqlglot.errors.ParseError as error:
        details = error.errors[0] if error.errors else {}
        at = query.position(int(details.get("line") or 1), int(details.get("col") or 1))
        raise problem(_described(str(details.get("description") or error)), at) from None
    except sqlglot.errors.SqlglotError as error:
        raise problem(str(error).split("\n")[0], query.position(1, 1)) from None
    except RecursionError:
        raise problem("the query is nested too deeply", query.position(1, 1)) from None
    if not isinstance(tree, exp.Query | exp.Values):
        raise problem("only SELECT is understood", query.position(1, 1))
    return tree


def _described(message: str) -> str:
    """What sqlglot says, without the names of its classes."""
    if message.startswith("Required keyword"):
        return "something is missing here"
    return message.replace("Invalid expression / Unexpected token", "this does not fit here")


def _fit_cast(cast: exp.Cast) -> None:
    """Casts without lengths, which Polars does not know; a timestamp literal is compared as the text it is.

    Polars reads a text as whatever it is compared with, and so a timestamp with or without a zone.
    """
    literal = isinstance(cast.this, exp.Literal) and cast.this.is_string
    if literal and cast.to.is_type(exp.DataType.Type.TIMESTAMP) and isinstance(cast.parent, exp.Predicate):
        cast.replace(cast.this)
        return
    if not cast.to.is_type(exp.DataType.Type.DECIMAL, *exp.DataType.NESTED_TYPES):
        cast.to.set("expressions", None)


def _spell_out_columns(alias: exp.TableAlias, frames: Mapping[str, pl.DataFrame]) -> None:
    """`t AS x(a, b)` becomes a subquery that names the columns; Polars does so itself for VALUES only."""
    table = alias.parent
    columns = alias.args.get("columns") or []
    if not isinstance(table, exp.Table):
        return
    found = next((name for name in frames if name.lower() == table.name.lower()), None)
    if found is None or len(columns) != frames[found].width:
        return
    projections = [
        exp.alias_(exp.column(exp.to_identifier(source, quoted=True)), target.name, quoted=True)
        for source, target in zip(frames[found].columns, columns, strict=True)
    ]
    source = exp.select(*projections).from_(exp.Table(this=exp.to_identifier(found, quoted=True)))
    table.replace(source.subquery(alias.name))


def _fit_names(tree: exp.Query | exp.Values, frames: Mapping[str, pl.DataFrame]) -> None:
    """Gives tables and columns the spelling they have in the frames, wherever that is the only one it can be."""
    spellings: dict[str, set[str]] = {}
    exact: set[str] = set()
    for name, frame in frames.items():
        for known in (name, *frame.columns):
            spellings.setdefault(known.lower(), set()).add(known)
            exact.add(known)
    for alias in tree.find_all(exp.Alias, exp.TableAlias):
        for identifier in (
            alias.find_all(exp.Identifier) if isinstance(alias, exp.TableAlias) else [alias.args["alias"]]
        ):
            if identifier is not None and identifier.name not in exact:
                spellings.setdefault(identifier.name.lower(), set()).add(identifier.name)
                exact.add(identifier.name)
    for identifier in tree.find_all(exp.Identifier):
        written = identifier.name
        candidates = spellings.get(written.lower(), set())
        if written not in exact and len(candidates) == 1:
            identifier.set("this", next(iter(candidates)))
