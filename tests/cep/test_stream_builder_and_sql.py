"""Where the builder and SQL can say the same pattern, they find the same matches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, rows, symbol

import headrace
from headrace.cep import Pattern
from headrace.cep.measures import collect, first, last
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import perfect

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
COLUMNS = {"key": pl.String, "symbol": pl.String, "value": pl.Int64}
SKIPS = {"past_last": "PAST LAST ROW", "to_next": "TO NEXT ROW"}


@dataclass(frozen=True)
class Piece:
    """One element: the letters it takes, and how often."""

    letters: str
    low: int
    high: int | None


PIECES = st.builds(
    lambda letters, low, more: Piece(letters, low, None if more is None else max(low + more, 1)),
    st.text("abcd", min_size=1, max_size=3),
    st.integers(0, 2),
    st.one_of(st.none(), st.integers(0, 2)),
)


def built(pieces: list[Piece], within: int | None, skip: str) -> Pattern:
    pattern: Pattern | None = None
    for number, piece in enumerate(pieces):
        name, condition = f"e{number}", symbol(piece.letters)
        pattern = Pattern.begin(name, condition) if pattern is None else pattern.next(name, condition)
        if piece.high is None:
            pattern = pattern.times_or_more(max(piece.low, 1)).consecutive()
            pattern = pattern.optional() if piece.low == 0 else pattern
        elif (piece.low, piece.high) != (1, 1):
            pattern = pattern.times(piece.low, piece.high).consecutive()
    assert pattern is not None
    pattern = pattern if within is None else pattern.within(within * SECOND)
    return pattern.skip("past_last" if skip == "past_last" else "to_next")


def written(pieces: list[Piece], within: int | None, skip: str, *, rows: str = "") -> str:
    # The builder's match is the one that is complete first: repetitions take as little as they can.
    pattern = " ".join(f"e{n}{{{p.low},{'' if p.high is None else p.high}}}?" for n, p in enumerate(pieces))
    texts = [", ".join(f"'{letter}'" for letter in sorted(set(piece.letters))) for piece in pieces]
    definitions = ", ".join(f"e{number} AS symbol IN ({letters})" for number, letters in enumerate(texts))
    bound = "" if within is None else f"WITHIN INTERVAL '{within}' SECOND"
    return f"""
        SELECT * FROM events MATCH_RECOGNIZE (
          PARTITION BY key ORDER BY event_time
          MEASURES FIRST(event_time) AS began, LAST(event_time) AS ended, ARRAY_AGG(value) AS v
          {rows} AFTER MATCH SKIP {SKIPS[skip]} PATTERN ({pattern}) {bound} DEFINE {definitions})
        """  # noqa: S608


def matches(
    stream: Stream, table: pl.DataFrame, cuts: list[int], columns: tuple[str, ...] = ()
) -> list[tuple[object, ...]]:
    runner = Runner(stream, key_groups=2)
    places = [0, *sorted(min(cut, table.height) for cut in cuts), table.height]
    times = table["event_time"].dt.epoch("us")
    marks = [times[stop] if stop < table.height else T0 + 900 * SECOND for stop in places[1:]]
    found = [
        runner.step(table[begin:stop], watermark=mark).results
        for (begin, stop), mark in zip(pairwise(places), marks, strict=True)
    ]
    together = pl.concat([*found, runner.finish().results])
    return sorted(together.select("key", "began", "ended", "v", "event_time", *columns).rows())


@settings(deadline=None, max_examples=150)
@given(
    pieces=st.lists(PIECES, min_size=1, max_size=4).filter(lambda pieces: any(piece.low for piece in pieces)),
    within=st.one_of(st.none(), st.integers(1, 10)),
    skip=st.sampled_from(sorted(SKIPS)),
    table=rows(keys="xy", size=14),
    cuts=st.lists(st.integers(0, 14), max_size=3),
)
def test_the_builder_and_sql_find_the_same_matches(
    pieces: list[Piece], within: int | None, skip: str, table: pl.DataFrame, cuts: list[int]
) -> None:
    # A row that nothing takes ends every partial match.
    end = frame_of([(key, "z", 0, 100) for key in "xy"]).with_columns(pl.col("event_time") + timedelta(seconds=100))
    table = pl.concat([table, end])
    source = Stream.rows("events", COLUMNS).watermark(perfect())
    by_builder = (
        source.key_by("key")
        .match(built(pieces, within, skip))
        .select(began=first("event_time"), ended=last("event_time"), v=collect("value"))
    )
    by_sql = headrace.sql(written(pieces, within, skip), {"events": source})
    assert matches(by_sql, table, cuts) == matches(by_builder, table, cuts)


@settings(deadline=None, max_examples=150)
@given(
    pieces=st.lists(st.text("abcd", min_size=1, max_size=3), min_size=1, max_size=4),
    loop=st.booleans(),
    within=st.integers(1, 10),
    skip=st.sampled_from(sorted(SKIPS)),
    table=rows(keys="xy", size=14),
    cuts=st.lists(st.integers(0, 14), max_size=3),
)
def test_the_builder_and_sql_find_the_same_partial_matches_that_timed_out(
    pieces: list[str], loop: bool, within: int, skip: str, table: pl.DataFrame, cuts: list[int]
) -> None:
    # From one row there is one way through these patterns, so the builder has no two partial matches of one row.
    elements = [Piece(letters, 1, 1) for letters in pieces]
    if loop:
        elements = [*elements, Piece("a", 1, None), Piece("bcd", 1, 1)]
    source = Stream.rows("events", COLUMNS).watermark(perfect())
    by_builder = (
        source.key_by("key")
        .match(built(elements, within, skip))
        .with_timed_out()
        .select(began=first("event_time"), ended=last("event_time"), v=collect("value"))
    )
    query = written(elements, within, skip, rows="ONE ROW PER MATCH WITH TIMED OUT MATCHES")
    by_sql = headrace.sql(query, {"events": source})
    assert matches(by_sql, table, cuts, ("timed_out",)) == matches(by_builder, table, cuts, ("timed_out",))
