"""MATCH_RECOGNIZE over streams: the same matches as over the whole table, however the rows come."""

from __future__ import annotations

import logging
from datetime import timedelta
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, rows

import headrace
from headrace.cep.limits import MatchLimitError
from headrace.errors import PlanError
from headrace.inprocess import Batch, Runner
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded, perfect
from headrace.windows import count, tumbling

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
COLUMNS = {"key": pl.String, "symbol": pl.String, "value": pl.Int64}


def source(bound: str = "0s") -> Stream:
    return Stream.rows("events", COLUMNS).watermark(bounded(bound))


def defined(pattern: str, *, measures: str = "ARRAY_AGG(value) AS v, COUNT(*) AS n", rest: str = "") -> str:
    conditions = ", ".join(f"{name} AS symbol = '{name.lower()}'" for name in "ABC" if name in pattern)
    return f"""
        SELECT * FROM events MATCH_RECOGNIZE (
          PARTITION BY key ORDER BY event_time
          MEASURES {measures} {rest}
          PATTERN ({pattern})
          DEFINE {conditions})
        """  # noqa: S608


# Streams


def test_a_match_comes_out_when_the_watermark_has_passed_the_row_that_decides_it() -> None:
    stream = headrace.sql(defined("A B+?"), {"events": source()})
    assert stream.schema.names() == ["key", "event_time", "v", "n"]
    runner = Runner(stream)
    assert runner.step(frame_of([("x", "a", 1, 0), ("x", "b", 2, 1)])).results.is_empty()
    found = runner.step(frame_of([("y", "c", 0, 2)])).results
    assert found.rows() == [("x", START + timedelta(seconds=1), [1, 2], 2)]


def test_a_greedy_match_waits_for_the_row_that_ends_it_and_has_its_time() -> None:
    runner = Runner(headrace.sql(defined("A B+"), {"events": source()}))
    assert runner.step(
        frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("x", "b", 3, 1), ("y", "a", 9, 1)])
    ).results.is_empty()
    found = runner.step(frame_of([("x", "c", 0, 5), ("y", "c", 0, 1)])).results
    assert found.rows() == [("x", START + timedelta(seconds=5), [1, 2, 3], 3)]


def test_the_time_bound_decides_without_a_row_of_the_key() -> None:
    query = defined("A B+").replace("DEFINE", "WITHIN INTERVAL '4' SECOND DEFINE")
    runner = Runner(headrace.sql(query, {"events": source()}), key_groups=1)
    assert runner.step(frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("y", "c", 9, 2)])).results.is_empty()
    found = runner.step(frame_of([("y", "c", 0, 4)])).results
    assert found.rows() == [("x", START + timedelta(seconds=4), [1, 2], 2)]


def timed(pattern: str, seconds: int, *, rest: str, measures: str = "ARRAY_AGG(value) AS v, LAST(B.value) AS b") -> str:
    query = defined(pattern, measures=measures, rest=rest)
    return query.replace("DEFINE", f"WITHIN INTERVAL '{seconds}' SECOND DEFINE")


def test_partial_matches_time_out_on_the_watermark_without_a_new_row() -> None:
    query = timed("A B+ C", 4, rest="ONE ROW PER MATCH WITH TIMED OUT MATCHES")
    stream = headrace.sql(query, {"events": source()})
    assert stream.schema.names() == ["key", "event_time", "timed_out", "v", "b"]
    runner = Runner(stream, key_groups=1)
    table = frame_of([("x", "a", 1, 0), ("y", "a", 7, 0), ("x", "b", 2, 1), ("x", "b", 3, 1), ("z", "c", 0, 1)])
    assert runner.step(table).results.is_empty()
    found = runner.step(frame_of([("z", "c", 0, 5)])).results
    over = START + timedelta(seconds=4)
    assert sorted(found.rows()) == [("x", over, True, [1, 2, 3], 3), ("y", over, True, [7], None)]
    more = frame_of([("x", "a", 1, 6), ("x", "b", 5, 1), ("x", "c", 6, 1), ("z", "c", 0, 9)])
    matched = START + timedelta(seconds=8)
    assert runner.step(more).results.rows() == [("x", matched, False, [1, 5, 6], 5)]


def test_all_rows_of_partial_matches_that_timed_out() -> None:
    query = timed(
        "A {- B -} C",
        4,
        rest="ALL ROWS PER MATCH WITH TIMED OUT MATCHES",
        measures="MATCH_NUMBER() AS n, CLASSIFIER() AS c",
    )
    table = frame_of(
        [("x", "a", 1, 0), ("x", "b", 2, 1), ("x", "c", 3, 1), ("x", "a", 4, 1), ("x", "b", 5, 1), ("x", "c", 6, 9)]
    )
    found = headrace.sql(query, {"events": table})
    assert found.columns == ["key", "event_time", "timed_out", "n", "c", "symbol", "value"]
    shown = found.select("timed_out", "n", "c", "value").rows()
    assert shown == [(False, 1, "A", 1), (False, 1, "C", 3), (True, None, "A", 4)]


def test_the_end_of_the_rows_is_the_end_of_time() -> None:
    query = timed("A B", 4, rest="ONE ROW PER MATCH WITH TIMED OUT MATCHES")
    table = frame_of([("x", "a", 1, 0), ("x", "c", 1, 1), ("x", "a", 2, 1)])
    assert headrace.sql(query, {"events": table}).rows() == [("x", True, [2], None)]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (defined("A B", rest="ONE ROW PER MATCH WITH TIMED OUT MATCHES"), "line 4, column \\d+.*no time bound.*WITHIN"),
        (timed("A B", 4, rest="ALL ROWS PER MATCH WITH UNMATCHED ROWS WITH TIMED OUT MATCHES"), "UNMATCHED ROWS"),
        (
            timed("A B", 4, rest="ONE ROW PER MATCH WITH TIMED OUT MATCHES", measures="A.value AS timed_out"),
            "named timed_out",
        ),
        (timed("A B", 4, rest="ONE ROW PER MATCH WITH TIMED MATCHES"), "TIMED OUT MATCHES"),
    ],
)
def test_timed_out_matches_where_there_can_be_none_are_refused(query: str, message: str) -> None:
    for table in (source(), frame_of([("x", "a", 1, 0)])):
        with pytest.raises(PlanError, match=f"(?s){message}"):
            headrace.sql(query, {"events": table})


def test_state_of_a_quiet_key_is_freed_and_late_rows_are_late() -> None:
    stream = headrace.sql(defined("A B"), {"events": source()})
    runner = Runner(stream, key_groups=1)
    runner.step(frame_of([("z", "c", 0, 0)]))
    runner.step(frame_of([("z", "c", 0, 900)]))
    small = sum(map(len, next(iter(runner.snapshot().values()))[0].values()))
    many = [(f"k{number}", letter, 1, 0) for number in range(200) for letter in "abc"]
    first, *others = many
    runner.step(frame_of([(first[0], first[1], 1, 1000), *others]))
    assert sum(map(len, next(iter(runner.snapshot().values()))[0].values())) > small + 1000
    assert runner.step(frame_of([("z", "c", 0, 2000)])).results.height == 200
    assert sum(map(len, next(iter(runner.snapshot().values()))[0].values())) <= small + 100
    late = runner.step(frame_of([("z", "a", 0, 3)])).late
    assert late is not None
    assert late.select("key", "symbol").rows() == [("z", "a")]


def test_a_key_that_waits_too_long_stops_the_job_with_a_hint() -> None:
    runner = Runner(headrace.sql(defined("A+ B"), {"events": source()}, max_rows=5))
    with pytest.raises(MatchLimitError, match=r"more than 5 rows of one key \(key x\).*WITHIN.*max_rows.*give_up"):
        runner.step(frame_of([("x", "a", 1, 1)] * 7))


def test_rows_that_wait_too_long_are_given_up_where_that_is_chosen() -> None:
    stream = headrace.sql(defined("A+ B"), {"events": source()}, max_rows=5, at_limit="give_up")
    runner = Runner(stream, key_groups=1)
    table = frame_of([*[("x", "a", number, 1) for number in range(7)], ("x", "b", 7, 1), ("y", "c", 0, 1)])
    batch = runner.step(table)
    assert batch.results["v"].to_list() == [[5, 6, 7]]
    assert batch.dismissed is not None
    assert batch.dismissed["value"].to_list() == [0, 1, 2, 3, 4]
    assert set(batch.dismissed["reason"]) == {
        f"a match that begins at {START + timedelta(seconds=1)} needs more than 5 rows of its key"
    }


@pytest.mark.parametrize(
    ("query", "settings", "message"),
    [
        (defined("A B"), {"max_rows": 0}, "max_rows is 0"),
        (defined("A B"), {"at_limit": "drop"}, "at_limit is 'drop'.*fail, give_up"),
        (defined("A B"), {"forget_after": "1h"}, "WITHIN that is not longer"),
        (
            defined("A B").replace("DEFINE", "WITHIN INTERVAL '2' HOUR DEFINE"),
            {"forget_after": "1h"},
            "WITHIN that is not longer",
        ),
        (
            defined("A B $").replace("DEFINE", "WITHIN INTERVAL '4' SECOND DEFINE"),
            {"forget_after": "1h"},
            "NEXT or \\$",
        ),
    ],
)
def test_bounds_that_make_no_sense_are_refused(query: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        headrace.sql(query, {"events": source()}, **settings)


def size_of(runner: Runner) -> int:
    return sum(map(len, next(iter(runner.snapshot().values()))[0].values()))


@pytest.mark.parametrize(
    ("pattern", "measures", "condition", "frees"),
    [
        # The row before a B is always part of the match.
        ("A B", "LAST(value) AS v", "B AS value > PREV(value)", True),
        ("A B", "PREV(B.value) AS v", "B AS symbol = 'b'", True),
        ("A B C", "LAST(value) AS v", "C AS value > PREV(value, 2)", True),
        # What is before the first row of a match must be kept, or counted.
        ("A B", "LAST(value) AS v", "A AS value > PREV(value)", False),
        ("A B", "PREV(A.value) AS v", "B AS symbol = 'b'", False),
        ("A B", "MATCH_NUMBER() AS v", "B AS symbol = 'b'", False),
        ("^ A B", "LAST(value) AS v", "B AS symbol = 'b'", False),
    ],
)
@pytest.mark.parametrize("forget", [False, True])
def test_what_stays_of_a_quiet_key(pattern: str, measures: str, condition: str, frees: bool, forget: bool) -> None:
    query = f"""
        SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY key ORDER BY event_time MEASURES {measures}
          PATTERN ({pattern}) WITHIN INTERVAL '5' SECOND DEFINE {condition})
        """  # noqa: S608
    stream = headrace.sql(query, {"events": source()}, forget_after="20s" if forget else None)
    runner = Runner(stream, key_groups=1)
    runner.step(frame_of([("z", "x", 0, 0)]))
    runner.step(frame_of([("z", "x", 0, 100)]))
    before = size_of(runner)
    first, *others = [(f"k{number}", letter, 1, 0) for number in range(300) for letter in "abc"]
    runner.step(frame_of([(first[0], first[1], 1, 200), *others]))
    assert size_of(runner) > before + 3000
    runner.step(frame_of([("z", "x", 0, 300)]))
    runner.step(frame_of([("z", "x", 0, 400)]))
    assert (size_of(runner) < before + 1000) is (frees or forget)


def test_a_key_that_was_forgotten_begins_anew_whatever_the_batches() -> None:
    query = """
        SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY key ORDER BY event_time
          MEASURES MATCH_NUMBER() AS n, PREV(A.value) AS before, A.value AS v
          PATTERN (A) WITHIN INTERVAL '5' SECOND)
        """
    stream = headrace.sql(query, {"events": Stream.rows("events", COLUMNS).watermark(perfect())}, forget_after="20s")
    table = frame_of(
        [("x", "a", 1, 0), ("x", "a", 2, 19), ("y", "a", 3, 0), ("x", "a", 4, 20), ("y", "a", 5, 0), ("x", "a", 6, 3)]
    )
    wanted = [
        ("x", 1, None, 1),
        ("x", 2, 1, 2),
        ("y", 1, None, 3),
        ("x", 1, None, 4),
        ("y", 1, None, 5),
        ("x", 2, 4, 6),
    ]
    for cuts in ([], [1], [3], [4, 5], [1, 2, 3, 4, 5]):
        found = in_pieces(stream, table, cuts, 2)
        assert sorted(found.select("key", "n", "before", "v").rows(), key=lambda row: row[3]) == wanted


def test_only_the_columns_that_the_query_reads_are_asked_for() -> None:
    wide = Stream.rows("events", {**COLUMNS, "unused": pl.String, "text": pl.String}).watermark(bounded("1s"))
    stream = headrace.sql(defined("A B", measures="LAST(value) AS v"), {"events": wide})
    assert compile_plan(stream.node, stream.schema).entries[0].columns == ("key", "symbol", "value", "event_time")
    shown = headrace.sql(defined("A B", rest="ALL ROWS PER MATCH"), {"events": wide})
    assert compile_plan(shown.node, shown.schema).entries[0].columns == tuple(wide.schema)


def test_the_select_around_it_and_below_it_become_steps() -> None:
    query = """
        WITH big AS (SELECT key, value * 2 AS doubled, symbol FROM events WHERE value > 0)
        SELECT m.key AS who, Total + 1 AS more FROM big MATCH_RECOGNIZE (
          PARTITION BY key ORDER BY event_time
          MEASURES SUM(doubled) AS total
          PATTERN (A B) DEFINE A AS symbol = 'a', B AS symbol = 'b') AS m
        WHERE m.total > 4
        """
    stream = headrace.sql(query, {"events": source()})
    assert stream.schema.names() == ["event_time", "who", "more"]
    table = frame_of([("x", "a", 1, 0), ("x", "c", 0, 1), ("x", "b", 2, 1), ("y", "a", 1, 1), ("y", "b", 1, 1)])
    runner = Runner(stream)
    found = pl.concat([runner.step(table).results, runner.finish().results])
    assert found.select("who", "more").rows() == [("x", 7)]


def test_rows_of_matches_can_be_windowed_after_all_rows_per_match() -> None:
    query = defined("A B+", rest="ALL ROWS PER MATCH").replace("DEFINE", "WITHIN INTERVAL '5' SECOND DEFINE")
    stream = headrace.sql(query, {"events": source()}).key_by("symbol").window(tumbling("10s")).aggregate(n=count())
    table = frame_of([("x", "a", 1, 8), ("x", "b", 1, 1), ("x", "b", 1, 2), ("x", "c", 1, 30), ("x", "c", 1, 60)])
    runner = Runner(stream)
    steps = [runner.step(part) for part in table.iter_slices(1)]
    found = pl.concat([step.results for step in [*steps, runner.finish()]])
    assert all(step.late is None for step in steps)
    assert sorted(found.select("symbol", "n").rows()) == [("a", 1), ("b", 1), ("b", 1)]


def test_frames_still_give_frames() -> None:
    table = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1)])
    assert headrace.sql(defined("A B"), {"events": table}).rows() == [("x", [1, 2], 2)]


def test_a_condition_can_read_a_frame_beside_the_stream() -> None:
    query = """SELECT * FROM events MATCH_RECOGNIZE (ORDER BY event_time MEASURES A.value AS v
               PATTERN (A) DEFINE A AS symbol IN (SELECT s FROM wanted))"""
    stream = headrace.sql(query, {"events": source(), "wanted": pl.DataFrame({"s": ["b", "c"]})})
    runner = Runner(stream, key_groups=3)
    table = frame_of([("x", "a", 1, 0), ("y", "b", 2, 1), ("z", "c", 3, 1)])
    assert pl.concat([runner.step(table).results, runner.finish().results])["v"].to_list() == [2, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (defined("A B").replace("ORDER BY event_time", "ORDER BY value"), "line 3, column 37.*ORDER BY must begin"),
        (defined("A B").replace("ORDER BY event_time", "ORDER BY event_time DESC"), "ascending"),
        (defined("A B").replace("ORDER BY event_time", ""), "ORDER BY must begin"),
        (defined("A B", measures="A.event_time AS event_time"), "line 4, column.*named event_time"),
        (defined("A B") + " ORDER BY n", "ORDER BY"),
        (defined("A B") + " JOIN events e ON e.key = key", "column"),
        (defined("A B") + " WHERE n > ALL (SELECT value FROM events)", "is not supported in an expression"),  # noqa: S608
        (defined("A B").replace("SELECT *", "SELECT nothing"), "nothing"),
        (defined("A B").replace("SELECT *", "SELECT other.key"), "unknown table or column 'other'"),
        (defined("A B", measures="A.none AS x"), "unknown column none"),
        ("SELECT * FROM others", "unknown table others|others"),
        (defined("A ^ B"), "line 2, column 30.*can match nothing: \\^ stands behind a row"),
        (defined("A $ B"), "can match nothing"),
        (defined("A B").replace("B AS symbol = 'b'", "B AS 1 > 2"), "line 6.*condition of B never holds"),
    ],
)
def test_what_a_stream_cannot_do_is_refused_with_the_place(query: str, message: str) -> None:
    with pytest.raises(PlanError, match=f"(?s){message}"):
        headrace.sql(query, {"events": source()})


def test_what_stands_around_a_match_is_a_query_like_others() -> None:
    query = defined("A B").replace("SELECT *", "SELECT COUNT(*) AS c")
    rows = headrace.sql(query, {"events": source()}).schema
    assert rows.names() == ["event_time", "is_retraction", "c"]
    with pytest.raises(PlanError, match="max_rows"):
        headrace.sql(query, {"events": source()}, max_rows=5)


def test_patterns_that_may_keep_growing_say_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        headrace.sql(defined("A B+"), {"events": source()})
        headrace.sql(defined("A B $"), {"events": source()})
    assert ["without WITHIN" in caplog.messages[0], "$" in caplog.messages[1]] == [True, True]


# Properties

_ITEMS = st.sampled_from(
    ["A", "B", "C", "D", "A?", "B*", "C+", "B+?", "D*?", "(A | B)", "(A B | C)", "(B C)+", "A{2}", "D{1,2}"]
)
_PATTERNS = st.lists(_ITEMS, min_size=1, max_size=3).map(" ".join)
_CONDITIONS = st.sampled_from(
    [
        "",
        "D AS value > PREV(value)",
        "D AS value < NEXT(value)",
        "D AS value > FIRST(value)",
        "D AS SUM(value) < 9 AND value < 5",
        "D AS MATCH_NUMBER() < 3",
    ]
)
_MEASURES = st.sampled_from(
    [
        "ARRAY_AGG(value) AS v, COUNT(*) AS n",
        "ARRAY_AGG(value) AS v, MATCH_NUMBER() AS n, CLASSIFIER() AS c",
        "ARRAY_AGG(value) AS v, PREV(FIRST(value), 2) AS n, NEXT(LAST(value)) AS c",
    ]
)
_ROWS = st.sampled_from(
    [
        "ONE ROW PER MATCH",
        "ONE ROW PER MATCH",
        "ALL ROWS PER MATCH",
        "ALL ROWS PER MATCH OMIT EMPTY MATCHES",
        "ALL ROWS PER MATCH WITH UNMATCHED ROWS",
    ]
)
_SKIPS = st.sampled_from(["", "AFTER MATCH SKIP PAST LAST ROW", "AFTER MATCH SKIP TO NEXT ROW"])


@st.composite
def queries(draw: st.DrawFn) -> str:
    pattern = draw(_PATTERNS)
    anchors = draw(st.sampled_from(["", "", "", "^", "$"]))
    pattern = f"^ {pattern}" if anchors == "^" else f"{pattern} $" if anchors == "$" else pattern
    definitions = [f"{name} AS symbol = '{name.lower()}'" for name in "ABC" if name in pattern]
    if "D" in pattern and (condition := draw(_CONDITIONS)):
        definitions.append(condition)
    within = draw(st.sampled_from(["", "", "WITHIN INTERVAL '3' SECOND", "WITHIN INTERVAL '8' SECOND"]))
    rows = draw(_ROWS)
    if within and not rows.endswith("ROWS") and draw(st.booleans()):
        rows += " WITH TIMED OUT MATCHES"
    key = draw(st.sampled_from(["PARTITION BY key", "PARTITION BY key", ""]))
    return f"""
        SELECT * FROM events MATCH_RECOGNIZE (
          {key} ORDER BY event_time, value
          MEASURES {draw(_MEASURES)} {rows} {draw(_SKIPS)}
          PATTERN ({pattern}) {within}
          {"DEFINE " + ", ".join(definitions) if definitions else ""})
        """  # noqa: S608


def in_pieces(stream: Stream, table: pl.DataFrame, cuts: list[int], groups: int) -> pl.DataFrame:
    """Run a stream with a restart after every piece; the watermark follows the rows."""
    places = [0, *sorted(min(cut, table.height) for cut in cuts), table.height]
    times = table["event_time"].dt.epoch("us")
    found: list[Batch] = []
    snapshot = None
    for begin, stop in pairwise(places):
        runner = Runner(stream, key_groups=groups, snapshot=snapshot)
        mark = times[stop] if stop < table.height else T0 + 500 * SECOND
        found.append(runner.step(table[begin:stop], watermark=mark))
        snapshot = runner.snapshot()
    last = Runner(stream, key_groups=groups, snapshot=snapshot)
    found += [last.step(watermark=T0 + 900 * SECOND), last.finish()]
    assert all(batch.late is None for batch in found)
    return pl.concat([batch.results for batch in found])


def canonical(frame: pl.DataFrame, columns: list[str]) -> list[str]:
    return sorted(map(repr, frame.select(columns).rows()))


def test_the_end_that_did_not_come_is_known_with_the_next_row() -> None:
    query = """
        SELECT * FROM events MATCH_RECOGNIZE (
          PARTITION BY key ORDER BY event_time, value
          MEASURES COUNT(*) AS n ONE ROW PER MATCH WITH TIMED OUT MATCHES
          PATTERN (A D*? $) WITHIN INTERVAL '3' SECOND
          DEFINE A AS symbol = 'a', D AS value < NEXT(value))
        """
    table = frame_of([("x", "a", 0, gap) for gap in (*[0] * 8, 3, 1)])
    stream = headrace.sql(query, {"events": Stream.rows("events", COLUMNS).watermark(perfect())})
    whole, parted = in_pieces(stream, table, [], 1), in_pieces(stream, table, [9], 1)
    assert canonical(parted, parted.columns) == canonical(whole, whole.columns)
    assert whole["event_time"].dt.epoch("us")[0] == T0 + 3 * SECOND


@settings(deadline=None, max_examples=150)
@given(
    query=queries(),
    table=rows(keys="xy", size=14),
    cuts=st.lists(st.integers(0, 14), max_size=5),
    groups=st.integers(1, 3),
)
def test_a_stream_gives_the_matches_of_the_whole_table_for_every_split_and_restart(
    query: str, table: pl.DataFrame, cuts: list[int], groups: int
) -> None:
    expected = headrace.sql(query, {"events": table})
    stream = headrace.sql(query, {"events": Stream.rows("events", COLUMNS).watermark(perfect())})
    found = in_pieces(stream, table, cuts, groups)
    assert canonical(found, expected.columns) == canonical(expected, expected.columns)
    # The time at which a match is decided does not depend on the pieces either.
    whole = in_pieces(stream, table, [], groups)
    assert canonical(found, found.columns) == canonical(whole, whole.columns)


@settings(deadline=None, max_examples=100)
@given(
    query=queries(),
    table=rows(keys="xy", size=14),
    cuts=st.lists(st.integers(0, 14), max_size=5),
    max_rows=st.integers(4, 7),
)
def test_what_is_given_up_does_not_depend_on_the_batches(
    query: str, table: pl.DataFrame, cuts: list[int], max_rows: int
) -> None:
    events = Stream.rows("events", COLUMNS).watermark(perfect())
    stream = headrace.sql(query, {"events": events}, max_rows=max_rows, at_limit="give_up")
    whole, parted = in_pieces(stream, table, [], 1), in_pieces(stream, table, cuts, 2)
    assert canonical(parted, parted.columns) == canonical(whole, whole.columns)


@settings(deadline=None, max_examples=100)
@given(
    query=queries().filter(
        lambda query: "WITHIN" in query and "NEXT" not in query.replace("NEXT ROW", "") and "$" not in query
    ),
    table=rows(keys="xy", size=14),
    cuts=st.lists(st.integers(0, 14), max_size=5),
)
def test_forgetting_does_not_depend_on_the_batches(query: str, table: pl.DataFrame, cuts: list[int]) -> None:
    events = Stream.rows("events", COLUMNS).watermark(perfect())
    stream = headrace.sql(query, {"events": events}, forget_after="8s")
    whole, parted = in_pieces(stream, table, [], 1), in_pieces(stream, table, cuts, 2)
    assert canonical(parted, parted.columns) == canonical(whole, whole.columns)
