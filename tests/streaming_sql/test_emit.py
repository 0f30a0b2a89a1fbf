"""EMIT, ALLOWED LATENESS and LATE(view): when windows give results, and what becomes of late rows."""

# ruff: noqa: S608

from __future__ import annotations

import pytest
from tests.streaming_sql.queries import changes

from headrace.errors import PlanError


def counted(clause: str, seconds: int = 5) -> str:
    return (
        f"SELECT k, window_end, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{seconds}' SECOND)) "
        f"GROUP BY k, window_start, window_end {clause}"
    )


def test_a_window_gives_one_result_and_leaves_late_rows_out() -> None:
    assert changes(counted("")) == [("a", 5, 1), ("b", 5, 1), ("a", 10, 1), ("c", 15, 1), ("b", 25, 1)]
    assert changes(counted("EMIT ON WINDOW CLOSE")) == changes(counted(""))


def test_a_late_row_revises_the_result_within_the_allowed_lateness() -> None:
    expected = [("a", 5, 1), ("b", 5, 1), ("a", 10, 1), ("-", "a", 5, 1), ("a", 5, 2), ("c", 15, 1), ("b", 25, 1)]
    assert changes(counted("ALLOWED LATENESS INTERVAL '1' MINUTE")) == expected
    assert changes(counted("EMIT WITH RETRACTIONS ALLOWED LATENESS INTERVAL '1' MINUTE")) == expected
    assert changes(counted("ALLOWED LATENESS INTERVAL '6' SECOND"))[:4] == expected[:3] + expected[5:6]


def test_on_window_close_waits_for_late_rows_and_gives_one_result() -> None:
    found = changes(counted("EMIT ON WINDOW CLOSE ALLOWED LATENESS INTERVAL '10' SECOND"))
    assert sorted(found) == [("a", 5, 2), ("a", 10, 1), ("b", 5, 1), ("b", 25, 1), ("c", 15, 1)]


def test_early_results_by_rows() -> None:
    found = changes(counted("EMIT EARLY EVERY 2 ROWS", 10))
    assert found[0] == ("a", 10, 2)
    assert ("-", "a", 10, 2) in found


def test_results_on_change_and_deltas() -> None:
    every = changes(counted("EMIT ON CHANGE", 10))
    assert every[:4] == [("a", 10, 1), ("b", 10, 1), ("-", "a", 10, 1), ("a", 10, 2)]
    deltas = changes(counted("EMIT ON CHANGE, WITH DELTAS", 10))
    assert sum(row[2] for row in deltas if row[0] == "a") == 2


def test_early_results_by_the_clock_are_revised_at_the_end() -> None:
    left: dict[tuple[object, ...], int] = {}
    for row in changes(counted("EMIT EARLY EVERY INTERVAL '10' SECOND", 10)):
        taken_back = row[0] == "-"
        key = row[1:] if taken_back else row
        left[key] = left.get(key, 0) + (-1 if taken_back else 1)
    assert {row for row, count in left.items() if count} == {("a", 10, 2), ("b", 10, 1), ("c", 20, 1), ("b", 30, 1)}


def test_late_rows_are_a_table() -> None:
    views = {"per_depot": counted("")}
    assert changes("SELECT k, v FROM LATE(per_depot)", views) == [("a", 4)]
    assert changes("SELECT k, COUNT(*) FROM LATE(per_depot) GROUP BY k", views) == [("a", 1)]
    waiting = {"per_depot": counted("ALLOWED LATENESS INTERVAL '1' MINUTE")}
    assert changes("SELECT k, v FROM LATE(per_depot)", waiting) == []


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k FROM t EMIT ON WINDOW CLOSE", "GROUP BY in windows"),
        ("SELECT k, COUNT(*) FROM t GROUP BY k EMIT EARLY EVERY INTERVAL '1' SECOND", "GROUP BY in windows"),
        ("SELECT k FROM t UNION ALL SELECT k FROM t ALLOWED LATENESS INTERVAL '1' SECOND", "GROUP BY in windows"),
        (counted("EMIT LATE EVERY 2 ROWS"), "without ALLOWED LATENESS"),
        (counted("EMIT EARLY EVERY INTERVAL '1' MONTH"), "fixed length"),
        (counted("EMIT EARLY EVERY 0 ROWS"), "whole number above 0"),
        (counted("EMIT ON WINDOW CLOSE, EARLY EVERY 1 ROWS"), "with other results"),
        (counted("EMIT SOMETIMES"), "expected ON WINDOW CLOSE"),
        ("SELECT * FROM LATE(t)", "t is no view that groups in windows"),
    ],
)
def test_what_cannot_be_emitted_is_refused(query: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        changes(query)
