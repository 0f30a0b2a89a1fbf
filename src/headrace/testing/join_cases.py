"""Conformance cases for joins: what other engines' test suites state, run through the public API in this process.

A case is a script of steps. Each side is a stream of rows whose watermark the script says itself: a row that only
carries the watermark goes with the others, and is left out behind `watermark(...)`. Columns are called `left.x` and
`right.x`, those of a chain by the name of their input. Nothing in here knows single cases: any file of the same fields
can be run.
"""

from __future__ import annotations

import builtins
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import sqlglot
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, WINDOW_END, WINDOW_START
from headrace.errors import HeadraceError
from headrace.inprocess import Runner
from headrace.joins.sides import LATE_SIDE
from headrace.stream import Stream
from headrace.testing.case import CaseResult
from headrace.testing.conditions import UnsupportedCaseError
from headrace.testing.witness import Witness, witnessed
from headrace.time import punctuated
from headrace.windows import collect, count, cumulative, max, min, same_window, sliding, sum, tumbling  # noqa: A004

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.stream.stages import Pipeline
    from headrace.tables.table import Table
    from headrace.testing.turns import Taker
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner

_INSTANT: Final = pl.Datetime("us", "UTC")
_TYPES: Final[dict[str, Any]] = {
    "int": pl.Int64(),
    "integer": pl.Int64(),
    "bigint": pl.Int64(),
    "long": pl.Int64(),
    "smallint": pl.Int64(),
    "double": pl.Float64(),
    "float": pl.Float64(),
    "real": pl.Float64(),
    "decimal": pl.Float64(),
    "string": pl.String(),
    "varchar": pl.String(),
    "bool": pl.Boolean(),
    "boolean": pl.Boolean(),
    "timestamp": _INSTANT,
}
#: Columns beside those of a case: a row's kind of change, whether it only carries the watermark, its place.
_CHANGE, _MARK, _HERE = "row_change", "watermark_mark", "is_there"
_IDLE_AFTER: Final = 3_600_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: An interval without bound keeps its rows for so long.
_FOR_EVER: Final = "36500d"


class _Source:
    """One input of a case.

    Args:
        name: What the steps call it.
        description: Its columns, time, kind of rows and primary key.
    """

    def __init__(self, name: str, description: Mapping[str, Any]) -> None:
        self.name = name
        self.description = description
        self.columns = [(f"{name}.{column}", _data_type(kind)) for column, kind in description["columns"]]
        self.input = description.get("input") or "append"
        #: The last watermark that was said, in milliseconds.
        self.watermark: int | None = None

    def column(self, name: str) -> str:
        return f"{self.name}.{name}"

    def _marked(self) -> Stream:
        mark, change = self.column(_MARK), self.column(_CHANGE)
        schema = {**dict(self.columns), change: pl.String(), mark: pl.Boolean()}
        return (
            Stream.rows(self.name, schema)
            .watermark(punctuated(pl.col(mark), max_ahead=None), idle_after=timedelta(microseconds=_IDLE_AFTER))
            .filter(~pl.col(mark))
            .with_columns(**{self.column(_HERE): pl.lit(value=True)})
        )

    def plain(self) -> Stream:
        """The rows as they come."""
        return self._marked().drop(self.column(_CHANGE), self.column(_MARK))

    def table(self) -> Table | Stream:
        """The rows as a table, or as a stream of changes where they have no primary key."""
        if self.input == "append":
            return self.plain().as_changelog(pl.lit(value=False))
        keys = self.description.get("primary_key")
        mark, change = self.column(_MARK), self.column(_CHANGE)
        if self.input == "upsert" and keys:
            rows = self._marked().with_columns(**{mark: pl.col(change) == "delete"}).drop(change)
            versioned = bool(self.description.get("versioned"))
            return rows.as_table(*map(self.column, keys), deletes=pl.col(mark), versioned=versioned, null_keys=True)
        return self._marked().drop(mark).as_changelog(pl.col(change) == "delete").drop(change)

    def frame(self, rows: Sequence[Sequence[Any]], mark: int | None = None) -> pl.DataFrame:
        """Make a batch of rows, and of one that says the watermark in milliseconds."""
        time = self.description.get("time")
        changing = self.input in ("upsert", "changelog")
        values = [list(row[1:] if changing else row) for row in rows]
        changes = [str(row[0]) if changing else "" for row in rows]
        names = [name for name, _ in self.columns]
        place = names.index(self.column(time)) if time else None
        times = [row[place] if place is not None else 0 for row in values]
        if mark is not None:
            values, changes, times = [*values, [None] * len(names)], [*changes, ""], [*times, mark]
        data = {
            name: pl.Series(name, [_value(row[at], kind) for row in values], dtype=kind)
            for at, (name, kind) in enumerate(self.columns)
        }
        marks = [False] * len(rows) + ([] if mark is None else [True])
        return pl.DataFrame(
            {
                **data,
                self.column(_CHANGE): pl.Series(changes, dtype=pl.String),
                self.column(_MARK): pl.Series(marks, dtype=pl.Boolean),
                EVENT_TIME: pl.Series([_value(each, _INSTANT) for each in times], dtype=_INSTANT),
            }
        )


class _Script:
    """Takes the steps of a case.

    Args:
        stream: What is run.
        sources: Its inputs.
        key_groups: How many key groups there are: at the start, and after each restart.
    """

    def __init__(self, stream: Stream | Pipeline, sources: Sequence[_Source], key_groups: Sequence[int]) -> None:
        self._stream = stream
        self._sources = {source.name: source for source in sources}
        self._key_groups = cycle(key_groups)
        self._runner = Runner(stream, key_groups=next(self._key_groups))
        self._now = 0
        self.results: list[pl.DataFrame] = []
        self.late: list[pl.DataFrame] = []

    def take(self, step: Mapping[str, Any]) -> None:
        """Take a step that expects nothing."""
        if step.get("restart"):
            self._runner = Runner(self._stream, key_groups=next(self._key_groups), snapshot=self._runner.snapshot())
        elif step.get("end"):
            self._keep(self._runner.finish())
        elif "idle" in step:
            self._idle(str(step["idle"]))
        elif "input" in step and "rows" in step:
            self._feed({step["input"]: step["rows"]}, {})
        else:
            marks = dict.fromkeys(self._sources, step["watermark"]) if "watermark" in step else {}
            marks |= {
                key.removeprefix("watermark_"): value for key, value in step.items() if key.startswith("watermark_")
            }
            rows = {name: step[name] for name in self._sources if name in step}
            unknown = set(step) - set(rows) - {"watermark"} - {f"watermark_{name}" for name in self._sources}
            if unknown:
                raise UnsupportedCaseError(f"a step with {', '.join(sorted(unknown))}")
            self._feed(rows, marks)

    def _feed(self, rows: Mapping[str, Any], marks: Mapping[str, int | None]) -> None:
        frames = {}
        for name in {**rows, **marks}:
            mark = marks.get(name)
            source = self._sources[name]
            if mark is not None:
                source.watermark = mark if source.watermark is None else builtins.max(mark, source.watermark)
            frames[name] = source.frame(rows.get(name, ()), mark)
        if frames:
            self._keep(self._runner.step(frames, now=self._now))

    def _idle(self, idle: str) -> None:
        """Let time pass, in which the other inputs say their watermark again."""
        self._now += _IDLE_AFTER + 1
        frames = {
            name: source.frame([], source.watermark)
            for name, source in self._sources.items()
            if name != idle and source.watermark is not None
        }
        self._keep(self._runner.step(frames or None, now=self._now))

    def _keep(self, batch: Any) -> None:
        if batch.results.height:
            self.results.append(batch.results)
        if batch.late is not None:
            self.late.append(batch.late)
        if batch.dismissed is not None:
            raise HeadraceError(f"rows were dismissed: {batch.dismissed.rows()}")


def run_case(case: Mapping[str, Any], key_groups: int | Sequence[int] = 4, take: Taker | None = None) -> CaseResult:
    """Run one case.

    Args:
        case: Its fields; README_joins.md beside the files describes them.
        key_groups: How many key groups there are; of several numbers each restart takes the next one.
        take: Takes the turns of each stateful step, on one key group; None to let the runner take them.
    """
    name = str(case.get("id", ""))
    try:
        stream, sources, names = _chain(case) if "joins" in case else _pair(case)
    except UnsupportedCaseError as problem:
        return CaseResult(name, "unsupported", None, None, str(problem))
    except HeadraceError as problem:
        return CaseResult(name, "fail", None, None, str(problem))
    groups = [key_groups] if isinstance(key_groups, int) else key_groups
    witnesses: list[Witness] = []
    script = _Script(stream if take is None else witnessed(stream, witnesses), sources, groups)
    result = _Result(case, sources, names)
    try:
        for number, step in enumerate(case["steps"]):
            if "expect" in step:
                wanted, got = _multiset(step["expect"]), _multiset(result.rows(script.results))
                script.results = []
            elif "late" in step:
                wanted, got = _multiset(step["late"]), _multiset(result.late(script.late))
                script.late = []
            elif "state_max" in step:
                continue  # a slice is freed as a whole, so single rows are not counted
            else:
                script.take(step)
                continue
            if wanted != got:
                expected, came = sorted((wanted - got).elements()), sorted((got - wanted).elements())
                return CaseResult(name, "fail", expected, came, f"step {number}: {next(iter(step))}")
    except UnsupportedCaseError as problem:
        return CaseResult(name, "unsupported", None, None, str(problem))
    except HeadraceError as problem:
        return CaseResult(name, "fail", None, None, f"step {number}: {problem}")
    if take is not None:
        difference = next((found for witness in witnesses if (found := witness.difference(take))), None)
        if difference is not None:
            return CaseResult(name, "fail", *difference)
    return CaseResult(name, "pass", None, None, "")


def _pair(case: Mapping[str, Any]) -> tuple[Stream, list[_Source], list[str]]:
    """Make the stream of a case with two sides."""
    left, right = _Source("left", case["left"]), _Source("right", case["right"])
    build: dict[str, Callable[[Mapping[str, Any], _Source, _Source, dict[str, Any]], Stream]] = {
        "interval": _interval,
        "window": _window,
        "temporal": _temporal,
        "latest": _latest,
        "regular": _regular,
        "asof": _asof,
    }
    kind = case["kind"]
    if kind not in build:
        raise UnsupportedCaseError(f"a join of the kind {kind}")
    options: dict[str, Any] = {
        "on": [
            (left.column(one), right.column(two))
            for one, two in zip(case["left"].get("key") or [], case["right"].get("key") or [], strict=True)
        ],
        "how": case.get("how", "inner"),
        "where": condition(case["condition"]) if case.get("condition") else None,
        "null_safe": bool(case.get("null_safe")),
    }
    return build[kind](case, left, right, options), [left, right], ["left", "right"]


def _interval(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    bounds = case["bounds"]
    within = (_duration(bounds.get("lower_ms")), _duration(bounds.get("upper_ms")))
    return left.plain().join(
        right.plain(), within=within, grace=1000 * (case.get("grace_ms") or 0), keep_for=_FOR_EVER, **options
    )


def _window(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    window = _assigner(case["window"])
    streams = []
    for source in (left, right):
        stream, aggregate = source.plain(), source.description.get("aggregate")
        if aggregate:
            stream, window = _aggregated(source, stream, aggregate, _assigner(case["window"])), same_window()
        streams.append(stream)
    if isinstance(window, type(same_window())) and not all(WINDOW_END in stream.schema for stream in streams):
        raise UnsupportedCaseError("a window join of which one side is aggregated")
    return streams[0].join(streams[1], window=window, grace=1000 * (case.get("grace_ms") or 0), **options)


def _temporal(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    return left.plain().join(right.table(), as_of=EVENT_TIME, grace=1000 * (case.get("grace_ms") or 0), **options)


def _latest(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    rows = left.plain()
    if left.input != "append":
        table = left.table()
        rows = table if isinstance(table, Stream) else table.changes()
    until = case.get("load_until_ms")
    return rows.join(right.table(), load_until=None if until is None else until * 1000, **options)


def _regular(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    del case
    table = left.table()
    if isinstance(table, Stream):
        return table.join(right.table(), revise=True, **options)
    return table.join(right.table(), **options)


def _asof(case: Mapping[str, Any], left: _Source, right: _Source, options: dict[str, Any]) -> Stream:
    asof = case["asof"]
    by = (left.column(asof["left"]), asof["op"], right.column(asof["right"]))
    table, other = left.table(), right.table()
    if isinstance(table, Stream) or isinstance(other, Stream):
        raise UnsupportedCaseError("an asof join of a side without a primary key")
    return table.join_nearest(other, by=by, **options)


def _chain(case: Mapping[str, Any]) -> tuple[Stream, list[_Source], list[str]]:
    """Make the stream of a case with several joins, one behind the other."""
    sources = {name: _Source(name, description) for name, description in case["inputs"].items()}
    streams: dict[str, Stream] = {}
    members: dict[str, list[str]] = {name: [name] for name in sources}
    joined: Stream | None = None
    for join in case["joins"]:
        one, two = str(join["left"]), str(join["right"])
        on = [(a, b) if a.split(".")[0] in members[one] else (b, a) for a, b in join["on"]]
        options: dict[str, Any] = {
            "on": on,
            "how": join.get("how", "inner"),
            "where": condition(join["condition"]) if join.get("condition") else None,
            "null_safe": bool(join.get("null_safe") or case.get("null_safe")),
        }
        joined = _chained(join, one, two, sources, streams, options)
        streams[join["id"]] = joined
        members[join["id"]] = [*members[one], *members[two]]
    if joined is None:
        raise UnsupportedCaseError("a chain without joins")
    return joined, list(sources.values()), list(sources)


def _chained(
    join: Mapping[str, Any],
    one: str,
    two: str,
    sources: Mapping[str, _Source],
    streams: Mapping[str, Stream],
    options: dict[str, Any],
) -> Stream:
    kind = join["kind"]
    if kind == "interval":
        bounds = join["bounds"]
        sides = []
        for name, time in ((one, bounds.get("left_time")), (two, bounds.get("right_time"))):
            stream = streams[name] if name in streams else sources[name].plain()
            sides.append(stream.with_columns(event_time=pl.col(time)) if time and name in streams else stream)
        within = (_duration(bounds.get("lower_ms")), _duration(bounds.get("upper_ms")))
        return sides[0].join(sides[1], within=within, keep_for=_FOR_EVER, **options)
    right = streams[two] if two in streams else sources[two].table()
    if kind == "latest":
        left = streams[one] if one in streams else sources[one].plain()
        return left.join(right, **options)
    if kind == "regular":
        first = streams[one] if one in streams else sources[one].table()
        left = first if isinstance(first, Stream) else first.changes()
        return left.join(right, revise=True, **options)
    raise UnsupportedCaseError(f"a chain with a join of the kind {kind}")


def _aggregated(source: _Source, stream: Stream, aggregate: Mapping[str, Any], window: Assigner) -> Stream:
    """Group the rows of a side per window."""
    group = [source.column(name) for name in aggregate["group"]]
    values: dict[str, Aggregate] = {}
    after: dict[str, pl.Expr] = {}
    for name, function, *columns in aggregate["values"]:
        values[source.column(name)], finish = _value_of(function, *map(source.column, columns))
        if finish is not None:
            after[source.column(name)] = finish(pl.col(source.column(name)))
    found = stream.key_by(*group, null_keys=True).window(window).aggregate(on_error="fail", keep_for=None, **values)
    return found.with_columns(**after, **{source.column(_HERE): pl.lit(value=True)})


def _value_of(function: str, column: str = "") -> tuple[Aggregate, Callable[[pl.Expr], pl.Expr] | None]:
    if function == "count_distinct":
        return collect(column), lambda values: values.list.drop_nulls().list.n_unique().cast(pl.Int64)
    if function == "count":
        return (
            (collect(column), lambda values: values.list.drop_nulls().list.len().cast(pl.Int64))
            if column
            else (count(), None)
        )
    plain: dict[str, Callable[[str], Aggregate]] = {"sum": sum, "max": max, "min": min}
    if function not in plain:
        raise UnsupportedCaseError(f"the aggregate {function}")
    return plain[function](column), None


def _assigner(window: Mapping[str, Any]) -> Assigner:
    offset = _duration(window.get("offset_ms") or 0) or 0
    size = _duration(window["size_ms"]) or 0
    if window["type"] == "tumble":
        return tumbling(size, offset=offset)
    if window["type"] == "hop":
        return sliding(size, every=_duration(window["slide_ms"]) or 0, offset=offset)
    if window["type"] == "cumulate":
        return cumulative(size, step=_duration(window["step_ms"]) or 0, offset=offset)
    raise UnsupportedCaseError(f"windows of the type {window['type']}")


class _Result:
    """Reads rows of a case from what came out.

    Args:
        case: The case.
        sources: Its inputs.
        names: Their names.
    """

    def __init__(self, case: Mapping[str, Any], sources: Sequence[_Source], names: Sequence[str]) -> None:
        self._select = case["select"]
        self._changelog = case.get("result") == "changelog"
        self._sources = {source.name: source for source in sources}
        self._names = names

    def rows(self, frames: Sequence[pl.DataFrame]) -> list[list[Any]]:
        """Give the rows of results; of changes the net."""
        found: list[list[Any]] = []
        net: Counter[tuple[Any, ...]] = Counter()
        for frame in frames:
            back = (
                frame.get_column(IS_RETRACTION).to_list() if IS_RETRACTION in frame.columns else [False] * frame.height
            )
            for row, taken in zip(self._selected(frame), back, strict=True):
                if self._changelog:
                    net[tuple(row)] += -1 if taken else 1
                else:
                    found.append(["-", *row] if taken else row)
        for changed, weight in net.items():
            found += [["-" if weight < 0 else "+", *changed]] * abs(weight)
        return found

    def late(self, frames: Sequence[pl.DataFrame]) -> list[list[Any]]:
        """Give the late rows with their side."""
        found = []
        for frame in frames:
            for row in frame.iter_rows(named=True):
                side = row.get(LATE_SIDE) or next(name for name in self._names if row.get(f"{name}.{_HERE}"))
                source = self._sources[side]
                found.append([side, [_plain(row[name]) for name, _ in source.columns]])
        return found

    def _selected(self, frame: pl.DataFrame) -> list[list[Any]]:
        columns = []
        for name in self._select:
            side, _, column = name.rpartition(".")
            if column in (WINDOW_START, WINDOW_END) and name not in frame.columns:
                values = frame.get_column(column).to_list()
                here = frame.get_column(f"{side}.{_HERE}").to_list() if side else [True] * frame.height
                values = [value if there else None for value, there in zip(values, here, strict=True)]
            else:
                values = frame.get_column(name).to_list()
            columns.append([_plain(value) for value in values])
        return [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in range(frame.height)]


def condition(text: str) -> pl.Expr:
    """Read an SQL condition over `left.x` and `right.x`.

    >>> print(condition("left.n < right.n AND left.a <> 'x'"))
    [([(col("left.n")) < (col("right.n"))]) & ([(col("left.a")) == ("x")].not())]
    """
    tree = sqlglot.parse_one(text, dialect="duckdb")
    for column in list(tree.find_all(exp.Column)):
        if column.table:
            column.replace(exp.column(exp.to_identifier(f"{column.table}.{column.name}", quoted=True)))
    return pl.sql_expr(tree.sql(dialect="duckdb", identify=True))


def _multiset(rows: Sequence[Any]) -> Counter[str]:
    return Counter(repr(_normal(row)) for row in rows)


def _normal(value: Any) -> Any:
    """Bring a value to a form in which equal ones look alike: whole doubles are numbers as any."""
    if isinstance(value, list | tuple):
        return [_normal(each) for each in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(milliseconds=1)
    return value


def _data_type(kind: str) -> Any:
    found = _TYPES.get(kind.lower().partition("(")[0].strip())
    if found is None:
        raise UnsupportedCaseError(f"the type {kind}")
    return found


def _value(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if kind == _INSTANT:
        return _EPOCH + timedelta(milliseconds=value)
    return value


def _duration(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else milliseconds * 1000
