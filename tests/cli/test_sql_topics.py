"""`headrace sql` over topics of a real broker: what they hold, and what comes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.cli.options import UsageError
from headrace.errors import ExitCode
from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.producer import Producer
from headrace.kafka.topics import TopicSpec
from headrace_transit.schemas import StopEvent, VehiclePosition

if TYPE_CHECKING:
    from tests.cli.conftest import Cli

    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.broker]

ROOT = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPEEDS = {"a": [12.0, 8.0, 3.0, 0.2, 0.0], "b": [12.0, 12.0, 11.0, 12.0, 12.0]}
STOPS = """
    SELECT * FROM positions MATCH_RECOGNIZE (
      PARTITION BY vehicle_id ORDER BY event_time
      MEASURES cruising.speed AS from_speed, COUNT(braking.*) AS brakes
      PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
      DEFINE cruising AS speed >= 10, braking AS speed < PREV(speed), stopped AS speed < 1)
    """


class Feed:
    """A topic of its own, and what is written to it."""

    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        self.broker = broker
        self.topic = f"test.sql-{name}"
        Topics(broker.connection).ensure([TopicSpec(name=self.topic, partitions=2)])

    def send(self, *values: bytes, key: bytes = b"a", at: datetime | None = None) -> None:
        with Producer(self.broker.connection) as producer:
            for value in values:
                stamp = None if at is None else int(at.timestamp() * 1e6)
                producer.send(self.topic, value, key=key, timestamp=stamp)

    def drive(self, *, begin: datetime = NOON) -> None:
        codec = Codec()
        with Producer(self.broker.connection) as producer:
            for vehicle, speeds in SPEEDS.items():
                for second, speed in enumerate(speeds):
                    payload = VehiclePosition(vehicle_id=vehicle, speed=speed)
                    value = codec.write(payload, event_time=begin + timedelta(seconds=second))
                    producer.send(self.topic, value, key=vehicle.encode())

    def words(self, *more: str, name: str = "positions") -> list[str]:
        return ["--table", f"{name}=topic:{self.topic}", "--bootstrap", self.broker.connection.bootstrap, *more]


@pytest.fixture
def feed(broker: EmbeddedBroker, request: pytest.FixtureRequest) -> Feed:
    return Feed(broker, "".join(c if c.isalnum() else "-" for c in request.node.name)[:80])


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_a_topic_holds_is_a_table(cli: Cli, feed: Feed) -> None:
    feed.drive()
    found = cli("sql", STOPS, *feed.words("--json"))
    assert lines(found.stdout) == [{"vehicle_id": "a", "from_speed": 12.0, "brakes": 2}]
    assert "10 events" in found.stderr
    # It is a table, so it can be grouped and sorted, which a stream cannot.
    top = "SELECT vehicle_id, MAX(speed) AS top FROM positions GROUP BY vehicle_id ORDER BY vehicle_id"
    assert cli("sql", top, *feed.words("-f", "csv")).stdout == "vehicle_id,top\na,12.0\nb,12.0\n"


def test_a_topic_beside_a_file(cli: Cli, feed: Feed, home: Path) -> None:
    feed.drive()
    pl.DataFrame({"vehicle_id": ["a", "b"], "depot": ["south", "north"]}).write_csv(home / "depots.csv")
    query = "SELECT depot, COUNT(*) AS n FROM positions JOIN depots USING (vehicle_id) GROUP BY depot ORDER BY depot"
    found = cli("sql", query, *feed.words("--table", "depots=depots.csv", "--json"))
    assert lines(found.stdout) == [{"depot": "north", "n": 5}, {"depot": "south", "n": 5}]


def test_from_a_time_on_and_records_that_are_no_events(cli: Cli, feed: Feed) -> None:
    now = datetime.now(UTC)
    for minutes in (60, 5):
        value = Codec().write(VehiclePosition(vehicle_id=f"m{minutes}"), event_time=NOON)
        feed.send(value, at=now - timedelta(minutes=minutes))
    feed.send(b"rubbish", at=now)
    query = "SELECT vehicle_id FROM positions ORDER BY vehicle_id"
    kind = ["--table", f"positions=topic:{feed.topic}:VehiclePosition"]
    bootstrap = ["--bootstrap", feed.broker.connection.bootstrap]
    every = cli("sql", query, *kind, *bootstrap, "--json")
    assert [row["vehicle_id"] for row in lines(every.stdout)] == ["m5", "m60"]
    assert "1 records are no events" in every.stderr
    assert [r["vehicle_id"] for r in lines(cli("sql", query, *feed.words("--from", "10m ago", "--json")).stdout)] == [
        "m5"
    ]


def test_the_type_of_a_topic(cli: Cli, feed: Feed) -> None:
    query = "SELECT vehicle_id FROM positions"
    empty = cli("sql", query, *feed.words())
    assert empty.exit_code == ExitCode.USAGE
    assert f"topic {feed.topic} is empty" in empty.stderr
    assert f"--table positions=topic:{feed.topic}:TYPE" in empty.stderr
    feed.send(b"rubbish")
    assert "holds no events" in cli("sql", query, *feed.words()).stderr
    feed.drive()
    feed.send(Codec().write(StopEvent(vehicle_id="c"), event_time=NOON))
    several = cli("sql", query, *feed.words())
    assert several.exit_code == ExitCode.USAGE
    assert "several types: headrace.v1.StopEvent, headrace.v1.VehiclePosition" in several.stderr
    chosen = [word.replace(feed.topic, f"{feed.topic}:StopEvent") for word in feed.words("--json")]
    assert lines(cli("sql", query, *chosen).stdout) == [{"vehicle_id": "c"}]
    unknown = [word.replace(feed.topic, f"{feed.topic}:Nothing") for word in feed.words()]
    assert "event type 'Nothing' is not registered" in cli("sql", query, *unknown).stderr


def test_records_with_columns_of_their_own(cli: Cli, feed: Feed) -> None:
    for second, value in enumerate([1.0, 5.0, 9.0]):
        row = pl.DataFrame({"event_time": [NOON + timedelta(seconds=second)], "sensor": ["x"], "value": [value]})
        feed.send(*Codec().encode(row, "Record").to_pylist())
    query = "SELECT MAX(value) AS top FROM readings"
    assert lines(cli("sql", query, *feed.words("--json", name="readings")).stdout) == [{"top": 9.0}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--table", "p=topic:"], "NAME=topic:TOPIC"),
        (["--table", "p=p.csv", "--follow"], "no table is a topic"),
        (["--table", "p=topic:x", "--from", "some day"], "'some day' is not a time"),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_is_started(
    cli: Cli, home: Path, words: list[str], message: str
) -> None:
    (home / "p.csv").write_text("a\n1\n")
    result = cli("sql", "SELECT * FROM p", *words)
    assert result.exit_code == ExitCode.USAGE
    assert message in result.stderr


def test_a_topic_that_is_not_there(cli: Cli, feed: Feed) -> None:
    missing = ["--table", f"positions=topic:{feed.topic}x", "--bootstrap", feed.broker.connection.bootstrap]
    for more in ([], ["--follow"]):
        result = cli("sql", "SELECT * FROM positions", *missing, *more)
        assert result.exit_code == ExitCode.BROKER
        assert f"There is no topic {feed.topic}x" in result.stderr


def test_what_a_stream_cannot_do_is_refused_with_its_place(cli: Cli, feed: Feed) -> None:
    feed.drive()
    result = cli("sql", STOPS + " ORDER BY brakes", *feed.words("--follow"))
    assert result.exit_code == ExitCode.JOB
    assert "ORDER BY of a stream" in result.stderr
    nested = STOPS.replace("COUNT(braking.*)", "ARRAY_AGG(speed)")
    assert "CSV has no lists" in cli("sql", nested, *feed.words("--follow", "-f", "csv")).stderr


def start(home: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "sql", *words],
        cwd=home,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_following_prints_matches_as_they_are_decided_until_ctrl_c(feed: Feed, home: Path) -> None:
    feed.drive()
    process = start(home, STOPS, *feed.words("--follow", "--from", "start", "--json"))
    try:
        assert process.stdout is not None
        # The stop is decided by its last row, which the watermark passes with what the other vehicle reports later.
        feed.drive(begin=NOON + timedelta(seconds=20))
        first = json.loads(process.stdout.readline())
        assert (first["vehicle_id"], first["from_speed"], first["brakes"]) == ("a", 12.0, 2)
        assert first["event_time"].startswith("2026-03-01")
        feed.drive(begin=NOON + timedelta(seconds=40))
        assert json.loads(process.stdout.readline())["event_time"] > first["event_time"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == ExitCode.INTERRUPTED
    assert f"Following {feed.topic}" in errors
    assert "rows." in errors
    assert "Traceback" not in errors


def test_following_without_a_pattern_filters_and_ends_quietly_in_a_pipe(feed: Feed, home: Path) -> None:
    feed.drive()
    query = "SELECT vehicle_id, speed FROM positions WHERE speed > 11.5"
    with start(home, query, *feed.words("--follow", "--from", "start")) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().split() == ["event_time", "vehicle_id", "speed"]
        assert process.stdout.readline().split()[-1] == "12.0"
        process.stdout.close()
        feed.drive()
        process.send_signal(signal.SIGTERM)
        errors = process.stderr.read()
        process.wait(30)
    assert "Traceback" not in errors


def test_a_type_is_refused_that_is_no_table() -> None:
    from headrace.cli.tables import table_of

    with pytest.raises(UsageError, match="NAME=FILE"):
        table_of("topic:x")
