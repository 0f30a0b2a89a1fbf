"""Draws what each watermark strategy does with the same ugly stream, for docs/time.md, from runs in this process.

    python scripts/time_pictures.py

The stream is that of 60 buses, each reporting once a second for two minutes: all have small delays; one clock is 15 s
behind; two are 20 s ahead for a while; 20 buses lose their radio for 8 s and send everything at once; then all are
silent for 20 s; at last, reports of the first 10 s are sent again. Writes docs/images/time-strategies.png, and prints
the share of late reports. Needs matplotlib (the extra `report`).
"""

# ruff: noqa: T201 - a script talks to whoever runs it

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import polars as pl

from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import BEGINNING, INSTANT, ascending, bounded, percentile

IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "time-strategies.png"
SECOND = 1_000_000
START = int(datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()) * SECOND
BUSES, SECONDS = 60, 120
#: What is drawn: a name, a strategy, and what else `watermark` is told.
STRATEGIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "ascending()": (ascending(), {}),
    'bounded("5s")': (bounded("5s"), {}),
    'bounded("5s", clock_tolerance="0s")': (bounded("5s", clock_tolerance="0s"), {}),
    'bounded("5s", of="90%", clock="bus")': (bounded("5s", of="90%", clock="bus"), {}),
    'percentile(0.99, initial="5s")': (percentile(0.99, initial="5s"), {}),
    'bounded("5s", clock_tolerance="0s"), per="key", patience="20s"': (
        bounded("5s", clock_tolerance="0s"),
        {"per": "key", "patience": "20s"},
    ),
}


def ugly_stream(*, seed: int = 1) -> pl.DataFrame:
    """All reports in the order of arrival."""
    random = np.random.default_rng(seed)
    bus, sent = (part.ravel() for part in np.meshgrid(np.arange(BUSES), np.arange(SECONDS), indexing="ij"))
    sent = sent + (bus % 10) / 10
    event, arrival = sent.copy(), sent + random.gamma(2.0, 0.15, len(sent))
    event[bus == 0] -= 15
    ahead = (bus >= 58) & (sent >= 20) & (sent < 40)
    event[ahead] += 20
    lost = (bus >= 20) & (bus < 40) & (sent >= 50) & (sent < 58)
    arrival[lost] = 58 + sent[lost] / 1000
    kept = (sent < 75) | (sent >= 95)
    again = sent < 10
    event, arrival = np.append(event[kept], event[again]), np.append(arrival[kept], 105 + sent[again] / 10)
    return pl.DataFrame(
        {
            "bus": pl.Series(np.append(bus[kept], bus[again])),
            "event_time": pl.Series(START + (event * SECOND).astype(np.int64)).cast(INSTANT),
            "ingestion_time": pl.Series(START + (arrival * SECOND).astype(np.int64)).cast(INSTANT),
        }
    ).sort("ingestion_time")


def run(reports: pl.DataFrame, strategy: Any, more: dict[str, Any]) -> tuple[list[tuple[float, float]], pl.DataFrame]:
    """Run a step that needs the order of each bus over batches of half a second; give watermarks and late reports."""
    stream = (
        Stream.rows("reports", {"bus": pl.Int64, "ingestion_time": INSTANT})
        .watermark(strategy, **more)
        .key_by("bus")
        .previous(before="event_time", within="1min")
    )
    runner, marks, late = Runner(stream), [], []
    arrived = (reports["ingestion_time"].to_physical() - START) / SECOND
    for half in range(2 * SECONDS + 4):
        batch = runner.step(reports.filter((arrived >= half / 2) & (arrived < half / 2 + 0.5)))
        late += [] if batch.late is None else [batch.late]
        if batch.watermark > BEGINNING:
            marks.append((half / 2 + 0.5, (batch.watermark - START) / SECOND))
    return marks, pl.concat(late) if late else reports[:0]


def draw(axes: Any, name: str, reports: pl.DataFrame, marks: list[tuple[float, float]], late: pl.DataFrame) -> None:
    """Draw one strategy: reports by arrival and event time, the late ones in red, and the watermark as a line."""
    for frame, colour, size in ((reports, "0.7", 1.0), (late, "tab:red", 3.0)):
        x, y = ((frame[column].to_physical() - START) / SECOND for column in ("ingestion_time", "event_time"))
        axes.scatter(x, y - x, s=size, c=colour, linewidths=0)
    x, y = (np.array(part) for part in zip(*marks, strict=True))
    axes.plot(x, y - x, color="tab:blue", linewidth=1.2)
    axes.set_ylim(-40, 25)
    axes.set_xlim(0, SECONDS + 2)
    axes.set_title(f"{name}: {late.height / reports.height:.1%} late", fontsize=9, loc="left", family="monospace")
    axes.tick_params(labelsize=7)
    axes.set_ylabel("s past arrival", fontsize=7)


def main() -> None:
    """Run all strategies and draw them below each other."""
    reports = ugly_stream()
    figure, panels = plt.subplots(len(STRATEGIES), 1, figsize=(8, 1.75 * len(STRATEGIES)), sharex=True, dpi=90)
    for axes, (name, (strategy, more)) in zip(panels, STRATEGIES.items(), strict=True):
        marks, late = run(reports, strategy, more)
        draw(axes, name, reports, marks, late)
        print(f"{name}: {late.height} of {reports.height} late ({late.height / reports.height:.1%})")
    panels[-1].set_xlabel("arrival, s", fontsize=8)
    figure.tight_layout()
    figure.savefig(IMAGE, metadata={"Software": None})
    plt.close(figure)
    print(f"{IMAGE.relative_to(IMAGE.parents[2])}: {IMAGE.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
