"""Sensors: quantiles per minute, sessions of activity, and windows that end when a value has moved by 2 degrees.

In this process with data that is made up here, or from Kafka to Kafka:
    python examples/sensors.py                                   # an answer in this process
    python examples/sensors.py records | kcat -P -b HOST:PORT -t sensors
    headrace run examples/sensors.py --bootstrap HOST:PORT       # the same from Kafka to Kafka
"""

import random
import sys
from datetime import UTC, datetime

import polars as pl

import headrace
from headrace import Job, Stream, bounded, delta, session, tumbling
from headrace.formats import csv, json
from headrace.windows import count, mean, quantile

columns = {"at": pl.Int64, "sensor": pl.String, "degrees": pl.Float64}
readings = (
    Stream.topic("sensors", format=csv(columns, time="at", time_format="s"))
    .watermark(bounded("10s"), idle_after="10s")
    .filter(pl.col("degrees").is_between(-50, 80))
    .key_by("sensor")
)
spread = Job(
    "sensor-spread",
    readings.window(tumbling("1min")).aggregate(degrees=quantile("degrees", [0.1, 0.5, 0.9]), readings=count()),
    format=json(),
)
active = Job(
    "sensor-sessions",
    readings.window(session("30s")).aggregate(readings=count(), degrees=mean("degrees")),
    format=json(),
)
moves = readings.window(delta("degrees", 2.0)).aggregate(readings=count(), degrees=mean("degrees"))
steps = Job("sensor-steps", moves, format=json())


def records(seconds: int = 600) -> list[bytes]:
    """Make readings of two sensors, one a second, with pauses, and a broken value now and then."""
    chance, begin, lines = random.Random(3), int(datetime(2026, 3, 1, 8, tzinfo=UTC).timestamp()), []
    degrees = {"cellar": 12.0, "attic": 25.0}
    for second in range(seconds):
        for sensor in degrees:
            degrees[sensor] += chance.gauss(0, 0.3)
            if second % 120 < 70:
                value = -999.0 if chance.random() < 0.01 else round(degrees[sensor], 2)
                lines.append(f"{begin + second},{sensor},{value}".encode())
    return lines


if __name__ == "__main__":
    if sys.argv[1:] == ["records"]:
        print("\n".join(record.decode() for record in records()))
    else:
        print(*(headrace.preview(job, records()) for job in (spread, active, steps)), sep="\n")
