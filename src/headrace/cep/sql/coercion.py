"""How operands of different types meet, and which types an operation takes."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.cep.sql.bound import Bound, Constant, DataType, Operation
from headrace.cep.sql.datatypes import (
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    INTEGER,
    MONTHS,
    NULL,
    STRING,
    common,
    is_map,
    is_string,
    spoken,
    type_of_value,
)
from headrace.cep.sql.dates import aware, is_time
from headrace.cep.sql.lexer import Position, problem
from headrace.cep.sql.literals import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cep.sql.functions import Function
    from headrace.cep.sql.syntax import TypeName

# fmt: off
_COMPARING: Final = frozenset({
    "=", "<>", "<", "<=", ">", ">=", "in", "is_distinct", "nullif", "greatest", "least", "array",
})
# fmt: on
_ORDERING: Final = frozenset({"<", "<=", ">", ">=", "greatest", "least"})
_ARITHMETIC: Final = frozenset({"+", "-", "*", "/", "%", "mod"})
# fmt: off
_TEXT: Final = frozenset({
    "like", "ilike", "lower", "upper", "trim", "ltrim", "rtrim", "substring", "substr", "replace", "strpos",
    "lpad", "rpad", "split", "split_part", "starts_with", "ends_with", "regexp_like", "regexp_extract",
    "regexp_replace", "codepoint",
})
# fmt: on
# fmt: off
_NUMERIC: Final = frozenset({
    "negate", "abs", "sign", "round", "floor", "ceil", "ceiling", "truncate", "sqrt", "cbrt", "power", "pow",
    "exp", "ln", "log", "log2", "log10", "sin", "cos", "tan", "atan2", "radians", "degrees", "is_nan", "chr",
})
# fmt: on
_LOGIC: Final = frozenset({"and", "or"})
_COALESCE: Final = frozenset({"coalesce", "nvl", "ifnull"})


def settle(node: Bound) -> Bound:
    """A decimal literal that met no decimal is a double."""
    if isinstance(node, Constant) and isinstance(node.value, Decimal):
        return Constant(float(node.value), DOUBLE)
    return node


def _is_decimal_literal(node: Bound) -> bool:
    return isinstance(node, Constant) and isinstance(node.value, Decimal)


def cast(operand: Bound, target: DataType, name: TypeName, at: Position, *, safe: bool) -> Bound:
    """CAST as written, with the length of a varchar."""
    limit = next((size for size in name.parameters if isinstance(size, int)), None) if target == STRING else None
    return Operation("try_cast" if safe else "cast", (operand, Constant(limit, INTEGER)), target, at)


def brought(node: Bound, target: DataType, at: Position) -> Bound:
    """The node as a value of another type, if it is not one already."""
    if node.type == target or isinstance(node.type, pl.Null):
        return node
    if isinstance(node, Constant):
        value = _constant(node.value, target)
        if value is not None:
            return Constant(value, target)
    if (is_string(node.type) and target == STRING) or (node.type.is_integer() and target.is_integer()):
        return node
    if isinstance(node.type, pl.Duration) and isinstance(target, pl.Duration):
        return node
    return Operation("cast", (node, Constant(None, INTEGER)), target, at)


def _constant(value: Any, target: DataType) -> Any:
    """A constant as another type; None if it must be cast like any value."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float | Decimal):
        if target.is_float():
            return float(value)
        if isinstance(target, pl.Decimal) and not isinstance(value, float):
            return Decimal(value)
    if isinstance(target, pl.Datetime) and isinstance(value, dt.date):
        moment = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001
        return aware(moment) if target.time_zone else moment
    return None


def unify(operands: Sequence[Bound], what: str, at: Position) -> list[Bound]:
    """Brings operands to one type, or says that there is none."""
    nodes = list(operands)
    if not any(isinstance(node.type, pl.Decimal) and not _is_decimal_literal(node) for node in nodes):
        nodes = [settle(node) for node in nodes]
    if any(isinstance(node.type, pl.Duration) for node in nodes):
        nodes = [_as_days(node) for node in nodes]
    times = [node.type for node in nodes if is_time(node.type)]
    if times:
        nodes = [_as_time(node, times, at) for node in nodes]
    target = common([node.type for node in nodes])
    if target is None:
        kinds = sorted({spoken(node.type) for node in nodes if not isinstance(node.type, pl.Null)})
        raise problem(
            f"{what} cannot take {' and '.join(kinds)} together", at, hint="Use CAST to make the types agree."
        )
    return [brought(node, target, at) for node in nodes]


def _as_days(node: Bound) -> Bound:
    """A number beside an interval counts days, as in Oracle."""
    if isinstance(node, Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return Constant(dt.timedelta(days=node.value), DURATION)
    return node


def _as_time(node: Bound, times: Sequence[DataType], at: Position) -> Bound:
    """A text literal beside a date or timestamp is read as one."""
    if not (isinstance(node, Constant) and isinstance(node.value, str)):
        return node
    try:
        if all(kind == DATE for kind in times) and len(node.value.strip()) <= 10:
            return Constant(dt.date.fromisoformat(node.value.strip()), DATE)
        value = parse_timestamp(node.value)
    except ValueError:
        raise problem(f"{node.value!r} is not a date or timestamp", at) from None
    return Constant(value, type_of_value(value))


def choice(name: str, operands: list[Bound], at: Position) -> Bound | None:
    """AND, OR, CASE, IF, COALESCE and BETWEEN, which are not plain functions; None for all others."""
    if name in _LOGIC:
        for operand in operands:
            if not isinstance(operand.type, pl.Boolean | pl.Null):
                raise problem(f"{name.upper()} takes conditions, not {spoken(operand.type)}", at)
        return Operation(name, tuple(operands), BOOLEAN, at)
    if name in _COALESCE:
        if not operands:
            raise problem(f"{name} needs an argument", at)
        values = unify(operands, name.upper(), at)
        return Operation("coalesce", tuple(values), _type(values), at)
    if name in ("if", "iff"):
        if not 2 <= len(operands) <= 3:
            raise problem("IF takes a condition and one or two values", at)
        operands = operands if len(operands) == 3 else [*operands, Constant(None, NULL)]
        name = "case"
    if name == "case":
        conditions, values = operands[:-1:2], [*operands[1::2], operands[-1]]
        for condition in conditions:
            if not isinstance(condition.type, pl.Boolean | pl.Null):
                raise problem(f"WHEN takes a condition, not {spoken(condition.type)}", at)
        values = unify(values, "CASE", at)
        parts = [part for pair in zip(conditions, values, strict=False) for part in pair]
        return Operation("case", (*parts, values[-1]), _type(values), at)
    if name == "between":
        value, low, high = unify(operands, "BETWEEN", at)
        check_orderable(value.type, "BETWEEN", at)
        bounds = (Operation(">=", (value, low), BOOLEAN, at), Operation("<=", (value, high), BOOLEAN, at))
        return Operation("and", bounds, BOOLEAN, at)
    return None


def _type(values: Sequence[Bound]) -> DataType:
    return common([value.type for value in values]) or NULL


def operation(name: str, function: Function, operands: list[Bound], at: Position) -> Bound:
    """A checked call of a function."""
    if name in _COMPARING:
        operands = unify(operands, f"{name.upper()}", at)
        if name in _ORDERING:
            check_orderable(operands[0].type, name.upper(), at)
    elif name in _ARITHMETIC:
        return _arithmetic(name, function, operands, at)
    elif name in ("||", "concat"):
        if not any(isinstance(operand.type, pl.List) for operand in operands):
            operands = [brought(settle(operand), STRING, at) for operand in operands]
    elif name in _TEXT and not isinstance(operands[0].type, pl.Null) and not is_string(operands[0].type):
        raise problem(f"{name} takes text, not {spoken(operands[0].type)}", at)
    elif name in _NUMERIC:
        operands = [settle(operand) for operand in operands]
        kind = operands[0].type
        if not (kind.is_numeric() or isinstance(kind, pl.Null) or (name in ("negate", "abs") and _is_interval(kind))):
            raise problem(f"{name} takes numbers, not {spoken(kind)}", at)
    elif name == "not" and not isinstance(operands[0].type, pl.Boolean | pl.Null):
        raise problem(f"NOT takes a condition, not {spoken(operands[0].type)}", at)
    else:
        operands = [settle(operand) for operand in operands]
    return Operation(name, tuple(operands), function.result([operand.type for operand in operands]), at)


def check_orderable(kind: DataType, what: str, at: Position) -> None:
    """Refuses types that know no greater and smaller."""
    if isinstance(kind, pl.Struct | pl.Object) or is_map(kind):
        raise problem(f"{what} cannot order values of type {spoken(kind)}", at, hint="Compare one of the fields.")


def _is_interval(kind: DataType) -> bool:
    return isinstance(kind, pl.Duration) or kind == MONTHS


def _arithmetic(name: str, function: Function, operands: list[Bound], at: Position) -> Bound:
    left, right = operands
    kinds = (left.type, right.type)
    if all(kind.is_numeric() or isinstance(kind, pl.Null) for kind in kinds):
        nodes = unify(operands, name, at)
        return Operation(name, tuple(nodes), function.result([node.type for node in nodes]), at)
    if is_time(left.type) and isinstance(right, Constant):
        right = _as_days(settle(right))
    result = _time_arithmetic(name, left.type, right.type)
    if result is None:
        raise problem(f"{name} cannot take {spoken(left.type)} and {spoken(right.type)}", at)
    if is_time(left.type) and is_time(right.type):
        left, right = unify([left, right], name, at)
    return Operation(name, (left, right), result, at)


def _time_arithmetic(name: str, left: DataType, right: DataType) -> DataType | None:
    """Result type of arithmetic with dates and intervals, or None if there is no such."""
    if name == "-" and is_time(left) and is_time(right):
        return DURATION
    if name in ("+", "-") and is_time(left) and _is_interval(right):
        return left
    if name == "+" and _is_interval(left) and is_time(right):
        return right
    if name in ("+", "-") and _is_interval(left) and left == right:
        return left
    if isinstance(left, pl.Duration) and name in ("*", "/") and right.is_numeric():
        return DURATION
    if isinstance(right, pl.Duration) and name == "*" and left.is_numeric():
        return DURATION
    if isinstance(left, pl.Duration) and isinstance(right, pl.Duration) and name == "/":
        return DOUBLE
    return None
