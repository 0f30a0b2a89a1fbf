"""Where jobs come from: a project's file, entry points, words; what is broken is named and the rest goes on."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.config import Settings
from headrace.errors import ConfigError, HeadraceError, PlanError
from headrace.registry import Registry, UnknownJobError

JOB = """
import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.windows import count
scans = Stream.topic("scans", schema={"depot": pl.String}).watermark(bounded("1s"))
counted = scans.key_by("depot").window(tumbling("10s")).aggregate(scans=count())
"""
LATE = JOB + 'late = Job("late", counted)\n'
SEVERAL = JOB + "def made(settings): return [Job('one', counted), Job('two', counted)]\nstream = counted\n"


@pytest.fixture(autouse=True)
def _own_modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0].startswith("parcel"):
            del sys.modules[name]


def package(directory: Path, name: str, point: str, *, group: str = "headrace.jobs") -> None:
    """Install a package by its metadata, as pip leaves it."""
    metadata = directory / f"{name}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {point}\n")


def registry() -> Registry:
    return Registry(Settings.load())


def test_a_project_has_the_jobs_that_its_file_names_and_no_others() -> None:
    Path("parcels.py").write_text(LATE)
    Path("headrace.toml").write_text('jobs = ["parcels.py"]\n')
    assert list(registry().jobs) == ["late"]
    with pytest.raises(UnknownJobError, match="there is no job 'vehicle-distribution'"):
        registry().find(["vehicle-distribution"])
    listed = CliRunner().invoke(app, ["jobs", "--json"])
    assert [job["name"] for job in json.loads(listed.stdout)] == ["late"]


def test_paths_in_the_file_are_relative_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("parcels_project/parcel_code").mkdir(parents=True)
    Path("parcels_project/parcel_code/jobs.py").write_text(LATE)
    Path("parcels_project/headrace.toml").write_text('jobs = ["parcel_code.jobs:late"]\n')
    monkeypatch.setenv("HEADRACE_CONFIG", "parcels_project/headrace.toml")
    assert list(registry().jobs) == ["late"]


@pytest.mark.parametrize("written", ['jobs = "jobs.py"', "jobs = [1]", 'jobs = [""]', "[jobs]\na = 1"])
def test_the_list_of_jobs_is_checked(written: str) -> None:
    Path("headrace.toml").write_text(f"{written}\n")
    with pytest.raises(ConfigError, match="it is a list of files and modules"):
        Settings.load()


def test_packages_bring_jobs_beside_ours(tmp_path: Path) -> None:
    Path("parcels_package.py").write_text(SEVERAL)
    package(tmp_path, "parcels", "parcels_package:made")
    sys.path.insert(0, str(tmp_path))
    found = registry()
    assert {"one", "two", "vehicle-distribution"} <= set(found.jobs)
    (plugin,) = (each for each in found.plugins_of("jobs") if each.name == "parcels")
    assert (plugin.origin, plugin.provides) == ("parcels 1.2", ("one", "two"))


def test_a_broken_package_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    Path("parcels_broken.py").write_text("1 / 0\n")
    package(tmp_path, "parcels", "parcels_broken")
    sys.path.insert(0, str(tmp_path))
    listed = CliRunner().invoke(app, ["plugins"])
    assert listed.exit_code == 0
    assert "FAILED" in listed.output
    assert "parcels_broken of parcels 1.2 failed to load" in listed.output
    assert "1 / 0" in listed.output
    assert "vehicle-distribution" in CliRunner().invoke(app, ["jobs"]).output
    with pytest.raises(PlanError, match="parcels_broken"):
        registry().every()  # to run all is not to run some
    with pytest.raises(UnknownJobError, match="ZeroDivisionError"):
        registry().find(["late"])


def test_of_two_packages_with_a_job_of_one_name_the_second_is_refused(tmp_path: Path) -> None:
    Path("parcels_a.py").write_text(LATE)
    Path("parcels_b.py").write_text(LATE)
    package(tmp_path, "parcels_a", "parcels_a")
    package(tmp_path, "parcels_b", "parcels_b")
    sys.path.insert(0, str(tmp_path))
    found = registry()
    assert found.jobs["late"] is sys.modules["parcels_a"].late
    (plugin,) = found.failed_jobs
    assert "as parcels_a of parcels_a 1.2 has" in str(plugin.problem)


def test_topics_of_a_package_are_listed(tmp_path: Path) -> None:
    Path("parcels_topics.py").write_text(
        "from headrace.kafka import TopicSpec\nscans = TopicSpec(name='scans', partitions=7)\n"
    )
    package(tmp_path, "parcels", "parcels_topics:scans", group="headrace.topics")
    sys.path.insert(0, str(tmp_path))
    assert registry().things("topics")["scans"].partitions == 7
    assert "parcels_topics:scans" in CliRunner().invoke(app, ["plugins"]).output


def test_a_function_is_called_once_for_all_words() -> None:
    Path("parcels.py").write_text(JOB + "def job(settings): return Job('late', counted)\n")
    Path("headrace.toml").write_text('jobs = ["parcels.py"]\n')
    found = registry()
    assert found.find(["late", "parcels.py", "parcels.py:late"]) == [found.jobs["late"]]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("parcels.py:made", ""),
        ("parcels.py:stream", "is a Stream, not a job"),
        ("parcels.py:pl", "is a module, not a job"),
        ("parcels.py:nothing", "there is no job 'nothing'"),
        ("parcels.py", "there is no job in parcels.py"),
    ],
)
def test_what_stands_behind_the_colon(word: str, said: str) -> None:
    Path("parcels.py").write_text(SEVERAL)
    if not said:
        assert [job.name for job in registry().find([word])] == ["one", "two"]
        return
    with pytest.raises(HeadraceError, match=said):
        registry().find([word])


def test_a_plan_that_cannot_work_is_shown_with_its_line() -> None:
    Path("parcels.py").write_text(JOB + 'late = Job("LATE", counted)\n')
    with pytest.raises(PlanError) as refused:
        registry().find(["parcels.py"])
    assert "parcels.py:7" in str(refused.value)
    assert "lower-case letters" in str(refused.value)
