"""A job is named by the same words in every command that takes jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.errors import ExitCode

pytestmark = [pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
JOBS = """
import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.formats import json
from headrace.windows import count
scans = Stream.topic("words.scans", format=json(schema={"depot": pl.String}, time="at")).watermark(bounded("1s"))
late = Job("late-scans", scans.key_by("depot").window(tumbling("10s")).aggregate(scans=count()), format=json())
"""
WORDS = ("parcels/jobs.py", "parcels/jobs.py:late", "parcels.jobs:late", "late-scans")


class Project:
    """A project with one job, and `headrace` in it."""

    def __init__(self, directory: Path) -> None:
        (directory / "parcels").mkdir()
        (directory / "parcels" / "__init__.py").touch()
        (directory / "parcels" / "jobs.py").write_text(JOBS)
        (directory / "headrace.toml").write_text('jobs = ["parcels.jobs"]\n')
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
        self.directory = directory
        self.environment = kept | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PATHS__HOME": str(directory / ".headrace"),
            "COLUMNS": "200",
        }

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "headrace.cli", *words]
        return subprocess.run(
            command, cwd=self.directory, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )

    def answer(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.parametrize("word", WORDS)
def test_a_word_names_a_job_in_every_command(project: Project, word: str) -> None:
    assert json.loads(project.answer("jobs", word, "--json"))["name"] == "late-scans"
    assert "words.scans" in project.answer("rights", word)
    assert json.loads(project.answer("watermarks", word, "--json")) == {}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("command", ["latency", "evaluate --plan"])
def test_a_job_that_cannot_be_measured_is_wrong_usage(project: Project, command: str, word: str) -> None:
    refused = project.call(*command.split(), "--jobs", word)
    assert refused.returncode == ExitCode.USAGE, refused.stderr
    assert "the job late-scans has no latency marker" in refused.stderr
    assert "docs/plugins.md" in refused.stderr
