"""Commands that packages add, by the entry point group `headrace.commands`.

The name of an entry point is that of the command; what it names is a function as typer takes it, or a `typer.Typer`
with commands of its own. A command is loaded when it is called, or when the list of all commands is shown; one that
cannot be loaded is left out of the list, and says why when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer
from typer.main import get_command, get_group

from headrace.errors import HeadraceError, PlanError
from headrace.plugins import entry_points_of, load_failure, origin_of

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def added_commands() -> dict[str, EntryPoint]:
    """Tell the commands that packages add, by name; of two of one name the first is it."""
    return {point.name: point for point in reversed(entry_points_of("commands"))}


def load_command(name: str) -> Any:
    """Load a command.

    Args:
        name: Its name.

    Returns:
        The command as click has it; None if no package adds one of this name.
    """
    point = added_commands().get(name)
    if point is None:
        return None
    try:
        return _command(name, point.load())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever a package raises is its own failure, and told
        return _broken(name, origin_of(point), load_failure(point.value, error))


def _command(name: str, thing: Any) -> Any:
    if isinstance(thing, typer.Typer):
        group = get_group(thing)
        group.name = name
        return group
    if not callable(thing):
        raise PlanError(f"{thing!r} is neither a function nor a typer.Typer", hint="Name one of these, for commands.")
    made = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})
    made.command(name)(thing)
    return get_command(made)


def _broken(name: str, origin: str, problem: HeadraceError) -> Any:
    """A command that only says why it cannot be used."""

    def refuse() -> None:
        raise PlanError(f"the command {name} of {origin} failed to load: {problem.message}", hint=problem.hint)

    command = _command(name, refuse)
    command.hidden = True
    return command
