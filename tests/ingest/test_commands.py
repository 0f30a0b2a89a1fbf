from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.errors import ExitCode
from headrace.ingest import RawMessage
from headrace.ingest.recording import Recording, format_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ingest.conftest import Mosquitto

    from headrace.broker import EmbeddedBroker


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
    assert last_line(run("ingest", feeds(home, paths=["a.dump"], speed=1000), "--json", *where))["events"] == 100


def test_a_check_needs_no_kafka(home: Path) -> None:
    recorded(home / "a.dump")
    result = run("ingest", feeds(home, paths=["a.dump"]), "--check")
    assert result.exit_code == 0
    assert "2024-02-13 16:33:00" in result.output
    assert run("ingest", feeds(home, paths=["b.dump"]), "--check").exit_code == ExitCode.ENVIRONMENT


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
