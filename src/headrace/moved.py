"""Modules that have moved: an old name works for one release, with a warning that says the new one."""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

#: The modules that documents told users to import, and where their names are now.
MOVED: dict[str, tuple[str, ...]] = {
    "headrace.broker": ("headrace.kafka", "headrace.dev"),
    "headrace.spark.runner": ("headrace.spark.run.runner",),
    "headrace.spark.progress": ("headrace.spark.run.progress",),
}


class MovedModules(MetaPathFinder, Loader):
    """Finds what is imported by an old name. It is asked last, so nothing else costs more because of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module that has moved."""
        del path, target
        return ModuleSpec(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        """Fill the old module with the names of the new ones."""
        homes = MOVED[module.__name__]
        warnings.warn(
            f"{module.__name__} has moved to {' and '.join(homes)}; the old name goes with the next release",
            DeprecationWarning,
            stacklevel=2,
        )
        for home in homes:
            names = vars(importlib.import_module(home))
            module.__dict__.update({name: value for name, value in names.items() if not name.startswith("__")})


def find_moved_modules() -> None:
    """Let imports of old names find the new modules."""
    if not any(isinstance(finder, MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(MovedModules())
