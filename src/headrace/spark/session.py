"""The Spark session that Headrace's queries run in.

Every setting here was measured or is needed; the reason stands beside it. Anything can be overridden by `extra`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker import SPARK_REDACTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

_LOG_CONFIGURATION = Path(__file__).with_name("log4j2.properties")
_STATE = "spark.sql.streaming.stateStore"
_CHECKPOINTING = "org.apache.spark.sql.execution.streaming.checkpointing"


def spark_settings(
    *, jars: Sequence[Path], state_partitions: int, driver_memory: str, local_directory: Path
) -> dict[str, str]:
    """Tell the settings of a session.

    Args:
        jars: Spark's Kafka connector with what it needs.
        state_partitions: How many partitions state is kept in; as many as there are cores, and no more.
        driver_memory: Heap of the driver, which in local mode is the whole engine.
        local_directory: Where Spark puts shuffle files and temporary state.
    """
    return {
        "spark.jars": ",".join(str(jar) for jar in jars),
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
        "spark.driver.extraJavaOptions": f"-Xss8m -Dlog4j2.configurationFile=file:{_LOG_CONFIGURATION}",
    }


def start_session(name: str, *, master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start a session, or fail with the reason.

    Args:
        name: What Spark shows it as.
        master: "local[2]", "spark://host:7077", ...
        settings: From `spark_settings`, with what a user changed.
    """
    # Workers must be this very interpreter, or they miss our packages; one thread each, since tasks already use all
    # cores.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


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
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = None  # noqa: SLF001
