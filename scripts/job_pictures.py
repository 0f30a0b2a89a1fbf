"""Draws what each job gives, for docs/jobs: one window of a simulated run in this process.

    python scripts/job_pictures.py

Writes docs/images/job-*.png. Needs matplotlib (the extra `report`).
"""

# ruff: noqa: T201 - a script talks to whoever runs it

from __future__ import annotations

from pathlib import Path
from typing import Any

import h3
import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import polars as pl
from matplotlib.collections import LineCollection, PolyCollection

from headrace.inprocess import Runner
from headrace_transit.jobs import all_jobs
from headrace_transit.simulator import Fleet

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
SECONDS = 400
#: The inner city and what is around it: longitude, latitude.
FRAME = ((24.80, 25.12), (60.145, 60.265))


def last_window(name: str, fleet: Fleet, *, every: int = 20) -> Any:
    """Run a job over the first minutes of a fleet, and give the batch in which it fired last."""
    runner = Runner(all_jobs()[name])
    given = None
    for second in range(0, SECONDS, every):
        take = fleet.stop_events if name == "delay-distribution" else fleet.positions
        batch = runner.step(take(second, seconds=every).with_columns(ingestion_time=pl.col("event_time")))
        given = batch if batch.results.height else given
    return given


def newest(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the last window."""
    return frame.filter(pl.col("window_end") == pl.col("window_end").max())


def outline(cell: int) -> list[tuple[float, float]]:
    """Give the corners of a cell."""
    return [(east, north) for north, east in h3.cell_to_boundary(h3.int_to_str(cell))]


def centre(cell: int) -> tuple[float, float]:
    """Give the middle of a cell."""
    north, east = h3.cell_to_latlng(h3.int_to_str(cell))
    return east, north


def canvas(title: str) -> tuple[Any, Any]:
    """Begin a picture."""
    figure, axes = plt.subplots(figsize=(8, 5.6), dpi=90)
    axes.set_xlim(*FRAME[0])
    axes.set_ylim(*FRAME[1])
    axes.set_aspect(2.0)  # a degree of longitude is half as long as one of latitude here
    axes.set_title(title, fontsize=11)
    axes.tick_params(labelsize=8)
    return figure, axes


def save(figure: Any, name: str) -> None:
    """Write a picture."""
    path = IMAGES / f"job-{name}.png"
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})
    plt.close(figure)
    print(f"{path.relative_to(IMAGES.parents[1])}: {path.stat().st_size // 1000} kB")


def hexagons(frame: pl.DataFrame, cell: str, value: str, title: str, name: str, **look: Any) -> None:
    """Draw cells by their value."""
    figure, axes = canvas(title)
    shapes = PolyCollection([outline(each) for each in frame[cell]], edgecolors="white", linewidths=0.3, **look)
    shapes.set_array(frame[value].to_numpy())
    axes.add_collection(shapes)
    figure.colorbar(shapes, ax=axes, shrink=0.8)
    save(figure, name)


def ways(frame: pl.DataFrame, cell: str, target: str, value: str, title: str, name: str, *, arrows: bool) -> None:
    """Draw ways from cell to cell by their value."""
    figure, axes = canvas(title)
    starts, ends = [centre(each) for each in frame[cell]], [centre(each) for each in frame[target]]
    numbers = frame[value].to_numpy()
    if arrows:
        xs, ys = zip(*starts, strict=True)
        us, vs = zip(*[(b[0] - a[0], b[1] - a[1]) for a, b in zip(starts, ends, strict=True)], strict=True)
        drawn = axes.quiver(
            xs, ys, us, vs, numbers, angles="xy", scale_units="xy", scale=1, width=0.0018, cmap="viridis"
        )
    else:
        drawn = LineCollection(list(zip(starts, ends, strict=True)), cmap="viridis", linewidths=0.5, alpha=0.6)
        drawn.set_array(numbers)
        axes.add_collection(drawn)
    figure.colorbar(drawn, ax=axes, shrink=0.8)
    save(figure, name)


def main() -> None:
    """Draw all pictures."""
    fleet = Fleet(vehicles=1500, seed=1)
    cells = newest(last_window("vehicle-distribution", fleet).results)
    hexagons(cells, "cell", "vehicles", "Vehicles per cell, 30 s (simulated)", "vehicle-distribution", cmap="viridis")
    delays = newest(last_window("delay-distribution", fleet).results)
    title = "Median delay of arrivals per cell in seconds, 5 min (simulated)"
    hexagons(delays, "cell", "p50", title, "delay-distribution", cmap="coolwarm", clim=(-180, 180))
    pairs = newest(last_window("final-stop-distribution", Fleet(vehicles=300, seed=1)).outputs["pairs"])
    title = "From where vehicles are on the way to which final stop, 5 min (simulated)"
    ways(pairs, "cell", "final_cell", "vehicles", title, "final-stop-distribution", arrows=False)
    flows = newest(last_window("flow-direction", fleet).results)
    title = "The most travelled way out of each cell, and its share, 5 min (simulated)"
    ways(flows, "cell", "to", "share", title, "flow-direction", arrows=True)
    stops()


def stops() -> None:
    """Draw half an hour of emergency stops of a fleet that has far more of them than any city."""
    fleet = Fleet(vehicles=300, seed=3, emergency_rate=1, gps_loss=0)
    runner = Runner(all_jobs()["emergency-stop-pattern"])
    found = []
    for second in range(0, 1800, 60):
        rows = fleet.positions(second, seconds=60).with_columns(ingestion_time=pl.col("event_time"))
        found.append(runner.step(rows).results)
    frame = pl.concat([*found, runner.finish().results])
    figure, axes = canvas("Emergency stops in half an hour, by speed before in m/s (simulated)")
    drawn = axes.scatter(
        frame["longitude"], frame["latitude"], c=frame["speed"], s=frame["deceleration"] * 15, cmap="plasma"
    )
    figure.colorbar(drawn, ax=axes, shrink=0.8)
    save(figure, "emergency-stops")


if __name__ == "__main__":
    main()
