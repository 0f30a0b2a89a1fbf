"""Compare the simulated fleet with recordings of HSL's feed: figures and plots for `docs/calibration.md`.

    python scripts/calibrate.py RECORDINGS       # the folder that holds data/hsl/reference, data/hsl/recording-..., ...

Without an argument the folder is $HEADRACE_SHARED, or `shared` beside the repository. The tables of the page between
`<!-- name -->` and `<!-- /name -->` and the pictures `docs/images/calibration-*.svg` are written anew; the words around
them are written by hand and may have to follow. Needs matplotlib (the extra `report`).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib import pyplot as plt

from headrace.ingest.recording import Recording
from headrace_transit.hfp import HfpProcessor, HfpSettings, parse_topic
from headrace_transit.hfp_writer import written
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.simulator.calibration import REFERENCE, Lateness, read_lags, simulated_lags
from headrace_transit.simulator.milestones import STOP_EVENTS as AT_STOPS
from headrace_transit.simulator.service import needed
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

ROOT = Path(__file__).resolve().parents[1]
PAGE, IMAGES = ROOT / "docs" / "calibration.md", ROOT / "docs" / "images"
#: The recordings were made in the early morning: as many vehicles, on a plain day, at the same time.
START = datetime(2025, 9, 1, 3, 0, tzinfo=UTC)
REAL, SIMULATED, OTHER = "#1b6ca8", "#d1495b", "#edae49"
MODES = ("tram", "bus")


@dataclass(frozen=True)
class Recorded:
    """A recording, decoded; repeats left out."""

    name: str
    messages: int
    repeats: int
    seconds: float
    types: pl.DataFrame
    positions: pl.DataFrame
    stop_events: pl.DataFrame
    payload_bytes: float


@dataclass(frozen=True)
class Simulated:
    """A simulated hour, as frames of reports."""

    positions: pl.DataFrame
    events: pl.DataFrame
    payload_bytes: float


def main() -> int:
    """Read, simulate, write."""
    given = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HEADRACE_SHARED") or ROOT.parent / "shared"
    data = Path(given) / "data" / "hsl"
    if not data.is_dir():
        sys.stderr.write(f"no recordings in {data}; give the folder that holds data/hsl\n")
        return 2
    mpl.rcParams.update(
        {"svg.fonttype": "none", "svg.hashsalt": "headrace", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3}
    )
    recordings = [read(path) for path in sorted(data.glob("*/*.dump"))]
    main_recording = next(found for found in recordings if "derived_replay" in found.name)
    lags = read_lags(data / "reference" / "ingestion_lag.csv.gz")
    simulated = simulate()
    blocks = {
        "sources": sources(recordings),
        "lateness": lateness(lags, main_recording),
        "bursts": bursts(data / "reference" / "ingestion_lag.csv.gz"),
        "types": event_types(recordings, simulated),
        "driving": driving(main_recording, simulated),
        "stops": at_stops(main_recording, simulated),
        "delays": delays(recordings, simulated),
        "repeats": repeats(recordings),
        "volume": volume(data / "reference" / "daily_event_volume.csv"),
        "sizes": sizes(recordings, simulated),
    }
    text = PAGE.read_text()
    for name, block in blocks.items():
        marks = re.compile(rf"<!-- {name} -->.*?<!-- /{name} -->", re.DOTALL)
        if not marks.search(text):
            sys.stderr.write(f"{PAGE} has no block {name}\n")
            return 1
        text = marks.sub(lambda _, name=name, block=block: f"<!-- {name} -->\n{block}\n<!-- /{name} -->", text)
    PAGE.write_text(text)
    count = len(list(IMAGES.glob("calibration-*.svg")))
    sys.stdout.write(f"wrote {PAGE.relative_to(ROOT)} and {count} pictures\n")
    return 0


def read(path: Path) -> Recorded:
    """Read a recording, its exact repeats left out."""
    messages = list(Recording(path))
    distinct = list({(m.topic, m.payload): m for m in reversed(messages)}.values())[::-1]
    result = HfpProcessor(HfpSettings(max_behind=None, bad_fields="clear")).process(distinct)
    frames = {event.topic: event.frame for event in result.events}
    kinds = [parse_topic(message.topic) for message in distinct]
    types = pl.DataFrame({"mode": [kind.mode for kind in kinds], "event": [kind.event for kind in kinds]})
    return Recorded(
        name=f"{path.parent.name}/{path.name}",
        messages=len(messages),
        repeats=len(messages) - len(distinct),
        seconds=(messages[-1].arrival - messages[0].arrival) / 1e6,
        types=types,
        positions=frames[VEHICLE_POSITIONS],
        stop_events=frames[STOP_EVENTS],
        payload_bytes=float(np.mean([len(message.payload) for message in distinct])),
    )


def simulate() -> Simulated:
    """An hour of 400 vehicles, all that happens; positions of every fourth second."""
    fleet = Fleet(vehicles=400, seed=1, start=START)
    positions = pl.concat([fleet.positions(second) for second in range(0, 3600, 4)])
    events = pl.concat([fleet.happenings(second, seconds=300)[0] for second in range(0, 3600, 300)])
    sent = Arrivals(fleet, Disorder.none(), elsewhere=True).take(60)
    sizes = pl.concat([written(frame) for frame in sent.frames])["payload"].bin.size()
    return Simulated(positions, events, float(sizes.mean() or 0))


# ---------------------------------------------------------------- what there is


def sources(recordings: list[Recorded]) -> str:
    """List the recordings."""
    rows = [
        [
            f"`{found.name}`",
            f"{found.messages:,}",
            str(found.positions["vehicle_id"].n_unique()),
            f"{found.seconds / 60:.0f} min",
        ]
        for found in recordings
    ]
    return table(["recording", "messages", "vehicles", "time"], rows)


# ---------------------------------------------------------------- lateness


def lateness(lags: np.ndarray, recording: Recorded) -> str:
    """Seconds on the way: the curve, and the figures that count."""
    own = lag_of(pl.concat([recording.positions, recording.stop_events.select(recording.positions.columns)]))
    seeds = [simulated_lags(Disorder.hsl(), every=20, seed=seed) for seed in range(1, 6)]
    figures = [Lateness.of(sample) for sample in seeds]
    rows = []
    names = ("later than 1 s", "median", "p99", "p99.9")
    for index, name in enumerate(names):
        values = [figure[index] for figure in figures]
        real = REFERENCE[index]
        rows.append(
            [
                name,
                show_figure(real, share=index == 0),
                show_figure(float(np.mean(values)), share=index == 0),
                f"{np.mean(values) / real:.2f}",
                f"{min(values) / real:.2f} - {max(values) / real:.2f}",
                show_figure(Lateness.of(own)[index], share=index == 0),
            ]
        )
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6))
    for axes, samples, colour, label in (
        (left, lags, REAL, f"measured, {len(lags):,} reports"),
        (left, own, OTHER, f"recording of 2020, {len(own):,}"),
        (left, seeds[0], SIMULATED, "simulated"),
    ):
        ordered = np.sort(samples)
        rest = 1 - np.arange(len(ordered)) / len(ordered)
        keep = np.unique(np.geomspace(1, len(ordered), 400).astype(int) - 1)
        keep = np.unique(np.concatenate([keep, len(ordered) - 1 - keep]))
        axes.loglog(ordered[keep], rest[keep], color=colour, label=label, linewidth=3.5 if colour == REAL else 1.3)
    left.set(xlabel="seconds on the way", ylabel="share of the reports that take longer", ylim=(2e-5, 1.2))
    left.legend(loc="lower left", fontsize=8)
    shares = np.array([0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9995])
    ratio = np.array([np.quantile(sample, shares) for sample in seeds]) / np.quantile(lags, shares)
    place = np.arange(len(shares))
    right.axhspan(0.8, 1.2, color="#cccccc", alpha=0.5, label="within 20 %")
    right.plot(place, ratio.T, ".", color=SIMULATED)
    right.set(xticks=place, ylim=(0.6, 1.4), ylabel="simulated / measured, five seeds", xlabel="quantile")
    right.set_xticklabels([f"{100 * share:g}" for share in shares], fontsize=7)
    right.legend(fontsize=8)
    save(figure, "lateness")
    heads = ["", "measured", "simulated", "ratio", "ratio, five seeds", "recording of 2020"]
    return table(heads, rows)


def bursts(path: Path) -> str:
    """Late reports of single vehicles; the measurement knows these by the millisecond of their reports only."""
    measured = pl.read_csv(path, schema_overrides={"ingestion_timestamp": pl.Float64, "event_timestamp": pl.Float64})
    measured = measured.filter(pl.col("event_type") == "vp").select(
        vehicle=pl.col("event_timestamp") % 1000,
        second=pl.col("event_timestamp") / 1000 - 1598132200,
        lag=(pl.col("ingestion_timestamp") - pl.col("event_timestamp")) / 1000 + 0.562,
    )
    whole = measured.group_by("vehicle").agg(pl.len(), (pl.col("lag") > 1).mean().alias("late"))
    whole = whole.filter(pl.col("len").is_between(280, 320) & (pl.col("vehicle") > 0)).sort("late", descending=True)
    arrivals = Arrivals(Fleet(vehicles=len(whole), seed=1, start=START), Disorder.hsl(), stop_events=False)
    simulated = arrivals.sent(300).positions.select(
        vehicle="vehicle_id",
        second=(pl.col("event_time") - START).dt.total_milliseconds() / 1000,
        lag=(pl.col("arrival_time") - pl.col("event_time")).dt.total_milliseconds() / 1000,
    )
    ours = simulated.group_by("vehicle").agg((pl.col("lag") > 1).mean().alias("late")).sort("late", descending=True)
    figure, axes = plt.subplots(2, 2, figsize=(9.5, 4.2), sharex=True, sharey=True)
    for row, (frame, order, colour, name) in enumerate(
        ((measured, whole, REAL, "measured"), (simulated, ours, SIMULATED, "simulated"))
    ):
        for column, rank in enumerate((0, 4)):
            one = frame.filter(pl.col("vehicle") == order["vehicle"][rank]).sort("second")
            axes[row, column].plot(one["second"], one["lag"], ".", markersize=3, color=colour)
            axes[row, column].set_title(
                f"{name}: a vehicle with {100 * order['late'][rank]:.0f} % late reports", fontsize=8
            )
    for column in (0, 1):
        axes[1, column].set_xlabel("second of the event")
    for row in (0, 1):
        axes[row, 0].set_ylabel("seconds on the way")
    save(figure, "bursts")
    shares = {"measured": whole["late"].to_numpy(), "simulated": ours["late"].to_numpy()}
    rows = [
        [
            name,
            str(len(share)),
            f"{(share > 0.4).mean():.1%}",
            f"{(share > 0.1).mean():.1%}",
            f"{(share == 0).mean():.0%}",
        ]
        for name, share in shares.items()
    ]
    heads = ["in 300 s", "vehicles", "more than 40 % of their reports late", "more than 10 %", "none"]
    return table(heads, rows)


# ---------------------------------------------------------------- what is reported


def event_types(recordings: list[Recorded], simulated: Simulated) -> str:
    """Events per hundred positions, by mode."""
    real: dict[str, dict[str, float]] = {}
    for mode in MODES:
        types = pl.concat([found.types for found in recordings]).filter(pl.col("mode") == mode)["event"]
        counts = dict(types.value_counts().iter_rows())
        real[mode] = {event: 100 * count / counts["VP"] for event, count in counts.items() if event != "VP"}
        real[mode]["positions"] = counts["VP"]
    ours: dict[str, dict[str, float]] = {}
    for mode in MODES:
        positions = 4 * simulated.positions.filter(pl.col("mode") == mode).height
        counts = dict(simulated.events.filter(pl.col("mode") == mode)["event_type"].value_counts().iter_rows())
        ours[mode] = {event: 100 * count / positions for event, count in counts.items()}
    events = [*AT_STOPS, "TLR", "TLA", "VJA", "VJOUT", "DA", "BA", "DOUT", "BOUT"]
    rows = [
        [event, *(f"{source[mode].get(event, 0):.2f}" for mode in MODES for source in (real, ours))] for event in events
    ]
    figure, panels = plt.subplots(1, 2, figsize=(9.5, 3.2), sharey=True)
    place = np.arange(len(events))
    for axes, mode in zip(panels, MODES, strict=True):
        axes.bar(place - 0.2, [real[mode].get(event, 0) for event in events], 0.4, color=REAL, label="recorded")
        axes.bar(place + 0.2, [ours[mode].get(event, 0) for event in events], 0.4, color=SIMULATED, label="simulated")
        axes.set_title(f"{mode} ({real[mode]['positions']:,.0f} positions recorded)", fontsize=9)
        axes.set_xticks(place, events, rotation=90, fontsize=7)
    panels[0].set_ylabel("events per 100 positions")
    panels[0].legend(fontsize=8)
    save(figure, "types")
    heads = ["per 100 positions", *(f"{mode} {what}" for mode in MODES for what in ("recorded", "simulated"))]
    return table(heads, rows)


def driving(recording: Recorded, simulated: Simulated) -> str:
    """Speed and acceleration of one tram and one bus, beside those of the fleet."""
    rows: list[list[str]] = []
    figure, panels = plt.subplots(1, 4, figsize=(11, 3.0))
    for number, mode in enumerate(MODES):
        pair = [
            frame.filter((pl.col("mode") == mode) & pl.col("speed").is_not_null())
            for frame in (recording.positions, simulated.positions)
        ]
        for column, name, unit in (
            ("speed", "speed when moving", "m/s"),
            ("acceleration", "acceleration when moving", "m/s²"),
        ):
            axes = panels[2 * number + (column == "acceleration")]
            for frame, colour, label in zip(pair, (REAL, SIMULATED), ("recorded", "simulated"), strict=True):
                values = np.sort(frame.filter(pl.col("speed") >= 0.5)[column].drop_nulls().to_numpy())
                keep = np.linspace(0, len(values) - 1, 300).astype(int)
                axes.plot(values[keep], keep / (len(values) - 1), color=colour, label=label)
            axes.set_title(f"{mode}: {name}", fontsize=8)
            axes.set_xlabel(unit)
            if column == "acceleration":
                axes.set_xlim(-2, 2)
        rows.append(
            [f"{mode}: share standing (below 0.5 m/s)", *(f"{(frame['speed'] < 0.5).mean():.1%}" for frame in pair)]
        )
        rows.append([f"{mode}: mean speed, m/s", *(f"{frame['speed'].mean():.2f}" for frame in pair)])
        for share in (0.1, 0.5, 0.9, 0.99):
            values = [frame.filter(pl.col("speed") >= 0.5)["speed"].quantile(share) for frame in pair]
            rows.append([f"{mode}: speed when moving, p{100 * share:g}", *(f"{value:.1f}" for value in values)])
        for share in (0.01, 0.1, 0.9, 0.99):
            values = [frame.filter(pl.col("speed") >= 0.5)["acceleration"].quantile(share) for frame in pair]
            rows.append([f"{mode}: acceleration when moving, p{100 * share:g}", *(f"{value:.2f}" for value in values)])
        rows.append([f"{mode}: spread of acceleration", *(f"{frame['acceleration'].std():.2f}" for frame in pair)])
        rows.append([f"{mode}: doors open", *(f"{frame['doors_open'].mean():.1%}" for frame in pair)])
    panels[0].set_ylabel("share below")
    panels[0].legend(fontsize=8)
    save(figure, "driving")
    return table(["", "recorded", "simulated"], rows)


def at_stops(recording: Recorded, simulated: Simulated) -> str:
    """Seconds from one event at a stop to another of the same visit."""
    rows = []
    for mode in MODES:
        for first, then in (
            ("DUE", "ARR"),
            ("ARR", "ARS"),
            ("ARS", "DOO"),
            ("DOO", "DOC"),
            ("PDE", "DEP"),
            ("ARR", "PAS"),
        ):
            cells = []
            for frame in (recording.stop_events, simulated.events):
                gaps = between(frame.filter(pl.col("mode") == mode), first, then)
                cells.append(
                    f"{gaps.quantile(0.25):.1f} / {gaps.median():.1f} / {gaps.quantile(0.75):.1f}" if len(gaps) else "-"
                )
                cells.append(str(len(gaps)))
            rows.append([f"{mode}: {first} to {then}", cells[0], cells[1], cells[2]])
    return table(["seconds, p25 / median / p75", "recorded", "of", "simulated"], rows)


def between(frame: pl.DataFrame, first: str, then: str) -> pl.Series:
    """Seconds between two events of the same visit of a stop."""
    trip = ["vehicle_id", "operating_day", "trip_start", "direction", "stop"]
    pairs = frame.filter(pl.col("event_type") == first).join(
        frame.filter(pl.col("event_type") == then), on=trip, suffix="_then"
    )
    gaps = (pairs["event_time_then"] - pairs["event_time"]).dt.total_milliseconds() / 1000
    # A layover at the first stop is no visit like the others.
    return gaps.filter((gaps >= 0) & (gaps < 60))


def delays(recordings: list[Recorded], simulated: Simulated) -> str:
    """Seconds behind the timetable."""
    pairs = [
        (f"{mode} recorded", pl.concat([found.positions for found in recordings]).filter(pl.col("mode") == mode))
        for mode in MODES
    ]
    pairs += [(f"{mode} simulated", simulated.positions.filter(pl.col("mode") == mode)) for mode in MODES]
    rows = []
    figure, axes = plt.subplots(figsize=(5.5, 3.0))
    for (name, frame), colour, style in zip(
        pairs, (REAL, REAL, SIMULATED, SIMULATED), ("-", "--", "-", "--"), strict=True
    ):
        values = np.sort(frame["delay"].drop_nulls().to_numpy())
        keep = np.linspace(0, len(values) - 1, 300).astype(int)
        axes.plot(values[keep], keep / (len(values) - 1), style, color=colour, label=name)
        rows.append(
            [
                name,
                f"{len(values):,}",
                *(f"{np.quantile(values, share):.0f}" for share in (0.05, 0.25, 0.5, 0.75, 0.95)),
            ]
        )
    axes.set(xlabel="seconds behind the timetable", ylabel="share below", xlim=(-600, 600))
    axes.legend(fontsize=8)
    save(figure, "delays")
    return table(["delay in positions, s", "positions", "p5", "p25", "median", "p75", "p95"], rows)


def repeats(recordings: list[Recorded]) -> str:
    """Messages that arrived more than once."""
    rows = [
        [f"`{found.name}`", f"{found.messages:,}", str(found.repeats), f"{found.repeats / found.messages:.2%}"]
        for found in recordings
    ]
    for name in ("hsl", "hsl-archive", "calm"):
        arrivals = Arrivals(Fleet(vehicles=300, seed=1, start=START), Disorder.named(name), stop_events=False)
        frame = pl.concat([arrivals.sent(300).positions for _ in range(8)])
        twice = frame.height - frame.unique(["vehicle_id", "event_time"]).height
        rows.append(
            [f"simulated, `--lateness {name}`", f"{frame.height:,}", f"{twice:,}", f"{twice / frame.height:.2%}"]
        )
    return table(["", "messages", "repeats", "share"], rows)


def volume(path: Path) -> str:
    """Events per second over a day."""
    real = (
        pl.read_csv(path)
        .with_columns(hour=(pl.col("minute_start") / 3600 + 3) % 24, rate=pl.col("count") / 60)
        .sort("hour")
    )
    fleet = Fleet(vehicles=1000, seed=1, start=datetime(2025, 8, 31, 21, tzinfo=UTC), service="weekday")
    seconds = np.arange(0, 86400, 300)
    out = np.array([fleet.positions(int(second)).height for second in seconds])
    # To the size of the real fleet.
    scale = real["rate"].max() / needed(np.arange(1440.0)).max() / 1000
    figure, axes = plt.subplots(figsize=(6.5, 3.0))
    axes.plot(real["hour"], real["rate"], color=REAL, linewidth=1, label="measured, 2 and 3 June 2020")
    axes.plot(seconds / 3600, out * scale, color=SIMULATED, label="simulated, --service weekday (scaled)")
    axes.set(xlabel="hour of the day, local time", ylabel="events per second", xticks=range(0, 25, 3), xlim=(0, 24))
    axes.legend(fontsize=8)
    save(figure, "volume")
    rows = []
    for hour in (3, 5, 8, 12, 16, 20, 23):
        measured = real.filter(pl.col("hour").is_between(hour, hour + 1, closed="left"))["rate"].mean()
        ours = float((out[(seconds >= 3600 * hour) & (seconds < 3600 * (hour + 1))] * scale).mean())
        rows.append([f"{hour}:00 to {hour + 1}:00", f"{measured:,.0f}", f"{ours:,.0f}"])
    return table(["events per second", "measured", "simulated, scaled"], rows)


def sizes(recordings: list[Recorded], simulated: Simulated) -> str:
    """Bytes of a message."""
    rows = [[f"`{found.name}`", f"{found.payload_bytes:.0f}"] for found in recordings]
    rows.append(["simulated", f"{simulated.payload_bytes:.0f}"])
    return table(["payload", "bytes on average"], rows)


# ---------------------------------------------------------------- form


def lag_of(frame: pl.DataFrame) -> np.ndarray:
    """Seconds on the way of events."""
    return ((frame["ingestion_time"] - frame["event_time"]).dt.total_microseconds() / 1e6).to_numpy()


def show_figure(value: float, *, share: bool) -> str:
    """A figure as the tables show it."""
    if share:
        return f"{value:.2%}"
    return f"{1000 * value:.0f} ms" if value < 1 else f"{value:.1f} s"


def table(heads: list[str], rows: list[list[str]]) -> str:
    """A table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def save(figure: Any, name: str) -> None:
    """Write a picture."""
    figure.tight_layout()
    figure.savefig(IMAGES / f"calibration-{name}.svg", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
