"""The clauses of MATCH_RECOGNIZE: tokens to the frozen description in `syntax`."""

from __future__ import annotations

import datetime as dt
from typing import Final

from headrace.cep.sql.expression_parser import ExpressionParser
from headrace.cep.sql.lexer import Cursor, Position, Token, problem
from headrace.cep.sql.pattern import PatternNode, parse_pattern
from headrace.cep.sql.syntax import (
    Definition,
    Identifier,
    MatchRecognize,
    Measure,
    Months,
    Name,
    OrderItem,
    RowsPerMatch,
    Skip,
    Subset,
)

# fmt: off
_CLAUSE_WORDS: Final = frozenset({
    "PATTERN", "DEFINE", "SUBSET", "MEASURES", "WITHIN", "ONE", "ALL", "ORDER", "PARTITION", "AFTER", "INITIAL", "SEEK",
})
# fmt: on


class ClauseParser:
    """Reads what stands in the brackets of MATCH_RECOGNIZE.

    Args:
        cursor: From after the opening bracket to the closing one.
        text: The whole query.
        at: Where MATCH_RECOGNIZE stands.
    """

    def __init__(self, cursor: Cursor, text: str, at: Position) -> None:
        self._cursor = cursor
        self._expressions = ExpressionParser(cursor, text)
        self._at = at
        self._seen: dict[str, Position] = {}
        self._partition: tuple[Name, ...] = ()
        self._order: tuple[OrderItem, ...] = ()
        self._measures: tuple[Measure, ...] = ()
        self._rows: RowsPerMatch = "one"
        self._timed_out: Position | None = None
        self._skip = Skip("past last row", None, at)
        self._pattern: PatternNode | None = None
        self._within: dt.timedelta | None = None
        self._subsets: tuple[Subset, ...] = ()
        self._definitions: tuple[Definition, ...] = ()

    def parse(self) -> MatchRecognize:
        """Reads all clauses; their order is free, each may stand once."""
        while self._cursor.token.kind != "end":
            self._clause()
        if self._pattern is None:
            raise problem("MATCH_RECOGNIZE has no PATTERN", self._at, hint="Add PATTERN (...) and DEFINE ....")
        return MatchRecognize(
            self._partition,
            self._order,
            self._measures,
            self._rows,
            self._skip,
            self._pattern,
            self._within,
            self._subsets,
            self._definitions,
            self._at,
            self._timed_out,
        )

    def _clause(self) -> None:
        cursor = self._cursor
        token = cursor.token
        if cursor.take_words("PARTITION", "BY"):
            self._once("PARTITION BY", token)
            self._partition = self._columns("PARTITION BY")
        elif cursor.take_words("ORDER", "BY"):
            self._once("ORDER BY", token)
            self._order = self._order_items()
        elif cursor.take_words("MEASURES"):
            self._once("MEASURES", token)
            self._measures = self._measure_list()
        elif cursor.take_words("ONE", "ROW", "PER", "MATCH"):
            self._once("ROWS PER MATCH", token)
            self._with_timed_out()
        elif cursor.take_words("ALL", "ROWS", "PER", "MATCH"):
            self._once("ROWS PER MATCH", token)
            self._rows = self._all_rows()
            self._with_timed_out()
        elif cursor.take_words("AFTER", "MATCH", "SKIP"):
            self._once("AFTER MATCH SKIP", token)
            self._skip = self._skip_to()
        elif cursor.take_words("PATTERN"):
            self._once("PATTERN", token)
            self._pattern = parse_pattern(cursor)
        elif cursor.take_words("WITHIN"):
            self._once("WITHIN", token)
            self._within = self._within_interval(token.at)
        elif cursor.take_words("SUBSET"):
            self._once("SUBSET", token)
            self._subsets = self._subset_list()
        elif cursor.take_words("DEFINE"):
            self._once("DEFINE", token)
            self._definitions = self._definition_list()
        elif token.is_word("INITIAL", "SEEK"):
            raise problem(f"{token.text} belongs to row patterns in windows, not to MATCH_RECOGNIZE", token.at)
        else:
            raise cursor.unexpected(
                "PARTITION BY, ORDER BY, MEASURES, ... ROWS PER MATCH, AFTER MATCH SKIP, PATTERN, SUBSET or DEFINE",
                within="MATCH_RECOGNIZE",
            )

    def _once(self, clause: str, token: Token) -> None:
        if clause in self._seen:
            raise problem(f"{clause} stands twice in MATCH_RECOGNIZE, first at {self._seen[clause]}", token.at)
        self._seen[clause] = token.at

    def _column(self, clause: str) -> Name:
        at = self._cursor.token.at
        node = self._expressions.expression()
        if not isinstance(node, Name):
            raise problem(
                f"{clause} of MATCH_RECOGNIZE takes columns, not expressions",
                at,
                hint="Compute the value in a subquery and give it a name there.",
            )
        return node

    def _columns(self, clause: str) -> tuple[Name, ...]:
        columns = [self._column(clause)]
        while self._cursor.take(","):
            columns.append(self._column(clause))
        return tuple(columns)

    def _order_items(self) -> tuple[OrderItem, ...]:
        cursor = self._cursor
        items: list[OrderItem] = []
        while True:
            column = self._column("ORDER BY")
            descending = cursor.take_words("DESC")
            if not descending:
                cursor.take_words("ASC")
            nulls_first = cursor.take_words("NULLS", "FIRST")
            if not nulls_first:
                cursor.take_words("NULLS", "LAST")
            items.append(OrderItem(column, descending, nulls_first))
            if cursor.take(",") is None:
                return tuple(items)

    def _measure_list(self) -> tuple[Measure, ...]:
        cursor = self._cursor
        measures: list[Measure] = []
        while True:
            expression = self._expressions.expression()
            if not cursor.take_words("AS") and (cursor.token.kind != "word" or cursor.token.text in _CLAUSE_WORDS):
                raise cursor.unexpected("AS and a name for the measure", within="MEASURES")
            alias = cursor.expect_identifier(within="MEASURES", what="a name for the measure")
            measures.append(Measure(expression, _identifier(alias)))
            if cursor.take(",") is None:
                return tuple(measures)

    def _all_rows(self) -> RowsPerMatch:
        cursor = self._cursor
        if cursor.take_words("OMIT", "EMPTY", "MATCHES"):
            return "all omit empty"
        if cursor.take_words("WITH", "UNMATCHED", "ROWS"):
            return "all with unmatched"
        cursor.take_words("SHOW", "EMPTY", "MATCHES")
        return "all show empty"

    def _with_timed_out(self) -> None:
        at = self._cursor.token.at
        if self._cursor.take_words("WITH"):
            self._cursor.expect_words("TIMED", "OUT", "MATCHES", within="ROWS PER MATCH")
            self._timed_out = at

    def _skip_to(self) -> Skip:
        cursor = self._cursor
        at = cursor.token.at
        if cursor.take_words("PAST", "LAST", "ROW"):
            return Skip("past last row", None, at)
        if cursor.take_words("TO", "NEXT", "ROW"):
            return Skip("to next row", None, at)
        cursor.expect_words("TO", within="AFTER MATCH SKIP")
        first = False
        if cursor.peek(1).kind in ("word", "quoted") and not cursor.peek(1).is_word(*_CLAUSE_WORDS):
            first = cursor.take_words("FIRST")
            if not first:
                cursor.take_words("LAST")  # which TO v means anyhow
        variable = cursor.expect_identifier(within="AFTER MATCH SKIP TO", what="NEXT ROW or a variable")
        return Skip("to first" if first else "to last", _identifier(variable), variable.at)

    def _within_interval(self, at: Position) -> dt.timedelta:
        if not self._cursor.token.is_word("INTERVAL"):
            raise self._cursor.unexpected("INTERVAL", within="WITHIN")
        value = self._expressions.interval().value
        if isinstance(value, Months) or not isinstance(value, dt.timedelta):
            raise problem("WITHIN takes an interval of fixed length, such as INTERVAL '10' SECOND", at)
        if value <= dt.timedelta():
            raise problem("the interval of WITHIN must be more than nothing", at)
        return value

    def _subset_list(self) -> tuple[Subset, ...]:
        cursor = self._cursor
        subsets: list[Subset] = []
        while True:
            variable = cursor.expect_identifier(within="SUBSET", what="a variable")
            cursor.expect("=", within="SUBSET")
            cursor.expect("(", within="SUBSET")
            members = [_identifier(cursor.expect_identifier(within="SUBSET", what="a variable"))]
            while cursor.take(","):
                members.append(_identifier(cursor.expect_identifier(within="SUBSET", what="a variable")))
            cursor.expect(")", within="SUBSET")
            subsets.append(Subset(_identifier(variable), tuple(members)))
            if cursor.take(",") is None:
                return tuple(subsets)

    def _definition_list(self) -> tuple[Definition, ...]:
        cursor = self._cursor
        definitions: list[Definition] = []
        while True:
            variable = cursor.expect_identifier(within="DEFINE", what="a variable")
            cursor.expect_words("AS", within="DEFINE")
            definitions.append(Definition(_identifier(variable), self._expressions.expression()))
            if cursor.take(",") is None:
                return tuple(definitions)


def _identifier(token: Token) -> Identifier:
    return Identifier(token.value, token.kind == "quoted", token.at)
