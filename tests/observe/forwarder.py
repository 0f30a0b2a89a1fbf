"""A pipeline of one process: answers each marker after a known delay, and misbehaves for some of them as asked.

    python forwarder.py BOOTSTRAP INPUT OUTPUT DELAY_MS [--badly]

With --badly, by the last digit of the marker's turn: 3 is never answered, 5 is answered twice, 7 goes to the late
topic.
"""

from __future__ import annotations

import sys
import time

import h3
import polars as pl

from headrace.events import Codec, Event, LateEvent, Result, TypeRegistry
from headrace.kafka import Connection, Consumer, Producer
from headrace.observe.places import RESOLUTION
from headrace.observe.probe import LANES, ends, wall
from headrace.observe.recognition import marker_of
from headrace_transit.schemas import VehiclePosition


def main() -> None:
    bootstrap, source, target, delay, *badly = sys.argv[1:]
    connection = Connection(bootstrap=bootstrap)
    codec = Codec(TypeRegistry(VehiclePosition))
    with (
        Producer(connection, linger=0.0) as producer,
        Consumer(connection, [source], start=ends(connection, [source]), follow=True) as consumer,
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            for record in consumer.read(timeout=60):
                read = wall()
                due = read + int(delay) * 1000
                event = codec.read(record.value)
                assert isinstance(event, Event)
                time.sleep(max(0, due - wall()) / 1e6)
                forward(codec, producer, event, target, read=read, badly=bool(badly))
                producer.poll()


def forward(codec: Codec, producer: Producer, event: Event, target: str, *, read: int, badly: bool) -> None:
    position = codec.payload(event)
    assert isinstance(position, VehiclePosition)
    cell = h3.str_to_int(h3.latlng_to_cell(position.latitude, position.longitude, RESOLUTION))
    marker = marker_of(cell)
    assert marker is not None
    at = event.event_timestamp.ToMicroseconds()
    fate = marker // LANES % 10 if badly else 0
    if fate == 3:
        return
    if fate == 7:
        producer.send(f"{target}.late", codec.write(LateEvent(event=event, job="delayed"), event_time=at))
        return
    when = pl.Series([at]).cast(pl.Datetime("us", "UTC"))
    frame = pl.DataFrame({"event_time": when, "key": [str(cell)], "idempotency_key": [f"answer {marker}"]})
    # Its own account of what it did, to compare the tracker's with.
    written = wall()
    frame = frame.with_columns(marker=pl.lit(marker), was_read=pl.lit(read), was_written=pl.lit(written))
    for _ in range(2 if fate == 5 else 1):
        producer.send(target, codec.encode(frame, Result)[0].as_py(), key=str(cell).encode(), timestamp=written)


if __name__ == "__main__":
    main()
