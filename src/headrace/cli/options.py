"""What every command is given, and the options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import ConfigError, ExitCode, HeadraceError

if TYPE_CHECKING:
    from headrace.config import Settings

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT",
        help="An external Kafka instead of the embedded broker.",
        show_default=False,
    ),
]


class UsageError(HeadraceError, ValueError):
    """What was typed on the command line makes no sense."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True, slots=True)
class Globals:
    """The options before the command.

    Args:
        file: The settings file that `--config` names.
        assignments: KEY=VALUE of each `--set`.
        debug: Whether errors come with a traceback.
    """

    file: Path | None = None
    assignments: tuple[str, ...] = ()
    debug: bool = False

    @classmethod
    def of(cls, ctx: typer.Context) -> Globals:
        """Those of the command line that is being run."""
        return ctx.find_object(cls) or cls()

    def settings(self, **flags: tuple[object, str]) -> Settings:
        """Load the settings with a command's own flags on top.

        Args:
            flags: Key, with two underscores for the dot, to (value, name of the flag).
        """
        from headrace.config import Settings

        given: dict[str, tuple[object, str]] = {}
        for assignment in self.assignments:
            key, equals, value = assignment.partition("=")
            if not equals:
                raise ConfigError(
                    f"--set {assignment} has no value", hint="Write --set KEY=VALUE, such as --set broker.port=9093."
                )
            given[key.strip()] = (value.strip(), f"--set {key.strip()}")
        given.update({key.replace("__", "."): flag for key, flag in flags.items() if flag[0] is not None})
        return Settings.load(file=self.file, flags=given)

    def arguments(self) -> list[str]:
        """The same options again, for a child process that runs another command."""
        words = [] if self.file is None else ["--config", str(self.file)]
        for assignment in self.assignments:
            words += ["--set", assignment]
        return words + (["--debug"] if self.debug else [])
