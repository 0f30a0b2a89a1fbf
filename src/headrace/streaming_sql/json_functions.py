"""Functions of JSON documents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.streaming_sql.functions import ArgumentError, Table, text_constant
from headrace.streaming_sql.values import BOOLEAN, STRING, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.streaming_sql.values import DataType

_JSON_KINDS: Final[dict[str, Callable[[Any], bool]]] = {
    "VALUE": lambda _: True,
    "OBJECT": lambda document: isinstance(document, dict),
    "ARRAY": lambda document: isinstance(document, list),
    "SCALAR": lambda document: not isinstance(document, dict | list),
}
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\['([^']*)'\]|\.\"([^\"]*)\"")
_ABSENT: Final = object()


def add_json_functions(table: Table) -> None:
    """Add them to the table."""
    _json(table)
    _more_json(table)


def _json(table: Table) -> None:
    group = "JSON"
    document = """'{"stop": {"name": "Arabia"}, "lines": [6, 8]}'"""
    table.add(
        "JSON_VALUE(text, path, empty, error)",
        group,
        "A scalar in a JSON document, as a text; null, or DEFAULT x ON EMPTY, if it is not there.",
        (f"JSON_VALUE({document}, '$.stop.name')", "'Arabia'"),
        STRING,
        _json_value(nested=False),
        "text",
        "text",
        "any",
        optional=2,
    )
    table.add(
        "JSON_QUERY(text, path, wrapper)",
        group,
        "An object or array in a JSON document, as JSON.",
        (f"JSON_QUERY({document}, '$.lines')", "'[6, 8]'"),
        STRING,
        _json_value(nested=True),
        "text",
        optional=1,
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
        "IS_JSON(text, kind)",
        group,
        "Whether it is a JSON document: a VALUE of any kind, or an OBJECT, ARRAY or SCALAR. Also text IS JSON OBJECT.",
        ("IS_JSON('[1]')", "True"),
        BOOLEAN,
        _is_json,
        "text",
        optional=1,
    )


def _more_json(table: Table) -> None:
    group = "JSON"
    table.add(
        "JSON_STRING(value)",
        group,
        "A value as JSON.",
        ("JSON_STRING('a')", "'\"a\"'"),
        STRING,
        lambda a: _as_json(a[0]),
    )
    table.add(
        "JSON_ARRAY(value, ...)",
        group,
        "An array of values as JSON; nulls are left out.",
        ("JSON_ARRAY(1, 'a')", "'[1,\"a\"]'"),
        STRING,
        lambda a: pl.concat_str([pl.lit("["), _comma_separated([_as_json(each) for each in a]), pl.lit("]")]),
        any_number=True,
        optional=2,
    )
    table.add(
        "JSON_OBJECT(key, value, ...)",
        group,
        "An object as JSON; JSON_OBJECT('a' VALUE 1), too. A null value is null in it.",
        ("JSON_OBJECT('a', 1)", "'{\"a\":1}'"),
        STRING,
        _json_object,
        any_number=True,
        optional=3,
    )
    table.add(
        "JSON_OBJECT_ABSENT(key, value, ...)",
        group,
        "The same without null values: JSON_OBJECT('a' VALUE 1 ABSENT ON NULL).",
        ("JSON_OBJECT('a' VALUE 1, 'b' VALUE NULL ABSENT ON NULL)", "'{\"a\":1}'"),
        STRING,
        lambda a: _json_object(a, nulls=False),
        any_number=True,
        optional=3,
    )
    table.add(
        "JSON_ARRAY_NULLS(value, ...)",
        group,
        "An array with its nulls: JSON_ARRAY(1, NULL NULL ON NULL).",
        ("JSON_ARRAY(1, NULL NULL ON NULL)", "'[1,null]'"),
        STRING,
        lambda a: pl.concat_str(
            [pl.lit("["), _comma_separated([_as_json(each).fill_null("null") for each in a]), pl.lit("]")]
        ),
        any_number=True,
        optional=2,
    )


def _as_json(value: Bound) -> pl.Expr:
    if isinstance(value.dtype, pl.Null):
        return pl.lit(None, dtype=STRING)
    encoded = pl.struct(value.expr.alias("v")).struct.json_encode()
    return pl.when(value.expr.is_not_null()).then(encoded.str.slice(5).str.head(-1))


def _comma_separated(parts: Sequence[pl.Expr]) -> pl.Expr:
    return pl.concat_str(parts, separator=",", ignore_nulls=True) if parts else pl.lit("")


def _json_object(arguments: Sequence[Bound], *, nulls: bool = True) -> pl.Expr:
    if len(arguments) % 2:
        raise ArgumentError("JSON_OBJECT takes keys and values", "Write JSON_OBJECT('a' VALUE 1, 'b' VALUE 2).")
    parts = []
    for key, value in zip(arguments[::2], arguments[1::2], strict=True):
        name = json.dumps(text_constant(key, "a key of JSON_OBJECT"))
        told = _as_json(value).fill_null("null") if nulls else _as_json(value)
        parts.append(pl.concat_str([pl.lit(f"{name}:"), told]))
    return pl.concat_str([pl.lit("{"), _comma_separated(parts), pl.lit("}")])


def _is_json(arguments: Sequence[Bound]) -> pl.Expr:
    kind = text_constant(arguments[1], "the kind").upper() if len(arguments) > 1 else "VALUE"
    if kind not in _JSON_KINDS:
        raise ArgumentError(f"unknown kind {kind} of JSON", f"Known are {', '.join(_JSON_KINDS)}.")
    return _documents(arguments[0].expr, BOOLEAN, lambda document, known: known and _JSON_KINDS[kind](document))


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
    return _json_query if nested else _json_scalar


def _json_query(arguments: Sequence[Bound]) -> pl.Expr:
    steps = path_of(arguments[1])
    wrapper = text_constant(arguments[2], "the wrapper") if len(arguments) > 2 else ""

    def read(document: Any, known: bool) -> Any:
        value = _found(document, steps) if known else _ABSENT
        if value is _ABSENT or value is None:
            return None
        if wrapper == "unconditional" or (wrapper and not isinstance(value, dict | list)):
            value = [value]
        return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else None

    return _documents(arguments[0].expr, STRING, read)


def _json_scalar(arguments: Sequence[Bound]) -> pl.Expr:
    steps = path_of(arguments[1])

    def read(document: Any, known: bool) -> Any:
        value = _found(document, steps) if known else _ABSENT
        if value is _ABSENT or value is None or isinstance(value, dict | list):
            return None
        return value if isinstance(value, str) else json.dumps(value)

    def state(document: Any, known: bool) -> str:
        value = _found(document, steps) if known else None
        return "error" if not known or isinstance(value, dict | list) else "empty" if value is _ABSENT else "found"

    text = arguments[0].expr
    value = _documents(text, STRING, read)
    if len(arguments) < 3:
        return value
    kind = _documents(text, STRING, state)
    defaults = [each.expr.cast(STRING) for each in arguments[2:]]
    chosen = pl.when(kind == "empty").then(defaults[0])
    if len(defaults) > 1:
        return chosen.when(kind == "error").then(defaults[1]).otherwise(value)
    return chosen.otherwise(value)


def _json_exists(arguments: Sequence[Bound]) -> pl.Expr:
    steps = path_of(arguments[1])
    return _documents(
        arguments[0].expr, BOOLEAN, lambda document, known: known and _found(document, steps) is not _ABSENT
    )
