"""Functions of arrays, maps and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.streaming_sql.functions import ArgumentError, Table, element_type, first_type, text_constant
from headrace.streaming_sql.values import BIGINT, BOOLEAN, STRING, Bound, coerced, common, instance, is_map, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.streaming_sql.values import DataType


def add_nested_functions(table: Table) -> None:
    """Add them to the table."""
    _arrays(table)
    _more_arrays(table)
    _maps(table)


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
        "ARRAY_SORT(array, ascending)",
        group,
        "In ascending order, nulls last; in descending order with FALSE.",
        (f"ARRAY_SORT({array})", "[1, 3, 3]"),
        first_type,
        lambda a: a[0].expr.list.sort(descending=len(a) > 1 and a[1].value is False, nulls_last=True),
        "array",
        "boolean",
        optional=1,
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
        "ARRAY_JOIN(array, between, null)",
        group,
        "As a text; nulls are left out, or replaced by a text.",
        ("ARRAY_JOIN(ARRAY['a', 'b'], '-')", "'a-b'"),
        STRING,
        _array_joined,
        "array",
        "text",
        "text",
        optional=1,
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


def _more_arrays(table: Table) -> None:
    group = "arrays and maps"
    array = "ARRAY[3, 1, 3]"
    simple: dict[str, tuple[str, str, str, Callable[[Sequence[Bound]], pl.Expr]]] = {
        "ARRAY_APPEND(array, value)": ("With a value at the end.", f"({array}, 5)", "[3, 1, 3, 5]", _appended),
        "ARRAY_PREPEND(array, value)": ("With a value at the beginning.", f"({array}, 5)", "[5, 3, 1, 3]", _prepended),
        "ARRAY_REMOVE(array, value)": ("Without a value.", f"({array}, 3)", "[1]", _removed),
        "ARRAY_UNION(array, other)": ("What is in one of both, each once.", f"({array}, ARRAY[7])", "[3, 1, 7]",
                                      lambda a: _joined(a).list.unique(maintain_order=True)),
        "ARRAY_INTERSECT(array, other)": ("What is in both, each once.", f"({array}, ARRAY[3])", "[3]",
                                          _by_list(lambda one, two: [x for x in _once(one) if x in two])),
        "ARRAY_EXCEPT(array, other)": ("What is in the first only, each once.", f"({array}, ARRAY[3])", "[1]",
                                       _by_list(lambda one, two: [x for x in _once(one) if x not in two])),
    }  # fmt: skip
    for signature, (does, arguments, gives, build) in simple.items():
        name = signature.partition("(")[0]
        table.add(signature, group, does, (name + arguments, gives), _array_type, build, "array", "any")
    table.add(
        "ARRAY_CONCAT(array, ...)",
        group,
        "One after the other.",
        ("ARRAY_CONCAT(ARRAY[1], ARRAY[2])", "[1, 2]"),
        _array_type,
        _joined,
        "array",
        any_number=True,
        optional=0,
    )
    table.add(
        "ARRAY_POSITION(array, value)",
        group,
        "Where a value is first, counted from 1; 0 if it is not there.",
        (f"ARRAY_POSITION({array}, 1)", "2"),
        BIGINT,
        lambda a: pl.when(a[0].expr.is_not_null() & a[1].expr.is_not_null()).then(
            pl.struct(a[0].expr.alias("values"), a[1].expr.alias("value")).map_batches(
                _positions, return_dtype=BIGINT, is_elementwise=True
            )
        ),
        "array",
        "any",
    )


def _array_joined(arguments: Sequence[Bound]) -> pl.Expr:
    texts = arguments[0].expr.cast(pl.List(STRING))
    if len(arguments) > 2:
        texts = texts.list.eval(pl.element().fill_null(text_constant(arguments[2], "what stands for null")))
    return texts.list.join(arguments[1].expr, ignore_nulls=True)


def _array_type(arguments: Sequence[Bound]) -> DataType:
    kinds = [each.dtype if isinstance(each.dtype, pl.List) else pl.List(each.dtype) for each in arguments]
    merged = common(kinds)
    if merged is None:
        raise ArgumentError("the elements have no common type", "CAST one of them.")
    return merged


def _lists(arguments: Sequence[Bound]) -> list[pl.Expr]:
    kind = _array_type(arguments)
    inner = element_type([Bound(arguments[0].expr, kind)])
    return [
        each.expr.cast(kind) if isinstance(each.dtype, pl.List) else coerced(each, inner).cast(inner)
        for each in arguments
    ]


def _joined(arguments: Sequence[Bound]) -> pl.Expr:
    return pl.concat_list(_lists(arguments))


def _appended(arguments: Sequence[Bound]) -> pl.Expr:
    values, value = _lists(arguments)
    return pl.when(values.is_not_null()).then(pl.concat_list([values, value]))


def _prepended(arguments: Sequence[Bound]) -> pl.Expr:
    values, value = _lists(arguments)
    return pl.when(values.is_not_null()).then(pl.concat_list([value, values]))


def _removed(arguments: Sequence[Bound]) -> pl.Expr:
    return _by_list(lambda values, value: [each for each in values if each != value], null_value=True)(arguments)


def _once(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found


def _by_list(
    make: Callable[[list[Any], Any], list[Any]], *, null_value: bool = False
) -> Callable[[Sequence[Bound]], pl.Expr]:
    """Make a new list of two values, row by row."""

    def build(arguments: Sequence[Bound]) -> pl.Expr:
        kind = _array_type(arguments)
        one, other = _lists(arguments)

        def call(rows: pl.Series) -> pl.Series:
            found = [
                None
                if row["one"] is None or (row["other"] is None and not null_value)
                else make(row["one"], row["other"])
                for row in rows
            ]
            return pl.Series(rows.name, found, dtype=kind)

        pair = pl.struct(one.alias("one"), other.alias("other"))
        return pair.map_batches(call, return_dtype=kind, is_elementwise=True)

    return build


def _positions(rows: pl.Series) -> pl.Series:
    found = [
        None
        if row is None or row["values"] is None
        else (row["values"].index(row["value"]) + 1)
        if row["value"] in row["values"]
        else 0
        for row in rows
    ]
    return pl.Series(rows.name, found, dtype=BIGINT)


def _maps(table: Table) -> None:
    group = "arrays and maps"
    made = "MAP['a', 1, 'b', 2]"
    table.add(
        "MAP_ENTRIES(map)",
        group,
        "The pairs of key and value, as an array of rows.",
        (f"MAP_ENTRIES({made})", "[{'key': 'a', 'value': 1}, {'key': 'b', 'value': 2}]"),
        first_type,
        lambda a: a[0].expr,
        "array",
    )
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
