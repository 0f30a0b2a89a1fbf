"""How the source plans batches: their two times when the machine's clock is set, and partitions that are added."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import MemorySegments
from headrace.engine.group import Arrivals, Group, Seen
from headrace.events import Codec
from headrace.spark.source import kafka_source
from headrace.spark.source.arrow_stage import ArrowStage
from headrace.spark.source.kafka_source import KafkaPlan, KafkaStreamReader
from headrace.spark.stages.shipping import Packed
from headrace.stream import Job, Stream
from headrace.stream.intake import timekeeping
from headrace.stream.message_types import types_of
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kafka.ranges import Place

SECOND = 1_000_000
HOUR = 3600
TOPIC = "input.vehicle-position"
JOB = Job(
    name="counted",
    description="A job to plan for",
    stream=Stream.topic(TOPIC, VehiclePosition)
    .watermark(bounded("1s"), idle_after="30s")
    .key_by("vehicle_id")
    .window(tumbling("10s"))
    .aggregate(reports=count()),
)


@dataclass
class Machine:
    """A machine's clocks, and the log of a topic; nothing here waits."""

    wall: float = 1_700_000_000.0
    uptime: float = 50.0
    ends: dict[Place, int] = field(default_factory=lambda: {(TOPIC, 0): 0, (TOPIC, 1): 0})

    def sleep(self, seconds: float) -> None:
        self.wall += seconds
        self.uptime += seconds

    def monotonic(self) -> float:
        return self.uptime

    def time_ns(self) -> int:
        return round(self.wall * 1_000_000) * 1_000


class Log:
    """Where partitions begin and end."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.listings = 0

    def partitions(self, topics: Sequence[str]) -> list[Place]:
        self.listings += 1
        return sorted(place for place in self.machine.ends if place[0] in topics)

    def ends(self, places: Sequence[Place]) -> dict[Place, int]:
        return {place: self.machine.ends[place] for place in places}

    def begins(self, places: Sequence[Place]) -> dict[Place, int]:
        return dict.fromkeys(places, 0)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(kafka_source, "time", machine)
    return machine


def reader_on(machine: Machine) -> KafkaStreamReader:
    plan = KafkaPlan(None, (TOPIC,), stage=Packed(b""), tasks=1)  # type: ignore[arg-type]
    reader = KafkaStreamReader(plan)
    reader.__dict__["_log"] = Log(machine)
    return reader


def planned(reader: KafkaStreamReader, start: dict[str, Any]) -> dict[str, Any]:
    """Ask as Spark does until there is a batch; what it notes is JSON."""
    while (end := reader.latestOffset(start, None)) == start:
        pass
    noted: dict[str, Any] = json.loads(json.dumps(end))
    return noted


def batches(machine: Machine, shifts: list[float]) -> Iterator[dict[str, Any]]:
    """Plan one batch after the other, about a second apart; before each the clock is set by so many seconds."""
    reader = reader_on(machine)
    offset = reader.initialOffset()
    for shift in shifts:
        machine.wall += shift
        machine.sleep(1.0)
        offset = planned(reader, offset)
        yield offset


def silent_for(machine: Machine, shifts: list[float]) -> list[int]:
    """Run a group on planned batches in which partition 1 is silent, and tell its watermark after each."""
    pipeline = JOB.pipeline
    group = Group(pipeline.stages[0].operator, timekeeping(pipeline, {TOPIC: 2}), pipeline.stages[0].schema)
    segments, marks = MemorySegments(), []
    for number, offset in enumerate(batches(machine, shifts)):
        times = pl.DataFrame({"event_time": [number * SECOND]}).cast(pl.Datetime("us", "UTC"))
        heard = [Seen(0, f"{TOPIC}/0", bounded("1s").observe(times))]
        if number == 0:
            heard.append(Seen(0, f"{TOPIC}/1", bounded("1s").observe(times)))
        arrivals = Arrivals(seen=heard, now=offset["now"], steady=offset["steady"])
        marks.append(group.turn(segments, arrivals).reached)
    return marks


@pytest.mark.parametrize(
    "shifts",
    [
        pytest.param([0.0] * 60, id="no jump"),
        pytest.param([0.0] * 5 + [HOUR] + [0.0] * 9 + [-HOUR] + [0.0] * 44, id="forward and back"),
        pytest.param([0.0] * 5 + [-HOUR] + [0.0] * 9 + [HOUR] + [0.0] * 44, id="back and forward"),
        pytest.param([0.0] * 5 + [HOUR] + [0.0] * 54, id="forward for good"),
        pytest.param([0.0] * 5 + [-HOUR] + [0.0] * 54, id="back for good"),
    ],
)
def test_a_silent_partition_is_idle_after_its_time_however_the_clock_is_set(
    machine: Machine, shifts: list[float]
) -> None:
    marks = silent_for(machine, shifts)
    assert marks[:29] == [-SECOND] * 29, "held back while partition 1 may still bring events"
    assert marks[32:] == [(number - 1) * SECOND for number in range(32, 60)]


@given(shifts=st.lists(st.sampled_from([0.0, 0.0, HOUR, -HOUR, 0.3, -0.3, 86_400.0]), max_size=15))
@settings(deadline=None, max_examples=25)
def test_property_both_times_of_a_batch_go_on_whatever_happens_to_the_clock(shifts: list[float]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine()
        patch.setattr(kafka_source, "time", machine)
        began = machine.uptime
        offsets = list(batches(machine, shifts))
    for before, after in pairwise(offsets):
        assert after["now"] > before["now"]
        assert after["steady"] > before["steady"]
    if offsets:
        assert offsets[-1]["steady"] - offsets[0]["steady"] <= (machine.uptime - began) * SECOND


def test_an_offset_of_an_earlier_version_is_gone_on_from(machine: Machine) -> None:
    start = {"offsets": {TOPIC: {"0": 0, "1": 0}}, "now": machine.time_ns() // 1_000 - 5 * SECOND}
    machine.ends[TOPIC, 0] = 3
    end = planned(reader_on(machine), start)
    assert end["steady"] == end["now"] > start["now"]
    assert end["offsets"] == {TOPIC: {"0": 3, "1": 0}}


def test_a_restarted_query_goes_on_from_the_steady_time_that_it_noted(machine: Machine) -> None:
    end = planned(reader_on(machine), reader_on(machine).initialOffset())
    machine.wall -= HOUR
    machine.uptime = 1.0
    again = reader_on(machine)
    machine.ends[TOPIC, 0] += 1
    first = planned(again, end)
    assert first["steady"] >= end["steady"]
    assert planned(again, first)["steady"] > first["steady"]


def test_a_partition_that_appears_is_known_from_the_batch_that_could_not_read_it_yet(machine: Machine) -> None:
    reader = reader_on(machine)
    first = reader.initialOffset()
    machine.ends[TOPIC, 0] = 5
    second = planned(reader, first)
    machine.ends |= {(TOPIC, 0): 9, (TOPIC, 2): 7}
    third = planned(reader, second)
    fourth = planned(reader, third)
    assert second["offsets"] == {TOPIC: {"0": 5, "1": 0}}
    assert third["offsets"] == {TOPIC: {"0": 9, "1": 0, "2": 0}}
    assert fourth["offsets"] == {TOPIC: {"0": 9, "1": 0, "2": 7}}
    added = [
        [place for part in reader.partitions(*pair) for place in part.added]  # type: ignore[attr-defined]
        for pair in ((first, second), (second, third), (third, fourth))
    ]
    assert added == [[], [(TOPIC, 2)], []]
    # As after a crash: whoever plans the batch anew from the log finds the same.
    (again,) = reader_on(machine).partitions(second, third)
    assert again.added == ((TOPIC, 2),)  # type: ignore[attr-defined]
    (part,) = reader.partitions(third, fourth)
    assert [(each.partition, each.start, each.end) for each in part.ranges] == [(2, 0, 7)]  # type: ignore[attr-defined]


def test_every_key_group_hears_of_a_new_partition_before_it_has_events() -> None:
    stage = ArrowStage({JOB.name: JOB.pipeline}, 3, Codec(types_of([JOB])), known={})
    rows = stage(iter(()), 7 * SECOND, steady=6 * SECOND, added=[(TOPIC, 2), ("another", 0)])
    clocks = [json.loads(body) for body in rows.column("body").to_pylist()]
    assert rows.column("group").to_pylist() == [0, 1, 2]
    assert all(clock["seen"] == [[0, f"{TOPIC}/2", {"rows": 0}]] for clock in clocks)
    assert all((clock["now"], clock["steady"]) == (7 * SECOND, 6 * SECOND) for clock in clocks)
