"""Modules that have moved are found by their old names, with a warning that says the new one."""

from __future__ import annotations

import importlib
import sys

import pytest

from headrace.moved import MOVED


@pytest.mark.parametrize("old", MOVED)
def test_an_old_name_gives_the_new_objects_and_warns(old: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, old, raising=False)
    with pytest.warns(DeprecationWarning, match=f"{old} has moved to {MOVED[old][0]}"):
        module = importlib.import_module(old)
    for new in MOVED[old]:
        home = importlib.import_module(new)
        for name in getattr(home, "__all__", ["run_jobs"] if old.endswith("runner") else ["BatchDone"]):
            assert getattr(module, name) is getattr(home, name)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"headrace\.brokers"):
        importlib.import_module("headrace.brokers")
