"""Sample data of a project: files `sample/TOPIC.jsonl`, sent as if they happened now, over and over.

A line is a JSON object: the columns of an event, with its time where the format of the topic has it, or as `event_time`
where that is outside of the value (the envelope, a header, Kafka's timestamp). A topic of JSON has its records as they
are. The gaps between the lines are kept.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, HeadraceError, SchemaError

if TYPE_CHECKING:
    from headrace.formats.times import EventTime
    from headrace.kafka import Connection
    from headrace.kafka.producer import Headers
    from headrace.stream import Job
    from headrace.stream.plan import TopicSource

DIRECTORY = "sample"
#: Between the last line of a file and the first of its next round.
_PAUSE = 1_000_000
_EVENT_TIME = "event_time"
_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


@dataclass(frozen=True)
class Sample:
    """The sample data of one topic.

    Args:
        source: The topic, as the job reads it.
        times: Event times in microseconds, in order.
        rows: The object of each line.
    """

    source: TopicSource
    times: tuple[int, ...]
    rows: tuple[dict[str, Any], ...]

    @property
    def topic(self) -> str:
        """The topic."""
        return self.source.topic

    def record(self, number: int, shift: int, now: int) -> tuple[bytes, Headers | None]:
        """Give the value and the headers of a record.

        Args:
            number: Which line.
            shift: What to add to its time.
            now: When it is taken in.
        """
        at, row = self.times[number] + shift, self.rows[number]
        moment = _time_of(self.source)
        headers = None
        if moment is not None and moment.place == "field":
            row = _with(row, moment.path, _written(moment, at, like=_at(row, moment.path)))
        else:
            row = {name: value for name, value in row.items() if name != _EVENT_TIME}
            if moment is not None and moment.place == "header":
                headers = [(moment.path[0], str(_written(moment, at, like="")).encode())]
        if self.source.format.name == "json":
            return json.dumps(row, ensure_ascii=False).encode(), headers
        return self._encoded(row, at, now), headers

    def _encoded(self, row: dict[str, Any], at: int, now: int) -> bytes:
        import polars as pl

        form = self.source.format
        columns: dict[str, Any] = dict(form.schema)
        frame = pl.DataFrame({name: [row.get(name)] for name in columns}, schema=columns)
        if form.name == "envelope":
            times = [pl.lit(each).cast(pl.Datetime("us", "UTC")) for each in (at, now)]
            frame = frame.with_columns(times[0].alias(_EVENT_TIME), times[1].alias("ingestion_time"))
        value: bytes = form.encode(frame)[0].as_py()
        return value


def _time_of(source: TopicSource) -> EventTime | None:
    """Where the format has the time of an event; None for the envelope, which has it beside the columns."""
    from headrace.formats.times import EventTime

    found = getattr(source.format, "time", None)
    return found if isinstance(found, EventTime) else None


def _at(row: dict[str, Any], path: Sequence[str]) -> Any:
    from headrace.formats.times import nested

    return nested(row, tuple(path))


def _with(row: dict[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Give an object with another value at a path.

    >>> _with({"meta": {"at": 1, "by": "x"}}, ("meta", "at"), 2)
    {'meta': {'at': 2, 'by': 'x'}}
    """
    first, *rest = path
    return {**row, first: _with(row[first], rest, value) if rest else value}


def _written(moment: EventTime, at: int, *, like: object) -> object:
    """Write a time as its topic has it.

    Args:
        moment: How.
        at: Microseconds since 1970.
        like: A time of the topic: a count may be a number or a text there, whole or not.
    """
    import polars as pl

    from headrace.formats.times import ISO

    if moment.pattern == "ns":
        count: float = at * 1_000
    elif moment.is_epoch:
        whole = not isinstance(like, float)
        count = at // _MICROS[moment.pattern] if whole else at / _MICROS[moment.pattern]
    else:
        instant = pl.Series([at]).cast(pl.Datetime("us", "UTC"))
        if moment.pattern == ISO:
            return instant.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")[0]
        return instant.dt.convert_time_zone(moment.zone).dt.strftime(moment.pattern)[0]
    return str(count) if isinstance(like, str) else count


def find_samples(project: Path, jobs: Sequence[Job]) -> list[Sample]:
    """Read the sample data of the topics that jobs read.

    Raises:
        ConfigError: A line is no event of its topic.
    """
    from headrace.stream.plan import TopicSource

    found = {}
    for job in jobs:
        for entry in job.pipeline.entries:
            if isinstance(entry.source, TopicSource):
                path = project / DIRECTORY / f"{entry.source.topic}.jsonl"
                if path.is_file() and entry.source.topic not in found:
                    found[entry.source.topic] = _read(path, entry.source)
    return list(found.values())


def _read(path: Path, source: TopicSource) -> Sample:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise ConfigError(f"cannot read {path}: {problem}", hint="Sample data are lines of JSON in UTF-8.") from problem
    moment = _time_of(source)
    place = moment.path if moment is not None and moment.place == "field" else (_EVENT_TIME,)
    hint = f"Write a JSON object per line, its time in {'.'.join(place)}, with: {', '.join(source.format.schema)}."
    events: list[tuple[int, dict[str, Any]]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise ConfigError(f"{path}:{number} is no JSON: {problem}", hint=hint) from problem
        at = _micros(moment, _at(row, place)) if isinstance(row, dict) else None
        if at is None:
            what = "no object" if not isinstance(row, dict) else f"without a time in {'.'.join(place)}"
            raise ConfigError(f"{path}:{number} is {what}", hint=hint)
        _check(Sample(source, (at,), (row,)), f"{path}:{number}", hint)
        events.append((at, row))
    if not events:
        raise ConfigError(f"{path} is empty", hint=hint)
    events.sort(key=lambda event: event[0])
    return Sample(source, tuple(at for at, _ in events), tuple(row for _, row in events))


def _micros(moment: EventTime | None, raw: Any) -> int | None:
    import polars as pl

    from headrace.formats.times import EventTime

    if not isinstance(raw, str | int | float) or isinstance(raw, bool):
        return None
    reader = moment if moment is not None and moment.place == "field" else EventTime()
    found: int | None = reader.micros(pl.Series([raw]))[0]
    return found


def _check(sample: Sample, where: str, hint: str) -> None:
    """See that a line can be written to its topic and read back."""
    import polars as pl
    import pyarrow as pa

    from headrace.formats import Records

    try:
        value, headers = sample.record(0, 0, sample.times[0])
    except (SchemaError, pl.exceptions.PolarsError, TypeError, ValueError) as problem:
        told = str(problem).split("\n", 1)[0]
        raise ConfigError(f"{where} does not fit the topic {sample.topic}: {told}", hint=hint) from problem
    given = [[{"key": name, "value": text} for name, text in headers or ()]]
    kind = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
    records = Records(
        pa.array([value], pa.binary()),
        headers=pa.array(given, kind),
        timestamps=pa.array([sample.times[0]], pa.timestamp("us", "UTC")),
    )
    for rejection in sample.source.format.decode(records).rejections.values():
        raise ConfigError(f"{where} does not fit the topic {sample.topic}: {rejection.text}", hint=hint)


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
        from headrace.kafka import Producer

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
                            for number in numbers:
                                value, headers = sample.record(number, shift, now)
                                producer.send(sample.topic, value, headers=headers)
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
