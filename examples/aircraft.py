"""Another domain: aircraft. Density per map cell and rapid descents, from state vectors in CSV, in this process.

    python examples/aircraft.py

The CSV file becomes events by a mapping (examples/aircraft/feeds.toml), the events become answers by two jobs of a few
lines; nothing of Headrace knows about aircraft. With Kafka, `headrace ingest examples/aircraft/feeds.toml` feeds the
topic `input.aircraft`, and the same two jobs run on Spark: `headrace.spark.run_jobs([density, descents], ...)`.

The states are made up: forty flights over southern Finland in ten minutes, a position every 10 s; two of them go down
far faster than anybody flies an approach.
"""

from __future__ import annotations

import math
import random
from pathlib import Path

import polars as pl
from polars import col

from headrace.cep import Pattern
from headrace.cep.measures import first, last, smallest
from headrace.geo import h3_cell
from headrace.ingest import RawMessage
from headrace.ingest.connectors.replay import ReplayConnector
from headrace.ingest.feeds import load
from headrace.ingest.processors.csv import CsvProcessor
from headrace.inprocess import run
from headrace.stream import Display, Job, Stream
from headrace.time import bounded
from headrace.windows import count, latest, sliding

FOLDER = Path(__file__).with_name("aircraft")
STATES = FOLDER / "states.csv"

AIRCRAFT = {
    "icao24": pl.String,
    "callsign": pl.String,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
    "altitude": pl.Float64,
    "climb": pl.Float64,
}
aircraft = Stream.topic("input.aircraft", schema=AIRCRAFT).watermark(bounded("15s"), idle_after="1min")

density = Job(
    name="aircraft-density",
    description="Aircraft per H3 cell (resolution 4), by the newest position of each in the last 2 min",
    stream=(
        aircraft.with_columns(cell=h3_cell("latitude", "longitude", resolution=4))
        .key_by("icao24")
        .window(sliding("2min", every="30s"))
        .aggregate(cell=latest("cell"))
        .key_by("cell")
        .same_window()
        .aggregate(aircraft=count())
    ),
    display=Display.cells("aircraft", unit="aircraft"),
)

#: Level flight above 3000 m, then three or more reports of more than 25 m/s downwards, all within 2 minutes.
rapid_descent = (
    Pattern.begin("level", (col("altitude") > 3000) & (col("climb").abs() < 3))
    .next("falling", col("climb") < -25)
    .times_or_more(3)
    .consecutive()
    .within("2min")
    .skip("past_last")
)

descents = Job(
    name="rapid-descent",
    description="Aircraft that leave level flight at more than 25 m/s downwards: which, where, how fast",
    stream=(
        aircraft.key_by("icao24")
        .match(rapid_descent)
        .select(
            callsign=last("falling.callsign"),
            began=first("falling.event_time"),
            from_altitude=last("level.altitude"),
            to_altitude=last("falling.altitude"),
            climb=smallest("falling.climb"),
            latitude=last("falling.latitude"),
            longitude=last("falling.longitude"),
        )
    ),
    display=Display.points("climb", unit="m/s"),
)


def make_states(path: Path) -> None:
    """Write made-up state vectors: the same every time."""
    chance = random.Random(4)
    rows = []
    for number in range(40):
        icao24, callsign = f"{0x461E00 + number:06x}", f"EXA{100 + number}"
        latitude, longitude = chance.uniform(59.8, 61.5), chance.uniform(22.5, 27.5)
        heading, speed = chance.uniform(0, 360), chance.uniform(150, 240)
        altitude, parked = chance.uniform(4000, 11500), number % 10 == 9
        for step in range(60):
            falls = number in (7, 23) and 20 <= step < 26
            climb = -42.0 if falls else chance.uniform(-2, 2)
            altitude += 10 * climb
            latitude += 0 if parked else 10 * speed * math.cos(math.radians(heading)) / 111_195
            longitude += 0 if parked else 10 * speed * math.sin(math.radians(heading)) / 55_600
            rows.append(
                f"{1_777_636_800 + 10 * step},{icao24},{latitude:.4f},{longitude:.4f},{0 if parked else speed:.1f},"
                f"{heading:.1f},{climb:.1f},{callsign:8},{parked},{0 if parked else altitude:.1f}"
            )
    rows.sort(key=lambda row: int(row.partition(",")[0]))
    header = "time,icao24,lat,lon,velocity,heading,vertrate,callsign,onground,baroaltitude"
    path.write_text("\n".join([header, *rows]) + "\n")


def events(path: Path) -> pl.DataFrame:
    """Read state vectors by the mapping of the feed, as `headrace ingest` does."""
    (feed,) = load(FOLDER / "feeds.toml", connectors={"replay": ReplayConnector}, processors={"csv": CsvProcessor})
    lines = path.read_bytes().splitlines()[1:]
    messages = [RawMessage("", line, int(line.partition(b",")[0]) * 1_000_000) for line in lines]
    processed = feed.make_processor().process(messages)
    print(
        f"{len(lines)} state vectors: {sum(part.frame.height for part in processed.events)} events in the air, "
        f"{len(processed.dismissed)} on the ground"
    )
    return pl.concat([part.frame for part in processed.events])


def main() -> None:
    """Run both jobs over the file, and tell what they found."""
    rows = events(STATES)
    cells = run(density.stream, rows).results.sort("window_end", "aircraft", descending=[False, True])
    print(f"{cells['window_end'].n_unique()} windows; the fullest cell holds {cells['aircraft'].max()} aircraft")
    for fall in run(descents.stream, rows).results.sort("began").iter_rows(named=True):
        print(
            f"{fall['callsign']} at {fall['began']:%H:%M:%S}: from {fall['from_altitude']:.0f} m to "
            f"{fall['to_altitude']:.0f} m at up to {-fall['climb']:.0f} m/s"
        )


if __name__ == "__main__":
    if not STATES.exists():
        make_states(STATES)
    main()
