"""A session whose Python workers cannot run Headrace is noticed before a query starts."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from headrace.errors import EnvironmentProblem
from headrace.spark.session.session import spark_settings, start_session
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)

#: Makes a Python that cannot find Headrace.
WITHOUT_HEADRACE = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "headrace":
            raise ModuleNotFoundError("No module named 'headrace'", name="headrace")

sys.meta_path.insert(0, Without())
"""


def _counted(stream: Stream) -> Stream:
    return stream.watermark(bounded("1s")).key_by("sensor").window(tumbling("10s")).aggregate(n=count())


@pytest.mark.parametrize("wrong", ["without headrace", "not there"])
def test_workers_that_cannot_run_headrace_are_noticed_before_a_query_starts(
    wrong: str, tmp_path: Path, jars: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_HEADRACE)
    python = tmp_path / "python"
    if wrong == "without headrace":
        python.write_text(f'#!/bin/sh\nPYTHONPATH="{tmp_path}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
        python.chmod(0o755)
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    settings = spark_settings(jars=jars, state_partitions=2, driver_memory="1g", local_directory=tmp_path / "local")
    session = start_session("wrong workers", master="local[1]", settings=settings, python=str(python))
    try:
        frame = session.createDataFrame([("a", START, 1.0)], "sensor string, at timestamp, value double")
        with pytest.raises(EnvironmentProblem) as caught:
            _counted(Stream.from_spark(frame, time="at")).to_spark(session)
    finally:
        session.stop()
    why = "No module named 'headrace'" if wrong == "without headrace" else f'Cannot run program "{python}"'
    assert why in caught.value.message
    assert "Set PYSPARK_PYTHON (or spark.pyspark.python)" in caught.value.hint
    assert f"here that is {sys.executable}" in caught.value.hint


#: Runs in a process of its own: what a Java process can load is decided when it starts.
SESSION_BEFORE = """
import logging, sys
from pathlib import Path
from pyspark.sql import SparkSession
from headrace.spark.session.session import spark_settings, start_session

logging.basicConfig()
SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
settings = spark_settings(jars=[], state_partitions=1, driver_memory="1g", local_directory=Path(sys.argv[1]))
start_session("headrace", master="local[1]", settings=settings).stop()
"""


def test_a_session_that_was_there_before_is_said_to_leak(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", SESSION_BEFORE, str(tmp_path)], capture_output=True, text=True, check=True, timeout=300
    )
    assert "leaks one socket per state task" in ended.stderr
