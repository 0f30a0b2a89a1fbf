"""Cases of joins from other engines' suites: all of them in process, on one key group and on several."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.testing.conformance import kind_of, load, run_case
from headrace.testing.join_cases import run_case as run_join

_SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
_FILE = _SHARED / "conformance" / "joins.jsonl"

#: A case of our own, in the same form, so that the driver is tested without the shared files.
_CASE = {
    "id": "left-of-two",
    "kind": "interval",
    "how": "left",
    "left": {"columns": [["k", "int"], ["v", "string"], ["ts", "timestamp"]], "key": ["k"], "time": "ts"},
    "right": {"columns": [["k", "double"], ["v", "string"], ["ts", "timestamp"]], "key": ["k"], "time": "ts"},
    "bounds": {"lower_ms": 0, "upper_ms": 10},
    "select": ["left.v", "right.v", "right.ts"],
    "steps": [
        {"left": [[1, "a", 100], [2, "b", 100], [None, "c", 100]]},
        {"right": [[1.0, "A", 110], [1.5, "B", 105], [None, "C", 105], [1.0, "D", 111]]},
        {"restart": True},
        {"watermark_left": 200, "watermark_right": 110},
        {"right": [[2.0, "late", 109]]},
        {"late": [["right", [2.0, "late", 109]]]},
        {"watermark_right": 111},
        {"expect": [["a", "A", 110], ["b", None, None], ["c", None, None]]},
        {"end": True},
        {"expect": []},
    ],
}


@pytest.mark.parametrize("groups", [1, 3])
def test_a_case_of_our_own(groups: int) -> None:
    result = run_join(_CASE, groups)

    assert result.status == "pass", f"{result.reason}: {result.expected} / {result.got}"


def test_a_wrong_expectation_fails() -> None:
    steps = [*_CASE["steps"][:-1], {"expect": [["b", None, None]]}]  # type: ignore[index]

    result = run_join({**_CASE, "steps": steps})

    assert (result.status, result.expected, result.got) == ("fail", ["['b', None, None]"], [])


def test_kinds_are_told_by_their_fields() -> None:
    assert kind_of(_CASE) == "join"
    assert kind_of({"inputs": {}, "joins": [], "steps": []}) == "join"


def test_what_is_not_known_is_said() -> None:
    result = run_case({**_CASE, "kind": "crossing"})

    assert (result.status, result.reason) == ("unsupported", "a join of the kind crossing")


@pytest.mark.skipif(not _FILE.exists(), reason="the shared cases are not on this machine")
def test_shared_cases(share_of_cases: int) -> None:
    cases = list(load(_FILE))
    chosen = cases[::share_of_cases]

    failed = [result for result in (run_join(case, key_groups=2) for case in chosen) if result.status != "pass"]

    assert len(cases) > 100
    assert failed == []
