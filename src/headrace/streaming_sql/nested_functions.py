"""Functions of arrays, maps, rows and JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.streaming_sql.functions import ArgumentError, Table, element_type, first_type, text_constant
from headrace.streaming_sql.values import BIGINT, BOOLEAN, STRING, instance, is_map, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.streaming_sql.values import Bound, DataType

_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\['([^']*)'\]|\.\"([^\"]*)\"")


def add_nested_functions(table: Table) -> None:
    """Add them to the table."""
    _arrays(table)
    _maps(table)
    _json(table)


def _arrays(table: Table) -> None:
    group = "arrays and maps"
    array = "ARRAY[3, 1, 3]"
    table.add(
        "CARDINALITY(array)",
        group,
        "How many elements.",
        (f"CARDINALITY({array})", "3"),
        BIGINT,
        lambda a: a[0].expr.list.len().cast(BIGINT),
        "array",
    )
    table.add(
        "ELEMENT(array)",
        group,
        "The only element; null of an empty array.",
        ("ELEMENT(ARRAY[7])", "7"),
        element_type,
        lambda a: a[0].expr.list.first(),
        "array",
    )
    table.add(
        "ARRAY_CONTAINS(array, value)",
        group,
        "Whether an element equals a value.",
        (f"ARRAY_CONTAINS({array}, 1)", "True"),
        BOOLEAN,
        lambda a: a[0].expr.list.contains(a[1].expr),
        "array",
        "any",
    )
    table.add(
        "ARRAY_DISTINCT(array)",
        group,
        "Each element once.",
        (f"ARRAY_DISTINCT({array})", "[3, 1]"),
        first_type,
        lambda a: a[0].expr.list.unique(maintain_order=True),
        "array",
    )
    table.add(
        "ARRAY_SORT(array)",
        group,
        "In ascending order, nulls last.",
        (f"ARRAY_SORT({array})", "[1, 3, 3]"),
        first_type,
        lambda a: a[0].expr.list.sort(nulls_last=True),
        "array",
    )
    table.add(
        "ARRAY_REVERSE(array)",
        group,
        "From the end to the beginning.",
        (f"ARRAY_REVERSE({array})", "[3, 1, 3]"),
        first_type,
        lambda a: a[0].expr.list.reverse(),
        "array",
    )
    table.add(
        "ARRAY_MAX(array)",
        group,
        "The largest element.",
        (f"ARRAY_MAX({array})", "3"),
        element_type,
        lambda a: a[0].expr.list.max(),
        "array",
    )
    table.add(
        "ARRAY_MIN(array)",
        group,
        "The smallest element.",
        (f"ARRAY_MIN({array})", "1"),
        element_type,
        lambda a: a[0].expr.list.min(),
        "array",
    )
    table.add(
        "ARRAY_JOIN(array, between)",
        group,
        "As a text.",
        ("ARRAY_JOIN(ARRAY['a', 'b'], '-')", "'a-b'"),
        STRING,
        lambda a: a[0].expr.cast(pl.List(STRING)).list.join(a[1].expr, ignore_nulls=True),
        "array",
        "text",
    )
    table.add(
        "ARRAY_SLICE(array, start, end)",
        group,
        "The elements from start to end, counted from 1.",
        (f"ARRAY_SLICE({array}, 1, 2)", "[3, 1]"),
        first_type,
        lambda a: a[0].expr.list.slice(a[1].expr - 1, a[2].expr - a[1].expr + 1),
        "array",
        "integer",
    )


def _maps(table: Table) -> None:
    group = "arrays and maps"
    made = "MAP['a', 1, 'b', 2]"
    table.add(
        "MAP_KEYS(map)", group, "The keys.", (f"MAP_KEYS({made})", "['a', 'b']"), _side("key"), _taken("key"), "array"
    )
    table.add(
        "MAP_VALUES(map)",
        group,
        "The values.",
        (f"MAP_VALUES({made})", "[1, 2]"),
        _side("value"),
        _taken("value"),
        "array",
    )


def _json(table: Table) -> None:
    group = "JSON"
    document = """'{"stop": {"name": "Arabia"}, "lines": [6, 8]}'"""
    table.add(
        "JSON_VALUE(text, path)",
        group,
        "A scalar in a JSON document, as a text; null if it is not there.",
        (f"JSON_VALUE({document}, '$.stop.name')", "'Arabia'"),
        STRING,
        _json_value(nested=False),
        "text",
    )
    table.add(
        "JSON_QUERY(text, path)",
        group,
        "An object or array in a JSON document, as JSON.",
        (f"JSON_QUERY({document}, '$.lines')", "'[6, 8]'"),
        STRING,
        _json_value(nested=True),
        "text",
    )
    table.add(
        "JSON_EXISTS(text, path)",
        group,
        "Whether a JSON document has something there.",
        (f"JSON_EXISTS({document}, '$.stop.zone')", "False"),
        BOOLEAN,
        _json_exists,
        "text",
    )
    table.add(
        "IS_JSON(text)",
        group,
        "Whether it is a JSON document.",
        ("IS_JSON('[1]')", "True"),
        BOOLEAN,
        lambda a: _documents(a[0].expr, BOOLEAN, lambda _, known: known),
        "text",
    )


def _side(which: str) -> Callable[[Sequence[Bound]], DataType]:
    def kind(arguments: Sequence[Bound]) -> DataType:
        dtype = arguments[0].dtype
        inner = instance(dtype.inner) if isinstance(dtype, pl.List) else None
        if not is_map(dtype) or not isinstance(inner, pl.Struct):
            raise ArgumentError(f"{spoken(dtype)} is no map")
        return pl.List(next(instance(field.dtype) for field in inner.fields if field.name == which))

    return kind


def _taken(which: str) -> Callable[[Sequence[Bound]], pl.Expr]:
    return lambda arguments: arguments[0].expr.list.eval(pl.element().struct.field(which))


def path_of(argument: Bound) -> list[str | int]:
    """Read a JSON path: `$.a.b[0]`.

    Raises:
        ArgumentError: It cannot be read.
    """
    written = text_constant(argument, "the path")
    body = re.sub(r"^\s*(lax|strict)\s+", "", written).strip()
    steps: list[str | int] = []
    place = 1
    while place < len(body) and body.startswith("$"):
        found = _STEP.match(body, place)
        if found is None:
            break
        name, index, quoted, double = found.groups()
        steps.append(int(index) if index is not None else next(x for x in (name, quoted, double) if x is not None))
        place = found.end()
    if not body.startswith("$") or place != len(body):
        raise ArgumentError(f"the path {written!r} cannot be read", "Write it as '$.stop.name' or '$.lines[0]'.")
    return steps


def _documents(text: pl.Expr, dtype: DataType, read: Callable[[Any, bool], Any]) -> pl.Expr:
    def call(values: pl.Series) -> pl.Series:
        return pl.Series(values.name, [None if value is None else _read(value, read) for value in values], dtype=dtype)

    return text.map_batches(call, return_dtype=dtype, is_elementwise=True)


def _read(value: str, read: Callable[[Any, bool], Any]) -> Any:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):
        return read(None, False)
    return read(document, True)


_ABSENT: Final = object()


def _found(document: Any, steps: Sequence[str | int]) -> Any:
    for step in steps:
        if isinstance(step, str):
            if not isinstance(document, dict) or step not in document:
                return _ABSENT
            document = document[step]
        elif isinstance(document, list) and step < len(document):
            document = document[step]
        else:
            return _ABSENT
    return document


def _json_value(*, nested: bool) -> Callable[[Sequence[Bound]], pl.Expr]:
    def build(arguments: Sequence[Bound]) -> pl.Expr:
        steps = path_of(arguments[1])

        def read(document: Any, known: bool) -> Any:
            value = _found(document, steps) if known else _ABSENT
            if value is _ABSENT or value is None or isinstance(value, dict | list) != nested:
                return None
            if nested:
                return json.dumps(value, ensure_ascii=False)
            return value if isinstance(value, str) else json.dumps(value)

        return _documents(arguments[0].expr, STRING, read)

    return build


def _json_exists(arguments: Sequence[Bound]) -> pl.Expr:
    steps = path_of(arguments[1])
    return _documents(
        arguments[0].expr, BOOLEAN, lambda document, known: known and _found(document, steps) is not _ABSENT
    )
