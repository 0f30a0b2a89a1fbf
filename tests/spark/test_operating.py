"""A year of a job in some minutes: every command of docs/operating.md, in a project, as a user types it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.dev.jars import default_directory
from headrace.kafka import Consumer, Topics, TopicSpec
from headrace.kafka.producer import Producer

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dev import EmbeddedBroker

#: Five starts of the job, and as many of Spark for the other commands.
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(1200)]

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "operating.md"
PATIENCE = 240
JOBS = """
import polars as pl
from headrace.formats import json
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

scans = Stream.topic("scans", format=json({"depot": str, "weight": float}, time="at")).watermark(bounded("1s"))
counts = scans.filter(pl.col("weight") > 0).key_by("depot").window(tumbling("10s")).aggregate(n=count())
parcels = Job("parcels", counts.named("per-depot"))
"""


def commands() -> list[str]:
    """The commands that the page shows."""
    lines = PAGE.read_text("utf-8").splitlines()
    return [line.strip().removeprefix("headrace ") for line in lines if line.startswith("    headrace ")]


class Project:
    """A directory with the job, and `headrace` in it; takes note of what was run."""

    def __init__(self, directory: Path, broker: EmbeddedBroker) -> None:
        self.directory = directory
        self.broker = broker
        self.ran: Counter[str] = Counter()
        (directory / "jobs.py").write_text(JOBS)
        settings = '[spark]\ndriver_memory = "800m"\nmaster = "local[1]"\n'
        (directory / "headrace.toml").write_text(f'jobs = ["jobs.py"]\n{settings}')
        self._environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")} | {
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT / "transit" / "src")]),
            "HEADRACE_PATHS__HOME": str(directory / ".headrace"),
            "HEADRACE_PATHS__JARS": str(default_directory()),
            "HEADRACE_BROKER__BOOTSTRAP": broker.connection.bootstrap,
        }

    def start(self, command: str, *more: str) -> subprocess.Popen[str]:
        self.ran[command] += 1
        with (self.directory / "errors.txt").open("w") as errors:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace.cli", *shlex.split(command), *more],
                cwd=self.directory,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def tell(self, command: str) -> str:
        process = self.start(command)
        said, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, said + (self.directory / "errors.txt").read_text()
        return said

    def run_to(self, command: str, watermark: str, *, then: Callable[[], None] | None = None) -> None:
        """Run the job until its watermark has come so far; then end it, or let somebody else do that."""
        process = self.start(command, "--json")
        assert process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        reached = False
        try:
            for line in process.stdout:
                told: dict[str, Any] = json.loads(line)
                if not reached and str(told.get("watermark") or "") >= watermark:
                    reached = True
                    if then is None:
                        break
                    then()
                if time.monotonic() > deadline:
                    break
        finally:
            process.terminate()
            process.communicate(timeout=60)
        assert reached, (self.directory / "errors.txt").read_text()

    def scan(self, *scans: tuple[str, float, int]) -> None:
        with Producer(self.broker.connection) as producer:
            for depot, weight, second in scans:
                at = f"2026-03-02T07:{30 + second // 60:02}:{second % 60:02}Z"
                producer.send("scans", json.dumps({"depot": depot, "weight": weight, "at": at}).encode())

    def results(self, topic: str) -> Counter[tuple[str, str, int]]:
        from headrace.events import Codec, Result

        with Consumer(self.broker.connection, [topic]) as consumer:
            values = [record.value for record in consumer]
        frame = Codec().decode(values, types=[Result]).frame
        rows = [] if frame.is_empty() else frame.select("depot", "window_start", "n").rows()
        return Counter((depot, f"{start:%M:%S}", n) for depot, start, n in rows)


def test_every_command_of_the_page_works_in_its_order(broker: EmbeddedBroker, tmp_path: Path) -> None:
    project = Project(tmp_path, broker)
    Topics(broker.connection).ensure([TopicSpec(name="scans", partitions=1)])
    minute = "2026-03-02T07:30:"
    project.scan(("north", 1.0, 1), ("north", -1.0, 2), ("south", 1.0, 5), ("south", 1.0, 14))

    stopped = "stop parcels --savepoint --name before-upgrade"
    project.run_to("run parcels", f"{minute}13", then=lambda: [None, project.tell(stopped)][0])
    assert "keep" in project.tell("plan parcels --against before-upgrade")
    project.scan(("north", 1.0, 3), ("north", 1.0, 16), ("north", 1.0, 31))
    project.run_to("run parcels", f"{minute}30")
    first = Counter({("north", "30:00", 1): 1, ("south", "30:00", 1): 1})
    second = Counter({("south", "30:10", 1): 1, ("north", "30:10", 1): 1})
    assert project.results("analytics.parcels") == first + second

    assert "per-depot" in project.tell("state parcels")
    assert "2026-03-02T07:30:40.000+00:00" in project.tell("state parcels --key north")
    assert "north" in project.tell('state parcels --sql "SELECT depot, n FROM windows ORDER BY n DESC LIMIT 5"')
    story = project.tell("why parcels --key north")
    assert "was dropped by `filter" in story
    assert "came too late by" in story
    assert "fires when the watermark has come to 2026-03-02 07:30:40 UTC" in story
    assert "07:30:31" not in project.tell("why parcels --key north --at 2026-03-02T07:30:05Z").split("Now:")[0]

    assert "before-upgrade" in project.tell("savepoint list")
    project.tell("savepoint verify before-upgrade")
    project.scan(("south", 1.0, 45))
    restored = "run parcels --from-savepoint before-upgrade --fresh --accept-old-checkpoint"
    project.run_to(restored, f"{minute}44")
    third = Counter({("north", "30:30", 1): 1})
    assert project.results("analytics.parcels") == first + second + third
    project.scan(("south", 1.0, 55))
    project.run_to("run parcels --set spark.key_groups=8 --set spark.state_partitions=4", f"{minute}54")
    fourth = Counter({("south", "30:40", 1): 1})
    assert project.results("analytics.parcels") == first + second + third + fourth
    forked = "run parcels --from-savepoint before-upgrade --as parcels-b --to analytics.parcels-b"
    project.run_to(forked, f"{minute}54")
    assert project.results("analytics.parcels-b") == second + third + fourth

    project.tell("replay-job parcels --from start --to now --into analytics.parcels.corrected")
    corrected = project.results("analytics.parcels.corrected")
    # All at once no event is late, and at the end all windows fire.
    assert corrected[("north", "30:00", 2)] == 1
    assert corrected[("south", "30:50", 1)] == 1
    assert set(commands()) <= set(project.ran), "a command of the page that nobody tries"
