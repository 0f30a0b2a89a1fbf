"""`headrace savepoint`: the state of jobs in files, of a running query or a stopped one; and `headrace stop`."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.jobs import complete_job, pick
from headrace.cli.options import Globals, Json, UsageError
from headrace.cli.run import checkpoint_of

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.savepoints import Manifest

app = typer.Typer(
    help="Save the state of jobs to files, to go on from later, elsewhere or otherwise.", no_args_is_help=True
)

Names = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOB...",
        help="The jobs of the query, all that run together.",
        autocompletion=complete_job,
        show_default=False,
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", help="The directory of the checkpoint instead.", show_default=False),
]
Where = Annotated[
    str | None,
    typer.Option(
        "--in",
        metavar="PLACE",
        help="A directory or URL with savepoints; spark.savepoints if left out.",
        show_default=False,
    ),
]
Timeout = Annotated[float, typer.Option("--timeout", metavar="SECONDS", help="How long to wait for the query.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The name of a savepoint.", show_default=False)]


def savepoint_at(settings: Settings, name: str, place: str | None = None) -> str:
    """Tell where a savepoint is: a path or URL as it is, a name below the place of savepoints."""
    from headrace.savepoints.storage import below

    if "/" in name:
        return name
    return str(below(place or settings.savepoint_place, name))


def checkpoint_named(settings: Settings, names: list[str] | None, directory: Path | None) -> Path:
    """Find a checkpoint by its directory, or by the jobs that run together."""
    if (directory is None) == (not names):
        raise UsageError("name the jobs that run together, or --checkpoint DIR", hint="See `headrace jobs`.")
    found = directory if directory is not None else checkpoint_of(settings, pick(names or [], settings))
    return found.absolute()


@app.command()
def create(
    ctx: typer.Context,
    names: Names = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="NAME", help="What it is called; the time if left out.", show_default=False),
    ] = None,
    checkpoint: Checkpoint = None,
    place: Where = None,
    timeout: Timeout = 600.0,
    json: Json = False,
) -> None:
    """Save the state of a query. It goes on meanwhile, if it runs on this machine; else its checkpoint is read."""
    settings = Globals.of(ctx).settings()
    directory = checkpoint_named(settings, names, checkpoint)
    where, called = _new(settings, name, place)
    from headrace.spark.checkpoint.identity import is_in_use

    begun = time.monotonic()
    if is_in_use(directory):
        from headrace.spark.checkpoint.requests import Request, ask

        request = Request("savepoint", where, called)
        told = ask(directory, request, alive=lambda: is_in_use(directory), patience=timeout)
        manifest = _manifest(told)
    else:
        manifest = taken(settings, directory, where, called)
    _tell(manifest, where, time.monotonic() - begun, json=json)


def stop(
    ctx: typer.Context,
    names: Names = None,
    savepoint: Annotated[bool, typer.Option("--savepoint", help="Save the state when it has stopped.")] = False,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What the savepoint is called.", show_default=False)
    ] = None,
    checkpoint: Checkpoint = None,
    place: Where = None,
    timeout: Timeout = 600.0,
    json: Json = False,
) -> None:
    """Stop a query that runs on this machine after the batch under way; with --savepoint its state is saved then."""
    from headrace.spark.checkpoint.identity import is_in_use
    from headrace.spark.checkpoint.requests import Request, ask

    if name is not None and not savepoint:
        raise UsageError("--name names a savepoint", hint="Add --savepoint.")
    settings = Globals.of(ctx).settings()
    directory = checkpoint_named(settings, names, checkpoint)
    if not is_in_use(directory):
        from headrace.errors import StateError

        raise StateError(
            f"no query of this machine runs with the checkpoint {directory}",
            hint="Name the jobs that run together. `headrace savepoint create` saves the state of a stopped one.",
        )
    where, called = _new(settings, name, place) if savepoint else (None, "")
    begun = time.monotonic()
    request = Request("stop", where, called)
    told = ask(directory, request, alive=lambda: is_in_use(directory), patience=timeout)
    while is_in_use(directory) and time.monotonic() - begun < timeout:
        time.sleep(0.1)
    if where is not None:
        _tell(_manifest(told), where, time.monotonic() - begun, json=json)
    elif json:
        terminal.document({"stopped": str(directory)})
    else:
        terminal.line(f"Stopped the query of {directory}.")


@app.command("list")
def list_(ctx: typer.Context, place: Where = None, json: Json = False) -> None:
    """List the savepoints, the oldest first."""
    from headrace.errors import StateError
    from headrace.savepoints.files import list_savepoints

    settings = Globals.of(ctx).settings()
    found = list_savepoints(place or settings.savepoint_place)
    if json:
        terminal.document(
            [
                {"name": name, "problem": each.message} if isinstance(each, StateError) else _summary(name, each)
                for name, each in found
            ]
        )
        return
    if not found:
        terminal.note(
            f"There are no savepoints in {place or settings.savepoint_place}. Take one: headrace savepoint create JOB"
        )
        return
    body = []
    for name, each in found:
        if isinstance(each, StateError):
            body.append((name, "-", "-", "-", "-", each.message))
        else:
            jobs = ", ".join(job.job for job in each.jobs)
            body.append((name, each.created, str(each.batches), f"{each.file_bytes:,}", f"{each.state_bytes:,}", jobs))
    terminal.rows(("name", "taken", "batches", "bytes", "state bytes", "jobs"), body)


@app.command()
def show(ctx: typer.Context, name: Name, place: Where = None, json: Json = False) -> None:
    """Show what a savepoint holds: jobs, steps, offsets, watermarks."""
    from headrace.savepoints import read_manifest
    from headrace.time.instants import moment

    manifest = read_manifest(savepoint_at(Globals.of(ctx).settings(), name, place))
    if json:
        terminal.document(manifest.to_dict())
        return
    terminal.line(f"{manifest.name}, taken {manifest.created} with Headrace {manifest.version}")
    terminal.line(f"of query {manifest.query}, after {manifest.batches:,} batches, {manifest.key_groups} key groups")
    for topic, partitions in manifest.position.get("offsets", {}).items():
        terminal.line(f"  {topic} up to " + ", ".join(f"{n}: {at:,}" for n, at in partitions.items()))
    body = []
    for job in manifest.jobs:
        for step in job.steps:
            mark = None if step.watermark is None else moment(step.watermark)
            at = "-" if mark is None else mark.isoformat(timespec="milliseconds")
            does = "; ".join(f"{key} {value}" for key, value in step.shape.items())
            body.append((job.job, step.step, at, f"{step.state_bytes:,}", str(step.segments), does))
    terminal.rows(("job", "step", "watermark", "state bytes", "segments", "what"), body)
    for job in manifest.jobs:
        if job.stopped is not None:
            terminal.note(f"{job.job} takes no part: {job.stopped['message']}")


@app.command()
def verify(ctx: typer.Context, name: Name, place: Where = None, json: Json = False) -> None:
    """Check all files of a savepoint against its manifest."""
    from headrace.errors import StateError
    from headrace.savepoints import read_manifest
    from headrace.savepoints import verify as check

    where = savepoint_at(Globals.of(ctx).settings(), name, place)
    findings = check(where)
    if json:
        terminal.document([{"file": each.file, "problem": each.problem} for each in findings])
    if findings:
        first = findings[0]
        raise StateError(
            f"{len(findings)} files of {where} are damaged; {first.file} {first.problem}",
            hint="Restore the files from a copy, or take another savepoint.",
        )
    if not json:
        files = sum(len(job.steps) for job in read_manifest(where).jobs)
        terminal.line(f"All {files} files are there and have the checksums of the manifest.")


@app.command()
def delete(ctx: typer.Context, name: Name, place: Where = None) -> None:
    """Delete a savepoint."""
    from headrace.savepoints.files import delete_savepoint

    where = savepoint_at(Globals.of(ctx).settings(), name, place)
    delete_savepoint(where)
    terminal.note(f"Deleted {where}.")


def _new(settings: Settings, name: str | None, place: str | None) -> tuple[str, str]:
    """Choose the place and name of a new savepoint."""
    from headrace.savepoints.files import check_name

    called = check_name(name or datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
    where = savepoint_at(settings, called, place)
    return (where if "://" in where else str(Path(where).absolute())), called


def _manifest(told: dict[str, Any]) -> Manifest:
    from headrace.savepoints import Manifest

    return Manifest.from_text(told["manifest"], where="the answer of the query")


def taken(settings: Settings, checkpoint: Path, where: str, name: str) -> Manifest:
    """Save the state of a stopped query, which Spark reads."""
    from headrace.cli.run import quiet_spark
    from headrace.dev import find_java
    from headrace.spark.checkpoint.identity import locked
    from headrace.spark.checkpoint.savepoints import identity_of, take_savepoint
    from headrace.spark.session.session import spark_settings, start_session

    identity = identity_of(checkpoint)
    find_java()
    ours = spark_settings(
        jars=(),
        state_partitions=identity.state_partitions,
        driver_memory=settings.spark.driver_memory,
        state_memory_mb=settings.spark.state_memory_mb,
        local_directory=checkpoint.parent / "spark-local",
    )
    with locked(checkpoint), quiet_spark(settings.log_directory / "savepoint.log"):
        spark = start_session("headrace savepoint", master="local[2]", settings=ours)
        try:
            return take_savepoint(spark, checkpoint, identity, where, name)
        finally:
            spark.stop()


def _summary(name: str, manifest: Manifest) -> dict[str, Any]:
    return {
        "name": name,
        "created": manifest.created,
        "batches": manifest.batches,
        "bytes": manifest.file_bytes,
        "state_bytes": manifest.state_bytes,
        "jobs": [job.job for job in manifest.jobs],
    }


def _tell(manifest: Manifest, where: str, seconds: float, *, json: bool) -> None:
    if json:
        terminal.document({**_summary(manifest.name, manifest), "place": where, "seconds": round(seconds, 2)})
        return
    terminal.line(
        f"Savepoint {manifest.name}: {len(manifest.jobs)} jobs after {manifest.batches:,} batches, "
        f"{manifest.file_bytes:,} bytes in {seconds:.1f} s."
    )
    terminal.note(f"Go on from it: headrace run {' '.join(job.job for job in manifest.jobs)} --from-savepoint {where}")
