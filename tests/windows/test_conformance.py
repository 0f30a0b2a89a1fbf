"""The cases of other engines' suites pass, and the command that runs them tells pass from fail."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from headrace.testing import conformance

SHARED = Path(os.environ.get("HEADRACE_SHARED", Path(__file__).resolve().parents[2].parent / "shared")) / "conformance"
FILES = [
    "beam_trigger_transcripts.yaml",
    "beam_trigger_simple.jsonl",
    "beam_reducefn.jsonl",
    "session_windows.jsonl",
    "sketches.jsonl",
]


@pytest.mark.parametrize("name", FILES)
def test_all_cases_pass(name: str) -> None:
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{name} is not on this machine; set HEADRACE_SHARED to the folder that holds conformance/")
    results = [conformance.run_case(case) for case in conformance.load(path)]
    assert results
    assert [f"{r.id}: {r.reason}" for r in results if r.status == "fail"] == []
    assert all("CustomTimestamping" in r.reason for r in results if r.status == "unsupported")


def test_the_event_time_triggers_have_transcripts_of_their_own() -> None:
    cases = list(conformance.load(Path(__file__).parent / "data" / "event_time_triggers.jsonl"))
    results = [conformance.run_case(case) for case in cases]
    assert [(r.id, r.reason) for r in results if r.status != "pass"] == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"distribution": "0.5*Uniform(0,1)+0.4*Uniform(1,2)"}, "do not add up"),
        ({"distribution": "i*omega, i=1..10"}, "cannot read the formula"),
        ({"distribution": "i**2, i=1..10"}, "cannot read the formula"),
    ],
)
def test_a_distribution_that_cannot_be_drawn_is_unsupported(change: dict[str, str], reason: str) -> None:
    case = {"id": "x", "sketch": "kll", "n": 10, "bounds": {"sum of weights == n": True}} | change
    result = conformance.run_case(case)
    assert result.status == "unsupported"
    assert reason in result.reason


def test_a_wrong_number_of_dropped_rows_fails() -> None:
    case = {
        "id": "x",
        "window_fn": {"type": "FixedWindows", "size": 10},
        "trigger": {"type": "AfterCount", "n": 1},
        "steps": [{"input": [[1, 1]]}, {"input": [[1, 1]]}, {"expect_dropped_closed_window": 2}],
    }
    assert conformance.run_case(case).reason == "1 rows were dropped for a closed window, expected 2"


BUNDLES = {
    "id": "two bundles",
    "window_fn": {"type": "FixedWindows", "args": [10]},
    "trigger": {"type": "AfterWatermark", "early": {"type": "AfterCount", "args": [2]}},
    "accumulation_mode": "discarding",
    "allowed_lateness": "inf",
    "data": [[1, "x"], [2, "y"], [3, "z"]],
    "late_data": [],
    "bundle_sizes": [2],
    "expected_panes": [{"window": [0, 10], "panes": [["x", "y"], ["z"]]}],
}
STEPS = {
    "id": "clock",
    "window_fn": {"type": "FixedWindows", "size": 10},
    "trigger": {"type": "Repeatedly", "of": {"type": "AfterProcessingTime", "delay": 5}},
    "accumulation_mode": "accumulating",
    "combine": "sum",
    "steps": [
        {"processing_time": 0},
        {"input": [[7, 1]]},
        {"processing_time": 5},
        {"expect": []},
        {"processing_time": 6},
        {"expect": [{"window": [0, 10], "value": 7, "timing": "EARLY", "index": 0, "is_first": True}]},
        {"watermark": 10},
        {"expect": [{"value": 7, "timing": "ON_TIME", "is_last": True}]},
    ],
}
TRANSCRIPT = {
    "name": "sliding",
    "window_fn": "SlidingWindows(10, 5)",
    "trigger_fn": "Repeatedly(AfterAny(AfterCount(2), AfterWatermark))",
    "accumulation_mode": "discarding",
    "transcript": [
        {"input": [6, 7]},
        {"expect": [{"window": [0, 9], "values": [6, 7]}, {"window": [5, 14], "values": [6, 7], "early": True}]},
        {"watermark": 10},
        {"expect": [{"window": [0, 9], "values": [], "final": True}]},
    ],
}
STREAM = {
    "id": "gap by value",
    "kind": "stream",
    "source_repo": "apache/flink",
    "gap": None,
    "dynamic_gap": "value * 10",
    "touching_windows_merge": False,
    "steps": [{"event": ["k", 1, 0]}, {"event": ["k", 2, 5]}, {"watermark": 24}],
    "expected": [["k", 3, 0, 25]],
    "expected_late": [],
}
SKETCH = {
    "id": "kll",
    "sketch": "kll",
    "k": 200,
    "data": {"repeat": 3, "of": [1, 2, 3]},
    "checks": [{"fn": "quantile", "arg": 0.5, "expected": 2, "tol": 0}],
}


@pytest.mark.parametrize("case", [BUNDLES, STEPS, TRANSCRIPT, STREAM, SKETCH])
def test_cases_of_our_own_pass(case: dict[str, object]) -> None:
    result = conformance.run_case(case)
    assert (result.status, result.reason) == ("pass", "")


@pytest.mark.parametrize(
    ("case", "status", "reason"),
    [
        (BUNDLES | {"expected_panes": []}, "fail", "with bundles of 2"),
        (STEPS | {"steps": [*STEPS["steps"][:-1], {"expect": []}]}, "fail", "not expected"),  # type: ignore[index]
        (TRANSCRIPT | {"transcript": [{"input": [1, 2]}]}, "fail", "Unexpected output"),
        (TRANSCRIPT | {"error": "Unmatched output"}, "fail", "nothing was amiss"),
        (STREAM | {"expected": []}, "fail", "results differ"),
        (SKETCH | {"checks": [{"fn": "quantile", "arg": 0.5, "expected": 9, "tol": 0}]}, "fail", "expected 9"),
        (BUNDLES | {"trigger": {"type": "AfterFullMoon"}}, "unsupported", "AfterFullMoon"),
        (TRANSCRIPT | {"window_fn": "CalendarWindows(1)"}, "unsupported", "CalendarWindows"),
        (TRANSCRIPT | {"timestamp_combiner": "OUTPUT_AT_NOON"}, "unsupported", "OUTPUT_AT_NOON"),
        (STREAM | {"dynamic_gap": "__import__('os')"}, "unsupported", "cannot read"),
        (SKETCH | {"sketch": "bloom"}, "unsupported", "bloom"),
        ({"id": "?", "what": 1}, "unsupported", "fits no known format"),
    ],
)
def test_a_wrong_case_fails_and_an_unknown_one_is_not_guessed(
    case: dict[str, object], status: str, reason: str
) -> None:
    result = conformance.run_case(case)
    assert result.status == status
    assert reason in result.reason


def test_the_command_prints_one_line_per_case_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text("\n".join(json.dumps(case) for case in (BUNDLES, SKETCH | {"sketch": "bloom"})))
    assert conformance.main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "pass two bundles",
        "unsupported kll: there is no sketch 'bloom' to test",
        "1 passed, 0 failed, 1 unsupported",
    ]
    path.write_text(json.dumps(BUNDLES | {"expected_panes": []}))
    assert conformance.main([str(path), "--json"]) == 1
    first, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["status"], last) == ("fail", {"counts": {"pass": 0, "fail": 1, "unsupported": 0}})
    assert conformance.main([str(tmp_path / "none.jsonl")]) == 4
    assert logging.getLogger("headrace.cep").level == logging.NOTSET, "what it silences is as before"
