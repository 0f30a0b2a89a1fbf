"""A package of somebody else: a format, a message type, a connector, a processor, a sink, a function, settings."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from headrace.config import Section, setting
from headrace.events import Reason, Record, Rejection
from headrace.formats import DecodedRecords, Format, Records
from headrace.ingest import Batch, Connector, EventFrame, Processed, Processor, RawMessage
from headrace.ingest.processor import Cause, Dismissal
from headrace.sinks import BatchFrames, BatchToken, Sink, SinkWriter

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from headrace.delivery import Delivery

_INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Semicolons(Format):
    """A parcel and a depot with a semicolon between them; the time is Kafka's."""

    name: ClassVar[str] = "semicolons"

    @property
    def schema(self) -> pl.Schema:
        return pl.Schema({"parcel": pl.String, "depot": pl.String})

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        rows: list[tuple[str, str]] = []
        positions: list[int] = []
        rejections: dict[int, Rejection] = {}
        for position, value in enumerate(records.values.to_pylist()):
            try:
                parcel, depot = (value or b"").decode().split(";")
            except (UnicodeDecodeError, ValueError):
                rejections[position] = Rejection(Reason.MALFORMED, "not PARCEL;DEPOT")
                continue
            rows.append((parcel, depot))
            positions.append(position)
        chosen = self.schema.names() if columns is None else list(columns)
        times = pl.Series("event_time", records.timestamps.to_pylist(), _INSTANT)[positions]  # type: ignore[union-attr]
        frame = pl.DataFrame(rows, schema=self.schema, orient="row").with_columns(
            times, pl.lit(None, _INSTANT).alias("ingestion_time")
        )
        return DecodedRecords(
            frame.select("event_time", "ingestion_time", *chosen), np.array(positions, np.int64), rejections
        )

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        return pa.array([f"{p};{d}".encode() for p, d in frame.select("parcel", "depot").iter_rows()], pa.binary())


semicolons = Semicolons()


def _scan_type() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="parcel_plugins.proto", package="parcels", syntax="proto3")
    message = file.message_type.add(name="Scan")
    message.field.add(name="parcel", number=1, type="TYPE_STRING", label="LABEL_OPTIONAL")
    message.field.add(name="weight", number=2, type="TYPE_DOUBLE", label="LABEL_OPTIONAL")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("parcels.Scan"))


Scan = _scan_type()


@dataclass(frozen=True)
class TickSettings:
    """How many messages come."""

    messages: int = 100


class TickConnector(Connector[TickSettings]):
    """Messages out of nothing."""

    name = "ticks"
    Settings = TickSettings

    def check(self) -> str:
        return f"{self.settings.messages} messages out of nothing"

    def open(self) -> None: ...

    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        for number in range(self.settings.messages):
            if stop.is_set():
                return
            yield Batch([RawMessage("", b"p%d" % number, time.time_ns() // 1_000)], token=number)

    def close(self) -> None: ...


class NameProcessor(Processor):
    """A message is the name of a parcel."""

    name = "names"
    topics = ("input.names",)

    def process(self, messages: Sequence[RawMessage]) -> Processed:
        good = {n: m for n, m in enumerate(messages) if m.payload.isalnum()}
        bad = [n for n in range(len(messages)) if n not in good]
        frame = pl.DataFrame(
            {
                "event_time": [m.arrival for m in good.values()],
                "ingestion_time": [m.arrival for m in good.values()],
                "parcel": [m.payload.decode() for m in good.values()],
            },
            schema={"event_time": pl.Int64, "ingestion_time": pl.Int64, "parcel": pl.String},
        ).cast({"event_time": _INSTANT, "ingestion_time": _INSTANT})
        events = (EventFrame(topic="input.names", type=Record, frame=frame, keys=frame["parcel"]),) if good else ()
        return Processed(events=events, dismissed={n: Dismissal(Cause.BAD_VALUE, "no name") for n in bad})


class ParcelSettings(Section):
    """How many depots there are."""

    section = "parcels"
    depots: int = setting(3, "How many depots there are.", "a whole number from 1", ge=1)


@dataclass(frozen=True)
class LineSink(Sink):
    """A file per table, a line per row; the token is the last line of a file beside them."""

    name: ClassVar[str] = "lines"
    delivery: ClassVar[Delivery] = "at_least_once"
    path: str = "lines"

    def open(self, job: str) -> SinkWriter:
        return LineWriter(Path(self.path))


class LineWriter(SinkWriter):
    """Appends."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def last(self) -> BatchToken | None:
        return None

    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        del token
        for table, frame in frames.tables():
            with (self._directory / f"{table}.jsonl").open("a", encoding="utf-8") as file:
                file.write(frame.select(pl.exclude(pl.Binary)).write_ndjson())


def short_name(parcel: str) -> str:
    """Give what stands before the first dash."""
    return parcel.partition("-")[0]
