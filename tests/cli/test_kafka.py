"""The commands that talk to Kafka, against a real broker that `headrace broker start` started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ExitCode
from headrace.events import Codec, TypeRegistry
from headrace.kafka import Connection
from headrace.kafka.producer import Producer
from headrace_transit.schemas import VehiclePosition

pytestmark = [pytest.mark.broker]

ROOT = Path(__file__).resolve().parents[2]
Run = Callable[..., Result]


@pytest.fixture(scope="module")
def kafka_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kafka")


@pytest.fixture(scope="module")
def environment(kafka_home: Path) -> dict[str, str]:
    from headrace.dev.jars import default_directory

    jars = os.environ.get("HEADRACE_PATHS__JARS") or str(default_directory())
    return {
        "HEADRACE_HOME": "",
        "HEADRACE_PATHS__HOME": str(kafka_home),
        "HEADRACE_PATHS__JARS": jars,
        "COLUMNS": "200",
    }


@pytest.fixture(scope="module")
def run(environment: dict[str, str]) -> Run:
    """Run `headrace` in this process, with a home of its own."""

    def invoke(*words: object, **env: str) -> Result:
        result = CliRunner().invoke(app, [str(word) for word in words], env=environment | env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return invoke


@pytest.fixture(scope="module")
def bootstrap(run: Run) -> Iterator[str]:
    """The address of a broker in the background."""
    started = run("broker", "start", "--port", "0", "--json")
    assert started.exit_code == 0, started.output
    yield json.loads(started.stdout)["bootstrap"]
    assert run("broker", "stop").exit_code == 0


@pytest.fixture
def topic(bootstrap: str, run: Run, request: pytest.FixtureRequest) -> str:
    name = "test." + "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    assert run("topics", "create", name, "--partitions", "2").exit_code == 0
    return name


def lines(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def write(bootstrap: str, topic: str, values: list[tuple[str | None, bytes | None]]) -> None:
    with Producer(Connection(bootstrap=bootstrap)) as producer:
        for key, value in values:
            producer.send(topic, value, key=None if key is None else key.encode())


def position(vehicle: str, encoding: str = "binary") -> bytes:
    event_time = datetime(2026, 3, 1, tzinfo=UTC)
    return Codec().write(VehiclePosition(vehicle_id=vehicle, speed=1.5), event_time=event_time, encoding=encoding)  # type: ignore[arg-type]


def test_broker_status_and_a_second_start(run: Run, bootstrap: str) -> None:
    status = json.loads(run("broker", "status", "--json").stdout)
    assert status["running"] is True
    assert status["bootstrap"] == bootstrap
    assert psutil.pid_exists(status["pid"])
    again = json.loads(run("broker", "start", "--json").stdout)
    assert again["already"] is True
    assert again["pid"] == status["pid"]
    assert bootstrap in run("broker", "status").stdout
    assert "already runs" in run("broker", "start").stdout


def test_doctor_sees_the_running_broker(run: Run, bootstrap: str) -> None:
    findings = {f["check"]: f for f in json.loads(run("doctor", "--json").stdout)}
    assert bootstrap in findings["Port"]["found"]


def test_copies_of_topics_are_a_setting(run: Run, bootstrap: str) -> None:
    one = ("--set", "broker.replication=1", "--set", "broker.min_insync_replicas=1")
    assert run(*one, "topics", "create", "test.copies").exit_code == 0
    described = json.loads(run("topics", "describe", "test.copies", "--json").stdout)
    assert described["replication"] == 1
    assert described["config"]["min.insync.replicas"] == "1"
    refused = run("--set", "broker.replication=2", "topics", "create", "test.copies-two")
    assert refused.exit_code != 0
    assert "test.copies-two with 2 copies" in refused.output
    assert "broker.replication" in refused.output


def test_topics_create_list_describe(run: Run, bootstrap: str) -> None:
    made = json.loads(run("topics", "create", "--json").stdout)
    wanted = {"input.vehicle-position", "input.stop-event", "input.dead-letter", "headrace.commits"}
    wanted |= {"analytics.vehicle-distribution", "analytics.vehicle-distribution.late"}
    assert wanted <= {*made["created"], *made["existing"]}
    assert "Nothing to do" in run("topics", "create").stdout
    result = run("topics", "--json")
    assert result.exit_code == 0, result.output
    listed = {topic["name"]: topic for topic in json.loads(result.stdout)}
    assert wanted <= set(listed)
    assert not any(name.startswith("__") for name in listed)
    described = json.loads(run("topics", "describe", "headrace.commits", "--json").stdout)
    assert described["config"]["cleanup.policy"] == "compact"
    assert "headrace.commits: 1 partitions" in run("topics", "describe", "headrace.commits").stdout
    assert "input.dead-letter" in run("topics").stdout


def test_an_external_kafka_is_used_when_it_is_named(run: Run, bootstrap: str, tmp_path: Path) -> None:
    other_home = {"HEADRACE_PATHS__HOME": str(tmp_path)}
    assert run("topics", **other_home).exit_code == ExitCode.BROKER
    assert run("topics", "--bootstrap", bootstrap, **other_home).exit_code == 0
    assert run("topics", HEADRACE_BROKER__BOOTSTRAP=bootstrap, **other_home).exit_code == 0


def test_topic_missing_is_explained(run: Run, topic: str) -> None:
    for words in (["tail", topic[:-2]], ["topics", "describe", topic[:-2]]):
        result = run(*words)
        assert result.exit_code == ExitCode.BROKER
        assert f"There is no topic {topic[:-2]}" in result.stderr
        assert topic in result.stderr


def test_tail_shows_the_last_records_decoded(run: Run, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [(f"1/{n}", position(f"1/{n}")) for n in range(30)])
    shown = lines(run("tail", topic))
    assert len(shown) == 10
    assert {record["topic"] for record in shown} == {topic}
    assert shown[-1]["details"]["@type"].endswith("headrace.v1.VehiclePosition")
    assert shown[-1]["details"]["vehicle_id"] == shown[-1]["key"]
    assert shown[-1]["event_timestamp"] == "2026-03-01T00:00:00Z"
    assert len(lines(run("tail", topic, "-n", "3"))) == 3
    assert len(lines(run("tail", topic, "-n", "0"))) == 0
    assert len(lines(run("tail", topic, "-n", "100"))) == 30


def test_tail_reads_both_encodings(run: Run, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [("a", position("a")), ("b", position("b", "json"))])
    assert {record["details"]["vehicle_id"] for record in lines(run("tail", topic))} == {"a", "b"}


def test_tail_filters_by_key(run: Run, bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [(f"1/{n % 50}", position(f"1/{n % 50}")) for n in range(500)])
    assert {record["key"] for record in lines(run("tail", topic, "--key", "1/7"))} == {"1/7"}
    assert len(lines(run("tail", topic, "--key", "1/7", "-n", "4"))) == 4
    assert len(lines(run("tail", topic, "--key", "1/7", "--from", "start"))) == 10
    assert lines(run("tail", topic, "--key", "no such")) == []


def test_tail_from_a_time(run: Run, bootstrap: str, topic: str) -> None:
    now = datetime.now(UTC)
    with Producer(Connection(bootstrap=bootstrap)) as producer:
        for minutes in (60, 30, 10, 1):
            micros = int((now - timedelta(minutes=minutes)).timestamp() * 1e6)
            producer.send(topic, position(f"m/{minutes}"), key=f"m/{minutes}".encode(), timestamp=micros)

    def keys(since: str, *more: str) -> set[str]:
        return {record["key"] for record in lines(run("tail", topic, "--from", since, *more))}

    assert keys("start") == {"m/60", "m/30", "m/10", "m/1"}
    assert keys("15m ago") == {"m/10", "m/1"}
    assert keys((now - timedelta(minutes=40)).isoformat()) == {"m/30", "m/10", "m/1"}
    assert keys("now") == set()
    assert len(keys("start", "-n", "2")) == 2


def test_tail_shows_what_it_cannot_decode_and_goes_on(run: Run, bootstrap: str, topic: str) -> None:
    unknown = b'{"event_timestamp":"2026-03-01T00:00:00Z","details":{"@type":"x/no.Such"}}'
    bad: list[tuple[str | None, bytes | None]] = [
        (None, b"rubbish \xff\x00"),
        ("empty", None),
        ("json", b"{not json"),
        ("unknown", unknown),
        ("nothing", b""),
        ("token", b'{"batch": 7}'),
    ]
    write(bootstrap, topic, [*bad, ("good", position("good"))])
    with Producer(Connection(bootstrap=bootstrap)) as producer:
        producer.send(topic, b"\x00" * 300, key=b"\xff\xfe")
    shown = {record["key"]: record for record in lines(run("tail", topic))}
    assert len(shown) == 8
    assert shown["token"]["value"] == {"batch": 7}
    assert "undecodable" not in shown["token"]
    assert shown["unknown"]["undecodable"]["reason"]
    assert shown["good"]["details"]["vehicle_id"] == "good"
    assert shown[None]["undecodable"]["reason"] == "malformed"
    assert shown[None]["value"].startswith("rubbish")
    assert shown["empty"]["undecodable"]["reason"] == "empty_value"
    assert shown["json"]["undecodable"]["reason"] == "malformed_json"
    assert shown["\\xff\\xfe"]["value_size"] == 300


def test_tail_shows_dead_letters(run: Run, bootstrap: str) -> None:
    run("topics", "create", "input.dead-letter")
    codec = Codec(TypeRegistry(VehiclePosition))
    dead = codec.decode([b"rubbish"], types=["VehiclePosition"], job="test").dead
    write(bootstrap, "input.dead-letter", [(None, codec.encode_dead_letters(dead)[0].as_py())])
    record = lines(run("tail", "input.dead-letter", "-n", "1"))[0]
    assert record["details"]["reason"] == "malformed"
    assert record["details"]["job"] == "test"


def command(environment: dict[str, str], *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", *words],
        env=os.environ | environment | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_tail_follows_until_ctrl_c(environment: dict[str, str], bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [("before", position("before"))])
    process = command(environment, "tail", topic, "--follow")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["key"] == "before"
    write(bootstrap, topic, [("after", position("after"))])
    assert json.loads(process.stdout.readline())["key"] == "after"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == ExitCode.INTERRUPTED
    assert "Traceback" not in errors


def test_tail_into_head_ends_quietly(environment: dict[str, str], bootstrap: str, topic: str) -> None:
    write(bootstrap, topic, [(f"1/{n}", position(f"1/{n}")) for n in range(2000)])
    with command(environment, "tail", topic, "--from", "start") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith("{")
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(20) == 0


def test_simulate_writes_the_same_fleet_again(run: Run, bootstrap: str) -> None:
    words = ["simulate", "--vehicles", "7", "--seed", "3", "--start", "2026-03-01T06:00Z", "--for", "30", "--fast"]
    sent = lines(run(*words, "--json"))[-1]
    assert sent["positions"] >= 210  # some reports arrive twice
    assert sent["event_time"] >= "2026-03-01T06:00:30+00:00"

    def fleet() -> list[str]:
        shown = lines(run("tail", "input.vehicle-position", "-n", sent["positions"]))
        return sorted(json.dumps([record["event_timestamp"], record["details"]]) for record in shown)

    first = fleet()
    assert len(first) == sent["positions"]
    assert all("2026-03-01T06:00:" in event for event in first)
    run(*words)
    assert fleet() == first


def test_simulate_keeps_the_clock_and_stops_politely(environment: dict[str, str], run: Run, bootstrap: str) -> None:
    process = command(environment, "simulate", "--rate", "20", "--speed-up", "2", "--json")
    assert process.stderr is not None
    assert "10 vehicles drive" in process.stderr.readline()
    time.sleep(3)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    sent = json.loads(output.splitlines()[-1])
    # About 2 x 3 seconds of event time for 10 vehicles; the machine may be slow, but it cannot be ahead.
    assert 0 < sent["positions"] <= 10 * 2 * 6
    newest = lines(run("tail", "input.vehicle-position", "-n", "1"))[0]
    assert newest["ingestion_timestamp"] > "2026"


def test_a_chosen_port_that_is_taken_is_an_error(run: Run, bootstrap: str, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = run("broker", "start", "--port", port, "--data-dir", tmp_path / "other")
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert f"Port {port}" in result.stderr
    assert run("broker", "status", "--data-dir", tmp_path / "other").exit_code == ExitCode.BROKER


def test_a_data_directory_that_cannot_be_written_is_an_error(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    result = run("broker", "start", "--data-dir", tmp_path / "file" / "data")
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "file" in result.stderr
    assert "broker.data_directory" in result.stderr


def test_an_embedded_broker_beside_an_external_one_is_refused(run: Run, tmp_path: Path) -> None:
    result = run("broker", "start", HEADRACE_BROKER__BOOTSTRAP="kafka.example:9092")
    assert result.exit_code == ExitCode.CONFIG
    assert "HEADRACE_BROKER__BOOTSTRAP" in result.stderr


@pytest.mark.slow
def test_a_broker_that_dies_later_ends_the_followers(environment: dict[str, str], run: Run, tmp_path: Path) -> None:
    own = environment | {"HEADRACE_PATHS__HOME": str(tmp_path)}
    started = json.loads(run("broker", "start", "--port", "0", "--json", HEADRACE_PATHS__HOME=str(tmp_path)).stdout)
    process = command(own, "simulate", "--vehicles", "5")
    try:
        assert process.stderr is not None
        process.stderr.readline()
        time.sleep(2)
        os.kill(started["pid"], signal.SIGKILL)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == ExitCode.BROKER
    assert "Cannot reach Kafka" in errors
    assert "Traceback" not in errors
    status = run("broker", "status", HEADRACE_PATHS__HOME=str(tmp_path))
    assert status.exit_code == ExitCode.BROKER
