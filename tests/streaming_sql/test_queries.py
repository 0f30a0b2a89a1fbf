"""Forms of queries, one by one, over a small table."""

# ruff: noqa: S608

from __future__ import annotations

from typing import Any

import pytest
from tests.streaming_sql.queries import final

from headrace.errors import PlanError

HOP = "TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '10' SECOND))"
TUMBLE = "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '10' SECOND))"


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT k, COUNT(*) FROM t GROUP BY GROUPING SETS ((k), ())", [("a", 3), ("b", 2), ("c", 1), (None, 6)]),
        ("SELECT k, COUNT(*) FROM t GROUP BY ROLLUP (k)", [("a", 3), ("b", 2), ("c", 1), (None, 6)]),
        (
            "SELECT k, v > 2, COUNT(*), GROUPING(k), GROUPING_ID(k, v > 2) FROM t WHERE v IS NOT NULL "
            "GROUP BY CUBE (k, v > 2)",
            [("a", False, 1, 0, 0), ("a", True, 2, 0, 0), ("a", None, 3, 0, 1), ("b", False, 1, 0, 0),
             ("b", True, 1, 0, 0), ("b", None, 2, 0, 1), (None, False, 2, 1, 2), (None, True, 3, 1, 2),
             (None, None, 5, 1, 3)],
        ),
        (
            "SELECT k, v > 2, COUNT(*) FROM t WHERE v > 2 GROUP BY GROUPING SETS (ROLLUP (k), (v > 2))",
            [("a", None, 2), ("b", None, 1), (None, True, 3), (None, None, 3)],
        ),
        (
            f"SELECT window_end, k, COUNT(*) FROM {TUMBLE} GROUP BY window_start, window_end, GROUPING SETS ((k), ())",
            [(10.0, "a", 2), (10.0, "b", 1), (10.0, None, 3), (20.0, "c", 1), (20.0, None, 1), (30.0, "b", 1),
             (30.0, None, 1)],
        ),
        (
            f"SELECT window_start, COUNT(*) FROM {HOP} GROUP BY window_start, window_end",
            [(-5.0, 2), (0.0, 3), (5.0, 2), (10.0, 1), (15.0, 1), (20.0, 1)],
        ),
        ("SELECT k, e, n FROM t CROSS JOIN UNNEST(a) WITH ORDINALITY AS x (e, n) WHERE v IN (1, 3)",
         [("a", 1, 1), ("a", 2, 2), ("a", 3, 1)]),
        ("SELECT k, e FROM t LEFT JOIN UNNEST(a) AS x (e) ON TRUE WHERE v < 3", [("a", 1), ("a", 2), ("b", None)]),
        ("SELECT k, v FROM t WHERE v = (SELECT MAX(v) FROM t)", [("b", 7)]),
        ("SELECT v, (SELECT COUNT(*) FROM u WHERE u.k = t.k AND u.v > 1) FROM t WHERE k <> 'b'",
         [(1, 2), (3, 2), (4, 2), (None, 0)]),
        ("SELECT k, v - (SELECT AVG(v) FROM t) FROM t WHERE k = 'a'", [("a", -2), ("a", 0), ("a", 1)]),
        ("SELECT k, SUM(v) + (SELECT MAX(v) FROM t) FROM t GROUP BY k HAVING SUM(v) > (SELECT MIN(v) FROM t)",
         [("a", 15), ("b", 16)]),
        ("SELECT k, v FROM t WHERE v > (SELECT AVG(u.v) FROM u WHERE u.k = t.k)", [("a", 3), ("a", 4), ("b", 7)]),
        ("SELECT (SELECT 5) + 1", [(6,)]),
    ],
)  # fmt: skip
def test_a_query_gives(query: str, rows: list[tuple[Any, ...]]) -> None:
    assert final(query) == sorted(rows, key=repr)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT k, (SELECT v FROM t) FROM t", "must give one row"),
        ("SELECT k, (SELECT MAX(u.v) FROM u WHERE u.v < t.v) FROM t", "names the rows around it"),
        ("SELECT k FROM t GROUP BY CUBE (k, v, k, v, k, v, k)", "more than 6 parts"),
        ("SELECT k FROM t GROUP BY ROLLUP (nope)", "unknown column 'nope'"),
    ],
)
def test_a_query_is_refused(query: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        final(query)


def test_conditions_of_columns_with_one_value_each_are_computed_row_by_row() -> None:
    # Polars gives one row for all where a constant is compared with a column that holds one value, as joins make them.
    query = (
        "SELECT x.k, 'a' = x.k OR 0 <= x.v, y.v FROM t AS x LEFT JOIN u AS y ON x.k = y.k WHERE x.k = 'a' AND x.v = 1"
    )
    assert final(query) == [("a", True, 1), ("a", True, 3), ("a", True, 4)]


def test_aggregates_of_constants_count_each_row() -> None:
    query = "SELECT SUM(2), SUM(CHAR_LENGTH('ab')), COUNT(1), AVG(1 + 1), COUNT('x') FILTER (WHERE v > 2), COLLECT(7) "
    query += "FROM t"
    assert final(query) == [(12, 12, 6, 2, 3, [7] * 6)]
    query = "SELECT COUNT(*) FILTER (WHERE 'x' <> 'a'), COUNT(*) FILTER (WHERE FALSE), SUM(2) FILTER (WHERE TRUE) "
    query += "FROM t"
    assert final(query) == [(6, 0, 12)]
    query = f"SELECT window_end, SUM(2), COUNT(NULL) FROM {TUMBLE} GROUP BY window_start, window_end"
    assert final(query) == [(10.0, 6, 0), (20.0, 2, 0), (30.0, 2, 0)]
    assert final("SELECT v, SUM(2) OVER (ORDER BY ts) FROM t WHERE v < 3") == [(1, 2), (2, 4)]
    assert final("SELECT v, SUM(2) OVER (ORDER BY v) FROM t WHERE v < 4") == [(1, 2), (2, 4), (3, 6)]


def test_ranks_ordered_by_what_they_are_partitioned_by() -> None:
    query = "SELECT k, {}() OVER (PARTITION BY k ORDER BY k DESC, k) FROM t WHERE v > 2"
    assert final(query.format("DENSE_RANK")) == [("a", 1), ("a", 1), ("b", 1)]
    assert final(query.format("RANK")) == [("a", 1), ("a", 1), ("b", 1)]
