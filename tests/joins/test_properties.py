"""Every kind of join with every way to treat rows without a partner, against nested loops and DuckDB.

Random rows in random order and batches, watermarks of each side, restarts, one to eight key groups.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.joins import oracle

from headrace.joins.sides import HOWS
from headrace.testing.join_cases import run_case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

CHECKED = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
COLUMNS = [["k", "int"], ["n", "int"], ["ts", "timestamp"]]
SIDE = {"columns": COLUMNS, "key": ["k"], "time": "ts"}
VERSIONS = {**SIDE, "primary_key": ["k"], "input": "upsert"}
TABLE = {"columns": [["id", "int"], ["k", "int"], ["n", "int"]], "key": ["k"], "primary_key": ["id"], "input": "upsert"}
BOTH = [f"{side}.{name}" for side in ("left", "right") for name, _ in COLUMNS]
BOTH_TABLES = [f"{side}.{name}" for side in ("left", "right") for name in ("id", "k", "n")]

#: How many key groups there are at the start, and after each restart.
GROUPS = st.lists(st.integers(1, 8), min_size=1, max_size=3)

keys = st.sampled_from([0, 1, 2, None])
numbers = st.integers(0, 4)
times = st.integers(-20, 60)
rows = st.lists(st.tuples(keys, numbers, times).map(list), max_size=6)
changes = st.lists(
    st.tuples(st.sampled_from(["upsert", "upsert", "upsert", "delete"]), st.integers(0, 2), numbers, times).map(list),
    max_size=4,
)
table_changes = st.lists(
    st.tuples(st.sampled_from(["upsert", "upsert", "delete"]), st.integers(0, 5), keys, numbers).map(list), max_size=5
)


@st.composite
def scripts(draw: Any, right: Any = rows, left: Any = rows, marks: bool = True) -> list[dict[str, Any]]:
    steps: list[dict[str, Any]] = []
    reached = {"left": -30, "right": -30}
    idle = ""
    for _ in range(draw(st.integers(1, 7))):
        step: dict[str, Any] = {}
        for side, brought in (("left", left), ("right", right)):
            if draw(st.booleans()):
                step[side] = draw(brought)
            if marks and draw(st.booleans()):
                reached[side] += draw(st.integers(0, 40))
                step[f"watermark_{side}"] = reached[side]
        steps.append(step or {"left": []})
        idle = "" if idle in step or f"watermark_{idle}" in step else idle
        if draw(st.integers(0, 3)) == 0:
            steps.append({"restart": True})
        if marks and not idle and draw(st.integers(0, 3)) == 0:
            idle, other = draw(st.sampled_from([("left", "right"), ("right", "left")]))
            # The case driver lets time pass in which the other side says its watermark again: it needs one.
            steps += [{f"watermark_{other}": reached[other]}, {"idle": idle}]
    return steps


def check(case: dict[str, Any], groups: list[int], expected: Sequence[Any], late: Sequence[Any] = ()) -> None:
    steps = [*case["steps"], {"expect": [list(row) for row in expected]}]
    if case["kind"] not in ("latest", "regular", "asof"):
        steps.append({"late": [[side, list(row)] for side, row in late]})

    result = run_case({**case, "id": "random", "steps": steps}, groups)

    assert result.status == "pass", f"{result.reason}: expected {result.expected}, got {result.got}"


def matching(case: Mapping[str, Any], key: int = 0, number: int = 1) -> Callable[[oracle.Row, oracle.Row], bool]:
    null_safe = bool(case.get("null_safe"))
    less = "condition" in case

    def match(left: oracle.Row, right: oracle.Row) -> bool:
        return oracle.equal(left[key], right[key], null_safe=null_safe) and (not less or left[number] < right[number])

    return match


@contextmanager
def keys_counted_as(hot: bool) -> Iterator[None]:
    """Let joins treat the few rows of a test as they treat keys with very many."""
    if not hot:
        yield
        return
    with patch("headrace.joins.sides.PAIRS_AT_ONCE", 3), patch("headrace.joins.interval._MANY_PARTNERS", 0):
        yield


def options(draw: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"null_safe": draw(st.booleans())}
    if draw(st.booleans()):
        found["condition"] = "left.n < right.n"
    return found


def selected(how: str, names: list[str]) -> list[str]:
    return names[: len(names) // 2] if how in ("semi", "anti") else names


@pytest.mark.parametrize("how", HOWS)
@CHECKED
@given(data=st.data(), steps=scripts(), groups=GROUPS)
def test_interval_joins(how: str, data: Any, steps: list[dict[str, Any]], groups: list[int]) -> None:
    lower, upper = data.draw(st.integers(-20, 20)), data.draw(st.integers(-20, 20))
    case = {
        "kind": "interval",
        "how": how,
        "left": SIDE,
        "right": SIDE,
        "bounds": {"lower_ms": lower, "upper_ms": upper},
        "grace_ms": data.draw(st.sampled_from([0, 0, 7])),
        "select": selected(how, BOTH),
        "steps": [*steps, {"end": True}],
        **options(data.draw),
    }
    expected, late = oracle.interval(case, matching(case))

    with keys_counted_as(hot=data.draw(st.booleans())):
        check(case, groups, expected, late)


@pytest.mark.parametrize("how", HOWS)
@CHECKED
@given(data=st.data(), steps=scripts(), groups=GROUPS)
def test_window_joins(how: str, data: Any, steps: list[dict[str, Any]], groups: list[int]) -> None:
    windows = [
        {"type": "tumble", "size_ms": 10, "offset_ms": 3},
        {"type": "hop", "size_ms": 20, "slide_ms": 8},
        {"type": "cumulate", "size_ms": 30, "step_ms": 10},
    ]
    case = {
        "kind": "window",
        "how": how,
        "left": SIDE,
        "right": SIDE,
        "window": data.draw(st.sampled_from(windows)),
        "select": ["window_start", "window_end", *selected(how, BOTH)],
        "steps": [*steps, {"end": True}],
        **options(data.draw),
    }
    expected, late = oracle.window(case, matching(case))

    with keys_counted_as(hot=data.draw(st.booleans())):
        check(case, groups, expected, late)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@CHECKED
@given(data=st.data(), steps=scripts(right=changes), groups=GROUPS)
def test_joins_with_versions(how: str, data: Any, steps: list[dict[str, Any]], groups: list[int]) -> None:
    case = {
        "kind": "temporal",
        "how": how,
        "left": SIDE,
        "right": VERSIONS,
        "grace_ms": data.draw(st.sampled_from([0, 0, 7])),
        "select": selected(how, BOTH),
        "steps": [*steps, {"end": True}],
        **{name: value for name, value in options(data.draw).items() if name == "condition"},
    }
    expected, late = oracle.temporal(case, matching(case))

    check(case, groups, expected, late)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@CHECKED
@given(data=st.data(), steps=scripts(right=changes, marks=False), groups=GROUPS)
def test_joins_with_the_newest_rows(how: str, data: Any, steps: list[dict[str, Any]], groups: list[int]) -> None:
    case = {
        "kind": "latest",
        "how": how,
        "left": SIDE,
        "right": VERSIONS,
        "select": selected(how, BOTH),
        "steps": steps,
        **{name: value for name, value in options(data.draw).items() if name == "condition"},
    }

    check(case, groups, oracle.latest(case, matching(case)))


@pytest.mark.parametrize("how", HOWS)
@CHECKED
@given(
    data=st.data(),
    steps=scripts(left=table_changes, right=table_changes, marks=False),
    groups=GROUPS,
)
def test_joins_of_tables(how: str, data: Any, steps: list[dict[str, Any]], groups: list[int]) -> None:
    case = {
        "kind": "regular",
        "how": how,
        "left": TABLE,
        "right": TABLE,
        "select": selected(how, BOTH_TABLES),
        "result": "changelog",
        **options(data.draw),
    }
    before: list[oracle.Row] = []
    script: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        held = oracle.tables(steps[: number + 1])
        after = oracle.sql_join(how, held["left"], held["right"], matching(case, key=1, number=2))
        script += [step, {"expect": oracle.changes(before, after)}]
        before = after

    check({**case, "steps": script}, groups, [])


@pytest.mark.parametrize("how", ["inner", "left"])
@CHECKED
@given(
    op=st.sampled_from(["<", "<=", ">", ">="]),
    steps=scripts(left=table_changes, right=table_changes, marks=False),
    groups=GROUPS,
)
def test_joins_with_the_nearest_row(how: str, op: str, steps: list[dict[str, Any]], groups: list[int]) -> None:
    before: list[oracle.Row] = []
    script: list[dict[str, Any]] = []
    for number, step in enumerate(steps):
        after = oracle.nearest(how, oracle.tables(steps[: number + 1]), op)
        script += [step, {"expect": oracle.changes(before, after)}]
        before = after
    case = {
        "kind": "asof",
        "how": how,
        "left": TABLE,
        "right": TABLE,
        "asof": {"left": "n", "op": op, "right": "n"},
        "select": BOTH_TABLES,
        "result": "changelog",
        "steps": script,
    }

    check(case, groups, [])


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@CHECKED
@given(left=rows, right=rows, null_safe=st.booleans(), lower=st.integers(-20, 20), upper=st.integers(-20, 20))
def test_nested_loops_agree_with_duckdb(
    how: str, left: list[Any], right: list[Any], null_safe: bool, lower: int, upper: int
) -> None:
    frames = {
        side: pl.DataFrame(given_rows, schema={"k": pl.Int64, "n": pl.Int64, "ts": pl.Int64}, orient="row")
        for side, given_rows in (("l", left), ("r", right))
    }
    equal = "IS NOT DISTINCT FROM" if null_safe else "="
    select = "SELECT l.*" if how in ("semi", "anti") else "SELECT l.*, r.*"
    with duckdb.connect() as database:
        for name, frame in frames.items():
            database.register(name, frame.to_arrow())
        judged = database.execute(
            f"{select} FROM l {how} JOIN r ON l.k {equal} r.k AND r.ts BETWEEN l.ts + {lower} AND l.ts + {upper}"
        ).fetchall()
    case = {
        "kind": "interval",
        "how": how,
        "bounds": {"lower_ms": lower, "upper_ms": upper},
        "null_safe": null_safe,
        "steps": [{"left": left, "right": right}],
    }

    found, _ = oracle.interval(case, matching(case))

    assert sorted(map(repr, found)) == sorted(map(repr, judged))
