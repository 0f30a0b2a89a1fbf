"""A real MQTT broker for the tests that need one."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")


class Mosquitto:
    """A broker on a free port that keeps sessions and messages on disk; it can be stopped and started again."""

    def __init__(self, folder: Path, *lines: str, anonymous: bool = True) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self._config = folder / "mosquitto.conf"
        self._log = folder / "mosquitto.log"
        usual = [
            f"listener {self.port} 127.0.0.1", "persistence true", f"persistence_location {folder}/",
            "max_inflight_messages 0", "max_queued_messages 0", "user root", f"log_dest file {self._log}",
            "log_type error", "log_type warning", "log_type notice", "log_type subscribe",
        ]  # fmt: skip
        self._config.write_text("\n".join([*usual, f"allow_anonymous {str(anonymous).lower()}", *lines]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen([MOSQUITTO, "-c", self._config])
        deadline = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, self._log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            else:
                return

    def log(self) -> str:
        return self._log.read_text()

    def forget(self) -> None:
        """Lose all sessions and messages; only while it is stopped."""
        assert self._process is None
        (self._config.parent / "mosquitto.db").unlink(missing_ok=True)

    def freeze(self) -> None:
        """Answer nobody, but keep connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self._process.terminate()
            self._process.wait(20)
            self._process = None


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    if MOSQUITTO is None:
        pytest.skip("mosquitto is not installed (scripts/mosquitto.sh)")
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    server = Mosquitto(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
