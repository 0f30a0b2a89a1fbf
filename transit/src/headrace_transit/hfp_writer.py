"""HFP messages from positions and stop events: the way back from what `hfp` reads.

The simulated fleet speaks HFP by this module, to an MQTT broker or into a recording, so that everything behind it sees
the same messages as from real vehicles.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.ingest.message import RawMessage
from headrace_transit.hfp import POSITION

if TYPE_CHECKING:
    from collections.abc import Iterator

ARRIVAL_TIME = "arrival_time"
_METRES_PER_DEGREE = 111_195.0
_TIMES = {"ttarr": "scheduled_arrival", "ttdep": "scheduled_departure"}


def write(events: pl.DataFrame) -> Iterator[RawMessage]:
    """Write events as HFP messages of version 2.

    Args:
        events: Columns of `VehiclePosition`, or of `StopEvent` with its `event_type`; `event_time`, and `arrival_time`
            where a message's arrival is known. Events at traffic lights (TLR, TLA) have the light's number as `light`
            and the number of the request as `attempt`, those of drivers a `block`.

    >>> from datetime import UTC, datetime
    >>> frame = pl.DataFrame({"event_time": [datetime(2020, 9, 21, 3, tzinfo=UTC)], "operator": 40, "speed": 0.57})
    >>> message = next(write(frame.with_columns(vehicle_number=456, mode=pl.lit("tram"))))
    >>> message.topic
    '/hfp/v2/journey/ongoing/vp/tram/0040/00456'
    >>> message.payload[:43]
    b'{"VP":{"desi":null,"dir":null,"oper":null,"'
    """
    frame = written(events)
    return map(RawMessage, *(frame[name].to_list() for name in ("topic", "payload", "arrival")))


def written(events: pl.DataFrame) -> pl.DataFrame:
    """Write events as `write` does, in columns: `topic`, `payload`, and `arrival` in microseconds since the epoch.

    Args:
        events: As for `write`.
    """
    frame = events.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in _DEFAULTS.items() if name not in events.columns
    )
    event = pl.col("event_type") if "event_type" in events.columns else pl.lit(POSITION)
    topic = _topic(event)
    body = [*_BODY, *(_time(column).alias(key) for key, column in _TIMES.items() if column in events.columns)]
    payload = _payload(event, body)
    if "light" in events.columns:
        at_light, asked = pl.col("light").is_not_null(), event == "TLR"
        topic = pl.when(at_light).then(topic + "/" + pl.col("light").cast(pl.String)).otherwise(topic)
        payload = (
            pl.when(at_light & asked)
            .then(_payload(event, [*_BODY, *_REQUEST]))
            .when(at_light)
            .then(_payload(event, [*_BODY, *_REQUEST, *_ANSWER]))
            .otherwise(_payload(event, [*_BODY, *_DRIVER]))
        )
    arrival = pl.col(ARRIVAL_TIME if ARRIVAL_TIME in events.columns else "event_time")
    return frame.select(
        topic.alias("topic"), payload.cast(pl.Binary).alias("payload"), arrival.dt.timestamp("us").alias("arrival")
    )


def _payload(event: pl.Expr, body: list[pl.Expr]) -> pl.Expr:
    return pl.concat_str(pl.lit('{"'), event, pl.lit('":'), pl.struct(body).struct.json_encode(), pl.lit("}"))


def _topic(event: pl.Expr) -> pl.Expr:
    """The levels up to the vehicle, and those of the trip where there is one."""
    head = pl.concat_str(
        pl.lit("/hfp/v2/"),
        pl.col("journey_type").fill_null("journey"),
        pl.lit("/"),
        pl.col("temporal_type").fill_null("ongoing"),
        pl.lit("/"),
        event.str.to_lowercase(),
        pl.lit("/"),
        pl.col("mode").fill_null(""),
        pl.lit("/"),
        pl.col("operator").cast(pl.String).str.zfill(4),
        pl.lit("/"),
        pl.col("vehicle_number").cast(pl.String).str.zfill(5),
    )
    trip = pl.concat_str(
        pl.lit("/"),
        pl.col("route").fill_null(""),
        pl.lit("/"),
        pl.col("direction").cast(pl.String).fill_null(""),
        pl.lit("/"),
        pl.col("headsign").fill_null(""),
        pl.lit("/"),
        pl.col("trip_start").fill_null(""),
        pl.lit("/"),
        pl.col("next_stop").fill_null(""),
        _geohash(),
    )
    return pl.when(pl.col("route").is_not_null()).then(head + trip).otherwise(head)


def _geohash() -> pl.Expr:
    """The place: what changed, whole degrees, then a level for each decimal of both; empty without a position."""
    latitude, longitude = pl.col("latitude"), pl.col("longitude")

    def digit(value: pl.Expr, place: int) -> pl.Expr:
        return (value * float(10**place)).floor().cast(pl.Int64).mod(10).cast(pl.String)

    levels = [pl.lit("/"), digit(latitude, 1), digit(longitude, 1)]
    levels += [pl.lit("/"), digit(latitude, 2), digit(longitude, 2)]
    levels += [pl.lit("/"), digit(latitude, 3), digit(longitude, 3)]
    degrees: list[pl.Expr] = [value.floor().cast(pl.Int64).cast(pl.String) for value in (latitude, longitude)]
    place = pl.concat_str(pl.lit("/"), _level(), pl.lit("/"), degrees[0], pl.lit(";"), degrees[1], *levels)
    return place.fill_null("/0////")


def _level() -> pl.Expr:
    """The first decimal in which the place differs from that of the second before; 5 if it is none of the first four.

    Where the vehicle was follows from its speed and heading.
    """
    turn = pl.col("heading").cast(pl.Float64).radians()
    degrees = pl.col("speed") / _METRES_PER_DEGREE
    level: pl.Expr = pl.lit("5")
    for decimal in (4, 3, 2, 1, 0):
        changed: pl.Expr = pl.lit(value=False)
        for name, way in (("latitude", degrees * turn.cos()), ("longitude", 2 * degrees * turn.sin())):
            now, before = pl.col(name) * 10.0**decimal, (pl.col(name) - way) * 10.0**decimal
            changed = changed | (now.floor() != before.floor())
        level = pl.when(changed).then(pl.lit(str(decimal))).otherwise(level)
    return level


def _time(column: str) -> pl.Expr:
    return pl.col(column).dt.strftime("%Y-%m-%dT%H:%M:%S%.3fZ")


def _whole_where_possible(column: str) -> pl.Expr:
    """The numbers of stops are numbers in HFP."""
    return pl.col(column).cast(pl.Int64, strict=False)


_BODY = (
    pl.col("line").alias("desi"),
    pl.col("direction").cast(pl.String).alias("dir"),
    pl.col("trip_operator").alias("oper"),
    pl.col("vehicle_number").alias("veh"),
    _time("event_time").alias("tst"),
    (pl.col("event_time").dt.timestamp("us") // 1_000_000).alias("tsi"),
    pl.col("speed").alias("spd"),
    pl.col("heading").alias("hdg"),
    pl.col("latitude").alias("lat"),
    pl.col("longitude").alias("long"),
    pl.col("acceleration").alias("acc"),
    (-pl.col("delay")).alias("dl"),
    pl.col("odometer").alias("odo"),
    pl.col("doors_open").cast(pl.Int32).alias("drst"),
    pl.col("operating_day").alias("oday"),
    pl.col("journey_number").alias("jrn"),
    pl.col("line_number").alias("line"),
    pl.col("trip_start").alias("start"),
    pl.col("location_source").alias("loc"),
    _whole_where_possible("stop").alias("stop"),
    pl.col("route"),
    pl.col("occupancy").alias("occu"),
)
#: What traffic lights are asked and answer, and what drivers say; the names are those of recorded messages.
_REQUEST = (
    pl.col("light").alias("sid"),
    (pl.col("light") + 700).alias("signal-groupid"),
    (pl.col("light") % 16).alias("tlp-signalgroupnbr"),
    ((pl.col("vehicle_number") * 7 + pl.col("light")) % 256).alias("tlp-requestid"),
    pl.lit("NORMAL").alias("tlp-requesttype"),
    pl.lit("normal").alias("tlp-prioritylevel"),
    pl.col("attempt").alias("tlp-att-seq"),
)
_ANSWER = (pl.lit("ACK").alias("tlp-decision"),)
_DRIVER = (pl.lit(1, pl.Int32).alias("dr-type"), pl.col("block"))
_DEFAULTS = {
    **dict.fromkeys(("line", "operating_day", "trip_start", "location_source", "stop", "route", "headsign"), pl.String),
    **dict.fromkeys(("journey_type", "temporal_type", "mode", "next_stop"), pl.String),
    **dict.fromkeys(("speed", "latitude", "longitude", "acceleration", "odometer"), pl.Float64),
    **dict.fromkeys(("direction", "trip_operator", "heading", "delay", "occupancy", "journey_number"), pl.Int32),
    "line_number": pl.Int32,
    "doors_open": pl.Boolean,
}
