"""`headrace config`, `version`, `jobs`, `setup` without Kafka."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from headrace.config import KEYS
from headrace.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Cli


def test_config_shows_every_setting_with_its_origin(cli: Cli, home: Path) -> None:
    (home / "headrace.toml").write_text("[simulator]\nvehicles = 12\n")
    result = cli("config", env={"HEADRACE_BROKER__PORT": "9999"})
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert set(KEYS) <= set(lines)
    assert lines["simulator.vehicles"].split()[1:] == ["12", "file", f"{home / 'headrace.toml'}:2"]
    assert lines["broker.port"].split()[1:] == ["9999", "environment", "HEADRACE_BROKER__PORT"]
    assert lines["simulator.seed"].split()[1:] == ["1", "default"]
    assert lines["broker.data_directory"].split()[1] == str(home / ".headrace" / "broker")


def test_config_of_one_setting_says_what_it_allows(cli: Cli) -> None:
    result = cli("config", "broker.port")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "from 0 to 65535" in result.stderr


def test_config_never_shows_a_secret(cli: Cli) -> None:
    env = {
        "HEADRACE_BROKER__SASL_PASSWORD": "hunter2",
        "HEADRACE_BROKER__SASL_USERNAME": "me",
        "HEADRACE_BROKER__SASL_MECHANISM": "PLAIN",
        "HEADRACE_BROKER__SECURITY_PROTOCOL": "SASL_SSL",
    }
    for words in (["config"], ["config", "--json"], ["config", "broker.sasl_password"]):
        result = cli(*words, env=env)
        assert result.exit_code == 0
        assert "hunter2" not in result.output
        assert "********" in result.output
    bad = cli("config", env=env | {"HEADRACE_BROKER__SASL_MECHANISM": "nonsense"})
    assert bad.exit_code == ExitCode.CONFIG
    assert "hunter2" not in bad.output


def test_config_of_an_unknown_setting(cli: Cli) -> None:
    result = cli("config", "simulatr")
    assert result.exit_code == ExitCode.CONFIG
    assert "Did you mean simulator?" in result.stderr


def test_version_names_what_matters(cli: Cli) -> None:
    found = json.loads(cli("version", "--json").stdout)
    assert found["pyspark"] == "4.2.0"
    assert {"headrace", "python", "polars", "confluent-kafka"} <= set(found)
    assert "pyspark" in cli("version").stdout


def test_jobs_lists_and_explains(cli: Cli) -> None:
    listed = json.loads(cli("jobs", "--json").stdout)
    job = next(job for job in listed if job["name"] == "vehicle-distribution")
    assert job["sources"] == ["input.vehicle-position"]
    assert job["result_topic"] == "analytics.vehicle-distribution"
    assert job["windows"]
    assert "vehicle-distribution" in cli("jobs").stdout
    explained = json.loads(cli("jobs", "vehicle-distribution", "--json").stdout)
    assert explained["plan"].startswith("vehicle-distribution")
    assert "headrace run vehicle-distribution" in cli("jobs", "vehicle-distribution").stderr


@pytest.mark.parametrize("command", ["jobs", "run"])
def test_an_unknown_job_is_explained(cli: Cli, command: str) -> None:
    result = cli(command, "vehicle-distributon")
    assert result.exit_code == ExitCode.USAGE
    assert "Did you mean vehicle-distribution?" in result.stderr


@pytest.mark.parametrize("words", [["run"], ["run", "vehicle-distribution", "--all"]])
def test_run_wants_jobs_or_all(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert result.exit_code == ExitCode.USAGE
    assert "--all" in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["topics"], ExitCode.BROKER, "headrace broker start"),
        (["tail", "input.vehicle-position"], ExitCode.BROKER, "headrace broker start"),
        (["simulate"], ExitCode.BROKER, "headrace broker start"),
        (["run", "vehicle-distribution"], ExitCode.BROKER, "headrace broker start"),
        (["broker", "status"], ExitCode.BROKER, "headrace broker start"),
        (["topics", "--bootstrap", "127.0.0.1:1"], ExitCode.BROKER, "Cannot reach Kafka at 127.0.0.1:1"),
        (["tail", "t", "--bootstrap", "127.0.0.1:1"], ExitCode.BROKER, "Cannot reach Kafka at 127.0.0.1:1"),
        (["topics", "--bootstrap", "nowhere"], ExitCode.CONFIG, "--bootstrap: broker.bootstrap is 'nowhere'"),
        (["tail", "t", "--from", "someday"], ExitCode.USAGE, "--from 'someday' is not a time"),
        (["tail"], ExitCode.USAGE, "Missing argument"),
        (["simulate", "--vehicles", "0"], ExitCode.CONFIG, "--vehicles: simulator.vehicles is 0"),
        (["simulate", "--vehicles", "many"], ExitCode.USAGE, "--vehicles"),
        (["simulate", "--vehicles", "5", "--rate", "5"], ExitCode.USAGE, "contradict"),
        (["simulate", "--fast"], ExitCode.USAGE, "--for SECONDS"),
        (["run", "vehicle-distribution", "--master", "locl"], ExitCode.CONFIG, "--master: spark.master is 'locl'"),
        (["topics", "create", "--partitions", "2"], ExitCode.USAGE, "need a topic"),
        (["topics", "create", "a/b"], ExitCode.CONFIG, "not legal"),
        (["broker", "start", "--port", "70000"], ExitCode.CONFIG, "from 0 to 65535"),
        (["demo", "--port", "-5"], ExitCode.CONFIG, "--port: broker.port is -5"),
        (["config", "--config", "absent.toml"], ExitCode.CONFIG, "absent.toml: No such file"),
    ],
)
def test_bad_input_says_what_to_do(cli: Cli, words: list[str], code: ExitCode, said: str) -> None:
    result = cli(*words)
    assert result.exit_code == code, result.output
    assert said in result.output
    assert "Traceback" not in result.output
