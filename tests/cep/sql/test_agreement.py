"""Ways to the same result agree: masks and questions while matching, columns and single values."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from headrace.cep.matcher import Path
from headrace.cep.sql.binder import Binder, Names
from headrace.cep.sql.compiler import Condition
from headrace.cep.sql.expressions import compile_columns, compile_function
from headrace.cep.sql.lexer import Cursor, tokenize
from headrace.cep.sql.output import execute, plan
from headrace.cep.sql.parser import ClauseParser
from headrace.cep.sql.paths import PathConditions
from headrace.cep.sql.table import SortKey, Table

if TYPE_CHECKING:
    from headrace.cep.sql.bound import Bound
    from headrace.cep.sql.syntax import MatchRecognize

ATOMS = st.sampled_from(["A", "B", "C"])
QUANTIFIERS = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{,2}?"])


def _combine(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map(" ".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " | ".join(parts) + ")"),
        st.tuples(inner, QUANTIFIERS).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map(lambda pair: f"PERMUTE({pair[0]}, {pair[1]})"),
        inner.map(lambda part: "{- " + part + " -}"),
    )


PATTERNS = st.recursive(st.tuples(ATOMS, QUANTIFIERS).map("".join), _combine, max_leaves=4)

# What a condition of A can be; for B and C the letter is put in its place.
CONDITIONS = st.sampled_from(
    [
        "x > 1",
        "A.x < PREV(A.x)",
        "x <= PREV(x, 2) OR PREV(x, 2) IS NULL",
        "NEXT(A.x) = x",
        "LAST(A.x) IN (0, 2)",
        "CLASSIFIER() = 'B' OR s LIKE 'a%'",
        "x BETWEEN 1 AND 2 AND s <> 'b'",
        "CASE WHEN x IS NULL THEN s = 'a' ELSE x % 2 = 0 END",
        "COALESCE(A.x, 2) + 1 > 2",
        "NOT (x = 1 AND s = 'c')",
        "x > 0 AND x >= LAST(B.x)",
        "COUNT(A.*) < 3 AND x < 3",
        "UPPER(s) || 'Z' >= 'BZ'",
        "y / 2 > 0.5",
        "x / 2 = 1 AND ABS(-x) = 2",
    ]
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["k", "l"]),
        st.one_of(st.none(), st.integers(0, 3)),
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0.0, 1.0, 2.5, None]),
    ),
    max_size=8,
)
SKIPS = st.sampled_from(["PAST LAST ROW", "TO NEXT ROW"])
OUTPUTS = st.sampled_from(["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"])


def _frame(rows: list[tuple[Any, ...]]) -> pl.DataFrame:
    schema = {"key": pl.String, "x": pl.Int64, "s": pl.String, "y": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row").with_row_index("id")


def _clause(text: str) -> MatchRecognize:
    tokens = tokenize(text)
    return ClauseParser(Cursor(tokens), text, tokens[0].at).parse()


@given(PATTERNS, st.tuples(CONDITIONS, CONDITIONS, CONDITIONS), ROWS, SKIPS, OUTPUTS)
@settings(max_examples=150, deadline=None)
def test_masks_and_questions_agree(
    pattern: str, conditions: tuple[str, str, str], rows: list[tuple[Any, ...]], skip: str, output: str
) -> None:
    defined = {label: condition.replace("A.", f"{label}.") for label, condition in zip("ABC", conditions, strict=True)}
    used = [label for label in "ABC" if label in pattern.replace("PERMUTE", "")]
    known = [label for label in used if all(f"{other}." not in defined[label] or other in used for other in "ABC")]
    define = ", ".join(f"{label} AS {defined[label]}" for label in known)
    text = f"""
        PARTITION BY key ORDER BY id
        MEASURES MATCH_NUMBER() AS n, CLASSIFIER() AS c, LAST(x) AS lx, COUNT(*) AS cnt, FIRST(id) AS f
        {output} AFTER MATCH SKIP {skip} PATTERN ({pattern}) {"DEFINE " + define if define else ""}"""
    clause, frame = _clause(text), _frame(rows)
    fast = execute(plan(clause, dict(frame.schema)), frame)
    slow = execute(plan(clause, dict(frame.schema), masks=False), frame)
    assert_frame_equal(fast, slow)


@given(st.lists(st.tuples(st.sampled_from(["k", "l"]), st.integers(0, 12)), max_size=10), PATTERNS, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_within_is_a_condition_on_every_row(rows: list[tuple[str, int]], pattern: str, seconds: int) -> None:
    base = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    frame = pl.DataFrame(
        {"key": [key for key, _ in rows], "t": [base + dt.timedelta(seconds=second) for _, second in rows]},
        schema={"key": pl.String, "t": pl.Datetime("us", "UTC")},
    ).with_row_index("id")
    head = "PARTITION BY key ORDER BY t, id MEASURES FIRST(id) AS f, ARRAY_AGG(CLASSIFIER()) AS c"
    bound = f"INTERVAL '{seconds}' SECOND"
    used = [label for label in "ABC" if label in pattern.replace("PERMUTE", "")]
    define = ", ".join(f"{label} AS t - FIRST(t) < {bound}" for label in used)
    by_bound = _clause(f"{head} PATTERN ({pattern}) WITHIN {bound}")
    by_condition = _clause(f"{head} PATTERN ({pattern}) DEFINE {define}")
    schema = dict(frame.schema)
    assert_frame_equal(execute(plan(by_bound, schema), frame), execute(plan(by_condition, schema), frame))


RUNNING = [
    "x",
    "A.x",
    "LAST(B.x, 1)",
    "FIRST(A.x)",
    "FIRST(U.x, 2)",
    "PREV(x)",
    "NEXT(A.x, 2)",
    "PREV(FIRST(B.x, 1), 2)",
    "NEXT(LAST(A.x, 1))",
    "LAST(x, 9)",
    "FIRST(A.x, 9)",
    "CLASSIFIER()",
    "CLASSIFIER(U)",
    "PREV(CLASSIFIER(), 1)",
    "LAST(LOWER(CLASSIFIER(A)) || s_, 1)".replace("s_", "A.s"),
    "FIRST(COALESCE(B.x, 100), 1)",
    "MATCH_NUMBER()",
    "COUNT(*)",
    "COUNT(A.*)",
    "COUNT(U.x)",
    "SUM(x)",
    "SUM(A.y)",
    "AVG(U.x)",
    "MIN(A.x)",
    "MAX(s)",
    "ARRAY_AGG(CLASSIFIER() || s)",
    "ARRAY_AGG(B.x)",
    "MAX_BY(s, x)",
    "MIN_BY(CLASSIFIER(A), A.x)",
    "BOOL_OR(x > MATCH_NUMBER())",
    "SUM(x * 2 + MATCH_NUMBER())",
    "COUNT_IF(A.x = 1)",
    "A.x + LAST(B.x) * 2 - COUNT(*)",
    "CASE WHEN CLASSIFIER() = 'A' THEN SUM(A.x) ELSE AVG(B.y) END",
]


@pytest.mark.parametrize("measure", RUNNING)
@given(rows=ROWS)
@settings(max_examples=10, deadline=None)
def test_measures_and_conditions_see_the_same(measure: str, rows: list[tuple[Any, ...]]) -> None:
    """A running measure at a row is what a condition would have seen there."""
    text = f"""
        PARTITION BY key ORDER BY id MEASURES {measure} AS m, CLASSIFIER() AS c, MATCH_NUMBER() AS n
        ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN ((A | B)+? C?) SUBSET U = (A, B)
        DEFINE A AS x > 0, C AS s = 'c'"""
    clause, frame = _clause(text), _frame(rows)
    compiled = plan(clause, dict(frame.schema))
    result = execute(compiled, frame)
    table = Table(frame, ["key"], [SortKey("id", descending=False, nulls_first=False)])
    ids = {identity: row for row, identity in enumerate(table.column("id").to_list())}
    node = compiled.measures[0][1]
    expected: list[Any] = []
    path, current = Path.EMPTY, None
    for record in result.iter_rows(named=True):
        row, label = ids[record["id"]], record["c"]
        if (record["key"], record["n"]) != current:
            path, current = Path.EMPTY, (record["key"], record["n"])
        expected.append(_asked(table, node, row, label, path, record["n"]))
        path = path.add(label, row)
    got = [list(value) if isinstance(value, pl.Series) else value for value in result["m"].to_list()]
    assert got == pytest.approx(expected, nan_ok=True) if result["m"].dtype.is_float() else got == expected


@given(rows=ROWS, skip=SKIPS)
@settings(max_examples=60, deadline=None)
def test_one_row_is_the_last_of_all_rows(rows: list[tuple[Any, ...]], skip: str) -> None:
    """ONE ROW PER MATCH shows what ALL ROWS PER MATCH shows last, and final values are the same on all rows."""
    running = ", ".join(f"{measure} AS m{place}" for place, measure in enumerate(RUNNING))
    final = [measure for measure in RUNNING if measure.startswith(("FIRST(", "LAST(", "SUM(", "AVG(", "COUNT(", "M"))]
    final = [measure for measure in final if not measure.startswith("MATCH")]
    finals = ", ".join(f"FINAL {measure} AS f{place}" for place, measure in enumerate(final))
    template = f"""
        PARTITION BY key ORDER BY id MEASURES {running}, {finals}, MATCH_NUMBER() AS n {{}} AFTER MATCH SKIP {skip}
        PATTERN ((A | B)+? C?) SUBSET U = (A, B) DEFINE A AS x > 0, C AS s = 'c'"""
    frame = _frame(rows)
    one, every = (
        execute(plan(_clause(template.format(f"{mode} PER MATCH")), dict(frame.schema)), frame)
        for mode in ("ONE ROW", "ALL ROWS")
    )
    last = every.group_by("key", "n", maintain_order=True).last().select(one.columns)
    assert_frame_equal(one, last)
    for place, measure in enumerate(final):
        same = (
            every.group_by("key", "n").agg(pl.col(f"f{place}").cast(pl.String).n_unique() == 1)
            if not isinstance(every.schema[f"f{place}"], pl.List)
            else None
        )
        assert same is None or same[f"f{place}"].all(), measure


def _asked(table: Table, node: Bound, row: int, label: str, path: Path, number: int) -> Any:
    """The value of an expression as the condition of a variable would see it."""
    paths = PathConditions(table, {label: Condition(label, None, node)})
    paths.match_number = number
    paths.low = max(start for start in table.starts.tolist() if start <= row)
    paths.high = min(end for end in table.ends.tolist() if end > row)
    function = compile_function(node, lambda leaf: paths._leaf(leaf, label))
    paths._initial = tuple(tracker.initial for tracker in paths._trackers)
    _forget(path)
    return function((row, path, paths._states(path)))


def _forget(path: Path | None) -> None:
    while path is not None and path.parent is not None:
        path.memo = None
        path = path.parent


SCALARS = [
    "i + 1",
    "i - f",
    "i * i",
    "i / j",
    "i % j",
    "f / j",
    "-i",
    "ABS(i)",
    "ABS(f)",
    "i = j",
    "i <> f",
    "s < 'b'",
    "s = 'a' OR i > 1",
    "i > 1 AND NULL",
    "NOT (i = 1)",
    "i IS NULL",
    "(i = 1) IS NOT TRUE",
    "i BETWEEN j AND 2",
    "i IN (1, 2, j)",
    "i NOT IN (1, 2)",
    "s IN ('a', 'b')",
    "CASE WHEN i > 1 THEN s WHEN i < 0 THEN 'neg' END",
    "CASE i WHEN 1 THEN f ELSE j END",
    "COALESCE(i, j, 7)",
    "s || '-' || s",
    "UPPER(s) || LOWER('Q')",
    "LENGTH(s)",
    "f > 1.5",
    "f * 2 >= i",
    "t > TIMESTAMP '2024-01-01 00:00:01'",
    "t - INTERVAL '1' SECOND < u",
    "t - u",
    "t = u OR t < u",
    "d >= DATE '2024-01-02'",
    "CAST(i AS BIGINT) + 1",
    "CAST(i AS DOUBLE) / 2",
]


@pytest.mark.parametrize("text", SCALARS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_columns_and_values_agree(text: str, data: st.DataObject) -> None:
    """Where an expression runs on whole columns, it gives what it gives on single values."""
    base = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    moments = st.one_of(st.none(), st.integers(0, 3).map(lambda seconds: base + dt.timedelta(seconds=seconds)))
    columns: dict[str, tuple[pl.DataType, st.SearchStrategy[Any]]] = {
        "i": (pl.Int32(), st.one_of(st.none(), st.integers(-3, 3))),
        "j": (pl.Int64(), st.one_of(st.none(), st.integers(-3, 3))),
        "f": (pl.Float64(), st.one_of(st.none(), st.sampled_from([-1.5, 0.0, 1.0, 2.25, float("nan")]))),
        "s": (pl.String(), st.one_of(st.none(), st.sampled_from(["a", "b", "Cé", ""]))),
        "t": (pl.Datetime("us", "UTC"), moments),
        "u": (pl.Datetime("us", "UTC"), moments),
        "d": (pl.Date(), st.one_of(st.none(), st.integers(1, 3).map(lambda day: dt.date(2024, 1, day)))),
    }
    rows = data.draw(st.lists(st.tuples(*[values for _, values in columns.values()]), min_size=1, max_size=5))
    frame = pl.DataFrame(rows, schema={name: kind for name, (kind, _) in columns.items()}, orient="row")
    tokens = tokenize(f"MEASURES {text} AS m PATTERN (A)")
    clause = ClauseParser(Cursor(tokens), f"MEASURES {text} AS m PATTERN (A)", tokens[0].at).parse()
    node = Binder(Names(dict(frame.schema), frozenset({"A"})), "MEASURES").measure(clause.measures[0].expression)
    column = compile_columns(node, lambda leaf: pl.col(leaf.body.name))
    assert column is not None, "this expression should run on columns"
    lists = {name: frame[name].to_list() for name in frame.columns}
    function = compile_function(node, lambda leaf: lists[leaf.body.name].__getitem__)
    expected = pl.Series([function(row) for row in range(frame.height)], dtype=node.type, strict=False)
    got = frame.select(column.alias("")).to_series()
    assert_frame_equal(got.to_frame(), expected.to_frame(), check_dtypes=not isinstance(node.type, pl.Null))
