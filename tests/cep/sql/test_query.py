"""The SQL around MATCH_RECOGNIZE: inputs, outputs, names and kinds of frames."""

from __future__ import annotations

import datetime as dt
import pickle
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from headrace.cep.limits import MatchLimitError
from headrace.cep.sql import execute, plan, query
from headrace.cep.sql.lexer import Cursor, tokenize
from headrace.cep.sql.parser import ClauseParser
from headrace.errors import PlanError

T = pl.DataFrame({"Id": [1, 2, 3, 4], "Price": [3, 1, 2, 5], "k": ["a", "a", "b", "b"]})
NAMES = pl.DataFrame({"k": ["a", "b"], "name": ["Anna", "Bert"]})
RISE = """MATCH_RECOGNIZE (
    ORDER BY id MEASURES A.id AS start_id, B.price AS top PATTERN (A B) DEFINE B AS price > A.price)"""
ROWS = "MATCH_RECOGNIZE (PARTITION BY k ORDER BY id MEASURES COUNT(*) AS c ALL ROWS PER MATCH PATTERN (A+))"

QUERIES: list[tuple[str, list[tuple[Any, ...]]]] = [
    ("SELECT * FROM t <rise>", [(2, 2)]),
    ("SELECT top, START_ID FROM t <rise>;", [(2, 2)]),
    ("SELECT m.* FROM t <rise> m", [(2, 2)]),
    ("SELECT M.top + 1 AS more FROM T AS x <rise> AS m WHERE M.Top > 1", [(3,)]),
    ("SELECT m.b FROM t <rise> AS m (a, b)", [(2,)]),
    ("SELECT id, c FROM t <rows> WHERE c = 2 ORDER BY id DESC", [(4, 2), (2, 2)]),
    ("SELECT k, MAX(c) AS n FROM t <rows> GROUP BY k ORDER BY k", [("a", 2), ("b", 2)]),
    (
        "SELECT n.name, m.price FROM t <rows> AS m JOIN names AS n ON m.k = n.k WHERE m.c = 1 ORDER BY 1",
        [("Anna", 3), ("Bert", 2)],
    ),
    ("SELECT COUNT(*) AS n FROM t <rows> AS a, t <rise> AS b", [(4,)]),
    ("SELECT * FROM (SELECT id, price FROM t WHERE id <> 3) <rise>", [(2, 5)]),
    ("SELECT * FROM (SELECT id, price * 10 FROM t) AS s(id, price) <rise>", [(2, 20)]),
    ("SELECT * FROM t AS s(id, price, z) <rise>", [(2, 2)]),
    ("SELECT * FROM (VALUES (1, 5), (2, 7)) AS v(id, price) <rise>", [(1, 7)]),
    ("WITH s AS (SELECT * FROM t WHERE k = 'b') SELECT * FROM s <rise>", [(3, 5)]),
    ("WITH m AS (SELECT top FROM t <rise>), n(x) AS (SELECT top * 2 FROM m) SELECT x FROM n", [(4,)]),
    ("SELECT price FROM t WHERE id IN (SELECT start_id FROM t <rise>)", [(1,)]),
    (
        "SELECT * FROM (SELECT top AS id FROM t <rise>) MATCH_RECOGNIZE (MEASURES id AS z PATTERN (A))",
        [(2,)],
    ),
    ("SELECT top FROM t <rise> UNION ALL SELECT top FROM t <rise>", [(2,), (2,)]),
    ("SELECT /* not MATCH_RECOGNIZE ( */ top -- nor this\nFROM t <rise> LIMIT 1", [(2,)]),
    ("SELECT price FROM t WHERE k = 'a' ORDER BY price", [(1,), (3,)]),
    ('SELECT "top" FROM "t" <rise>', [(2,)]),
    ("SELECT t.PRICE FROM T WHERE t.iD = 1", [(3,)]),
]


@pytest.mark.parametrize(("sql", "expected"), QUERIES)
def test_query(sql: str, expected: list[tuple[Any, ...]]) -> None:
    whole = sql.replace("<rise>", RISE).replace("<rows>", ROWS)
    assert query(whole, {"t": T, "names": NAMES}).rows() == expected


def test_names_are_shown_as_declared() -> None:
    sql = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id MEASURES price AS LastPrice ALL ROWS PER MATCH PATTERN (A))"
    assert query(sql, {"t": T}).columns == ["Id", "LastPrice", "Price", "k"]
    assert query(sql.replace("*", "LASTPRICE, ID AS number"), {"t": T}).columns == ["LastPrice", "number"]


def test_names_that_differ_in_case_only_need_care() -> None:
    table = pl.DataFrame({"x": [1], "X": [2], "Yy": [3], "yY": [4]})
    sql = "SELECT * FROM t MATCH_RECOGNIZE (MEASURES {} AS m PATTERN (A))"
    assert query(sql.format("x"), {"t": table}).rows() == [(1,)]
    assert query(sql.format('"X"'), {"t": table}).rows() == [(2,)]
    with pytest.raises(PlanError, match="line 1, column 43: column yy is ambiguous: Yy, yY"):
        query(sql.format("yy"), {"t": table})


def test_the_kind_of_the_first_table_is_the_kind_of_the_result() -> None:
    sql = " ".join(["SELECT * FROM t", RISE])
    tables: list[tuple[Any, type]] = [
        (T, pl.DataFrame),
        (T.lazy(), pl.DataFrame),
        (T.to_arrow(), pa.Table),
        (T.to_pandas(), pd.DataFrame),
    ]
    for table, kind in tables:
        result = query(sql, {"t": table})
        assert isinstance(result, kind)
        assert (result.to_pylist() if isinstance(result, pa.Table) else pl.DataFrame(result).to_dicts()) == [
            {"start_id": 2, "top": 2}
        ]
    with pytest.raises(PlanError, match="table t is a list"):
        query(sql, {"t": [1]})


def test_two_columns_of_one_name_are_told_apart() -> None:
    sql = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY id ASC, id DESC MEASURES k AS k ALL ROWS PER MATCH PATTERN (A))"
    assert query(sql, {"t": T}).columns == ["Id", "Id:1", "k", "Price", "k:1"]


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_outside_are_compared_with_and_without_zone(zone: str | None) -> None:
    moments = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in (1, 2)]
    times = pl.Series("at", moments).dt.replace_time_zone(zone)
    sql = """
        SELECT x, CAST(x AS VARCHAR(5)) AS s, TRY_CAST(k AS INTEGER) AS n
        FROM t MATCH_RECOGNIZE (ORDER BY at MEASURES x AS x, at AS at, k AS k PATTERN (A))
        WHERE at > TIMESTAMP '2024-01-01 01:30:00'"""
    table = pl.DataFrame({"x": [1, 2], "k": ["1", "z"], "at": times})
    assert query(sql, {"t": table}).rows() == [(2, "2", None)]


def test_a_plan_travels() -> None:
    """A compiled clause is a value: it can be sent to another process and run there."""
    text = """
        PARTITION BY k ORDER BY id MEASURES SUM(A.price) AS s, CLASSIFIER() || 'x' AS c
        ALL ROWS PER MATCH PATTERN (A B?) DEFINE B AS price > LAST(A.price) AND PREV(k) = 'b'"""
    tokens = tokenize(text)
    clause = ClauseParser(Cursor(tokens), text, tokens[0].at).parse()
    compiled = plan(clause, dict(T.schema))
    sent = pickle.loads(pickle.dumps(compiled))  # noqa: S301
    assert execute(sent, T).equals(execute(compiled, T))
    assert sent.program == compiled.program


def test_no_name_of_ours_is_taken_from_the_user() -> None:
    table = pl.DataFrame({"__partition": [1, 2], "value": [3, 3], "leaf 0": [5, 6], "owner": [1, 1]})
    sql = """
        SELECT * FROM __match_0 MATCH_RECOGNIZE (
          PARTITION BY value MEASURES SUM(owner) AS result, SUM("leaf 0") + PREV(__partition) AS z PATTERN (A+))"""
    assert query(sql, {"__match_0": table}).rows() == [(3, 2, 12)]


def test_nested_loops_do_not_blow_up() -> None:
    """(A+)+ B on rows without a B has more ways than atoms in the universe; each is ruled out once."""
    table = pl.DataFrame({"i": range(3000)})
    for pattern in ("(A+)+ B", "(A* A*)* B", "((A | A) (A | A))* B", "(A?){50} A{50} B"):
        clauses = f"ORDER BY i MEASURES COUNT(*) AS c PATTERN ({pattern}) DEFINE B AS i < 0"
        sql = f"SELECT * FROM t MATCH_RECOGNIZE ({clauses})"  # noqa: S608
        assert query(sql, {"t": table}).height == 0


def test_a_long_match_with_conditions_that_look_back_is_linear() -> None:
    table = pl.DataFrame({"i": range(20_000)})
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY i MEASURES COUNT(*) AS c, SUM(A.i) AS s PATTERN (A+)"
        " DEFINE A AS SUM(A.i) >= FIRST(A.i) AND COUNT(*) > 0 AND LAST(A.i, 1) IS DISTINCT FROM i)"
    )
    assert query(sql, {"t": table}).rows() == [(20_000, sum(range(20_000)))]


def test_a_pattern_that_can_match_nothing_gives_no_rows_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    table = pl.DataFrame({"i": range(3)})
    sql = "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY i MEASURES COUNT(*) AS c PATTERN (A B) DEFINE B AS NULL)"
    assert query(sql, {"t": table}).height == 0
    assert "the pattern can match nothing: the condition of B never holds" in caplog.text
    assert query(sql.replace("A B)", "A B?)"), {"t": table}).height == 3


def test_matches_that_overlap_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cep.sql.matching.MAX_MATCHED_ROWS", 1000)
    table = pl.DataFrame({"i": range(50)})
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY i MEASURES COUNT(*) AS c AFTER MATCH SKIP TO NEXT ROW PATTERN (A+))"
    )
    with pytest.raises(MatchLimitError, match=r"more than 1,000 rows in all.*PAST LAST ROW"):
        query(sql, {"t": table})
    assert query(sql.replace("TO NEXT", "PAST LAST"), {"t": table}).rows() == [(50,)]
