"""The front door of the command line: global options, errors, exit codes.

A `HeadraceError` that reaches this module is printed as two lines, what was wrong and what to do, and becomes the
exit code it carries; `--debug` adds the traceback. Ctrl-C is exit code 130, after the command has cleaned up on its way
out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli import (
    broker,
    config,
    dashboard,
    dev,
    doctor,
    evaluate,
    ingest,
    jobs,
    latency,
    new,
    plan,
    plugins,
    record,
    replay_job,
    rights,
    run,
    savepoint,
    schema,
    setup,
    size,
    sql,
    state,
    tail,
    terminal,
    topics,
    version,
    watermarks,
    why,
)
from headrace.cli.added import added_commands, load_command
from headrace.cli.needs import checked, require_added
from headrace.cli.options import Globals
from headrace.errors import ExitCode, HeadraceError
from headrace.extras import explain

EPILOG = (
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 wrong settings, 4 this machine lacks something (headrace doctor), "
    "5 Kafka trouble, 6 a job failed, 130 stopped by Ctrl-C."
)
#: Options that may stand anywhere on the line, with whether a value follows.
_ANYWHERE = {"--config": True, "--set": True, "--debug": False}


def hoist(arguments: list[str]) -> list[str]:
    """Move the global options to the front, where the parser wants them.

    >>> hoist(["demo", "--config", "a.toml", "--for", "5"])
    ['--config', 'a.toml', 'demo', '--for', '5']
    >>> hoist(["tail", "--set=broker.port=1", "--", "--debug"])
    ['--set=broker.port=1', 'tail', '--', '--debug']
    """
    front: list[str] = []
    rest: list[str] = []
    words = iter(arguments)
    for word in words:
        if word == "--":
            rest += [word, *words]
        elif word in _ANYWHERE:
            front.append(word)
            if _ANYWHERE[word]:
                front += [value for value in [next(words, None)] if value is not None]
        elif word.partition("=")[0] in _ANYWHERE:
            front.append(word)
        else:
            rest.append(word)
    return front + rest


class HeadraceGroup(TyperGroup):
    """All commands, with one way to end for every error."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Accept global options after the command, too."""
        return super().parse_args(ctx, hoist(args))

    def list_commands(self, ctx: Any) -> list[str]:
        """Headrace's own commands, then those that packages add."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in added_commands() if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Give a command by its name; one of a package is loaded when it is asked for."""
        own = super().get_command(ctx, cmd_name)
        return own if own is not None else load_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that was typed; one that an extra would bring names the extra."""
        if args and self.get_command(ctx, args[0]) is None:
            require_added(args[0])
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        """Run the command and turn what it raises into a message and an exit code."""
        try:
            return super().invoke(ctx)
        except HeadraceError as problem:
            raise self._ended(ctx, problem) from None
        except ModuleNotFoundError as error:
            missing = explain(error)
            if missing is None:
                raise
            raise self._ended(ctx, missing) from None
        except KeyboardInterrupt:
            raise typer.Exit(int(ExitCode.INTERRUPTED)) from None
        except BrokenPipeError:
            # The reader (`head`, `less`) has seen enough. What is still buffered must not raise again at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(int(ExitCode.OK)) from None

    @staticmethod
    def _ended(ctx: Any, problem: HeadraceError) -> typer.Exit:
        """Print an error; returns the exit that it becomes."""
        if ctx.params.get("debug"):
            terminal.err.print_exception()
        terminal.error(problem)
        return typer.Exit(int(problem.exit_code))


app = typer.Typer(
    name="headrace",
    cls=HeadraceGroup,
    help="Event streams to analytics: Kafka, event-time windows on Spark, exactly-once results.",
    epilog=EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _globals(
    ctx: typer.Context,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="Settings file instead of ./headrace.toml.",
            show_default=False,
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a setting, as often as you like.", show_default=False),
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    ctx.params["debug"] = debug or bool(os.environ.get("HEADRACE_DEBUG"))
    ctx.obj = Globals(file=config_file, assignments=tuple(assignments or ()), debug=ctx.params["debug"])


_COMMANDS: dict[str, typer.Typer | Callable[..., None]] = {
    "new": new.new,
    "dev": dev.dev,
    "run": run.run,
    "stop": savepoint.stop,
    "savepoint": savepoint.app,
    "plan": plan.plan,
    "state": state.state,
    "why": why.why,
    "replay-job": replay_job.replay_job,
    "dashboard": dashboard.dashboard,
    "ingest": ingest.ingest,
    "record": record.record,
    "topics": topics.app,
    "tail": tail.tail,
    "schema": schema.app,
    "jobs": jobs.jobs,
    "plugins": plugins.plugins,
    "rights": rights.rights,
    "sql": sql.sql,
    "watermarks": watermarks.watermarks,
    "size": size.size,
    "latency": latency.latency,
    "evaluate": evaluate.evaluate,
    "broker": broker.app,
    "config": config.config,
    "doctor": doctor.doctor,
    "setup": setup.setup,
    "version": version.version,
}
for _name, _command in _COMMANDS.items():
    if isinstance(_command, typer.Typer):
        app.add_typer(_command, name=_name)
    else:
        app.command(_name)(checked(_name, _command))


def main() -> None:
    """Run the command line."""
    app(prog_name="headrace")


if __name__ == "__main__":
    main()
