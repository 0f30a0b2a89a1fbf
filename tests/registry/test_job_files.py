"""Jobs outside the source tree, by path and by module; what is wrong with them is said with its place."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace import preview
from headrace.cli.main import app
from headrace.config import Settings
from headrace.errors import HeadraceError, PlanError
from headrace.registry import Registry, UnknownJobError, load_jobs

JOB = """
import polars as pl
from headrace import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
scans = Stream.topic("scans", schema={"depot": pl.String}).watermark(bounded("1s"))
late = Job("late-scans", scans.key_by("depot").window(tumbling("10s")).aggregate(scans=count()))
"""
TWO = JOB + "other = Job('late-scans', late.stream)\n"


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith("parcel"):
            del sys.modules[name]


@pytest.mark.parametrize(
    "word", ["parcels.py", "parcels.py:late", "./parcels.py:late-scans", "parcels:late", "parcels:late-scans"]
)
def test_a_job_is_found_by_where_it_is(word: str) -> None:
    Path("parcels.py").write_text(JOB)
    assert [job.name for job in load_jobs(word, Settings()).chosen] == ["late-scans"]


@pytest.mark.parametrize(
    ("text", "word", "said"),
    [
        (JOB, "parcel.py", "there is no file"),
        (JOB, "parcel.jobs", "there is no module 'parcel.jobs'"),
        (JOB, "parcels.py:late-scan", "Did you mean parcels.py:late-scans?"),
        ("1 / 0\n", "parcels.py", "parcels.py:1: 1 / 0"),
        ("def f(:\n", "parcels.py", "parcels.py:1"),
        ("import parcels_missing\n", "parcels.py", "No module named 'parcels_missing'"),
        ("x = 1\n", "parcels.py", "there is no job in parcels.py"),
        (TWO, "parcels.py", "two jobs named 'late-scans'"),
    ],
)
def test_what_is_wrong_is_said(text: str, word: str, said: str) -> None:
    Path("parcels.py").write_text(text)
    with pytest.raises(HeadraceError) as problem:
        load_jobs(word, Settings())
    assert said in str(problem.value)


def test_a_function_makes_a_job_from_the_settings() -> None:
    Path("parcels.py").write_text(JOB.replace("late = Job(", "def job(settings): return Job("))
    assert list(load_jobs("parcels.py", Settings()).jobs) == ["late-scans"]


def test_commands_take_a_job_by_its_file() -> None:
    Path("parcels.py").write_text(JOB)
    told = CliRunner().invoke(app, ["jobs", "parcels.py:late"])
    assert told.exit_code == 0
    assert "late-scans" in told.output
    rights = CliRunner().invoke(app, ["rights", "parcels.py", "--json"])
    assert rights.exit_code == 0
    assert "scans" in rights.output
    assert CliRunner().invoke(app, ["jobs", "parcels.py:nothing"]).exit_code == 2


def test_the_job_in_sql_of_the_page_on_projects_passes_on_what_a_depot_scans() -> None:
    page = (Path(__file__).parents[2] / "docs" / "projects.md").read_text()
    (text,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    Path("jobs").mkdir()
    Path("jobs/harbour.sql").write_text(text)
    Path("headrace.toml").write_text('jobs = ["jobs/harbour.sql"]\n')
    (job,) = Registry(Settings.load()).every()
    assert (job.name, job.sources, job.result_topic) == ("harbour", ("parcels.scans",), "analytics.harbour")
    scans = [
        {"depot": depot, "parcel": f"P-{n}", "scanned_at": f"2026-01-01T12:00:0{n}Z"}
        for n, depot in enumerate(["harbour", "north", "harbour"])
    ]
    shown = preview(job, [json.dumps(scan) for scan in scans])
    assert job.format is not None
    written = [json.loads(value) for value in job.format.encode(shown.results).to_pylist()]
    assert [each["parcel"] for each in written] == ["P-0", "P-2"]
    assert [set(each) for each in written] == [{"parcel", "scanned_at"}] * 2


def test_a_module_that_is_not_installed_is_told_with_the_environment() -> None:
    Path("parcels.py").write_text("import parcels_missing\n")
    with pytest.raises(PlanError, match="No module named 'parcels_missing'") as refused:
        load_jobs("parcels.py", Settings())
    assert f"Install what brings parcels_missing into this environment ({sys.prefix})" in refused.value.hint


def test_a_file_that_the_settings_name_and_that_is_not_there_is_told_with_the_settings() -> None:
    Path("headrace.toml").write_text('jobs = ["parcel.py"]\n')
    with pytest.raises(UnknownJobError, match="there is no file") as refused:
        Registry(Settings.load()).every()
    assert f"correct {Path('headrace.toml').resolve()}, which names it" in refused.value.hint


def test_where_there_are_no_jobs_a_project_is_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.registry.jobs.entry_points_of", lambda _: [])
    with pytest.raises(UnknownJobError, match="there are no jobs here") as refused:
        Registry(Settings.load()).every()
    assert "`headrace new NAME` writes a project" in refused.value.hint


def test_what_is_no_format_is_told_in_a_line() -> None:
    Path("parcels.py").write_text(JOB)
    Path("headrace.toml").write_text('formats = ["parcels:late", "parcels:pl"]\n')
    problems = [plugin.problem for plugin in Registry(Settings.load()).plugins_of("formats")]
    told = [problem.message for problem in problems if problem is not None]
    assert told[0] == "a Job is neither a Format nor a function that makes one"
    assert "<module 'polars' from" in told[1] or told[1].startswith("a module is neither")
