"""Count simulated vehicles per map cell in this process: no Kafka, no Spark.

    python examples/vehicles_per_cell.py

The stream is the README's. Each step is one micro-batch of a second; windows fire as the watermark passes their ends.
"""

from __future__ import annotations

import polars as pl

from headrace.geo import h3_cell
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, latest, sliding
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

vehicles_per_cell = (
    Stream.topic("input.vehicle-position", VehiclePosition)
    .watermark(bounded("1s"), idle_after="30s")
    .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
    .filter(pl.col("cell").is_not_null())
    .key_by("vehicle_id")
    .window(sliding("30s", every="5s"))
    .aggregate(cell=latest("cell"))
    .key_by("cell")
    .same_window()
    .aggregate(vehicles=count())
)


def main(seconds: int = 40) -> None:
    """Run the stream on the first seconds of a fleet, and tell the busiest cell of every window."""
    print(vehicles_per_cell.explain())
    fleet = Fleet(vehicles=300, seed=1)
    runner = Runner(vehicles_per_cell)
    for second in range(seconds):
        reports = fleet.positions(second).with_columns(ingestion_time=pl.col("event_time"))
        fired = runner.step(reports).results.sort("vehicles", descending=True)
        if fired.height:
            busiest = fired.row(0, named=True)
            window = f"{busiest['window_start']:%H:%M:%S} to {busiest['window_end']:%H:%M:%S}"
            print(f"{window}: {fired.height} cells, the busiest {busiest['cell']:x} with {busiest['vehicles']}")


if __name__ == "__main__":
    main()
