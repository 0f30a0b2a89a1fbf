"""The runner: connector, processor, codec, Kafka.

One ingestion is one connector, one processor and one producer, on one thread. Its promises:

- **Nothing vanishes.** Every message becomes an event on its input topic, or a dead letter that says why not, and is
  counted either way.
- **Order.** Events are keyed by their processor and sent by one idempotent producer, so those with the same key stay
  in the order of their arrival.
- **At least once.** A connector hears that a batch is safe only after Kafka has acknowledged all of it. After a kill,
  a source that can repeat (MQTT with QoS 1) sends the rest again; `deduplicate` removes repeats within one run.
- **Back-pressure.** The producer's buffer is bounded. When it is full the runner waits and does not ask the connector
  for more.
- **A clean stop.** When `stop` is set, what was taken from the connector is delivered and acknowledged first.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import polars as pl

from headrace.errors import ConfigError
from headrace.events import ENCODING_HEADER, Codec, Encoding
from headrace.events.letters import KEPT_BYTES, KEPT_TEXT, SHOWABLE
from headrace.events.letters import SCHEMA as LETTER_SCHEMA
from headrace.ingest.duplicates import Duplicates
from headrace.ingest.messages import payloads_of
from headrace.ingest.processor import Cause, Dismissal
from headrace.ingest.report import IngestReport, Tally
from headrace.kafka.topics import DEAD_LETTERS
from headrace.time.duration import micros

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from headrace.ingest.connector import Connector
    from headrace.ingest.message import Batch, RawMessage
    from headrace.ingest.processor import Processor
    from headrace.kafka.producer import Headers

_REPORT_EVERY = 1.0


class Outlet(Protocol):
    """Where records go; `headrace.kafka.Producer` is the usual one."""

    def send_all(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Headers | None = None,
    ) -> int:
        """Hand over records and tell how many; waits while the buffer is full."""
        ...

    def poll(self, timeout: float = 0.0) -> None:
        """Raise if a record could not be delivered."""
        ...

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything has arrived, or raise."""
        ...

    def __len__(self) -> int:
        """How many records are on their way."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerSettings:
    """How events are delivered.

    Args:
        feed: A name for this ingestion, in reports and dead letters.
        dead_letters: The topic of dismissed messages.
        silent: Causes whose messages are counted but not written as dead letters, such as "other_event" for a feed
            of which only a part is wanted.
        deduplicate: Time, by arrival, within which an exact repeat is dismissed; None lets repeats pass.
        deduplicate_messages: How many messages are remembered for that at most; the oldest are forgotten first.
        encoding: How events are written: "binary" or "json".
        confirm_every: Seconds after which batches are confirmed to the connector at the latest.
        confirm_messages: Messages after which they are.

    Raises:
        ConfigError: A cause does not exist.
    """

    feed: str = "feed"
    dead_letters: str = DEAD_LETTERS
    silent: frozenset[str] = frozenset()
    deduplicate: str | timedelta | int | None = None
    deduplicate_messages: int = 1_000_000
    encoding: Encoding = "binary"
    confirm_every: float = 0.1
    confirm_messages: int = 5000

    def __post_init__(self) -> None:
        if self.deduplicate is not None and micros(self.deduplicate) <= 0:
            raise ConfigError(f"deduplicate is {self.deduplicate!r}", hint="Give a time, such as 2m, or leave it out.")
        if self.deduplicate_messages < 1:
            raise ConfigError(f"deduplicate_messages is {self.deduplicate_messages}", hint="Give a number above 0.")
        unknown = self.silent - set(Cause)
        if unknown:
            raise ConfigError(f"silent names {min(unknown)!r}", hint=f"Causes are: {', '.join(sorted(Cause))}.")

    def duplicates(self) -> Duplicates | None:
        """A memory of repeats, if they are looked for."""
        if self.deduplicate is None:
            return None
        return Duplicates(within=self.deduplicate, capacity=self.deduplicate_messages)


class Ingestion:
    """Brings the messages of one connector to Kafka.

    Args:
        connector: Where messages come from; opened and closed by `run`.
        processor: What makes events of them.
        outlet: Where events go; flushed, but not closed, by `run`.
        settings: How.
        codec: How events are written.
        tally: Counts to go on with, of runs before; None: from 0.
        duplicates: What earlier runs have seen; None: nothing.
    """

    def __init__(
        self,
        connector: Connector[Any],
        processor: Processor,
        outlet: Outlet,
        *,
        settings: RunnerSettings | None = None,
        codec: Codec | None = None,
        tally: Tally | None = None,
        duplicates: Duplicates | None = None,
    ) -> None:
        self.settings = settings or RunnerSettings()
        self.tally = tally or Tally()
        self._connector, self._processor, self._outlet = connector, processor, outlet
        connector.introduce(processor)
        self._codec = codec or Codec()
        self._duplicates = self.settings.duplicates() if duplicates is None else duplicates
        self._reconnects, self._gaps = self.tally.reconnects, self.tally.gaps
        self._headers: Headers | None = [(ENCODING_HEADER, b"json")] if self.settings.encoding == "json" else None
        self._tokens: list[object] = []
        self._unconfirmed = 0
        self._confirmed_at = 0.0

    def run(self, stop: threading.Event, report: Callable[[IngestReport], None] = lambda _: None) -> IngestReport:
        """Ingest until the source ends or `stop` is set.

        Args:
            stop: Set it (from another thread, or a signal handler) to end.
            report: Called about once a second, and once at the end.

        Returns:
            The last report.

        Raises:
            HeadraceError: The source is gone, or Kafka did not take something. What was not confirmed to the connector
                will come again if it can repeat.
        """
        began = reported = self._confirmed_at = time.monotonic()
        counted = before = self.tally.messages
        with self._connector:
            for batch in self._connector.batches(stop):
                self.take(batch)
                now = time.monotonic()
                self._confirm(now, idle=not batch.messages)
                if now - reported >= _REPORT_EVERY:
                    report(self._report(now - began, (self.tally.messages - counted) / (now - reported)))
                    reported, counted = now, self.tally.messages
            self._outlet.flush()
            self._acknowledge()
        elapsed = time.monotonic() - began
        last = self._report(elapsed, (self.tally.messages - before) / elapsed if elapsed > 0 else 0.0)
        report(last)
        return last

    def take(self, batch: Batch) -> None:
        """Process one batch and hand over what comes of it."""
        if batch.token is not None:
            self._tokens.append(batch.token)
        messages = batch.messages
        if not messages:
            self._outlet.poll()
            return
        tally = self.tally
        tally.messages += len(messages)
        tally.message_bytes += sum(map(len, payloads_of(messages)))
        self._unconfirmed += len(messages)
        dismissed: list[tuple[RawMessage, Dismissal]] = []
        if self._duplicates is not None:
            messages, repeats = self._without_repeats(messages)
            dismissed += repeats
        processed = self._processor.process(messages)
        dismissed += [(messages[number], dismissal) for number, dismissal in processed.dismissed.items()]
        for part in processed.events:
            values = self._codec.encode(part.frame, part.type, encoding=self.settings.encoding).to_pylist()
            keys = None if part.keys is None else part.keys.to_list()
            self._outlet.send_all(part.topic, values, keys=keys, headers=self._headers)
            tally.events[part.topic] += len(values)
            lags = part.frame.select(
                (pl.col("ingestion_time") - pl.col("event_time")).dt.total_microseconds() / 1e6
            ).to_series()
            tally.add_lags(lags.to_numpy().astype(np.float64))
        tally.cleared.update(processed.cleared)
        if dismissed:
            self._bury(dismissed)

    def _without_repeats(
        self, messages: Sequence[RawMessage]
    ) -> tuple[list[RawMessage], list[tuple[RawMessage, Dismissal]]]:
        assert self._duplicates is not None  # noqa: S101  the caller looked
        kept: list[RawMessage] = []
        repeats = []
        for message in messages:
            if self._duplicates.repeats(message):
                repeats.append((message, Dismissal(Cause.DUPLICATE, "the same message came before")))
            else:
                kept.append(message)
        return kept, repeats

    def _bury(self, dismissed: list[tuple[RawMessage, Dismissal]]) -> None:
        self.tally.dismissed.update(str(dismissal.cause) for _, dismissal in dismissed)
        letters = [entry for entry in dismissed if entry[1].cause not in (*self.settings.silent, Cause.FILTERED)]
        if not letters:
            return
        dead = pl.DataFrame(
            [letter(message, dismissal, feed=self.settings.feed) for message, dismissal in letters],
            schema=LETTER_SCHEMA,
            orient="row",
        )
        values = self._codec.encode_dead_letters(dead, encoding=self.settings.encoding).to_pylist()
        self._outlet.send_all(self.settings.dead_letters, values, headers=self._headers)
        self.tally.dead_letters += len(letters)

    def _confirm(self, now: float, *, idle: bool) -> None:
        """Tell the connector what is safe, now and then, and at once when nothing comes while it waits for us."""
        if not self._tokens:
            self._unconfirmed, self._confirmed_at = 0, now
            return
        due = now - self._confirmed_at >= self.settings.confirm_every
        if due or idle or self._unconfirmed >= self.settings.confirm_messages:
            self._outlet.flush()
            self._acknowledge()
            self._confirmed_at = time.monotonic()

    def _acknowledge(self) -> None:
        tokens, self._tokens, self._unconfirmed = self._tokens, [], 0
        if tokens:
            self._connector.acknowledge(tokens)

    def _report(self, elapsed: float, rate: float) -> IngestReport:
        source = self._connector
        self.tally.reconnects = self._reconnects + source.reconnects
        self.tally.gaps = self._gaps + source.gaps
        return self.tally.report(
            self.settings.feed,
            waiting=len(self._outlet),
            elapsed=elapsed,
            rate=rate,
            connected=source.connected,
            behind=source.behind,
        )


def letter(message: RawMessage, dismissal: Dismissal, *, feed: str) -> dict[str, Any]:
    """A dismissed message as a row of dead letters: its topic and arrival are those at the source.

    >>> from headrace.ingest.message import RawMessage
    >>> row = letter(RawMessage("/a", b"x", 0), Dismissal(Cause.MALFORMED, "no JSON"), feed="hsl")
    >>> row["reason"], row["value"], row["topic"], row["job"]
    ('malformed_json', b'x', '/a', 'hsl')
    """
    return {
        "reason": str(dismissal.cause),
        "text": _writable(dismissal.text[:KEPT_TEXT]),
        "value": message.payload[:KEPT_BYTES],
        "value_size": len(message.payload),
        "key": None,
        "key_size": 0,
        "topic": _writable(message.topic[:KEPT_TEXT]),
        "partition": None,
        "offset": None,
        "record_timestamp": message.arrival if SHOWABLE[0] <= message.arrival <= SHOWABLE[1] else None,
        "job": feed,
        "event_type": None,
    }


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
