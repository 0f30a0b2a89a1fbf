"""Whether a user's Spark session can run our stages; asked before a query is built on it.

A session that Headrace starts has the settings that our stages need (`session`). The session of a user, to which
`Stream.to_spark` gives a DataFrame, may lack them, and Spark notices that only when the first batch runs, in an error
of its own. So two things are looked at first: the state store, since `transformWithState` works with RocksDB only, and
the Python of the workers, which must be able to import what the driver imports.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from headrace.errors import ConfigError, EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Sessions whose workers were asked and can import Headrace.
_capable: WeakSet[Any] = WeakSet()


def check_state_store(spark: SparkSession) -> None:
    """See that a session keeps the state of streaming queries in RocksDB.

    Raises:
        ConfigError: It does not.
    """
    provider = spark.conf.get(PROVIDER) or ""
    if "RocksDB" not in provider.rpartition(".")[2]:
        raise ConfigError(
            f"to_spark: the session keeps state in {provider}, and stateful streams need RocksDB",
            hint=f'Set it before the query starts: spark.conf.set("{PROVIDER}", "{ROCKSDB}").',
        )


def check_workers(spark: SparkSession) -> None:
    """See that the Python workers of a session can import Headrace, by a job of one row; once per session.

    Raises:
        EnvironmentProblem: They cannot be started, or miss a package.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    if spark in _capable:
        return
    try:
        asked = spark.range(1, numPartitions=1).mapInArrow(_import_probe(), "problem string, python string")
        problem, python = asked.collect()[0]
    except (PySparkException, Py4JJavaError) as failure:
        raise _unable(_reason(str(failure))) from failure
    if problem:
        raise _unable(f"{problem} (its Python is {python})")
    _capable.add(spark)


def _import_probe() -> Any:
    """Make a function that tells what a worker cannot import; it refers to nothing of this module.

    Spark then sends its code instead of its name, so that it runs where Headrace is missing.
    """

    def probe(_: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        try:
            import headrace.spark.stages.stage_turn  # noqa: F401
        except ImportError as problem:
            found = str(problem)
        else:
            found = ""
        yield pa.RecordBatch.from_pydict({"problem": [found], "python": [sys.executable]})

    return probe


def _unable(reason: str) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"to_spark: Spark's Python workers cannot run Headrace: {reason}",
        hint="Set PYSPARK_PYTHON (or spark.pyspark.python) to a Python that has it before the session starts; here "
        f"that is {sys.executable}. On a cluster, install Headrace on every worker, or ship its environment.",
    )


def _reason(text: str) -> str:
    """Find the line of a failure that says why; Spark puts stack traces around it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = ("ModuleNotFoundError", "ImportError", "PYTHON_VERSION_MISMATCH", "Cannot run program")
    return next((line for line in lines if any(word in line for word in telling)), lines[0] if lines else "no reason")
