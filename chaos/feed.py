"""The feed: a process that writes events to Kafka, tick by tick, and goes on where it was after it was killed.

A tick is one transaction over all partitions, so it is there as a whole or not at all, and the last one tells where to
go on. What a tick holds depends on its number and the seed alone. Where the file `odd` is in its directory, it now and
then adds an event that is an hour late and a value that nobody can read.

    python -m chaos.feed BOOTSTRAP SEED DIRECTORY
"""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from chaos.jobs import START, TOPIC
from headrace.events import Codec
from headrace.kafka import Connection, Consumer, Topics, TransactionalProducer
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.kafka import Record

PARTITIONS = 4
EVENTS = 12
#: Event time that passes with a tick, and the clock's.
STEP = timedelta(milliseconds=500)
PACE = 0.1
#: How the vehicles of events begin that are too late.
LATE = "late/"
_TICK = "tick"


def last_tick(connection: Connection) -> int:
    """The last tick that is in the topic, -1 for none."""
    partitions = Topics(connection).get(TOPIC).partitions
    ends = {(TOPIC, each.partition): max(each.earliest, each.latest - 200) for each in partitions}
    with Consumer(connection, [TOPIC], start=ends) as consumer:
        return max((tick_of(record) for record in consumer), default=-1)


def tick_of(record: Record) -> int:
    return int(record.header(_TICK) or -1)


def rows_of(tick: int, seed: int, partition: int) -> pl.DataFrame:
    """What a tick writes to a partition."""
    chance = random.Random(f"{seed}/{tick}/{partition}")
    times, vehicles, lines, delays = [], [], [], []
    for number in range(EVENTS):
        # Up to a second of disorder; no two events at the same microsecond.
        early = timedelta(microseconds=chance.randrange(10_000) * 100 + number * PARTITIONS + partition)
        times.append(START + tick * STEP - early)
        vehicles.append(f"{partition}/{chance.randrange(15)}")
        lines.append(str(chance.randrange(20)))
        delays.append(chance.randrange(-60, 300))
    return pl.DataFrame(
        {"event_time": times, "ingestion_time": times, "vehicle_id": vehicles, "line": lines, "delay": delays},
        schema_overrides={"delay": pl.Int32},
    )


def odd_of(tick: int) -> tuple[bytes, bytes]:
    """An event that is too late for every window, and a value that is none."""
    late = START - timedelta(hours=1) + timedelta(milliseconds=tick)
    who = f"{LATE}{tick}"
    rows = pl.DataFrame({"event_time": [late], "ingestion_time": [late], "vehicle_id": [who], "line": ["1"]})
    return Codec().encode(rows, VehiclePosition).to_pylist()[0], b"\xff rubbish %d" % tick


def main() -> None:
    bootstrap, seed, directory = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    connection = Connection(bootstrap=bootstrap)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    codec = Codec()
    producer = TransactionalProducer(connection, transactional_id="chaos-feed", timeout=20.0)
    producer.prepare()
    tick = last_tick(connection) + 1
    while not stop.is_set():
        began = time.monotonic()
        with producer.transaction():
            headers = [(_TICK, str(tick).encode())]
            for partition in range(PARTITIONS):
                for value in codec.encode(rows_of(tick, seed, partition), VehiclePosition).to_pylist():
                    producer.send(TOPIC, value, partition=partition, headers=headers)
            if tick % 20 == 0 and (directory / "odd").exists():
                for value in odd_of(tick):
                    producer.send(TOPIC, value, partition=tick % PARTITIONS, headers=headers)
        tick += 1
        stop.wait(max(0.0, PACE - (time.monotonic() - began)))
    producer.close()


if __name__ == "__main__":
    main()
