"""Starting an embedded broker, whether it is to end with us or to stay.

The steps are the same for a child and for a detached broker: check the directory and the port, get the jars, set up
Kafka's directory, start the JVM, wait until it answers. Until then it is a guarded child in both cases, and leaves
nothing behind when something fails.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.dev import archive
from headrace.dev.archive import ClassArchive
from headrace.dev.datadir import BrokerState, DataDirectory
from headrace.dev.diagnosis import explain, worst_line
from headrace.dev.jars import EMBEDDED_BROKER, JarCache, pinned
from headrace.dev.java import Java, find_java
from headrace.dev.ports import accepts, check_port, free_port
from headrace.dev.process import GuardedProcess
from headrace.dev.server import HOST, ServerSettings, java_command, logging_configuration, server_properties
from headrace.errors import BrokerError, EnvironmentProblem, HeadraceError
from headrace.kafka.connection import Connection

if TYPE_CHECKING:
    from headrace.dev.progress import Progress

log = logging.getLogger(__name__)

KAFKA_VERSION = next(
    jar.coordinate.version for jar in pinned(EMBEDDED_BROKER) if jar.coordinate.artifact == "kafka_2.13"
)

_FREE_PORT_ATTEMPTS = 3


class Launcher:
    """Starts a broker in a directory.

    Args:
        settings: How it runs.
        cache: Where its jars are.
        java: The Java to run on, found if not given.
        progress: Told what takes time.
    """

    def __init__(self, settings: ServerSettings, *, cache: JarCache, java: Java | None, progress: Progress) -> None:
        self.data = DataDirectory(settings.data_dir)
        self._settings = settings
        self._cache = cache
        self._java = java
        self._progress = progress

    def start(self, *, detached: bool) -> tuple[GuardedProcess, BrokerState]:
        """Start a broker and wait until it answers.

        Args:
            detached: Whether it is meant to outlive this process.

        Raises:
            BrokerError: Another broker uses the directory, or it did not become ready.
            EnvironmentProblem: Java, a jar, the port, the disk or the directory is at fault.
        """
        self.data.create()
        lock = self.data.acquire()
        try:
            self.data.prepare()
            port = self._port()
            java = self._java or find_java()
            jars = self._cache.get(EMBEDDED_BROKER, progress=self._progress)
            if not self.data.formatted:
                self._progress("setting up a new Kafka data directory")
                self.data.format(self._bootstrap_checkpoint(java, jars))
            attempts = _FREE_PORT_ATTEMPTS if self._settings.port is None or self._settings.port_fallback else 1
            while True:
                attempts -= 1
                try:
                    return self._attempt(lock, java, jars, port, detached=detached)
                except HeadraceError as error:
                    # A port that was free a moment ago may be taken now.
                    if attempts == 0 or "port was taken" not in error.message:
                        raise
                    port = self._port()
        finally:
            os.close(lock)

    def _attempt(
        self, lock: int, java: Java, jars: tuple[Path, ...], port: int, *, detached: bool
    ) -> tuple[GuardedProcess, BrokerState]:
        properties = server_properties(
            self.data, port=port, controller_port=free_port(), extra=self._settings.properties
        )
        with self.data.explained():
            self.data.clear_state()
            self.data.properties_file.write_text(properties, "utf-8")
            self.data.logging_file.write_text(logging_configuration(self.data), "utf-8")
            self.data.keep_old_log()
        options, draft = ClassArchive.of(java, jars, directory=self._cache.directory).options()
        command = java_command(
            java,
            "kafka.Kafka",
            str(self.data.properties_file),
            jars=jars,
            data=self.data,
            memory=self._settings.memory,
            options=options,
        )
        self._progress(f"starting Kafka {KAFKA_VERSION} at {HOST}:{port}")
        with self.data.explained(), self.data.out_file.open("wb") as out:
            process = GuardedProcess(
                command,
                grace=self._settings.stop_timeout,
                stdout=out,
                cwd=self.data.path,
                env=_environment(),
                # The lock of the directory, held by whoever lives longest.
                pass_fds=[lock],
            )
        try:
            self._await_ready(process, port)
            state = BrokerState(
                pid=process.pid,
                port=port,
                started_at=datetime.now(UTC).isoformat(timespec="seconds"),
                kafka_version=KAFKA_VERSION,
                detached=detached,
                class_archive=draft,
            )
            self.data.write_state(state)
        except BaseException:
            process.stop()
            if draft:
                archive.adopt(Path(draft), clean=False)
            raise
        log.info("Kafka %s runs at %s:%d, process %d, log %s", KAFKA_VERSION, HOST, port, state.pid, self.data.log_file)
        return process, state

    def _port(self) -> int:
        wanted = self._settings.port
        if wanted is None:
            return free_port()
        try:
            check_port(wanted, purpose="the broker")
        except EnvironmentProblem as error:
            if not self._settings.port_fallback:
                raise
            port = free_port()
            self._progress(f"{error.message}; using {port} instead")
            return port
        return wanted

    def _await_ready(self, process: GuardedProcess, port: int) -> None:
        deadline = time.monotonic() + self._settings.start_timeout
        connection = Connection(bootstrap=f"{HOST}:{port}")
        while time.monotonic() < deadline:
            code = process.poll()
            if code is not None:
                raise ended(self.data, code, "The embedded broker did not start")
            # The socket opens early, long before requests are answered; a connection is cheap to try.
            if accepts(port) and self._answers(connection, deadline):
                return
            time.sleep(0.03)
        known = explain(self.data.tail(), data=self.data.path)
        raise known or BrokerError(
            f"The embedded broker did not answer within {self._settings.start_timeout:g} s",
            hint=f"A slow machine needs a longer start_timeout; its log is {self.data.log_file}.",
        )

    @staticmethod
    def _answers(connection: Connection, deadline: float) -> bool:
        try:
            connection.check(timeout=max(0.5, min(5.0, deadline - time.monotonic())))
        except BrokerError:
            return False
        return True

    def _bootstrap_checkpoint(self, java: Java, jars: tuple[Path, ...]) -> bytes:
        """Kafka's initial feature levels, from its own tool: the same for every cluster, so it runs only once."""
        kept = self._cache.directory / f"kafka-{KAFKA_VERSION}.bootstrap"
        with contextlib.suppress(OSError):
            content = kept.read_bytes()
            if content:
                return content
        with tempfile.TemporaryDirectory(prefix="format-", dir=self.data.temporary) as work:
            scratch = DataDirectory(Path(work))
            scratch.temporary.mkdir()
            scratch.properties_file.write_text(
                server_properties(scratch, port=9092, controller_port=9093, extra={}), "utf-8"
            )
            scratch.logging_file.write_text(logging_configuration(scratch), "utf-8")
            command = java_command(
                java,
                "kafka.tools.StorageTool",
                *("format", "--cluster-id", "AAAAAAAAQACAAAAAAAAAAA", "--config", str(scratch.properties_file)),
                jars=jars,
                data=scratch,
                memory="128m",
            )
            done = subprocess.run(
                command, cwd=work, env=_environment(), capture_output=True, text=True, timeout=120, check=False
            )
            made = scratch.kafka / "bootstrap.checkpoint"
            if done.returncode != 0 or not made.exists():
                said = worst_line((done.stdout + done.stderr).splitlines())
                raise BrokerError(
                    f"Kafka's storage tool ended with {done.returncode}: {said}",
                    hint="Run `headrace doctor`; it checks Java and the jars.",
                )
            content = made.read_bytes()
            with contextlib.suppress(OSError):  # a shared cache may be read-only
                draft = kept.with_suffix(f".{os.getpid()}.draft")
                draft.write_bytes(content)
                draft.replace(kept)
        return content


def _environment() -> dict[str, str]:
    """Without a locale, Java cannot open a file whose name is not plain ASCII."""
    return os.environ | {"LC_ALL": "C.UTF-8"}


def ended(data: DataDirectory, code: int, what: str) -> HeadraceError:
    """The error for a broker that has ended by itself.

    Args:
        data: Its directory, where its logs are.
        code: Its exit status.
        what: The beginning of the message, for a cause that is not known.
    """
    lines = data.tail()
    known = explain(lines, data=data.path)
    if known is not None:
        return known
    said = worst_line(lines)
    return BrokerError(
        f"{what} (exit status {code})" + (f": {said}" if said else ""), hint=f"Its log is {data.log_file}."
    )
