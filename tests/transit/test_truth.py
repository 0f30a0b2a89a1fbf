"""The file of truth beside a simulated feed, and both ways that the same reports take."""

from __future__ import annotations

import json
import math
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ConfigError, EnvironmentProblem, ExitCode
from headrace.events import Codec
from headrace.ingest.recording import Recording
from headrace_transit.hfp import HfpProcessor
from headrace_transit.simulator import Arrivals, Disorder, Fleet, TruthFile, read_truth
from headrace_transit.simulator.milestones import EVENTS
from headrace_transit.simulator.writers import EventWriter
from headrace_transit.simulator_connector import SimulatorConnector, SimulatorSettings
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = datetime(2026, 3, 2, tzinfo=UTC)


class Nowhere:
    """An outlet that keeps nothing."""

    def send_all(self, topic: str, keys: Sequence[str], values: Sequence[bytes], *, headers: object = None) -> int:
        return len(keys)

    def flush(self, timeout: float | None = None) -> None: ...

    def __len__(self) -> int:
        return 0


def test_the_truth_is_written_as_the_feed_goes_on(tmp_path: Path) -> None:
    fleet = Fleet(vehicles=80, seed=3, start=START, emergency_rate=1)
    path = tmp_path / "truth.jsonl"
    with TruthFile(path, fleet, first=100) as truth:
        truth.until(700)
        early = read_truth(path).height
        for second in range(701, 2000, 7):
            truth.until(second)
        truth.until(2000)
    told = fleet.emergency_stops(100, 2000).filter(pl.col("stopped") < datetime(2026, 3, 2, 0, 33, 20, tzinfo=UTC))
    found = read_truth(path)
    assert 5 < early < found.height == truth.stops
    rounded = told.with_columns(pl.col("latitude", "longitude").round(6), pl.col("speed", "deceleration").round(2))
    assert found.equals(rounded.sort("stopped", "vehicle_id"))


def test_copies_have_the_same_truth(tmp_path: Path) -> None:
    fleet = Fleet(vehicles=60, seed=3, start=START, emergency_rate=1)
    for name, copies in (("one", 1), ("three", 3)):
        with TruthFile(tmp_path / name, fleet, copies=copies) as truth:
            truth.until(1800)
    one, three = read_truth(tmp_path / "one"), read_truth(tmp_path / "three")
    assert three.height == 3 * one.height > 0
    assert three.drop("vehicle_id").unique(maintain_order=True).equals(one.drop("vehicle_id"))
    numbers = three["vehicle_id"].str.split("/").list.last().cast(pl.Int64)
    assert sorted(set(numbers // 100_000)) == [0, 1, 2]


def test_what_is_no_truth_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot read"):
        read_truth(tmp_path / "missing")
    for text in ("no JSON", "[]", '{"vehicle_id": "1/2"}', '{"began": 7}', "null"):
        (tmp_path / "bad").write_text(text + "\n")
        with pytest.raises(ConfigError, match="line 1"):
            read_truth(tmp_path / "bad")
    with pytest.raises(EnvironmentProblem, match="cannot write"):
        TruthFile(tmp_path / "no" / "such" / "folder", Fleet(vehicles=1))


@pytest.mark.parametrize("copies", [1, 3])
def test_a_message_becomes_the_same_bytes_as_the_event_that_goes_straight_to_kafka(copies: int) -> None:
    """Both ways to Kafka, to the byte: reports -> HFP messages -> processor -> codec, and reports -> codec."""
    settings = SimulatorSettings(
        vehicles=40,
        seed=6,
        start=(START.replace(hour=6)).isoformat(),
        seconds=240,
        speed=math.inf,
        copies=copies,
        gps_loss=0.03,
    )
    with SimulatorConnector(settings) as connector:
        messages = [message for batch in connector.batches(threading.Event()) for message in batch.messages]
    result = HfpProcessor().process(messages)
    # Traffic lights and drivers have no place in the topics of positions and stop events.
    elsewhere = {message.topic.split("/")[5].upper() for message in messages} - {"VP"}
    assert elsewhere <= set(EVENTS)
    ours = {VEHICLE_POSITIONS, STOP_EVENTS}
    by_message = {
        event.topic: sorted(Codec().encode(event.frame, event.type).to_pylist())
        for event in result.events
        if event.topic in ours
    }
    fleet, first = settings.fleet(START.replace(hour=6))
    arrivals = Arrivals(fleet, Disorder.named(settings.disorder), first=first)
    straight = EventWriter(Nowhere(), copies=copies).packets(arrivals.sent(240))
    for topic, packets in zip((VEHICLE_POSITIONS, STOP_EVENTS), straight, strict=True):
        assert sorted(packets["value"].to_list()) == by_message[topic]
        assert packets.height > 100 * copies


def test_the_command_writes_the_truth_beside_the_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["simulate", "--vehicles", "40", "--for", "900", "--fast", "--start", "2026-05-01T06:00:00Z", "--json"]
    words += ["--emergencies", "1", "--copies", "2", "--lateness", "none", "--to", "day.dump.gz"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout.splitlines()[-1])
    messages = list(Recording("day.dump.gz"))
    assert len(messages) == told["messages"] > 2 * 40 * 900
    truth = read_truth("day.truth.jsonl")
    assert truth.height > 10
    events = HfpProcessor().process(messages).events
    (positions,) = (event.frame for event in events if event.topic == VEHICLE_POSITIONS)
    standing = positions.join(truth, on="vehicle_id", suffix="_told").filter(
        pl.col("event_time").is_between("stopped", "resumed")
    )
    assert standing["vehicle_id"].n_unique() == truth["vehicle_id"].n_unique()
    assert standing["speed"].max() < 0.01


@pytest.mark.parametrize(
    "words",
    [
        ["--emergencies", "2"],
        ["--gps-loss", "-1"],
        ["--gps-noise", "-1"],
        ["--copies", "0"],
        ["--copies", "99999999"],
        ["--service", "sunday"],
        ["--lateness", "sunny"],
    ],
)
def test_the_command_refuses_what_cannot_be(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["simulate", "--for", "5", "--to", "x.dump", *words])
    assert result.exit_code == ExitCode.USAGE
    assert not (tmp_path / "x.dump").exists()
