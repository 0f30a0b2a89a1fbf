"""Conformance cases for MATCH_RECOGNIZE: what other engines' test suites state, run here.

A case holds a query over the table `t`, the rows of `t`, and the rows or the error that must come out; see `run_case`.
Nothing in here knows single cases: any file of the same fields can be run.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.cep.sql import query
from headrace.cep.sql.literals import parse_timestamp
from headrace.errors import HeadraceError
from headrace.testing.case import CaseResult

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TYPES: Final[dict[str, pl.DataType]] = {
    "boolean": pl.Boolean(),
    "tinyint": pl.Int8(),
    "smallint": pl.Int16(),
    "integer": pl.Int32(),
    "int": pl.Int32(),
    "bigint": pl.Int64(),
    "real": pl.Float32(),
    "float": pl.Float64(),
    "double": pl.Float64(),
    "varchar": pl.String(),
    "char": pl.String(),
    "string": pl.String(),
    "date": pl.Date(),
    "timestamp": pl.Datetime("us", "UTC"),
    "timestamp with time zone": pl.Datetime("us", "UTC"),
}
_PLAIN_NAME: Final = re.compile(r"(?!_col\d+$)[^\W\d]\w*$")


def run_case(case: dict[str, Any], engine: str) -> CaseResult:
    """Runs one case.

    Args:
        case: `id`, `sql`, `columns`, `types` and `rows` of the table `t`; `expected_columns`, `expected_types` and
            `expected_rows` (in any order unless `ordered`), or `expected_error`; `standard` is false for what is an
            engine's own.
        engine: Where to run it; "inprocess" is there so far.
    """
    name = str(case.get("id", ""))
    expected: object = case.get("expected_error") or case.get("expected_rows")
    if engine != "inprocess":
        return CaseResult(name, "unsupported", expected, None, f"there is no MATCH_RECOGNIZE on {engine} yet")
    frame = _frame(case.get("columns") or [], case.get("types") or [], case.get("rows") or [])
    try:
        result: pl.DataFrame = query(case["sql"], {"t": frame})
    except HeadraceError as error:
        if case.get("expected_error"):
            return CaseResult(name, "pass", expected, str(error), "")
        status = "unsupported" if case.get("standard") is False else "fail"
        return CaseResult(name, status, expected, str(error), str(error))  # type: ignore[arg-type]
    got = [list(row) for row in result.rows()]
    if case.get("expected_error"):
        return CaseResult(name, "fail", expected, got, "an error was expected")
    reason = _difference(case, result, got)
    return CaseResult(name, "fail" if reason else "pass", expected, got, reason)


def _frame(columns: Sequence[str], types: Sequence[str], rows: Sequence[Sequence[Any]]) -> pl.DataFrame:
    schema = {name: _data_type(text) for name, text in zip(columns, types, strict=True)}
    data = {
        name: pl.Series(name, [_value(row[place], schema[name]) for row in rows], dtype=schema[name])
        for place, name in enumerate(columns)
    }
    return pl.DataFrame(data)


def _data_type(text: str) -> pl.DataType:
    name, _, parameters = text.strip().lower().partition("(")
    parameters = parameters.removesuffix(")")
    if name == "array":
        return pl.List(_data_type(parameters))
    if name in ("decimal", "numeric"):
        precision, _, scale = parameters.partition(",")
        return pl.Decimal(int(precision or 38), int(scale or 0))
    if name == "timestamp" and "time zone" in parameters:
        name = "timestamp with time zone"
    return _TYPES.get(name.strip(), pl.String())


def _value(value: Any, data_type: pl.DataType) -> Any:
    if value is None:
        return None
    if isinstance(data_type, pl.Datetime):
        moment = parse_timestamp(value) if isinstance(value, str) else dt.datetime.fromtimestamp(value / 1000, dt.UTC)
        return moment.replace(tzinfo=dt.UTC) if moment.tzinfo is None else moment
    if isinstance(data_type, pl.Date) and isinstance(value, str):
        return dt.date.fromisoformat(value)
    if isinstance(data_type, pl.Decimal):
        return Decimal(str(value))
    return value


def _difference(case: Mapping[str, Any], result: pl.DataFrame, got: list[list[Any]]) -> str:
    """What is not as the case states; empty if nothing."""
    return (
        _different_columns(case.get("expected_columns"), result.columns)
        or _different_types(case.get("expected_types"), result)
        or _different_rows(case.get("expected_rows") or [], got, ordered=bool(case.get("ordered")))
    )


def _different_columns(expected: Sequence[str] | None, got: Sequence[str]) -> str:
    if expected is None:
        return ""
    if len(expected) != len(got):
        return f"columns {list(got)} instead of {list(expected)}"
    for wanted, name in zip(expected, got, strict=True):
        if _PLAIN_NAME.match(wanted) and name.split(":")[0].lower() != wanted.lower():
            return f"column {name} instead of {wanted}"
    return ""


def _different_types(expected: Sequence[str] | None, result: pl.DataFrame) -> str:
    for text, name, data_type in zip(expected or [], result.columns, result.dtypes, strict=False):
        if text and not _is_kind(_data_type(text), data_type):
            return f"column {name} is {data_type}, not {text}"
    return ""


def _is_kind(wanted: pl.DataType, got: pl.DataType) -> bool:
    if isinstance(got, pl.Null):
        return True
    if isinstance(wanted, pl.List):
        return isinstance(got, pl.List)
    if wanted.is_integer():
        return got.is_integer()
    if wanted.is_float() or isinstance(wanted, pl.Decimal):
        return got.is_float() or isinstance(got, pl.Decimal)
    return type(wanted) is type(got) or isinstance(wanted, pl.String)


def _different_rows(expected: Sequence[Sequence[Any]], got: list[list[Any]], *, ordered: bool) -> str:
    if len(expected) != len(got):
        return f"{len(got)} rows instead of {len(expected)}"
    if ordered:
        for wanted, row in zip(expected, got, strict=True):
            if not _same(wanted, row):
                return f"row {row} instead of {wanted}"
        return ""
    left = list(got)
    for wanted in expected:
        place = next((place for place, row in enumerate(left) if _same(wanted, row)), None)
        if place is None:
            return f"row {wanted} is missing; left are {left[:5]}"
        del left[place]
    return ""


def _same(expected: Any, got: Any) -> bool:
    """Whether a value is the expected one; times may be text there, and doubles may differ in the last digits."""
    if expected is None or got is None:
        return expected is None and got is None
    if isinstance(expected, list | tuple):
        return (
            isinstance(got, list | tuple)
            and len(expected) == len(got)
            and all(_same(wanted, item) for wanted, item in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(got, dt.date) and isinstance(expected, str):
        return _same_time(expected, got)
    if isinstance(got, int | float | Decimal):
        try:
            return math.isclose(float(got), float(Decimal(str(expected))), rel_tol=1e-9, abs_tol=1e-12)
        except (InvalidOperation, ValueError):
            return False
    return bool(expected == got)


def _same_time(expected: str, got: dt.date) -> bool:
    wanted = parse_timestamp(expected)
    moment = got if isinstance(got, dt.datetime) else dt.datetime(got.year, got.month, got.day, tzinfo=dt.UTC)
    return wanted.replace(tzinfo=wanted.tzinfo or dt.UTC) == moment.replace(tzinfo=moment.tzinfo or dt.UTC)
