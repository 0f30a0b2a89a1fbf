"""The units of systemd: accepted by it, with commands that can be read, and with the exit codes that Headrace has."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.deploy.test_manifests import parse

from headrace.config import Settings
from headrace.errors import ExitCode

UNITS = sorted((Path(__file__).resolve().parents[2] / "deploy" / "systemd").glob("*.service"))
_DEFAULTS = {"$JOBS": "late parcels", "${METRICS_PORT}": "9400", "${FEEDS}": "feeds.toml", "%i": "parcels"}


def values(unit: Path, name: str) -> list[str]:
    text = unit.read_text()
    return re.findall(rf"^{name}=(.*)$", text, re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_command_and_the_settings_of_a_unit(unit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (command,) = values(unit, "ExecStart")
    for variable, value in _DEFAULTS.items():
        command = command.replace(variable, value)
    program, *words = shlex.split(command)
    assert program == "/opt/headrace/bin/headrace"
    assert "$" not in command
    parse(words)
    for line in values(unit, "Environment"):
        for name, value in (each.split("=", 1) for each in line.split()):
            if name.startswith("HEADRACE_"):
                monkeypatch.setenv(name, value)
    home = Settings.load(flags={}).paths.home
    assert home is not None
    directories = values(unit, "StateDirectory")[0].split()
    assert str(home).replace("/var/lib/", "") in directories
    assert values(unit, "User") == ["headrace"]


def test_what_comes_again_at_every_start_is_not_started_again() -> None:
    lasting = {ExitCode.USAGE, ExitCode.CONFIG}
    for unit in UNITS:
        codes = {ExitCode(int(code)) for code in values(unit, "RestartPreventExitStatus")[0].split()}
        assert codes == (lasting | {ExitCode.JOB} if "run@" in unit.name else lasting), unit
    assert len(UNITS) == 3


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_accepts_the_unit(unit: Path, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # A program that is there: whether one is, is checked too.
    there = unit.read_text().replace("/opt/headrace/bin/headrace", "/bin/true")
    name = unit.name.replace("@", "@parcels")
    for text, accepted in ((there, True), (there.replace("ProtectHome=yes", "ProtectHome=perhaps"), False)):
        (tmp_path / name).write_text(text)
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / name)], capture_output=True, text=True
        )
        told = [line for line in done.stderr.splitlines() if name in line]
        assert (not told) == accepted, done.stderr
