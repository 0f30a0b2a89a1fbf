"""A project of one's own, outside the source tree, as a user runs it: a process, a real broker, real Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.dev.jars import default_directory
from headrace.events import Codec, Record
from headrace.events import Result as ResultMessage
from headrace.kafka import Consumer, Producer, Topics, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240
HELPERS = '''
import polars as pl


def with_weight(rows: pl.DataFrame) -> pl.DataFrame:
    """Letters weigh nothing."""
    return rows.with_columns(grams=pl.col("kind").replace_strict({"parcel": 1000}, default=0, return_dtype=pl.Int64))
'''
JOBS = """
import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.windows import sum as total
from helpers import with_weight

heavy = Job(
    "project-weights",
    Stream.topic("project.scans", schema={"depot": pl.String, "kind": pl.String})
    .watermark(bounded("1s"))
    .map_batches(with_weight)
    .key_by("depot")
    .window(tumbling("10s"))
    .aggregate(grams=total("grams")),
)
"""


class Project:
    """A directory with a project, and `headrace` in it."""

    def __init__(self, directory: Path, broker: EmbeddedBroker) -> None:
        self.directory = directory
        self.broker = broker
        (directory / "helpers.py").write_text(HELPERS)
        (directory / "jobs.py").write_text(JOBS)
        (directory / "headrace.toml").write_text('jobs = ["jobs.py"]\n[spark]\ndriver_memory = "800m"\n')
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PATHS__HOME": str(directory / ".headrace"),
            "HEADRACE_PATHS__JARS": str(default_directory()),
            "HEADRACE_BROKER__BOOTSTRAP": broker.connection.bootstrap,
        }

    def start(self, *words: str, cwd: str = ".") -> subprocess.Popen[str]:
        with (self.directory / "errors.txt").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *words],
                cwd=self.directory / cwd,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def tell(self, *words: str) -> tuple[int, str]:
        process = self.start(*words)
        said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, said + (self.directory / "errors.txt").read_text()

    def run_until(self, done: Callable[[dict[str, Any]], bool], *words: str, cwd: str = ".") -> None:
        """Run jobs until one of their reports satisfies a condition, then stop them in order."""
        process = self.start("run", *words, "--json", cwd=cwd)
        assert process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        try:
            for line in process.stdout:
                if done(json.loads(line)) or time.monotonic() > deadline:
                    break
        finally:
            process.terminate()
            process.communicate(timeout=60)
        assert process.returncode == 0, (self.directory / "errors.txt").read_text()

    def scan(self, *rows: tuple[int, str, str]) -> None:
        begin = datetime(2026, 1, 1, 12, tzinfo=UTC)
        frame = pl.DataFrame(
            {
                "event_time": [begin + timedelta(seconds=second) for second, _, _ in rows],
                "depot": [depot for _, depot, _ in rows],
                "kind": [kind for _, _, kind in rows],
            }
        ).with_columns(ingestion_time=pl.col("event_time"))
        with Producer(self.broker.connection) as producer:
            for value in Codec().encode(frame, Record).to_pylist():
                producer.send("project.scans", value)

    def results(self, topic: str) -> list[tuple[str, int]]:
        with Consumer(self.broker.connection, [topic]) as consumer:
            values = [record.value for record in consumer]
        frame = Codec().decode(values, types=[ResultMessage]).frame
        return [] if frame.is_empty() else sorted(frame.select("depot", "grams").rows())


@pytest.fixture
def project(tmp_path: Path, broker: EmbeddedBroker) -> Project:
    return Project(tmp_path, broker)


def test_a_job_of_ones_own_runs_with_a_function_of_a_helper_module(project: Project) -> None:
    code, said = project.tell("run", "jobs.py")
    assert code == 5
    assert "there is no topic project.scans, which the job project-weights reads" in said
    assert "headrace topics create project.scans" in said

    Topics(project.broker.connection).ensure([TopicSpec(name="project.scans", partitions=1)])
    project.scan((1, "north", "parcel"), (2, "north", "letter"), (3, "south", "parcel"), (4, "north", "parcel"))
    project.scan((30, "north", "parcel"))
    # From another directory: workers start where Spark does, and must find the modules all the same.
    (project.directory / "elsewhere").mkdir()
    project.run_until(lambda report: bool(report.get("results")), "../jobs.py:heavy", cwd="elsewhere")
    assert project.results("analytics.project-weights") == [("north", 2000), ("south", 1000)]

    # The same job by its name goes on from the same checkpoint.
    project.scan((60, "south", "letter"))
    project.run_until(lambda report: bool(report.get("results")), "project-weights")
    assert project.results("analytics.project-weights") == [("north", 1000), ("north", 2000), ("south", 1000)]
    checkpoints = (project.directory / ".headrace" / "checkpoints").glob("project-*")
    assert [path.name for path in checkpoints if path.is_dir()] == ["project-weights"]

    code, said = project.tell("tail", "jobs.py:heavy", "-n", "1")
    assert code == 0, said
    assert json.loads(said)["topic"] == "analytics.project-weights"
    code, said = project.tell("watermarks", "jobs.py", "--json")
    assert list(json.loads(said)) == ["project-weights"]
