"""`headrace why` and `headrace replay-job` before anything is read: what was typed, and what is there."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from headrace.cli.jobs import pick
from headrace.cli.replay_job import _offsets
from headrace.errors import StateError
from headrace.formats import Records
from headrace.spark.checkpoint.past_batches import _batches, recorded_batches
from headrace.spark.checkpoint.positions import Position

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

    from headrace.stream import Job

JOBS = """
import polars as pl
from headrace.formats import json
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

scans = Stream.topic("scans", format=json({"depot": str}, time="at")).watermark(bounded("1s"))
job = Job("parcels", scans.key_by("depot").window(tumbling("10s")).aggregate(n=count()))
"""
SECOND = 1_000_000


@pytest.fixture
def named(home: Path) -> str:
    """A job in a file; gives the word that names it."""
    path = home / f"scans_{uuid.uuid4().hex}.py"  # a module has a name of its own
    path.write_text(JOBS)
    return f"{path.name}:parcels"


@pytest.fixture
def job(named: str) -> Job:
    return pick([named])[0]


def records(*seconds: int, start: int = 0) -> Records:
    """Records that arrived at these seconds."""
    times = pa.array([second * SECOND for second in seconds], pa.int64()).cast(pa.timestamp("us", "UTC"))
    numbers = np.arange(start, start + len(seconds), dtype=np.int64)
    return Records(pa.array([b"x"] * len(seconds), pa.binary()), timestamps=times, offsets=pa.array(numbers))


def test_a_job_that_has_not_run_has_no_story(cli: Cli, named: str, home: Path) -> None:
    done = cli("why", named, "--key", "north")
    assert done.exit_code == 6
    assert "there is no checkpoint of job 'parcels'" in done.stderr
    with pytest.raises(StateError, match="has done no batch yet"):
        recorded_batches(home)


def test_offsets_are_understood_or_refused(cli: Cli, named: str, job: Job) -> None:
    assert _offsets(job, "0=120, 1=118", option="--from") == {("scans", 0): 120, ("scans", 1): 118}
    assert _offsets(job, "scans/3=7", option="--from") == {("scans", 3): 7}
    assert cli("replay-job", named).exit_code == 2
    with pytest.raises(Exception, match="--to 'one=2' is no offset"):
        _offsets(job, "one=2", option="--to")


def test_batches_are_those_that_are_noted_and_by_arrival_before() -> None:
    places = {("scans", 0): records(1, 1, 3, 9, 9, 9), ("scans", 1): records(2, 8, 9)}
    ends = [
        (7, Position({"scans": {0: 3, 1: 1}}, now=5 * SECOND)),
        (8, Position({"scans": {0: 4, 1: 1}}, now=9 * SECOND)),
        (9, Position({"scans": {0: 4, 1: 3}}, now=10 * SECOND)),
    ]
    given = list(_batches(places, ends, {("scans", 0): 0, ("scans", 1): 0}))
    told = [
        (batch.number, batch.now, {name: part.offsets.to_pylist() for name, part in batch.rows["scans"].items()})
        for batch in given
    ]
    assert told == [
        (5, 2 * SECOND, {"scans/0": [0, 1]}),
        (6, 3 * SECOND, {"scans/1": [0]}),
        (7, 4 * SECOND, {"scans/0": [2]}),
        (8, 9 * SECOND, {"scans/0": [3]}),
        (9, 10 * SECOND, {"scans/1": [1, 2]}),
    ]
