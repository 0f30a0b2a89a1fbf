"""Evaluating bound expressions, in two ways that agree.

`compile_function` makes a Python function of an expression, once; it serves where values depend on the match being
tried, and knows everything. `compile_columns` makes a Polars expression of it, for whole columns at once; it knows the
operations that people use most and answers None for the others. What stands at the leaves (columns, navigations,
aggregates) is given by the caller: a list to read from, a column to select.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.bound import Bound, Constant, DataType, Operation
from headrace.cep.sql.casting import caster
from headrace.cep.sql.datatypes import BOOLEAN, DOUBLE, INTEGER, STRING, is_string, spoken
from headrace.cep.sql.functions import FUNCTIONS
from headrace.cep.sql.syntax import Months
from headrace.errors import JobError

if TYPE_CHECKING:
    from headrace.cep.sql.lexer import Position

Evaluator: TypeAlias = Callable[[Any], Any]
LeafFunction: TypeAlias = Callable[[Bound], Evaluator]
LeafColumn: TypeAlias = Callable[[Bound], pl.Expr | None]

_EVALUATION_ERRORS: Final = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)


def compile_function(node: Bound, leaf: LeafFunction) -> Evaluator:
    """Compiles an expression to a function of whatever environment its leaves read."""
    if isinstance(node, Constant):
        value = node.value
        return lambda _: value
    if isinstance(node, Operation):
        return _operation(node, [compile_function(operand, leaf) for operand in node.operands])
    return leaf(node)


def _operation(node: Operation, operands: list[Evaluator]) -> Evaluator:
    match node.name:
        case "and":
            return _and(operands)
        case "or":
            return _or(operands)
        case "case":
            return _case(operands)
        case "coalesce":
            return _coalesce(operands)
        case "cast" | "try_cast":
            return _cast(node, operands[0])
        case _:
            function = FUNCTIONS[node.name]
            apply = _checked(function.evaluate, node)
            return _strict(apply, operands) if function.strict else _lenient(apply, operands)


def _checked(evaluate: Callable[..., Any], node: Operation) -> Callable[..., Any]:
    # Comparisons and sums of checked types cannot fail: they are called without a guard, as they are called most.
    nested = any(operand.type.is_nested() for operand in node.operands)
    if not nested and node.name in ("=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "not", "is_null", "in", "||"):
        return evaluate

    def guarded(*values: Any) -> Any:
        try:
            return evaluate(*values)
        except _EVALUATION_ERRORS as error:
            given = ", ".join(repr(value) for value in values)
            raise _failed(node.at, f"{node.name} cannot work on {given}: {error}") from error

    return guarded


def _failed(at: Position, message: str) -> JobError:
    return JobError(f"{at}: {message}")


def _strict(apply: Callable[..., Any], operands: list[Evaluator]) -> Evaluator:
    if len(operands) == 2:
        first, second = operands

        def binary(environment: Any) -> Any:
            left = first(environment)
            if left is None:
                return None
            right = second(environment)
            return None if right is None else apply(left, right)

        return binary
    if len(operands) == 1:
        only = operands[0]

        def unary(environment: Any) -> Any:
            value = only(environment)
            return None if value is None else apply(value)

        return unary

    def general(environment: Any) -> Any:
        values = [operand(environment) for operand in operands]
        return None if any(value is None for value in values) else apply(*values)

    return general


def _lenient(apply: Callable[..., Any], operands: list[Evaluator]) -> Evaluator:
    return lambda environment: apply(*(operand(environment) for operand in operands))


def _and(operands: list[Evaluator]) -> Evaluator:
    def conjunction(environment: Any) -> bool | None:
        unknown = False
        for operand in operands:
            value = operand(environment)
            if value is False:
                return False
            unknown = unknown or value is None
        return None if unknown else True

    return conjunction


def _or(operands: list[Evaluator]) -> Evaluator:
    def disjunction(environment: Any) -> bool | None:
        unknown = False
        for operand in operands:
            value = operand(environment)
            if value is True:
                return True
            unknown = unknown or value is None
        return None if unknown else False

    return disjunction


def _case(operands: list[Evaluator]) -> Evaluator:
    branches = list(zip(operands[:-1:2], operands[1::2], strict=True))
    otherwise = operands[-1]

    def choose(environment: Any) -> Any:
        for condition, value in branches:
            if condition(environment) is True:
                return value(environment)
        return otherwise(environment)

    return choose


def _coalesce(operands: list[Evaluator]) -> Evaluator:
    def first_known(environment: Any) -> Any:
        for operand in operands:
            value = operand(environment)
            if value is not None:
                return value
        return None

    return first_known


def _cast(node: Operation, operand: Evaluator) -> Evaluator:
    limit = node.operands[1]
    convert = caster(node.type, limit.value if isinstance(limit, Constant) else None)
    safe = node.name == "try_cast"

    def cast(environment: Any) -> Any:
        value = operand(environment)
        if value is None:
            return None
        try:
            return convert(value)
        except _EVALUATION_ERRORS as error:
            if safe:
                return None
            raise _failed(node.at, f"cannot cast {value!r} to {spoken(node.type)}") from error

    return cast


# Whole columns


def compile_columns(node: Bound, leaf: LeafColumn) -> pl.Expr | None:
    """Compiles an expression to one over columns, or None if a part of it has no exact counterpart in Polars."""
    if isinstance(node, Constant):
        return _literal(node)
    if not isinstance(node, Operation):
        return leaf(node)
    if node.name in ("cast", "try_cast"):
        return _cast_column(node, leaf)
    build = _COLUMN_OPERATIONS.get(node.name)
    if build is None:
        return None
    operands: list[pl.Expr] = []
    for operand in node.operands:
        column = compile_columns(operand, leaf)
        if column is None:
            return None
        operands.append(column)
    return build(node, operands)


def _literal(node: Constant) -> pl.Expr | None:
    value = node.value
    if isinstance(value, bool | int | float | str | None):
        if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
            return None
        return pl.lit(value, dtype=None if value is None else node.type)
    if isinstance(value, dt.datetime | dt.date | dt.timedelta):
        return pl.lit(value, dtype=node.type)
    return None


def _cast_column(node: Operation, leaf: LeafColumn) -> pl.Expr | None:
    source = node.operands[0].type
    widening = (source.is_integer() and (node.type == INTEGER or node.type == DOUBLE)) or (
        source.is_float() and node.type == DOUBLE
    )
    if not widening or source == pl.UInt64():
        return None
    operand = compile_columns(node.operands[0], leaf)
    return None if operand is None else operand.cast(node.type)


_Build: TypeAlias = Callable[[Operation, list[pl.Expr]], pl.Expr | None]


def _simple(kind: DataType) -> bool:
    return kind.is_integer() or kind.is_float() or isinstance(kind, pl.Boolean | pl.Null) or is_string(kind)


def _comparison(compare: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> _Build:
    def build(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
        for operand in node.operands:
            # Polars orders NaN above all numbers and Python does not; only columns of doubles can hold one.
            if operand.type.is_float() and not isinstance(operand, Constant):
                return _without_nan(node, operands, compare)
            if not (_simple(operand.type) or isinstance(operand.type, pl.Date | pl.Datetime | pl.Duration)):
                return None
        return compare(_text(node.operands[0], operands[0]), _text(node.operands[1], operands[1]))

    return build


def _text(node: Bound, column: pl.Expr) -> pl.Expr:
    return column.cast(STRING) if isinstance(node.type, pl.Categorical | pl.Enum) else column


def _without_nan(node: Operation, operands: list[pl.Expr], compare: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    result = compare(operands[0], operands[1])
    for operand, column in zip(node.operands, operands, strict=True):
        if operand.type.is_float() and not isinstance(operand, Constant):
            wrong = pl.lit(node.name == "<>")
            result = pl.when(column.is_nan() & result.is_not_null()).then(wrong).otherwise(result)
    return result


def _arithmetic(combine: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> _Build:
    def build(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
        kinds = [operand.type for operand in node.operands]
        if any(isinstance(kind, pl.Null) for kind in kinds):
            return pl.lit(None, dtype=node.type)
        if node.type == INTEGER and all(kind.is_integer() for kind in kinds):
            return combine(operands[0].cast(INTEGER), operands[1].cast(INTEGER))
        if node.type == DOUBLE and all(kind.is_numeric() for kind in kinds):
            return combine(operands[0].cast(DOUBLE), operands[1].cast(DOUBLE))
        months = any(isinstance(operand, Constant) and isinstance(operand.value, Months) for operand in node.operands)
        if (
            node.name in ("+", "-")
            and not months
            and all(isinstance(kind, pl.Datetime | pl.Duration) for kind in kinds)
        ):
            return combine(operands[0], operands[1]).cast(node.type)
        return None

    return build


def _division(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if node.type == DOUBLE and all(operand.type.is_numeric() for operand in node.operands):
        return operands[0].cast(DOUBLE) / operands[1].cast(DOUBLE)
    if node.type == INTEGER and all(operand.type.is_integer() for operand in node.operands):
        left, right = operands[0].cast(INTEGER), operands[1].cast(INTEGER)
        return (left.abs() // right.abs()) * left.sign() * right.sign()
    return None


def _remainder(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if node.type == INTEGER and all(operand.type.is_integer() for operand in node.operands):
        left, right = operands[0].cast(INTEGER), operands[1].cast(INTEGER)
        return (left.abs() % right.abs()) * left.sign()
    return None


def _all_true(_: Operation, operands: list[pl.Expr]) -> pl.Expr:
    return pl.all_horizontal([operand.cast(BOOLEAN) for operand in operands])


def _any_true(_: Operation, operands: list[pl.Expr]) -> pl.Expr:
    return pl.any_horizontal([operand.cast(BOOLEAN) for operand in operands])


def _choose(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if not _simple(node.type) or isinstance(node.type, pl.Null):
        return None
    result = operands[-1].cast(node.type)
    for condition, value in reversed(list(zip(operands[:-1:2], operands[1::2], strict=True))):
        result = pl.when(condition.cast(BOOLEAN)).then(value.cast(node.type)).otherwise(result)
    return result


def _first_known(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if not _simple(node.type) or isinstance(node.type, pl.Null):
        return None
    return pl.coalesce([operand.cast(node.type) for operand in operands])


def _membership(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if not all(_simple(operand.type) and not operand.type.is_float() for operand in node.operands):
        return None
    if any(isinstance(operand.type, pl.Null) for operand in node.operands):
        return None
    subject = _text(node.operands[0], operands[0])
    return pl.any_horizontal([subject == item for item in operands[1:]])


def _concatenation(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
    if node.type != STRING or not all(is_string(operand.type) for operand in node.operands):
        return None
    return pl.concat_str([operand.cast(STRING) for operand in operands], ignore_nulls=False)


def _on_text(apply: Callable[[pl.Expr], pl.Expr]) -> _Build:
    def build(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
        return apply(operands[0]) if node.operands[0].type == STRING and len(operands) == 1 else None

    return build


def _on_number(apply: Callable[[pl.Expr], pl.Expr]) -> _Build:
    def build(node: Operation, operands: list[pl.Expr]) -> pl.Expr | None:
        kind = node.operands[0].type
        if kind.is_integer():
            return apply(operands[0].cast(INTEGER))
        return apply(operands[0]) if kind == DOUBLE else None

    return build


def _negate(column: pl.Expr) -> pl.Expr:
    return -column


def _not(_: Operation, operands: list[pl.Expr]) -> pl.Expr:
    return ~operands[0].cast(BOOLEAN)


def _is_null(_: Operation, operands: list[pl.Expr]) -> pl.Expr:
    return operands[0].is_null()


def _is_true(_: Operation, operands: list[pl.Expr]) -> pl.Expr:
    return operands[0].cast(BOOLEAN).fill_null(value=False)


_COLUMN_OPERATIONS: Final[dict[str, _Build]] = {
    "=": _comparison(lambda left, right: left == right),
    "<>": _comparison(lambda left, right: left != right),
    "<": _comparison(lambda left, right: left < right),
    "<=": _comparison(lambda left, right: left <= right),
    ">": _comparison(lambda left, right: left > right),
    ">=": _comparison(lambda left, right: left >= right),
    "+": _arithmetic(lambda left, right: left + right),
    "-": _arithmetic(lambda left, right: left - right),
    "*": _arithmetic(lambda left, right: left * right),
    "/": _division,
    "%": _remainder,
    "mod": _remainder,
    "and": _all_true,
    "or": _any_true,
    "not": _not,
    "is_null": _is_null,
    "is_true": _is_true,
    "case": _choose,
    "coalesce": _first_known,
    "in": _membership,
    "||": _concatenation,
    "lower": _on_text(lambda column: column.str.to_lowercase()),
    "upper": _on_text(lambda column: column.str.to_uppercase()),
    "length": _on_text(lambda column: column.str.len_chars().cast(INTEGER)),
    "abs": _on_number(lambda column: column.abs()),
    "negate": _on_number(_negate),
}
