"""An embedded broker starts, stops, continues, and says what is wrong."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from headrace.dev import EmbeddedBroker, ServerSettings, detached
from headrace.dev.datadir import BrokerState, DataDirectory
from headrace.dev.ports import free_port
from headrace.errors import BrokerError, ConfigError, EnvironmentProblem
from headrace.kafka import Connection, Consumer, Producer, Topics, TopicSpec


def gone(pid: int, *, within: float = 20.0) -> bool:
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("memory", ["", "lots", "512", "-1m", "1.5g", "64m", "0g"])
def test_a_bad_memory_setting_is_refused(memory: str) -> None:
    with pytest.raises(ConfigError, match="memory"):
        ServerSettings(data_dir=Path("data"), memory=memory)


def test_a_directory_that_kafka_would_take_for_two_is_refused() -> None:
    with pytest.raises(ConfigError, match="comma"):
        ServerSettings(data_dir=Path("one,two"))


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_bad_port_is_refused(port: int) -> None:
    with pytest.raises(ConfigError, match=str(port)):
        ServerSettings(data_dir=Path("data"), port=port)


@pytest.mark.parametrize("where", ["/proc/headrace", "file/data"])
def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path, where: str) -> None:
    # Not by permissions, which do not hold root back: nobody can make a directory in /proc or below a file.
    (tmp_path / "file").write_text("in the way")
    path = tmp_path / where
    with pytest.raises(EnvironmentProblem, match=f"Cannot write the broker's data directory {path}") as caught:
        EmbeddedBroker(ServerSettings(data_dir=path)).start()
    assert "broker.data_directory" in caught.value.hint


def test_nothing_runs_where_nothing_was_started(tmp_path: Path) -> None:
    status = detached.status(tmp_path / "none")
    assert (status.running, status.stale, str(status)) == (False, False, "not running")
    assert detached.stop(tmp_path / "none") is None
    assert not (tmp_path / "none").exists()


def test_a_stale_state_file_is_noticed_and_cleared(tmp_path: Path) -> None:
    DataDirectory(tmp_path).write_state(
        # Our own process id: alive, but no broker.
        BrokerState(pid=os.getpid(), port=1, started_at="2026-01-01T00:00:00+00:00", kafka_version="4", detached=True)
    )
    status = detached.status(tmp_path)
    assert status.stale
    assert "died without being stopped" in str(status)
    assert detached.stop(tmp_path) is None
    assert not detached.status(tmp_path).stale


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": 1}', '{"unknown": 1}'])
def test_a_damaged_state_file_is_no_state(tmp_path: Path, content: str) -> None:
    (tmp_path / "broker.json").write_text(content)
    assert DataDirectory(tmp_path).read_state() is None


@pytest.mark.broker
def test_a_broker_starts_stops_and_continues(tmp_path: Path) -> None:
    data = tmp_path / "größer als 100 % #1 $x" / "data"
    broker = EmbeddedBroker(ServerSettings(data_dir=data))
    with pytest.raises(BrokerError, match="not running"):
        broker.check()
    with broker:
        broker.check()
        pid = broker.pid
        assert broker.connection == Connection(bootstrap=f"127.0.0.1:{broker.port}")
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(pid).net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        }
        assert listening == {"127.0.0.1"}
        Topics(broker.connection).ensure([TopicSpec(name="kept", partitions=1)])
        with Producer(broker.connection) as producer:
            producer.send("kept", b"first")
        with pytest.raises(BrokerError, match="already running"):
            broker.start()
        # Another process sees it.
        status = detached.status(data)
        assert (status.running, status.answers) == (True, True)
        assert f"running at {broker.bootstrap} (process {pid}" in str(status)
        # And cannot start a second one in the same place.
        with pytest.raises(BrokerError, match=f"in use by another broker .process {pid}, 127.0.0.1:{broker.port}"):
            EmbeddedBroker(ServerSettings(data_dir=data)).start()
        # An empty broker takes little disk.
        assert sum(file.stat().st_blocks * 512 for file in data.rglob("*")) < 5_000_000
    assert gone(pid, within=1)
    broker.stop()
    assert str(detached.status(data)) == "not running"
    assert "started" in broker.data.log_file.read_text()

    with EmbeddedBroker(ServerSettings(data_dir=data, port=free_port())) as again:
        with Producer(again.connection) as producer:
            producer.send("kept", b"second")
        with Consumer(again.connection, ["kept"]) as consumer:
            assert [record.value for record in consumer] == [b"first", b"second"]


@pytest.mark.broker
def test_a_taken_port_is_named_with_its_owner(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(EnvironmentProblem, match=f"Port {port} for the broker is taken by .*{os.getpid()}"):
            EmbeddedBroker(ServerSettings(data_dir=tmp_path / "a", port=port)).start()
        messages: list[str] = []
        settings = ServerSettings(data_dir=tmp_path / "a", port=port, port_fallback=True)
        with EmbeddedBroker(settings, progress=lambda message, /, **_: messages.append(message)) as broker:
            assert broker.port != port
        assert any(f"using {broker.settings.port}" in m or "instead" in m for m in messages)


@pytest.mark.broker
def test_a_broker_that_is_killed_is_noticed_and_recovers(tmp_path: Path) -> None:
    settings = ServerSettings(data_dir=tmp_path)
    broker = EmbeddedBroker(settings).start()
    Topics(broker.connection).ensure([TopicSpec(name="kept", partitions=1)])
    with Producer(broker.connection) as producer:
        producer.send("kept", b"acknowledged")
    os.kill(broker.pid, signal.SIGKILL)
    assert gone(broker.pid)
    guard_sees_it = time.monotonic() + 10
    while detached.status(tmp_path).running and time.monotonic() < guard_sees_it:
        time.sleep(0.01)
    with pytest.raises(BrokerError, match=r"has ended \(exit status 137\)"):
        broker.check()
    assert detached.status(tmp_path).stale
    broker.stop()
    with EmbeddedBroker(settings) as again, Consumer(again.connection, ["kept"]) as consumer:
        assert [record.value for record in consumer] == [b"acknowledged"]


@pytest.mark.broker
def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    broker = EmbeddedBroker(ServerSettings(data_dir=tmp_path, properties={"log.retention.ms": "soon"}))
    with pytest.raises(BrokerError, match=r"did not start \(exit status 1\).*log.retention.ms") as caught:
        broker.start()
    assert "broker.log" in caught.value.hint
    assert str(detached.status(tmp_path)) == "not running"
    # What belongs to another broker is not touched.
    (tmp_path / "kafka" / "meta.properties").write_text("version=1\nnode.id=99\ncluster.id=AAAAAAAAQACAAAAAAAAAAA\n")
    with pytest.raises(BrokerError, match="damaged or belongs to another broker"):
        EmbeddedBroker(ServerSettings(data_dir=tmp_path)).start()


@pytest.mark.broker
def test_without_java_no_broker_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvironmentProblem, match="Java was not found"):
        EmbeddedBroker(ServerSettings(data_dir=tmp_path / "data")).start()
    assert str(detached.status(tmp_path / "data")) == "not running"


@pytest.mark.broker
def test_a_killed_parent_leaves_no_process(tmp_path: Path) -> None:
    script = """
import sys, time
from pathlib import Path
from headrace.dev import EmbeddedBroker, ServerSettings
broker = EmbeddedBroker(ServerSettings(data_dir=Path(sys.argv[1]))).start()
print(broker.pid, flush=True)
time.sleep(300)
"""
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    broker = int(parent.stdout.readline())
    guard = psutil.Process(broker).ppid()
    assert guard != parent.pid
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone(broker)
    assert gone(guard)
    status = detached.status(tmp_path)
    assert (status.running, status.stale) == (False, True)


@pytest.mark.broker
def test_a_detached_broker_stays_and_is_stopped_by_another_process(tmp_path: Path) -> None:
    script = """
import sys
from pathlib import Path
from headrace.dev import ServerSettings, detached
print(detached.start(ServerSettings(data_dir=Path(sys.argv[1]))).pid)
"""
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    pid = int(done.stdout)
    time.sleep(1.2)  # longer than a guard needs to see that its parent is gone
    try:
        status = detached.status(tmp_path)
        assert status.state is not None
        assert (status.running, status.answers, status.state.pid, status.state.detached) == (True, True, pid, True)
        with pytest.raises(BrokerError, match="in use"):
            detached.start(ServerSettings(data_dir=tmp_path))
    finally:
        stopped = detached.stop(tmp_path)
    assert stopped == status.state
    assert gone(pid)
    assert str(detached.status(tmp_path)) == "not running"
    assert detached.stop(tmp_path) is None
