"""A batch waits for windows that are about to be complete; these tests need no Spark session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace.spark.source.advice import Advice, AdviceFile
from headrace.spark.source.batch_timing import Punctuality
from headrace.spark.source.kafka_source import KafkaPlan, KafkaStreamReader
from headrace.spark.stages.shipping import Packed
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, session, sliding, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.stream.pipeline import Pipeline

MS = 1_000
S = 1_000_000


def _pipeline(window: object) -> Pipeline:
    stream = Stream.topic("input.punctuality", VehiclePosition).watermark(bounded("1s")).key_by("line")
    return Job("counts", stream.window(window).aggregate(n=count())).pipeline  # type: ignore[arg-type]


def _told(
    punctuality: Punctuality, *, behind: list[int], every: int = 500 * MS, took: int = 400 * MS
) -> tuple[int | None, int]:
    """Tell what is foreseen after batches whose watermarks were so far behind the clock."""
    told: tuple[int | None, int] = (None, 1)
    for number, lag in enumerate(behind):
        now = 100 * S + number * every
        told = punctuality.after({"counts": now - lag}, now=now, took=took)
    return told


@pytest.mark.parametrize("window", [sliding("30s", every="5s"), tumbling("5s")], ids=["sliding", "tumbling"])
def test_the_end_of_the_next_window_is_foreseen_by_how_far_the_watermark_is_behind(window: object) -> None:
    punctuality = Punctuality({"counts": _pipeline(window)})
    # The watermark is 100.45 s; the end of the next window, 105 s, is passed 1.1 s later: of 1.2 s there was but one.
    due, step = _told(punctuality, behind=[1_100 * MS, 1_200 * MS, 1_080 * MS, 1_050 * MS])
    assert due is not None
    assert 106_100 * MS < due <= 106_110 * MS
    assert 400 * MS < step < 500 * MS


@pytest.mark.parametrize(
    ("window", "behind", "took"),
    [
        pytest.param(tumbling("5s"), [1_000 * MS] * 3, 400 * MS, id="too few batches"),
        pytest.param(tumbling("5s"), [1_000 * MS, 1_000 * MS, 1_400 * MS, 1_000 * MS], 400 * MS, id="bursts"),
        pytest.param(tumbling("5s"), [n * 500 * MS for n in range(8)], 400 * MS, id="time stands still"),
        pytest.param(tumbling("5s"), [1_000 * MS] * 8, 2_000 * MS, id="batches too long for the windows"),
        pytest.param(session("5s"), [1_000 * MS] * 8, 400 * MS, id="windows without common ends"),
    ],
)
def test_nothing_is_foreseen_where_event_time_is_no_clock(window: object, behind: list[int], took: int) -> None:
    assert _told(Punctuality({"counts": _pipeline(window)}), behind=behind, took=took)[0] is None


def test_jobs_whose_windows_end_together_share_a_batch_and_others_are_not_waited_for() -> None:
    pipeline = _pipeline(tumbling("5s"))
    lags = {"counts": 1_000 * MS, "slower": 1_100 * MS, "slowest": 2_000 * MS}
    punctuality = Punctuality(dict.fromkeys(lags, pipeline))
    due: int | None = None
    for number in range(5):
        now = 103 * S + number * 100 * MS
        due, _ = punctuality.after({name: now - lag for name, lag in lags.items()}, now=now, took=400 * MS)
    assert due is not None
    assert 106_100 * MS < due <= 106_110 * MS


def test_batches_follow_each_other_no_faster_than_the_cadence() -> None:
    pipeline = _pipeline(tumbling("5s"))
    _, quick = _told(Punctuality({"counts": pipeline}), behind=[1_000 * MS] * 5, took=100 * MS)
    _, paced = _told(Punctuality({"counts": pipeline}, cadence=500 * MS), behind=[1_000 * MS] * 5, took=100 * MS)
    assert 100 * MS < quick < 200 * MS
    assert paced == 500 * MS


@pytest.mark.parametrize(
    ("due", "since", "wait"),
    [
        pytest.param(None, 0, None, id="nothing is foreseen"),
        pytest.param(5_000, 0, 500, id="the grid fits"),
        pytest.param(5_240, 0, 524, id="what is left over is spread"),
        pytest.param(5_200, 200, 291, id="the last batch is a part of it"),
        pytest.param(400, 100, 400, id="there is no time for another one"),
        pytest.param(700, 100, 700, id="nor here"),
        pytest.param(800, 100, 350, id="this one is nearly done by then"),
        pytest.param(0, 300, 0, id="due now"),
        pytest.param(-100, 300, 0, id="due while the last one ran"),
        pytest.param(-100, 100, None, id="due before the last one"),
        pytest.param(5_000, 700, 0, id="the last one took long"),
        pytest.param(3_600_000, 100, 400, id="the clock was set back"),
    ],
)
def test_batches_are_spread_evenly_such_that_one_begins_when_windows_are_due(
    due: int | None, since: int, wait: int | None
) -> None:
    now = 1_000 * S
    advice = Advice(most=1, due=None if due is None else now + due * MS, step=500 * MS)
    told = advice.wait(now, since * MS)
    assert told == (None if wait is None else pytest.approx(wait * MS, abs=2 * MS))


def _reader(broker: EmbeddedBroker, **settings: Any) -> KafkaStreamReader:
    return KafkaStreamReader(KafkaPlan(broker.connection, (), stage=Packed(b""), tasks=1, **settings))


def _planned(reader: KafkaStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Ask as Spark does, again and again, until there is a batch."""
    while (end := reader.latestOffset(start, None)) == start:
        pass
    return end


@pytest.mark.broker
def test_the_source_plans_no_batch_before_the_windows_are_due(broker: EmbeddedBroker, tmp_path: Path) -> None:
    advice = AdviceFile(tmp_path / "advice")
    reader = _reader(broker, advice=advice)
    start = {"offsets": {}, "now": _now() - 2 * S}
    advice.write(Advice(most=1_000, due=_now() + 3_600 * S, step=7_200 * S))
    assert reader.latestOffset(start, None) == start
    due = _now() + 200 * MS
    advice.write(Advice(most=1_000, due=due, step=500 * MS))
    assert _planned(reader, start)["now"] >= due
    advice.write(Advice(most=1_000, due=due + 3_600 * S, step=500 * MS))
    # Windows that are far away hold up no batch.
    assert due <= _planned(reader, start)["now"] < due + 3_600 * S


@pytest.mark.broker
def test_the_source_keeps_the_cadence_whatever_the_clock_says(broker: EmbeddedBroker) -> None:
    reader = _reader(broker, cadence=3_600.0)
    start = {"offsets": {}, "now": _now() - 2 * S}
    end = reader.latestOffset(start, None)
    assert end != start
    for clock in (end["now"] - 7_200 * S, end["now"] - 2 * S):
        later = {"offsets": {}, "now": clock}
        assert reader.latestOffset(later, None) == later


def _now() -> int:
    return time.time_ns() // 1_000
