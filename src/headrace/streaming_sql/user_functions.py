"""Functions of users in SQL: `CREATE FUNCTION name AS 'module:attribute' LANGUAGE PYTHON`."""

from __future__ import annotations

import datetime as dt
import difflib
import inspect
import types
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Union, get_args, get_origin, get_type_hints

import polars as pl
from polars.exceptions import PolarsError

from headrace.errors import JobError, PlanError
from headrace.plugins import import_place
from headrace.plugins.modules import put_on_path
from headrace.streaming_sql.functions import ScalarFunction, always

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.streaming_sql.values import Bound

#: What a function gives, by the annotation of its result.
_TYPES: Final[dict[Any, pl.DataType]] = {
    bool: pl.Boolean(),
    int: pl.Int64(),
    float: pl.Float64(),
    str: pl.String(),
    bytes: pl.Binary(),
    dt.datetime: pl.Datetime("us", "UTC"),
    dt.date: pl.Date(),
    Decimal: pl.Decimal(38, 18),
}


def function_at(place: str, *, directories: Sequence[Path]) -> Callable[..., Any]:
    """Import the function that a place names.

    Args:
        place: A module or a file, a colon, and what is called so in it; dots lead further into it.
        directories: Where modules are looked for, besides Python's path; the first is that of the project.

    Raises:
        HeadraceError: There is no such module or function, or the module cannot be imported.
    """
    module_name, _, attribute = place.partition(":")
    for directory in directories[1:]:
        put_on_path(directory)
    found: Any = import_place(module_name, directories[0])
    for name in attribute.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), n=1)
            guess = f"Did you mean {close[0]}?" if close else "Write the function at the top level of the module."
            raise PlanError(f"there is no {attribute} in {module_name}", hint=guess)
        found = getattr(found, name)
    if not callable(found):
        raise PlanError(f"{place} is a {type(found).__name__} and no function", hint="Name a function.")
    function: Callable[..., Any] = found
    return function


def scalar_function(name: str, function: Callable[..., Any]) -> ScalarFunction:
    """Make a function that queries can call: it is called row by row, with values of Python.

    The annotation of its result says which type it gives. Null among the arguments gives null without a call, unless
    an annotation says that one may be None.

    Args:
        name: What queries call it.
        function: The function.

    Raises:
        PlanError: It does not say what it gives.

    >>> def shout(text: str) -> str:
    ...     return text.upper() + "!"
    >>> scalar_function("shout", shout).signature
    'SHOUT(text)'
    """
    try:
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as problem:
        raise PlanError(f"function {name} cannot be called from SQL: {problem}") from problem
    dtype = _dtype(hints.get("return"))
    if dtype is None:
        raise PlanError(
            f"function {name} does not say what it gives",
            hint=f"Annotate its result: def {function.__name__}(...) -> float. It can be "
            f"{', '.join(each.__name__ for each in _TYPES)}, or a list of them.",
        )
    takes_null = any(type(None) in get_args(hints.get(each.name)) for each in parameters)
    several = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    required = [each for each in parameters if each.default is each.empty and each.kind is not each.VAR_POSITIONAL]
    return ScalarFunction(
        name.upper(),
        "functions of users",
        f"{name.upper()}({', '.join(each.name for each in parameters)})",
        inspect.getdoc(function) or "",
        "",
        "",
        always(dtype),
        _row_by_row(name, function, dtype, strict=not takes_null),
        (),
        len(required),
        None if several else len(parameters),
    )


def _dtype(annotation: Any) -> pl.DataType | None:
    if get_origin(annotation) in (Union, types.UnionType):
        rest = [each for each in get_args(annotation) if each is not type(None)]
        return _dtype(rest[0]) if len(rest) == 1 else None
    if get_origin(annotation) is list:
        inner = _dtype(get_args(annotation)[0])
        return None if inner is None else pl.List(inner)
    return _TYPES.get(annotation)


def _row_by_row(
    name: str, function: Callable[..., Any], dtype: pl.DataType, *, strict: bool
) -> Callable[[Sequence[Bound]], pl.Expr]:
    def call(values: pl.Series) -> pl.Series:
        rows = values.struct.unnest().iter_rows()
        try:
            found = [None if strict and any(each is None for each in row) else function(*row) for row in rows]
            return pl.Series(values.name, found, dtype=dtype)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, PolarsError) as problem:
            raise JobError(f"function {name} failed: {type(problem).__name__}: {problem}") from problem

    def build(arguments: Sequence[Bound]) -> pl.Expr:
        if not arguments:
            return pl.lit(function(), dtype=dtype)
        row = pl.struct(each.expr.alias(f"a{place}") for place, each in enumerate(arguments))
        return row.map_batches(call, return_dtype=dtype, is_elementwise=True)

    return build
