"""The wheel with its own dependencies alone: jobs run in process, and what needs an extra names it."""

from __future__ import annotations

import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest
from tests.packaging.installed import build_wheel, environment, make_environment

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow]

FIRST_JOB = """
import sys

import polars as pl
from headrace import Job, Stream, bounded, preview, tumbling
from headrace.formats import json
from headrace.windows import count

scans = Stream.topic("scans", format=json(schema={"depot": pl.String}, time="at")).watermark(bounded("1s"))
job = Job("scans", scans.key_by("depot").window(tumbling("10s")).aggregate(scans=count()), format=json())
shown = preview(job, [b'{"depot": "north", "at": "2026-01-01T00:00:01Z"}', b"no scan"])
print(shown.results["scans"].to_list(), shown.dead["reason"].to_list())
print(sorted({"pyspark", "confluent_kafka", "pandas", "fastapi", "h3"} & set(sys.modules)))
"""
#: A command line per command that needs an extra, and what it must name.
LACKING = {
    "dev": "dashboard,spark",
    "demo": "transit",
    "run jobs.py": "spark",
    "dashboard": "dashboard",
    "simulate": "transit",
    "ingest feeds.toml": "ingest",
    "replay folder": "transit",
    "record feeds.toml folder": "ingest",
    "topics": "kafka",
    "topics create scans": "kafka",
    "tail scans": "kafka",
    "rights jobs.py": "spark",
    "watermarks": "spark",
    "latency": "kafka",
    "evaluate": "report,spark",
    "broker start": "kafka",
    "broker status": "kafka",
    "setup": "spark",
    "sql 'SELECT * FROM scans' --table scans=topic:scans": "kafka",
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("core")
    return make_environment(home / "venv", build_wheel(home), extras="")


def call(programs: Path, directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(programs / words[0]), *words[1:]]
    return subprocess.run(
        command, cwd=directory, env=environment(programs), capture_output=True, text=True, timeout=240, check=False
    )


def test_a_job_runs_in_process_without_spark_and_kafka(programs: Path, tmp_path: Path) -> None:
    done = call(programs, tmp_path, "python", "-W", "error", "-c", FIRST_JOB)
    assert done.stdout.splitlines() == ["[1] ['malformed_json']", "[]"], done.stderr


def test_everything_can_be_imported_and_what_lacks_an_extra_says_so_when_it_is_called(
    programs: Path, tmp_path: Path
) -> None:
    script = "from headrace import *\nprint(tumbling('10s').describe())\nrun(None, bootstrap='localhost:9092')\n"
    done = call(programs, tmp_path, "python", "-W", "error", "-c", script)
    assert done.stdout.splitlines() == ["tumbling(10s)"], done.stderr
    assert "MissingExtraError: headrace.spark needs packages that are not installed" in done.stderr
    assert "pip install 'headrace[spark]'" in done.stderr


def test_plugins_that_lack_an_extra_are_not_called_broken(programs: Path, tmp_path: Path) -> None:
    done = call(programs, tmp_path, "headrace", "plugins")
    assert done.returncode == 0
    (mqtt,) = (line for line in done.stdout.splitlines() if line.startswith("connectors  mqtt"))
    assert mqtt.endswith("needs headrace[ingest]")
    assert "FAILED" not in done.stdout
    assert done.stderr == ""


def test_a_new_project_lists_its_job_and_sql_reads_files(programs: Path, tmp_path: Path) -> None:
    assert call(programs, tmp_path, "headrace", "new", "parcels").returncode == 0
    listed = call(programs, tmp_path / "parcels", "headrace", "jobs")
    assert "parcels-per-depot" in listed.stdout, listed.stderr
    (tmp_path / "scans.csv").write_text("depot,event_time\nnorth,2026-01-01T00:00:00Z\n")
    asked = call(programs, tmp_path, "headrace", "sql", "SELECT depot FROM scans", "--table", "scans=scans.csv")
    assert "north" in asked.stdout, asked.stderr


@pytest.mark.parametrize("words", LACKING)
def test_a_command_names_the_extra_that_it_needs(programs: Path, tmp_path: Path, words: str) -> None:
    done = call(programs, tmp_path, "headrace", *shlex.split(words))
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1] == f"Install it: pip install 'headrace[{LACKING[words]}]'"


def test_nothing_of_the_transit_application_is_there(programs: Path, tmp_path: Path) -> None:
    assert call(programs, tmp_path, "headrace", "jobs", "--json").stdout.strip() == "[]"
    assert "transit" not in call(programs, tmp_path, "headrace", "plugins").stdout
