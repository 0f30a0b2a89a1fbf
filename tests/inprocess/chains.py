"""Chains of windows like those of the application, and the same by plain computation."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import polars as pl

from headrace.stream import Stream
from headrace.windows import count, latest, sliding

if TYPE_CHECKING:
    from headrace.time.watermarks import WatermarkStrategy

INSTANT = pl.Datetime("us", "UTC")
COLUMNS = {"vehicle": pl.String, "cell": pl.String, "number": pl.Int64}

#: vehicle, cell, time; whole seconds stand for whole slices, so one is a microsecond here.
Event = tuple[str, str | None, int]
#: Window start -> cell -> vehicles.
Answer = dict[int, dict[str, int]]

SIZE, EVERY = 6, 2


def distribution(
    strategy: WatermarkStrategy, *, lateness: int = 0, idle_after: str | None = None, source: str = "positions"
) -> Stream:
    """Count the vehicles per cell, each where it was last in a sliding window."""
    return (
        Stream.rows(source, COLUMNS)
        .watermark(strategy, idle_after=idle_after)
        .key_by("vehicle")
        .window(sliding(SIZE, every=EVERY), allowed_lateness=lateness)
        .aggregate(cell=latest("cell"))
        .key_by("cell")
        .same_window()
        .aggregate(vehicles=count())
    )


def frame(events: list[Event], first_number: int = 0) -> pl.DataFrame:
    """Make rows of events, numbered."""
    numbered = [(*event[:2], number, event[2]) for number, event in enumerate(events, start=first_number)]
    columns = {**COLUMNS, "event_time": pl.Int64}
    return pl.DataFrame(numbered, schema=columns, orient="row").cast({"event_time": INSTANT})


def starts(time: int) -> list[int]:
    """Name the windows that hold a time."""
    start = time // EVERY * EVERY
    return [each for each in range(start, start - SIZE, -EVERY) if each + SIZE > time]


def by_hand(placed: list[tuple[Event, list[int]]]) -> Answer:
    """Count the vehicles per cell and window, given the windows in which each event counts."""
    newest: dict[tuple[int, str], tuple[int, str]] = {}
    for (vehicle, cell, time), windows in placed:
        for window in windows:
            if cell is not None:
                newest[window, vehicle] = max(newest.get((window, vehicle), (time, cell)), (time, cell))
    answer: Answer = defaultdict(lambda: defaultdict(int))
    for (window, _), (_, cell) in newest.items():
        answer[window][cell] += 1
    return {window: dict(cells) for window, cells in answer.items()}


def everywhere(events: list[Event]) -> list[tuple[Event, list[int]]]:
    """Let each event count in all of its windows."""
    return [(event, starts(event[2])) for event in events]


def answer_of(results: pl.DataFrame) -> Answer:
    """Read results; the last pane of a window and cell counts, and a cell without vehicles is none."""
    last: dict[tuple[int, str], int] = {}
    for window, cell, vehicles in results.select(pl.col("window_start").cast(pl.Int64), "cell", "vehicles").rows():
        last[window, cell] = vehicles
    answer: Answer = defaultdict(dict)
    for (window, cell), vehicles in last.items():
        if vehicles:
            answer[window][cell] = vehicles
    return dict(answer)


def ordered(results: pl.DataFrame) -> pl.DataFrame:
    """Bring results into one order."""
    return results.sort(pl.all())
