"""Cases of streaming SQL from other engines' suites, in process; and cases of our own in the same form."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.testing.conformance import kind_of, load, run_case
from headrace.testing.sql_cases import run_case as run_sql

_SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
_FILE = _SHARED / "conformance" / "sql.jsonl"

_ORDERS = {
    "name": "orders",
    "columns": [["id", "int"], ["depot", "varchar"], ["amount", "decimal(10,2)"], ["ts", "timestamp"]],
    "time": "ts",
    "delay_ms": 1000,
    "proctime": None,
    "primary_key": None,
    "mode": "append",
    "rows": [
        [1, "north", "10.50", "2026-03-01T10:00:01.000"],
        [2, None, "4.25", "2026-03-01T10:00:02.000"],
        [3, "north", "1.00", "2026-03-01T10:00:07.000"],
        [4, None, "2.00", "2026-03-01T10:00:04.000"],
    ],
}
#: A case of our own, in the same form, so that the driver is tested without the shared files.
_CASE = {
    "id": "own-tumble",
    "tables": [_ORDERS],
    "order": [[0, 0], [0, 1], [0, 2], [0, 3]],
    "order_matters": True,
    "restart_after": 2,
    "setup": None,
    "sql": "SELECT depot, window_end, COUNT(*) AS n, SUM(amount) AS total FROM TABLE(TUMBLE(TABLE orders, "
    "DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY depot, window_start, window_end",
    "expected_columns": [["depot", "varchar"], ["window_end", "timestamp"], ["n", "bigint"], ["t", "decimal(38,2)"]],
    "expected": [
        ["north", "2026-03-01T10:00:05.000", 1, "10.50"],
        [None, "2026-03-01T10:00:05.000", 1, "4.25"],
        ["north", "2026-03-01T10:00:10.000", 1, "1.00"],
    ],
    "strict_changelog": True,
    "ordered": False,
}


@pytest.mark.parametrize("feeding", ["fit", "rows"])
def test_a_case_of_our_own(feeding: str) -> None:
    result = run_sql(_CASE, feeding=feeding)  # type: ignore[arg-type]

    assert result.status == "pass", f"{result.reason}: {result.got}"


def test_a_wrong_expectation_fails() -> None:
    assert run_sql({**_CASE, "expected": _CASE["expected"][1:]}).status == "fail"  # type: ignore[index]
    assert run_sql({**_CASE, "expected_columns": _CASE["expected_columns"][1:]}).status == "fail"  # type: ignore[index]


def test_what_cannot_be_planned_is_unsupported_with_the_reason() -> None:
    result = run_sql({**_CASE, "sql": "SELECT depo FROM orders"})

    assert result.status == "unsupported"
    assert "Did you mean depot?" in result.reason


def test_the_kind_is_told_by_the_fields() -> None:
    assert kind_of(_CASE) == "sql"
    assert kind_of({"sql": "SELECT 1", "rows": []}) == "match_recognize"


@pytest.mark.skipif(not _FILE.exists(), reason="the shared cases are not here")
def test_cases_of_other_engines(share_of_cases: int) -> None:
    results = [run_case(case) for case in list(load(_FILE))[::share_of_cases]]

    assert [(result.id, result.reason) for result in results if result.status != "pass"] == []
