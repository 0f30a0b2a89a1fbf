"""Every public name resolves, and the table of extras says what pyproject.toml says."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
import tomllib
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

import headrace
from headrace import extras
from headrace.cli.main import _COMMANDS
from headrace.cli.needs import EXTRAS
from headrace.errors import HeadraceError, MissingExtraError

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(headrace.__path__, "headrace.")
    if not module.name.endswith(("__main__", "_pb2"))
)


@pytest.mark.parametrize("name", ["headrace", *MODULES])
def test_every_name_in_all_resolves(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert len(names) == len(set(names))
    assert [each for each in names if not hasattr(module, each)] == []


def test_the_version_is_that_of_the_distribution() -> None:
    assert headrace.__version__ == version("headrace")
    with pytest.raises(AttributeError, match="no attribute 'Steam'"):
        _ = headrace.Steam


def _declared() -> dict[str, list[str]]:
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return found


def _name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\s<>=!~\[;]", requirement, maxsplit=1)[0]).lower()


def test_the_table_of_extras_is_that_of_pyproject() -> None:
    declared = _declared()
    assert set(extras.MODULES) == set(declared) - {"all", "dev"}
    assert declared["all"] == [f"headrace[{','.join(sorted(extras.MODULES))}]"]
    distributions = packages_distributions()
    for extra, modules in extras.MODULES.items():
        own = [each for each in declared[extra] if not each.startswith("headrace[")]
        included = [each for each in declared[extra] if each.startswith("headrace[")]
        assert included == ([f"headrace[{','.join(extras.INCLUDES[extra])}]"] if extra in extras.INCLUDES else [])
        owners = {_name(distribution) for module in modules for distribution in distributions.get(module, [module])}
        # Two come with others: py4j with pyspark, starlette with fastapi.
        assert owners - {"py4j", "starlette"} == {_name(each) for each in own}


def test_commands_name_extras_that_exist() -> None:
    assert set(EXTRAS) <= set(_COMMANDS)
    assert {extra for needed in EXTRAS.values() for extra in needed} <= set(extras.MODULES)


def test_a_missing_extra_is_an_error_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.MODULES, "geo", ("h3", "no_such_module"))
    extras.require("http", by="this test")
    with pytest.raises(MissingExtraError) as caught:
        extras.require("geo", "http", "dashboard", by="this test")
    error = caught.value
    assert isinstance(error, HeadraceError)
    assert isinstance(error, ImportError)
    assert error.message == "this test needs packages that are not installed: no_such_module"
    assert error.hint == "Install it: pip install 'headrace[geo,dashboard]'"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301  it crosses to Spark's driver like this
    assert (type(again), str(again), again.extras) == (MissingExtraError, str(error), ("geo", "dashboard"))


def test_the_protobuf_that_is_required_runs_the_generated_modules() -> None:
    generated = (ROOT / "src/headrace/events/schemas/envelope_pb2.py").read_text()
    compiler = re.search(r"^# Protobuf Python Version: (\S+)$", generated, re.MULTILINE)
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (needed,) = (each for each in dependencies if each.startswith("protobuf>="))
    assert compiler is not None
    lowest = needed.removeprefix("protobuf>=").partition(",")[0]
    assert [int(part) for part in lowest.split(".")] >= [int(part) for part in compiler[1].split(".")]
