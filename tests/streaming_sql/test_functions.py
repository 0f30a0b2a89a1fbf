"""Scalar functions and operators: every example of the table of functions, and forms of Flink's documentation."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.streaming_sql.dialect import parse_query
from headrace.streaming_sql.errors import QueryError
from headrace.streaming_sql.expressions import Binder
from headrace.streaming_sql.function_table import FUNCTIONS


def value(expression: str) -> Any:
    """Compute an expression without columns."""
    text = f"SELECT {expression}"

    def no_column(column: Any) -> Any:
        raise QueryError(f"unknown column {column.name!r}", text)

    bound = Binder(text, no_column).bind(parse_query(text).expressions[0].unalias())
    return pl.select(bound.expr.alias("value")).to_series().to_list()[0]


def test_examples_of_all_functions() -> None:
    named = [each for each in FUNCTIONS.values() if not each.name.endswith("_TIME") or each.name.startswith("C")]
    wrong = {
        each.example: (repr(found), each.gives)
        for each in named
        if each.name != "CEIL_TIME" and repr(found := value(each.example)) != each.gives
    }
    assert wrong == {}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("'abc' NOT LIKE 'a%'", False),
        ("'abc' NOT LIKE 'b%'", True),
        ("NULL NOT LIKE 'b%'", None),
        ("'a%c' NOT LIKE 'a#%c' ESCAPE '#'", False),
        ("'Abc' NOT ILIKE 'a%'", False),
        ("NOT 'abc' LIKE 'a%'", False),
        ("'abc' NOT SIMILAR TO 'a%'", False),
        ("5 BETWEEN SYMMETRIC 10 AND 1", True),
        ("11 BETWEEN SYMMETRIC 10 AND 1", False),
        ("5 NOT BETWEEN 1 AND 10", False),
        ("1 NOT IN (2, NULL)", None),
        ("NULL IN (1)", None),
        ("TRUE AND NULL", None),
        ("FALSE AND NULL", False),
        ("TRUE OR NULL", True),
        ("(NULL = 1) IS UNKNOWN", True),
        ("1 IS DISTINCT FROM NULL", True),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("1 / 0", None),
        ("MOD(5, 0)", None),
        ("1e0 / 0", float("inf")),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "xxxxxxxxx"),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "xxxxxxxxxst"),
        ("TRIM(LEADING 'x' FROM 'xxaxx')", "axx"),
        ("POSITION('b' IN 'abc')", 2),
        ("SUBSTRING('hello' FROM 2 FOR 3)", "ell"),
        ("LOCATE('a', 'abca', 2)", 4),
        ("REGEXP_INSTR('äöx', 'x')", 3),
        ("'{}' IS JSON OBJECT", True),
        ("'[]' IS NOT JSON OBJECT", True),
        ("'nope' IS JSON", False),
        ("JSON_VALUE('{\"a\": 5}', '$.a' RETURNING INTEGER) + 1", 6),
        ("JSON_VALUE('{\"a\": 5}', '$.b' DEFAULT 'x' ON EMPTY)", "x"),
        ("JSON_VALUE('{', '$.b' NULL ON EMPTY DEFAULT 'y' ON ERROR)", "y"),
        ("JSON_QUERY('{\"a\": 1}', '$.a' WITH CONDITIONAL ARRAY WRAPPER)", "[1]"),
        ("JSON_QUERY('{\"a\": [1]}', '$.a' WITH WRAPPER)", "[[1]]"),
        ("JSON_OBJECT('a' VALUE 1, KEY 'b' VALUE 'x')", '{"a":1,"b":"x"}'),
        ("MAP['a', 1, 'b', 2]['b']", 2),
        ("CARDINALITY(MAP['a', 1])", 1),
        ("ROW(1, 'a')", {"f0": 1, "f1": "a"}),
        ("ARRAY_JOIN(ARRAY['a', NULL, 'b'], ',', '?')", "a,?,b"),
        ("TRY_CAST('x' AS INT)", None),
        ("TRY_CAST(300 AS TINYINT)", None),
        ("CAST(CAST(7 AS VARCHAR) || '1' AS INT)", 71),
        ("CURRENT_TIMESTAMP <= NOW()", True),
        ("CURRENT_DATE IS NOT NULL AND LOCALTIMESTAMP IS NOT NULL", True),
    ],
)
def test_forms_of_the_standard_and_of_flink(expression: str, expected: Any) -> None:
    assert value(expression) == expected
