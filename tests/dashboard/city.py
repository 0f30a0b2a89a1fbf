"""A small city for the tests: jobs of every kind, a hand that writes their results, a dashboard that serves them."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count as counting
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.cep import Pattern
from headrace.cep.measures import last
from headrace.dashboard.board import MOST_AHEAD
from headrace.dashboard.server import Dashboard, DashboardOptions, listen, serve
from headrace.events import Codec, Result
from headrace.geo import h3_cell
from headrace.kafka import Topics, TopicSpec
from headrace.kafka.producer import TransactionalProducer
from headrace.stream import Display, Job, Stream
from headrace.time import bounded
from headrace.windows import count, latest, mean, quantile, sliding
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dashboard.pages import Pages
    from headrace.kafka import Connection

#: Three neighbours in the middle of Helsinki, as numbers and as texts.
CELLS = (617294884144414719, 617294884143366143, 617294884143103999)
CELL_TEXTS = tuple(f"{cell:x}" for cell in CELLS)
SECOND = timedelta(seconds=1)

_numbers = counting(1)


def positions() -> Stream:
    return Stream.topic("input.vehicle-position", VehiclePosition).watermark(bounded("1s"))


def vehicles_job(name: str) -> Job:
    stream = (
        positions()
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        .key_by("cell")
        .window(sliding("30s", every="5s"))
        .aggregate(vehicles=count())
    )
    return Job(name, stream, "Vehicles per cell", display=Display.cells("vehicles", unit="vehicles"))


def delays_job(name: str) -> Job:
    stream = (
        positions()
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        .key_by("cell")
        .window(sliding("5m", every="5s"))
        .aggregate(p50=quantile("delay", 0.5), p90=quantile("delay", 0.9))
    )
    return Job(name, stream, "Delays", display=Display.cells("p50", "p90", unit="s", scale="diverging"))


def edges_job(name: str) -> Job:
    stream = (
        positions()
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        .key_by("cell")
        .window(sliding("5m", every="5s"))
        .aggregate(target=latest("cell"), vehicles=count())
    )
    return Job(name, stream, "Ways out", display=Display.edges("vehicles", target="target"))


def stops_job(name: str, *, time_to_live: str = "2m") -> Job:
    pattern = Pattern.begin("fast", pl.col("speed") >= 10).next("slow", pl.col("speed") < 1).within("10s")
    stream = (
        positions()
        .key_by("vehicle_id")
        .match(pattern)
        .select(line=last("slow.line"), latitude=last("slow.latitude"), longitude=last("slow.longitude"))
    )
    shown = Display.points(labels=["vehicle_id", "line"], time_to_live=time_to_live, title="Emergency stops")
    return Job(name, stream, "Emergency stops", display=shown)


def speeds_job(name: str) -> Job:
    stream = positions().key_by("line").window(sliding("30s", every="5s")).aggregate(speed=mean("speed"))
    return Job(name, stream, "Mean speed per line")


def fresh(name: str) -> str:
    """A job name that no other test has."""
    return f"{name}-{next(_numbers)}"


@dataclass
class Hand:
    """Writes results as a job does: in a transaction, with keys, windows and idempotency keys."""

    connection: Connection
    jobs: tuple[Job, ...]
    codec: Codec = field(default_factory=Codec)

    def __post_init__(self) -> None:
        Topics(self.connection).ensure([TopicSpec(name=job.result_topic, partitions=2) for job in self.jobs])
        self._producer = TransactionalProducer(self.connection, transactional_id=f"hand-{self.jobs[0].name}")
        self._producer.prepare()

    def write(
        self,
        job: Job,
        rows: list[dict[str, Any]],
        *,
        end: datetime | None = None,
        at: datetime | None = None,
        size: timedelta = 30 * SECOND,
        retraction: bool = False,
        schema: dict[str, Any] | None = None,
    ) -> None:
        """Write result rows: of the window that ends at `end`, or of the event time `at`."""
        columns = {name: kind for name, kind in job.stream.schema.items() if rows and name in rows[0]}
        frame = pl.DataFrame(rows, schema=pl.Schema(columns) | (schema or {}))
        when = at if end is None else end - timedelta(microseconds=1)
        keys = frame.select(
            pl.concat_str([pl.col(key).cast(pl.String) for key in job.pipeline.result_keys], separator="|")
        ).to_series()
        stamp = pl.lit(when).cast(pl.Datetime("us", "UTC"))
        frame = frame.with_columns(
            stamp.alias("event_time"),
            pl.lit(datetime.now(UTC)).cast(pl.Datetime("us", "UTC")).alias("ingestion_time"),
            pl.lit(job.name).alias("job"),
            keys.alias("key"),
            pl.Series("idempotency_key", [f"{job.name}-{key}-{when}-{retraction}" for key in keys]),
            pl.lit(retraction).alias("is_retraction"),
            stamp.alias("newest_event_time"),
            pl.lit(datetime.now(UTC)).cast(pl.Datetime("us", "UTC")).alias("newest_ingestion_time"),
        )
        if end is not None:
            frame = frame.with_columns(
                pl.lit(end - size).cast(pl.Datetime("us", "UTC")).alias("window_start"),
                pl.lit(end).cast(pl.Datetime("us", "UTC")).alias("window_end"),
                pl.lit(0, pl.Int64).alias("pane_index"),
                pl.lit("on_time").alias("pane_timing"),
            )
        self.send(job, list(zip(keys.to_list(), self.codec.encode(frame, Result).to_pylist(), strict=True)))

    def send(self, job: Job, records: list[tuple[str, bytes]]) -> None:
        """Write records as they are, in one transaction."""
        with self._producer.transaction() as producer:
            for key, value in records:
                producer.send(job.result_topic, value, key=key.encode())

    def close(self) -> None:
        self._producer.discard()


def window_end(steps: int = 0) -> datetime:
    """The end of the newest window that has ended by now, or one some steps later."""
    now = int(time.time())
    return datetime.fromtimestamp(now - now % 5, UTC) + 5 * steps * SECOND


@dataclass
class Served:
    """A dashboard that runs."""

    dashboard: Dashboard
    url: str


@contextmanager
def serving(
    connection: Connection,
    jobs: list[Job],
    options: DashboardOptions | None = None,
    *,
    port: int = 0,
    pages: Pages | None = None,
) -> Iterator[Served]:
    """Serve jobs from a thread of this process, as `headrace dashboard` does from its own."""
    dashboard = Dashboard(connection, jobs, options, pages=pages)
    listener = listen("127.0.0.1", port, insist=True)
    stop, told, problems = threading.Event(), threading.Event(), []
    urls: list[str] = []

    def ready(url: str) -> None:
        urls.append(url)
        told.set()

    def run() -> None:
        try:
            serve(dashboard, listener, ready=ready, stop=stop)
        except BaseException as problem:  # noqa: BLE001 - raised again below
            problems.append(problem)
        finally:
            told.set()

    thread = threading.Thread(target=run, name="dashboard")
    with pytest.MonkeyPatch.context() as patch:
        # Windows in tests run ahead of the clock and have few results, which would have to confirm each other.
        patch.setattr("headrace.dashboard.board.DOUBTFUL_AHEAD", MOST_AHEAD)
        # Tests write once and then look; on a slow machine a result must not expire before.
        patch.setattr("headrace.dashboard.board.PATIENCE", 300.0)
        thread.start()
        try:
            told.wait(20)
            if problems:
                raise problems[0]
            yield Served(dashboard, urls[0])
        finally:
            stop.set()
            thread.join(20)
    if problems:
        raise problems[0]


def until(condition: Any, *, what: str, seconds: float = 60.0) -> Any:
    """Wait until something is so, and give it; fail with what was wanted."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"still waiting for: {what}")
        time.sleep(0.05)
