"""A Java that fits is found; one that does not is named, with what to install."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.dev.java import Java, find_java
from headrace.errors import EnvironmentProblem, ExitCode


def fake_java(directory: Path, version: str, *, status: int = 0) -> Path:
    """A program that says what `java -version` of that version says."""
    directory.mkdir(parents=True, exist_ok=True)
    java = directory / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2024-01-16' >&2\nexit {status}\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("version", "feature"),
    [
        ("17.0.15", 17),
        ("21", 21),
        ("21.0.1", 21),
        ("1.8.0_402", 8),
        ("11.0.22", 11),
        ("25-ea", 25),
        ("17-internal", 17),
    ],
)
def test_the_feature_release_is_read_from_any_version(version: str, feature: int) -> None:
    assert Java(executable=Path("java"), version=version).feature == feature


@pytest.mark.parametrize("version", ["17.0.15", "21.0.1"])
def test_a_supported_java_on_the_path_is_found(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path, version)
    assert find_java(environ={"PATH": str(tmp_path)}) == Java(executable=java, version=version)


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    fake_java(tmp_path / "path", "21.0.1")
    java = fake_java(tmp_path / "home" / "bin", "17.0.2")
    found = find_java(environ={"PATH": str(tmp_path / "path"), "JAVA_HOME": str(tmp_path / "home")})
    assert found.executable == java
    assert found.home == tmp_path / "home"


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "16.0.1"])
def test_a_java_that_is_too_old_is_refused_with_what_to_install(tmp_path: Path, version: str) -> None:
    java = fake_java(tmp_path, version)
    with pytest.raises(EnvironmentProblem, match="is too old") as caught:
        find_java(environ={"PATH": str(tmp_path)})
    assert str(java) in caught.value.message
    assert version in caught.value.message
    assert "17 or 21" in caught.value.message
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint
    assert caught.value.exit_code is ExitCode.ENVIRONMENT


def test_a_java_that_is_too_new_is_refused(tmp_path: Path) -> None:
    fake_java(tmp_path, "25.0.1")
    with pytest.raises(EnvironmentProblem, match="not supported"):
        find_java(environ={"PATH": str(tmp_path)})


def test_no_java_at_all_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="Java was not found") as caught:
        find_java(environ={"PATH": str(tmp_path)})
    assert "apt-get install openjdk-17-jre-headless" in caught.value.hint


def test_a_wrong_java_home_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="JAVA_HOME is") as caught:
        find_java(environ={"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path)})
    assert str(tmp_path / "bin" / "java") in caught.value.message


def test_a_java_that_does_not_run_is_named(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.1", status=1)
    with pytest.raises(EnvironmentProblem, match="ended with 1"):
        find_java(environ={"PATH": str(tmp_path)})
    (tmp_path / "java").write_text("#!/no/such/interpreter\n")
    with pytest.raises(EnvironmentProblem, match="does not run"):
        find_java(environ={"PATH": str(tmp_path)})
