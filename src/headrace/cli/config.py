"""`headrace config`: the settings in effect, and where each came from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Globals, Json
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.config import Settings


def _shown(settings: Settings, key: str) -> object:
    value = settings.value(key)
    if settings.keys[key].is_secret:
        return None if value is None else "********"
    if key == "broker.data_directory":
        value = settings.broker_directory
    elif key == "spark.checkpoint_directory":
        value = settings.checkpoint_directory
    return str(value) if settings.keys[key].is_path and value is not None else value


def _keys(settings: Settings, pattern: str | None) -> list[str]:
    found = [key for key in settings.keys if pattern is None or key == pattern or key.startswith(f"{pattern}.")]
    if not found:
        import difflib

        sections = list(dict.fromkeys(key.partition(".")[0] for key in settings.keys))
        close = difflib.get_close_matches(str(pattern), [*sections, *settings.keys], n=1)
        raise ConfigError(
            f"there is no setting or section {pattern!r}",
            hint=(f"Did you mean {close[0]}? " if close else "") + f"Sections: {', '.join(sections)}.",
        )
    return found


def config(
    ctx: typer.Context,
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="A setting or a section only.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Show the settings in effect and where each came from."""
    settings = Globals.of(ctx).settings()
    keys = _keys(settings, key)
    if json:
        terminal.document(
            {
                name: {
                    "value": _shown(settings, name),
                    "origin": settings.origin(name).kind,
                    "from": settings.origin(name).name,
                    "allowed": settings.keys[name].allowed,
                    "variable": settings.keys[name].variable,
                }
                for name in keys
            }
        )
        return
    body, styles = [], []
    for name in keys:
        value = _shown(settings, name)
        origin = settings.origin(name)
        body.append((name, "-" if value in {None, ""} else str(value), str(origin)))
        styles.append("dim" if origin.kind == "default" else "")
    terminal.rows(("setting", "value", "from"), body, styles=styles)
    if len(keys) == 1:
        terminal.note(f"{settings.keys[keys[0]].doc} Allowed: {settings.keys[keys[0]].allowed}.")
