"""What each part of a pattern means: a table of patterns, rows, and the matches that must come out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from polars import col
from tests.cep.strategies import symbol

from headrace.cep import Pattern, compile_pattern, current, matched
from headrace.cep.operator import PatternOperator
from headrace.cep.threads import Found, KeyRun, Threads
from headrace.errors import JobError, PlanError

if TYPE_CHECKING:
    from headrace.cep.conditions import Matched, RowView

a, b, c, d = (symbol(letter) for letter in "abcd")


def find(pattern: Pattern, text: str, *, times: list[int] | None = None, watermark: int | None = None) -> list[str]:
    """The matches over one symbol per row, as the rows' places; lower-case letters are symbols, digits values."""
    frame = pl.DataFrame({"symbol": list(text), "value": list(range(len(text)))})
    compiled = compile_pattern(pattern)
    clock = np.array(times if times is not None else range(len(text)), dtype=np.int64)
    threads = Threads(compiled.program, compiled.rows(frame, clock), skip=compiled.skip)
    run, found = KeyRun(), Found()
    threads.feed(run, 0, len(text), found)
    if watermark is not None:
        threads.advance(run, watermark, found)
    return ["".join(map(str, match.path.rows())) for match in found.matches]


def first(name: str, condition: Any = None) -> Pattern:
    return Pattern.begin(name, condition)


A = first("a", a)
AB = first("g1", a).followed_by("g2", b)

TABLE: list[tuple[str, Pattern, str, str]] = [
    # Contiguity
    ("next", A.next("b", b), "abaab", "01 34"),
    ("next is strict", A.next("b", b), "acb", ""),
    ("followed_by takes the first", A.followed_by("b", b), "acbb", "02"),
    ("followed_by from every start", A.followed_by("b", b), "aab", "02 12"),
    ("followed_by_any takes each", A.followed_by_any("b", b), "acbb", "02 03"),
    ("no condition", first("x").next("y"), "abc", "01 12"),
    # Negation
    ("not_next", A.not_next("n", b).followed_by("c", c), "abcacc", "34"),
    ("not_next and next", A.not_next("n", b).next("c", c), "acabc", "01"),
    ("not_next at the end", A.not_next("n", b), "abaca", "2"),
    ("not_followed_by", A.not_followed_by("n", b).followed_by("c", c), "abcadc", "35"),
    ("not_followed_by lets the next element win", A.not_followed_by("n", b).followed_by("c", c), "acbc", "01"),
    ("not_followed_by after a loop", A.one_or_more().not_followed_by("n", b).followed_by("c", c), "aabac", "34"),
    (
        "a taken optional ends the prohibition",
        A.not_followed_by("n", b).followed_by("o", d).optional().followed_by("c", c),
        "adbc",
        "013",
    ),
    (
        "a missing optional does not",
        A.not_followed_by("n", b).followed_by("o", d).optional().followed_by("c", c),
        "abc",
        "",
    ),
    # Quantifiers
    ("one_or_more", A.next("b", b).one_or_more().next("c", c), "abbc", "0123"),
    ("one_or_more passes over others", A.followed_by("b", b).one_or_more().followed_by("c", c), "abdbc", "0134 014"),
    ("one_or_more from every start", A.one_or_more(), "aca", "0 02 2"),
    ("consecutive", A.followed_by("b", b).one_or_more().consecutive().followed_by("c", c), "abdbc", "014"),
    ("allow_combinations", A.next("b", b).one_or_more().allow_combinations().next("c", c), "abbbc", "01234 0134"),
    ("times", A.times(2), "acaa", "02 23"),
    ("times consecutive", A.times(2).consecutive(), "acaa", "23"),
    ("times a range", A.next("b", b).times(1, 2).followed_by("c", c), "abbbc", "0124 014"),
    ("times from zero", A.next("b", b).times(0, 1).followed_by("c", c), "abc", "012 02"),
    ("times_or_more", A.next("b", b).times_or_more(2).next("c", c), "abbbc", "01234"),
    ("times_or_more needs its number", A.next("b", b).times_or_more(2).next("c", c), "abc", ""),
    ("optional", A.next("b", b).optional().next("c", c), "abcac", "012 34"),
    ("optional at the beginning", A.optional().next("b", b), "ab", "01 1"),
    ("optional loop", A.next("b", b).one_or_more().optional().next("c", c), "abbcac", "0123 45"),
    # Greedy
    ("not greedy", first("x", a | b).one_or_more().followed_by("y", b | c), "abc", "01 012 12"),
    ("greedy takes what it can", first("x", a | b).one_or_more().greedy().followed_by("y", b | c), "abc", "012 12"),
    ("greedy times", A.times(1, 2).greedy().followed_by("b", a | b), "aab", "012 12"),
    # Until
    ("until", A.followed_by("b", b).one_or_more().until(d).followed_by("c", c), "abdbc", "014"),
    (
        "until in a group",
        A.followed_by(first("g1", b).followed_by("g2", c)).one_or_more().until(d).followed_by("e", d),
        "abcd",
        "0123",
    ),
    # Groups
    ("group", A.next(first("g1", b).next("g2", c)).next("d", d), "abcd", "0123"),
    ("group times", Pattern.begin(AB).times(2), "abcab", "0134"),
    ("group one or more", Pattern.begin(AB).one_or_more().followed_by("c", c), "ababc", "014 01234 234"),
    ("group optional", first("s", c).followed_by(AB).optional().followed_by("d", d), "cabd", "0123 03"),
    (
        "group in a group",
        first("s", c).followed_by(first("x", d).followed_by(AB).one_or_more()).followed_by("e", c),
        "cdabc",
        "01234",
    ),
    # Skips
    ("skip none", A.times(2).skip("none"), "aaaa", "01 12 23"),
    ("skip past_last", A.times(2).skip("past_last"), "aaaa", "01 23"),
    ("skip to_next", A.next("b", b).one_or_more().skip("to_next"), "abb", "01"),
    ("skip to_first", A.times(2).next("b", a).times(2).skip("to_first", "b"), "aaaaaa", "0123 2345"),
    ("skip to_last", A.times(2).next("b", a).times(2).skip("to_last", "b"), "aaaaaaa", "0123 3456"),
    (
        "skip to the last of a loop",
        A.one_or_more().consecutive().greedy().next("b", b).skip("to_last", "a"),
        "aaab",
        "0123 23",
    ),
    ("skip to what is missing", A.next("b", b).optional().next("c", c).skip("to_first", "b"), "acac", "01 23"),
    (
        "the first of several completed at once",
        A.followed_by_any("b", b).followed_by_any("c", c).followed_by("d", d).skip("past_last"),
        "aabbccdd",
        "0246",
    ),
    # Conditions
    ("where", first("x").where(a | b).where(b), "ab", "1"),
    ("or_where", A.or_where(b), "abc", "0 1"),
    ("subtype", first("x", col("value") > 0).subtype("b", column="symbol"), "bb", "1"),
    ("a constant", first("x", True).next("y", False), "ab", ""),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_table(pattern: Pattern, text: str, expected: str) -> None:
    assert sorted(find(pattern, text)) == sorted(expected.split())


def test_within_leaves_out_the_row_at_the_bound() -> None:
    pattern = A.followed_by("b", b).within(10)
    assert find(pattern, "ab", times=[0, 9]) == ["01"]
    assert find(pattern, "ab", times=[0, 10]) == []


def test_within_a_step() -> None:
    pattern = A.followed_by("b", b).followed_by("c", c).within(3, of="step")
    assert find(pattern, "abc", times=[0, 50, 52]) == ["012"]
    assert find(pattern, "abc", times=[0, 1, 4]) == []


def test_within_a_quantifier() -> None:
    pattern = A.followed_by("b", b).times(2, within=3).followed_by("c", c)
    assert find(pattern, "abbc", times=[0, 1, 2, 90]) == ["0123"]
    assert find(pattern, "abbc", times=[0, 3, 4, 5]) == []


def test_a_negation_at_the_end_waits_for_its_time() -> None:
    pattern = A.not_followed_by("b", b).within(10)
    assert find(pattern, "ab", times=[0, 9], watermark=100) == []
    assert find(pattern, "ab", times=[0, 10]) == ["0"]
    assert find(pattern, "a", times=[0], watermark=9) == []
    assert find(pattern, "a", times=[0], watermark=10) == ["0"]


def test_two_negations_at_the_end() -> None:
    pattern = A.not_followed_by("b", b).not_followed_by("c", c).within(10)
    assert [find(pattern, text, watermark=10) for text in ("ab", "ac", "ad")] == [[], [], ["0"]]


def test_iterative_conditions() -> None:
    def rising(row: RowView, so_far: Matched) -> bool:
        return row["value"] == 2 * (so_far.last("x", "value") or 0) + 1

    assert find(first("x", a).next("y", rising), "aabaa") == ["01"]
    by_expression = first("x", a).followed_by_any("y", current("value") == 2 * matched("x").last("value") + 1)
    assert find(by_expression, "aabaa") == ["01", "13"]
    small = first("x", a).one_or_more().where(matched("x").sum("value") + current("value") < 4).next("b", b)
    assert find(small, "aaaab") == ["34"]
    assert find(small.skip("past_last"), "aaab") == ["0123"]


def test_iterative_conditions_joined_with_others() -> None:
    either = first("x", a).next("y", b).or_where(lambda row, so_far: so_far.count("x") == 1 and row["symbol"] == "c")
    assert find(either, "abacad") == ["01", "23"]
    until = first("x", a).one_or_more().until(matched("x").count() >= 2).next("b", b)
    assert find(until, "aaab") == ["123", "23"]


@pytest.mark.parametrize("what", ["count", "sum", "mean", "min", "max", "first", "last"])
def test_aggregates_of_conditions(what: str) -> None:
    expected = {"count": 3, "sum": 6, "mean": 2.0, "min": 1, "max": 3, "first": 1, "last": 3}[what]
    measure = matched("x").count() if what == "count" else getattr(matched("x"), what)("value")
    pattern = first("s", b).next("x", a).times(3).next("y", measure == expected)
    assert find(pattern, "baaac") == ["01234"]


def test_arithmetic_of_conditions() -> None:
    value = current("value")
    true = (
        (value + 1 == 2) & (1 + value == 2) & (value - 1 == 0) & (2 - value == 1) & (value * 2 == 2) & (2 * value == 2)
    )
    true = true & (value / 2 == 0.5) & ((value == 7) | (value != 5)) & (value <= 1) & (value >= 1) & ~(value > 1)
    assert find(first("s").next("x", true), "aa") == ["01"]
    assert find(first("s").next("x", value / 0 < 1), "aa") == []
    assert find(first("s").next("x", matched("x").max("value") < 1), "aa") == []


def operated(pattern: Pattern) -> object:
    return PatternOperator(pattern, key=[]).schema(
        pl.Schema({"symbol": pl.String, "value": pl.Int64, "event_time": pl.Datetime("us", "UTC")})
    )


REFUSED: list[tuple[str, Any, str]] = [
    ("an empty name", lambda: first(""), "name"),
    ("two of a name", lambda: A.next("a"), "two elements are named 'a'"),
    ("two of a name in a group", lambda: A.next(first("b").next("a")), "two elements are named 'a'"),
    ("no condition", lambda: first("a", 3), "condition of element 'a'"),
    ("a condition on a group", lambda: Pattern.begin(AB, a), "takes no condition"),
    ("where on a group", lambda: Pattern.begin(AB).where(a), "takes no condition"),
    ("a negated group", lambda: A.not_next(AB), "cannot be negated"),
    ("a negation after an optional", lambda: A.optional().not_next("n"), "'n' negates after the optional element 'a'"),
    ("a negation after an optional, followed", lambda: A.times(0, 2).not_followed_by("n"), "after the optional"),
    ("a negation after an empty group", lambda: Pattern.begin(A.optional()).not_next("n"), "after the optional group"),
    ("an optional negation", lambda: A.not_next("n").optional(), "cannot be optional"),
    ("a repeated negation", lambda: A.not_next("n").one_or_more(), "cannot have a quantifier"),
    ("a greedy negation", lambda: A.not_next("n").greedy(), "cannot be greedy"),
    ("optional twice", lambda: A.optional().optional(), "optional already"),
    ("optional after greedy", lambda: A.one_or_more().greedy().next("b").optional(), "after the greedy element 'a'"),
    ("two quantifiers", lambda: A.one_or_more().times(2), "a quantifier already"),
    ("times 0", lambda: A.times(0), "0 times"),
    ("times backwards", lambda: A.times(3, 2), "3 to 2 times"),
    ("times -1 to 2", lambda: A.times(-1, 2), "-1 to 2"),
    ("0 or more", lambda: A.times_or_more(0), "0 or more"),
    ("greedy one", lambda: A.greedy(), "matches one row"),
    ("greedy group", lambda: Pattern.begin(AB).one_or_more().greedy(), "is a group"),
    ("greedy combinations", lambda: A.one_or_more().allow_combinations().greedy(), "allow combinations"),
    ("consecutive one", lambda: A.consecutive(), "matches one row"),
    ("combinations of one", lambda: A.allow_combinations(), "matches one row"),
    ("consecutive and combinations", lambda: A.times(2).consecutive().allow_combinations(), "consecutive already"),
    ("until of one", lambda: A.until(b), "without an upper bound"),
    ("until of a range", lambda: A.times(1, 3).until(b), "without an upper bound"),
    ("until twice", lambda: A.one_or_more().until(b).until(c), "until condition already"),
    ("within twice", lambda: A.within("1s").within("2s"), "two time bounds"),
    ("within nothing", lambda: A.within(0), "not positive"),
    ("within what", lambda: A.within("1s", of="day"), "neither"),
    ("within a group", lambda: A.next(AB.within("1s")), "time bound of its own"),
    ("within no duration", lambda: A.within("soon"), "not a duration"),
    ("an unknown skip", lambda: A.skip("back"), "unknown skip"),
    ("a skip without name", lambda: A.skip("to_first"), "needs the name"),
    ("a skip with a name", lambda: A.skip("past_last", "a"), "takes no name"),
    ("a skip to nowhere", lambda: compile_pattern(A.skip("to_last", "z")), "'z', which the pattern does not have"),
    (
        "an endless negation",
        lambda: compile_pattern(A.not_followed_by("n")),
        "'n' at the end of a pattern needs a time",
    ),
    (
        "an endless negation in a group",
        lambda: compile_pattern(A.next(first("g").not_followed_by("n"))),
        "needs a time",
    ),
    ("a step longer than all", lambda: compile_pattern(A.next("b").within("9s", of="step").within("1s")), "longer"),
    ("rows of nobody", lambda: compile_pattern(A.where(matched("z").count() > 1)), "rows of 'z'"),
    ("a mixed expression", lambda: matched("a").count() > col("value"), 'Use current\\("column"\\)'),
    ("and instead of &", lambda: matched("a").count() > 1 and True, "truth value"),
    ("a condition that never holds", lambda: operated(A.next("n", False)), "match nothing.*element 'n' never holds"),
    ("one of the row before", lambda: A.next("n", col("value").shift(1) > 0), "'n' looks at other rows.*shift"),
    ("one of all rows", lambda: A.next("n", col("value") > col("value").mean()), "looks at other rows.*mean"),
    ("one of a window", lambda: A.where(col("value").sum().over("symbol") > 2), "looks at other rows.*over"),
    ("an empty pattern", lambda: compile_pattern(Pattern(())), "empty"),
    ("a huge repetition", lambda: compile_pattern(A.times(50_000)), "smaller repetition"),
]


@pytest.mark.parametrize(("build", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_bad_patterns_are_refused_while_they_are_built(build: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        build()


def test_skip_to_a_missing_element_can_be_an_error() -> None:
    pattern = A.next("b", b).optional().next("c", c).skip("to_first", "b", on_missing="error")
    with pytest.raises(JobError, match="no row of it"):
        find(pattern, "ac")
    with pytest.raises(JobError, match="found again for ever"):
        find(A.skip("to_last", "a", on_missing="error"), "a")


def test_a_pattern_is_not_changed_by_its_methods() -> None:
    longer = A.next("b").one_or_more()
    assert A.names == ("a",)
    assert longer.names == ("a", "b")
    assert longer.with_version(7).version == 7
    assert compile_pattern(longer.with_version(7)).program.version == 7


def test_cautions() -> None:
    assert A.next("b").cautions() == ()
    assert "element 'b'" in A.followed_by("b").cautions()[0]
    assert A.followed_by("b").within("1s").cautions() == ()


def test_nested_loops_stay_small() -> None:
    inner = first("x", a).one_or_more().consecutive()
    nested = Pattern.begin(inner).one_or_more().consecutive().next("c", c).within(12)
    assert find(nested, "a" * 2000) == []
    assert len(find(nested, "a" * 2000 + "c")) == 11


def test_an_element_that_never_matches_may_be_missing() -> None:
    for pattern in (A.next("n", False).optional().next("b", b), A.not_next("n", False).next("b", b)):
        assert find(pattern, "ab") == ["01"]
        assert operated(pattern.within("1s")) is not None


def test_conditions_on_the_row_alone_may_be_of_any_kind() -> None:
    many = pl.Series([1, 2])
    for condition in (
        col("value").is_in(many),
        pl.when(col("value") > 1).then(col("symbol") == "b").otherwise(True),
        pl.any_horizontal(col("value") == 1, col("symbol") == "x"),
        col("value").map_batches(lambda values: values == 1, return_dtype=pl.Boolean),
        col("symbol").str.contains("b") & col("value").is_between(0, 3),
    ):
        assert find(A.next("n", condition), "ab") == ["01"]
