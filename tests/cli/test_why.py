"""`headrace why` before anything is read, and how the past is cut into batches."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import StateError
from headrace.formats import Records
from headrace.spark.checkpoint.past_batches import _batches, recorded_batches
from headrace.spark.checkpoint.positions import Position

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

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
