"""`headrace topics`: what is in Kafka, and making what should be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.options import Bootstrap, Globals, Json, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.config import Settings
    from headrace.kafka import Connection, TopicSpec
    from headrace.stream import Job

#: Settings of a topic that people ask for.
_SHOWN = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "segment.ms",
    "compression.type",
    "max.message.bytes",
    "min.insync.replicas",
)

app = typer.Typer(no_args_is_help=False, help="List topics with the number of their records; create and describe them.")


def declared_topics(settings: Settings | None = None) -> list[TopicSpec]:
    """Every topic that the jobs of this project or installation read or write, with what plug-ins declare."""
    from headrace.cli.jobs import registry
    from headrace.kafka.job_topics import read_topics, written_topics

    known = registry(settings)
    jobs, declared = list(known.jobs.values()), known.things("topics")
    named = {spec.name: spec for spec in [*read_topics(jobs, declared), *written_topics(jobs)]}
    # Feeds of an installed application may write more than its jobs read; a project has what it names itself.
    only = set(known.settings.words("topics")) if known.settings.jobs else None
    more = {
        spec.name: spec
        for plugin in known.plugins_of("topics")
        for spec in plugin.content
        if only is None or plugin.place in only
    }
    return list({**more, **named}.values())


def make_topics(connection: Connection, jobs: Sequence[Job], settings: Settings) -> tuple[str, ...]:
    """Create the topics that jobs need and that are missing, those that they read included.

    Returns:
        Their names.
    """
    from headrace.cli.jobs import registry
    from headrace.kafka import Topics
    from headrace.kafka.job_topics import read_topics, written_topics

    declared = registry(settings).things("topics")
    return Topics(connection).ensure([*read_topics(jobs, declared), *written_topics(jobs)]).created


@app.callback(invoke_without_command=True)
def topics(
    ctx: typer.Context,
    internal: Annotated[bool, typer.Option("--internal", help="Kafka's own topics, too.")] = False,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """List topics with the number of their records; create and describe them."""
    if ctx.invoked_subcommand is not None:
        return
    from headrace.kafka import Topics

    connection = connect(Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap")))
    found = Topics(connection).overview(internal=internal)
    if json:
        terminal.document([{"name": t.name, "partitions": len(t.partitions), "records": t.count} for t in found])
        return
    if not found:
        terminal.note("There are no topics. `headrace topics create` makes those of the jobs.")
        return
    terminal.rows(("topic", "partitions", "records"), [(t.name, str(len(t.partitions)), f"{t.count:,}") for t in found])
    terminal.note("Look into one: headrace tail TOPIC")


@app.command()
def create(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="One topic; all that the jobs need if left out.", show_default=False),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", metavar="N", min=1, help="Of a new topic.", show_default=False)
    ] = None,
    retention: Annotated[
        str | None,
        typer.Option("--retention", metavar="TIME", help='How long it keeps records: "7d".', show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Create the topics that the jobs need, or one of your own. What exists is left as it is."""
    from headrace.kafka import Topics, TopicSpec

    if name is None and (partitions is not None or retention is not None):
        raise UsageError("--partitions and --retention need a topic", hint="Write: headrace topics create TOPIC ...")
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    if name is None:
        specs = declared_topics(settings)
    else:
        known = {spec.name: spec for spec in declared_topics(settings)}
        specs = [known.get(name, TopicSpec(name=name))]
        if partitions is not None or retention is not None:
            specs = [TopicSpec(name=name, partitions=partitions or 4, retention=retention)]
    connection = connect(settings)
    done = Topics(connection).ensure(specs)
    if json:
        terminal.document(
            {
                "created": list(done.created),
                "existing": list(done.existing),
                "differences": [str(difference) for difference in done.differences],
            }
        )
        return
    for topic in done.created:
        terminal.line(f"created {topic}")
    for difference in done.differences:
        terminal.note(f"Note: {difference}; it is left as it is.", style="yellow")
    if not done.created:
        terminal.line("Nothing to do: everything exists already.")


@app.command()
def describe(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Show a topic's partitions, offsets and settings."""
    from headrace.kafka import Topics

    connection = connect(Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap")))
    found = Topics(connection).get(name)
    config = {key: found.config[key] for key in _SHOWN if key in found.config}
    if json:
        partitions = [
            {"partition": p.partition, "first": p.earliest, "end": p.latest, "records": p.count}
            for p in found.partitions
        ]
        document = {"name": name, "records": found.count, "partitions": partitions, "config": config}
        terminal.document(document | {"replication": found.replication})
        return
    terminal.line(f"{name}: {len(found.partitions)} partitions, {found.count:,} records")
    terminal.rows(
        ("partition", "first", "end", "records"),
        [(str(p.partition), f"{p.earliest:,}", f"{p.latest:,}", f"{p.count:,}") for p in found.partitions],
    )
    terminal.line(f"replication = {found.replication}")
    for key, value in config.items():
        terminal.line(f"{key} = {value}")
