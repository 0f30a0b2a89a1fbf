"""`headrace state` over a savepoint."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cli.jobs import pick
from headrace.inprocess import Runner
from headrace.savepoints import Manifest, state_of, write_savepoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

JOBS = """
import polars as pl
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

doors = Stream.rows("doors", {"door": pl.String, "floor": pl.Int64}).watermark(bounded("2s"))
job = Job("openings", doors.key_by("door", "floor").window(tumbling("10s")).aggregate(n=count()).named("per-door"))
"""


@pytest.fixture
def saved(home: Path) -> list[str]:
    """A savepoint of a job with three open windows; gives the words that name both."""
    path = home / f"doors_{uuid.uuid4().hex}.py"  # a module has a name of its own
    path.write_text(JOBS)
    runner = Runner(pick([f"{path.name}:openings"])[0], key_groups=2)
    times = [datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC) for second in (1, 2, 3, 11)]
    doors = ["north", "north", "south", "north"]
    runner.step(pl.DataFrame({"door": doors, "floor": 1, "event_time": times}))
    manifest = Manifest("first", created="2026-01-01T12:00:10+00:00", version="0.1.0", key_groups=2, batches=1)
    write_savepoint(home / "first", manifest, {"openings": state_of(runner.snapshot())})
    return [f"{path.name}:openings", "--savepoint", str(home / "first")]


def test_it_shows_sizes_tables_and_the_largest_keys(cli: Cli, saved: list[str]) -> None:
    shown = cli("state", *saved).stdout
    assert "openings in savepoint" in shown
    assert "door, floor, window_start, window_end, n, key_group" in shown
    largest = shown.splitlines()[-2:]
    assert largest[0].split()[:5] == ["per-door", "windows", "north,", "1", "2"]
    assert largest[1].split()[:5] == ["per-door", "windows", "south,", "1", "1"]
    told = json.loads(cli("state", *saved, "--json").stdout)
    assert (told["job"], told["batches"], [each["name"] for each in told["tables"]]) == (
        "openings",
        1,
        ["per_door_windows"],
    )


def test_it_shows_the_rows_of_a_key_and_answers_sql(cli: Cli, saved: list[str]) -> None:
    shown = cli("state", *saved, "--key", "north,1", "--json").stdout
    assert [row["n"] for row in json.loads(shown)["per-door"]["windows"]] == [2, 1]
    assert "12:00:20.000+00:00" in cli("state", *saved, "--key", "north,1").stdout
    assert "No step keeps anything of key west,1" in cli("state", *saved, "--key", "west,1").stderr
    answer = cli("state", *saved, "--sql", "SELECT SUM(n) AS n FROM windows WHERE door = 'north'", "--json").stdout
    assert json.loads(answer) == [{"n": 3}]
    assert cli("state", *saved, "--key", "a", "--sql", "SELECT 1").exit_code == 2


def test_a_job_that_has_not_run_says_so(cli: Cli, saved: list[str]) -> None:
    done = cli("state", saved[0])
    assert done.exit_code == 6
    assert "there is no checkpoint of job 'openings'" in done.stderr
    assert "headrace run openings" in done.stderr
