from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ExitCode
from headrace.ingest import Cause, RawMessage
from headrace.ingest.recording import Recording, format_line

if TYPE_CHECKING:
    from tests.ingest.conftest import Mosquitto

    from headrace.dev import EmbeddedBroker


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: object) -> Result:
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def recorded(path: Path, count: int = 100) -> list[RawMessage]:
    messages = [
        RawMessage(
            f"/hfp/v2/journey/ongoing/vp/bus/7302/{n % 9:05}",
            b'{"VP":{"tst":"2024-02-13T16:33:00.000Z","odo":%d}}' % n,
            1_707_841_980_000_000 + n * 1000,
        )
        for n in range(count)
    ]
    path.write_bytes(b"".join(map(format_line, messages)) + b"2024-02-13T16:3")
    return messages


def feeds(home: Path, **replay: Any) -> Path:
    path = home / "feeds.toml"
    settings = ", ".join(f"{key} = {json.dumps(value)}" for key, value in replay.items())
    path.write_text(f'[[feed]]\nconnector = "replay"\nprocessor = "hfp"\nreplay = {{{settings}}}\n')
    return path


def last_line(result: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.broker
def test_replay_and_ingest_bring_a_recording_to_kafka(home: Path, broker: EmbeddedBroker) -> None:
    recorded(home / "a.dump")
    where = ("--bootstrap", broker.connection.bootstrap)
    told = run("replay", "a.dump", "--fast", "--copies", 3, *where)
    assert told.exit_code == 0, told.output
    assert "300 messages, 300 events" in told.output
    assert "torn end" in told.output
    assert last_line(run("replay", "a.dump", "--fast", "--keep-times", "--json", *where))["events"] == 100
    for words in (["--align"], ["--align-on", "arrival"]):
        assert last_line(run("replay", "a.dump", "a.dump", "--fast", *words, "--json", *where))["events"] == 200
    (home / "b.dump").write_bytes(format_line(RawMessage("/a", b"{}", 0)))
    assert run("replay", "a.dump", "b.dump", "--fast", "--align", *where).exit_code == ExitCode.CONFIG
    assert last_line(run("ingest", feeds(home, paths=["a.dump"], speed=1000), "--json", *where))["events"] == 100


def test_a_check_needs_no_kafka(home: Path) -> None:
    recorded(home / "a.dump")
    result = run("ingest", feeds(home, paths=["a.dump"]), "--check")
    assert result.exit_code == 0
    assert "2024-02-13 16:33:00" in result.output
    assert run("ingest", feeds(home, paths=["b.dump"]), "--check").exit_code == ExitCode.ENVIRONMENT


def test_a_check_tries_every_feed_and_tells_what_becomes_of_it(home: Path) -> None:
    recorded(home / "a.dump")
    path = home / "feeds.toml"
    path.write_text(
        """
        [[feed]]
        name = "away"
        connector = "mqtt"
        processor = "hfp"
        mqtt = {host = "127.0.0.1", port = 1, topics = ["/a"]}

        [[feed]]
        name = "table"
        connector = "replay"
        processor = "json"
        replay = {paths = ["a.dump"]}
        json = {topic = "input.table", fields = {n = {field = "VP.odo", type = "i64"}}}
        """
    )
    result = run("ingest", "--config", path, "--check")
    assert result.exit_code != 0
    assert "away: FAILED: cannot reach the MQTT broker" in result.output
    assert "json -> input.table" in result.output
    assert "columns: n Int64" in result.output
    assert run("ingest").exit_code == ExitCode.USAGE


@pytest.mark.broker
def test_a_mapping_brings_records_to_kafka(home: Path, broker: EmbeddedBroker) -> None:
    import polars as pl

    from headrace.events import Codec, Record
    from headrace.kafka import Consumer

    (home / "parcels.csv").write_text("at,parcel,grams\n10,p1,250\n11,p2,x\n12,p1,300\n")
    path = home / "feeds.toml"
    path.write_text(
        """
        [[feed]]
        name = "parcels"
        connector = "replay"
        processor = "csv"

        [feed.replay]
        paths = ["parcels.csv"]
        form = "csv"
        time = {field = "at", format = "epoch_s"}
        speed = inf

        [feed.csv]
        topic = "input.parcels"
        columns = ["at", "parcel", "grams"]
        time = {field = "at", format = "epoch_s"}
        key = ["parcel"]
        fields = {parcel = "str", mass = {field = "grams", type = "f64", unit = "g"}}
        """
    )
    told = last_line(run("ingest", path, "--json", "--bootstrap", broker.connection.bootstrap))
    assert (told["events"], told["dismissed"], told["dead_letters"]) == (2, {"bad_value": 1}, 1)
    with Consumer(broker.connection, ["input.parcels"], start="beginning") as consumer:
        records = list(consumer)
    assert [record.key for record in records] == [b"p1", b"p1"]
    columns = pl.Schema({"parcel": pl.String, "mass": pl.Float64})
    frame = Codec().decode([record.value for record in records], types=[Record], columns=columns).frame
    assert frame.select(*columns).rows() == [("p1", 0.25), ("p1", 0.3)]


def test_the_fleet_into_a_file_and_back(home: Path) -> None:
    words = ("simulate", "--vehicles", 20, "--for", 20, "--fast", "--start", "2026-05-01T06:00:00Z")
    told = last_line(run(*words, "--to", "fleet.dump.gz", "--json"))
    found = list(Recording(home / "fleet.dump.gz"))
    assert len(found) == told["messages"] > 400
    from headrace_transit.hfp import HfpProcessor

    # Traffic lights and drivers are no events of these topics.
    assert {d.cause for d in HfpProcessor().process(found).dismissed.values()} <= {Cause.OTHER_EVENT}
    assert "headrace replay fleet.dump" in run(*words, "--to", "fleet.dump").output
    assert run(*words, "--to", "nothing://a/b").exit_code == ExitCode.CONFIG
    assert run(*words, "--to", "mqtt://127.0.0.1:1").exit_code == ExitCode.BROKER
    assert run(*words, "--to", "mqtt://127.0.0.1/topic").exit_code == ExitCode.CONFIG


@pytest.mark.broker
def test_the_fleet_over_mqtt_to_kafka_with_metrics(home: Path, mosquitto: Mosquitto, broker: EmbeddedBroker) -> None:
    import httpx

    from headrace.dev.ports import free_port

    path = home / "feeds.toml"
    path.write_text(
        f'[[feed]]\nname = "fleet"\nconnector = "mqtt"\nprocessor = "hfp"\nhfp = {{max_behind = "10000d"}}\n'
        f'mqtt = {{host = "127.0.0.1", port = {mosquitto.port}, topics = ["/hfp/#"], client_id = "ingester"}}\n'
    )
    metrics = free_port()
    words = [str(path), "--metrics-port", str(metrics), "--bootstrap", broker.connection.bootstrap, "--json"]
    ingester = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "ingest", *words],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 60
        while " ingester 1 /hfp/#" not in mosquitto.log():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        result = run(
            "simulate", "--vehicles", 20, "--for", 20, "--fast", "--start", "2026-05-01T06:00:00Z", "--json",
            "--to", f"mqtt://127.0.0.1:{mosquitto.port}",
        )  # fmt: skip
        sent = last_line(result)["messages"]
        while f'headrace_ingest_messages_total{{feed="fleet"}} {float(sent)}' not in (
            text := httpx.get(f"http://127.0.0.1:{metrics}/metrics").text
        ):
            assert time.monotonic() < deadline, text
            time.sleep(0.1)
        assert 'headrace_ingest_events_total{feed="fleet",topic="input.vehicle-position"}' in text
        assert 'headrace_ingest_connected{feed="fleet"} 1.0' in text
    finally:
        ingester.send_signal(signal.SIGTERM)
        out, _ = ingester.communicate(timeout=30)
    assert ingester.returncode == 0
    told = json.loads(out.splitlines()[-1])
    assert told["events"] + told["dismissed"].get("other_event", 0) == sent


def test_record_writes_what_arrives(home: Path) -> None:
    messages = recorded(home / "a.dump")
    result = run("record", feeds(home, paths=["a.dump"], speed=1000), "out", "--json")
    assert result.exit_code == 0, result.output
    (file,) = last_line(result)["files"]
    assert list(Recording(file)) == messages


def test_record_from_mqtt(home: Path, mosquitto: Mosquitto) -> None:
    path = home / "feeds.toml"
    path.write_text(
        f'[[feed]]\nconnector = "mqtt"\nprocessor = "hfp"\nmqtt = {{host = "127.0.0.1", port = {mosquitto.port}, '
        'topics = ["/a/#"], client_id = "recorder"}\n'
    )
    from tests.ingest.test_mqtt import Publisher

    assert run("record", path, "out", "--for", 0.01).exit_code == 0  # now there is a session
    publisher = Publisher(mosquitto)
    sent = publisher.publish(0, 100)
    publisher.settle()
    publisher.close()
    result = run("record", path, "out", "--for", 1, "--json")
    found = [message for file in last_line(result)["files"] for message in Recording(file)]
    assert {message.payload for message in found} == sent


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["replay", "none.dump"], ExitCode.ENVIRONMENT),
        (["replay", "a.dump", "--fast", "--speed", "2"], ExitCode.USAGE),
        (["replay", "a.dump", "--speed", "0"], ExitCode.CONFIG),
        (["replay", "a.dump", "--offset", "soon"], ExitCode.USAGE),
        (["replay", "a.dump"], ExitCode.BROKER),
        (["ingest", "none.toml"], ExitCode.ENVIRONMENT),
        (["record", "feeds.toml", "out", "--feed", "x"], ExitCode.USAGE),
    ],
)
def test_wrong_words(home: Path, words: list[str], code: ExitCode) -> None:
    recorded(home / "a.dump")
    feeds(home, paths=["a.dump"])
    assert run(*words).exit_code == code
