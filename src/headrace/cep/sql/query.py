"""A whole SQL query over frames.

MATCH_RECOGNIZE is cut out of the text, run here, and its result takes its place as a table; the SQL around it
(projections, filters, joins, grouping, common table expressions) is read by sqlglot and run by Polars. Names are
matched without regard to case, as SQL does, though frames tell case apart.

What a table is, is an `Engine`'s business: here a frame, in `headrace.stream.sql` a stream.
"""

from __future__ import annotations

import itertools
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

import polars as pl

from headrace.cep.sql import surroundings
from headrace.cep.sql.lexer import Cursor, Position, Token, problem, tokenize
from headrace.cep.sql.output import execute, impossible, plan
from headrace.cep.sql.parser import ClauseParser
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.cep.sql.bound import DataType
    from headrace.cep.sql.output import Plan
    from headrace.cep.sql.syntax import MatchRecognize

_log = logging.getLogger(__name__)

Table = TypeVar("Table")
Frame: TypeAlias = Any
"""A Polars DataFrame or LazyFrame, a pyarrow Table or RecordBatch, or a pandas DataFrame."""

_MAX_BRACKETS: Final = 150
_MAX_DEPTH: Final = 20
"""Queries nested more deeply in one another than this are refused."""


class Engine(Protocol[Table]):
    """What a query needs to be able to do with its tables."""

    def columns(self, table: Table) -> Mapping[str, DataType]:
        """The columns of a table and their types."""
        ...

    def renamed(self, table: Table, names: Mapping[str, str], at: Position) -> Table:
        """A table with other names for its columns."""
        ...

    def select(self, query: surroundings.Rewritten, tables: Mapping[str, Table]) -> Table:
        """The result of a query without MATCH_RECOGNIZE."""
        ...

    def values(self, query: surroundings.Rewritten, tables: Mapping[str, Table]) -> pl.DataFrame:
        """The result of a query in an expression."""
        ...

    def match(self, clause: MatchRecognize, plan: Plan, table: Table) -> Table:
        """The result of a MATCH_RECOGNIZE."""
        ...


class Frames:
    """Tables that are Polars frames."""

    def columns(self, table: pl.DataFrame) -> Mapping[str, DataType]:
        """The columns of a frame and their types."""
        return dict(table.schema)

    def renamed(self, table: pl.DataFrame, names: Mapping[str, str], at: Position) -> pl.DataFrame:
        """A frame with other names for its columns."""
        del at
        return table.rename(names)

    def select(self, query: surroundings.Rewritten, tables: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
        """The result of a query without MATCH_RECOGNIZE."""
        return surroundings.run(query, tables)

    values = select

    def match(self, clause: MatchRecognize, plan: Plan, table: pl.DataFrame) -> pl.DataFrame:
        """The result of a MATCH_RECOGNIZE."""
        if (why := impossible(clause, plan)) is not None:
            _log.warning("%s", why)
        return execute(plan, table)


def query(sql: str, tables: Mapping[str, Frame]) -> Frame:
    """Runs a query over frames, with MATCH_RECOGNIZE as in SQL:2016.

    Args:
        sql: One SELECT.
        tables: Frames by the name the query has for them.

    Returns:
        A frame of the same kind as the first table: Polars, pyarrow or pandas.

    Raises:
        PlanError: The query is wrong; the message names line and column.

    >>> prices = pl.DataFrame({"id": [1, 2, 3, 4], "price": [9, 7, 8, 10]})
    >>> query(
    ...     '''
    ...     SELECT low, rises FROM prices MATCH_RECOGNIZE (
    ...       ORDER BY id
    ...       MEASURES bottom.price AS low, COUNT(up.*) AS rises
    ...       PATTERN (bottom up+)
    ...       DEFINE up AS price > PREV(price))
    ...     ''',
    ...     {"prices": prices},
    ... ).rows()
    [(7, 2)]
    """
    frames = {name: as_polars(frame, name) for name, frame in tables.items()}
    return like_input(run(sql, frames, Frames()), next(iter(tables.values()), None))


def run(sql: str, tables: Mapping[str, Table], engine: Engine[Table]) -> Table:
    """Runs a query over tables of any kind."""
    return _Query(sql, tokenize(sql), engine).run(tables)


def as_polars(frame: Frame, name: str) -> pl.DataFrame:
    """A frame of any kind as a Polars frame."""
    if isinstance(frame, pl.DataFrame):
        return frame
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    module = type(frame).__module__.split(".")[0]
    if module == "pyarrow":
        converted = pl.from_arrow(frame)
        return converted if isinstance(converted, pl.DataFrame) else converted.to_frame()
    if module == "pandas":
        return pl.from_pandas(frame)
    raise PlanError(
        f"table {name} is a {type(frame).__name__}", hint="Give a Polars, pyarrow or pandas frame for each table."
    )


def like_input(result: pl.DataFrame, example: Frame) -> Frame:
    """A frame as one of the kind of another: Polars, pyarrow or pandas."""
    module = type(example).__module__.split(".")[0]
    if module == "pyarrow":
        return result.to_arrow()
    return result.to_pandas() if module == "pandas" else result


@dataclass
class _Pieces:
    """A text being rewritten: what was cut out and what stands there now."""

    text: str
    cuts: list[tuple[int, int, str]] = field(default_factory=list)

    def replace(self, start: int, end: int, by: str) -> None:
        self.cuts.append((start, end, by))

    def result(self, start: int, end: int) -> surroundings.Rewritten:
        """The rewritten text of a range, with the way back to the places of the original."""
        parts: list[str] = []
        origins: list[tuple[int, int]] = []
        done, size = start, 0
        for begin, stop, by in sorted(self.cuts):
            if begin < done or stop > end:
                continue
            origins.append((size, done))
            parts.append(self.text[done:begin])
            size += begin - done
            origins.append((size, begin))
            parts.append(by)
            size += len(by)
            done = stop
        origins.append((size, done))
        parts.append(self.text[done:end])
        return surroundings.Rewritten("".join(parts), self.text, tuple(origins))


class _Query(Generic[Table]):
    """One text with its tokens; subqueries are ranges of them."""

    def __init__(self, text: str, tokens: tuple[Token, ...], engine: Engine[Table]) -> None:
        self._text = text
        self._tokens = tokens
        self._engine = engine
        self._numbers = itertools.count()

    def run(self, frames: Mapping[str, Table]) -> Table:
        """Runs the whole text."""
        stop = len(self._tokens) - 1
        while stop > 0 and self._tokens[stop - 1].is_punctuation(";"):
            stop -= 1
        for token in self._tokens[:stop]:
            if token.is_punctuation(";"):
                raise problem("one query at a time", token.at, hint="Run each SELECT by itself.")
        if stop == 0:
            raise PlanError("The query is empty", hint="Write SELECT ... FROM ... MATCH_RECOGNIZE (...).")
        _check_brackets(self._tokens)
        return self._range(0, stop, dict(frames), 0)

    def _range(self, start: int, stop: int, frames: dict[str, Table], depth: int) -> Table:
        """Runs the query of a range of tokens."""
        if depth > _MAX_DEPTH:
            raise problem(f"queries are nested more than {_MAX_DEPTH} deep", self._tokens[start].at)
        if self._tokens[start].is_word("WITH"):
            start = self._common_tables(start, stop, frames, depth)
        pieces = _Pieces(self._text)
        for subquery in list(self._subqueries_with_matches(start, stop)):
            result = self._range(subquery[0] + 1, subquery[1], dict(frames), depth + 1)
            name = self._new_name(frames)
            frames[name] = result
            begin, end = self._tokens[subquery[0]].start, self._tokens[subquery[1]].end
            pieces.replace(begin, end, f'(SELECT * FROM "{name}")')  # noqa: S608
        for place in self._matches_at_level(start, stop):
            self._match(place, start, stop, frames, pieces, depth)
        last = self._tokens[stop - 1].end if stop > start else self._tokens[start].start
        rewritten = pieces.result(self._tokens[start].start, last)
        return self._engine.select(rewritten, frames)

    def _new_name(self, frames: Mapping[str, Table]) -> str:
        return next(name for number in self._numbers if (name := f"__match_{number}") not in frames)

    # Common table expressions

    def _common_tables(self, start: int, stop: int, frames: dict[str, Table], depth: int) -> int:
        """Runs `WITH a AS (...), b AS (...)` into tables, and returns where the main query begins."""
        cursor = Cursor(self._tokens, start + 1, stop)
        if cursor.take_words("RECURSIVE"):
            raise problem("recursive common table expressions are not supported", self._tokens[start].at)
        while True:
            name = cursor.expect_identifier(within="WITH", what="a name")
            columns: list[str] = []
            if cursor.take("("):
                columns = self._names_list(cursor)
            cursor.expect_words("AS", within="WITH")
            cursor.take_words("MATERIALIZED")
            opening = cursor.index
            if not cursor.token.is_punctuation("("):
                raise cursor.unexpected("a query in brackets", within="WITH")
            closing = cursor.closing()
            result = self._range(opening + 1, closing, dict(frames), depth + 1)
            for other in [other for other in frames if other.lower() == name.value.lower()]:
                del frames[other]
            frames[name.value] = self._renamed(result, columns, name.at)
            cursor.index = closing + 1
            if cursor.take(",") is None:
                return cursor.index

    def _names_list(self, cursor: Cursor) -> list[str]:
        names = [cursor.expect_identifier(within="the column list").value]
        while cursor.take(","):
            names.append(cursor.expect_identifier(within="the column list").value)
        cursor.expect(")", within="the column list")
        return names

    # Finding MATCH_RECOGNIZE

    def _matches_at_level(self, start: int, stop: int) -> Iterator[int]:
        """The MATCH_RECOGNIZE of a query that are not inside of brackets."""
        depth = 0
        for place in range(start, stop):
            token = self._tokens[place]
            if token.is_punctuation("("):
                depth += 1
            elif token.is_punctuation(")"):
                depth -= 1
            elif depth == 0 and self._is_match(place):
                yield place

    def _is_match(self, place: int) -> bool:
        return self._tokens[place].is_word("MATCH_RECOGNIZE") and self._tokens[place + 1].is_punctuation("(")

    def _subqueries_with_matches(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The outermost queries in brackets that hold a MATCH_RECOGNIZE, except inputs of one (they are run there)."""
        place = start
        inputs = [self._input_start(match, start) for match in self._matches_at_level(start, stop)]
        matches = list(self._matches_at_level(start, stop))
        while place < stop:
            token = self._tokens[place]
            if any(begin <= place < match for begin, match in zip(inputs, matches, strict=True)):
                place += 1
                continue
            if token.is_punctuation("("):
                closing = Cursor(self._tokens, place, stop).closing()
                inner = any(self._is_match(inside) for inside in range(place, closing))
                if place > start and self._is_match(place - 1):
                    place = closing + 1
                    continue
                if inner and self._tokens[place + 1].is_word("SELECT", "WITH"):
                    yield place, closing
                    place = closing + 1
                    continue
            place += 1

    def _input_start(self, match: int, start: int) -> int:
        """The first token of the table that a MATCH_RECOGNIZE stands behind."""
        depth, place = 0, match - 1
        while place >= start:
            token = self._tokens[place]
            if token.is_punctuation(")"):
                depth += 1
            elif token.is_punctuation("("):
                if depth == 0:
                    break
                depth -= 1
            elif depth == 0 and (token.is_word("FROM", "JOIN") or token.is_punctuation(",")):
                break
            place -= 1
        if place + 1 == match:
            raise problem("there is no table before MATCH_RECOGNIZE", self._tokens[match].at)
        return place + 1

    # Running one

    def _match(self, place: int, start: int, stop: int, frames: dict[str, Table], pieces: _Pieces, depth: int) -> None:
        begin = self._input_start(place, start)
        frame, table_name = self._input(begin, place, frames, depth)
        cursor = Cursor(self._tokens, place + 1, stop)
        closing = cursor.closing()
        clause = ClauseParser(Cursor(self._tokens, place + 2, closing), self._text, self._tokens[place].at).parse()
        visible = dict(frames)

        def run(text: str, at: Position) -> pl.DataFrame:
            return self._engine.values(surroundings.Rewritten.whole(text, self._text, at), visible)

        compiled = plan(clause, self._engine.columns(frame), table_name=table_name, run=run)
        result = self._engine.match(clause, compiled, frame)
        cursor.index = closing + 1
        name = self._new_name(frames)
        alias, columns = self._alias(cursor)
        if columns:
            result = self._renamed(result, columns, self._tokens[place].at)
        frames[name] = result
        written = f'"{name}"' if alias is None else f'"{name}" AS "{alias}"'
        last = self._tokens[cursor.index - 1].end
        pieces.replace(self._tokens[begin].start, last, written)

    def _alias(self, cursor: Cursor) -> tuple[str | None, list[str]]:
        has_as = cursor.take_words("AS")
        token = cursor.token
        if not has_as and (token.kind not in ("word", "quoted") or token.text in _AFTER_TABLE):
            return None, []
        alias = cursor.expect_identifier(within="the alias").value
        return alias.replace('"', '""'), self._names_list(cursor) if cursor.take("(") else []

    def _input(self, begin: int, end: int, frames: dict[str, Table], depth: int) -> tuple[Table, str]:
        """The input of a MATCH_RECOGNIZE and its name: a table, or a query in brackets, perhaps with an alias."""
        cursor = Cursor(self._tokens, begin, end)
        first = cursor.token
        if first.is_punctuation("("):
            closing = cursor.closing()
            frame = self._range(begin + 1, closing, dict(frames), depth + 1)
            name = ""
            cursor.index = closing + 1
        else:
            cursor.advance()
            while cursor.take("."):
                first = cursor.expect_identifier(within="the table name")
            if first.kind not in ("word", "quoted"):
                raise problem("expected a table before MATCH_RECOGNIZE", first.at)
            name = first.value
            frame = _table(name, frames, first.at)
        alias, columns = self._alias(cursor)
        if cursor.token.kind != "end":
            raise problem(f"unexpected {cursor.token.value!r} before MATCH_RECOGNIZE", cursor.token.at)
        return self._renamed(frame, columns, first.at), alias or name

    def _renamed(self, table: Table, names: list[str], at: Position) -> Table:
        if not names:
            return table
        columns = list(self._engine.columns(table))
        if len(names) != len(columns):
            raise problem(f"the column list has {len(names)} names for {len(columns)} columns", at)
        lowered = [name.lower() for name in names]
        doubled = next((name for name in names if lowered.count(name.lower()) > 1), None)
        if doubled is not None:
            raise problem(f"column {doubled} is named twice", at)
        return self._engine.renamed(table, dict(zip(columns, names, strict=True)), at)


def _check_brackets(tokens: Sequence[Token]) -> None:
    """Refuses brackets nested so deeply that no parser should follow them."""
    depth = 0
    for token in tokens:
        if token.is_punctuation("(", "["):
            depth += 1
            if depth > _MAX_BRACKETS:
                raise problem(f"brackets are nested more than {_MAX_BRACKETS} deep", token.at)
        elif token.is_punctuation(")", "]"):
            depth -= 1


# fmt: off
_AFTER_TABLE: Final = frozenset({
    "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "FETCH", "UNION", "INTERSECT", "EXCEPT", "JOIN",
    "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "ON", "USING", "WINDOW", "QUALIFY", "MATCH_RECOGNIZE",
    "ASOF", "SEMI", "ANTI",
})
# fmt: on


def _table(name: str, frames: Mapping[str, Table], at: Position) -> Table:
    if name in frames:
        return frames[name]
    found = [other for other in frames if other.lower() == name.lower()]
    if len(found) != 1:
        known = ", ".join(other for other in frames if not other.startswith("__match_")) or "none"
        raise problem(f"unknown table {name}", at, hint=f"Tables: {known}.")
    return frames[found[0]]
