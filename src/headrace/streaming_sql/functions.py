"""The table of scalar functions: for each its arguments, the type of its result, what it does and an example.

A function is a Polars expression where Polars can do it; else the function of MATCH_RECOGNIZE is called value by value,
so that both know the same functions with the same rules. With a null among its arguments a function gives null, unless
it says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.functions import FUNCTIONS as VALUE_FUNCTIONS
from headrace.streaming_sql.values import BIGINT, BOOLEAN, NULL, STRING, TIMESTAMP, common, instance, spoken

if TYPE_CHECKING:
    from headrace.streaming_sql.values import Bound, DataType

ResultRule: TypeAlias = Callable[[Sequence["Bound"]], "DataType"]
Build: TypeAlias = Callable[[Sequence["Bound"]], pl.Expr]


class ArgumentError(Exception):
    """An argument of a function cannot be used.

    Args:
        message: What is wrong.
        hint: What to do about it.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function.

    Args:
        name: Its name, in upper case.
        group: What it belongs to in the documentation.
        signature: Its arguments.
        does: What it does, in a sentence.
        example: A call.
        gives: What the example gives, as Python writes it.
        result: The type of the result.
        build: Makes the expression.
        kinds: What each argument must be; the last is for all further ones.
        least: Fewest arguments.
        most: Most arguments; None for any number.
    """

    name: str
    group: str
    signature: str
    does: str
    example: str
    gives: str
    result: ResultRule
    build: Build
    kinds: tuple[str, ...] = ()
    least: int = 1
    most: int | None = 1

    def check(self, arguments: Sequence[Bound]) -> None:
        """Refuse arguments of the wrong number or type.

        Raises:
            ArgumentError: They do not fit.
        """
        count = len(arguments)
        if count < self.least or (self.most is not None and count > self.most):
            raise ArgumentError(
                f"{self.name} does not take {count} argument{'' if count == 1 else 's'}",
                f"Write {self.signature}.",
            )
        for place, argument in enumerate(arguments):
            kind = self.kinds[min(place, len(self.kinds) - 1)] if self.kinds else "any"
            if not fits(argument.dtype, kind):
                raise ArgumentError(
                    f"argument {place + 1} of {self.name} is {spoken(argument.dtype)}, not {kind}",
                    f"Write {self.signature}; CAST what has another type.",
                )

    def typed(self, arguments: Sequence[Bound]) -> list[Bound]:
        """Give nulls without a type the type of what they stand for."""
        found = []
        for place, argument in enumerate(arguments):
            kind = self.kinds[min(place, len(self.kinds) - 1)] if self.kinds else "any"
            dtype = _NULLS.get(kind) if isinstance(argument.dtype, pl.Null) else None
            found.append(argument if dtype is None else replace(argument, expr=argument.expr.cast(dtype), dtype=dtype))
        return found


_NULLS: Final[Mapping[str, DataType]] = {
    "text": STRING,
    "number": BIGINT,
    "integer": BIGINT,
    "timestamp": TIMESTAMP,
    "boolean": BOOLEAN,
    "bytes": pl.Binary(),
    "text or number": STRING,
    "timestamp or number": TIMESTAMP,
    "timestamp or text": STRING,
}
_KINDS: Final[Mapping[str, Callable[[DataType], bool]]] = {
    "any": lambda _: True,
    "text": lambda dtype: isinstance(dtype, pl.String),
    "number": lambda dtype: dtype.is_numeric(),
    "integer": lambda dtype: dtype.is_integer(),
    "timestamp": lambda dtype: isinstance(dtype, pl.Datetime | pl.Date),
    "array": lambda dtype: isinstance(dtype, pl.List),
    "bytes": lambda dtype: isinstance(dtype, pl.Binary),
    "boolean": lambda dtype: isinstance(dtype, pl.Boolean),
    "text or number": lambda dtype: isinstance(dtype, pl.String) or dtype.is_numeric(),
    "timestamp or number": lambda dtype: isinstance(dtype, pl.Datetime | pl.Date) or dtype.is_numeric(),
    "timestamp or text": lambda dtype: isinstance(dtype, pl.Datetime | pl.Date | pl.String),
}


def fits(dtype: DataType, kind: str) -> bool:
    """Tell whether an argument of a type can stand where a kind of argument is asked for."""
    return isinstance(dtype, pl.Null) or _KINDS[kind](dtype)


def always(dtype: DataType) -> ResultRule:
    """Give the same type whatever the arguments are."""
    return lambda _: dtype


def first_type(arguments: Sequence[Bound]) -> DataType:
    """Give the type of the first argument."""
    return arguments[0].dtype if arguments else NULL


def common_type(arguments: Sequence[Bound]) -> DataType:
    """Give the type that all arguments fit into."""
    merged = common(argument.dtype for argument in arguments)
    if merged is None:
        raise ArgumentError(
            f"{' and '.join(dict.fromkeys(spoken(argument.dtype) for argument in arguments))} have no common type",
            "CAST one of them.",
        )
    return merged


def number_type(arguments: Sequence[Bound]) -> DataType:
    """Integers give 64 bits, other numbers stay what they are."""
    dtype = first_type(arguments)
    return BIGINT if dtype.is_integer() or isinstance(dtype, pl.Null) else dtype


def element_type(arguments: Sequence[Bound]) -> DataType:
    """Give the type of the elements of an array, or of the values of a map."""
    dtype = first_type(arguments)
    if not isinstance(dtype, pl.List):
        return NULL
    inner = instance(dtype.inner)
    if isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == ["key", "value"]:
        return instance(inner.fields[1].dtype)
    return inner


def text_constant(argument: Bound, what: str) -> str:
    """Give the text of an argument that must be a constant.

    Raises:
        ArgumentError: It is none.
    """
    if not isinstance(argument.value, str):
        raise ArgumentError(f"{what} must be a text in quotes", "It is read once, when the query is planned.")
    return argument.value


def by_value(name: str, result: DataType) -> Build:
    """Call a function of MATCH_RECOGNIZE value by value."""
    function = VALUE_FUNCTIONS[name]

    def call(values: pl.Series) -> pl.Series:
        frame = values.struct.unnest()
        found = [
            None if function.strict and any(value is None for value in row) else function.evaluate(*row)
            for row in frame.iter_rows()
        ]
        return pl.Series(values.name, found, dtype=result)

    def build(arguments: Sequence[Bound]) -> pl.Expr:
        row = pl.struct(argument.expr.alias(f"a{place}") for place, argument in enumerate(arguments))
        return row.map_batches(call, return_dtype=result, is_elementwise=True)

    return build


class Table:
    """Functions by name; each name once."""

    def __init__(self) -> None:
        self.functions: dict[str, ScalarFunction] = {}

    def add(
        self,
        signature: str,
        group: str,
        does: str,
        example: tuple[str, str],
        result: ResultRule | DataType,
        build: Build,
        *kinds: str,
        optional: int = 0,
        any_number: bool = False,
        aliases: Sequence[str] = (),
    ) -> None:
        """Add a function; its number of arguments is read from its signature.

        Args:
            signature: Such as `LEFT(text, n)`.
            group: What it belongs to.
            does: What it does, in a sentence.
            example: A call, and what it gives.
            result: The type of the result.
            build: Makes the expression.
            *kinds: What each argument must be.
            optional: How many arguments may be left out.
            any_number: Whether the last argument may be repeated.
            aliases: Further names.
        """
        name, _, rest = signature.partition("(")
        inner = rest.rstrip(")").replace("[", "").replace("]", "").strip(" .,")
        count = len([part for part in inner.replace(" FROM ", ",").split(",") if part.strip(" .")])
        rule = result if callable(result) and not isinstance(result, pl.DataType) else always(result)
        for each in (name, *aliases):
            self.functions[each] = ScalarFunction(
                each,
                group,
                signature if each == name else f"{each}({rest}",
                does,
                example[0] if each == name else each + example[0][len(name) :],
                example[1],
                rule,
                build,
                kinds,
                count - optional,
                None if any_number else count,
            )


def arguments_of(arguments: Sequence[Bound]) -> list[Any]:
    """Give the expressions of arguments."""
    return [argument.expr for argument in arguments]


__all__ = [
    "ArgumentError",
    "ScalarFunction",
    "Table",
    "always",
    "arguments_of",
    "by_value",
    "common_type",
    "element_type",
    "first_type",
    "fits",
    "number_type",
    "text_constant",
]
