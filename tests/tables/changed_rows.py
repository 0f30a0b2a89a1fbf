"""Random changes of a table, cut into batches, and what a stream makes of them: for the tests of this directory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import strategies as st

from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.inprocess.runner import Batch

INSTANT = pl.Datetime("us", "UTC")
#: The columns of a row: group, value, decimal value, second.
SCHEMA = {"k": pl.String, "v": pl.Int64, "x": pl.Float64, "event_time": pl.Int64}
Row = tuple[str | None, int | None, float | None, int]


@dataclass(frozen=True)
class Changes:
    """Batches of rows with their signs, and the table after each.

    Args:
        batches: Rows, each with whether it is taken back.
        tables: The rows that are left after each batch.
    """

    batches: list[list[tuple[Row, bool]]]
    tables: list[list[Row]]


@st.composite
def changes(draw: st.DrawFn, *, appends: bool = False, rows: int = 24) -> Changes:
    """Draw additions and retractions; nothing is taken back that is not there."""
    row = st.tuples(
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.integers(-3, 3)),
        st.one_of(st.none(), st.integers(-4, 4).map(lambda half: half / 2)),
        st.integers(0, 9),
    )
    batches: list[list[tuple[Row, bool]]] = []
    tables: list[list[Row]] = []
    live: list[Row] = []
    for _ in range(draw(st.integers(1, 4))):
        batch: list[tuple[Row, bool]] = []
        for _ in range(draw(st.integers(0, rows // 4))):
            if live and not appends and draw(st.integers(0, 2)) == 0:
                gone = live.pop(draw(st.integers(0, len(live) - 1)))
                batch.append((gone, True))
            else:
                added = draw(row)
                live.append(added)
                batch.append((added, False))
        batches.append(batch)
        tables.append(list(live))
    return Changes(batches, tables)


def source(name: str = "rows", *, appends: bool = False) -> Stream:
    """Begin a stream of such rows."""
    schema = {name: kind for name, kind in SCHEMA.items() if name != "event_time"}
    stream = Stream.rows(name, {**schema, "undo": pl.Boolean}).watermark(bounded("1h"))
    return stream.drop("undo") if appends else stream.as_changelog(pl.col("undo")).drop("undo")


def frame(batch: Sequence[tuple[Row, bool]]) -> pl.DataFrame:
    """Make the rows of a batch."""
    rows = pl.DataFrame([row for row, _ in batch], schema=SCHEMA, orient="row")
    undo = pl.Series("undo", [back for _, back in batch], dtype=pl.Boolean)
    return rows.with_columns((pl.col("event_time") * 1_000_000).cast(INSTANT), undo)


class Folded:
    """The table that the results of a runner add up to; refuses to take back what is not there."""

    def __init__(self, *, beside: Sequence[str] = ("event_time",)) -> None:
        self.rows: Counter[tuple[Any, ...]] = Counter()
        self.whole: Counter[tuple[Any, ...]] = Counter()
        self._beside = beside

    def add(self, batch: Batch) -> None:
        """Add the results of a batch: a net change, and complete copies of the rows that are taken back."""
        results = batch.results.with_columns(pl.col(pl.Float64).round(9) + 0.0)
        shown = [name for name in results.columns if name != "is_retraction"]
        compared = [name for name in shown if name not in self._beside]
        step: Counter[tuple[Any, ...]] = Counter()
        for row in results.iter_rows(named=True):
            sign = -1 if row["is_retraction"] else 1
            step[_hashable([row[name] for name in shown])] += sign
            self.rows[_hashable([row[name] for name in compared])] += sign
        assert len(results) == sum(map(abs, step.values())), "a row was added and taken back in one turn"
        self.whole.update(step)
        assert min(self.whole.values(), default=0) >= 0, "a row was taken back that was not there"
        self.rows = +self.rows
        self.whole = +self.whole


def _hashable(values: list[Any]) -> tuple[Any, ...]:
    return tuple(repr(value) if isinstance(value, list | dict) else value for value in values)


def check(
    stream: Stream,
    feeds: dict[str, Changes],
    expected: Callable[..., list[tuple[Any, ...]]],
    *,
    groups: int = 2,
    restart: int = -1,
    splits: bool = False,
) -> None:
    """Run a stream over changes, and compare what its results add up to after each batch.

    Args:
        stream: What to run.
        feeds: The changes of each source.
        expected: Given the rows of each source that are left, the rows of the result without their event time.
        groups: How many key groups.
        restart: After which batch to continue from a snapshot.
        splits: Feed each row as a batch of its own.
    """
    runner = Runner(stream, key_groups=groups)
    folded = Folded()
    for number in range(max(len(feed.batches) for feed in feeds.values())):
        given = {name: feed.batches[number] for name, feed in feeds.items() if number < len(feed.batches)}
        if splits:
            for name, batch in given.items():
                for row in batch:
                    folded.add(runner.step({name: frame([row])}))
        else:
            folded.add(runner.step({name: frame(batch) for name, batch in given.items()}))
        left = [feed.tables[min(number, len(feed.tables) - 1)] for feed in feeds.values()]
        assert folded.rows == Counter(map(tuple, expected(*left))), number
        if number == restart:
            runner = Runner(runner.pipeline, key_groups=groups, snapshot=runner.snapshot())
