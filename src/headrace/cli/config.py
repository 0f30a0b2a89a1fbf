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
    from headrace.config import KEYS

    value = settings.value(key)
    if KEYS[key].is_secret:
        return None if value is None else "********"
    if key == "broker.data_directory":
        value = settings.broker_directory
    elif key == "spark.checkpoint_directory":
        value = settings.checkpoint_directory
    return str(value) if KEYS[key].is_path and value is not None else value


def _keys(pattern: str | None) -> list[str]:
    from headrace.config import KEYS, SECTIONS

    found = [key for key in KEYS if pattern is None or key == pattern or key.startswith(f"{pattern}.")]
    if not found:
        import difflib

        close = difflib.get_close_matches(str(pattern), [*SECTIONS, *KEYS], n=1)
        raise ConfigError(
            f"there is no setting or section {pattern!r}",
            hint=(f"Did you mean {close[0]}? " if close else "") + f"Sections: {', '.join(SECTIONS)}.",
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
    from headrace.config import KEYS

    settings = Globals.of(ctx).settings()
    keys = _keys(key)
    if json:
        terminal.document(
            {
                name: {
                    "value": _shown(settings, name),
                    "origin": settings.origin(name).kind,
                    "from": settings.origin(name).name,
                    "allowed": KEYS[name].allowed,
                    "variable": KEYS[name].variable,
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
        terminal.note(f"{KEYS[keys[0]].doc} Allowed: {KEYS[keys[0]].allowed}.")
