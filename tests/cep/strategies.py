"""Random patterns and rows for property tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import assume
from hypothesis import strategies as st

from headrace.cep import matched
from headrace.cep.conditions import MatchExpr, current
from headrace.cep.pattern import Pattern
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2025, 6, 1, tzinfo=UTC)
LETTERS = "abcd"


#: Conditions on what an element has matched so far, by a small number.
ITERATIVE: list[Callable[[matched, int], MatchExpr]] = [
    lambda rows, number: rows.sum("value") + current("value") < 2 * number + 3,
    lambda rows, number: (rows.mean("value") <= current("value")) | (rows.count() > number),
    lambda rows, number: ~(rows.first("value") > number) & (rows.last("value") != current("value")),
    lambda rows, number: rows.max("value") - rows.min("value") >= number - 5,
    lambda rows, number: number / rows.count() > current("value") / rows.last("value"),
]


def symbol(letters: str) -> pl.Expr:
    return pl.col("symbol").is_in(list(letters))


@st.composite
def patterns(draw: st.DrawFn, *, iterative: bool = True) -> Pattern:
    try:
        pattern = draw(_chains(depth=0, prefix="e", iterative=iterative))
        if draw(st.booleans()):
            pattern = pattern.within(draw(st.integers(1, 12)) * 1_000_000)
        kind = draw(st.sampled_from(["none", "none", "to_next", "past_last", "to_first", "to_last"]))
        name = draw(st.sampled_from(pattern.names)) if kind.startswith("to_") and kind != "to_next" else None
        return pattern.skip(kind, name)
    except PlanError:
        assume(False)
        raise


@st.composite
def _chains(draw: st.DrawFn, *, depth: int, prefix: str, iterative: bool) -> Pattern:
    pattern: Pattern | None = None
    for number in range(draw(st.integers(1, 4 if depth == 0 else 2))):
        name = f"{prefix}{number}"
        condition: Any = symbol(draw(st.text(LETTERS, min_size=1, max_size=3)))
        contiguities = ["next", "followed_by", "followed_by_any"]
        if number:
            contiguities += ["not_next", "not_followed_by"]
        how = draw(st.sampled_from(contiguities))
        group = depth == 0 and not how.startswith("not") and draw(st.integers(0, 5)) == 0
        if group:
            inner = draw(_chains(depth=1, prefix=f"{name}_", iterative=iterative))
            pattern = Pattern.begin(inner) if pattern is None else getattr(pattern, how)(inner)
        elif pattern is None:
            pattern = Pattern.begin(name, condition)
        else:
            pattern = getattr(pattern, how)(name, condition)
        if how.startswith("not"):
            continue
        if iterative and not group and number and pattern.names[0] != name and draw(st.integers(0, 5)) == 0:
            pattern = pattern.where(
                draw(st.sampled_from(ITERATIVE))(matched(pattern.names[0]), draw(st.integers(0, 9)))
            )
        pattern = _quantified(draw, pattern, group=group)
    assert pattern is not None
    return pattern


def _quantified(draw: st.DrawFn, pattern: Pattern, *, group: bool) -> Pattern:
    kind = draw(st.sampled_from(["one", "one", "one", "one_or_more", "times", "range", "times_or_more"]))
    if kind == "one_or_more":
        pattern = pattern.one_or_more()
    elif kind == "times":
        pattern = pattern.times(draw(st.integers(1, 3)))
    elif kind == "range":
        low = draw(st.integers(0, 2))
        pattern = pattern.times(low, max(low, 1) + draw(st.integers(0, 2)))
    elif kind == "times_or_more":
        pattern = pattern.times_or_more(draw(st.integers(1, 2)))
    if kind != "one":
        inner = draw(st.sampled_from(["relaxed", "consecutive", "allow_combinations"]))
        if inner != "relaxed":
            pattern = getattr(pattern, inner)()
        if not group and inner != "allow_combinations" and draw(st.integers(0, 3)) == 0:
            pattern = pattern.greedy()
        if pattern.elements[-1].looping and draw(st.integers(0, 3)) == 0:
            pattern = pattern.until(symbol(draw(st.sampled_from(LETTERS))))
    elif draw(st.integers(0, 6)) == 0:
        pattern = pattern.within(draw(st.integers(1, 5)) * 1_000_000, of="step")
    if draw(st.integers(0, 3)) == 0 and not pattern.elements[-1].optional:
        pattern = pattern.optional()
    return pattern


def frame_of(rows: list[tuple[str, str, int, int]]) -> pl.DataFrame:
    """Rows of (key, symbol, value, seconds since the row before)."""
    second, out = 0, []
    for key, letter, value, gap in rows:
        second += gap
        out.append((key, letter, value, START + timedelta(seconds=second)))
    schema = {"key": pl.String, "symbol": pl.String, "value": pl.Int64, "event_time": pl.Datetime("us", "UTC")}
    return pl.DataFrame(out, schema=schema, orient="row")


def rows(*, keys: str = "xyz", size: int = 12) -> st.SearchStrategy[pl.DataFrame]:
    row = st.tuples(st.sampled_from(keys), st.sampled_from(LETTERS), st.integers(0, 5), st.integers(0, 3))
    return st.lists(row, max_size=size).map(frame_of)
