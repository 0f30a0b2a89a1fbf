"""The stated cases of other engines, where the file with them is there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.testing.match_recognize import run_case
from headrace.testing.turns import take_turns

if TYPE_CHECKING:
    from headrace.testing.turns import Taker

_SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
_FILE = _SHARED / "conformance" / "match_recognize.jsonl"
_CASES = [json.loads(line) for line in _FILE.read_text().splitlines()] if _FILE.exists() else []


@pytest.mark.skipif(not _CASES, reason="the file with the conformance cases is not here")
@pytest.mark.parametrize("take", [None, take_turns], ids=["at once", "in pieces"])
def test_stated_cases(take: Taker | None) -> None:
    results = [(run_case(case, take), case) for case in _CASES]
    failed = [f"{result.id}: {result.reason}" for result, _ in results if result.status == "fail"]
    refused = [
        result.id for result, case in results if result.status == "unsupported" and case.get("standard") is not False
    ]
    assert not failed
    assert not refused


@pytest.mark.parametrize("take", [None, take_turns], ids=["at once", "in pieces"])
def test_a_wrong_expectation_fails(take: Taker | None) -> None:
    case = {
        "id": "own",
        "sql": "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY x MEASURES LAST(x) AS y PATTERN (A+))",
        "columns": ["x"],
        "types": ["integer"],
        "rows": [[1], [2]],
        "expected_columns": ["y"],
        "expected_rows": [[2]],
    }
    assert run_case(case, take).status == "pass"
    assert run_case({**case, "expected_rows": [[3]]}, take).status == "fail"
    assert run_case({**case, "expected_rows": []}, take).status == "fail"
    assert run_case({**case, "expected_columns": ["z"]}, take).status == "fail"
    assert run_case({**case, "expected_types": ["varchar"]}, take).status == "pass"
    assert run_case({**case, "expected_types": ["boolean"]}, take).status == "fail"
    assert run_case({**case, "expected_error": "boom", "expected_rows": None}, take).status == "fail"
    assert run_case({**case, "sql": case["sql"].replace("LAST(x)", "LAST(nope)")}, take).status == "fail"
