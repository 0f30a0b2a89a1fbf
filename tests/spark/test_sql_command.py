"""`headrace sql --engine spark`: over a file, over what a topic holds, and over what comes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import ExitCode
from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.producer import Producer
from headrace.kafka.topics import TopicSpec
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUERY = """
    SELECT * FROM positions MATCH_RECOGNIZE (
      PARTITION BY vehicle_id ORDER BY event_time
      MEASURES cruising.speed AS from_speed, COUNT(braking.*) AS brakes
      PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
      DEFINE cruising AS speed >= 10, braking AS speed < PREV(speed), stopped AS speed < 1)
    """


def rows(begin: datetime) -> pl.DataFrame:
    speeds = {"a": [12.0, 8.0, 3.0, 0.2, 0.0], "b": [12.0, 12.0, 11.0, 12.0, 12.0], "c": [15.0, 4.0, 0.0, 0.0, 0.0]}
    return pl.DataFrame(
        [
            {"vehicle_id": vehicle, "speed": speed, "event_time": begin + timedelta(seconds=second)}
            for vehicle, values in speeds.items()
            for second, speed in enumerate(values)
        ]
    ).cast({"event_time": pl.Datetime("us", "UTC")})


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "sql", QUERY, *words, "--json"],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "HEADRACE_PATHS__HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(home: Path, *words: str) -> list[tuple[object, ...]]:
    with start(home, *words) as process:
        output, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    found = [json.loads(line) for line in output.splitlines()]
    return sorted((row["vehicle_id"], row["from_speed"], row["brakes"]) for row in found)


def send(broker: EmbeddedBroker, topic: str, table: pl.DataFrame) -> None:
    """Write rows; both partitions get some, whatever Kafka makes of the keys."""
    with Producer(broker.connection) as producer:
        for key, value in zip(table["vehicle_id"], Codec().encode(table, VehiclePosition).to_pylist(), strict=True):
            producer.send(topic, value, key=key.encode(), partition=0 if key == "a" else 1)


def test_a_query_gives_the_same_on_spark_over_a_file_and_over_a_topic(broker: EmbeddedBroker, tmp_path: Path) -> None:
    rows(NOON).write_parquet(tmp_path / "positions.parquet")
    topic = "test.sql-on-spark"
    Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=2)])
    send(broker, topic, rows(NOON))
    over_topic = ["--table", f"positions=topic:{topic}", "--bootstrap", broker.connection.bootstrap]
    wanted = [("a", 12.0, 2), ("c", 15.0, 1)]
    assert answer(tmp_path, "--table", "positions=positions.parquet") == wanted
    assert answer(tmp_path, "--table", "positions=positions.parquet", "--engine", "spark") == wanted
    assert answer(tmp_path, *over_topic, "--engine", "spark") == wanted


class Lines:
    """What a process prints, as it comes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._come: queue.Queue[str | None] = queue.Queue()
        self._out = process.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self._out or ():
            self._come.put(line)
        self._come.put(None)

    def next(self, count: int) -> dict[str, list[tuple[object, ...]]]:
        """The next rows by vehicle: in the order of each vehicle; there is none between vehicles."""
        found: dict[str, list[tuple[object, ...]]] = defaultdict(list)
        for _ in range(count):
            line = self._come.get(timeout=240)
            assert line is not None, "it ended"
            row = json.loads(line)
            found[row["vehicle_id"]].append((row["event_time"], row["from_speed"], row["brakes"]))
        return found


def stops(*begins: int) -> dict[str, list[tuple[object, ...]]]:
    """When each vehicle has stopped, from what speed, after how much braking."""
    ways = {"a": (3, 12.0, 2), "c": (2, 15.0, 1)}
    return {
        vehicle: [((NOON + timedelta(seconds=begin + last)).isoformat(), speed, brakes) for begin in begins]
        for vehicle, (last, speed, brakes) in ways.items()
    }


def test_following_a_topic_on_spark_prints_matches_as_they_are_decided(broker: EmbeddedBroker, tmp_path: Path) -> None:
    topic = "test.sql-following-on-spark"
    Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=2)])
    for begin in (0, 20, 40):
        send(broker, topic, rows(NOON + timedelta(seconds=begin)))
    words = ["--table", f"positions=topic:{topic}", "--bootstrap", broker.connection.bootstrap]
    with start(tmp_path, *words, "--engine", "spark", "--follow", "--from", "start") as process:
        lines = Lines(process)
        # The watermark, a second behind what came last, has passed two of the drives, and the third but for its end.
        assert lines.next(5) == {"a": stops(0, 20)["a"], "c": stops(0, 20, 40)["c"]}
        drive = rows(NOON + timedelta(seconds=60))
        # On a slow machine partition 0 may count as idle by now; so what is looked for comes from the other first.
        send(broker, topic, drive.filter(pl.col("vehicle_id") != "a"))
        send(broker, topic, drive.filter(pl.col("vehicle_id") == "a"))
        assert lines.next(2) == {"a": stops(40)["a"], "c": stops(60)["c"]}
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == ExitCode.INTERRUPTED
        assert process.stderr is not None
        errors = process.stderr.read()
    assert f"Following {topic} on Spark" in errors
    assert "7 rows." in errors
    assert "Traceback" not in errors


def test_a_file_without_a_time_is_refused_on_spark(tmp_path: Path) -> None:
    rows(NOON).drop("event_time").write_csv(tmp_path / "positions.csv")
    with start(tmp_path, "--table", "positions=positions.csv", "--engine", "spark") as process:
        _, errors = process.communicate(timeout=240)
    assert process.returncode == ExitCode.USAGE
    assert "needs a timestamp column event_time" in errors
