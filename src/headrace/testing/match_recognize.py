"""Conformance cases for MATCH_RECOGNIZE: what other engines' test suites state, run here.

A case holds a query over the table `t`, the rows of `t`, and the rows or the error that must come out; see `run_case`.
Nothing in here knows single cases: any file of the same fields can be run.

As a stream, each MATCH_RECOGNIZE of a case runs on the operator of streams, on rows that come in pieces. A stream is
ordered by `event_time`: it is the ORDER BY column where that is a timestamp with a WITHIN, otherwise the place in the
order that ORDER BY makes. The SQL around it is run on what came out.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.cep.sql import query
from headrace.cep.sql.literals import parse_timestamp
from headrace.cep.sql.operator import MatchRecognizeOperator
from headrace.cep.sql.query import Frames, run
from headrace.cep.sql.table import SortKey
from headrace.engine.operator import EVENT_TIME
from headrace.errors import HeadraceError
from headrace.testing.case import CaseResult
from headrace.testing.conditions import UnsupportedCaseError
from headrace.testing.turns import cut
from headrace.time.instants import END, INSTANT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cep.sql.output import Plan
    from headrace.cep.sql.syntax import MatchRecognize
    from headrace.testing.turns import Taker

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


def run_case(case: dict[str, Any], take: Taker | None = None) -> CaseResult:
    """Runs one case.

    Args:
        case: `id`, `sql`, `columns`, `types` and `rows` of the table `t`; `expected_columns`, `expected_types` and
            `expected_rows` (in any order unless `ordered`), or `expected_error`; `standard` is false for what is an
            engine's own.
        take: Takes the turns of the operator, for a run as a stream; None for a run over all rows at once.
    """
    name = str(case.get("id", ""))
    expected: object = case.get("expected_error") or case.get("expected_rows")
    frame = _frame(case.get("columns") or [], case.get("types") or [], case.get("rows") or [])
    try:
        result: pl.DataFrame
        result = query(case["sql"], {"t": frame}) if take is None else run(case["sql"], {"t": frame}, _Turned(take))
    except UnsupportedCaseError as problem:
        return CaseResult(name, "unsupported", expected, None, str(problem))
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


class _Turned(Frames):
    """Tables that are frames, whose MATCH_RECOGNIZE runs on rows that come in pieces."""

    def __init__(self, take: Taker) -> None:
        self._take = take

    def match(self, clause: MatchRecognize, plan: Plan, table: pl.DataFrame) -> pl.DataFrame:
        """The result of a MATCH_RECOGNIZE."""
        del clause
        rows = _timed(plan, table)
        timed = replace(plan, order_by=(SortKey(EVENT_TIME, descending=False, nulls_first=False), *plan.order_by))
        operator = MatchRecognizeOperator(timed)
        found = [outcome.rows for outcome in self._take(operator, cut(rows, end=END))]
        parts = [frame for frame in found if frame is not None]
        return (pl.concat(parts) if parts else operator.schema(rows.schema).to_frame()).drop(EVENT_TIME)


def _timed(plan: Plan, table: pl.DataFrame) -> pl.DataFrame:
    """The rows in their order, with an event time that says it."""
    if EVENT_TIME in table.columns:
        raise UnsupportedCaseError(f"its table has a column {EVENT_TIME} of its own")
    keys = plan.order_by
    if plan.within is not None:
        times = table[keys[0].column].cast(INSTANT)
        if times.null_count():
            raise UnsupportedCaseError(f"{keys[0].column} has nulls, and a stream dismisses rows without a time")
        return table.with_columns(times.alias(EVENT_TIME)).sort(EVENT_TIME, maintain_order=True)
    if keys:
        table = table.sort(
            [key.column for key in keys],
            descending=[key.descending for key in keys],
            nulls_last=[not key.nulls_first for key in keys],
            maintain_order=True,
        )
    return table.with_columns(pl.int_range(table.height, eager=True).cast(INSTANT).alias(EVENT_TIME))


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
