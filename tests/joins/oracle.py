"""Joins by nested loops: what a case must give, worked out row by row from the rules and nothing else."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Row = tuple[Any, ...]
#: Rows of both sides are (key, n, time); those of tables (key, n, time) or (id, key, n).
Match = Callable[[Row, Row], bool]
LEFT_WIDTH = RIGHT_WIDTH = 3


def sql_join(how: str, left: Sequence[Row], right: Sequence[Row], match: Match) -> list[Row]:
    """Join two lists as SQL does."""
    found: list[Row] = []
    met_right: set[int] = set()
    for row in left:
        partners = [place for place, other in enumerate(right) if match(row, other)]
        met_right.update(partners)
        if how == "semi":
            found += [row] if partners else []
        elif how == "anti":
            found += [] if partners else [row]
        else:
            found += [(*row, *right[place]) for place in partners]
            if not partners and how in ("left", "full"):
                found.append((*row, *[None] * RIGHT_WIDTH))
    if how in ("right", "full"):
        found += [(*[None] * LEFT_WIDTH, *other) for place, other in enumerate(right) if place not in met_right]
    return found


def equal(one: Any, two: Any, *, null_safe: bool) -> bool:
    return one == two if null_safe else one is not None and two is not None and one == two


class Watermarks:
    """The watermark of a script: the lesser of both sides, without one that is idle, never going back."""

    def __init__(self, grace: int = 0) -> None:
        self._marks = {"left": -math.inf, "right": -math.inf}
        self._grace = grace
        self._idle = ""
        self._least = -math.inf

    @property
    def least(self) -> float:
        return self._least - self._grace

    def take(self, step: Mapping[str, Any]) -> None:
        for side in self._marks:
            mark = math.inf if step.get("end") else step.get(f"watermark_{side}", -math.inf)
            self._marks[side] = max(self._marks[side], mark)
            if step.get("idle") == side:
                self._idle = side
            elif self._idle == side and (step.get(side) or f"watermark_{side}" in step):
                self._idle = ""
        active = [mark for side, mark in self._marks.items() if side != self._idle]
        self._least = max(self._least, min(active))


def windows_of(window: Mapping[str, Any], time: int) -> list[tuple[int, int]]:
    """List the windows that hold a time."""
    size, offset = window["size_ms"], window.get("offset_ms", 0)
    if window["type"] == "cumulate":
        start = time - (time - offset) % size
        step = window["step_ms"]
        return [(start, start + length) for length in range(step, size + 1, step) if start + length > time]
    every = window.get("slide_ms", size)
    last = time - (time - offset) % every
    return [(start, start + size) for start in range(last, time - size, -every)]


def interval(case: Mapping[str, Any], match: Match) -> tuple[list[Row], list[tuple[str, Row]]]:
    """Give the result and the late rows of an interval join."""
    lower, upper = case["bounds"]["lower_ms"], case["bounds"]["upper_ms"]
    kept: dict[str, list[Row]] = {"left": [], "right": []}
    late = []
    watermarks = Watermarks(case.get("grace_ms", 0))
    for step in case["steps"]:
        for side, row in _rows(step):
            if row[2] < watermarks.least:
                late.append((side, row))
            else:
                kept[side].append(row)
        watermarks.take(step)

    def near(row: Row, other: Row) -> bool:
        return match(row, other) and lower <= other[2] - row[2] <= upper

    return sql_join(case["how"], kept["left"], kept["right"], near), late


def window(case: Mapping[str, Any], match: Match) -> tuple[list[Row], list[tuple[str, Row]]]:
    """Give the result, each row with its window, and the late rows of a window join."""
    held: dict[str, dict[tuple[int, int], list[Row]]] = {"left": {}, "right": {}}
    late = []
    watermarks = Watermarks()
    for step in case["steps"]:
        for side, row in _rows(step):
            still_open = [each for each in windows_of(case["window"], row[2]) if each[1] > watermarks.least]
            if not still_open:
                late.append((side, row))
            for each in still_open:
                held[side].setdefault(each, []).append(row)
        watermarks.take(step)
    found = []
    for each in {**held["left"], **held["right"]}:
        rows = sql_join(case["how"], held["left"].get(each, []), held["right"].get(each, []), match)
        found += [(*each, *row) for row in rows]
    return found, late


def temporal(case: Mapping[str, Any], match: Match) -> tuple[list[Row], list[tuple[str, Row]]]:
    """Give the result and the late rows of a join with the versions of a table."""
    versions: dict[Any, dict[int, Row | None]] = {}
    waiting: list[Row] = []
    found: list[Row] = []
    late = []
    watermarks = Watermarks(case.get("grace_ms", 0))
    for step in case["steps"]:
        for row in step.get("left", ()):
            if row[2] < watermarks.least:
                late.append(("left", tuple(row)))
            else:
                waiting.append(tuple(row))
        for change, key, n, time in step.get("right", ()):
            versions.setdefault(key, {})[time] = None if change == "delete" else (key, n, time)
        watermarks.take(step)
        due = [row for row in waiting if row[2] < watermarks.least]
        waiting = [row for row in waiting if row[2] >= watermarks.least]
        for row in due:
            times = [time for time in versions.get(row[0], {}) if time <= row[2]]
            version = versions[row[0]][max(times)] if times and row[0] is not None else None
            found += sql_join(case["how"], [row], [] if version is None else [version], match)
    return found, late


def latest(case: Mapping[str, Any], match: Match) -> list[Row]:
    """Give the result of a join with a table as it is."""
    table: dict[Any, Row] = {}
    found: list[Row] = []
    for step in case["steps"]:
        for change, key, n, time in step.get("right", ()):
            table.pop(key, None)
            if change != "delete":
                table[key] = (key, n, time)
        for row in step.get("left", ()):
            found += sql_join(case["how"], [tuple(row)], list(table.values()), match)
    return found


def tables(steps: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
    """Give the rows of both tables of (id, key, n) after some steps."""
    held: dict[str, dict[Any, Row]] = {"left": {}, "right": {}}
    for step in steps:
        for side, rows in held.items():
            for change, number, key, n in step.get(side, ()):
                rows.pop(number, None)
                if change != "delete":
                    rows[number] = (number, key, n)
    return {side: list(rows.values()) for side, rows in held.items()}


def nearest(how: str, rows: Mapping[str, Sequence[Row]], op: str) -> list[Row]:
    """Join rows of (id, key, n) with the nearest by n."""
    holds: dict[str, Callable[[int, int], bool]] = {
        "<": lambda one, two: one < two,
        "<=": lambda one, two: one <= two,
        ">": lambda one, two: one > two,
        ">=": lambda one, two: one >= two,
    }
    found: list[Row] = []
    for row in rows["left"]:
        near = [
            other for other in rows["right"] if equal(row[1], other[1], null_safe=False) and holds[op](row[2], other[2])
        ]
        best = min(near, key=lambda other: (abs(other[2] - row[2]), other[0]), default=None)
        if best is not None:
            found.append((*row, *best))
        elif how == "left":
            found.append((*row, None, None, None))
    return found


def changes(before: Sequence[Row], after: Sequence[Row]) -> list[list[Any]]:
    """Tell what turns one table into another."""
    old, new = Counter(before), Counter(after)
    return [["+", *row] for row in (new - old).elements()] + [["-", *row] for row in (old - new).elements()]


def _rows(step: Mapping[str, Any]) -> list[tuple[str, Row]]:
    return [(side, tuple(row)) for side in ("left", "right") for row in step.get(side, ())]
