"""Every feature of MATCH_RECOGNIZE in a case of its own: the clause, the rows, and what must come out."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from headrace.cep.sql import query
from headrace.errors import JobError

# Prices of one day after the other: down, down, up, up, flat, down.
PRICES = pl.DataFrame({"id": [1, 2, 3, 4, 5, 6], "price": [90, 80, 70, 85, 85, 60]})
FALL = "DEFINE B AS B.price < PREV(B.price)"


def _frame(clauses: str, select: str = "*", table: pl.DataFrame = PRICES) -> pl.DataFrame:
    result = query(f"SELECT {select} FROM t MATCH_RECOGNIZE ({clauses}) AS m", {"t": table})  # noqa: S608
    assert isinstance(result, pl.DataFrame)
    return result


def _run(clauses: str, select: str = "*", table: pl.DataFrame = PRICES) -> list[tuple[Any, ...]]:
    return _frame(clauses, select, table).rows()


PATTERNS = [
    ("concatenation", "A B", "[(1,'A'),(2,'B'),(5,'A'),(6,'B')]"),
    ("greedy plus", "B+", "[(2,'B'),(3,'B'),(6,'B')]"),
    ("alternation prefers the first", "B | A", "[(1,'A'),(2,'B'),(3,'B'),(4,'A'),(5,'A'),(6,'B')]"),
    ("alternation with the general one first", "A | B", "[(1,'A'),(2,'A'),(3,'A'),(4,'A'),(5,'A'),(6,'A')]"),
    ("optional", "A B? B", "[(1,'A'),(2,'B'),(3,'B'),(5,'A'),(6,'B')]"),
    ("exactly", "B{2}", "[(2,'B'),(3,'B')]"),
    ("at least", "B{2,}", "[(2,'B'),(3,'B')]"),
    ("reluctant", "A B+?", "[(1,'A'),(2,'B'),(5,'A'),(6,'B')]"),
    ("group", "(A B){1,2}", "[(1,'A'),(2,'B'),(5,'A'),(6,'B')]"),
    ("permutation", "PERMUTE(A, B)", ""),
    ("start", "^ A | ^ B", "[(1,'A')]"),
    ("end", "B $", "[(6,'B')]"),
    ("exclusion", "A {- B -} B", "[(1,'A'),(3,'B')]"),
    ("quoted variable", '"b" B', "[(1,'b'),(2,'B'),(5,'b'),(6,'B')]"),
]


@pytest.mark.parametrize(("pattern", "expected"), [case[1:] for case in PATTERNS], ids=[case[0] for case in PATTERNS])
def test_pattern(pattern: str, expected: str) -> None:
    clauses = f"ORDER BY id MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH PATTERN ({pattern}) {FALL}"
    rows = _run(clauses, "id, c")
    if "PERMUTE" in pattern:
        assert rows == [(1, "A"), (2, "B"), (3, "B"), (4, "A"), (5, "A"), (6, "B")]
    else:
        assert rows == eval(expected)  # noqa: S307


def test_empty_pattern_matches_every_row() -> None:
    assert _run("ORDER BY id MEASURES MATCH_NUMBER() AS n, COUNT(*) AS c PATTERN (())") == [(n, 0) for n in range(1, 7)]


EMPTY = "ORDER BY id MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c {rows} PATTERN (B*) " + FALL
OUTPUTS = [
    ("", [(1, None), (2, "B"), (3, None), (4, None), (5, "B")], "n, c"),
    ("ONE ROW PER MATCH", [(1, None), (2, "B"), (3, None), (4, None), (5, "B")], "n, c"),
    (
        "ALL ROWS PER MATCH",
        [(1, 1, None), (2, 2, "B"), (3, 2, "B"), (4, 3, None), (5, 4, None), (6, 5, "B")],
        "id, n, c",
    ),
    (
        "ALL ROWS PER MATCH SHOW EMPTY MATCHES",
        [(1, 1, None), (2, 2, "B"), (3, 2, "B"), (4, 3, None), (5, 4, None), (6, 5, "B")],
        "id, n, c",
    ),
    ("ALL ROWS PER MATCH OMIT EMPTY MATCHES", [(2, 2, "B"), (3, 2, "B"), (6, 5, "B")], "id, n, c"),
]


@pytest.mark.parametrize(("rows", "expected", "select"), OUTPUTS)
def test_rows_per_match(rows: str, expected: list[tuple[Any, ...]], select: str) -> None:
    assert _run(EMPTY.format(rows=rows), select) == expected


def test_unmatched_rows_have_no_measures() -> None:
    clauses = (
        "ORDER BY id MEASURES MATCH_NUMBER() AS n, COUNT(*) AS c, 7 AS seven"
        f" ALL ROWS PER MATCH WITH UNMATCHED ROWS PATTERN (B+) {FALL}"
    )
    expected = [(1, None, None, None), (2, 1, 1, 7), (3, 1, 2, 7), (4, None, None, None), (5, None, None, None)]
    assert _run(clauses, "id, n, c, seven") == [*expected, (6, 2, 1, 7)]


SKIPS = [
    ("PAST LAST ROW", [1, 4]),
    ("TO NEXT ROW", [1, 2, 3, 4, 5]),
    ("TO FIRST B", [1, 2, 3, 4, 5]),
    ("TO LAST B", [1, 3, 5]),
    ("TO B", [1, 3, 5]),
    ("TO u", [1, 3, 5]),
]


@pytest.mark.parametrize(("skip", "expected"), SKIPS)
def test_after_match_skip(skip: str, expected: list[int]) -> None:
    clauses = f"ORDER BY id MEASURES FIRST(id) AS f AFTER MATCH SKIP {skip} PATTERN (A B{{1,2}}) SUBSET U = (B)"
    assert [row[0] for row in _run(clauses)] == expected


@pytest.mark.parametrize(
    ("skip", "message"), [("TO FIRST A", "first row of the match"), ("TO C", "C has no row in the match")]
)
def test_skip_that_cannot_go_on(skip: str, message: str) -> None:
    with pytest.raises(JobError, match=message):
        _run(f"ORDER BY id MEASURES FIRST(id) AS f AFTER MATCH SKIP {skip} PATTERN (A B C?) DEFINE C AS false")


NAVIGATION = [
    ("price", [90, 80, 70]),
    ("LAST(price)", [90, 80, 70]),
    ("FINAL LAST(price)", [70, 70, 70]),
    ("FIRST(price)", [90, 90, 90]),
    ("FIRST(price, 1)", [None, 80, 80]),
    ("FINAL FIRST(price, 1)", [80, 80, 80]),
    ("LAST(price, 1)", [None, 90, 80]),
    ("PREV(price)", [None, 90, 80]),
    ("NEXT(price, 2)", [70, 85, 85]),
    ("PREV(FIRST(price), 0)", [90, 90, 90]),
    ("NEXT(FIRST(price), 4)", [85, 85, 85]),
    ("NEXT(FINAL LAST(price))", [85, 85, 85]),
    ("A.price", [90, 90, 90]),
    ("B.price", [None, 80, 70]),
    ("U.price", [90, 80, 70]),
    ("CLASSIFIER()", ["A", "B", "B"]),
    ("CLASSIFIER(B)", [None, "B", "B"]),
    ("FIRST(CLASSIFIER(U))", ["A", "A", "A"]),
    ("NEXT(CLASSIFIER())", ["B", "B", None]),
    ("PREV(CLASSIFIER())", [None, "A", "B"]),
    ("MATCH_NUMBER()", [1, 1, 1]),
    ("MATCH_SEQUENCE_NUMBER()", [1, 2, 3]),
    ("LAG(price)", [None, 90, 80]),
    ("COUNT(*)", [1, 2, 3]),
    ("COUNT()", [1, 2, 3]),
    ("FINAL COUNT(*)", [3, 3, 3]),
    ("COUNT(B.*)", [0, 1, 2]),
    ("SUM(B.price)", [None, 80, 150]),
    ("RUNNING AVG(price)", [90.0, 85.0, 80.0]),
    ("FINAL AVG(U.price)", [80.0, 80.0, 80.0]),
    ("MIN(price)", [90, 80, 70]),
    ("FINAL MAX(B.price)", [80, 80, 80]),
    ("ARRAY_AGG(price)", [[90], [90, 80], [90, 80, 70]]),
    ("FINAL ARRAY_AGG(LOWER(CLASSIFIER(B)))", [["b", "b"]] * 3),
    ("MAX(price, 2)", [[90], [90, 80], [90, 80]]),
    ("MAX_BY(id, price)", [1, 1, 1]),
    ("MIN_BY(id, price, 2)", [[1], [2, 1], [3, 2]]),
    ("STDDEV_POP(price)", [0.0, 5.0, pytest.approx(8.16496580927726)]),
    ("ARBITRARY(price)", [90, 90, 90]),
    ("BOOL_AND(price > 75)", [True, True, False]),
    ("STRING_AGG(CLASSIFIER(), '-')", ["A", "A-B", "A-B-B"]),
    ("CARDINALITY(MAP_AGG(id, price))", [1, 2, 3]),
    ("MAP_AGG(id, price)[1]", [90, 90, 90]),
    ("FIRST(price) - LAST(price) + 1.5", [1.5, 11.5, 21.5]),
]


@pytest.mark.parametrize(("measure", "expected"), NAVIGATION)
def test_measure(measure: str, expected: list[Any]) -> None:
    clauses = (
        f"ORDER BY id MEASURES {measure} AS m ALL ROWS PER MATCH PATTERN (A B{{2}}) SUBSET U = (A, B)"
        " DEFINE B AS B.price < PREV(B.price)"
    )
    assert [row[0] for row in _run(clauses, "m")] == expected


CONDITIONS = [
    ("B.price < A.price", "B sees the last A", [1, 2]),
    ("price < FIRST(price)", "the first row of the match", [1, 2]),
    ("price > PREV(price) + 10", "arithmetic with neighbours", [3, 4]),
    ("COUNT(*) = 2 AND SUM(price) > 160", "running aggregates see the row at hand", [1, 2]),
    ("MATCH_NUMBER() = 1 AND price = 85", "the number the match will have", [3, 4]),
    ("CLASSIFIER() = 'B' AND PREV(CLASSIFIER()) = 'A'", "its own name and the one before", [1, 2]),
    ("NEXT(price) = price", "a neighbour to come", [3, 4]),
    ("NEXT(CLASSIFIER()) = 'A' OR id = 6", "rows to come have no variable yet", [5, 6]),
    ("LAST(U.price, 1) = 80", "union variables with offsets", [2, 3]),
    ("price IN (SELECT 70)", "subqueries", [2, 3]),
    ("RUNNING LAST(B.price) = 70", "RUNNING may be written", [2, 3]),
]


@pytest.mark.parametrize(("condition", "expected"), [(case[0], case[2]) for case in CONDITIONS])
def test_condition(condition: str, expected: list[int]) -> None:
    clauses = f"ORDER BY id MEASURES ARRAY_AGG(id) AS ids PATTERN (A B) SUBSET U = (A, B) DEFINE B AS {condition}"
    assert _run(clauses)[0][0] == expected


SCALARS = [
    ("7 / 2", 3),
    ("-7 / 2", -3),
    ("-7 % 3", -1),
    ("7 / 0", None),
    ("7 / 2.0", 3.5),
    ("1 + 2 * 3 - -4", 11),
    ("2 = 2.0", True),
    ("NULL = NULL", None),
    ("NULL IS NULL AND NOT FALSE", True),
    ("FALSE AND NULL", False),
    ("TRUE OR NULL", True),
    ("1 IS DISTINCT FROM NULL", True),
    ("1 IS NOT DISTINCT FROM 1", True),
    ("3 NOT BETWEEN 1 AND 2", True),
    ("2 NOT IN (1, NULL)", None),
    ("'abc' LIKE 'a_c'", True),
    ("'a%c' LIKE 'a!%%' ESCAPE '!'", True),
    ("'ABC' ILIKE 'abc'", True),
    ("CASE 2 WHEN 1 THEN 'one' WHEN 2 THEN 'two' END", "two"),
    ("CASE WHEN FALSE THEN 1 END", None),
    ("IF(1 > 0, 'y', 'n')", "y"),
    ("COALESCE(NULL, NULLIF(1, 1), 5)", 5),
    ("GREATEST(1, 3, 2) + LEAST(4, 2)", 5),
    ("ROUND(2.5) + ROUND(-2.5)", 0.0),
    ("ROUND(2.345, 2)", 2.35),
    ("FLOOR(-1.5) + CEIL(1.2)", 0.0),
    ("POWER(2, 10)", 1024.0),
    ("SQRT(16) + LN(EXP(1))", 5.0),
    ("'a' || 'b' || 3", "ab3"),
    ("UPPER('a') || LOWER('B')", "Ab"),
    ("TRIM('  x ') || TRIM(LEADING 'y' FROM 'yyz')", "xz"),
    ("SUBSTRING('headrace' FROM 5 FOR 4)", "race"),
    ("SUBSTR('headrace', -4)", "race"),
    ("POSITION('a' IN 'headrace')", 3),
    ("REPLACE('aXb', 'X', '-')", "a-b"),
    ("LPAD('7', 3, '0')", "007"),
    ("SPLIT_PART('a,b,c', ',', 2)", "b"),
    ("CONCAT_WS('-', 'a', NULL, 'b')", "a-b"),
    ("REGEXP_LIKE('abc', '^a.c$')", True),
    ("CAST('12' AS INTEGER) + CAST(2.5 AS BIGINT)", 15),
    ("CAST(1.256 AS DECIMAL(5, 2))", Decimal("1.26")),
    ("CAST(12345 AS VARCHAR(3))", "123"),
    ("'5'::INTEGER", 5),
    ("TRY_CAST('x' AS INTEGER)", None),
    ("ARRAY[1, 2, 3][2]", 2),
    ("ARRAY_JOIN(ARRAY['a', NULL, 'b'], '-', '?')", "a-?-b"),
    ("CARDINALITY(ARRAY[1, 2]) + ARRAY_MAX(ARRAY[3, 4])", 6),
    ("DATE '2024-02-29' + INTERVAL '1' YEAR", dt.date(2025, 2, 28)),
    ("EXTRACT(HOUR FROM TIMESTAMP '2024-01-01 05:06:07')", 5),
    ("DATE_DIFF('day', DATE '2024-01-01', DATE '2024-03-01')", 60),
    ("TIMESTAMPDIFF(MINUTE, TIMESTAMP '2024-01-01 00:00:00', TIMESTAMP '2024-01-01 01:30:00')", 90),
    ("DATE_TRUNC('month', DATE '2024-02-29')", dt.date(2024, 2, 1)),
    ("TIMESTAMP '2024-01-01 00:01:00' - TIMESTAMP '2024-01-01 00:00:00' = INTERVAL '60' SECOND", True),
    ("INTERVAL '1 02:00:00' DAY TO SECOND > INTERVAL '25' HOUR", True),
    ("YEAR(DATE '2024-02-29') * 100 + MONTH(DATE '2024-02-29')", 202402),
    ("(SELECT 40 + 2)", 42),
    ("EXISTS (SELECT 1 WHERE 1 = 0)", False),
]


@pytest.mark.parametrize(("expression", "expected"), SCALARS)
def test_scalar(expression: str, expected: Any) -> None:
    assert _run(f"ORDER BY id MEASURES {expression} AS m PATTERN (A) DEFINE A AS id = 1")[0][0] == expected


def test_order_by_several_columns_with_nulls() -> None:
    table = pl.DataFrame({"k": [1, None, 1, 2], "v": [1, 2, None, 3], "i": [0, 1, 2, 3]})
    clauses = "ORDER BY {order} MEASURES ARRAY_AGG(i) AS ids PATTERN (A+)"
    for order, expected in [
        ("k, v", [0, 2, 3, 1]),
        ("k NULLS FIRST, v DESC NULLS FIRST", [1, 2, 0, 3]),
        ("k DESC, v", [3, 0, 2, 1]),
        ("k DESC NULLS FIRST, v ASC NULLS LAST", [1, 3, 0, 2]),
    ]:
        assert _run(clauses.format(order=order), table=table)[0][0] == expected


def test_rows_equal_in_order_keep_their_input_order() -> None:
    table = pl.DataFrame({"k": ["x", "y"] * 3, "i": [1, 2, 3, 4, 5, 6]})
    rows = _run("PARTITION BY k MEASURES ARRAY_AGG(i) AS ids PATTERN (A+)", table=table)
    assert rows == [("x", [1, 3, 5]), ("y", [2, 4, 6])]


def test_partitions_are_apart_and_null_is_one_of_them() -> None:
    table = pl.DataFrame({"k": ["a", None, "a", None], "i": [1, 2, 3, 4]})
    clauses = (
        "PARTITION BY k ORDER BY i MEASURES MATCH_NUMBER() AS n, PREV(i) AS p, NEXT(i) AS q"
        " ALL ROWS PER MATCH PATTERN (^ A A $)"
    )
    assert _run(clauses, table=table) == [
        ("a", 1, 1, None, 3),
        ("a", 3, 1, 1, None),
        (None, 2, 1, None, 4),
        (None, 4, 1, 2, None),
    ]


def test_within_bounds_the_time_of_a_match() -> None:
    start = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    table = pl.DataFrame({"t": [start + dt.timedelta(seconds=second) for second in (0, 4, 9, 10, 30)], "i": range(5)})
    clauses = "ORDER BY t MEASURES ARRAY_AGG(i) AS ids PATTERN (A+) WITHIN INTERVAL '10' SECOND"
    assert _run(clauses, table=table) == [([0, 1, 2],), ([3],), ([4],)]
    # The same bound as a condition of the standard.
    by_condition = clauses.replace("WITHIN INTERVAL '10' SECOND", "DEFINE A AS t - FIRST(t) < INTERVAL '10' SECOND")
    assert _run(by_condition, table=table) == _run(clauses, table=table)
    rowtime = "ORDER BY t MEASURES MATCH_ROWTIME() AS at PATTERN (A A)"
    assert _run(rowtime, table=table) == [(start + dt.timedelta(seconds=4),), (start + dt.timedelta(seconds=10),)]


def test_output_columns() -> None:
    table = pl.DataFrame({"v": [1], "o": [2], "p": [3]})
    clauses = "PARTITION BY p ORDER BY o MEASURES v + 1 AS m {} PATTERN (A)"
    one = _frame(clauses.format("ONE ROW PER MATCH"), table=table)
    all_rows = _frame(clauses.format("ALL ROWS PER MATCH"), table=table)
    assert one.to_dicts() == [{"p": 3, "m": 2}]
    assert all_rows.columns == ["p", "o", "m", "v"]


def test_types_are_kept_without_any_match() -> None:
    clauses = (
        "ORDER BY id MEASURES FIRST(price) AS a, COUNT(*) AS b, CLASSIFIER() AS c, AVG(price) AS d, ARRAY_AGG(id) AS e,"
        " price > 1 AS f, CAST(price AS VARCHAR) AS g PATTERN (A) DEFINE A AS FALSE"
    )
    result = _frame(clauses)
    assert result.dtypes == [
        pl.Int64, pl.Int64, pl.String, pl.Float64, pl.List(pl.Int64), pl.Boolean, pl.String
    ]  # fmt: skip


def test_struct_fields() -> None:
    table = pl.DataFrame({"i": [1, 2], "at": [{"lat": 1.5}, {"lat": 2.5}]})
    rows = _run(
        "ORDER BY i MEASURES A.at.lat AS a, FIRST(B.at.lat) AS b PATTERN (A B) DEFINE B AS at.lat > 2", table=table
    )
    assert rows == [(1.5, 2.5)]


def test_dates_count_days_beside_numbers() -> None:
    table = pl.DataFrame({"d": [dt.date(2024, 1, day) for day in (1, 3, 20)]})
    clauses = (
        "ORDER BY d MEASURES FIRST(d) + 1 AS next, LAST(d) - FIRST(d) AS long PATTERN (A B+) DEFINE B AS d - A.d < 10"
    )
    assert _run(clauses, table=table) == [(dt.date(2024, 1, 2), dt.timedelta(days=2))]


def test_sums_of_small_integers_do_not_overflow() -> None:
    table = pl.DataFrame({"i": [1, 2], "x": pl.Series([2**31 - 1, 2**31 - 1], dtype=pl.Int32)})
    for rows in ("ONE ROW PER MATCH", "ALL ROWS PER MATCH"):
        clauses = f"ORDER BY i MEASURES SUM(x) AS s, x + x AS d {rows} PATTERN (A+)"
        assert _run(clauses, "s, d", table)[-1] == (2**32 - 2, 2**32 - 2)


def test_whole_grammar_of_patterns_is_read() -> None:
    pattern = "^ S1 S2*? ( {- S3 -} S4 )+ | PERMUTE(S1, S2){1,2} $"
    assert _run(f"ORDER BY id MEASURES COUNT(*) c PATTERN ({pattern}) DEFINE S4 AS id = 6") == [(6,)]
