"""Whether a trial is valid and its volume held, as tables."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from headrace.evaluate import measures
from headrace.evaluate.campaign import held_and_lost
from headrace.evaluate.judgement import judge_backlog, judge_load
from headrace.evaluate.parity import compare

S = 1_000_000


def saw(base: float, slope: float, *, teeth: float = 400) -> list[tuple[float, float]]:
    return [(second, base + slope * second + teeth * (second % 3)) for second in range(60)]


@pytest.mark.parametrize(
    ("series", "held"),
    [
        (saw(0, 0), True),
        (saw(50_000, 0), True),  # high, but flat
        (saw(5_000, -50), True),
        (saw(0, 5), True),  # 200 events in 40 s: nothing at 700 a second
        (saw(0, 100), False),
        (saw(0, 0, teeth=20_000), True),
        ([(0, 5.0)] * 5, None),
        ([], None),
    ],
)
def test_a_flat_backlog_is_held(series: list[tuple[float, float]], held: bool | None) -> None:
    assert judge_backlog(series, rate=700).held is held


def reports(*, rate: float = 700, behind: float = 0.0) -> list[dict[str, float]]:
    return [{"at": second * S, "events": second * rate, "behind": behind} for second in range(30)]


def test_a_generator_that_keeps_its_schedule_is_valid() -> None:
    kept = judge_load(reports(), begin=5 * S, end=25 * S, wanted=700)
    assert (kept.valid, kept.rate, kept.reasons) == (True, 700.0, ())


def test_a_generator_that_falls_behind_is_not() -> None:
    late = reports()
    late[12]["behind"] = 1.5
    kept = judge_load(late, begin=5 * S, end=25 * S, wanted=700)
    assert not kept.valid
    assert kept.reasons == ("the load generator fell 1.5 s behind its schedule",)
    # Before and after the time measured it may do as it likes.
    assert judge_load(late, begin=13 * S, end=25 * S, wanted=700).valid


def test_a_generator_that_sends_too_little_is_not() -> None:
    kept = judge_load(reports(rate=600), begin=5 * S, end=25 * S, wanted=700)
    assert kept.reasons == ("the load generator sent 600 events/s instead of 700",)
    assert not judge_load([], begin=0, end=S, wanted=700).valid


def test_most_trials_of_a_volume_decide() -> None:
    def record(volume: float, *, valid: bool = True, held: bool | None = True) -> dict[str, object]:
        return {"volume": volume, "valid": valid, "held": held}

    held, lost = held_and_lost(
        [
            *(record(1), record(1), record(1, held=False)),
            *(record(4), record(4, held=False)),
            *(record(16, valid=False), record(16, held=None)),
        ]
    )
    assert (held, lost) == ([1], [4, 16])


def sightings(rows: list[tuple[str, float, float, int]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, schema=["job", "due", "seen", "rows"], orient="row")
    return frame.with_columns((pl.col("due", "seen") * S).cast(pl.Int64).cast(pl.Datetime("us", "UTC")))


def test_latencies_are_counted_by_row_and_by_when_they_were_due() -> None:
    seen = sightings(
        [("a", 5, 6.5, 10), ("a", 10, 11, 1), ("a", 10, 12, 1), ("a", 30, 31, 5), ("b", 5, 6, 1), ("a", 0, 9, 3)]
    )
    values, dues = measures.latencies(seen, "a", begin=5 * S, end=30 * S)
    assert sorted(values.tolist()) == [1.0] + [1.5] * 10 + [2.0]
    assert sorted(set(dues.tolist())) == [5 * S, 10 * S]


def test_a_window_that_never_came_counts_as_infinite() -> None:
    # At 20 s of 5 .. 40 s, and at the end, where the job fell behind.
    seen = sightings([("a", due, due + 1.5, 100) for due in (5, 10, 15, 25)])
    told = measures.latency_summary(seen, "a", begin=5 * S, end=40 * S, windowed=True)
    assert (told["windows"], told["missing"], told["results"]) == (4, 3, 400)
    assert told["p50"]["value"] == 1.5
    assert told["p99"]["value"] is None
    single = measures.latency_summary(seen, "a", begin=5 * S, end=40 * S, windowed=False)
    assert single["missing"] == 0


def test_throughput_is_that_of_whole_batches() -> None:
    progress = [{"at": second * S, "rows_in": 1400} for second in range(0, 60, 2)]
    assert measures.throughput(progress, begin=10 * S, end=50 * S) == 700
    assert measures.throughput(progress[:1], begin=0, end=50 * S) == 0


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        ([(1, 3, 0.5), (2, 4, 0.25)], (0, 0, 0, 0)),
        ([(1, 3, 0.5)], (1, 0, 0, 0)),
        ([(1, 3, 0.5), (2, 4, 0.25), (2, 4, 0.25)], (0, 1, 0, 0)),
        ([(1, 3, 0.5), (2, 5, 0.25)], (0, 0, 1, 0)),
        ([(1, 3, 0.5), (2, 4, 0.26)], (0, 0, 0, 1)),
        ([(1, 3, 0.5), (2, 4, 0.25 + 1e-12)], (0, 0, 0, 0)),
        ([], (2, 0, 0, 0)),
    ],
)
def test_results_are_compared_row_by_row(stream: list[tuple[int, int, float]], found: tuple[int, ...]) -> None:
    schema = {"cell": pl.Int64, "vehicles": pl.Int64, "share": pl.Float64}

    def frame(rows: list[tuple[int, int, float]]) -> pl.DataFrame:
        end = pl.lit(5).cast(pl.Datetime("us", "UTC")).alias("window_end")
        return pl.DataFrame(rows, schema=schema, orient="row").with_columns(end)

    parity = compare("a", frame(stream), frame([(1, 3, 0.5), (2, 4, 0.25)]), keys=("cell",))
    assert (parity.missing, parity.extra, parity.different, parity.approximate) == found
    assert parity.right == (found[:3] == (0, 0, 0))
    assert bool(parity.example) == (not parity.right)


def test_nothing_to_compare_is_not_right() -> None:
    empty = pl.DataFrame(schema={"cell": pl.Int64, "event_time": pl.Int64})
    assert not compare("a", empty, empty, keys=("cell",)).right


def test_missing_windows_need_a_rhythm() -> None:
    assert measures.missing_windows(np.array([5 * S, 10 * S]), begin=0, end=60 * S) == []
