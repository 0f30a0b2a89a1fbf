"""Functions of numbers, and of values of any type."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import polars as pl

from headrace.streaming_sql.functions import Table, by_value, common_type, first_type, number_type
from headrace.streaming_sql.values import (
    BIGINT,
    DOUBLE,
    STRING,
    Bound,
    coerced,
    some,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def add_number_functions(table: Table) -> None:
    """Add them to the table."""
    _rounding(table)
    _logarithms(table)
    _trigonometry(table)
    _choices(table)


def _rounding(table: Table) -> None:
    group = "numbers"
    table.add("ABS(n)", group, "The value without its sign.", ("ABS(-3)", "3"), number_type, _abs, "number")
    table.add("SIGN(n)", group, "-1, 0 or 1.", ("SIGN(-3)", "-1"), number_type, lambda a: a[0].expr.sign(), "number")
    table.add(
        "CEIL(n)",
        group,
        "The next whole number up.",
        ("CEIL(1.2E0)", "2.0"),
        number_type,
        lambda a: _whole(a, lambda e: e.ceil()),
        "number",
        aliases=("CEILING",),
    )
    table.add(
        "FLOOR(n)",
        group,
        "The next whole number down.",
        ("FLOOR(1.8E0)", "1.0"),
        number_type,
        lambda a: _whole(a, lambda e: e.floor()),
        "number",
    )
    table.add(
        "ROUND(n, digits)",
        group,
        "Rounds half away from zero.",
        ("ROUND(2.345E0, 2)", "2.35"),
        number_type,
        by_value_of_first("round"),
        "number",
        "integer",
        optional=1,
    )
    table.add(
        "TRUNCATE(n, digits)",
        group,
        "Cuts digits off.",
        ("TRUNCATE(2.349E0, 2)", "2.34"),
        number_type,
        by_value_of_first("truncate"),
        "number",
        "integer",
        optional=1,
        aliases=("TRUNC",),
    )
    table.add(
        "MOD(n, m)",
        group,
        "The remainder of a division, with the sign of n; null where m is 0.",
        ("MOD(7, 3)", "1"),
        common_type,
        modulo,
        "number",
    )


def _logarithms(table: Table) -> None:
    group = "numbers"
    table.add(
        "SQRT(n)",
        group,
        "The square root; NaN of a negative number.",
        ("SQRT(9)", "3.0"),
        DOUBLE,
        lambda a: _double(a[0]).sqrt(),
        "number",
    )
    table.add("CBRT(n)", group, "The cube root.", ("CBRT(27)", "3.0"), DOUBLE, lambda a: _double(a[0]).cbrt(), "number")
    table.add(
        "POWER(n, m)",
        group,
        "n to the power of m.",
        ("POWER(2, 10)", "1024.0"),
        DOUBLE,
        lambda a: _double(a[0]).pow(_double(a[1])),
        "number",
        aliases=("POW",),
    )
    table.add(
        "EXP(n)", group, "e to the power of n.", ("EXP(0)", "1.0"), DOUBLE, lambda a: _double(a[0]).exp(), "number"
    )
    table.add(
        "LN(n)",
        group,
        "The natural logarithm; null where n is not above 0.",
        ("LN(1)", "0.0"),
        DOUBLE,
        lambda a: _positive(a[0]).log(),
        "number",
    )
    table.add(
        "LOG10(n)",
        group,
        "The logarithm to base 10.",
        ("LOG10(100)", "2.0"),
        DOUBLE,
        lambda a: _positive(a[0]).log10(),
        "number",
    )
    table.add(
        "LOG2(n)",
        group,
        "The logarithm to base 2.",
        ("LOG2(8)", "3.0"),
        DOUBLE,
        lambda a: _positive(a[0]).log(2.0),
        "number",
    )
    table.add(
        "LOG(base, n)",
        group,
        "The logarithm to a base; of one argument, the natural one.",
        ("LOG(2, 8)", "3.0"),
        DOUBLE,
        _log,
        "number",
        optional=1,
    )


def _trigonometry(table: Table) -> None:
    group = "numbers"
    table.add("E()", group, "The number e.", ("E()", "2.718281828459045"), DOUBLE, lambda _: pl.lit(math.e))
    table.add(
        "COT(n)", group, "The cotangent.", ("COT(1)", "0.6420926159343306"), DOUBLE, _of_double(pl.Expr.cot), "number"
    )
    table.add("BIN(n)", group, "A whole number in binary digits.", ("BIN(4)", "'100'"), STRING, _digits("b"), "integer")
    table.add(
        "HEX(n)",
        group,
        "A whole number, or the bytes of a text, in hexadecimal digits.",
        ("HEX(255)", "'FF'"),
        STRING,
        _hex,
        "text or number",
    )
    table.add("PI()", group, "The number pi.", ("PI()", "3.141592653589793"), DOUBLE, lambda _: pl.lit(math.pi))
    simple: dict[str, tuple[str, str, Callable[[pl.Expr], pl.Expr]]] = {
        "SIN": ("The sine.", "0.0", lambda e: e.sin()),
        "COS": ("The cosine.", "1.0", lambda e: e.cos()),
        "TAN": ("The tangent.", "0.0", lambda e: e.tan()),
        "ASIN": ("The arc sine.", "0.0", lambda e: e.arcsin()),
        "ACOS": ("The arc cosine.", "1.5707963267948966", lambda e: e.arccos()),
        "ATAN": ("The arc tangent.", "0.0", lambda e: e.arctan()),
        "SINH": ("The hyperbolic sine.", "0.0", lambda e: e.sinh()),
        "COSH": ("The hyperbolic cosine.", "1.0", lambda e: e.cosh()),
        "TANH": ("The hyperbolic tangent.", "0.0", lambda e: e.tanh()),
        "RADIANS": ("Degrees as radians.", "0.0", lambda e: e.radians()),
        "DEGREES": ("Radians as degrees.", "0.0", lambda e: e.degrees()),
    }
    for name, (does, gives, make) in simple.items():
        table.add(f"{name}(n)", group, does, (f"{name}(0)", gives), DOUBLE, _of_double(make), "number")
    table.add(
        "ATAN2(y, x)",
        group,
        "The angle of a point.",
        ("ATAN2(0, 1)", "0.0"),
        DOUBLE,
        lambda a: pl.arctan2(_double(a[0]), _double(a[1])),
        "number",
    )


def _choices(table: Table) -> None:
    group = "conditions"
    table.add(
        "GREATEST(a, b, ...)",
        group,
        "The largest; null if one is null.",
        ("GREATEST(1, 3, 2)", "3"),
        common_type,
        lambda a: _extreme(a, largest=True),
        any_number=True,
        optional=2,
    )
    table.add(
        "LEAST(a, b, ...)",
        group,
        "The smallest; null if one is null.",
        ("LEAST(1, 3, 2)", "1"),
        common_type,
        lambda a: _extreme(a, largest=False),
        any_number=True,
        optional=2,
    )
    table.add(
        "IFNULL(a, b)",
        group,
        "a, or b where a is null.",
        ("IFNULL(NULL, 2)", "2"),
        common_type,
        lambda a: pl.coalesce(_fitted(a)),
        aliases=("NVL",),
    )
    table.add("NULLIF(a, b)", group, "Null where a equals b, else a.", ("NULLIF(1, 1)", "None"), first_type, _null_if)


def by_value_of_first(name: str) -> Callable[[Sequence[Bound]], pl.Expr]:
    """Call a function of MATCH_RECOGNIZE that gives what its first argument is."""
    return lambda arguments: by_value(name, number_type(arguments))(arguments)


def modulo(arguments: Sequence[Bound]) -> pl.Expr:
    """Give the remainder with the sign of the first argument; null where a whole divisor is 0."""
    left, right = _fitted(arguments)
    kind = common_type(arguments)
    if kind.is_float():
        remainder = left.abs() % right.abs()
        return pl.when(left < 0).then(-remainder).otherwise(remainder)
    divisor = pl.when(right != 0).then(right)
    remainder = left.abs() % divisor.abs()
    return pl.when(left < 0).then(-remainder).otherwise(remainder)


def _fitted(arguments: Sequence[Bound]) -> list[pl.Expr]:
    merged = common_type(arguments)
    return [coerced(argument, merged) for argument in arguments]


def _abs(arguments: Sequence[Bound]) -> pl.Expr:
    return arguments[0].expr.abs()


def _whole(arguments: Sequence[Bound], make: Callable[[pl.Expr], pl.Expr]) -> pl.Expr:
    kind = arguments[0].dtype
    if isinstance(kind, pl.Decimal):
        return make(arguments[0].expr.cast(DOUBLE)).cast(kind)
    return arguments[0].expr if kind.is_integer() else make(arguments[0].expr)


def _double(bound: Bound) -> pl.Expr:
    return bound.expr.cast(DOUBLE)


def _positive(bound: Bound) -> pl.Expr:
    number = _double(bound)
    return pl.when(number > 0).then(number)


def _of_double(make: Callable[[pl.Expr], pl.Expr]) -> Callable[[Sequence[Bound]], pl.Expr]:
    return lambda arguments: make(_double(arguments[0]))


def _log(arguments: Sequence[Bound]) -> pl.Expr:
    if len(arguments) == 1:
        return _positive(arguments[0]).log()
    return _positive(arguments[1]).log() / _positive(arguments[0]).log()


def _digits(form: str) -> Callable[[Sequence[Bound]], pl.Expr]:
    def call(values: pl.Series) -> pl.Series:
        found = [None if value is None else format(value % 2**64, form).upper() for value in values]
        return pl.Series(values.name, found, dtype=STRING)

    return lambda arguments: arguments[0].expr.map_batches(call, return_dtype=STRING, is_elementwise=True)


def _hex(arguments: Sequence[Bound]) -> pl.Expr:
    if isinstance(arguments[0].dtype, pl.String):
        return arguments[0].expr.cast(pl.Binary).bin.encode("hex").str.to_uppercase()
    return _digits("x")([Bound(arguments[0].expr.cast(BIGINT), BIGINT)])


def _extreme(arguments: Sequence[Bound], *, largest: bool) -> pl.Expr:
    values = _fitted(arguments)
    missing = some([value.is_null() for value in values])
    chosen = pl.max_horizontal(values) if largest else pl.min_horizontal(values)
    return pl.when(~missing).then(chosen)


def _null_if(arguments: Sequence[Bound]) -> pl.Expr:
    left, right = _fitted(arguments)
    # The column first, see `operators.comparison`.
    equal = left == right if left.meta.root_names() else right == left
    return pl.when(equal.fill_null(value=False)).then(None).otherwise(arguments[0].expr)
