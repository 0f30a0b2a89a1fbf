"""Conformance cases for windows and triggers, in the four formats that other engines' suites were written down in.

- **transcript**: a window, a trigger and a list of `input`, `watermark`, `expect` and `state` steps. Elements are
  their own timestamps, `window: [0, 9]` means [0, 10). A case with `error` states that the transcript itself is
  wrong, and how.
- **bundles**: data in bundles of several sizes, then the watermark passes everything, then late data.
- **steps**: `input` as [value, timestamp], `watermark`, `processing_time`, and `expect` of all panes since the last
  one.
- **sessions**: `merge` (timestamps in, sessions out), `stream` (events and watermarks of several keys), `window_set`.

One unit of time is one microsecond, so the last instant of [0, 10) is 9.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace import windows as w
from headrace.testing import notation
from headrace.testing.case import CaseResult
from headrace.testing.notation import UnsupportedNotationError
from headrace.testing.script import Driver, ScriptError, unmatched
from headrace.windows.sessions import add_window
from headrace.windows.time_triggers import EveryInterval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from headrace.windows import WindowOperator

Case = dict[str, Any]
Pane = dict[str, Any]
#: Past every timestamp of a case, and before the end of time.
_FAR = 10**15


class _Numbered:
    """Adds to panes what other engines tell: whether it is the first, and its number among those not early."""

    def __init__(self) -> None:
        self._seen: dict[tuple[Any, ...], int] = {}

    def __call__(self, panes: Iterable[Pane]) -> list[Pane]:
        return [self._told(dict(pane)) for pane in panes]

    def _told(self, pane: Pane) -> Pane:
        window = (pane.get("key"), *pane["window"])
        if pane["index"] == 0:
            self._seen.pop(window, None)
        if pane["timing"] == "early":
            number = -1
        else:
            number = self._seen.get(window, -1) + 1
            self._seen[window] = number
        return pane | {"is_first": pane["index"] == 0, "nonspeculative_index": number}


# Transcripts


def run_transcript(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    """Run one transcript."""
    name = str(case.get("id") or case.get("name"))
    wrong = case.get("error")
    try:
        operator = w.WindowOperator(
            ("key",),
            notation.window(case.get("window_fn", "GlobalWindows")),
            {"values": w.collect("value", by="value")},
            trigger=notation.trigger(case.get("trigger_fn", "Default")),
            allowed_lateness=notation.lateness(case.get("allowed_lateness", 0)),
            panes=w.Panes(
                mode=notation.mode(case.get("accumulation_mode", "accumulating")),
                timestamp=notation.timestamp(case.get("timestamp_combiner", "OUTPUT_AT_EOW")),
                closing="never",
                keep_earliest=True,
            ),
            check=False,
        )
    except UnsupportedNotationError as error:
        return CaseResult(name, "unsupported", case["transcript"], None, error.message)
    log: list[object] = []
    try:
        _transcript(case, make(operator), log)
    except ScriptError as error:
        if wrong and str(wrong) in str(error):
            return CaseResult(name, "pass", wrong, str(error), "")
        return CaseResult(name, "fail", case["transcript"], log, str(error))
    except UnsupportedNotationError as error:
        return CaseResult(name, "unsupported", case["transcript"], None, error.message)
    if wrong:
        return CaseResult(name, "fail", wrong, log, "the transcript is wrong, but nothing was amiss")
    return CaseResult(name, "pass", case["transcript"], log, "")


def _transcript(case: Case, harness: Driver, log: list[object]) -> None:
    waiting: list[Pane] = []
    numbered = _Numbered()
    for line in case["transcript"]:
        ((action, what),) = line.items()
        if action != "expect" and waiting:
            raise ScriptError(f"Unexpected output: {waiting} before {action}: {what}")
        if action == "input":
            panes = harness.events([{"event_time": t, "key": "k", "value": t} for t in map(notation.whole, what)])
        elif action == "watermark":
            panes = harness.watermark(notation.instant(what))
        elif action in ("processing_time", "clock"):
            panes = harness.processing_time(notation.whole(what))
        elif action == "state":
            _state(harness, what)
            continue
        elif action == "expect":
            waiting = unmatched([_sorted_values(pane) for pane in what], waiting)
            if waiting:
                raise ScriptError(f"Unexpected output: {waiting}")
            continue
        else:
            raise UnsupportedNotationError(f"there is no action {action!r}")
        waiting = [_transcribed(pane) for pane in numbered(panes)]
        log.append({action: what, "panes": waiting})
    if waiting:
        raise ScriptError(f"Unexpected output: {waiting}")


def _transcribed(pane: Pane) -> Pane:
    start, end = pane["window"]
    return {
        "window": [start, None if end is None else end - 1],
        "values": sorted(pane["values"]),
        "timestamp": pane["timestamp"],
        "index": pane["index"],
        "nonspeculative_index": pane["nonspeculative_index"],
        "early": pane["timing"] == "early",
        "late": pane["timing"] == "late",
        "final": pane["is_last"],
    }


def _sorted_values(pane: Pane) -> Pane:
    return pane | ({"values": sorted(pane["values"])} if "values" in pane else {})


def _state(harness: Driver, wanted: dict[str, list[list[int]]]) -> None:
    """Compare windows in the state: present ones take rows, a tombstone does not, what is absent holds no rows."""
    open_, closed = harness.open_windows()
    for kind, there in (("present", open_), ("tombstone", closed)):
        for start, end in wanted.get(kind, []):
            if (start, end + 1) not in there:
                raise ScriptError(f"Unmatched state: [{start}, {end}] is not {kind}")
    for start, end in wanted.get("absent", []):
        if (start, end + 1) in open_:
            raise ScriptError(f"Unmatched state: [{start}, {end}] is not absent")


# Bundles


def run_bundles(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    """Run one case of data in bundles, with every size of bundle it names."""
    name, expected = str(case["id"]), _panes_by_window(case["expected_panes"])
    try:
        operator = w.WindowOperator(
            ("key",),
            notation.window(case["window_fn"]),
            {"values": w.collect("value", by="value")},
            trigger=notation.trigger(case["trigger"]),
            allowed_lateness=notation.lateness(case.get("allowed_lateness", "inf")),
            panes=w.Panes(mode=notation.mode(case.get("accumulation_mode", "accumulating")), closing="never"),
            check=False,
        )
    except UnsupportedNotationError as error:
        return CaseResult(name, "unsupported", case["expected_panes"], None, error.message)
    for size in case.get("bundle_sizes") or [1]:
        harness = make(operator)
        panes: list[Pane] = []
        for bundle in _bundles(case["data"], size):
            panes += harness.events(bundle)
        panes += harness.watermark(_FAR)
        for bundle in _bundles(case.get("late_data") or [], size):
            panes += harness.events(bundle)
        got: dict[tuple[int, int], list[list[Any]]] = {}
        for pane in panes:
            start, end = pane["window"]
            got.setdefault((start, end), []).append(sorted(pane["values"]))
        if got != expected:
            shown = [{"window": list(window), "panes": values} for window, values in got.items()]
            return CaseResult(name, "fail", case["expected_panes"], shown, f"with bundles of {size}")
    return CaseResult(name, "pass", case["expected_panes"], case["expected_panes"], "")


def _bundles(data: Sequence[Sequence[Any]], size: int) -> list[list[dict[str, Any]]]:
    rows = [{"event_time": notation.whole(t), "key": "k", "value": value} for t, value in data]
    if size < 0:
        rows.reverse()
    return [rows[start : start + abs(size)] for start in range(0, len(rows), abs(size))]


def _panes_by_window(panes: Sequence[Pane]) -> dict[tuple[int, int], list[list[Any]]]:
    return {(p["window"][0], p["window"][1]): [sorted(values) for values in p["panes"]] for p in panes}


# Steps

_COMBINE: dict[str, Callable[[], w.Aggregate]] = {
    "list": lambda: w.collect("value"),
    "sum": lambda: w.sum("value"),
    "count": lambda: w.count(),
    "min": lambda: w.min("value"),
    "max": lambda: w.max("value"),
    "mean": lambda: w.mean("value"),
}


def run_steps(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    """Run one case of steps with pane information."""
    name, steps = str(case["id"]), case["steps"]
    wanted = [step["expect"] for step in steps if "expect" in step]
    try:
        combine = case.get("combine", "list")
        if combine not in _COMBINE:
            raise UnsupportedNotationError(f"there is no way {combine!r} to combine values")
        operator = w.WindowOperator(
            ("key",),
            notation.window(case["window_fn"]),
            {"value": _COMBINE[combine]()},
            trigger=notation.trigger(case["trigger"], clock_passes=True),
            allowed_lateness=notation.lateness(case.get("allowed_lateness", 0)),
            panes=w.Panes(
                mode=notation.mode(case.get("accumulation_mode", "accumulating")),
                timestamp=notation.timestamp(case.get("timestamp_combiner", "END_OF_WINDOW")),
                closing=notation.closing(case.get("closing_behavior", "FIRE_IF_NON_EMPTY")),
                on_time=notation.firing(case.get("on_time_behavior", "FIRE_ALWAYS")),
            ),
            check=False,
        )
        got = _steps(steps, make(operator), operator)
    except UnsupportedNotationError as error:
        return CaseResult(name, "unsupported", wanted, None, error.message)
    except ScriptError as error:
        return CaseResult(name, "fail", wanted, None, str(error))
    for number, (expected, panes) in enumerate(zip(wanted, got, strict=True)):
        try:
            left = unmatched([_stepped(pane) for pane in expected], [_stepped(pane) for pane in panes])
        except ScriptError as error:
            return CaseResult(name, "fail", wanted, got, f"expectation {number + 1}: {error}")
        if left:
            return CaseResult(name, "fail", wanted, got, f"expectation {number + 1}: not expected: {left}")
    return CaseResult(name, "pass", wanted, got, "")


def _dropped_for_closed(late: Iterable[dict[str, Any]], operator: WindowOperator) -> int:
    """Count late rows whose window had not expired: it was closed by its trigger."""
    return sum(row["window_end"] + operator.lateness > row["watermark"] for row in late)


def _steps(steps: Sequence[dict[str, Any]], harness: Driver, operator: WindowOperator) -> list[list[Pane]]:
    since: list[Pane] = []
    found: list[list[Pane]] = []
    numbered = _Numbered()
    for step in steps:
        ((action, what),) = step.items()
        if action == "input":
            rows = [{"event_time": notation.whole(t), "key": "k", "value": value} for value, t in what]
            since += numbered(harness.events(rows))
        elif action == "watermark":
            since += numbered(harness.watermark(notation.instant(what)))
        elif action == "watermark_without_timers":
            since += numbered(harness.watermark_without_timers(notation.instant(what)))
        elif action == "processing_time":
            since += numbered(harness.processing_time(notation.whole(what)))
        elif action == "processing_time_without_timers":
            harness.now = notation.whole(what)
        elif action == "fire_timers":
            since += numbered(harness.watermark(harness.at))
        elif action == "expect":
            found.append(since)
            since = []
        elif action == "expect_dropped_closed_window":
            dropped = _dropped_for_closed(harness.late, operator)
            if dropped != notation.whole(what):
                raise ScriptError(f"{dropped} rows were dropped for a closed window, expected {what}")
        else:
            raise UnsupportedNotationError(f"there is no step {action!r}")
    return found


def _stepped(pane: Pane) -> Pane:
    told = {name: value for name, value in pane.items() if name not in ("key", "mode", "is_retraction")}
    if not isinstance(told.get("window"), list):
        told.pop("window", None)
    if isinstance(told.get("value"), list):
        told["value"] = sorted(told["value"])
        told["value_count"] = len(told["value"])
    if "timing" in told:
        told["timing"] = str(told["timing"]).upper()
    return told


# Sessions


def run_sessions(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    """Run one case of session windows."""
    kind = case.get("kind")
    try:
        if kind == "merge":
            return _merge_case(case, make)
        if kind == "stream":
            return _stream_case(case, make)
        if kind == "window_set":
            return _window_set_case(case)
        raise UnsupportedNotationError(f"there are no session cases of the kind {kind!r}")
    except UnsupportedNotationError as error:
        return CaseResult(str(case["id"]), "unsupported", case.get("expected"), None, error.message)


def _merge_case(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    touching = bool(case.get("touching_windows_merge"))
    operator = w.WindowOperator(
        ("key",), w.session(notation.whole(case["gap"]), touching=touching), {"values": w.collect("value")}
    )
    times = [notation.whole(t) for t in case["timestamps"]]
    rows = [{"event_time": t, "key": "k", "value": t} for t in times]
    expected = sorted([s, e, None if v is None else sorted(v)] for s, e, v in case["expected"])
    asserted = {(s, e) for s, e, v in expected if v is not None}
    # All at once, and one by one, must give the same.
    for bundles in ([rows], [[row] for row in rows]):
        harness = make(operator)
        for bundle in bundles:
            harness.events(bundle)
        got = sorted(
            [*pane["window"], sorted(pane["values"]) if tuple(pane["window"]) in asserted else None]
            for pane in harness.watermark(_FAR)
        )
        if got != expected:
            reason = "all at once" if len(bundles) == 1 else "one by one"
            return CaseResult(str(case["id"]), "fail", case["expected"], got, reason)
    return CaseResult(str(case["id"]), "pass", case["expected"], got, "")


def _stream_case(case: Case, make: Callable[[WindowOperator], Driver]) -> CaseResult:
    touching = bool(case.get("touching_windows_merge"))
    elsewhere = case.get("window_fn")
    static = elsewhere is not None or case.get("gap") is not None
    gap_of = None if static else _dynamic_gap(case.get("dynamic_gap"))
    if elsewhere is not None:
        windows = notation.window(elsewhere, touching=touching)
    else:
        windows = w.session(pl.col("gap") if gap_of else notation.whole(case["gap"]), touching=touching)
    # Flink's watermark t says that no event at or before t will come; ours says the same of events before t.
    ahead = 1 if "flink" in str(case.get("source_repo", "apache/flink")) else 0
    trigger = _stream_trigger(case.get("trigger", "event_time"), ahead)
    operator = w.WindowOperator(
        ("key",),
        windows,
        {"value_sum": w.sum("value")},
        trigger=trigger,
        allowed_lateness=notation.lateness(case.get("allowed_lateness", 0)),
        panes=w.Panes(
            mode=notation.mode(case.get("accumulation_mode", "accumulating")),
            on_time="always" if isinstance(trigger, EveryInterval) else "if_non_empty",
            closing="never",
        ),
        check=False,
    )
    harness = make(operator)
    since: list[list[Any]] = []
    everything: list[list[Any]] = []
    wrong = ""
    for step in case["steps"]:
        ((action, what),) = step.items()
        if action == "event":
            key, value, time = what
            row = {"event_time": notation.whole(time), "key": key, "value": value}
            panes = harness.events([row | ({"gap": gap_of(key, value)} if gap_of else {})])
        elif action == "watermark":
            panes = harness.watermark(notation.instant(what) + ahead)
        elif action == "expect":
            if sorted(since) != sorted(what):
                wrong = wrong or f"expected {what}, got {since}"
            since = []
            continue
        else:
            raise UnsupportedNotationError(f"there is no step {action!r}")
        found = [[pane["key"], pane["value_sum"], *pane["window"]] for pane in panes]
        since += found
        everything += found
    late = [[row["key"], row["value"], row["event_time"]] for row in harness.late]
    expected = {"expected": case["expected"], "expected_late": case.get("expected_late", [])}
    got = {"expected": everything, "expected_late": late}
    if sorted(everything) != sorted(case["expected"]):
        wrong = wrong or "the results differ"
    if "expected_late" in case and sorted(late) != sorted(case["expected_late"]):
        wrong = wrong or "the late events differ"
    return CaseResult(str(case["id"]), "fail" if wrong else "pass", expected, got, wrong)


def _stream_trigger(written: object, ahead: int) -> w.Trigger:
    if written == "event_time":
        return w.default()
    if isinstance(written, dict) and set(written) == {"count"}:
        return w.repeatedly(w.after_count(notation.whole(written["count"])))
    if isinstance(written, dict) and set(written) == {"continuous_event_time"}:
        return EveryInterval(notation.whole(written["continuous_event_time"]), offset=ahead)
    if isinstance(written, dict) and "type" in written:
        return notation.trigger(written)
    raise UnsupportedNotationError(f"there is no trigger {written!r}")


def _window_set_case(case: Case) -> CaseResult:
    touching = bool(case.get("touching_windows_merge"))
    live: list[tuple[int, int]] = []
    got = []
    for step in case["steps"]:
        start, end = step["add"]
        live, result, merged = add_window(live, (start, end), touching=touching)
        got.append({"add": [start, end], "result": list(result), "merged": merged})
    same = [{name: made[name] for name in step} for step, made in zip(case["steps"], got, strict=True)] == case["steps"]
    return CaseResult(str(case["id"]), "pass" if same else "fail", case["steps"], got, "" if same else "they differ")


_CLAUSE = re.compile(r"^\s*(?:(?P<key>\S+)\s*->)?\s*(?P<gap>.+?)\s*$")


def _dynamic_gap(written: object) -> Callable[[str, Any], int]:
    """Read "key1 -> 3000; key2 -> 1000 if value==10 else 2000": a gap per key, or an expression over key and value."""
    if not isinstance(written, str):
        raise UnsupportedNotationError(f"cannot read the gap {written!r}")
    clauses: dict[str | None, ast.expr] = {}
    for clause in written.split(";"):
        found = _CLAUSE.match(clause)
        if found is None:
            raise UnsupportedNotationError(f"cannot read the gap {clause!r}")
        try:
            clauses[found["key"]] = ast.parse(found["gap"], mode="eval").body
        except SyntaxError as error:
            raise UnsupportedNotationError(f"cannot read the gap {clause!r}") from error

    def gap(key: str, value: Any) -> int:
        chosen = clauses.get(key, clauses.get(None))
        if chosen is None:
            raise UnsupportedNotationError(f"the key {key!r} has no gap in {written!r}")
        return notation.whole(_value(chosen, {"key": key, "value": value}))

    return gap


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b,
    ast.NotEq: lambda a, b: a != b,
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}
_COMPUTE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Mod: lambda a, b: a % b,
    ast.FloorDiv: lambda a, b: a // b,
}


def _value(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.IfExp):
        return _value(node.body if _value(node.test, names) else node.orelse, names)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _COMPARE[type(node.ops[0])](_value(node.left, names), _value(node.comparators[0], names))
    if isinstance(node, ast.BinOp) and type(node.op) in _COMPUTE:
        return _COMPUTE[type(node.op)](_value(node.left, names), _value(node.right, names))
    raise UnsupportedNotationError(f"cannot read {ast.unparse(node)!r} in a gap")
