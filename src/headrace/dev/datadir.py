"""The directory of an embedded broker: its data, its lock, and what others may know about it.

    data/
      kafka/              Kafka's own files: topics and the metadata log
      server.properties   made anew at each start
      log4j2.xml          likewise
      broker.log          what Kafka logs, rolled at 10 MB
      broker.out          what the JVM itself says
      broker.lock         locked as long as the broker lives
      broker.json         process id, port and start time of the broker, for other processes

The lock is a file lock that the broker's process inherits: the kernel releases it when the last holder is gone,
however it died. So "is a broker running here" has an exact answer, and a `broker.json` without the lock is known to
be stale.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import time
import uuid
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.errors import BrokerError, EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MINIMUM_FREE = 64 * 1024 * 1024
"""Bytes that must be free to start: Kafka stops for good when it cannot write, so it had better not start."""

NODE_ID = 1


@dataclass(frozen=True, kw_only=True)
class BrokerState:
    """What a running broker tells other processes.

    Args:
        pid: Its process id.
        port: The port on 127.0.0.1 that it listens on.
        started_at: When it was ready, in ISO 8601, UTC.
        kafka_version: The version of Kafka.
        detached: Whether it stays when the process that started it ends.
        class_archive: Where it leaves its class data when it ends; see `headrace.dev.archive`.
    """

    pid: int
    port: int
    started_at: str
    kafka_version: str
    detached: bool
    class_archive: str = ""

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"


class DataDirectory:
    """The directory of one embedded broker.

    Args:
        path: Where it is; made when a broker is started.

    >>> from pathlib import Path
    >>> DataDirectory(Path("/srv/data")).log_file.as_posix()
    '/srv/data/broker.log'
    """

    def __init__(self, path: Path) -> None:
        self.path = path.expanduser().absolute()

    @property
    def kafka(self) -> Path:
        """Kafka's own directory (`log.dirs`)."""
        return self.path / "kafka"

    @property
    def properties_file(self) -> Path:
        """The settings of the last start."""
        return self.path / "server.properties"

    @property
    def logging_file(self) -> Path:
        """What is logged and where."""
        return self.path / "log4j2.xml"

    @property
    def log_file(self) -> Path:
        """What Kafka logs."""
        return self.path / "broker.log"

    @property
    def out_file(self) -> Path:
        """What the JVM says on its own: crashes, memory, bad options."""
        return self.path / "broker.out"

    @property
    def temporary(self) -> Path:
        """For the native libraries that Kafka unpacks; emptied at each start."""
        return self.path / "tmp"

    @property
    def _lock_file(self) -> Path:
        return self.path / "broker.lock"

    @property
    def _state_file(self) -> Path:
        return self.path / "broker.json"

    def create(self) -> None:
        """Make the directory, if it is not there.

        Raises:
            EnvironmentProblem: It cannot be made.
        """
        with self.explained():
            self.kafka.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """See that the directory can be written and has room; only for who holds its lock.

        Raises:
            EnvironmentProblem: It cannot be used, with the reason.
        """
        with self.explained():
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary.mkdir(exist_ok=True)
            probe = self.kafka / ".headrace-probe"
            probe.write_bytes(b"can this be written?" * 4096)
            probe.unlink()
            free = shutil.disk_usage(self.kafka).free
        if free < MINIMUM_FREE:
            raise _no_space(self.path, f"{free / 1e6:.0f} MB are left, a broker needs {MINIMUM_FREE / 1e6:.0f} MB")

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an `OSError` of writing here into an error that says what to do.

        Raises:
            EnvironmentProblem: Writing failed.
        """
        try:
            yield
        except (EnvironmentProblem, BrokerError):
            raise
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _no_space(self.path, error.strerror or str(error)) from error
            raise EnvironmentProblem(
                f"Cannot write the broker's data directory {self.path}: {error.strerror} ({error.filename})",
                hint="Choose another directory (broker.data_directory), or make it writable for you.",
            ) from error

    def acquire(self, *, patience: float = 0.5) -> int:
        """Lock the directory for a broker.

        Args:
            patience: Seconds to try; a look at the status holds the lock for a moment, too.

        Returns:
            The locked file's descriptor, to be inherited by the broker and closed here.

        Raises:
            BrokerError: A broker is running here.
            EnvironmentProblem: The lock cannot be written.
        """
        with self.explained():
            descriptor = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.02)
                    continue
                os.close(descriptor)
                state = self.read_state()
                who = f"process {state.pid}, {state.bootstrap}" if state else "it is just starting"
                raise BrokerError(
                    f"The data directory {self.path} is in use by another broker ({who})",
                    hint="Use that one, stop it (`headrace broker stop`), or set broker.data_directory to another one.",
                ) from None
            return descriptor

    def in_use(self) -> bool:
        """Whether a broker is running (or starting) here."""
        try:
            descriptor = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def read_state(self) -> BrokerState | None:
        """What the last broker here told; look at `in_use`, too, for it may be gone."""
        try:
            content = json.loads(self._state_file.read_text("utf-8"))
            return BrokerState(**content)
        except (OSError, ValueError, TypeError):
            return None

    def write_state(self, state: BrokerState) -> None:
        """Tell other processes about the running broker."""
        with self.explained():
            draft = self._state_file.with_suffix(".draft")
            draft.write_text(json.dumps(asdict(state), indent=2) + "\n", "utf-8")
            draft.replace(self._state_file)

    def keep_old_log(self) -> None:
        """Put the log of the last broker aside, so that what is in the log is of this one."""
        with contextlib.suppress(FileNotFoundError):
            self.log_file.replace(self.log_file.with_suffix(".log.old"))

    def clear_state(self) -> None:
        """Forget the broker that ran here."""
        with contextlib.suppress(FileNotFoundError):
            self._state_file.unlink()

    @property
    def formatted(self) -> bool:
        """Whether Kafka's directory was set up before: a second start continues with its topics."""
        return (self.kafka / "meta.properties").exists()

    def format(self, bootstrap_checkpoint: bytes) -> None:
        """Set up Kafka's directory for a new single-node cluster.

        Args:
            bootstrap_checkpoint: The feature levels to start with, as Kafka's own storage tool writes them.
        """
        with self.explained():
            (self.kafka / "bootstrap.checkpoint").write_bytes(bootstrap_checkpoint)
            # The last file: without it the directory does not count as formatted.
            draft = self.kafka / "meta.properties.draft"
            draft.write_text(
                f"version=1\nnode.id={NODE_ID}\ncluster.id={_kafka_uuid()}\ndirectory.id={_kafka_uuid()}\n", "utf-8"
            )
            draft.replace(self.kafka / "meta.properties")

    def tail(self, lines: int = 500) -> list[str]:
        """The last lines of what the JVM itself said, and of Kafka's log.

        Args:
            lines: How many of each.
        """
        result: list[str] = []
        for path in (self.out_file, self.log_file):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 256 * 1024))
                result += file.read().decode("utf-8", "replace").splitlines()[-lines:]
        return result


def _no_space(path: Path, detail: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"The disk of the broker's data directory {path} is full: {detail}",
        hint="Free some room, choose another directory (broker.data_directory), or lower the retention of the topics.",
    )


def _kafka_uuid() -> str:
    """A random id as Kafka writes it: 16 bytes in URL-safe base64, no dash at the start."""
    while True:
        text = urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        if not text.startswith("-"):
            return text
