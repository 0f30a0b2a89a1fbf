"""Resolving names: from what was written to what it means, with types, or an error that says where.

The rules are those of the standard for row pattern expressions: PREV and NEXT may hold FIRST or LAST directly and
nothing else of their kind; FIRST, LAST and aggregates hold no navigation and no aggregate, and all columns inside of
one call carry the same variable; FINAL is for MEASURES only.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import polars as pl

from headrace.cep.sql import coercion
from headrace.cep.sql.aggregates import AGGREGATES, NUMERIC_ONLY, ORDERING, takes_numbers
from headrace.cep.sql.bound import (
    Aggregate,
    Bound,
    ColumnValue,
    Constant,
    DataType,
    MatchNumber,
    Navigation,
    Operation,
    RowLabel,
    walk,
)
from headrace.cep.sql.datatypes import BOOLEAN, fields, spoken, type_of, type_of_value
from headrace.cep.sql.dates import UNIT_WORDS
from headrace.cep.sql.functions import FUNCTIONS
from headrace.cep.sql.lexer import Position, problem
from headrace.cep.sql.pattern import MAX_BOUND
from headrace.cep.sql.syntax import (
    AllRows,
    Call,
    Cast,
    Expression,
    Identifier,
    LiteralValue,
    Name,
    Subquery,
)

_LOGICAL: Final = frozenset({"first", "last"})
_PHYSICAL: Final = frozenset({"prev", "next"})
_PATTERN_FUNCTIONS: Final = (
    _LOGICAL | _PHYSICAL | {"classifier", "match_number", "match_rowtime", "match_sequence_number"}
)
_OTHER_NAMES: Final = {"lag": "prev", "lead": "next"}
_NO_LABELS: Final = object()

SubqueryRunner = Callable[[str, Position], pl.DataFrame]


@dataclass(frozen=True)
class Names:
    """What the names in a MATCH_RECOGNIZE clause can mean.

    Args:
        columns: Columns of the input and their types.
        variables: Primary variables, those of the pattern.
        unions: Union variables of SUBSET and their members.
        run: Evaluates a subquery.
        time_column: The first column of ORDER BY, if it is a time.
    """

    columns: Mapping[str, DataType]
    variables: frozenset[str]
    unions: Mapping[str, frozenset[str]] = field(default_factory=dict)
    run: SubqueryRunner | None = None
    time_column: str | None = None

    def labels(self, label: str) -> frozenset[str] | None:
        """The primary variables a name stands for, or None if it is no variable."""
        return self.unions.get(label, frozenset({label}) if label in self.variables else None)

    def column(self, name: Identifier) -> str | None:
        """The column of that name; case does not matter unless it decides between two."""
        if name.text in self.columns:
            return name.text
        found = [column for column in self.columns if column.lower() == name.text.lower()]
        if len(found) > 1:
            raise problem(
                f"column {name.text} is ambiguous: {', '.join(found)}", name.at, hint="Quote the one you mean."
            )
        return found[0] if found else None


@dataclass
class _Scope:
    """Inside of a navigation or an aggregate: which call, and the labels its columns carry."""

    function: str
    at: Position
    labels: Any = _NO_LABELS

    def carry(self, labels: frozenset[str] | None) -> None:
        if self.labels is _NO_LABELS:
            self.labels = labels
        elif self.labels != labels:
            raise problem(
                f"the columns and classifiers inside of {self.function.upper()} belong to different variables",
                self.at,
                hint="Use one variable in a call, and combine the results of several calls.",
            )

    @property
    def found(self) -> frozenset[str] | None:
        return None if self.labels is _NO_LABELS else self.labels


class Binder:
    """Binds the expressions of one clause.

    Args:
        names: What names can mean.
        clause: DEFINE knows no FINAL.
    """

    def __init__(self, names: Names, clause: Literal["MEASURES", "DEFINE"]) -> None:
        self._names = names
        self._clause = clause

    def measure(self, expression: Expression) -> Bound:
        """Binds a measure."""
        return coercion.settle(self._bind(expression, None))

    def condition(self, expression: Expression) -> Bound:
        """Binds a DEFINE condition, which must be boolean."""
        node = self._bind(expression, None)
        if not isinstance(node.type, pl.Boolean | pl.Null):
            raise problem(f"a condition in DEFINE must be boolean, this one is {spoken(node.type)}", _at(expression))
        return node

    def _bind(self, node: Expression, scope: _Scope | None) -> Bound:
        match node:
            case LiteralValue(value=value):
                return Constant(value, type_of_value(value))
            case Name():
                return self._name(node, scope)
            case Cast():
                operand = self._bind(node.operand, scope)
                return coercion.cast(operand, type_of(node.type), node.type, node.at, safe=node.safe)
            case AllRows():
                raise problem("'*' is only allowed as the argument of COUNT", node.at)
            case Subquery():
                raise problem("a subquery is not allowed here", node.at)
            case Call():
                return self._call(node, scope)

    # Names

    def _name(self, node: Name, scope: _Scope | None) -> Bound:
        parts = node.parts
        labels: frozenset[str] | None = None
        if len(parts) > 1:
            labels = self._names.labels(parts[0].label)
        if labels is not None:
            column, rest = parts[1], parts[2:]
        else:
            column, rest = parts[0], parts[1:]
        found = self._names.column(column)
        if found is None or (rest and not isinstance(self._names.columns[found], pl.Struct)):
            raise self._unknown(node, labels is not None)
        value: Bound = ColumnValue(found, self._names.columns[found])
        for part in rest:
            value = self._field(value, part)
        return self._at_row(value, labels, scope)

    def _at_row(self, value: Bound, labels: frozenset[str] | None, scope: _Scope | None) -> Bound:
        if scope is None:
            return Navigation(value, labels, first=False, offset=0, final=False, shift=0, type=value.type)
        scope.carry(labels)
        return value

    def _field(self, value: Bound, part: Identifier) -> Bound:
        known = fields(value.type)
        name = next((name for name in known if name.lower() == part.text.lower()), None)
        if name is None:
            raise problem(f"there is no field {part.text}", part.at, hint=f"Fields: {', '.join(known) or 'none'}.")
        return Operation("field", (value, Constant(name, pl.String())), known[name], part.at)

    def _unknown(self, node: Name, labelled: bool) -> Exception:
        text = ".".join(part.text for part in node.parts)
        columns = ", ".join(self._names.columns) or "none"
        if len(node.parts) == 1:
            return problem(f"unknown column {text}", node.at, hint=f"Columns: {columns}.")
        if labelled:
            return problem(
                f"unknown column {node.parts[1].text} in {text}", node.parts[1].at, hint=f"Columns: {columns}."
            )
        variables = ", ".join(sorted(self._names.variables | set(self._names.unions)))
        return problem(
            f"{node.parts[0].text} in {text} is not a variable of the pattern", node.at, hint=f"Variables: {variables}."
        )

    # Calls

    def _call(self, node: Call, scope: _Scope | None) -> Bound:
        name = node.name
        if name in _OTHER_NAMES and not node.quoted:
            node = replace(node, name=_OTHER_NAMES[name])
            name = node.name
        if name in _PATTERN_FUNCTIONS and not node.quoted:
            return self._pattern_function(node, scope)
        if name in AGGREGATES and not (name == "every" and node.quoted):
            return self._aggregate(node, scope)
        if node.semantics is not None:
            raise problem(f"{node.semantics} belongs before FIRST, LAST or an aggregate, not before {name}", node.at)
        if node.refused:
            raise problem(f"{node.refused} is not allowed with {name} in a row pattern", node.at)
        match name:
            case "scalar_subquery" | "exists" | "in_subquery":
                return self._subquery(node, scope)
            case "current_date":
                return Constant(dt.datetime.now(dt.UTC).date(), pl.Date())
            case "current_timestamp" | "localtimestamp" | "now":
                now = dt.datetime.now(dt.UTC)
                return Constant(now, type_of_value(now))
            case _ if name in UNIT_WORDS:
                return self._operation(
                    node, [_unit_word(node), *(self._bind(item, scope) for item in node.arguments[1:])]
                )
            case _:
                return self._operation(node, [self._bind(item, scope) for item in node.arguments])

    def _operation(self, node: Call, operands: list[Bound]) -> Bound:
        choice = coercion.choice(node.name, operands, node.at)
        if choice is not None:
            return choice
        function = FUNCTIONS.get(node.name)
        if function is None:
            raise problem(f"unknown function {node.name}", node.at, hint="docs/match-recognize.md lists the functions.")
        count = len(operands)
        if count < function.least or (function.most is not None and count > function.most):
            wanted = str(function.least) if function.least == function.most else f"{function.least} to {function.most}"
            raise problem(f"{node.name} takes {wanted} arguments, not {count}", node.at)
        return coercion.operation(node.name, function, operands, node.at)

    def _subquery(self, node: Call, scope: _Scope | None) -> Bound:
        query = node.arguments[-1]
        if not isinstance(query, Subquery) or self._names.run is None:
            raise problem("subqueries are not supported here", node.at)
        frame = self._names.run(query.text, query.at)
        if node.name == "exists":
            return Constant(frame.height > 0, BOOLEAN)
        if frame.width != 1:
            raise problem(f"the subquery must have one column, it has {frame.width}", query.at)
        values = frame.to_series().to_list()
        if node.name == "in_subquery":
            subject = self._bind(node.arguments[0], scope)
            if not values:
                return Constant(False, BOOLEAN)
            items = [Constant(value, frame.dtypes[0]) for value in values]
            return coercion.operation("in", FUNCTIONS["in"], [subject, *items], node.at)
        if len(values) > 1:
            raise problem(f"the subquery must have at most one row, it has {len(values)}", query.at)
        return Constant(values[0] if values else None, frame.dtypes[0])

    # Row pattern functions

    def _pattern_function(self, node: Call, scope: _Scope | None) -> Bound:
        name = node.name
        if node.refused:
            raise problem(f"{node.refused} is not allowed with {name.upper()}", node.at)
        if node.semantics == "FINAL" and name not in _LOGICAL:
            raise problem(f"FINAL is not allowed with {name.upper()}", node.at)
        self._check_final(node)
        match name:
            case "match_number":
                if node.arguments:
                    raise problem("MATCH_NUMBER takes no arguments", node.at)
                return MatchNumber()
            case "match_sequence_number":
                return Aggregate("count", (), None, final=False, type=pl.Int64())
            case "match_rowtime":
                return self._match_rowtime(node)
            case "classifier":
                return self._at_row(RowLabel(), self._classifier_labels(node), scope)
            case _:
                if scope is not None:
                    raise problem(f"{name.upper()} cannot stand inside of {scope.function.upper()}", node.at)
                return self._navigation(node)

    def _match_rowtime(self, node: Call) -> Bound:
        """An extension of Flink's: the time of the last row of the match."""
        if node.arguments:
            return self._logical(node, first=False, offset=0, final=self._clause == "MEASURES")
        column = self._names.time_column
        if column is None:
            raise problem("MATCH_ROWTIME() needs ORDER BY with a timestamp column first", node.at)
        value = ColumnValue(column, self._names.columns[column])
        return Navigation(
            value, None, first=False, offset=0, final=self._clause == "MEASURES", shift=0, type=value.type
        )

    def _check_final(self, node: Call) -> None:
        if node.semantics == "FINAL" and self._clause == "DEFINE":
            raise problem("FINAL is not allowed in DEFINE: the match is not complete there", node.at)

    def _classifier_labels(self, node: Call) -> frozenset[str] | None:
        if len(node.arguments) > 1:
            raise problem("CLASSIFIER takes no argument or one variable", node.at)
        return self._label(node.arguments[0], "CLASSIFIER") if node.arguments else None

    def _label(self, node: Expression, function: str) -> frozenset[str]:
        if not isinstance(node, Name) or len(node.parts) != 1:
            raise problem(f"the argument of {function} must be a variable of the pattern", _at(node))
        return self._labels_of(node.parts[0])

    def _labels_of(self, name: Identifier) -> frozenset[str]:
        labels = self._names.labels(name.label)
        if labels is None:
            variables = ", ".join(sorted(self._names.variables | set(self._names.unions)))
            raise problem(f"{name.text} is not a variable of the pattern", name.at, hint=f"Variables: {variables}.")
        return labels

    def _navigation(self, node: Call) -> Navigation:
        if not 1 <= len(node.arguments) <= 2:
            raise problem(f"{node.name.upper()} takes a value and, if you like, an offset", node.at)
        inner = node.arguments[0]
        if node.name in _LOGICAL:
            return self._logical(node, node.name == "first", self._offset(node, 0), node.semantics == "FINAL")
        distance = self._offset(node, 1)
        shift = -distance if node.name == "prev" else distance
        if isinstance(inner, Call) and not inner.quoted and inner.name in _LOGICAL:
            if inner.refused or not 1 <= len(inner.arguments) <= 2:
                raise problem(f"{inner.name.upper()} takes a value and, if you like, an offset", inner.at)
            self._check_final(inner)
            found = self._logical(inner, inner.name == "first", self._offset(inner, 0), inner.semantics == "FINAL")
        else:
            found = self._logical(node, False, 0, False)
        return Navigation(found.body, found.labels, found.first, found.offset, found.final, shift, found.type)

    def _logical(self, node: Call, first: bool, offset: int, final: bool) -> Navigation:
        scope = _Scope(node.name, node.at)
        body = coercion.settle(self._bind(node.arguments[0], scope))
        if not any(isinstance(item, ColumnValue | RowLabel) for item in walk(body)):
            raise problem(f"{node.name.upper()} must hold a column or CLASSIFIER()", node.at)
        return Navigation(body, scope.found, first, offset, final, 0, body.type)

    def _offset(self, node: Call, default: int) -> int:
        if len(node.arguments) < 2:
            return default
        given = node.arguments[1]
        value = given.value if isinstance(given, LiteralValue) else None
        if isinstance(value, bool) or not isinstance(value, int):
            raise problem(f"the offset of {node.name.upper()} must be a whole number", _at(given))
        if value < 0:
            raise problem(f"the offset of {node.name.upper()} must not be negative", _at(given))
        if value > MAX_BOUND:
            raise problem(f"the offset of {node.name.upper()} must not exceed {MAX_BOUND}", _at(given))
        return value

    def _aggregate(self, node: Call, scope: _Scope | None) -> Bound:
        name = node.name
        if scope is not None:
            raise problem(f"aggregate {name} cannot stand inside of {scope.function.upper()}", node.at)
        if node.refused:
            raise problem(f"{node.refused} is not allowed with aggregate {name} in a row pattern", node.at)
        self._check_final(node)
        function = AGGREGATES[name]
        inner = _Scope(name, node.at)
        if any(isinstance(argument, AllRows) for argument in node.arguments):
            return self._count_rows(node)
        arguments = tuple(coercion.settle(self._bind(argument, inner)) for argument in node.arguments)
        if not function.least <= len(arguments) <= function.most:
            raise problem(f"aggregate {name} takes {function.least} to {function.most} arguments", node.at)
        types = [argument.type for argument in arguments]
        if name in NUMERIC_ONLY and not takes_numbers(name, types[0]):
            raise problem(f"aggregate {name} takes numbers, not {spoken(types[0])}", node.at)
        if name in ORDERING:
            coercion.check_orderable(types[ORDERING[name]], f"aggregate {name}", node.at)
        return Aggregate(name, arguments, inner.found, node.semantics == "FINAL", function.result(types))

    def _count_rows(self, node: Call) -> Aggregate:
        star = node.arguments[0]
        if node.name != "count" or len(node.arguments) != 1 or not isinstance(star, AllRows):
            raise problem("'*' is only allowed as the one argument of COUNT", node.at)
        labels = None if star.label is None else self._labels_of(star.label)
        return Aggregate("count", (), labels, node.semantics == "FINAL", pl.Int64())


def _unit_word(node: Call) -> Constant:
    unit = node.arguments[0] if node.arguments else None
    if isinstance(unit, Name) and len(unit.parts) == 1:
        return Constant(unit.parts[0].text.lower(), pl.String())
    if isinstance(unit, LiteralValue) and isinstance(unit.value, str):
        return Constant(unit.value.lower(), pl.String())
    raise problem(f"{node.name} begins with a unit such as SECOND", node.at)


def _at(node: Expression) -> Position:
    return node.at
