"""How a text of SQL is split into statements, and what each of them says."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cep.sql.lexer import Position
from headrace.errors import PlanError
from headrace.streaming_sql import statements
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.script import Fragment, excerpt, is_complete, split_statements

INSTANT = pl.Datetime("us", "UTC")


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("  ;; -- nothing\n;", []),
        ("SELECT 1", ["SELECT 1"]),
        ("SELECT ';'; SELECT `a;b`;SELECT \"c;\"", ["SELECT ';'", "SELECT `a;b`", 'SELECT "c;"']),
        ("SELECT 'it''s; so' ; SHOW TABLES", ["SELECT 'it''s; so'", "SHOW TABLES"]),
        ("-- a; b\nSELECT 1 -- c; d\n; /* e; */ SHOW TABLES", ["SELECT 1 -- c; d", "SHOW TABLES"]),
        (
            "BEGIN STATEMENT SET; INSERT INTO a SELECT CASE WHEN b THEN 1 END; INSERT INTO c SELECT 2; END; SHOW JOBS",
            [
                "BEGIN STATEMENT SET; INSERT INTO a SELECT CASE WHEN b THEN 1 END; INSERT INTO c SELECT 2; END",
                "SHOW JOBS",
            ],
        ),
        (
            "execute statement set begin insert into a select 1; end;",
            ["execute statement set begin insert into a select 1; end"],
        ),
    ],
)
def test_a_text_is_split_into_statements(text: str, parts: list[str]) -> None:
    assert [part.text for part in split_statements(text)] == parts


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1; -- done", True),
        ("SELECT ';", False),
        ("SELECT 1 /* ;", False),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1;", False),
        ("BEGIN STATEMENT SET; INSERT INTO a SELECT 1; END;", True),
    ],
)
def test_a_shell_knows_when_to_wait_for_more(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@given(
    st.lists(st.sampled_from(["SELECT 'a;b'", "SHOW TABLES", "SELECT `x;`\n  FROM y", "-- c;\nSHOW JOBS"]), max_size=6)
)
def test_parts_know_their_places(texts: list[str]) -> None:
    whole = "\n ;".join(texts)
    for part in split_statements(whole):
        lines = whole.split("\n")
        assert lines[part.at.line - 1][part.at.column - 1 :].startswith(part.text.split("\n")[0][:4])
        assert whole[part.start : part.end] == part.text
        assert part.position(len(part.text) - 1).line == whole[: part.end - 1].count("\n") + 1


def test_a_table_with_everything() -> None:
    (table,) = parse_script(
        """CREATE TEMPORARY TABLE IF NOT EXISTS scans (
             `parcel` STRING NOT NULL COMMENT 'its number', weight DECIMAL(10, 2),
             tags ARRAY<ROW<name STRING, n INT>>, codes INT ARRAY, extra MAP<STRING, DOUBLE>,
             trace STRING METADATA FROM 'headers.trace', `offset` BIGINT METADATA VIRTUAL,
             kilos AS COALESCE(weight, 0) * 1000, ts TIMESTAMP(3) WITH LOCAL TIME ZONE,
             WATERMARK FOR ts AS ts - INTERVAL '1:30' MINUTE TO SECOND,
             CONSTRAINT pk PRIMARY KEY (parcel) NOT ENFORCED
           ) COMMENT 'of depots' WITH ('connector' = 'kafka', 'topic' = 'it''s', )"""
    )
    assert isinstance(table, statements.CreateTable)
    assert (table.name, table.temporary, table.if_not_exists, table.comment) == ("scans", True, True, "of depots")
    assert {each.name: each.dtype for each in table.columns if isinstance(each, statements.PhysicalColumn)} == {
        "parcel": pl.String(),
        "weight": pl.Decimal(10, 2),
        "tags": pl.List(pl.Struct({"name": pl.String, "n": pl.Int32})),
        "codes": pl.List(pl.Int32),
        "extra": pl.List(pl.Struct({"key": pl.String, "value": pl.Float64})),
        "ts": INSTANT,
    }
    trace, offset = (each for each in table.columns if isinstance(each, statements.MetadataColumn))
    assert (trace.key, trace.is_virtual, offset.key, offset.is_virtual) == ("headers.trace", False, "offset", True)
    (kilos,) = (each for each in table.columns if isinstance(each, statements.ComputedColumn))
    assert kilos.expression.text == "COALESCE(weight, 0) * 1000"
    assert table.watermark is not None
    assert (table.watermark.column, table.watermark.delay) == ("ts", 90_000_000)
    assert table.primary_key == ("parcel",)
    assert {key: option.value for key, option in table.options.items()} == {"connector": "kafka", "topic": "it's"}


def told(statement: Any) -> dict[str, Any]:
    """What a statement says, without its text."""
    found = {each.name: getattr(statement, each.name) for each in fields(statement) if each.name != "text"}
    return {
        name: value.text if isinstance(value, Fragment) else told(value) if is_dataclass(value) else value
        for name, value in found.items()
        if value not in (False, (), None)
    }


@pytest.mark.parametrize(
    ("text", "kind", "says"),
    [
        ("CREATE VIEW v AS SELECT 1", statements.CreateView, {"name": "v", "query": "SELECT 1"}),
        (
            "create or replace temporary view V (a, `b c`) comment 'x' as with q as (select 1) select * from q",
            statements.CreateView,
            {
                "name": "V",
                "columns": ("a", "b c"),
                "query": "with q as (select 1) select * from q",
                "temporary": True,
                "or_replace": True,
            },
        ),
        (
            "CREATE TEMPORARY SYSTEM FUNCTION IF NOT EXISTS f AS 'places:clean' LANGUAGE PYTHON",
            statements.CreateFunction,
            {"name": "f", "place": "places:clean", "temporary": True, "if_not_exists": True},
        ),
        ("INSERT INTO t SELECT 1", statements.Insert, {"table": "t", "query": "SELECT 1"}),
        (
            "INSERT INTO t (a, b) (SELECT 1, 2)",
            statements.Insert,
            {"table": "t", "columns": ("a", "b"), "query": "(SELECT 1, 2)"},
        ),
        ("INSERT INTO t (SELECT 1)", statements.Insert, {"table": "t", "query": "(SELECT 1)"}),
        ("EXECUTE INSERT INTO t SELECT 1", statements.Insert, {"table": "t", "query": "SELECT 1"}),
        ("EXPLAIN PLAN FOR SELECT 1", statements.Explain, {"statement": {"query": "SELECT 1"}}),
        ("EXPLAIN INSERT INTO t SELECT 1", statements.Explain, {"statement": {"table": "t", "query": "SELECT 1"}}),
        ("SHOW TABLES", statements.Show, {"what": "tables"}),
        ("show user functions like 'a%'", statements.Show, {"what": "functions", "like": "a%"}),
        ("SHOW CREATE TABLE `a b`", statements.ShowCreate, {"kind": "table", "name": "a b"}),
        ("DESC t", statements.Describe, {"name": "t"}),
        (
            "SET 'pipeline.name' = 'late parcels'",
            statements.SetOption,
            {"key": "pipeline.name", "value": "late parcels"},
        ),
        ("SET job.delivery = at_least_once", statements.SetOption, {"key": "job.delivery", "value": "at_least_once"}),
        ("SET", statements.SetOption, {"value": ""}),
        ("RESET 'a'", statements.ResetOption, {"key": "a"}),
        ("DROP TEMPORARY VIEW IF EXISTS v", statements.Drop, {"kind": "view", "name": "v", "if_exists": True}),
        ("VALUES (1, 2)", statements.Query, {"query": "VALUES (1, 2)"}),
        ("(SELECT 1) UNION SELECT 2", statements.Query, {"query": "(SELECT 1) UNION SELECT 2"}),
    ],
)
def test_statements(text: str, kind: type, says: dict[str, Any]) -> None:
    (found,) = parse_script(text)
    assert type(found) is kind
    assert told(found) == says


def test_a_statement_set() -> None:
    for text in (
        "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; INSERT INTO b SELECT ';'; END",
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 1; INSERT INTO b SELECT ';'; END;",
    ):
        (found,) = parse_script(text)
        assert isinstance(found, statements.StatementSet)
        assert [(each.table, each.query.text) for each in found.inserts] == [("a", "SELECT 1"), ("b", "SELECT ';'")]


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("SHOW TABLES;\nCREAT TABLE t", (2, 1), "cannot begin with 'CREAT'", "Did you mean CREATE?"),
        ("CREATE TABLE t (\n  a INTT)", (2, 5), "unknown type INTT", "Did you mean INT?"),
        ("CREATE TABLE t (a INT, a STRING)", (1, 24), "two columns are named a", ""),
        ("CREATE TABLE t (a INT", (1, 22), "expected ')'", ""),
        ("CREATE TABLE t (a DECIMAL(50, 2))", (1, 19), "DECIMAL(50, 2)", "38"),
        ("CREATE TABLE t (a INT, WATERMARK FOR b AS b)", (1, 1), "WATERMARK FOR b", "Columns: a."),
        ("CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a + 1)", (1, 51), "a column minus an interval", "INTERVAL"),
        ("CREATE TABLE t (a TIMESTAMP, WATERMARK FOR a AS a - INTERVAL '1' MONTH)", (1, 53), "fixed length", ""),
        ("CREATE TABLE t (a INT, PRIMARY KEY (a))", (1, 39), "NOT ENFORCED", ""),
        ("CREATE TABLE t (a INT, PRIMARY KEY (b) NOT ENFORCED)", (1, 24), "names b", ""),
        ("CREATE TABLE t (a INT) WITH ('x' = '1', 'x' = '2')", (1, 41), "given twice", ""),
        ("CREATE TABLE t (a INT) WITH (x = '1')", (1, 30), "in single quotes", ""),
        ("CREATE TABLE t (a INT) AS SELECT 1", (1, 24), "CREATE TABLE ... AS", "INSERT INTO"),
        ("CREATE TABLE a.b (c INT)", (1, 15), "a name with a dot", "one catalog"),
        ("CREATE DATABASE d", (1, 8), "DATABASE", "one catalog"),
        ("CREATE FUNCTION f AS 'com.example.F' LANGUAGE JAVA", (1, 47), "LANGUAGE JAVA", "Python"),
        ("CREATE FUNCTION f AS 'clean' LANGUAGE PYTHON", (1, 22), "the place of a function", "module"),
        ("INSERT OVERWRITE t SELECT 1", (1, 8), "OVERWRITE", "INSERT INTO"),
        ("INSERT INTO t", (1, 14), "expected SELECT", ""),
        ("BEGIN STATEMENT SET; SELECT 1; END", (1, 22), "holds INSERT INTO only", ""),
        ("BEGIN STATEMENT SET; END", (1, 1), "is empty", ""),
        ("SELECT 1;\nBEGIN STATEMENT SET; INSERT INTO a SELECT 1;", (2, 1), "has no end", ""),
        ("SHOW CATALOGS", (1, 6), "SHOW CATALOGS", "SHOW TABLES"),
        ("EXPLAIN SHOW TABLES", (1, 9), "computes nothing", ""),
        ("SET a b", (1, 7), "expected '='", ""),
        ("DROP TABLE t u", (1, 14), "the end of the statement", ""),
        ("UPDATE t SET a = 1", (1, 1), "UPDATE", "PRIMARY KEY"),
        ("\nSELECT 'abc", (2, 8), "the string that begins here has no end", ""),
        ("SELECT 1; /* x", (1, 11), "the comment that begins here has no end", ""),
        ("SHOW \x07", (1, 6), "unexpected character", ""),
    ],
)
def test_errors_say_where(text: str, place: tuple[int, int], message: str, hint: str) -> None:
    with pytest.raises(PlanError) as caught:
        parse_script(text)
    at = Position(*place)
    assert caught.value.message.startswith(f"{at}: ")
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.endswith(excerpt(text, at))


def test_an_error_of_a_part_is_told_by_its_place_in_the_whole() -> None:
    whole = "SHOW TABLES;\n  SELECT a\nFROM b"
    part = split_statements(whole)[1]
    assert part.located(PlanError("line 1, column 8: unknown column a")).message == (
        "line 2, column 10: unknown column a\n    SELECT a\n           ^"
    )
    shown = part.located(PlanError("line 2, column 6: unknown table bcd\n  FROM bcd\n       ^^^", hint="Which?"))
    assert shown.message == "line 3, column 6: unknown table bcd\n  FROM b\n       ^"
    assert shown.hint == "Which?"
    assert part.located(shown) is shown
    assert part.located(PlanError("no tables")).message.startswith("line 2, column 3: no tables")


WORDS = (
    "CREATE TABLE VIEW t ( ) , INT AS WITH 'x' = INSERT INTO SELECT BEGIN STATEMENT SET END ; WATERMARK FOR ROW < > `"
)


@given(st.lists(st.sampled_from(WORDS.split()), max_size=25))
def test_any_tokens_give_statements_or_an_error_with_its_place(words: list[str]) -> None:
    try:
        parse_script(" ".join(words))
    except PlanError as problem:
        told_where = problem.message.startswith("line ")
    else:
        told_where = True
    assert told_where


def test_a_text_that_is_too_long_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 1,000,000"):
        parse_script("SELECT 1;" * 1_000_000)
    with pytest.raises(PlanError, match="deep"):
        parse_script(f"CREATE TABLE t (a {'ARRAY<' * 200}INT{'>' * 200})")
