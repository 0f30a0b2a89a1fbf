"""`headrace rights`: what a job must be allowed on a secured Kafka, and no more."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.jobs import complete_job, pick
from headrace.cli.options import Globals, Json


def rights(
    ctx: typer.Context,
    names: Annotated[list[str], typer.Argument(metavar="JOB...", autocompletion=complete_job, show_default=False)],
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="NAME", help="Print the calls of Kafka's own tool that give them to this user."),
    ] = None,
    json: Json = False,
) -> None:
    """List the rights that jobs need on a secured Kafka when they run in one query."""
    from headrace.spark.run.rights import rights_of

    settings = Globals.of(ctx).settings()
    found = rights_of(pick(names, settings))
    if json:
        terminal.document([asdict(right) for right in found])
        return
    if user is not None:
        for right in found:
            terminal.line(right.command(user, bootstrap=settings.broker.bootstrap or "HOST:PORT"))
        return
    terminal.rows(
        ("resource", "name", "operation", "what for"),
        [
            (
                r.resource,
                r.name + ("*" if r.prefixed else ""),
                r.operation,
                r.why + ("; it runs without" if r.optional else ""),
            )
            for r in found
        ],
    )
