"""The tracker: what becomes of a marker, told as tables."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from headrace.errors import PlanError
from headrace.observe.latency import latency_report, read_outcomes, write_outcomes
from headrace.observe.tracker import Sighting, Tracker

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

S = 1_000_000


def seen(result: str = "a", *, due: float = 5, written: float, at: float) -> Sighting:
    return Sighting(result, int(due * S), int(written * S), int(at * S))


# what happens to marker 1, which is made at second 0 with a patience of 10 s; what it is at second `now`; its total
CASES = {
    "nothing yet": ([], 9, "pending", None),
    "nothing at all": ([], 11, "lost", None),
    "a result": ([("seen", seen(written=5.5, at=6))], 11, "seen", 6.0),
    "a result at the last moment": ([("seen", seen(written=9, at=10))], 11, "seen", 10.0),
    "a result after the patience": ([("seen", seen(written=9, at=10.5))], 60, "overdue", 10.5),
    "lost and found": ([("seen", seen(written=49, at=50))], 60, "overdue", 50.0),
    "refused as late": ([("refused",)], 2, "late", None),
    "one of its events late, a result all the same": ([("refused",), ("seen", seen(written=5, at=6))], 11, "seen", 6.0),
    "several windows": (
        [("seen", seen(written=5, at=6)), ("seen", seen("b", due=10, written=10, at=11))],
        60,
        "seen",
        6.0,
    ),
    "the result before the acknowledgement": (
        [("seen", seen(written=5, at=6)), ("ingested", 7)],
        11,
        "seen",
        6.0,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_a_marker(name: str) -> None:
    happenings, now, status, total = CASES[name]
    tracker = Tracker(patience=10 * S)
    tracker.generated("cells", 1, at=0, sent=100)
    for what, *details in happenings:
        if what == "seen":
            tracker.seen("cells", 1, details[0])
        elif what == "ingested":
            tracker.ingested("cells", 1, at=details[0] * S)
        else:
            tracker.refused("cells", 1)
    (outcome,) = tracker.outcomes(now=now * S).to_dicts()
    assert (outcome["status"], outcome["total"]) == (status, total)
    assert outcome["duplicates"] == 0
    assert tracker.waiting(now=now * S) == (status == "pending")


def test_the_legs_add_up() -> None:
    tracker = Tracker()
    tracker.generated("cells", 1, at=0, sent=2_000)
    tracker.ingested("cells", 1, at=5_000)
    tracker.seen_uncommitted("cells", 1, at=5_450_000)
    tracker.seen("cells", 1, seen(due=5, written=5.4, at=5.5))
    (outcome,) = tracker.outcomes(now=6 * S).to_dicts()
    legs = {name: round(outcome[name], 6) for name in ("ingest", "process", "deliver", "total", "beyond", "slip")}
    assert legs == {"ingest": 0.005, "process": 5.395, "deliver": 0.1, "total": 5.5, "beyond": 0.5, "slip": 0.002}
    assert outcome["uncommitted"] == pytest.approx(0.45)
    assert legs["ingest"] + legs["process"] + legs["deliver"] == pytest.approx(legs["total"])


def test_the_same_result_twice_is_a_duplicate() -> None:
    tracker = Tracker()
    tracker.generated("cells", 1, at=0, sent=0)
    for at in (6, 7, 8):
        tracker.seen("cells", 1, seen("a", written=5, at=at))
    tracker.seen("cells", 1, seen("b", written=10, at=11))
    (outcome,) = tracker.outcomes(now=60 * S).to_dicts()
    assert (outcome["duplicates"], outcome["results"], outcome["total"]) == (2, 2, 6.0)


def test_only_the_first_acknowledgement_and_look_count() -> None:
    tracker = Tracker()
    tracker.generated("cells", 1, at=0, sent=0)
    for at in (1, 2):
        tracker.ingested("cells", 1, at=at * S)
        tracker.seen_uncommitted("cells", 1, at=at * S)
    (outcome,) = tracker.outcomes(now=3 * S).to_dicts()
    assert (outcome["ingest"], outcome["seen_uncommitted"].timestamp()) == (1.0, 1.0)


def test_markers_of_somebody_else_are_counted_and_left_alone() -> None:
    tracker = Tracker()
    tracker.generated("cells", 1, at=0, sent=0)
    tracker.seen("cells", 2, seen(written=5, at=6))
    tracker.seen("stops", 1, seen(written=5, at=6))
    tracker.ingested("stops", 1, at=1)
    tracker.refused("stops", 1)
    assert tracker.strangers == 4
    assert tracker.outcomes(now=100 * S)["status"].to_list() == ["lost"]


def test_a_number_is_used_once() -> None:
    tracker = Tracker()
    tracker.generated("cells", 1, at=0, sent=0)
    tracker.generated("stops", 1, at=0, sent=0)
    with pytest.raises(PlanError, match="marker 1 of cells was made twice"):
        tracker.generated("cells", 1, at=0, sent=0)


def test_a_patience_is_needed() -> None:
    with pytest.raises(PlanError, match="patience"):
        Tracker(patience=0)


def test_many_threads_may_tell() -> None:
    tracker = Tracker()
    for number in range(400):
        tracker.generated("cells", number, at=0, sent=0)

    def tell(first: int) -> None:
        for number in range(first, 400, 4):
            tracker.ingested("cells", number, at=S)
            tracker.seen("cells", number, seen(str(number), written=5, at=6))

    threads = [threading.Thread(target=tell, args=(first,)) for first in (0, 1, 2, 3, 0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    outcomes = tracker.outcomes(now=60 * S)
    assert outcomes["status"].unique().to_list() == ["seen"]
    assert outcomes["duplicates"].sum() == 100


def _example(lost: int = 0) -> pl.DataFrame:
    tracker = Tracker(patience=10 * S)
    for number in range(100):
        tracker.generated("cells", number, at=number * S, sent=number * S + 1000)
        tracker.ingested("cells", number, at=number * S + 5000)
        if number >= lost:
            tracker.seen("cells", number, seen(str(number), written=number + 1, at=number + 1 + number / 1000))
    tracker.generated("stops", 1, at=0, sent=300_000)
    tracker.seen("stops", 1, seen("x", written=1, at=2))
    tracker.seen("stops", 1, seen("x", written=1, at=3))
    return tracker.outcomes(now=300 * S)


def test_the_report() -> None:
    report = latency_report(_example())
    cells, stops = report["cells"], report["stops"]
    assert cells.legs["total"].quantiles[0].value == pytest.approx(1.049)
    assert cells.legs["total"].most == pytest.approx(1.099)
    assert cells.warnings == ["p99 of 100 values: its confidence interval needs 368"]
    assert (stops.markers, stops.duplicates) == (1, 1)
    assert any("generator was late" in warning for warning in stops.warnings)


def test_lost_markers_count_as_infinite() -> None:
    cells = latency_report(_example(lost=2))["cells"]
    assert cells.count("lost") == 2
    assert cells.legs["total"].quantiles[2].value == float("inf")
    assert cells.legs["ingest"].quantiles[2].value == pytest.approx(0.005)
    assert "2 of 100 markers never came back; they count as infinite" in cells.warnings
    told = cells.to_dict()
    assert told["legs"]["total"]["p99"]["value"] is None
    assert told["statuses"] == {"seen": 98, "overdue": 0, "late": 0, "lost": 2, "pending": 0}


def test_nothing_came_back() -> None:
    tracker = Tracker(patience=S)
    tracker.generated("cells", 1, at=0, sent=0)
    report = latency_report(tracker.outcomes(now=60 * S))
    assert "no marker came back" in report["cells"].warnings


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_outcomes_are_the_same_from_a_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / "deep" / f"markers.{suffix}"
    outcomes = _example(lost=2)
    write_outcomes(outcomes, path)
    again = read_outcomes(path)
    assert again.equals(outcomes)
