"""Runs conformance cases of the pattern builder.

A case is a JSON object: a `pattern` as a list of elements, `events` in order, a skip strategy, and the matches that
another engine's test suite expects. Conditions are written in the little language of `headrace.testing.conditions`.
A case is run on the matcher itself, or, cut into turns, on the operator that patterns run on in a stream.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.cep.compiler import compile_pattern
from headrace.cep.measures import collect
from headrace.cep.operator import PatternOperator
from headrace.cep.pattern import Pattern
from headrace.cep.threads import Found, KeyRun, Threads
from headrace.engine.operator import EVENT_TIME
from headrace.errors import HeadraceError, JobError, PlanError
from headrace.testing.case import CaseResult
from headrace.testing.conditions import SCHEMA, UnsupportedCaseError, parse
from headrace.testing.turns import cut
from headrace.time.duration import MILLISECOND
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from headrace.testing.turns import Taker

_PLACE = "place"
_SKIPS = {
    "noSkip": "none",
    "skipToNext": "to_next",
    "skipPastLastEvent": "past_last",
    "skipToFirst": "to_first",
    "skipToLast": "to_last",
}
#: Errors of the engine whose cases these are, and what stands for them here.
_ERRORS: dict[str, type[HeadraceError]] = {
    "MalformedPatternException": PlanError,
    "UnsupportedOperationException": PlanError,
    "FlinkRuntimeException": JobError,
}


def run_case(case: dict[str, Any], take: Taker | None = None) -> CaseResult:
    """Run one case and compare.

    Args:
        case: The JSON object.
        take: Takes the turns of the operator, for a run as a stream; None for a run on the matcher itself.
    """
    error = case.get("expected_error")
    wanted: object = error or _expected(case)
    try:
        found = find(case) if take is None else find_in_turns(case, take)
    except UnsupportedCaseError as problem:
        return CaseResult(case["id"], "unsupported", wanted, None, str(problem))
    except HeadraceError as problem:
        right = bool(error) and isinstance(problem, _ERRORS.get(str(error), HeadraceError))
        return CaseResult(case["id"], "pass" if right else "fail", wanted, repr(problem), "" if right else str(problem))
    got = sorted(found if case.get("expected_idx") is not None else _as_events(case, found), key=repr)
    if error:
        return CaseResult(case["id"], "fail", wanted, got, "an error was expected")
    if wanted == got:
        return CaseResult(case["id"], "pass", wanted, got, "")
    return CaseResult(case["id"], "fail", wanted, got, "other matches came out")


def _expected(case: dict[str, Any]) -> list[Any]:
    """The expected matches in a fixed order; as positions if the case states them, else as the events themselves."""
    if case.get("expected_idx") is not None:
        return sorted((sorted(match) for match in case["expected_idx"]), key=repr)
    if case.get("expected_values") is not None:
        return sorted((sorted(match, key=repr) for match in case["expected_values"]), key=repr)
    return []


def _as_events(case: dict[str, Any], found: list[list[int]]) -> list[Any]:
    return [sorted((case["events"][row][:3] for row in match), key=repr) for match in found]


def find(case: dict[str, Any]) -> list[list[int]]:
    """The matches of a case, each as the positions of its events."""
    compiled = compile_pattern(pattern_of(case))
    frame = _frame(case["events"])
    times = np.array([(time or 0) * MILLISECOND for time in frame["timestamp"]], dtype=np.int64)
    # Event order is the order of the case, also where its timestamps go back: that is what its test suite feeds.
    threads = Threads(compiled.program, compiled.rows(frame, times), skip=compiled.skip)
    run, found = KeyRun(), Found()
    threads.feed(run, 0, frame.height, found)
    return [list(match.path.rows()) for match in found.matches]


def find_in_turns(case: dict[str, Any], take: Taker) -> list[list[int]]:
    """The matches of a case whose events come in pieces, each as the positions of its events."""
    pattern = pattern_of(case)
    frame = _frame(case["events"]).with_row_index(_PLACE)
    times = frame["timestamp"].cast(pl.Int64) * MILLISECOND
    if times.null_count() or any(later < earlier for earlier, later in pairwise(times.to_list())):
        if pattern.bounded:
            raise UnsupportedCaseError("the time of its events goes back, and the pattern has a time bound")
        times = frame[_PLACE].cast(pl.Int64)  # only the order counts
    rows = frame.with_columns(times.cast(INSTANT).alias(EVENT_TIME))
    operator = PatternOperator(pattern, key=(), measures={_PLACE: collect(_PLACE)})
    newest = times.max()
    # Nothing is decided by a time after the last event.
    turns = cut(rows, end=0 if newest is None else int(str(newest)) + 1)
    found = [outcome.rows for outcome in take(operator, turns) if outcome.rows is not None]
    return [list(match) for rows in found for match in rows[_PLACE].to_list()]


def _frame(events: list[list[Any]]) -> pl.DataFrame:
    rows = [
        (
            *event[:4],
            event[4] if len(event) > 4 else None,
            len(event) > 4,
        )  # the volume makes it an event of the subtype
        for event in events
    ]
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def pattern_of(case: dict[str, Any]) -> Pattern:
    """Build the pattern of a case."""
    pattern = _chain(case["pattern"])
    skip = case.get("skip_strategy") or {"type": "noSkip"}
    if skip["type"] not in _SKIPS:
        raise UnsupportedCaseError(f"skip strategy {skip['type']!r} is not known")
    missing = "error" if skip.get("throwExceptionOnMiss") else "ignore"
    pattern = pattern.skip(_SKIPS[skip["type"]], skip.get("pattern"), on_missing=missing)  # type: ignore[arg-type]
    if case.get("within_ms"):
        kind = case.get("within_type") or "FIRST_AND_LAST"
        if kind not in ("FIRST_AND_LAST", "PREVIOUS_AND_CURRENT"):
            raise UnsupportedCaseError(f"within type {kind!r} is not known")
        time = case["within_ms"] * MILLISECOND
        pattern = pattern.within(time, of="match" if kind == "FIRST_AND_LAST" else "step")
    return pattern


def _chain(elements: list[dict[str, Any]]) -> Pattern:
    pattern: Pattern | None = None
    for element in elements:
        pattern = _element(pattern, element)
    if pattern is None:
        raise PlanError("the pattern is empty")
    return pattern


def _element(pattern: Pattern | None, element: dict[str, Any]) -> Pattern:
    contiguity = element["contiguity"]
    content = _chain(element["group"]) if element.get("group") else element["name"]
    if pattern is None:
        pattern = Pattern.begin(content)
    else:
        methods = {
            "next": pattern.next,
            "followedBy": pattern.followed_by,
            "followedByAny": pattern.followed_by_any,
        }
        negations = {"notNext": pattern.not_next, "notFollowedBy": pattern.not_followed_by}
        if contiguity in methods:
            pattern = methods[contiguity](content)
        elif contiguity in negations:
            pattern = negations[contiguity](element["name"])
        else:
            raise UnsupportedCaseError(f"contiguity {contiguity!r} is not known")
    if element.get("condition") is not None and not element.get("group"):
        pattern = pattern.where(parse(element["condition"]))
    pattern = _quantify(pattern, element)
    if element.get("optional") and not pattern.elements[-1].optional:
        pattern = pattern.optional()
    if element.get("consecutive"):
        pattern = pattern.consecutive()
    if element.get("allowCombinations"):
        pattern = pattern.allow_combinations()
    if element.get("greedy"):
        pattern = pattern.greedy()
    if element.get("until"):
        pattern = pattern.until(parse(element["until"]))
    return pattern


def _quantify(pattern: Pattern, element: dict[str, Any]) -> Pattern:
    quantifier = str(element.get("quantifier") or "one").replace(" ", "")
    bound = element.get("quantifier_within_ms")
    within = None if bound is None else bound * MILLISECOND
    if quantifier == "one":
        return pattern
    if quantifier == "oneOrMore":
        return pattern.one_or_more(within=within)
    if found := re.fullmatch(r"times\((\d+)\)", quantifier):
        return pattern.times(int(found[1]), within=within)
    if found := re.fullmatch(r"times\((\d+),(\d+)\)", quantifier):
        return pattern.times(int(found[1]), int(found[2]), within=within)
    if found := re.fullmatch(r"timesOrMore\((\d+)\)", quantifier):
        return pattern.times_or_more(int(found[1]), within=within)
    raise UnsupportedCaseError(f"quantifier {quantifier!r} is not known")
