"""`headrace doctor`: each finding, and what to do about it."""

from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING

import pytest

from headrace.cli import doctor
from headrace.config import Settings
from headrace.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Cli


def settings(home: Path, **flags: object) -> Settings:
    given = {key.replace("__", "."): (value, "--set") for key, value in flags.items()}
    return Settings.load(environ={"HEADRACE_HOME": str(home / "h")}, directory=home, flags=given)


def test_all_checks_by_json(cli: Cli) -> None:
    result = cli("doctor", "--json")
    findings = json.loads(result.stdout)
    assert {f["check"] for f in findings} >= {"Java", "Jars", "Port", "Memory", "Disk", "Python for the workers"}
    assert all(f["status"] in {"OK", "WARN", "FAIL"} for f in findings)
    assert all(f["remedy"] for f in findings if f["status"] != "OK")
    assert result.exit_code == (ExitCode.ENVIRONMENT if "FAIL" in {f["status"] for f in findings} else 0)


def test_missing_jars_are_a_warning_for_people(cli: Cli) -> None:
    result = cli("doctor")
    assert "WARN  Jars: 46 not yet in" in result.stdout
    assert "-> Run `headrace setup`" in result.stdout


def test_java_missing_fails_with_what_to_do(cli: Cli, home: Path) -> None:
    result = cli("doctor", env={"PATH": str(home), "JAVA_HOME": ""})
    assert result.exit_code == ExitCode.ENVIRONMENT
    assert "FAIL  Java: Java was not found" in result.stdout
    assert "Install Java 17" in result.stdout


def test_java_too_old_fails_with_what_to_do(home: Path) -> None:
    program = home / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    program.chmod(0o755)
    found = doctor.check_java({"JAVA_HOME": str(home)})
    assert found.status == "FAIL"
    assert "too old" in found.found
    assert "Install Java 17" in found.remedy


def test_a_damaged_jar_fails(home: Path) -> None:
    from headrace.dev.jars import EMBEDDED_BROKER, pinned

    here = settings(home)
    here.paths.jars.mkdir(parents=True)
    (here.paths.jars / pinned(EMBEDDED_BROKER)[0].file_name).write_bytes(b"not a jar")
    found = doctor.check_jars(here)
    assert found.status == "FAIL"
    assert "damaged" in found.found
    assert "headrace setup" in found.remedy


@pytest.mark.parametrize(("chosen", "status"), [(True, "FAIL"), (False, "WARN")])
def test_a_taken_port(home: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool, status: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        here = settings(home, broker__port=port)
        if not chosen:
            monkeypatch.setitem(here._origins, "broker.port", settings(home).origin("broker.port"))
        found = doctor.check_port(here)
    assert (found.status, found.check) == (status, "Port")
    assert str(port) in found.found
    assert "broker.port" in found.remedy


def test_a_free_port_and_any_port(home: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert doctor.check_port(settings(home, broker__port=port)).status == "OK"
    assert doctor.check_port(settings(home, broker__port=0)).status == "OK"


def test_an_external_kafka(home: Path) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert doctor.check_port(settings(home, broker__bootstrap=address)).status == "OK"
    found = doctor.check_port(settings(home, broker__bootstrap=address))
    assert (found.status, found.check) == ("FAIL", "Kafka")
    assert "broker.bootstrap" in found.remedy


def test_memory_is_compared_with_what_is_asked_for(home: Path) -> None:
    assert doctor.check_memory(settings(home, spark__driver_memory="64m", broker__memory="128m")).status in {
        "OK",
        "WARN",
    }
    found = doctor.check_memory(settings(home, spark__driver_memory="100000g"))
    assert found.status == "FAIL"
    assert "spark.driver_memory" in found.remedy


def test_a_home_that_is_a_file_fails(home: Path) -> None:
    (home / "h").write_text("in the way")
    found = doctor.check_disk(settings(home))
    assert found.status == "FAIL"
    assert "paths.home" in found.remedy


def test_another_python_for_the_workers_is_a_warning() -> None:
    assert doctor.check_python({}).status == "OK"
    assert doctor.check_python({"PYSPARK_PYTHON": sys.executable}).status == "OK"
    found = doctor.check_python({"PYSPARK_PYTHON": "/usr/bin/false"})
    assert found.status == "WARN"
    assert "Unset PYSPARK_PYTHON" in found.remedy


def test_a_time_zone_that_is_none_is_a_warning() -> None:
    found = doctor.check_clock({"TZ": "Mars/Olympus"})
    assert found.status == "WARN"
    assert "Europe/Paris" in found.remedy
    assert "UTC" in doctor.check_clock({"TZ": "Europe/Helsinki"}).found


def test_a_clock_of_another_century_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.time, "time", lambda: 86_400.0)
    found = doctor.check_clock({})
    assert found.status == "FAIL"
    assert "1970-01-02" in found.found


def test_wrong_settings_are_the_first_thing_to_tell(cli: Cli, home: Path) -> None:
    (home / "headrace.toml").write_text("[broker]\nport = 'x'\n")
    result = cli("doctor", "--json")
    assert result.exit_code == ExitCode.CONFIG
    assert json.loads(result.stdout)[0]["status"] == "FAIL"
