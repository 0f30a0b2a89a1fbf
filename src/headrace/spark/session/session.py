"""The Spark session that Headrace's queries run in.

Every setting here was measured or is needed; the reason stands beside it. Anything can be overridden by `extra`.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

from headrace.dev import JarCache
from headrace.errors import ConfigError
from headrace.kafka import SPARK_REDACTION
from headrace.spark.checkpoint.local_files import CLASS as LOCAL_FILES
from headrace.spark.checkpoint.local_files import local_files_jar
from headrace.spark.session.java_logs import log_configuration
from headrace.spark.state.state_server import PLUGIN, state_server_jar, warn_of_leak

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.logs import LogFormat

_STATE = "spark.sql.streaming.stateStore"
#: The jars of our own classes that the running Java process was started with; it can load no others.
_java_has: tuple[Path, ...] = ()
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


def spark_settings(
    *,
    jars: Sequence[Path] = (),
    state_partitions: int,
    driver_memory: str,
    local_directory: Path,
    state_memory_mb: int = 512,
    thrifty: bool = True,
    log_format: LogFormat = "text",
) -> dict[str, str]:
    """Tell the settings of a session.

    Args:
        jars: Jars that a job's own Spark code needs. Headrace reads and writes Kafka without any.
        state_partitions: How many partitions state is kept in; as many as there are cores, and no more.
        driver_memory: Heap of the driver, which in local mode is the whole engine.
        local_directory: Where Spark puts shuffle files and temporary state.
        state_memory_mb: Memory of the state store, which is beside the heap, for all partitions together.
        thrifty: Let Java compile quickly rather than well, and Spark interpret plans rather than write code for them.
            What both do for our stages is planning and passing on a few rows, in code that runs a few times a second:
            the time that it takes to make it better never comes back. Not for sessions in which Spark's own operators
            do the work.
        log_format: How Java writes its log.
    """
    logs = log_configuration(log_format, local_directory)
    compiler = " -XX:TieredStopAtLevel=1" if thrifty else ""
    interpreted = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    return {
        **({"spark.jars": ",".join(str(jar) for jar in jars)} if jars else {}),
        "spark.driver.memory": driver_memory,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(local_directory),
        "spark.sql.session.timeZone": "UTC",
        # Neither plans nor logs show how to get into Kafka.
        "spark.redaction.regex": SPARK_REDACTION,
        "spark.sql.redaction.options.regex": SPARK_REDACTION,
        "spark.sql.shuffle.partitions": str(state_partitions),
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        # A batch then writes what it changed and not a snapshot of everything.
        f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
        # Without a bound every partition's store has caches of its own, beside the heap.
        f"{_STATE}.rocksdb.boundedMemoryUsage": "true",
        f"{_STATE}.rocksdb.maxMemoryUsageMB": str(state_memory_mb),
        # Hadoop's local file system starts a process for every symbolic link it looks at; this manager does not look.
        "spark.sql.streaming.checkpointFileManagerClass": f"{_CHECKPOINTING}.FileSystemBasedCheckpointFileManager",
        # Fewer, larger hand-overs to Python: an Arrow stage is given a task's rows in a few batches.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.sql.streaming.numRecentProgressUpdates": "20",
        "spark.python.worker.reuse": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.cleaner.periodicGC.interval": "10min",
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        # Stopping a query in the middle of a batch makes Spark search a long text by a recursive expression.
        "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile=file:{logs}{compiler}",
        **(interpreted if thrifty else {}),
    }


def start_session(name: str, *, master: str, settings: Mapping[str, str], python: str | None = None) -> SparkSession:
    """Start a session, or fail with the reason.

    Args:
        name: What Spark shows it as.
        master: "local[2]", "spark://host:7077", ...
        settings: From `spark_settings`, with what a user changed.
        python: The interpreter of executors; ours if not given.
    """
    # Workers must be this very interpreter, or they miss our packages; one thread each, since tasks already use all
    # cores.
    os.environ["PYSPARK_PYTHON"] = python or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if python is not None:
        # Java starts such an interpreter on this machine, too, for what plans batches: it must find our packages.
        os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from pyspark.sql import SparkSession

    chosen = _with_own_classes(master, settings)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    # It may be one that the caller had started before.
    warn_of_leak(session)
    return session


def _with_own_classes(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Add what lets Spark use our Java classes. A Java process can load only classes that it found when it started."""
    from pyspark import SparkContext

    global _java_has
    files_jar, server_jar = local_files_jar(JarCache().directory), state_server_jar(JarCache().directory)
    if SparkContext._gateway is None:  # noqa: SLF001 - pyspark has no other question
        _java_has = (files_jar, server_jar)
    chosen = dict(settings)
    if _java_has:
        _append(chosen, "spark.driver.extraClassPath", ":", *map(str, _java_has))
    if files_jar in _java_has and master.startswith("local"):
        chosen.setdefault("spark.hadoop.fs.file.impl", LOCAL_FILES)
    if server_jar in _java_has:
        _append(chosen, "spark.plugins", ",", PLUGIN)
        if not master.startswith("local"):
            _append(chosen, "spark.jars", ",", str(server_jar))  # executors fetch it from the driver
    return chosen


def _append(settings: dict[str, str], name: str, separator: str, *values: str) -> None:
    """Add values to a setting that is a list, behind those that are there."""
    settings[name] = separator.join([*filter(None, settings.get(name, "").split(separator)), *values])


def read_conf(path: Path) -> dict[str, str]:
    """Read a file of Spark settings: a name and a value per line, as in `spark-defaults.conf`.

    Raises:
        ConfigError: It cannot be read, or a line is no setting.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        what = f"spark.conf is {path}, which cannot be read: {problem}"
        raise ConfigError(what, hint="Name a text file.") from problem
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, *value = re.split(r"\s*=\s*|\s+", line.strip(), maxsplit=1)
        if not name or name.startswith("#"):
            continue
        if not value or not name.startswith("spark."):
            raise ConfigError(f"line {number} of {path} is {line.strip()!r}", hint="Write: spark.some.name value")
        found[name] = value[0]
    return found


def is_alive(spark: SparkSession) -> bool:
    """Tell whether a session's Java process is there and the session has not been stopped."""
    from py4j.protocol import Py4JError

    try:
        return not spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - pyspark has no other question
    except (Py4JError, OSError, AttributeError):
        return False


def forget_java() -> None:
    """Let the next session start a Java process of its own, after the one there was has died.

    pyspark keeps the connection to its Java process for as long as Python lives, also when that process is gone.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway  # noqa: SLF001 - pyspark has no other way
    if gateway is not None:
        gateway.shutdown()
    global _java_has
    _java_has = ()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
