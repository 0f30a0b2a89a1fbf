"""A new project: its own test passes, its code is clean, its jobs are the only ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from headrace import Job, Stream, bounded, tumbling
from headrace.cli.samples import Sample, find_samples
from headrace.errors import ConfigError, ExitCode
from headrace.formats import Records, csv, header_time
from headrace.formats import json as json_format
from headrace.windows import count

if TYPE_CHECKING:
    from headrace.formats import Format

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
    assert "3 passed" in call("-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=project)
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
    for word in ("jobs.py:per_depot", "parcels-per-depot"):
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


def sample_of(directory: Path, form: Format | None, *lines: object) -> Sample:
    """Give the sample data of a topic in a format."""
    how: dict[str, Any] = {"schema": {"depot": pl.String, "weight": pl.Float64}} if form is None else {"format": form}
    stream = Stream.topic("scans", **how).watermark(bounded("1s"))
    job = Job("scans", stream.key_by("depot").window(tumbling("10s")).aggregate(scans=count()))
    (directory / "sample").mkdir(exist_ok=True)
    (directory / "sample" / "scans.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (sample,) = find_samples(directory, [job])
    return sample


COLUMNS = {"depot": pl.String, "weight": pl.Float64}
TIMES = {
    "envelope": (None, "event_time", "2026-01-01T12:00:0{}Z".format),
    "iso": (json_format(COLUMNS, time="at"), "at", "2026-01-01T14:00:0{}+02:00".format),
    "epoch": (
        json_format(COLUMNS, time="at", time_format="ms"),
        "at",
        lambda second: 1_767_268_800_000 + 1000 * second,
    ),
    "epoch as text": (json_format(COLUMNS, time="at", time_format="s"), "at", lambda second: f"176726880{second}"),
    "epoch with fractions": (json_format(COLUMNS, time="at", time_format="s"), "at", lambda n: 1_767_268_800.0 + n),
    "nanoseconds": (json_format(COLUMNS, time="at", time_format="ns"), "at", lambda n: (1_767_268_800 + n) * 10**9),
    "pattern": (
        json_format(COLUMNS, time="at", time_format="%d.%m.%Y %H:%M:%S", time_zone="Europe/Helsinki"),
        "at",
        "01.01.2026 14:00:0{}".format,
    ),
    "header": (json_format(COLUMNS, time=header_time("at")), "event_time", "2026-01-01T12:00:0{}Z".format),
    "csv": (csv({"at": pl.String, **COLUMNS}, time="at"), "at", "2026-01-01T12:00:0{}Z".format),
}


@pytest.mark.parametrize("case", TIMES)
def test_sample_data_are_sent_as_the_job_reads_them_with_other_times(tmp_path: Path, case: str) -> None:
    form, name, written = TIMES[case]
    sample = sample_of(
        tmp_path, form, {name: written(1), "depot": "b", "weight": 2.0}, {name: written(0), "depot": "a"}
    )
    assert [at - 1_767_268_800_000_000 for at in sample.times] == [0, 1_000_000]
    shift = 3_600_000_000
    values, headers = zip(*(sample.record(number, shift, now=5) for number in (0, 1)), strict=True)
    told = [[{"key": key, "value": value} for key, value in those or ()] for those in headers]
    records = Records(
        pa.array(values, pa.binary()),
        headers=pa.array(told, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))),
    )
    frame = sample.source.format.decode(records).frame
    assert frame.select(pl.col("event_time").dt.epoch("us") - 1_767_268_800_000_000, "depot", "weight").rows() == [
        (shift, "a", None),
        (shift + 1_000_000, "b", 2.0),
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ({}, "without a time in at"),
        ({"at": 5}, "without a time in at"),
        ({"at": {"at": 1}}, "without a time in at"),
        ([], "no object"),
        ({"at": "2026-01-01T12:00:00Z", "weight": "heavy"}, "does not fit the topic scans"),
    ],
)
def test_a_line_that_is_no_event_is_named(tmp_path: Path, line: object, told: str) -> None:
    with pytest.raises(ConfigError, match=rf"scans\.jsonl:1 .*{told}"):
        sample_of(tmp_path, json_format(COLUMNS, time="at"), line)


def test_a_file_that_is_no_json_or_empty_is_named(tmp_path: Path) -> None:
    rows = Stream.topic("scans", schema=COLUMNS).watermark(bounded("1s"))
    job = Job("s", rows.key_by("depot").window(tumbling("10s")).aggregate(scans=count()))
    assert find_samples(tmp_path, [job]) == []
    (tmp_path / "sample").mkdir()
    for text, told in [("depot,weight", "scans.jsonl:1 is no JSON"), ("\n", "scans.jsonl is empty")]:
        (tmp_path / "sample" / "scans.jsonl").write_text(text)
        with pytest.raises(ConfigError, match=told):
            find_samples(tmp_path, [job])
