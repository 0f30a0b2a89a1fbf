"""`headrace plugins`: what was found beside Headrace itself, from where, and what failed to load."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headrace.cli import terminal
from headrace.cli.jobs import registry
from headrace.cli.options import Globals, Json
from headrace.errors import MissingExtraError

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.registry import Plugin


def found_plugins(settings: Settings) -> list[tuple[Plugin, bool]]:
    """Everything that was found, with whether it is used here: a project that names its jobs has no others."""
    known = registry(settings)
    return [(plugin, True) for plugin in known.plugins] + [(plugin, False) for plugin in known.unused_jobs]


def plugins(ctx: typer.Context, json: Json = False) -> None:
    """List what packages and the project add, from where, and what failed to load."""
    settings = Globals.of(ctx).settings()
    found = found_plugins(settings)
    if json:
        terminal.document([{**_facts(plugin), "used": used} for plugin, used in found])
        return
    terminal.rows(
        ("kind", "name", "place", "from", "brings"),
        [(plugin.kind, plugin.name, plugin.place, plugin.origin, _brings(plugin, used=used)) for plugin, used in found],
        styles=[
            "red" if _is_broken(plugin) else "" if used and not plugin.problem else "dim" for plugin, used in found
        ],
    )
    for plugin, _ in found:
        if _is_broken(plugin):
            terminal.note(f"{plugin.place} of {plugin.origin} failed to load: {plugin.problem}", style="yellow")


def _is_broken(plugin: Plugin) -> bool:
    """Tell what failed from what lacks an extra: that is not broken, but not asked for."""
    return plugin.problem is not None and not isinstance(plugin.problem, MissingExtraError)


def _facts(plugin: Plugin) -> dict[str, object]:
    return {
        "kind": plugin.kind,
        "name": plugin.name,
        "place": plugin.place,
        "from": plugin.origin,
        "provides": list(plugin.provides),
        "problem": None if plugin.problem is None else str(plugin.problem),
    }


def _brings(plugin: Plugin, *, used: bool) -> str:
    if isinstance(plugin.problem, MissingExtraError):
        return f"needs headrace[{','.join(plugin.problem.extras)}]"
    if plugin.problem is not None:
        return "FAILED"
    names = ", ".join(plugin.provides) or "nothing"
    return names if used else f"not used here, the project names its jobs ({names})"
