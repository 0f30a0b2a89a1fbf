"""What all commands share: help, errors, exit codes, global options, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.cli.added import added_commands
from headrace.cli.main import _COMMANDS, app, hoist
from headrace.errors import BrokerError, ExitCode

if TYPE_CHECKING:
    from .conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = sorted([*_COMMANDS, *added_commands()])


def headrace(*words: str, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "XDG_DATA_HOME": str(cwd), "COLUMNS": "200"} | env
    return subprocess.run(
        [sys.executable, "-m", "headrace.cli", *words],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_help_lists_commands_and_exit_codes(cli: Cli) -> None:
    result = cli("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.output
    for code in ExitCode:
        assert f" {int(code)} " in result.output


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(cli: Cli, command: str) -> None:
    result = cli(command, "-h")
    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_every_command_and_exit_code_is_documented() -> None:
    text = (ROOT / "docs" / "cli.md").read_text()
    for command in COMMANDS:
        assert f"headrace {command}" in text
    for code in ExitCode:
        assert f"| {int(code)} |" in text


def test_help_needs_none_of_the_heavy_packages(home: Path) -> None:
    heavy = ["pyspark", "polars", "pyarrow", "confluent_kafka", "pandas", "numpy", "pydantic", "google.protobuf"]
    program = f"import sys; import headrace.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_no_command_shows_help(cli: Cli) -> None:
    assert "Usage: " in cli().output


def test_an_unknown_command_is_wrong_usage(home: Path) -> None:
    result = headrace("dmeo", cwd=home)
    assert result.returncode == ExitCode.USAGE
    assert "No such command 'dmeo'" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_error_is_two_lines_without_a_traceback(home: Path) -> None:
    (home / "headrace.toml").write_text("[broker]\nprt = 1\n")
    result = headrace("config", cwd=home)
    assert result.returncode == ExitCode.CONFIG
    assert result.stdout == ""
    what, remedy = result.stderr.splitlines()
    assert what.startswith("Error: ")
    assert "headrace.toml:2" in what
    assert remedy.startswith("Did you mean broker.port?")


@pytest.mark.parametrize("how", [{"HEADRACE_DEBUG": "1"}, {}])
def test_debug_adds_the_traceback(home: Path, how: dict[str, str]) -> None:
    words = ["config", "nothing"] + ([] if how else ["--debug"])
    result = headrace(*words, cwd=home, **how)
    assert result.returncode == ExitCode.CONFIG
    assert "Traceback" in result.stderr
    assert "Error: there is no setting or section 'nothing'" in result.stderr


def test_global_options_may_stand_after_the_command(cli: Cli, home: Path) -> None:
    (home / "other.toml").write_text("[simulator]\nseed = 5\n")
    for words in (["--config", "other.toml", "config", "--json"], ["config", "--json", "--config=other.toml"]):
        assert json.loads(cli(*words).stdout)["simulator.seed"]["value"] == 5


def test_what_follows_two_dashes_is_left_alone() -> None:
    assert hoist(["tail", "--", "--config"]) == ["tail", "--", "--config"]
    assert hoist(["tail", "--config"]) == ["--config", "tail"]


def test_set_changes_any_setting(cli: Cli) -> None:
    shown = json.loads(cli("config", "--json", "--set", "simulator.seed=7", "--set", "broker.port=0").stdout)
    assert shown["simulator.seed"] | {"allowed": ""} == {
        "value": 7,
        "origin": "flag",
        "from": "--set simulator.seed",
        "allowed": "",
        "variable": "HEADRACE_SIMULATOR__SEED",
    }
    assert shown["broker.port"]["value"] == 0


def test_set_without_a_value_is_explained(cli: Cli) -> None:
    result = cli("config", "--set", "simulator.seed")
    assert result.exit_code == ExitCode.CONFIG
    assert "--set KEY=VALUE" in result.stderr


@pytest.mark.parametrize(
    ("raised", "code"),
    [(BrokerError("gone", hint="look"), ExitCode.BROKER), (KeyboardInterrupt(), ExitCode.INTERRUPTED)],
)
def test_what_a_command_raises_becomes_its_exit_code(cli: Cli, raised: BaseException, code: ExitCode) -> None:
    @app.command("fail-for-a-test", hidden=True)
    def fail() -> None:
        raise raised

    try:
        assert cli("fail-for-a-test").exit_code == code
    finally:
        app.registered_commands.pop()


def test_a_reader_that_has_seen_enough_is_no_error(home: Path) -> None:
    pipeline = f"{sys.executable} -m headrace.cli config --json | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", pipeline],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["{", "0"]


def test_the_shell_can_complete_commands(home: Path) -> None:
    program = "import sys; sys.argv = ['headrace']; from headrace.cli.main import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "_HEADRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": "headrace do",
            "COMP_CWORD": "1",
        },
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.stdout.split() == ["doctor"]


def test_module_and_command_are_the_same(home: Path) -> None:
    assert headrace("version", "--json", cwd=home).stdout.startswith("{")
