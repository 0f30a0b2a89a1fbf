"""Logs: requests and the share of errors per service and minute, from lines of text.

A line that is not UTF-8 is a dead letter, one without a time is dismissed. In this process, or from Kafka to Kafka:
    python examples/logs.py                                      # an answer in this process
    python examples/logs.py records | kcat -P -b HOST:PORT -t logs
    headrace run examples/logs.py --bootstrap HOST:PORT          # the same from Kafka to Kafka
"""

import random
import sys
from datetime import UTC, datetime, timedelta

import polars as pl

import headrace
from headrace import Job, Stream, bounded, tumbling
from headrace.formats import json, text
from headrace.windows import count, mean

_LINE = r"^(?<at>\S+) (?<service>\S+) (?<level>[A-Z]+) status=(?<status>\d+) ms=(?<ms>\d+)"
_parts = pl.col("line").str.extract_groups(_LINE).struct

requests = (
    Stream.topic("logs", format=text("line"))
    .with_columns(
        event_time=_parts.field("at").str.to_datetime("%FT%TZ", time_zone="UTC", time_unit="us", strict=False),
        service=_parts.field("service"),
        is_error=_parts.field("status").cast(pl.Int64) >= 500,
        ms=_parts.field("ms").cast(pl.Float64),
    )
    .watermark(bounded("5s"), idle_after="10s")
)
errors = Job(
    "error-rate",
    requests.key_by("service")
    .window(tumbling("1min"))
    .aggregate(requests=count(), errors=mean(pl.col("is_error").cast(pl.Float64)), ms=mean("ms"))
    .select("service", "requests", "errors", "ms", "window_end"),
    format=json(),
)


def records(count: int = 1000) -> list[bytes]:
    """Make lines of three services; one in a hundred has been cut off, and one is no text."""
    chance, at, lines = random.Random(5), datetime(2026, 3, 1, 8, tzinfo=UTC), [b"\xff\xfe"]
    for number in range(count):
        at += timedelta(milliseconds=chance.randrange(600))
        status = chance.choice([200] * 18 + [404, 503])
        line = f"{at:%FT%TZ} {chance.choice(['api', 'web', 'mail'])} INFO status={status} ms={chance.randrange(2, 400)}"
        lines.append(line[: 15 if number % 100 == 50 else None].encode())
    return lines


if __name__ == "__main__":
    if sys.argv[1:] == ["records"]:
        sys.stdout.buffer.write(b"\n".join(records()) + b"\n")
    else:
        print(headrace.preview(errors, records()))
