"""Cases that the test suite of Flink's pattern library states, where the file with them is there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.patterns import run_case
from headrace.testing.turns import take_turns

SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
FILE = SHARED / "conformance" / "flink_cep.jsonl"
CASES = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.exists() else []


@pytest.mark.skipif(not CASES, reason=f"{FILE} is not there")
def test_there_are_cases() -> None:
    assert len(CASES) >= 100


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case(case: dict[str, Any]) -> None:
    result = run_case(case)
    assert result.status == "pass", f"{result.reason}: expected {result.expected}, got {result.got}"


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_case_whose_events_come_in_pieces(case: dict[str, Any]) -> None:
    result = run_case(case, take_turns)
    assert result.status == "pass", f"{result.reason}: expected {result.expected}, got {result.got}"
