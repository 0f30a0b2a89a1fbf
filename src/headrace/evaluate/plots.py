"""The plots of a report, as SVG text that a page holds inside.

Colours stand for volumes, the same in every plot. Text stays text, so that a page can be searched and read aloud.
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.evaluate import measures
from headrace.evaluate.figures import pooled, product_cores
from headrace.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = ("#0b6e99", "#d9730d", "#448361", "#9065b0", "#c14c8a", "#64473a", "#787774")
_PROLOGUE = re.compile(r"^.*?(?=<svg)", re.DOTALL)


def _figure(rows: int, columns: int, *, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    require("report", by="a plot")
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure as Canvas

    mpl.rcParams.update(
        {
            "svg.fonttype": "none",
            "svg.hashsalt": "headrace",
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "legend.frameon": False,
        }
    )
    figure = Canvas(figsize=(5.2 * columns, height * rows), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, list(axes.ravel())


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return _PROLOGUE.sub("", text.getvalue())


def colour(volumes: Sequence[float]) -> dict[float, str]:
    """Give each volume its colour."""
    return {volume: _COLOURS[number % len(_COLOURS)] for number, volume in enumerate(sorted(volumes))}


def _per_job(jobs: Sequence[str], draw: Callable[[Axes, str], None]) -> str:
    columns = 2 if len(jobs) > 1 else 1
    figure, axes = _figure(-(-len(jobs) // columns), columns)
    for axis, job in zip(axes, jobs, strict=False):
        axis.set_title(job, loc="left", fontweight="bold")
        draw(axis, job)
    for axis in axes[len(jobs) :]:
        axis.set_visible(False)
    axes[0].legend()
    return _svg(figure)


def distributions(directory: Path, records: Sequence[dict[str, Any]], jobs: Sequence[str]) -> str:
    """Latency distribution per job and volume: which share of the results was visible how soon after it was due."""
    volumes = sorted({record["volume"] for record in records})
    colours = colour(volumes)

    def draw(axis: Axes, job: str) -> None:
        windowed = any(job in record.get("windowed", ()) for record in records)
        for volume in volumes:
            chosen = [record for record in records if record["volume"] == volume]
            for kind, style in (("committed", "-"), ("uncommitted", ":")):
                values, _ = pooled(directory, chosen, job, kind, windowed=windowed)
                if len(values) == 0:
                    continue
                ordered = np.sort(values)
                shares = np.arange(1, len(ordered) + 1) / len(ordered)
                # A thousand points draw the same curve as a million.
                pick = np.unique(np.linspace(0, len(ordered) - 1, 1000).astype(int))
                label = f"{volume:g} x" if kind == "committed" else None
                axis.plot(ordered[pick], shares[pick], style, color=colours[volume], label=label)
        axis.set_xlim(left=0)
        axis.set_xlabel("seconds after the result was due")
        axis.set_ylabel("share of results")

    return _per_job(jobs, draw)


def over_time(directory: Path, records: Sequence[dict[str, Any]], jobs: Sequence[str]) -> str:
    """Latency over the time of each trial: a point per window, or per single result."""
    colours = colour([record["volume"] for record in records])

    def draw(axis: Axes, job: str) -> None:
        labelled = set()
        for record in records:
            path = directory / "trials" / record["name"] / "results-committed.parquet"
            seconds, due = measures.latencies(pl.read_parquet(path), job, begin=record["begin"], end=record["end"])
            points = pl.DataFrame({"due": due, "seconds": seconds}).group_by("due").agg(pl.col("seconds").median())
            label = None if record["volume"] in labelled else f"{record['volume']:g} x"
            labelled.add(record["volume"])
            at = (points["due"].to_numpy() - record["begin"]) / 1e6
            axis.plot(at, points["seconds"], ".", color=colours[record["volume"]], label=label, markersize=4, alpha=0.7)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("seconds since measuring began")
        axis.set_ylabel("seconds after it was due")

    return _per_job(jobs, draw)


def backlogs(directory: Path, records: Sequence[dict[str, Any]]) -> str:
    """Backlog over the time of each trial, in seconds of events: so that volumes can be compared."""
    colours = colour([record["volume"] for record in records])
    figure, (axis,) = _figure(1, 1, height=3.2)
    labelled = set()
    for record in records:
        samples = pl.read_parquet(directory / "trials" / record["name"] / "backlog.parquet")
        series = measures.backlog_series(samples, begin=record["begin"], end=record["end"])
        label = None if record["volume"] in labelled else f"{record['volume']:g} x"
        labelled.add(record["volume"])
        axis.plot(
            [at for at, _ in series],
            [events / record["rate"] for _, events in series],
            color=colours[record["volume"]],
            label=label,
            linewidth=1,
        )
    axis.set_ylim(bottom=0)
    axis.set_xlabel("seconds since measuring began")
    axis.set_ylabel("backlog, in seconds of events")
    axis.legend()
    return _svg(figure)


def throughput(records: Sequence[dict[str, Any]]) -> str:
    """Throughput against the cores that it took, a point per trial: the product's own, and with load and measuring."""
    colours = colour([record["volume"] for record in records])
    figure, (axis,) = _figure(1, 1, height=3.2)
    for record in records:
        own = product_cores(record["cores"])
        every = sum(cores for part, cores in record["cores"].items() if part != "others")
        tint = colours[record["volume"]]
        axis.plot(own, record["throughput"], "o", color=tint)
        axis.plot(every, record["throughput"], "o", color=tint, markerfacecolor="none")
        axis.annotate(f"{record['volume']:g} x", (own, record["throughput"]), xytext=(4, 4), textcoords="offset points")
    axis.set_xlim(left=0)
    axis.set_ylim(bottom=0)
    axis.set_xlabel("cores used (empty: with load and measuring)")
    axis.set_ylabel("events/s")
    return _svg(figure)
