"""Sample data of a project: files `sample/TOPIC.jsonl`, sent as if they happened now, over and over.

A line is a JSON object with `event_time` in ISO 8601 and the columns of the topic. The gaps between the lines are kept.
A topic is written as its job reads it: in the envelope, or in the format that the job declares.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, HeadraceError

if TYPE_CHECKING:
    from headrace.broker import Connection
    from headrace.stream import Job

DIRECTORY = "sample"
#: Between the last line of a file and the first of its next round.
_PAUSE = 1_000_000
_TIMES = ("event_time", "ingestion_time")
_HINT = 'Write a JSON object per line: {"event_time": "2026-01-01T12:00:00Z", "depot": "north"}'


@dataclass(frozen=True)
class Sample:
    """The sample data of one topic.

    Args:
        topic: The topic.
        source: What the job reads there, a `TopicSource`.
        times: Event times in microseconds, in order.
        rows: The columns of each event.
    """

    topic: str
    source: Any
    times: tuple[int, ...]
    rows: tuple[dict[str, Any], ...]

    def values(self, numbers: Sequence[int], shift: int, now: int) -> list[bytes]:
        """Give events as the values of records.

        Args:
            numbers: Which ones.
            shift: What to add to their times.
            now: When they are taken in.
        """
        form = getattr(self.source, "format", None)
        if form is not None:
            return [_formatted(form, self.rows[number], self.times[number] + shift) for number in numbers]
        return self._enveloped(
            [self.rows[number] for number in numbers], [self.times[each] + shift for each in numbers], now
        )

    def _enveloped(self, rows: list[dict[str, Any]], times: list[int], now: int) -> list[bytes]:
        import polars as pl

        from headrace.events import Codec

        instant = pl.Datetime("us", "UTC")
        columns = {name: kind for name, kind in self.source.schema.items() if name not in _TIMES}
        frame = pl.DataFrame({name: [row.get(name) for row in rows] for name in columns}, schema=columns).with_columns(
            event_time=pl.Series(times).cast(instant), ingestion_time=pl.lit(now).cast(instant)
        )
        values: list[bytes] = Codec().encode(frame, self.source.type_name).to_pylist()
        return values


def _formatted(form: Any, row: dict[str, Any], at: int) -> bytes:
    """Write a row in a format, with its time where the format looks for it."""
    import polars as pl

    whole = json.loads(json.dumps(row))
    event_time = getattr(form, "time", None)
    if event_time is not None and event_time.place == "field":
        inner = whole
        for name in event_time.path[:-1]:
            inner = inner.setdefault(name, {})
        inner[event_time.path[-1]] = _time_text(at, event_time)
    if form.name == "json":
        return json.dumps(whole).encode()
    value: bytes = form.encode(pl.DataFrame([whole]))[0].as_py()
    return value


def _time_text(at: int, event_time: Any) -> object:
    if event_time.is_epoch:
        return at * 1000 // {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}[event_time.pattern]
    return datetime.fromtimestamp(at / 1e6, UTC).isoformat(timespec="microseconds")


def find_samples(project: Path, jobs: Sequence[Job]) -> list[Sample]:
    """Read the sample data of the topics that jobs read.

    Raises:
        ConfigError: A line is no event.
    """
    found = {}
    for job in jobs:
        for entry in job.pipeline.entries:
            path = project / DIRECTORY / f"{entry.source.name}.jsonl"
            if path.is_file() and entry.source.name in job.sources:
                found[entry.source.name] = _read(path, entry.source)
    return list(found.values())


def _read(path: Path, source: Any) -> Sample:
    events: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            at = datetime.fromisoformat(row.pop("event_time"))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ConfigError(f"{path}:{number} is no sample event: {problem}", hint=_HINT) from problem
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        events.append((round(at.timestamp() * 1e6), row))
    if not events:
        raise ConfigError(f"{path} is empty", hint=_HINT)
    events.sort(key=lambda event: event[0])
    return Sample(source.name, source, tuple(at for at, _ in events), tuple(row for _, row in events))


class SampleFeed:
    """Sends sample data in a thread of its own until it is stopped.

    Args:
        connection: Where to.
        samples: What.
    """

    def __init__(self, connection: Connection, samples: Sequence[Sample]) -> None:
        self._connection = connection
        self._samples = samples
        self._stop = threading.Event()
        self._problem: HeadraceError | None = None
        self._thread = threading.Thread(target=self._run, name="sample data", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the sending."""
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(timeout=3)

    def _run(self) -> None:
        from headrace.broker import Producer

        try:
            with Producer(self._connection) as producer:
                begin = time.time_ns() // 1000
                places = dict.fromkeys(range(len(self._samples)), 0)
                while not self._stop.wait(0.2):
                    now = time.time_ns() // 1000
                    for index, sample in enumerate(self._samples):
                        due, places[index] = _due(sample.times, places[index], now - begin)
                        for round_start, numbers in due.items():
                            shift = begin + round_start - sample.times[0]
                            for value in sample.values(numbers, shift, now):
                                producer.send(sample.topic, value)
                    producer.poll()
        except HeadraceError as problem:
            self._problem = problem


def _due(times: Sequence[int], place: int, elapsed: int) -> tuple[dict[int, list[int]], int]:
    """Tell which events are due: their numbers by the beginning of their round, and where to go on.

    >>> _due((100, 400), 0, 350)
    ({0: [0, 1]}, 2)
    >>> _due((100, 400), 2, 1_000_350)
    ({1000300: [0]}, 3)
    """
    length = times[-1] - times[0] + _PAUSE
    found: dict[int, list[int]] = {}
    while True:
        turn, number = divmod(place, len(times))
        if turn * length + times[number] - times[0] > elapsed:
            return found, place
        found.setdefault(turn * length, []).append(number)
        place += 1
