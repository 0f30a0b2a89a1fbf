"""`headrace sql --engine spark`: over a file, and over what a topic holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.broker import Topics
from headrace.broker.producer import Producer
from headrace.broker.topics import TopicSpec
from headrace.errors import ExitCode
from headrace.events import Codec, VehiclePosition

if TYPE_CHECKING:
    from headrace.broker import EmbeddedBroker

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
    with Producer(broker.connection) as producer:
        for key, value in zip(table["vehicle_id"], Codec().encode(table, VehiclePosition).to_pylist(), strict=True):
            producer.send(topic, value, key=key.encode())


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


def test_a_file_without_a_time_is_refused_on_spark(tmp_path: Path) -> None:
    rows(NOON).drop("event_time").write_csv(tmp_path / "positions.csv")
    with start(tmp_path, "--table", "positions=positions.csv", "--engine", "spark") as process:
        _, errors = process.communicate(timeout=240)
    assert process.returncode == ExitCode.USAGE
    assert "needs a timestamp column event_time" in errors
