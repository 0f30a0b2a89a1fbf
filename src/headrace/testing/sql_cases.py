"""Conformance cases of streaming SQL: tables with rows in an order of arrival, a query, and the rows that come out.

A case is run in process as a stream. Its rows are fed in the order of arrival: row by row where the result depends on
that order, else in few batches; where the case says so, a runner continues from the snapshot of another. At the end of
the input the watermark goes to its end. What came out, additions less retractions, is compared with what is expected.
Nothing in here knows single cases: any file of the same fields can be run.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal

import polars as pl

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.errors import HeadraceError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.streaming_sql.constants import Untimed, constant_sources
from headrace.streaming_sql.passing import runnable
from headrace.streaming_sql.query import plan_relation
from headrace.streaming_sql.relation import CatalogTable
from headrace.tables.upserts import IS_DELETE
from headrace.testing.case import CaseResult
from headrace.time.instants import INSTANT
from headrace.time.strategies import Bounded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.streaming_sql.relation import Relation

#: How rows are fed: as the case needs it, or each by itself, or all together.
Feeding = Literal["fit", "rows", "all"]

_OWN_TIME: Final = "row_time"
_ORIGIN: Final = 1_000_000_000_000_000
_RETRACTS: Final = "takes_back"
_SIMPLE: Final[dict[str, pl.DataType]] = {
    "boolean": pl.Boolean(),
    "tinyint": pl.Int8(),
    "smallint": pl.Int16(),
    "int": pl.Int32(),
    "integer": pl.Int32(),
    "bigint": pl.Int64(),
    "float": pl.Float32(),
    "real": pl.Float32(),
    "double": pl.Float64(),
    "varchar": pl.String(),
    "char": pl.String(),
    "string": pl.String(),
    "date": pl.Date(),
    "timestamp": INSTANT,
    "timestamp_ltz": INSTANT,
    "bytes": pl.Binary(),
}


def run_case(case: dict[str, Any], *, feeding: Feeding = "fit", key_groups: int = 4) -> CaseResult:
    """Run one case.

    Args:
        case: See the README of the cases; `tables`, `order`, `sql`, `expected_columns` and `expected` at least.
        feeding: How rows are fed.
        key_groups: How many key groups there are.
    """
    name = str(case.get("id", ""))
    expected = case.get("expected")
    try:
        tables = {table["name"]: _CaseTable.of(table) for table in case.get("tables") or []}
        relation = _planned(case, tables)
        rows, revised = _Run(case, list(tables.values()), relation, feeding, key_groups).result()
    except HeadraceError as problem:
        return CaseResult(name, "unsupported", expected, str(problem), str(problem))
    return _judged(name, case, relation, rows, revised=revised)


def _planned(case: Mapping[str, Any], tables: Mapping[str, _CaseTable]) -> Relation:
    known: dict[str, Any] = {name: table.catalog() for name, table in tables.items()}
    setup = case.get("setup") or []
    for statement in [setup] if isinstance(setup, str) else setup:
        name, query = _view(statement)
        view = plan_relation(query, known, bounded=True, warn=_unheard)
        known[name] = view
    return plan_relation(case["sql"], known, bounded=True, warn=_unheard)


def _unheard(caution: str) -> None:
    """Bounded input needs no bounds of state."""
    del caution


def _view(statement: str) -> tuple[str, str]:
    found = re.match(
        r"\s*CREATE\s+(?:TEMPORARY\s+)?VIEW\s+(`[^`]+`|\S+)\s+AS\s+(.*)", statement, re.IGNORECASE | re.DOTALL
    )
    if found is None:
        raise HeadraceError(f"setup: {statement[:60]} is no CREATE VIEW")
    return found.group(1).strip("`"), found.group(2).rstrip("; \n")


# Tables


@dataclass(frozen=True)
class _CaseTable:
    """A table of a case.

    Args:
        name: Its name.
        schema: The types of its columns.
        time: The column of event time, or nothing.
        delay: How far the watermark is behind the greatest time, in microseconds.
        proctime: The name of the column of arrival, or nothing.
        key: Its primary key.
        mode: What its rows do.
        rows: The rows, each with its kind.
    """

    name: str
    schema: pl.Schema
    time: str
    delay: int
    proctime: str
    key: tuple[str, ...]
    mode: str
    rows: tuple[tuple[str, list[Any]], ...]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> _CaseTable:
        mode = table.get("mode") or "append"
        rows = table.get("rows") or []
        return cls(
            table["name"],
            pl.Schema({name: data_type(text) for name, text in table["columns"]}),
            table.get("time") or "",
            int(table.get("delay_ms") or 0) * 1_000,
            table.get("proctime") or "",
            tuple(table.get("primary_key") or ()),
            mode,
            tuple(("+I", list(row)) if mode == "append" else (row[0], list(row[1])) for row in rows),
        )

    @property
    def physical(self) -> dict[str, str]:
        """The columns of the stream for those of the table; `event_time` stays with the engine."""
        return {name: _OWN_TIME if name == EVENT_TIME else name for name in self.schema}

    def catalog(self) -> CatalogTable:
        """Make it a table that a query can name."""
        marks = {IS_DELETE: pl.Boolean()} if self.is_keyed else {_RETRACTS: pl.Boolean()} if self.retracts else {}
        schema = {self.physical[name]: kind for name, kind in self.schema.items()}
        stream = Stream.rows(self.name, {**schema, EVENT_TIME: INSTANT, **marks})
        if self.time:
            # A row is late for a window if its last millisecond is not above the watermark.
            stream = stream.watermark(_watermark(self.delay))
        elif self.proctime:
            stream = stream.watermark(Bounded(delay=-1, max_ahead=None, max_behind=None))
        else:
            stream = stream.watermark(Untimed())
        names = tuple(self.physical.values())
        time = self.physical[self.time] if self.time else ""
        if self.retracts:
            stream = stream.as_changelog(pl.col(_RETRACTS))
        table = None
        kind: Any = "stream"
        if self.is_keyed:
            key = tuple(self.physical[name] for name in self.key)
            table = stream.as_table(*key, deletes=pl.col(IS_DELETE), versioned=self.mode == "versioned")
            kind = {"upsert": "table"}.get(self.mode, self.mode)
        return CatalogTable(stream, time, self.proctime, dict(zip(names, self.schema, strict=True)), table, kind)

    @property
    def is_keyed(self) -> bool:
        """Whether rows replace others of their key."""
        return self.mode in ("upsert", "versioned", "lookup") and bool(self.key)

    @property
    def retracts(self) -> bool:
        """Whether rows take back others."""
        return self.mode == "retract" or (self.mode in ("upsert", "lookup") and not self.key)

    def frame(self, places: Sequence[tuple[int, int]]) -> pl.DataFrame:
        """Make a frame of some rows: pairs of the place of a row and its place in the order of arrival."""
        chosen = [self.rows[place] for place, _ in places]
        data = {
            self.physical[name]: pl.Series(
                self.physical[name], [value_of(row[column], kind) for _, row in chosen], dtype=kind
            )
            for column, (name, kind) in enumerate(self.schema.items())
        }
        frame = pl.DataFrame(data)
        if self.time:
            frame = frame.with_columns(pl.col(self.physical[self.time]).alias(EVENT_TIME))
        else:
            arrived = [_ORIGIN + arrival for _, arrival in places]
            frame = frame.with_columns(pl.Series(EVENT_TIME, arrived, dtype=pl.Int64).cast(INSTANT))
        kinds = pl.Series("kind", [kind for kind, _ in chosen], dtype=pl.String)
        if self.is_keyed:
            return frame.with_columns(kinds.is_in(["-D", "-U"]).alias(IS_DELETE))
        if self.retracts:
            return frame.with_columns(kinds.is_in(["-D", "-U"]).alias(_RETRACTS))
        return frame


def _watermark(delay: int) -> Any:
    """Make a watermark that passes a millisecond when its last one has been seen."""
    return Bounded(delay=delay - 1_000, max_ahead=None, max_behind=None)


def data_type(text: str) -> pl.DataType:
    """Read a type of a case.

    >>> data_type("array<row<n int>>")
    List(Struct({'n': Int32}))
    """
    text = text.strip()
    lowered = text.lower()
    if lowered.startswith("decimal"):
        numbers = [int(number) for number in re.findall(r"\d+", lowered)]
        return pl.Decimal(*(numbers or [38, 0]))
    outer, _, rest = text.partition("<")
    if rest:
        parts = _split(rest.removesuffix(">"))
        kind = outer.strip().lower()
        if kind == "array":
            return pl.List(data_type(parts[0]))
        if kind == "map":
            return pl.List(pl.Struct({"key": data_type(parts[0]), "value": data_type(parts[1])}))
        fields = [part.strip().partition(" ") for part in parts]
        return pl.Struct({name.strip("`"): data_type(kind) for name, _, kind in fields})
    return _SIMPLE.get(lowered.partition("(")[0].strip(), pl.String())


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def value_of(value: Any, kind: Any) -> Any:
    """Read a value of a case."""
    if value is None:
        return None
    if isinstance(kind, pl.Decimal):
        return Decimal(str(value))
    if isinstance(kind, pl.Datetime):
        moment = dt.datetime.fromisoformat(str(value))
        return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    if isinstance(kind, pl.Date):
        return dt.date.fromisoformat(str(value))
    if isinstance(kind, pl.List):
        return [value_of(item, kind.inner) for item in value]
    if isinstance(kind, pl.Struct):
        items = value.values() if isinstance(value, dict) else value
        return {field.name: value_of(item, field.dtype) for field, item in zip(kind.fields, items, strict=True)}
    return float(value) if kind == pl.Float64 else value


# Runs


class _Run:
    """A run of a case.

    Args:
        case: The case.
        tables: Its tables.
        relation: Its query, planned.
        feeding: How rows are fed.
        key_groups: How many key groups there are.
    """

    def __init__(
        self,
        case: Mapping[str, Any],
        tables: Sequence[_CaseTable],
        relation: Relation,
        feeding: Feeding,
        key_groups: int,
    ) -> None:
        self._order = [(int(table), int(row)) for table, row in case.get("order") or []]
        self._tables = tables
        self._restart = case.get("restart_after")
        by_row = feeding == "rows" or (feeding == "fit" and bool(case.get("order_matters")))
        self._batch = 1 if by_row else max(len(self._order), 1)
        relation = replace(relation, stream=runnable(relation.stream))
        self._relation = relation
        self._runner = Runner(relation.stream, key_groups=key_groups)
        self._key_groups = key_groups

    def result(self) -> tuple[pl.DataFrame, bool]:
        """Feed all rows; returns what came out, and whether anything was taken back."""
        parts = [part for part in self._batches() if part.height]
        if not parts:
            return self._runner_schema().to_frame(), False
        rows = pl.concat(parts, how="vertical")
        taken_back = bool(rows.get_column(IS_RETRACTION).any()) if IS_RETRACTION in rows.columns else False
        return rows, taken_back

    def _runner_schema(self) -> pl.Schema:
        return self._relation.stream.schema

    def _batches(self) -> Iterator[pl.DataFrame]:
        sources = {entry.source.name for entry in self._runner.pipeline.entries}
        # Tables without a time hold nothing back, also while they have no rows.
        empty = {each.name: each.frame([]) for each in self._tables if not each.time and each.name in sources}
        first = {**empty, **constant_sources(self._relation.stream)}
        if first:
            yield self._runner.step(dict(first)).results
        cut = len(self._order) if self._restart is None else int(self._restart)
        yield from self._fed(0, cut)
        if self._restart is not None:
            self._runner = Runner(self._relation.stream, key_groups=self._key_groups, snapshot=self._runner.snapshot())
            yield from self._fed(cut, len(self._order))
        yield self._runner.finish().results

    def _fed(self, start: int, stop: int) -> Iterator[pl.DataFrame]:
        sources = {entry.source.name for entry in self._runner.pipeline.entries}
        for begin in range(start, stop, self._batch):
            rows: dict[str, list[tuple[int, int]]] = {}
            for arrival in range(begin, min(begin + self._batch, stop)):
                table, row = self._order[arrival]
                rows.setdefault(self._tables[table].name, []).append((row, arrival))
            by_name = {table.name: table for table in self._tables}
            frames = {name: by_name[name].frame(places) for name, places in rows.items() if name in sources}
            if frames:
                yield self._runner.step(frames).results


# What came out


def _judged(name: str, case: Mapping[str, Any], relation: Relation, rows: pl.DataFrame, *, revised: bool) -> CaseResult:
    kinds = [data_type(text) for _, text in case["expected_columns"]]
    shown = [column for column in relation.columns if column.shown]
    if len(shown) != len(kinds):
        found = f"{len(shown)} columns ({', '.join(column.name for column in shown)}) instead of {len(kinds)}"
        return CaseResult(name, "fail", case["expected"], None, found)
    expected = [[value_of(value, kind) for value, kind in zip(row, kinds, strict=True)] for row in case["expected"]]
    left, gone = _folded(rows, [column.physical for column in shown], relation)
    got = [_normal(row, kinds) for row in left]
    wanted = [_normal(row, kinds) for row in expected]
    reason = ""
    if gone:
        reason = f"{len(gone)} rows were taken back that never came, such as {gone[0]}"
    elif case.get("strict_changelog") and revised:
        reason = "rows were taken back, though the source engine only adds"
    else:
        reason = _difference(wanted, got, ordered=bool(case.get("ordered")))
    return CaseResult(name, "fail" if reason else "pass", case["expected"], got, reason)


def _folded(
    rows: pl.DataFrame, columns: Sequence[str], relation: Relation
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Fold changes to the rows that are left, in the order that the query asks for."""
    if relation.order and rows.height:
        order = [name for name, _ in relation.order]
        rows = rows.sort(order, descending=[down for _, down in relation.order], maintain_order=True)
    signs = [-1 if sign else 1 for sign in rows.get_column(IS_RETRACTION)] if IS_RETRACTION in rows.columns else None
    chosen = rows.select([pl.col(name).alias(f"c{place}") for place, name in enumerate(columns)]).rows()
    if signs is None:
        return chosen, []
    left: dict[str, list[Any]] = {}
    for row, sign in zip(chosen, signs, strict=True):
        held = left.setdefault(repr(row), [row, 0])
        held[1] += sign
    there = [row for row, count in left.values() for _ in range(count)]
    return there, [row for row, count in left.values() if count < 0]


def _normal(row: Sequence[Any], kinds: Sequence[pl.DataType]) -> list[Any]:
    return [_value(value, kind) for value, kind in zip(row, kinds, strict=True)]


def _value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, pl.Decimal):
        return round(Decimal(str(value)), kind.scale)
    if kind.is_integer() and isinstance(value, int | float | Decimal):
        return int(value) if value == int(value) else value
    if kind.is_float():
        return float(value)
    if isinstance(value, dict):
        return [_value(item, field.dtype) for item, field in zip(value.values(), kind.fields, strict=True)]
    if isinstance(value, list) and isinstance(kind, pl.List):
        return [_value(item, kind.inner) for item in value]
    return value


def _difference(expected: list[list[Any]], got: list[list[Any]], *, ordered: bool) -> str:
    if len(expected) != len(got):
        extra = _unmatched(got, expected)
        missing = _unmatched(expected, got)[:2]
        return f"{len(got)} rows instead of {len(expected)}; not expected: {extra[:2]}; missing: {missing}"
    if ordered:
        for place, (wanted, row) in enumerate(zip(expected, got, strict=True)):
            if not _same(wanted, row):
                return f"row {place + 1} is {row} instead of {wanted}"
        return ""
    missing = _unmatched(expected, got)
    if missing:
        return f"row {missing[0]} is missing; instead there is {_unmatched(got, expected)[:1]}"
    return ""


def _unmatched(rows: list[list[Any]], others: list[list[Any]]) -> list[list[Any]]:
    exact = Counter(repr(row) for row in others)
    rest = []
    for row in rows:
        if exact[repr(row)] > 0:
            exact[repr(row)] -= 1
        else:
            rest.append(row)
    spare = [row for row in others if exact[repr(row)] > 0]
    missing = []
    for row in rest:
        place = next((place for place, other in enumerate(spare) if _same(row, other)), None)
        if place is None:
            missing.append(row)
        else:
            del spare[place]
    return missing


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-12) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


__all__ = ["data_type", "run_case", "value_of"]
