"""The extras that a command needs, checked before it does anything.

A command that needs several parts of Headrace would otherwise name them one after the other, each after the one before
was installed. Commands that are not listed work with the core, or need an extra for some of their arguments only; the
parts that they use then ask for it themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from headrace.extras import require

EXTRAS: dict[str, tuple[str, ...]] = {
    "dev": ("dashboard", "spark"),
    "run": ("spark",),
    "stop": ("spark",),
    "plan": ("spark",),
    "dashboard": ("dashboard",),
    "ingest": ("ingest",),
    "record": ("ingest",),
    "tail": ("kafka",),
    "rights": ("spark",),
    "watermarks": ("spark",),
    "latency": ("kafka",),
    "evaluate": ("report", "spark"),
    "setup": ("spark",),
}

#: Commands that a package of its own brings, by the extra that installs it.
ADDED: dict[str, str] = {"demo": "transit", "simulate": "transit", "replay": "transit"}


def checked(name: str, command: Callable[..., None]) -> Callable[..., None]:
    """Let a command check its extras first. Its help needs none of them."""
    extras = EXTRAS.get(name, ())
    if not extras:
        return command

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        require(*extras, by=f"`headrace {name}`")
        command(*args, **kwargs)

    return run


def require_added(name: str) -> None:
    """Say which extra brings a command that is not there; a name that nobody knows is left to the command line.

    Raises:
        MissingExtraError: An extra that is not installed brings it.
    """
    if name in ADDED:
        require(ADDED[name], by=f"`headrace {name}`")
