"""`headrace plan`: what a changed job can do with the state that there is, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.jobs import complete_job, pick
from headrace.cli.options import Globals, Json, UsageError
from headrace.cli.savepoint import checkpoint_named, savepoint_at

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.savepoints import JobEntry

_STYLES = {"impossible": "red", "drop": "yellow", "reset": "yellow", "new": "green", "migrate": "cyan"}


def plan(
    ctx: typer.Context,
    names: Annotated[
        list[str], typer.Argument(metavar="JOB...", autocompletion=complete_job, show_default=False, help="The jobs.")
    ],
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="STATE",
            help="A savepoint (name, path, URL) or the directory of a checkpoint; that of the jobs if left out.",
            show_default=False,
        ),
    ] = None,
    reset_step: Annotated[
        list[str] | None,
        typer.Option("--reset-step", metavar="STEP", help="As for `headrace run`.", show_default=False),
    ] = None,
    json: Json = False,
) -> None:
    """Say for each step of jobs what a start makes of its state: kept, migrated, new, dropped, or not possible."""
    from headrace.errors import StateError
    from headrace.savepoints import plan_jobs

    settings = Globals.of(ctx).settings()
    jobs = pick(names, settings)
    known, where = _known(settings, names, against)
    plans = plan_jobs(
        {job.name: job.pipeline for job in jobs}, known, key_groups=settings.spark.key_groups, reset=reset_step or ()
    )
    unknown = {*(reset_step or ())} - {plan.step for plan in plans}
    if unknown:
        raise UsageError(f"there is no step {', '.join(sorted(unknown))}", hint="`headrace jobs JOB` lists the steps.")
    if json:
        terminal.document({"against": where, "steps": [each.to_dict() for each in plans]})
    else:
        rows = [(each.job, each.step, each.action, each.detail) for each in plans]
        terminal.rows(("job", "step", "state", "what"), rows)
        for each in plans:
            if each.hint:
                terminal.note(f"{each.job} {each.step}: {each.hint}", style=_STYLES.get(each.action, ""))
    refused = [each for each in plans if each.action == "impossible"]
    if refused:
        raise StateError(
            f"the state in {where} does not fit {len(refused)} of {len(plans)} steps", hint="Nothing was changed."
        )


def _known(settings: Settings, names: list[str], against: str | None) -> tuple[tuple[JobEntry, ...], str]:
    """Read what there is of the jobs: in a savepoint, or in a checkpoint."""
    from headrace.savepoints import read_manifest
    from headrace.spark.checkpoint.identity import FILE
    from headrace.spark.checkpoint.step_notes import read_steps

    checkpoint = checkpoint_named(settings, names, None) if against is None else Path(against)
    if (checkpoint / FILE).exists() or against is None:
        return read_steps(checkpoint), str(checkpoint)
    place = savepoint_at(settings, against)
    return read_manifest(place).jobs, place
