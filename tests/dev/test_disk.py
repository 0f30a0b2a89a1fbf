"""A full disk is a clear error, at the start and later.

Two real ways to run out of room: a small file system in memory, where we may mount one, and a limit on the size of
files, which needs no rights.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import BrokerError, EnvironmentProblem
from headrace.kafka import Producer, Topics, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.broker


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a file system of some megabytes."""
    path = tmp_path / "small"
    path.mkdir()

    def make(megabytes: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"may not mount a file system: {done.stderr.strip()}")
        return path

    yield make
    subprocess.run(["umount", "-l", str(path)], capture_output=True, check=False)


def until_it_ends(broker: EmbeddedBroker) -> None:
    while True:
        broker.check()
        time.sleep(0.01)


def test_a_disk_without_room_is_refused_at_the_start(mount: Callable[[int], Path]) -> None:
    path = mount(16)
    with pytest.raises(EnvironmentProblem, match=f"{path / 'data'} is full: 1[0-9] MB are left") as caught:
        EmbeddedBroker(ServerSettings(data_dir=path / "data")).start()
    assert "broker.data_directory" in caught.value.hint
    (path / "ballast").write_bytes(b"x" * 16_000_000)
    with pytest.raises(EnvironmentProblem, match="is full"):
        EmbeddedBroker(ServerSettings(data_dir=path / "other")).start()


def test_a_disk_that_fills_up_is_the_reason_given(mount: Callable[[int], Path]) -> None:
    path = mount(80)
    with EmbeddedBroker(ServerSettings(data_dir=path / "data")) as broker:
        Topics(broker.connection).ensure([TopicSpec(name="a", partitions=1)])
        producer = Producer(broker.connection, compression="none", delivery_timeout=4)
        for _ in range(100):
            producer.send("a", b"x" * 900_000)
        with pytest.raises(BrokerError):
            producer.flush()
        producer.discard()
        with pytest.raises(EnvironmentProblem, match=f"data directory {path / 'data'} is full"):
            until_it_ends(broker)


def test_a_limit_on_files_is_reported_as_a_full_disk(tmp_path: Path) -> None:
    script = """
import resource, sys
from pathlib import Path
from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.kafka import Producer, Topics, TopicSpec
from headrace.errors import BrokerError, EnvironmentProblem

limit = 16_000_000
broker = EmbeddedBroker(ServerSettings(data_dir=Path(sys.argv[1])))
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
with broker:
    Topics(broker.connection).ensure([TopicSpec(name="a", partitions=1)])
    producer = Producer(broker.connection, compression="none", delivery_timeout=3)
    try:
        for _ in range(40):
            producer.send("a", b"x" * 900_000)
        producer.flush()
    except BrokerError as error:
        print("producer:", error)
    producer.discard()
    try:
        while True:
            broker.check()
    except EnvironmentProblem as error:
        print("broker:", error)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "producer: " in done.stdout
    assert f"broker: The disk of the broker's data directory {tmp_path / 'data'} is full" in done.stdout
