"""What deploy/ says fits the code: commands, settings, versions. `make manifests` checks it by schemas."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.core import TyperGroup

from headrace.cli.main import app
from headrace.config import Settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "headrace"
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
#: Those that Headrace's own image runs.
OURS = {name: service for name, service in COMPOSE["services"].items() if "headrace" in service["image"]}
_VARIABLE = re.compile(r"\$\{(\w+)(?::-(.*?))?\}")


def filled(text: str) -> str:
    """Put the defaults of a compose file in the places of its variables."""
    return _VARIABLE.sub(lambda match: match[2] or "x", text).replace("$$", "$")


def parse(words: list[str]) -> None:
    """Let the command line read a command, without running it."""
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    with group.make_context("headrace", list(words)) as context:
        command = group.get_command(context, words[0])
        assert command is not None, words
        command.make_context(words[0], words[1:], parent=context)


def settings_of(environment: dict[str, Any]) -> list[str]:
    return [name for name in environment if name.startswith("HEADRACE_")]


@pytest.mark.parametrize("name", OURS)
def test_the_command_of_a_service_can_be_read(name: str) -> None:
    service = OURS[name]
    words = [filled(word) for word in service["command"]]
    entrypoint = " ".join(service.get("entrypoint", ["headrace"]))
    if entrypoint.endswith("sh -c"):
        parse(words[0].partition("exec headrace ")[2].split())
    elif entrypoint.endswith("headrace"):
        parse(words)
    else:
        assert "spark-class org.apache.spark.deploy." in entrypoint


def test_a_command_that_cannot_be_read_would_be_noticed() -> None:
    with pytest.raises(Exception, match=r"No such option.*metrics-prot"):
        parse(["run", "--all", "--metrics-prot", "9400"])


def test_settings_by_environment_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("-")
    monkeypatch.chdir(tmp_path)
    for service in OURS.values():
        for name in settings_of(service.get("environment", {})):
            monkeypatch.setenv(name, str(service["environment"][name]))
    for name, value in re.findall(r"(HEADRACE_\w+)=(\S+)", DOCKERFILE):
        monkeypatch.setenv(name, value)
    settings = Settings.load(flags={})
    assert settings.broker.bootstrap == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert (settings.broker.replication, settings.broker.min_insync_replicas) == (3, 2)
    assert settings.paths.home == Path("/var/lib/headrace")
    assert settings.spark.state_partitions == 4


def test_settings_of_the_chart_are_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    names = set(re.findall(r"HEADRACE_[A-Z]+__[A-Z_]+", templates))
    known = {f"HEADRACE_{key.upper().replace('.', '__')}" for key, _ in _settings()}
    assert len(names) > 8
    assert names <= known, names - known
    everything = yaml.safe_load((CHART / "ci" / "everything-values.yaml").read_text())
    given = {f"{section}.{key}" for section, keys in everything["settings"].items() for key in keys}
    assert given <= {key for key, _ in _settings()}


def _settings() -> list[tuple[str, Any]]:
    settings = Settings.load(flags={})
    return [
        (f"{section}.{key}", value)
        for section in type(settings).model_fields
        if hasattr(type(getattr(settings, section)), "model_fields")
        for key, value in dict(getattr(settings, section)).items()
    ]


def test_the_commands_of_the_chart_can_be_read() -> None:
    for name in ("ingest", "dashboard"):
        found = re.search(r"args: \[(.*)\]", (CHART / "templates" / f"{name}.yaml").read_text())
        assert found is not None
        words = [
            "feeds.toml" if "{{" in word else word.strip().strip('"') for word in re.split(r", (?![^{]*\}\})", found[1])
        ]
        parse(words)
    text = (CHART / "templates" / "queries.yaml").read_text()
    block = text.partition("args:\n")[2].partition("          env:")[0]
    words = [line.strip().removeprefix("- ").strip('"') for line in block.splitlines() if line.strip().startswith("- ")]
    parse(["local[2]" if "local" in word else "late" if "{{" in word else word for word in words])


def test_services_are_bounded_watched_and_started_again() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["restart"] == "unless-stopped", name
        assert {"cpus", "memory"} == set(service["deploy"]["resources"]["limits"]), name
        assert service["logging"]["options"], name
        assert "healthcheck" in service or name in ("spark-worker-1", "spark-worker-2", "simulate"), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ())), name
        image = filled(service["image"])
        assert re.search(r":v?\d+\.\d+\.\d+$", image) or image == "headrace:latest", name
    for name, service in OURS.items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name


def test_the_broker_is_of_the_version_that_the_tests_use() -> None:
    locked = tomllib.loads((ROOT / "src" / "headrace" / "dev" / "jars.lock").read_text())
    versions = {name.split(":")[2] for name in locked["embedded-broker"] if ":kafka-server:" in name}
    image = COMPOSE["services"]["kafka-1"]["image"]
    assert versions == {image.partition(":")[2]}


def test_what_is_mounted_is_there_or_is_made_by_hand() -> None:
    made_by_hand = {"./dashboard_token"}
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = filled(volume).partition(":")[0]
            if source.startswith("."):
                assert (DEPLOY / "compose" / source).exists(), source
            else:
                assert source in COMPOSE["volumes"], source
    assert {secret["file"] for secret in COMPOSE["secrets"].values()} == made_by_hand
    assert "deploy/compose/dashboard_token" in (ROOT / ".gitignore").read_text()


def test_prometheus_scrapes_what_the_compose_file_starts() -> None:
    configuration = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    for scraped in configuration["scrape_configs"]:
        target = scraped["static_configs"][0]["targets"][0]
        service, _, port = target.partition(":")
        command = " ".join(COMPOSE["services"][service]["command"])
        assert f"port {port}" in command, target
    jobs = {scraped["job_name"] for scraped in configuration["scrape_configs"]}
    asked = set(re.findall(r'up\{job="([^"]+)"\}', (DEPLOY / "prometheus" / "alerts.yaml").read_text()))
    assert asked == jobs


def test_the_image_runs_as_nobody_in_particular_from_pinned_bases() -> None:
    bases = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert bases == ["${BASE}", "${BASE}"]
    base = re.search(r"^ARG BASE=python:(\d+\.\d+)\.\d+-slim-bookworm$", DOCKERFILE, re.MULTILINE)
    assert base is not None
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    assert f"Programming Language :: Python :: {base[1]}" in supported
    runtime = DOCKERFILE.partition("AS runtime")[2]
    assert re.findall(r"^USER (\S+)", runtime, re.MULTILINE) == ["10001:10001"]
    for source in re.findall(r"^COPY (?!--from)(\S+)", DOCKERFILE, re.MULTILINE):
        assert (ROOT / source).exists(), source
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert not {"src", "transit", "requirements", "frontend", "scripts"} & set(ignored)
    uid = re.findall(r"runAs(?:User|Group): (\d+)", (CHART / "templates" / "_helpers.tpl").read_text())
    assert uid == ["10001", "10001"]


def test_the_chart_ships_the_alerts_as_they_are() -> None:
    assert (CHART / "alerts.yaml").read_bytes() == (DEPLOY / "prometheus" / "alerts.yaml").read_bytes()


def test_the_chart_has_no_rights_and_no_secrets() -> None:
    templates = "".join(path.read_text() for path in (CHART / "templates").iterdir())
    assert "kind: Role" not in templates
    assert "kind: Secret" not in templates
    assert templates.count("automountServiceAccountToken: false") == 2
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version
