"""`headrace tail`: look into a topic.

Every record becomes one line of JSON: where it lies (topic, partition, offset), when Kafka got it, its key, and the
event inside with its details. Both encodings are read. A value that is no event is shown with the reason and its
first bytes; it never ends the command. Only committed records are shown.
"""

from __future__ import annotations

import json as json_module
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.errors import BrokerError, HeadraceError

if TYPE_CHECKING:
    from headrace.broker import Connection
    from headrace.events.codec import Codec

_TIMEOUT = 15.0
_PREVIEW = 120
_DEFAULT_LIMIT = 10


def show(codec: Codec, message: Any) -> dict[str, Any]:
    """A Kafka record as a JSON object.

    Args:
        codec: Reads its value.
        message: The record, as confluent-kafka gives it.
    """
    kind, millis = message.timestamp()
    key, value = message.key(), message.value()
    shown: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": None
        if kind == 0
        else datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds"),
        "key": None if key is None else key.decode(errors="backslashreplace"),
    }
    shown |= json_module.loads(codec.to_json(value))
    problem = shown.pop("dead_letter", None)
    if problem is not None:
        shown["undecodable"] = {name: text for name, text in problem.items() if text is not None}
        if value is not None:
            shown["value"] = value[:_PREVIEW].decode(errors="backslashreplace")
            shown["value_size"] = len(value)
    return shown


class Reader:
    """Reads the partitions of one topic from given offsets.

    Args:
        connection: Where.
        topic: What.
    """

    def __init__(self, connection: Connection, topic: str) -> None:
        from confluent_kafka import Consumer

        from headrace.broker import Topics
        from headrace.broker.connection import ErrorWatch

        self.topic = topic
        self._connection = connection
        found = Topics(connection).get(topic)
        self.first = {partition.partition: partition.earliest for partition in found.partitions}
        self.end = {partition.partition: partition.latest for partition in found.partitions}
        self._watch = ErrorWatch(connection, patience=10)
        self._consumer: Any = Consumer(
            connection.client_config(
                group_id="headrace-tail",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
                enable_partition_eof=True,
            )
            | {"error_cb": self._watch}
        )

    def close(self) -> None:
        """Leave."""
        self._consumer.close()

    def offsets_at(self, when: datetime) -> dict[int, int]:
        """The first offset of each partition whose record is not older than a moment; the end if there is none."""
        from confluent_kafka import TopicPartition

        millis = int(when.timestamp() * 1000)
        asked = [TopicPartition(self.topic, partition, millis) for partition in self.first]
        answers = self._consumer.offsets_for_times(asked, timeout=_TIMEOUT)
        return {a.partition: a.offset if a.offset >= 0 else self.end[a.partition] for a in answers}

    def read(self, since: dict[int, int], stop: Stop, *, follow: bool) -> Iterator[Any]:
        """Give records from given offsets on.

        Args:
            since: Partition to offset.
            stop: Ends it.
            follow: Whether to wait for more at the end, or to end there.
        """
        from confluent_kafka import KafkaError, TopicPartition

        self._consumer.assign([TopicPartition(self.topic, partition, offset) for partition, offset in since.items()])
        open_partitions = set(since)
        while not stop.is_set() and (follow or open_partitions):
            messages = self._consumer.consume(500, timeout=0.2)
            for message in messages:
                error = message.error()
                if error is None:
                    # Without --follow, what is written after the start is not waited for.
                    if follow or message.offset() < self.end[message.partition()]:
                        yield message
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - public, in spite of its name
                    open_partitions.discard(message.partition())
                else:
                    raise BrokerError(
                        f"reading {self.topic} at {self._connection.bootstrap} failed: {error.str()}",
                        hint="`headrace topics` lists the topics; `headrace broker status` looks at the broker.",
                    )
            self._watch.check(self._consumer)

    def last(self, count: int, stop: Stop, key: bytes | None) -> tuple[list[Any], dict[int, int]]:
        """The last records over all partitions, by Kafka's timestamp, and the offsets after them.

        Args:
            count: How many.
            stop: Ends the search.
            key: Only records with this key.
        """
        step = max(count, 10)
        while True:
            since = {p: max(self.first[p], self.end[p] - step) for p in self.first}
            newest: deque[Any] = deque(maxlen=None)
            for message in self.read(since, stop, follow=False):
                if key is None or message.key() == key:
                    newest.append(message)
            # Offsets are not records: transactions leave gaps, and other keys do not count. Then look further back.
            if len(newest) >= count or since == self.first or stop.is_set():
                ordered = sorted(newest, key=lambda m: (m.timestamp()[1], m.partition(), m.offset()))
                return ordered[-count:] if count else [], dict(self.end)
            step *= 8


def complete_topic(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of topics for the shell's completion."""
    from headrace.broker import Topics

    try:
        found = Topics(connect(Globals.of(ctx).settings())).list()
        return [topic.name for topic in found if topic.name.startswith(incomplete)]
    except HeadraceError:
        return []


def tail(
    ctx: typer.Context,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)],
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

    codec = Codec()
    wanted = None if key is None else key.encode()
    reader = Reader(connection, topic)
    shown = 0
    try:
        with stop_on_signals() as stop:
            if begin is None:
                count = _DEFAULT_LIMIT if limit is None else limit
                recent, offsets = reader.last(count, stop, wanted)
                for message in recent:
                    terminal.record(show(codec, message))
                shown = len(recent)
                remaining = None
            else:
                offsets, remaining = reader.offsets_at(begin), limit
            if (follow or begin is not None) and remaining != 0:
                for message in reader.read(offsets, stop, follow=follow):
                    if wanted is not None and message.key() != wanted:
                        continue
                    terminal.record(show(codec, message))
                    shown += 1
                    if remaining is not None and shown >= remaining:
                        break
        if not shown and terminal.err.is_terminal:
            terminal.note("No records." + ("" if key is None else f" Keys are compared exactly: {key!r}."))
        stop.finish()
    finally:
        reader.close()
