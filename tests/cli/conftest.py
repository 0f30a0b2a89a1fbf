"""A command line in a directory of its own, without the settings of whoever runs the tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

Cli = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, with everything that Headrace would write below it."""
    for name in [name for name in os.environ if name.startswith("HEADRACE_") and name != "HEADRACE_JAR_REPOSITORY"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def cli(home: Path) -> Cli:
    """Run `headrace` with these words."""
    runner = CliRunner()

    def run(*words: object, env: dict[str, str] | None = None) -> Result:
        result = runner.invoke(app, [str(word) for word in words], env=env)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run
