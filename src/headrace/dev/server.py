"""How an embedded Kafka server is set up: its settings, its properties file, its command line.

One node has no replicas, so every replication factor is 1. It is often empty or nearly so: few internal partitions,
small indexes. It is often restarted: a short broker session, because after a kill the controller waits for the old
one to expire.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.dev.datadir import NODE_ID, DataDirectory
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.dev.java import Java

HOST = "127.0.0.1"

_MEMORY = re.compile(r"(?P<number>[1-9][0-9]*)(?P<unit>[mMgG])")
_LEAST_MEMORY_MB = 128


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """How an embedded broker runs.

    Args:
        data_dir: Where it keeps its data; made if it is not there.
        port: The port on 127.0.0.1, a free one if not given.
        port_fallback: Whether to take a free port when that one is taken.
        memory: The heap of the JVM, such as "512m" or "1g"; Kafka keeps its data in the page cache, so little is
            enough.
        start_timeout: Seconds to wait until it answers.
        stop_timeout: Seconds to wait for a clean end before it is killed.
        properties: Further Kafka settings, which win over ours.

    >>> from pathlib import Path
    >>> ServerSettings(data_dir=Path("data"), memory="lots")
    Traceback (most recent call last):
    headrace.errors.ConfigError: The broker's memory is 'lots'. Give a number with m or g, such as 512m.
    """

    data_dir: Path
    port: int | None = None
    port_fallback: bool = False
    memory: str = "512m"
    start_timeout: float = 60.0
    stop_timeout: float = 10.0
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if "," in str(self.data_dir):
            raise ConfigError(
                f"The broker's data directory {self.data_dir} has a comma in its name, which Kafka takes for a list",
                hint="Choose another directory (broker.data_directory).",
            )
        match = _MEMORY.fullmatch(self.memory)
        if match is None:
            raise ConfigError(
                f"The broker's memory is {self.memory!r}", hint="Give a number with m or g, such as 512m."
            )
        if int(match["number"]) * (1024 if match["unit"] in "gG" else 1) < _LEAST_MEMORY_MB:
            raise ConfigError(
                f"The broker's memory is {self.memory}",
                hint=f"Kafka needs at least {_LEAST_MEMORY_MB}m; 512m is usual.",
            )
        if self.port is not None and not 1 <= self.port <= 65535:
            raise ConfigError(f"The broker's port is {self.port}", hint="Give a number from 1 to 65535.")


def server_properties(data: DataDirectory, *, port: int, controller_port: int, extra: Mapping[str, str]) -> str:
    """The text of `server.properties`.

    Args:
        data: The broker's directory.
        port: Where clients connect.
        controller_port: Where the controller listens; only the broker itself connects there.
        extra: Settings that win over ours.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": str(NODE_ID),
        "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller_port}",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": str(data.kafka),
        # One node: nothing can be replicated, and few partitions suffice for what Kafka keeps about groups and
        # transactions.
        "default.replication.factor": "1",
        "min.insync.replicas": "1",
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "4",
        # Topics are declared: a typo in a name must not silently make one.
        "auto.create.topics.enable": "false",
        "num.partitions": "4",
        # A lone consumer need not wait for others to join its group.
        "group.initial.rebalance.delay.ms": "0",
        # The controller is in the same process; after a kill it must not wait the usual 9 s for the old broker to
        # expire.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        # A 1 MiB index holds a 256 MiB segment, and an empty partition then takes next to no disk.
        "log.segment.bytes": str(256 * 1024 * 1024),
        "log.index.size.max.bytes": str(1024 * 1024),
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "num.network.threads": "2",
        "num.io.threads": "4",
        "num.recovery.threads.per.data.dir": "2",
    }
    return "".join(f"{key}={_property(value)}\n" for key, value in (properties | dict(extra)).items())


def _property(value: str) -> str:
    r"""A value as Java reads it back from a properties file, which is Latin-1 and takes a backslash for an escape.

    >>> print(_property("größer"))
    gr\u00f6\u00dfer
    """
    escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    units = escaped.encode("utf-16-be")
    codes = [int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)]
    return "".join(chr(code) if 32 <= code < 127 else f"\\u{code:04x}" for code in codes)


def logging_configuration(data: DataDirectory, *, level: str = "INFO") -> str:
    """The text of `log4j2.xml`: one file, rolled at 10 MB, two old ones kept.

    Args:
        data: The broker's directory. The JVM runs in it, and no path of it is written here, since log4j reads a meaning
            into `$`, `%` and `#`.
        level: What is logged.
    """
    return f"""\
<Configuration status="WARN" shutdownHook="disable">
  <Appenders>
    <RollingFile name="file" fileName="{data.log_file.name}" filePattern="{data.log_file.name}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %p %m (%c{{1}})%n%throwable"/>
      <Policies><SizeBasedTriggeringPolicy size="10 MB"/></Policies>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Logger name="org.apache.kafka.common.config.AbstractConfig" level="WARN"/>
    <Root level="{level}"><AppenderRef ref="file"/></Root>
  </Loggers>
</Configuration>
"""


def java_command(
    java: Java,
    main: str,
    *arguments: str,
    jars: Sequence[Path],
    data: DataDirectory,
    memory: str,
    options: Sequence[str] = (),
) -> list[str]:
    """The command that runs a class of Kafka, in the broker's directory.

    Args:
        java: The Java to run.
        main: The class.
        arguments: Its arguments.
        jars: Its class path.
        data: The broker's directory.
        memory: The heap.
        options: Further options of the JVM.
    """
    return [
        str(java.executable),
        f"-Xmx{memory}",
        # A small heap on few cores: the simplest collector has the least overhead and starts fastest. The first
        # compiler saves a third of a start's work; batches only pass through a broker, so the second gained nothing.
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        "-Djava.net.preferIPv4Stack=true",
        f"-Djava.io.tmpdir={data.temporary}",
        f"-Dlog4j2.configurationFile={data.logging_file.name}",
        *options,
        "-cp",
        ":".join(str(jar) for jar in jars),
        main,
        *arguments,
    ]
