"""Which windows a row belongs to, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.testing import ContractError, check_assigner, event_frame
from headrace.time import INSTANT
from headrace.windows import Assigner, global_, same_window, session, sliding, tumbling

S = 1_000_000


def bounds(assigner: Assigner, *times: int, **columns: list[object]) -> list[tuple[int, int]]:
    rows = event_frame([{"event_time": t} for t in times]).with_columns(**{n: pl.Series(v) for n, v in columns.items()})
    found = assigner.assign(rows).select(pl.col("window_start", "window_end").cast(pl.Int64))
    return sorted(found.rows())


@pytest.mark.parametrize(
    ("assigner", "time", "expected"),
    [
        (tumbling(10), 0, [(0, 10)]),
        (tumbling(10), 9, [(0, 10)]),
        (tumbling(10), 10, [(10, 20)]),
        (tumbling(10), -1, [(-10, 0)]),
        (tumbling(10, offset=3), 2, [(-7, 3)]),
        (tumbling(10, offset=3), 3, [(3, 13)]),
        (tumbling(10, offset=-7), 3, [(3, 13)]),
        (tumbling("1s"), 1_500_000, [(1 * S, 2 * S)]),
        (tumbling(timedelta(seconds=2)), 1_500_000, [(0, 2 * S)]),
        (sliding(10, every=5), 0, [(-5, 5), (0, 10)]),
        (sliding(10, every=5), 5, [(0, 10), (5, 15)]),
        (sliding(10, every=4), 8, [(0, 10), (4, 14), (8, 18)]),
        (sliding(10, every=4), 11, [(4, 14), (8, 18)]),
        (sliding(10, every=10), 7, [(0, 10)]),
        (sliding(10, every=5, offset=2), 1, [(-8, 2), (-3, 7)]),
        (session(5), 3, [(3, 8)]),
    ],
)
def test_windows_of_a_row(assigner: Assigner, time: int, expected: list[tuple[int, int]]) -> None:
    assert bounds(assigner, time) == expected


def test_a_session_gap_can_come_from_the_row() -> None:
    assert bounds(session(pl.col("gap")), 0, 10, gap=[3, 7]) == [(0, 3), (10, 17)]
    lengths = pl.Series([timedelta(microseconds=4)] * 2)
    assert bounds(session(pl.col("gap")), 0, 10, gap=list(lengths)) == [(0, 4), (10, 14)]


def test_rows_of_a_window_keep_it() -> None:
    rows = event_frame([{"event_time": 1}]).with_columns(
        window_start=pl.lit(0).cast(INSTANT), window_end=pl.lit(5).cast(INSTANT)
    )
    assert same_window().assign(rows).equals(rows)
    with pytest.raises(PlanError, match="window_end and window_start"):
        same_window().assign(event_frame([{"event_time": 1}]))


@pytest.mark.parametrize(
    ("size", "every", "piece"), [(30, 5, 5), (30, 20, 10), (10, 4, 2), (7, 7, 7), (300_000_000, 5_000_000, 5_000_000)]
)
def test_the_slice_divides_size_and_slide(size: int, every: int, piece: int) -> None:
    assert sliding(size, every=every).slice == piece


@pytest.mark.parametrize(
    "assigner", [tumbling("5s"), tumbling("1h", offset="5min"), sliding("30s", every="7s"), session("10s"), global_()]
)
def test_every_assigner_keeps_the_contract(assigner: Assigner) -> None:
    check_assigner(assigner)
    assert assigner.describe()


@dataclass(frozen=True)
class Days(Assigner):
    """Days of the calendar: what a user may write."""

    flaw: str = ""

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        day = pl.col("event_time").dt.truncate("1d")
        placed = rows.with_columns(day.alias("window_start"), day.dt.offset_by("1d").alias("window_end"))
        if self.flaw == "order":
            placed = placed.with_columns(pl.col("window_start").first())
        elif self.flaw == "empty window":
            placed = placed.with_columns(pl.col("window_start").alias("window_end"))
        elif self.flaw == "lost row":
            placed = placed.filter(pl.col("event_time").cast(pl.Int64) >= 0)
        elif self.flaw == "lost column":
            placed = placed.drop("number")
        elif self.flaw == "type":
            placed = placed.with_columns(pl.col("window_start").cast(pl.Int64))
        return placed

    def describe(self) -> str:
        return "days"


def test_an_assigner_of_your_own_can_be_checked() -> None:
    check_assigner(Days())


@pytest.mark.parametrize("flaw", ["order", "empty window", "lost row", "lost column", "type"])
def test_a_flaw_is_found(flaw: str) -> None:
    with pytest.raises(ContractError):
        check_assigner(Days(flaw))


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PlanError, match="leave gaps"):
        sliding(5, every=10)
    for wrong in (0, -1, "0s"):
        with pytest.raises(PlanError, match="above zero"):
            tumbling(wrong)
        with pytest.raises(PlanError, match="above zero"):
            session(wrong)
    with pytest.raises(PlanError, match="not a duration"):
        tumbling("soon")
