"""Statements one after the other: a catalog that grows, answers about it, and jobs."""

# ruff: noqa: S608

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.inprocess.sql_answers import answer_in_process
from headrace.stream import Stream
from headrace.streaming_sql.catalog import Catalog
from headrace.streaming_sql.script_jobs import jobs_of_script
from headrace.streaming_sql.session import Answer, Done, Insertions, Listing, Session, Text

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.streaming_sql.session import Result

SCANS = """
    CREATE TABLE scans (depot STRING, weight DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'kafka', 'topic' = 'scans', 'format' = 'json');
"""
HEAVY = """
    CREATE TABLE heavy (place STRING, grams BIGINT, note STRING) COMMENT 'Heavy parcels'
    WITH ('connector' = 'kafka', 'topic' = 'depots.heavy', 'format' = 'json');
"""


def last(session: Session, text: str) -> Result:
    return list(session.run(text))[-1]


def test_definitions_and_questions_about_them() -> None:
    session = Session()
    assert isinstance(last(session, SCANS), Done)
    last(session, "CREATE VIEW big (place, kilos) AS SELECT depot, weight FROM scans WHERE weight > 10")
    assert last(session, "SHOW TABLES") == Listing(("table", "what"), (("scans", "the topic scans"),))
    assert last(session, "SHOW TABLES LIKE 'x%'") == Listing(("table", "what"), ())
    assert last(session, "SHOW VIEWS") == Listing(("view",), (("big",),))
    assert last(session, "DESCRIBE Scans") == Listing(
        ("column", "type", "how"),
        (
            ("depot", "STRING", ""),
            ("weight", "DOUBLE", ""),
            ("ts", "TIMESTAMP_LTZ(6)", "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"),
        ),
    )
    described = last(session, "DESC big")
    assert isinstance(described, Listing)
    assert described.rows == (("place", "STRING", ""), ("kilos", "DOUBLE", ""))
    assert last(session, "SHOW CREATE VIEW big") == Text(
        "CREATE VIEW big (place, kilos) AS SELECT depot, weight FROM scans WHERE weight > 10;"
    )
    explained = last(session, "EXPLAIN SELECT depot FROM scans WHERE weight > 10")
    assert isinstance(explained, Text)
    steps = [line.strip() for line in explained.text.splitlines()]
    assert steps[1] == "watermark bounded(5s), idle after 10s"
    assert steps[2:] == ["select depot, weight, ts", 'filter [(col("weight")) > (10)]', "select depot"]
    last(session, "DROP VIEW big; DROP TABLE IF EXISTS nothing")
    assert last(session, "SHOW VIEWS") == Listing(("view",), ())


def test_settings() -> None:
    session = Session()
    last(session, "SET 'pipeline.name' = 'late'; SET job.delivery = at_least_once")
    assert last(session, "SET") == Listing(
        ("setting", "value"), (("job.delivery", "at_least_once"), ("pipeline.name", "late"))
    )
    assert last(session, "RESET; SET") == Listing(("setting", "value"), ())
    has_no_effect = last(session, "SET 'table.exec.state.ttl' = '1 h'")
    assert isinstance(has_no_effect, Done)
    assert "has no effect" in has_no_effect.text


def test_a_query_says_what_it_reads() -> None:
    session = Session()
    session.catalog.add("rates", pl.DataFrame({"depot": ["north"], "rate": [2]}))
    session.catalog.add("doors", Stream.rows("doors", {"door": pl.String}))
    answer = last(session, "SELECT rate FROM rates")
    assert isinstance(answer, Answer)
    assert [table.name for table in answer.tables] == ["rates"]
    assert answer.is_bounded
    last(session, "CREATE VIEW open_doors AS SELECT door FROM doors")
    behind_a_view = last(session, "SELECT * FROM open_doors")
    assert isinstance(behind_a_view, Answer)
    assert [table.name for table in behind_a_view.tables] == ["doors"]
    assert not behind_a_view.is_bounded


def test_an_insert_is_a_job() -> None:
    session = Session(name="Late_parcels")
    insert = "INSERT INTO heavy (grams, place) SELECT CAST(weight * 1000 AS BIGINT) AS g, depot AS d FROM scans"
    result = last(session, SCANS + HEAVY + insert)
    assert isinstance(result, Insertions)
    ((name, job),) = session.jobs.items()
    assert name == "late-parcels-heavy"
    assert (job.result_topic, job.description, job.sources) == ("depots.heavy", "Heavy parcels", ("scans",))
    assert job.format is not None
    assert [column.name for column in result.parts[0].columns] == ["place", "grams", "note"]
    rows = job.stream.schema.to_frame()
    filled = pl.DataFrame([{each: _value(kind) for each, kind in rows.schema.items()}], schema=rows.schema)
    (value,) = job.format.encode(filled).to_pylist()
    assert json.loads(value) == {"place": "x", "grams": 7, "note": None}


def _value(kind: Any) -> Any:
    return "x" if kind == pl.String else 7 if kind.is_numeric() else None


def test_jobs_of_a_file() -> None:
    insert = "INSERT INTO heavy SELECT depot, 1 AS n, '' AS t FROM scans;"
    one = jobs_of_script(SCANS + HEAVY + insert, Catalog(), name="late_parcels")
    assert list(one) == ["late-parcels"]
    many = jobs_of_script(
        SCANS
        + HEAVY
        + """SET 'job.delivery' = 'at_least_once'; SET 'pipeline.name' = 'first';
             INSERT INTO heavy SELECT depot, 1 AS n, '' AS t FROM scans;
             BEGIN STATEMENT SET;
               INSERT INTO heavy SELECT depot, 2 AS n, '' AS t FROM scans;
               INSERT INTO heavy SELECT depot, 3 AS n, '' AS t FROM scans;
             END;""",
        Catalog(),
        name="late",
    )
    assert list(many) == ["first", "late-heavy", "late-heavy-2"]
    assert {job.delivery for job in many.values()} == {"at_least_once"}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("SELECT * FROM scan", "unknown table 'scan'", "Did you mean scans?"),
        ("CREATE TABLE scans (a INT) WITH ('connector' = 'print')", "a table scans already", "DROP TABLE scans"),
        ("CREATE VIEW v AS SELECT nope FROM scans", "nope", ""),
        ("DROP VIEW scans", "scans is a table", "DROP TABLE scans"),
        ("DROP TABLE scan", "no table scan", "Did you mean scans?"),
        ("DESCRIBE havy", "no table havy", "Did you mean heavy?"),
        ("INSERT INTO heavi SELECT depot, 1 AS n, '' AS t FROM scans", "no table heavi", "Did you mean heavy?"),
        ("INSERT INTO heavy SELECT depot FROM scans", "gives 1 columns, heavy takes 3", "match by their place"),
        (
            "INSERT INTO heavy SELECT weight, 1 AS n, '' AS t FROM scans",
            "weight is DOUBLE, and column place of heavy is STRING",
            "CAST(",
        ),
        ("INSERT INTO heavy (colour) SELECT depot FROM scans", "no column colour", "place, grams, note"),
        ("INSERT INTO scans SELECT depot, weight, ts FROM heavy", "ts", ""),
        ("SET 'job.deliver' = 'x'", "no setting 'job.deliver'", "Did you mean job.delivery?"),
        ("SET 'job.delivery' = 'x'", "job.delivery is 'x'", "exactly_once"),
        ("CREATE FUNCTION f AS 'm:f' LANGUAGE PYTHON", "cannot be loaded here", ""),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, message: str, hint: str) -> None:
    session = Session()
    for _ in session.run(SCANS + HEAVY):
        pass
    with pytest.raises(PlanError, match=r"^line \d, column \d+: ") as caught:
        last(session, text)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.message.endswith("^")


def test_a_file_of_jobs_computes_for_topics_only(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="gives its rows to nobody"):
        jobs_of_script(SCANS + "SELECT depot FROM scans", Catalog(), name="a")
    with pytest.raises(PlanError, match="only one process has"):
        jobs_of_script(
            SCANS + "CREATE TABLE p (d STRING) WITH ('connector' = 'print'); INSERT INTO p SELECT depot FROM scans",
            Catalog(),
            name="a",
        )


def test_functions_are_found_beside_the_project(tmp_path: Path) -> None:
    from functools import partial

    from headrace.streaming_sql.user_functions import function_at

    (tmp_path / "my_sql_functions.py").write_text("def double(n: int) -> int:\n    return n * 2\n\nvalue = 3\n")
    catalog = Catalog(load=partial(function_at, directories=(tmp_path,)))
    session = Session(catalog)
    last(session, "CREATE FUNCTION twice AS 'my_sql_functions:double' LANGUAGE PYTHON")
    assert last(session, "SHOW FUNCTIONS") == Listing(("function", "place"), (("twice", "my_sql_functions:double"),))
    assert catalog.functions[0].function(4) == 8
    for place, message in (
        ("my_sql_functions:doubel", "no doubel"),
        ("my_sql_functions:value", "no function"),
        ("nomod:f", "nomod"),
    ):
        with pytest.raises(PlanError, match=message):
            last(session, f"CREATE FUNCTION other AS '{place}' LANGUAGE PYTHON")
    sys.modules.pop("my_sql_functions", None)
    sys.path.remove(str(tmp_path))


def jobs_of(session: Session, text: str) -> list[Any]:
    result = last(session, text)
    assert isinstance(result, Insertions)
    return [part.job for part in result.parts]


def test_an_insert_keeps_what_tells_its_results_apart() -> None:
    session = Session()
    (windows,) = jobs_of(
        session,
        SCANS
        + """CREATE TABLE counts (place STRING, n BIGINT)
             WITH ('connector' = 'kafka', 'topic' = 'counts', 'format' = 'json');
             INSERT INTO counts SELECT depot, COUNT(*) FROM TABLE(TUMBLE(TABLE scans, DESCRIPTOR(ts), INTERVAL '5'
             MINUTE)) GROUP BY depot, window_start, window_end""",
    )
    assert windows.pipeline.outputs[0].keys == ("depot",)
    # A key that the result does not have stays beside it; a query without state is keyed by its columns.
    (hidden,) = jobs_of(session, "INSERT INTO counts SELECT 'x', COUNT(*) FROM scans GROUP BY TUMBLE(ts, INTERVAL "
                        "'1' HOUR), depot")  # fmt: skip
    assert set(hidden.pipeline.outputs[0].keys) <= set(hidden.stream.schema)
    (plain,) = jobs_of(session, "INSERT INTO counts SELECT depot, 1 FROM scans")
    assert len(plain.pipeline.outputs[0].keys) == 2


def test_updating_results_are_upserts_of_the_primary_key() -> None:
    session = Session()
    (job,) = jobs_of(
        session,
        SCANS
        + """CREATE TABLE totals (place STRING, kilos DOUBLE, PRIMARY KEY (place) NOT ENFORCED)
             WITH ('connector' = 'kafka', 'topic' = 'totals', 'format' = 'json');
             INSERT INTO totals SELECT depot, SUM(weight) FROM scans GROUP BY depot""",
    )
    assert tuple(job.upsert) == ("place",)
    with pytest.raises(PlanError, match="has no PRIMARY KEY"):
        last(session, HEAVY + "INSERT INTO heavy SELECT depot, COUNT(*), 'x' FROM scans GROUP BY depot")


def test_queries_call_functions_of_users() -> None:
    def shout(text: str, times: int = 1) -> str:
        return text.upper() + "!" * times

    session = Session()
    session.catalog.add("doors", pl.DataFrame({"door": ["a", None]}))
    session.catalog.add_function("shout", shout)
    answer = last(session, "SELECT shout(door, 2) AS s FROM doors")
    assert isinstance(answer, Answer)
    assert answer_in_process(answer.planned, answer.tables).rows["s"].to_list() == ["A!!", None]
    with pytest.raises(PlanError, match="does not say what it gives"):
        session.catalog.add_function("untyped", lambda text: text)


def test_bounded_tables_are_ordered_limited_and_warn_of_nothing() -> None:
    session = Session()
    session.catalog.add("doors", pl.DataFrame({"door": ["a", "b", "a", "c"], "n": [1, 2, 3, None]}))
    answer = last(session, "SELECT door, SUM(n) AS n FROM doors GROUP BY door ORDER BY n DESC LIMIT 2")
    assert isinstance(answer, Answer)
    assert answer_in_process(answer.planned, answer.tables).rows.rows() == [("a", 4), ("b", 2)]
    assert answer.planned.cautions == ()
    endless = last(session, SCANS + "SELECT depot, COUNT(*) FROM scans GROUP BY depot")
    assert isinstance(endless, Answer)
    assert "keeps each group for ever" in endless.planned.cautions[0]


def test_results_of_windows_that_fire_again_are_told_apart() -> None:
    from headrace.events import Codec
    from headrace.spark.output.records import Writer

    session = Session()
    (job,) = jobs_of(
        session,
        SCANS
        + """CREATE TABLE totals (place STRING, till TIMESTAMP(3), kilos DOUBLE, PRIMARY KEY (place, till) NOT ENFORCED)
             WITH ('connector' = 'kafka', 'topic' = 'totals', 'format' = 'json');
             INSERT INTO totals SELECT depot, window_end, SUM(weight)
             FROM TUMBLE(scans, ts, INTERVAL '5' MINUTE) GROUP BY depot, window_start, window_end
             EMIT EARLY EVERY INTERVAL '10' SECOND ALLOWED LATENESS INTERVAL '1' MINUTE""",
    )
    assert tuple(job.upsert) == ("place", "till")
    Writer(job, Codec())  # refuses a job whose results could not be told apart
