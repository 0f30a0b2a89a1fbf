"""A new project: its own test passes, its code is clean, its jobs are the only ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.samples import find_samples
from headrace.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from .conftest import Cli

ROOT = Path(__file__).resolve().parents[2]


def call(*words: str, cwd: Path) -> str:
    """Run Python with these words in a project, as its user would."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=environment | {"PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_test_of_a_new_project_passes_and_its_code_is_clean(cli: Cli, home: Path) -> None:
    assert cli("new", "parcels").exit_code == 0
    project = home / "parcels"
    assert "2 passed" in call("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
    call(
        "-m",
        "ruff",
        "check",
        "--no-cache",
        "--select",
        "ALL",
        "--ignore",
        "CPY,D,INP,S101,COM812,PLR2004",
        ".",
        cwd=project,
    )
    call("-m", "ruff", "format", "--no-cache", "--check", ".", cwd=project)


def test_the_jobs_of_a_new_project_are_the_only_ones(cli: Cli, home: Path) -> None:
    cli("new", "parcels")
    jobs = json.loads(call("-m", "headrace.cli", "jobs", "--json", cwd=home / "parcels"))
    assert [(job["name"], job["sources"]) for job in jobs] == [("parcels-per-depot", ["parcels.scans"])]
    for word in ("jobs.py", "jobs.py:per_depot", "jobs:per_depot", "parcels-per-depot"):
        assert "window tumbling(10s)" in call("-m", "headrace.cli", "jobs", word, cwd=home / "parcels")


@pytest.mark.parametrize("name", ["Parcels", "my-parcels", "7up", "class", "a/b", "", "headrace"])
def test_a_name_must_be_one(cli: Cli, home: Path, name: str) -> None:
    result = cli("new", name)
    assert result.exit_code == ExitCode.USAGE
    assert "cannot be the name of a project" in result.output
    assert list(home.iterdir()) == []


def test_what_is_there_is_not_overwritten(cli: Cli, home: Path) -> None:
    (home / "parcels").mkdir()
    assert cli("new", "parcels").exit_code == 0
    (home / "parcels" / "jobs.py").write_text("mine")
    again = cli("new", "parcels")
    assert again.exit_code == ExitCode.USAGE
    assert "is not empty" in again.output
    assert (home / "parcels" / "jobs.py").read_text() == "mine"


def test_sample_data_are_written_as_the_job_reads_them(tmp_path: Path) -> None:
    import polars as pl

    from headrace import Job, Stream, bounded, tumbling
    from headrace.events import Codec, Record
    from headrace.windows import count

    stream = Stream.topic("scans", schema={"depot": pl.String, "weight": pl.Float64}).watermark(bounded("1s"))
    job = Job("scans", stream.key_by("depot").window(tumbling("10s")).aggregate(scans=count()))
    (tmp_path / "sample").mkdir()
    (tmp_path / "sample" / "scans.jsonl").write_text(
        '{"event_time": "2026-01-01T12:00:01Z", "depot": "b", "weight": 2}\n\n'
        '{"event_time": "2026-01-01T12:00:00+00:00", "depot": "a"}\n'
    )
    (sample,) = find_samples(tmp_path, [job])
    assert [row["depot"] for row in sample.rows] == ["a", "b"]
    values = sample.values([0, 1], shift=-sample.times[0], now=5)
    frame = Codec().decode(values, types=[Record], columns={"depot": pl.String, "weight": pl.Float64}).frame
    assert frame.select(pl.col("event_time").dt.epoch("ms"), "depot", "weight").rows() == [
        (0, "a", None),
        (1000, "b", 2.0),
    ]
    (tmp_path / "sample" / "scans.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"scans\.jsonl:1 is no sample event"):
        find_samples(tmp_path, [job])
