"""Markers through a real Kafka and a process that answers after a known delay."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import BrokerError, PlanError
from headrace.events import Codec, TypeRegistry
from headrace.kafka import Consumer, Topics, TopicSpec, late_spec
from headrace.observe.latency import latency_report
from headrace.observe.places import marker_place
from headrace.observe.probe import LANES, Probe, fresh_number, schedule, wall
from headrace.observe.recipes import MarkerEvent
from headrace.observe.recognition import first_place
from headrace.observe.tracker import Tracker
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.dev import EmbeddedBroker

MS = 1_000
S = 1_000_000
#: What docs/latency.md states for a marker that nothing held up.
ACCURACY = 0.05


@dataclass(frozen=True)
class OnePosition:
    """A marker that is one position."""

    topic: str
    job: str = "delayed"

    @property
    def result_topic(self) -> str:
        return f"{self.topic}.results"

    @property
    def late_topic(self) -> str:
        return f"{self.result_topic}.late"

    def events(self, marker: int, *, at: int) -> Sequence[MarkerEvent]:
        latitude, longitude = marker_place(first_place(marker))
        position = VehiclePosition(vehicle_id=f"0/{marker}", latitude=latitude, longitude=longitude)
        return [MarkerEvent(self.topic, b"%d" % marker, Codec().write(position, event_time=at))]


def test_a_schedule_has_one_moment_in_every_interval() -> None:
    moments = list(schedule(begin=S, end=21 * S, every=S, seed=5))
    assert [moment // S for moment in moments] == list(range(1, 21))
    assert len({moment % S for moment in moments}) == 20
    assert moments == list(schedule(begin=S, end=21 * S, every=S, seed=5))
    assert moments != list(schedule(begin=S, end=21 * S, every=S, seed=6))


def test_a_later_run_begins_with_other_numbers() -> None:
    # 10 minutes of markers, then the next run a second after them
    begin = 1_772_000_000 * S
    first, again = fresh_number(begin, every=S), fresh_number(begin + 601 * S, every=S)
    assert again - first == 601 * LANES


@contextmanager
def forwarding(broker: EmbeddedBroker, recipe: OnePosition, delay: int, *, badly: bool) -> Iterator[None]:
    script = Path(__file__).with_name("forwarder.py")
    command = [sys.executable, str(script), broker.bootstrap, recipe.topic, recipe.result_topic, str(delay)]
    command += ["--badly"] * badly
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def measured(
    broker: EmbeddedBroker, *, delay: int, seconds: float, every: int, badly: bool = False
) -> tuple[OnePosition, pl.DataFrame]:
    """Send markers through a process that holds each for `delay` milliseconds."""
    recipe = OnePosition(f"input.{uuid.uuid4().hex[:12]}")
    specs = [TopicSpec(name=recipe.topic, partitions=1), TopicSpec(name=recipe.result_topic, partitions=1)]
    Topics(broker.connection).ensure([*specs, late_spec(recipe.result_topic)])
    tracker = Tracker(patience=3 * S)
    never = threading.Event()
    with (
        forwarding(broker, recipe, delay, badly=badly),
        Probe(
            broker.connection, [recipe], tracker, every=every, uncommitted=True, types=TypeRegistry(VehiclePosition)
        ) as probe,
    ):
        assert probe.run(int(seconds * S), never) == seconds * S // every
        probe.drain(never)
    assert tracker.strangers == 0
    return recipe, tracker.outcomes(now=wall())


def accounts(broker: EmbeddedBroker, topic: str) -> pl.DataFrame:
    """What the forwarding process itself says about when it read and wrote, per marker."""
    with Consumer(broker.connection, [topic]) as consumer:
        values = [record.value for record in consumer]
    return Codec().decode(values).frame.select("marker", "was_read", "was_written")


@pytest.mark.broker
@pytest.mark.parametrize("delay", [50, 400])
def test_a_known_delay_is_measured(broker: EmbeddedBroker, delay: int) -> None:
    # Markers are held one after the other, so they must be farther apart than the delay.
    recipe, outcomes = measured(broker, delay=delay, seconds=6, every=delay * 3 // 2 * MS)
    told = outcomes.join(accounts(broker, recipe.result_topic).cast({"marker": pl.Int64}), on="marker")
    assert told["status"].to_list() == ["seen"] * outcomes.height
    held = (told["was_written"] - told["was_read"]) / S
    assert (held >= delay / 1000).all()
    # No marker is measured as quicker than it was; every instant is in its place.
    assert (told["total"] >= held).all()
    assert (told["ingested"] > told["generated"]).all()
    assert (told["ingested"].dt.epoch("us") <= told["was_written"]).all()
    assert (told["seen"].dt.epoch("us") >= told["was_written"]).all()
    # Kafka's timestamp is the moment of writing, to the millisecond.
    assert told["written"].dt.epoch("us").to_list() == (told["was_written"] // MS * MS).to_list()
    # On a machine that is busy with other things most markers take longer, but not the one that nothing held up.
    assert told["total"].min() == pytest.approx(delay / 1000, abs=ACCURACY)
    assert told["process"].min() == pytest.approx(delay / 1000, abs=ACCURACY)


@pytest.mark.broker
def test_lost_duplicate_and_late_markers_are_recognised(broker: EmbeddedBroker) -> None:
    _, outcomes = measured(broker, delay=0, seconds=2, every=50 * MS, badly=True)
    fates = {3: ("lost", 0, 0), 5: ("seen", 1, 1), 7: ("late", 0, 0)}
    for row in outcomes.to_dicts():
        told = (row["status"], row["duplicates"], row["results"])
        assert told == fates.get(row["marker"] // LANES % 10, ("seen", 0, 1))
    report = latency_report(outcomes)["delayed"]
    assert (report.count("lost"), report.count("late"), report.duplicates) == (4, 4, 4)
    assert "8 of 40 markers never came back; they count as infinite" in report.warnings


@pytest.mark.broker
def test_a_topic_that_is_missing_is_told_at_once(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="nowhere"):
        Probe(broker.connection, [OnePosition("nowhere")], Tracker())


@pytest.mark.parametrize(("recipes", "every", "words"), [([], S, "no job"), ([OnePosition("a")], 10, "every 10 us")])
def test_what_makes_no_sense_is_refused(recipes: list[OnePosition], every: int, words: str) -> None:
    from headrace.kafka import Connection

    with pytest.raises(PlanError, match=words):
        Probe(Connection(bootstrap="127.0.0.1:1"), recipes, Tracker(), every=every)
