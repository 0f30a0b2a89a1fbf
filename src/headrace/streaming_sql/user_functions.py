"""Functions of users in SQL: `CREATE FUNCTION name AS 'module:attribute' LANGUAGE PYTHON`."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.plugins import import_place
from headrace.plugins.modules import put_on_path

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


def function_at(place: str, *, directories: Sequence[Path]) -> Callable[..., Any]:
    """Import the function that a place names.

    Args:
        place: A module or a file, a colon, and what is called so in it; dots lead further into it.
        directories: Where modules are looked for, besides Python's path; the first is that of the project.

    Raises:
        HeadraceError: There is no such module or function, or the module cannot be imported.
    """
    module_name, _, attribute = place.partition(":")
    for directory in directories[1:]:
        put_on_path(directory)
    found: Any = import_place(module_name, directories[0])
    for name in attribute.split("."):
        if not hasattr(found, name):
            close = difflib.get_close_matches(name, dir(found), n=1)
            guess = f"Did you mean {close[0]}?" if close else "Write the function at the top level of the module."
            raise PlanError(f"there is no {attribute} in {module_name}", hint=guess)
        found = getattr(found, name)
    if not callable(found):
        raise PlanError(f"{place} is a {type(found).__name__} and no function", hint="Name a function.")
    function: Callable[..., Any] = found
    return function
