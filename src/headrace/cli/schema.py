"""`headrace schema infer`: look at the records of a topic, and print the format to paste."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.stopping import stop_on_signals
from headrace.cli.tail import Reader, complete_topic
from headrace.errors import SchemaError
from headrace.extras import require

if TYPE_CHECKING:
    from headrace.formats.inference import Inference
    from headrace.kafka.consumer import Record

app = typer.Typer(no_args_is_help=True, help="Tell what the records of a topic look like.")


class Kind(StrEnum):
    """What records are, if it is not to be guessed."""

    auto = "auto"
    json = "json"
    csv = "csv"
    text = "text"
    raw = "raw"
    cloudevents = "cloudevents"
    debezium = "debezium"


@app.callback()
def _schema() -> None:
    """Tell what the records of a topic look like."""


@app.command("infer")
def infer(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)],
    form: Annotated[Kind, typer.Option("--format", help="What the records are, if not to be guessed.")] = Kind.auto,
    last: Annotated[
        int, typer.Option("--last", metavar="N", min=1, help="Look at so many of the last records.")
    ] = 1000,
    json: Json = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Look at the last records of a topic, and print the format that reads them, to paste into a job."""
    require("kafka", by="`headrace schema infer`")
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    connection = connect(settings)
    with stop_on_signals() as stop:
        records, _ = Reader(connection, topic, stop).last(last)
    stop.finish()
    if not records:
        raise SchemaError(
            f"the topic {topic} has no records, so there is nothing to look at",
            hint="Run this again when its producer has sent some.",
        )
    from headrace.formats.inference import infer as inferred

    chosen: Any = None if form is Kind.auto else form.value
    found = inferred([_sample(record) for record in records], chosen)
    if json:
        terminal.document({"topic": topic, **_facts(found)})
    else:
        _show(topic, found)


def _sample(record: Record) -> Any:
    from headrace.formats.inference import SampleRecord

    return SampleRecord(record.value, record.key, record.headers, record.timestamp)


def _facts(found: Inference) -> dict[str, Any]:
    schema = {} if found.format is None else {name: str(kind) for name, kind in found.format.schema.items()}
    return {
        "format": found.kind,
        "records": found.records,
        "read": found.read,
        "schema": schema,
        "time": found.time,
        "times": [{"field": name, "format": pattern} for name, pattern in found.times],
        "python": found.code,
        "notes": list(found.notes),
    }


def _show(topic: str, found: Inference) -> None:
    """Print the code to standard output, so that it can go into a file, and the rest beside it."""
    terminal.note(f"{topic}: {found.kind}, by its last {found.records:,} records.")
    if found.code:
        terminal.line(found.code)
        terminal.note(f"It reads {found.read:,} of {found.records:,} records. Time of the events: {found.time}.")
    for each in found.notes:
        terminal.note(f"- {each}")
    if found.code:
        terminal.note(f'Read it in a job: Stream.topic("{topic}", format=records)')
