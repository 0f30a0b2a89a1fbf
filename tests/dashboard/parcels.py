"""A project without places for the tests: topics of JSON, jobs of every view, and somebody who writes both."""

from __future__ import annotations

import json as plain
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
from tests.dashboard.city import SECOND, fresh, window_end

from headrace.cep import Pattern
from headrace.cep.measures import last
from headrace.formats import json
from headrace.kafka import Producer, Topics, TopicSpec
from headrace.kafka.producer import TransactionalProducer
from headrace.stream import Display, Job, Stream
from headrace.time import bounded
from headrace.windows import count, mean, tumbling

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.kafka import Connection

SCHEMA = {"depot": pl.String, "parcel": pl.String, "weight": pl.Float64}


class Parcels:
    """Jobs on a topic of scans, and what they have written.

    Args:
        connection: Where Kafka is.
    """

    def __init__(self, connection: Connection) -> None:
        self.topic = fresh("parcels.scans")
        scans = Stream.topic(self.topic, format=json(schema=SCHEMA, time="scanned_at")).watermark(bounded("2s"))
        heavy = scans.filter(pl.col("weight") > 1.0).with_columns(grams=pl.col("weight") * 1000)
        windows = heavy.key_by("depot").window(tumbling("10s"))
        self.depots = Job(
            fresh("parcels-per-depot"),
            windows.aggregate(scans=count()).select("depot", "scans", "window_start", "window_end"),
            "Scans per depot, every 10 seconds",
            format=json(),
        )
        self.total = Job(
            fresh("parcels-weight"),
            windows.aggregate(kilograms=mean("weight")).select("depot", "kilograms", "window_start", "window_end"),
            "Mean weight per depot",
            display=Display.number("kilograms", unit="kg", title="Mean weight").beside(Display.table()),
            format=json(),
        )
        pattern = Pattern.begin("one", pl.col("weight") > 1).next("two", pl.col("weight") > 1).within("1m")
        self.pairs = Job(
            fresh("parcels-in-a-row"),
            heavy.key_by("depot").match(pattern).select(first=last("one.parcel"), second=last("two.parcel")),
            "Two heavy parcels in a row",
            display=Display.table(title="Heavy in a row", each=True, time_to_live="10m"),
            format=json(),
        )
        self.jobs = [self.depots, self.total, self.pairs]
        topics = [self.topic, *(job.result_topic for job in self.jobs), *(job.late_topic for job in self.jobs)]
        Topics(connection).ensure([TopicSpec(name=topic, partitions=2) for topic in topics])
        self._connection = connection
        self._producer = TransactionalProducer(connection, transactional_id=f"parcels-{self.topic}")
        self._producer.prepare()

    def scan(self, rows: list[dict[str, Any]]) -> None:
        """Write records to the source topic, as somebody else's producer does."""
        with Producer(self._connection) as producer:
            for row in rows:
                producer.send(self.topic, plain.dumps(row).encode(), key=str(row.get("depot", "")).encode())

    def answer(self, job: Job, rows: list[dict[str, Any]], *, end: datetime, size: int = 10) -> None:
        """Write results of a window as a run of the job does, in JSON."""
        frame = {"event_time": end - SECOND / 1_000_000}
        if job is not self.pairs:
            frame |= {"window_start": end - size * SECOND, "window_end": end}
        times = {name: at.isoformat() for name, at in frame.items()}
        with self._producer.transaction() as producer:
            for row in rows:
                key = str(row["depot"])
                unique = f"{job.name}-{key}-{end}-{row}".encode()
                producer.send(
                    job.result_topic,
                    plain.dumps({**row, **times}).encode(),
                    key=key.encode(),
                    headers=[("headrace-idempotency-key", unique)],
                )

    def close(self) -> None:
        """Close what writes."""
        self._producer.discard()


@dataclass(frozen=True)
class Day:
    """Results of several windows, for pictures and tests."""

    parcels: Parcels
    depots: tuple[str, ...] = ("Antwerp", "Bremen", "Cork", "Delft", "Essen", "Faro", "Graz")

    def write(self, windows: int, *, ahead: int = 0) -> datetime:
        """Write results of the last windows; give the end of the newest one."""
        newest = window_end(ahead)
        for back in range(windows - 1, -1, -1):
            self.window(newest - 10 * back * SECOND)
        return newest

    def window(self, end: datetime) -> None:
        """Write the results of one window."""
        step = int(end.timestamp()) // 10
        scans = [
            {"depot": depot, "scans": 40 + 17 * number + (step * (7 + number)) % (11 + 3 * number)}
            for number, depot in enumerate(self.depots)
        ]
        weights = [
            {"depot": depot, "kilograms": 2.5 + number + ((step * (3 + number)) % 7) / 5}
            for number, depot in enumerate(self.depots[:4])
        ]
        pair = {"depot": self.depots[step % 7], "first": f"P-{step % 9973}", "second": f"P-{(step + 1) % 9973}"}
        self.parcels.answer(self.parcels.depots, scans, end=end)
        self.parcels.answer(self.parcels.total, weights, end=end)
        self.parcels.answer(self.parcels.pairs, [pair], end=end)
        self.parcels.scan(
            [
                {
                    "scanned_at": (end - number * SECOND).isoformat(),
                    "depot": depot,
                    "parcel": f"P-{step % 9973}-{number}",
                    "weight": number + 0.5,
                }
                for number, depot in enumerate(self.depots)
            ]
        )
