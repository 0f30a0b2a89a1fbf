"""An embedded Kafka: one node, started and stopped by us, for work without a cluster.

It is the real server (KRaft mode, broker and controller in one process), on 127.0.0.1 only, in a data directory of
the user's choice; a second start continues with the same topics. An `EmbeddedBroker` dies with its parent, even when
the parent is killed with SIGKILL. For one that stays, see `headrace.dev.detached`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from headrace.dev import archive
from headrace.dev.jars import JarCache
from headrace.dev.launcher import Launcher, ended
from headrace.dev.progress import Progress, silent
from headrace.errors import BrokerError
from headrace.kafka.connection import Connection

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.dev.datadir import BrokerState, DataDirectory
    from headrace.dev.java import Java
    from headrace.dev.process import GuardedProcess
    from headrace.dev.server import ServerSettings


class EmbeddedBroker:
    """A Kafka broker that lives as long as this object's `with` block, and never longer than this process.

    Args:
        settings: How it runs.
        cache: Where its jars are, the user's cache if not given.
        java: The Java to run on, found if not given.
        progress: Told what takes time.

    >>> with EmbeddedBroker(ServerSettings(data_dir=Path("data"))) as broker:  # doctest: +SKIP
    ...     broker.bootstrap
    '127.0.0.1:39217'
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        cache: JarCache | None = None,
        java: Java | None = None,
        progress: Progress = silent,
    ) -> None:
        self.settings = settings
        self._launcher = Launcher(settings, cache=cache or JarCache(java=java), java=java, progress=progress)
        self._process: GuardedProcess | None = None
        self._state: BrokerState | None = None

    @property
    def data(self) -> DataDirectory:
        """Its directory."""
        return self._launcher.data

    def start(self) -> Self:
        """Start it and wait until it answers.

        Returns:
            This broker.

        Raises:
            BrokerError: It is running already, another broker uses its directory, or it did not become ready.
            EnvironmentProblem: Java, a jar, the port, the disk or the directory is at fault.
        """
        if self._process is not None:
            raise BrokerError(f"This broker is already running at {self.bootstrap}")
        self._process, self._state = self._launcher.start(detached=False)
        return self

    def stop(self) -> None:
        """Stop it cleanly; does nothing when it is not running."""
        if self._process is None:
            return
        process, state = self._process, self._running
        self._process = self._state = None
        code = process.stop()
        self.data.clear_state()
        if state.class_archive:
            archive.adopt(Path(state.class_archive), clean=code in archive.CLEAN_EXITS)

    def check(self) -> None:
        """See that it is still running.

        Raises:
            EnvironmentProblem: It ended because the disk is full, or memory ran out.
            BrokerError: It ended for another reason, or is not started.
        """
        if self._process is None:
            raise BrokerError("The embedded broker is not running", hint="Call start() first.")
        code = self._process.poll()
        if code is not None:
            raise ended(self.data, code, f"The embedded broker at {self.bootstrap} has ended")

    @property
    def pid(self) -> int:
        """The process id of the JVM."""
        return self._running.pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._running.port

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return self._running.bootstrap

    @property
    def connection(self) -> Connection:
        """How clients connect."""
        return Connection(bootstrap=self.bootstrap)

    @property
    def _running(self) -> BrokerState:
        if self._state is None:
            raise BrokerError("The embedded broker is not running", hint="Call start() first.")
        return self._state

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
