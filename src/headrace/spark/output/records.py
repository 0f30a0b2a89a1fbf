"""From what left the last stage to records for Kafka: results, late events, dead letters, each with its keys."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.changelog import newest_rows
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, PANE_INDEX, WINDOW_END, WINDOW_START
from headrace.engine.tally import tallied
from headrace.errors import PlanError
from headrace.events import ENCODING_HEADER, DeadLetter, Encoding, Event, LateEvent, Result
from headrace.formats.format import IDEMPOTENCY_HEADER
from headrace.formats.origin import origin
from headrace.kafka.topics import DEAD_LETTERS
from headrace.sinks.idempotency import KEY_COLUMN
from headrace.sinks.upserts import upsert_keys
from headrace.spark.output.sink import Outgoing
from headrace.spark.run.isolation import blamed
from headrace.spark.source.exchange import frames, output_kind
from headrace.spark.stages.stage_turn import merged_times
from headrace.stream.intake import ORIGINAL
from headrace.stream.sink_frames import dismissed_letters, keyed_results, sink_frames

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.events import Codec
    from headrace.sinks.contract import BatchFrames
    from headrace.stream import Job
    from headrace.stream.pipeline import ResultEdge

_LATE_FIELDS = (EVENT_TIME, "ingestion_time", "job", "key", WINDOW_START, WINDOW_END, "lateness", "watermark")
_UTC = pl.Datetime("us", "UTC")
_COUNTED = "#"
_REASON = "!"


def counted(name: str) -> str:
    """Mark the name of something that a step has counted, among the figures of a batch.

    >>> counted("jumps_too_long"), steps_of({"results": 3, "#jumps_too_long": 2})
    ('#jumps_too_long', {'jumps_too_long': 2})
    """
    return _COUNTED + name


def reasons_of(counts: Mapping[str, int], kind: str) -> dict[str, int]:
    """Give the dead letters of a kind by reason, among the figures of a batch.

    >>> reasons_of({"dead_letters": 2, "!dead:malformed": 2}, "dead")
    {'malformed': 2}
    """
    mark = f"{_REASON}{kind}:"
    return {name.removeprefix(mark): number for name, number in counts.items() if name.startswith(mark)}


def steps_of(counts: Mapping[str, int]) -> dict[str, int]:
    """Give what steps have counted, among the figures of a batch."""
    return {name.removeprefix(_COUNTED): number for name, number in counts.items() if name.startswith(_COUNTED)}


@dataclass(frozen=True)
class Finished:
    """What a job gave in a batch, after its last steps.

    Args:
        job: The job.
        results: Result rows with their idempotency keys, by the way out that they took.
        late: Late rows, as they left a stage.
        dead: Dead letters of records that could not be read.
        dismissed: Rows that the job could not use.
        newest: Times of the newest event that the job had seen by then, by field of a result.
    """

    job: Job
    results: list[tuple[ResultEdge, pl.DataFrame]]
    late: list[pl.DataFrame]
    dead: list[pl.DataFrame]
    dismissed: list[pl.DataFrame]
    newest: dict[str, int]

    def frames(self, dead: Sequence[pl.DataFrame]) -> BatchFrames:
        """Give it in the form that sinks take.

        Args:
            dead: Dead letters of all topics that the query reads; one job of it carries them.
        """
        return sink_frames(self.job, self.results, late=self.late, dismissed=self.dismissed, dead=dead)


@dataclass(frozen=True)
class Writer:
    """Encodes what a job gives.

    Args:
        job: Whose results they are.
        codec: How they are written.
        encoding: Binary, or JSON for people who look into topics by hand.
    """

    job: Job
    codec: Codec
    encoding: Encoding = "binary"

    def __post_init__(self) -> None:
        pipeline = self.job.pipeline
        gone = [name for name in (WINDOW_END, PANE_INDEX, IS_RETRACTION) if name not in pipeline.schema]
        last_fires_again = any(pipeline.stages[output.stage].fires_again for output in pipeline.results_of(""))
        passed_on = WINDOW_END in pipeline.schema and any(stage.fires_again for stage in pipeline.stages)
        if gone and (last_fires_again or passed_on):
            raise PlanError(
                f"the results of {self.job.name} have no {' and no '.join(gone)}, though a window may fire again",
                hint="Keep them in the last select(...): nothing else tells the results of one window apart.",
            )

    def outgoing(
        self, bodies: Mapping[str, list[bytes]], now: int, counts: Counter[str], *, batch: str = ""
    ) -> Iterator[Outgoing]:
        """Make records of all that left the last stage.

        Args:
            bodies: The bodies that hold rows, by kind.
            now: When that was.
            counts: Is told how many rows there were; see `finish`.
            batch: Names the batch; see `finish`.
        """
        yield from self.encode(self.finish(bodies, counts, batch=batch), now)

    def finish(self, bodies: Mapping[str, list[bytes]], counts: Counter[str], *, batch: str = "") -> Finished:
        """Run the last steps of a job on what left the last stage.

        Args:
            bodies: The bodies that hold rows, by kind.
            counts: Is told how many rows there were: `results`, `late`, `dead_letters` and those of them that the job
                itself has `dismissed`; and, with a mark before the name (`counted`), what steps have counted.
            batch: Names the batch, the same when it is repeated.
        """
        for told in bodies.get("counts", ()):
            counts.update({counted(name): number for name, number in json.loads(told).items()})
        pipeline = self.job.pipeline
        results = []
        for way in pipeline.outputs:
            arrived = frames(bodies.get(output_kind(way.name, way.part), ()))
            if not arrived:
                continue
            with blamed(self.job.name), tallied() as last:
                rows = way.finish(pl.concat(arrived))
            counts.update({counted(name): number for name, number in last.items()})
            counts["results"] += rows.height
            results.append((way, keyed_results(self.job, way, rows, batch=batch)))
        late, dead, dismissed = (_alike(frames(bodies.get(kind, ()))) for kind in ("late", "dead", "dismissed"))
        for kind, letters in (("dead", dead), ("dismissed", dismissed)):
            for frame in letters:
                reasons = frame.get_column("reason").cast(pl.String).value_counts()
                counts.update({f"{_REASON}{kind}:{reason}": number for reason, number in reasons.iter_rows()})
        counts["late"] += sum(frame.height for frame in late)
        counts["dismissed"] += sum(frame.height for frame in dismissed)
        counts["dead_letters"] += sum(frame.height for frame in (*dead, *dismissed))
        return Finished(self.job, results, late, dead, dismissed, _newest(bodies.get("time", ())))

    def encode(self, finished: Finished, now: int) -> Iterator[Outgoing]:
        """Make records of what a job gave.

        Args:
            finished: What it gave.
            now: When that was.
        """
        for way, rows in self._tables(finished.results):
            yield from self.results(rows, now, output=way, newest=finished.newest)
        for frame in finished.late:
            yield from self.late(frame, now)
        for frame in finished.dead:
            yield from self.dead(frame, now)
        for frame in finished.dismissed:
            yield from self.dismissed(frame, now)

    def _tables(self, results: Sequence[tuple[ResultEdge, pl.DataFrame]]) -> Iterator[tuple[ResultEdge, pl.DataFrame]]:
        """Put the parts of a union together that is written as upserts.

        A row may go from one part to another; its key then has one record, and not a deletion behind the new row.
        """
        tables: dict[str, list[tuple[ResultEdge, pl.DataFrame]]] = {}
        for way, rows in results:
            if self.job.upsert_key(way.name):
                tables.setdefault(way.name, []).append((way, rows))
            else:
                yield way, rows
        for parts in tables.values():
            yield parts[0][0], pl.concat([rows for _, rows in parts])

    def results(
        self,
        frame: pl.DataFrame,
        now: int,
        *,
        output: ResultEdge | None = None,
        newest: Mapping[str, int] | None = None,
    ) -> Iterator[Outgoing]:
        """Give each result its keys: what it is about, and one that no other result has.

        Args:
            frame: The results.
            now: When they were ready.
            output: The way by which they came out; the job's own results if not given.
            newest: Times of the newest event that the job had seen by then, by field of a result.
        """
        job = self.job
        way = output or job.pipeline.outputs[0]
        further = way.name
        name = job.output_name(further) if further else job.name
        topic = job.output_topic(further) if further else job.result_topic
        keyed = keyed_results(job, way, frame)
        table_key = job.upsert_key(further)
        if table_key:
            keyed = newest_rows(keyed, table_key)
            gone = keyed.filter(pl.col(IS_RETRACTION)) if IS_RETRACTION in keyed.columns else keyed.clear()
            if gone.height:
                headers = [((IDEMPOTENCY_HEADER, each),) for each in _names(gone)]
                deleted = _as_bytes(upsert_keys(gone, table_key))
                yield Outgoing(topic, deleted, [None] * gone.height, each_headers=headers)
                keyed = keyed.filter(~pl.col(IS_RETRACTION))
        keys = upsert_keys(keyed, table_key) if table_key else _joined(keyed, way.keys)
        plain = job.output_format(further) if further else job.format
        if plain is not None:
            with blamed(job.name):
                values = plain.encode(keyed.drop(KEY_COLUMN, *([IS_RETRACTION] if table_key else []), strict=False))
            headers = [((IDEMPOTENCY_HEADER, each),) for each in _names(keyed)]
            yield Outgoing(topic, _as_bytes(keys), values.to_pylist(), each_headers=headers)
            return
        together = keyed.with_columns(
            pl.lit(name).alias("job"),
            keys.alias("key"),
            pl.lit(now, dtype=pl.Int64).cast(_UTC).alias("ingestion_time"),
            *(pl.lit(at, dtype=pl.Int64).cast(_UTC).alias(name) for name, at in (newest or {}).items()),
        )
        yield from self._records(topic, keys, together, Result)

    def late(self, frame: pl.DataFrame, now: int) -> Iterator[Outgoing]:
        """Write the events that came too late, each as it was read: an event, or the record of another format."""
        keys = self._first_keys(frame)
        together = frame.with_columns(
            pl.lit(self.job.name).alias("job"),
            keys.alias("key"),
            pl.lit(now, dtype=pl.Int64).cast(_UTC).alias("ingestion_time"),
        )
        messages = names = None
        if ORIGINAL in frame.columns:
            together = together.select(name for name in _LATE_FIELDS if name in together.columns)
            read = [origin(stored) for stored in frame.get_column(ORIGINAL).to_list()]
            messages = {"event": [self._binary(each.value) if each.topic is None else None for each in read]}
            names = [each.value for each in read]
            if any(each.topic is not None for each in read):
                together = together.with_columns(
                    pl.Series("record_value", [each.value if each.topic else None for each in read], pl.Binary),
                    pl.Series("record_topic", [each.topic for each in read], pl.String),
                    pl.Series("record_format", [each.format for each in read], pl.String),
                )
        yield from self._records(self.job.late_topic, keys, together, LateEvent, messages, names)

    def _binary(self, value: bytes) -> bytes | None:
        """Give an event as it was read in its binary form."""
        if value[:1] != b"{":
            return value or None
        event = self.codec.read(value)
        return event.SerializeToString() if isinstance(event, Event) else None

    def dead(self, frame: pl.DataFrame, now: int) -> Iterator[Outgoing]:
        """Write dead letters."""
        stamp = pl.lit(now, dtype=pl.Int64).cast(_UTC)
        together = frame.with_columns(stamp.alias(EVENT_TIME), stamp.alias("ingestion_time"))
        keys = frame.get_column("reason").cast(pl.String)
        # Thousands of dead letters may have one reason.
        names = [value or b"" for value in frame.get_column("value").to_list()] if "value" in frame.columns else None
        yield from self._records(DEAD_LETTERS, keys, together, DeadLetter, names=names)

    def dismissed(self, frame: pl.DataFrame, now: int) -> Iterator[Outgoing]:
        """Write events that a job could not use as dead letters: as they were read, or their columns as JSON."""
        yield from self.dead(dismissed_letters(self.job.name, frame), now)

    def _first_keys(self, frame: pl.DataFrame) -> pl.Series:
        """Tell the key of late rows: that of the first stage whose key columns they have."""
        stages = self.job.pipeline.stages
        keys = (into.keys for stage in stages for into in stage.inputs if {*into.keys} <= {*frame.columns})
        return _joined(frame, next(keys, ()))

    def _records(
        self,
        topic: str,
        keys: pl.Series,
        frame: pl.DataFrame,
        kind: type,
        messages: Mapping[str, list[bytes | None]] | None = None,
        names: list[bytes] | None = None,
    ) -> Iterator[Outgoing]:
        values = self.codec.encode(frame, kind, encoding=self.encoding, messages=messages)
        # Binary is what a reader expects without the header, which costs more to hand over than the rest of the record.
        headers = () if self.encoding == "binary" else ((ENCODING_HEADER, self.encoding.encode()),)
        yield Outgoing(topic, _as_bytes(keys), values.to_pylist(), headers, names)


def _names(frame: pl.DataFrame) -> list[bytes]:
    return frame.get_column(KEY_COLUMN).cast(pl.Binary).to_list()


def _as_bytes(keys: pl.Series) -> list[bytes]:
    return keys.fill_null("").cast(pl.Binary).to_list()


def _newest(told: Sequence[bytes]) -> dict[str, int]:
    """Read from what a job's first key group says of time how new its newest event was, as far as it is known."""
    said = merged_times(told)
    if said is None:
        return {}
    events = [report["newest"] for report in said["partitions"] if report["newest"] is not None]
    known = {"newest_event_time": max(events, default=None), "newest_ingestion_time": said.get("ingested")}
    return {name: at for name, at in known.items() if at is not None}


def _alike(those: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """Put frames together that have the same columns: writing has a price per frame."""
    found: dict[tuple[tuple[str, pl.DataType], ...], list[pl.DataFrame]] = {}
    for frame in those:
        found.setdefault(tuple(frame.schema.items()), []).append(frame)
    return [pl.concat(each) for each in found.values()]


def _joined(frame: pl.DataFrame, keys: tuple[str, ...]) -> pl.Series:
    columns = [pl.col(key) for key in keys if key in frame.columns]
    if not columns:
        return pl.Series("key", [""] * frame.height)
    # Polars has no text for a duration; its number is its microseconds.
    plain = [
        column.to_physical() if frame.schema[column.meta.output_name()] == pl.Duration else column for column in columns
    ]
    texts = [column.cast(pl.String).fill_null("") for column in plain]
    return frame.select(pl.concat_str(texts, separator="|").alias("key")).to_series()
