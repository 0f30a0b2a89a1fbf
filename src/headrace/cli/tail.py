"""`headrace tail`: look into a topic.

Every record becomes one line of JSON: where it lies (topic, partition, offset), when Kafka got it, its key, and the
event inside with its details. Both encodings are read. Of a record in other JSON the value is shown as it is; any other
one with its first bytes and why it is no event. Nothing in a topic ends the command. Only committed records are shown.
"""

from __future__ import annotations

import json as json_module
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.jobs import registry
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, UsageError
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.events.codec import Codec
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record, Start

_PREVIEW = 120
_DEFAULT_LIMIT = 10


def show(codec: Codec, record: Record) -> dict[str, Any]:
    """A Kafka record as a JSON object.

    Args:
        codec: Reads its value.
        record: The record.
    """
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp / 1e6, UTC).isoformat(timespec="milliseconds"),
        "key": None if record.key is None else record.key.decode(errors="backslashreplace"),
    }
    event: dict[str, Any] = json_module.loads(codec.to_json(record.value))
    problem = event.pop("dead_letter", None)
    if problem is None and "details" not in event:
        problem = {"reason": "missing_details", "text": "it is no event: there are no details in it"}
    if problem is None:
        return shown | event
    if record.value is not None:
        try:
            shown["value"] = json_module.loads(record.value)
        except (ValueError, RecursionError):
            shown["value"] = record.value[:_PREVIEW].decode(errors="backslashreplace")
            shown["value_size"] = len(record.value)
        else:
            if not (isinstance(shown["value"], dict) and "details" in shown["value"]):
                return shown  # somebody's JSON, not an event that is broken
    shown["undecodable"] = {name: text for name, text in problem.items() if text is not None}
    return shown


class Reader:
    """Reads one topic until it is stopped.

    Args:
        connection: Where.
        topic: What.
        stop: Ends it.
        key: Only records with this key.
    """

    def __init__(self, connection: Connection, topic: str, stop: Stop, *, key: bytes | None = None) -> None:
        from headrace.kafka import Topics

        self._connection = connection
        self._stop = stop
        self._key = key
        self.topic = topic
        self._partitions = Topics(connection).get(topic).partitions

    def read(self, start: Start, *, follow: bool) -> Iterator[Record]:
        """Give the records from a place on.

        Args:
            start: Where to begin.
            follow: Whether to wait for more at the end.
        """
        from headrace.kafka.consumer import Consumer

        with Consumer(self._connection, [self.topic], start=start, follow=follow) as consumer:
            while not consumer.done and not self._stop.is_set():
                for record in consumer.read(timeout=0.2):
                    if self._key is None or record.key == self._key:
                        yield record

    def last(self, count: int) -> tuple[list[Record], Start]:
        """The last records over all partitions, by Kafka's timestamp, and the place after them.

        Args:
            count: How many.
        """
        first = {(self.topic, p.partition): p.earliest for p in self._partitions}
        end = {(self.topic, p.partition): p.latest for p in self._partitions}
        step = max(count, 10)
        while True:
            start = {place: max(first[place], end[place] - step) for place in first}
            # What comes in while we look belongs to --follow.
            found = [r for r in self.read(start, follow=False) if r.offset < end[r.topic, r.partition]]
            # Offsets are not records: transactions leave gaps, and other keys do not count. Then look further back.
            if len(found) >= count or start == first or self._stop.is_set():
                found.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
                return found[len(found) - count :] if count < len(found) else found, end
            step *= 8


def topic_of(word: str, connection: Connection, settings: Settings) -> str:
    """The topic that a word means: one of that name, or else the results of a job.

    Raises:
        HeadraceError: There is neither.
    """
    from headrace.kafka import Topics
    from headrace.registry import is_job_file

    placed = ":" in word or "/" in word  # neither can be in the name of a topic
    if not placed and not Topics(connection).missing([word]):
        return word
    known = registry(settings)
    if placed or word in known.jobs or (is_job_file(word) and word.endswith(".py")):
        found = known.find([word])
        if len(found) > 1:
            names = ", ".join(job.name for job in found)
            raise UsageError(f"{word} has several jobs: {names}", hint=f"Choose one: headrace tail {found[0].name}")
        return found[0].result_topic
    return word


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics for the shell's completion."""
    from headrace.kafka import Topics

    try:
        found = Topics(connect(Globals.of(ctx).settings())).overview()
        return [topic.name for topic in found if topic.name.startswith(incomplete)]
    except HeadraceError:
        return []


def tail(
    ctx: typer.Context,
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="A topic, or a job: then its results.",
            autocompletion=complete_topic,
            show_default=False,
        ),
    ],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="Only records with this key.", show_default=False)
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help='Begin here: "14:30", "2026-03-01T08:00Z", "5m ago", "start".',
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            metavar="N",
            min=0,
            help="At most so many [default: the last 10, or all since --from].",
            show_default=False,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
) -> None:
    """Show the records of a topic as lines of JSON: the last ones, or all from a time on."""
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    now = datetime.now(UTC)
    begin = None if since is None else moment(since, now=now)
    connection = connect(settings)

    from headrace.events.codec import Codec

    codec = Codec(registry(settings).types)
    shown = 0
    with stop_on_signals() as stop:
        reader = Reader(
            connection, topic_of(topic, connection, settings), stop, key=None if key is None else key.encode()
        )
        more: Iterable[Record]
        if begin is None:
            recent, after = reader.last(_DEFAULT_LIMIT if limit is None else limit)
            more = chain(recent, reader.read(after, follow=True) if follow else ())
        else:
            more = islice(reader.read(int(begin.timestamp() * 1e6), follow=follow), limit)
        for record in more:
            terminal.record(show(codec, record))
            shown += 1
    if not shown and terminal.err.is_terminal:
        terminal.note("No records." + ("" if key is None else f" Keys are compared exactly: {key!r}."))
    stop.finish()
