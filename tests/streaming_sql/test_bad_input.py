"""Queries that are too large, wrong or hostile, and values that fit into no type: defined, with a place, and soon."""

# ruff: noqa: S608

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from tests.streaming_sql.queries import changes, planned
from tests.streaming_sql.test_functions import value
from tests.streaming_sql.token_fuzz import fault_of, text_of

from headrace.errors import PlanError


@pytest.mark.parametrize(
    ("query", "message", "hint"),
    [
        ("SELECT '" + "x" * 10_000_000 + "' FROM t", "at most 1,000,000 are read", "into a table"),
        ("SELECT " + "(" * 1000 + "1" + ")" * 1000 + " FROM t", "line 1, column 108: brackets are nested more", ""),
        ("SELECT " + "CASE WHEN v > 1 THEN " * 1000 + "1" + " END" * 1000 + " FROM t", "nested too deeply", "WITH"),
        ("SELECT " + "NOT " * 5000 + "TRUE FROM t", "nested too deeply", "WITH"),
        ("SELECT * FROM (" * 60 + "SELECT k FROM t" + ")" * 60, "nested more than 50 deep", ""),
        ("SELECT " + "+".join(["v"] * 5002) + " FROM t", "more than 5000 operators", ""),
        ("", "the query is empty", "SELECT"),
        ("SELECT 1; SELECT 2", "line 1, column 11: one query at a time", ""),
        ("DROP TABLE t", "line 1, column 1: only a query can stand here", "SELECT"),
        ("SELECT k FROM t WHERE k = 'a'; DROP TABLE t", "one query at a time", ""),
        ("SELECT 'k FROM t", "no closing quote", ""),
        ("SELECT k\x00 FROM t", "unexpected character", ""),
        ("SELECT\n  kk FROM t", "line 2, column 3: unknown column 'kk'", "Did you mean k?"),
        ("SELECT k FROM tt", "line 1, column 15: unknown table 'tt'", "Did you mean t?"),
        ("SELECT CAST(v AS VARCHAR(a)) FROM t", "line 1, column 13: unknown type VARCHAR(A)", "Known are"),
        ("SELECT UPER(k) FROM t", "line 1, column 8: unknown function UPER", "Did you mean UPPER?"),
        ("SELECT k FROM t JOIN u ON t.k = u.k", "column 'k' is ambiguous", "Write t.k or u.k."),
        ("SELECT x.k FROM t", "unknown table or column 'x'", ""),
        ("SELECT k + 1 FROM t", "VARCHAR + BIGINT cannot be computed", "CAST"),
        ("SELECT UPPER(v) FROM t", "argument 1 of UPPER is BIGINT, not text", "UPPER(text)"),
        ("SELECT k FROM t WHERE v", "a condition is needed here, but this is BIGINT", "x > 0"),
        ("SELECT k FROM t WHERE k = 1", "VARCHAR = BIGINT", "CAST"),
        ("SELECT CASE WHEN v > 1 THEN 1 ELSE 'a' END FROM t", "no common type", "CAST"),
        ("SELECT k FROM t WHERE SUM(v) > 1", "the aggregate", "HAVING"),
        ("SELECT k, SUM(v) FROM t", "neither in GROUP BY nor in an aggregate", "GROUP BY"),
        ("SELECT SUM(COUNT(*)) FROM t", "an aggregate of an aggregate", ""),
        ("SELECT v FROM t WHERE v IN v", "IN", ""),
        ("SELECT REGEXP(k, '[a') FROM t", "unclosed character class", ""),
        ("SELECT 1e999 FROM t", "does not fit into any type", ""),
        ("SELECT " + "9" * 5000, "does not fit into any type", "38 digits"),
        ("SELECT 9223372036854775807 + 1", "does not fit into BIGINT", "DECIMAL"),
        ("SELECT CAST(300 AS TINYINT)", "300 cannot be cast to TINYINT", ""),
        ("SELECT DATE '2026-13-01'", "cannot be cast to DATE", ""),
        ("SELECT k FROM t UNION SELECT v FROM t", "column 1 (k) is VARCHAR and BIGINT", "CAST"),
        ("SELECT k FROM t UNION SELECT k, v FROM t", "1 and 2 columns", ""),
        ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "recursive", ""),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(v), INTERVAL '1' SECOND))", "which is no timestamp", ""),
        ("SELECT * FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MONTH))", "no length of a window", ""),
        ("SELECT * FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '0' DAY, INTERVAL '1' DAY))", "above zero", ""),
    ],
)  # fmt: skip
def test_a_wrong_query_is_refused_with_its_place(query: str, message: str, hint: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(query)
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_large_queries_that_are_allowed() -> None:
    numbers = ", ".join(str(number) for number in range(-1_000, 3))
    assert changes(f"SELECT k FROM t WHERE v IN ({numbers})") == [("a",), ("b",)]
    texts = ", ".join(f"'{number}'" for number in range(500))
    assert changes(f"SELECT k FROM t WHERE k NOT IN ({texts}) AND v = 7") == [("b",)]
    assert len(planned("SELECT " + ", ".join(f"v AS c{n}" for n in range(200)) + " FROM t").columns) == 200
    assert len(changes("SELECT k FROM t" + " UNION ALL SELECT k FROM t" * 30)) == 31 * 6


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("REPEAT('x', 1000000000)", None),
        ("LPAD('x', 1000000000)", None),
        ("CHR(99999999)", None),
        ("99999999999999999999.5 * 99999999999999999999.5", None),
        ("9999999999999999999999999999999999999.5 + 9999999999999999999999999999999999999.5", None),
        ("1.5 / 0", None),
        ("CAST(12.345 AS DECIMAL(5, 2))", Decimal("12.35")),
        ("CAST('-12.345' AS DECIMAL(5, 2))", Decimal("-12.35")),
        ("TRY_CAST(12345 AS DECIMAL(3, 0))", None),
        ("TRY_CAST(12345E0 AS DECIMAL(3, 0))", None),
        ("TRY_CAST(1E300 AS DECIMAL(3, 0))", None),
        ("CAST(12.345E0 AS DECIMAL(5, 2))", Decimal("12.35")),
        ("ROUND(1.5, 100)", Decimal("1.5")),
        ("POWER(10, 400)", float("inf")),
        ("DATE '9999-12-31' + INTERVAL '1' DAY", None),
        ("TIMESTAMP '2026-01-01 00:00:00' + INTERVAL '99999999' DAY", None),
        ("TIMESTAMPADD(YEAR, 100000, DATE '2026-01-01')", None),
        ("TO_TIMESTAMP_LTZ(99999999999999999, 3)", None),
        ("FROM_UNIXTIME(99999999999999)", None),
        ("DATE '2026-01-01' + INTERVAL '1' MONTH", dt.date(2026, 2, 1)),
        ("ARRAY[1, 2][99]", None),
        ("ARRAY[1, 2][-1]", None),
        ("MAP['a', 1]['b']", None),
        ("LEFT('abc', -1)", ""),
        ("UNHEX('zz')", None),
        ("FROM_BASE64('!!')", None),
        ("JSON_VALUE('{', '$.a')", None),
        ("UPPER(NULL)", None),
        ("CONCAT('a'' OR 1=1 --', '; DROP TABLE t')", "a' OR 1=1 --; DROP TABLE t"),
        ("'x' LIKE '%' || CHR(39)", False),
        ("X'41'", b"A"),
    ],
)
def test_values_that_do_not_fit_are_defined(expression: str, expected: Any) -> None:
    assert value(expression) == expected


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_random_tokens_are_refused_with_a_place(first: int) -> None:
    faults = [fault_of(seed, text_of(seed)) for seed in range(first, first + 100)]
    assert [fault for fault in faults if fault is not None] == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_random_tokens_are_refused_with_a_place() -> None:
    faults = (fault_of(seed, text_of(seed)) for seed in range(1_000, 200_000))
    assert [fault for fault in faults if fault is not None] == []
