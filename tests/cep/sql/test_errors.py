"""Wrong queries are refused when they are built, with the place and what to do."""

from __future__ import annotations

import polars as pl
import pytest

from headrace.cep.sql import query
from headrace.errors import JobError, PlanError

TABLE = pl.DataFrame({"x": [1, 2], "s": ["a", "b"]})


def _refused(sql: str) -> str:
    with pytest.raises(PlanError) as caught:
        query(sql, {"t": TABLE})
    return str(caught.value)


def _clause(measures: str = "LAST(x) AS m", pattern: str = "A B+", define: str = "B AS x > 1", rest: str = "") -> str:
    return f"SELECT *\nFROM t MATCH_RECOGNIZE (\nMEASURES {measures}\n{rest}\nPATTERN ({pattern})\nDEFINE {define})"


MEASURES = [
    ("nope AS m", "line 3, column 10: unknown column nope. Columns: x, s."),
    ("A.nope AS m", "line 3, column 12: unknown column nope in A.nope"),
    ("C.x AS m", "line 3, column 10: C in C.x is not a variable of the pattern. Variables: A, B."),
    ("LAST(x)", "line 5, column 1: expected AS and a name for the measure"),
    ("SUM(AVG(x)) AS m", "line 3, column 14: aggregate avg cannot stand inside of SUM"),
    ("SUM(LAST(x)) AS m", "line 3, column 14: LAST cannot stand inside of SUM"),
    ("LAST(PREV(x)) AS m", "line 3, column 15: PREV cannot stand inside of LAST"),
    ("PREV(NEXT(x)) AS m", "line 3, column 15: NEXT cannot stand inside of PREV"),
    ("PREV(LAST(x) + 1) AS m", "line 3, column 15: LAST cannot stand inside of PREV"),
    ("PREV(x, -1) AS m", "the offset of PREV must not be negative"),
    ("LAST(x, 'a') AS m", "the offset of LAST must be a whole number"),
    ("LAST(x, s) AS m", "the offset of LAST must be a whole number"),
    ("LAST(1) AS m", "LAST must hold a column or CLASSIFIER()"),
    ("LAST(A.x + B.x) AS m", "line 3, column 10: the columns and classifiers inside of LAST belong to different"),
    ("SUM(A.x + x) AS m", "the columns and classifiers inside of SUM belong to different variables"),
    ("FINAL PREV(x) AS m", "FINAL is not allowed with PREV"),
    ("FINAL ABS(x) AS m", "FINAL belongs before FIRST, LAST or an aggregate"),
    ("FINAL x AS m", "FINAL stands before a column"),
    ("CLASSIFIER(C) AS m", "C is not a variable of the pattern"),
    ("CLASSIFIER(A.x) AS m", "the argument of CLASSIFIER must be a variable"),
    ("CLASSIFIER(A, B) AS m", "CLASSIFIER takes no argument or one variable"),
    ("MATCH_NUMBER(1) AS m", "MATCH_NUMBER takes no arguments"),
    ("MIN(A.*) AS m", "'*' is only allowed as the one argument of COUNT"),
    ("COUNT(C.*) AS m", "C is not a variable of the pattern"),
    ("COUNT(DISTINCT x) AS m", "DISTINCT is not allowed with aggregate count"),
    ("SUM(x) FILTER (WHERE x > 1) AS m", "FILTER is not allowed with aggregate sum"),
    ("SUM(x) OVER () AS m", "OVER is not allowed with aggregate sum"),
    ("ARRAY_AGG(x ORDER BY x) AS m", "ORDER BY is not allowed with aggregate array_agg"),
    ("SUM(s) AS m", "aggregate sum takes numbers, not varchar"),
    ("x + s AS m", "line 3, column 12: + cannot take integer and varchar"),
    ("x = s AS m", "= cannot take integer and varchar together. Use CAST"),
    ("UPPER(x) AS m", "upper takes text, not integer"),
    ("frob(x) AS m", "line 3, column 10: unknown function frob"),
    ("NULLIF(x) AS m", "nullif takes 2 arguments, not 1"),
    ("CAST(x AS blob) AS m", "unknown type blob"),
    ("x AND TRUE AS m", "AND takes conditions, not integer"),
    ("CASE x END AS m", "expected WHEN in CASE"),
    ("DATE 'soon' AS m", "'soon' is not a valid DATE"),
    ("TRANSFORM(x, y -> y) AS m", "line 3, column 25: lambda expressions are not supported"),
    ("(SELECT x, s FROM t) AS m", "the subquery must have one column"),
    ("(SELECT x FROM t) AS m", "the subquery must have at most one row"),
    ('"LAST"(x) AS m', "unknown function last"),
]


@pytest.mark.parametrize(("measures", "message"), MEASURES)
def test_measures(measures: str, message: str) -> None:
    assert message in _refused(_clause(measures=measures))


PATTERNS = [
    ("A B", "C AS x > 1", "line 6, column 8: C in DEFINE is not a variable of the pattern. Variables: A, B."),
    ("A B", "B AS x", "line 6, column 13: a condition in DEFINE must be boolean, this one is integer"),
    ("A B", "B AS TRUE, b AS FALSE", "line 6, column 19: variable b is defined twice"),
    ("A B", "B AS FINAL LAST(x) > 1", "FINAL is not allowed in DEFINE"),
    ("A B", "B AS FINAL SUM(x) > 1", "FINAL is not allowed in DEFINE"),
    ("A B{2,1}", "B AS TRUE", "line 5, column 13: the lower bound 2 of the quantifier is above its upper bound 1"),
    ("A B{0}", "B AS TRUE", "the upper bound of a quantifier must be at least 1"),
    ("A B{,99999999999}", "B AS TRUE", "upper bound 99999999999 of the quantifier is more than"),
    ("A B{x}", "B AS TRUE", "expected a number in the quantifier"),
    ("A (B", "B AS TRUE", "line 2, column 24: this bracket is never closed"),
    (
        "A | ",
        "A AS TRUE",
        "line 5, column 14: expected a variable, '(', '^', '$', '{-' or PERMUTE in PATTERN",
    ),
    ("A B) C", "B AS TRUE", "MATCH_RECOGNIZE"),
    ("A +* B", "B AS TRUE", "expected a variable, a quantifier or ')' in PATTERN, found '*'"),
    ("{- A B", "B AS TRUE", "expected '-}' in PATTERN"),
    ("(A{1000}){1000} B", "B AS TRUE", "the pattern unfolds to more than 50,000 steps"),
    ("PERMUTE(A, B, C, D, E, F, G, H, I)", "B AS TRUE", "the pattern unfolds to more than 50,000 steps"),
]


@pytest.mark.parametrize(("pattern", "define", "message"), PATTERNS)
def test_patterns(pattern: str, define: str, message: str) -> None:
    assert message in _refused(_clause(pattern=pattern, define=define))


CLAUSES = [
    ("PARTITION BY nope", "line 4, column 14: unknown column nope"),
    ("PARTITION BY x + 1", "PARTITION BY of MATCH_RECOGNIZE takes columns, not expressions"),
    ("ORDER BY ABS(x)", "ORDER BY of MATCH_RECOGNIZE takes columns, not expressions"),
    ("ORDER BY u.x", "unknown column u.x"),
    ("AFTER MATCH SKIP TO C", "line 4, column 21: C in AFTER MATCH SKIP is not a variable"),
    ("AFTER MATCH SKIP SOMEWHERE", "expected TO in AFTER MATCH SKIP, found 'SOMEWHERE'"),
    ("SUBSET U = (A, C)", "line 4, column 16: C in SUBSET is not a variable"),
    ("SUBSET A = (B)", "SUBSET A has the name of a variable"),
    ("SUBSET U = (A), U = (B)", "SUBSET U is declared twice"),
    ("MEASURES x AS y", "MEASURES stands twice in MATCH_RECOGNIZE, first at line 3, column 1"),
    ("INITIAL", "INITIAL belongs to row patterns in windows"),
    ("SOMETHING", "expected PARTITION BY, ORDER BY, MEASURES"),
    ("WITHIN INTERVAL '1' SECOND", "WITHIN needs ORDER BY with a timestamp column first"),
    ("WITHIN INTERVAL '1' MONTH", "WITHIN takes an interval of fixed length"),
    ("WITHIN 5", "expected INTERVAL in WITHIN"),
]


@pytest.mark.parametrize(("rest", "message"), CLAUSES)
def test_clauses(rest: str, message: str) -> None:
    assert message in _refused(_clause(rest=rest))


QUERIES = [
    ("", "The query is empty"),
    ("SELECT * FROM u MATCH_RECOGNIZE (PATTERN (A))", "line 1, column 15: unknown table u. Tables: t."),
    ("SELECT * FROM t MATCH_RECOGNIZE (MEASURES x AS y)", "line 1, column 17: MATCH_RECOGNIZE has no PATTERN"),
    ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))", "line 1, column 17: the result has no columns"),
    ("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A)", "line 1, column 33: this bracket is never closed"),
    ("SELECT * FROM MATCH_RECOGNIZE (PATTERN (A))", "line 1, column 15: there is no table before MATCH_RECOGNIZE"),
    ("SELECT * FROM t; SELECT 1", "line 1, column 16: one query at a time"),
    ("SELECT 'a FROM t", "line 1, column 8: the string that begins here has no closing quote"),
    ("DELETE FROM t", "only SELECT is understood"),
    ("SELECT *\nFROM t MATCH_RECOGNIZE (MEASURES x AS y PATTERN (A))\nWHERE z > 1", "line 3, column 7"),
    (
        "SELECT *\nFROM t MATCH_RECOGNIZE (MEASURES x AS y PATTERN (A)) GROUP WHERE",
        "line 2, column 64: something is missing",
    ),
    ("WITH RECURSIVE r AS (SELECT 1) SELECT * FROM r", "recursive common table expressions"),
    ("SELECT * FROM t MATCH_RECOGNIZE (MEASURES x AS y PATTERN (A)) AS m (a, b)", "2 names for 1 columns"),
    (
        "SELECT * FROM t MATCH_RECOGNIZE (MEASURES EXISTS (SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A))) AS y"
        " PATTERN (A))",
        "MATCH_RECOGNIZE cannot stand inside of another one's MEASURES or DEFINE",
    ),
]


@pytest.mark.parametrize(("sql", "message"), QUERIES)
def test_queries(sql: str, message: str) -> None:
    assert message in _refused(sql)


def test_exclusion_needs_a_mode_that_can_leave_out() -> None:
    rest = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"
    assert "line 5, column 12: {- -} is not allowed" in _refused(_clause(pattern="A {- B -}", rest=rest))


def test_huge_and_deep_queries_are_refused_at_once() -> None:
    assert "at most 1,000,000 are read" in _refused("SELECT " + "1 + " * 2_500_000 + "1")
    assert "line 1, column 158: brackets are nested more than 150 deep" in _refused("SELECT " + "(" * 9000 + ")" * 9000)
    brackets = "(" * 120 + "x" + ")" * 120
    cases = "CASE WHEN TRUE THEN " * 500 + "1" + " END" * 500
    for expression in (brackets, cases, "x" + " + 1" * 5000, "NOT " * 5000 + "TRUE"):
        assert "the expression is nested more than 100 deep" in _refused(_clause(measures=f"{expression} AS m"))
    assert "the pattern is nested more than 100 deep" in _refused(_clause(pattern="(" * 120 + "A B" + ")" * 120))
    inputs = "SELECT * FROM " + "(SELECT * FROM " * 30 + "t MATCH_RECOGNIZE (PATTERN (A))" + ")" * 30
    assert "queries are nested more than 20 deep" in _refused(inputs)


def test_long_flat_conditions_work() -> None:
    long = " OR ".join(f"x = {number}" for number in range(2000))
    assert query(_clause(define=f"B AS {long}"), {"t": TABLE}).rows() == [(2,)]


def test_values_that_cannot_be_computed_name_the_place() -> None:
    with pytest.raises(JobError, match=r"line 3, column 10: cannot cast 'b' to integer"):
        query(_clause(measures="CAST(s AS INTEGER) AS m"), {"t": TABLE})
