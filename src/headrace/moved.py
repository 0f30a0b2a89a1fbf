"""Modules that have moved: an old name works for one release, with a warning that says the new one."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

#: The modules that documents told users to import, and where their names are now.
MOVED: dict[str, tuple[str, ...]] = {
    "headrace.broker": ("headrace.kafka", "headrace.dev"),
    "headrace.spark.runner": ("headrace.spark.run.runner",),
    "headrace.spark.progress": ("headrace.spark.run.progress",),
}

#: Packages that have moved with all that is in them.
MOVED_PACKAGES: dict[str, str] = {"headrace.transit": "headrace_transit"}
#: Modules some names of which have moved elsewhere; whatever such a module does not know is looked up there.
MOVED_NAMES: dict[str, tuple[str, ...]] = {
    "headrace.events": ("headrace_transit.schemas",),
    "headrace.config": ("headrace_transit.settings",),
}


def moved_name(module: str, name: str) -> Any:
    """Find a name that has moved out of a module; the `__getattr__` of the module asks.

    Args:
        module: The module.
        name: The name.

    Raises:
        AttributeError: There is no such name.
    """
    for home in () if name.startswith("_") else MOVED_NAMES[module]:
        try:
            found = getattr(importlib.import_module(home), name, None)
        except ModuleNotFoundError:
            continue  # the package that has it now is not installed
        if found is not None:
            _warn(f"{module}.{name}", (f"{home}.{name}",), stacklevel=4)
            return found
    raise AttributeError(f"module {module!r} has no attribute {name!r}")


def _warn(old: str, homes: tuple[str, ...], *, stacklevel: int) -> None:
    warnings.warn(
        f"{old} has moved to {' and '.join(homes)}; the old name goes with the next release",
        DeprecationWarning,
        stacklevel=stacklevel,
    )


def _homes(name: str) -> tuple[str, ...]:
    """Where the names of a module that has moved are now; nothing if it has not moved."""
    if name in MOVED:
        return MOVED[name]
    for old, new in MOVED_PACKAGES.items():
        if name == old or name.startswith(f"{old}."):
            return (new + name.removeprefix(old),)
    return ()


class MovedModules(MetaPathFinder, Loader):
    """Finds what is imported by an old name. It is asked last, so nothing else costs more because of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that has moved."""
        del path, target
        homes = _homes(fullname)
        if not homes:
            return None
        is_package = any(fullname == old or fullname.startswith(f"{old}.") for old in MOVED_PACKAGES)
        if is_package and find_spec(homes[0].partition(".")[0]) is None:
            return None  # where it is now is not installed
        return ModuleSpec(fullname, self, is_package=is_package)

    def exec_module(self, module: ModuleType) -> None:
        """Fill the old module with the names of the new ones."""
        homes = _homes(module.__name__)
        _warn(module.__name__, homes, stacklevel=3)
        for home in homes:
            names = vars(importlib.import_module(home))
            module.__dict__.update({name: value for name, value in names.items() if not name.startswith("__")})


def find_moved_modules() -> None:
    """Let imports of old names find the new modules."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
