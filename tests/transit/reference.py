"""vehicle-distribution computed by hand: dictionaries and loops, window by window, sharing no code with Headrace.

It uses neither Polars windows nor Headrace's H3 expressions (but the `h3` package), so that an error in either is seen.
Run over plain tuples `(vehicle_id, event_time in microseconds, latitude, longitude)`, position None where it is lost.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h3
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Row = tuple[str, int, float | None, float | None]
#: (window start, window end) in microseconds -> cell -> vehicles
Answer = dict[tuple[int, int], dict[int, int]]

SIZE = 30_000_000
EVERY = 5_000_000
BOUND = 1_000_000
RESOLUTION = 9


def rows_of(frame: pl.DataFrame) -> list[Row]:
    """Turn a frame of positions into plain tuples."""
    return list(
        frame.select("vehicle_id", pl.col("event_time").dt.timestamp("us"), "latitude", "longitude").iter_rows()
    )


def windows_of(time: int, *, size: int = SIZE, every: int = EVERY) -> Iterator[tuple[int, int]]:
    """Give every window that holds a moment: those that begin at a multiple of `every` in (time - size, time]."""
    start = time - time % every
    while start > time - size:
        yield start, start + size
        start -= every


def distribution(rows: Iterable[Row]) -> Answer:
    """Count vehicles per cell and window over all rows, as if none was late."""
    newest: dict[tuple[int, int], dict[str, tuple[int, int]]] = defaultdict(dict)
    for vehicle, time, latitude, longitude in rows:
        if latitude is None or longitude is None:
            continue
        cell = h3.str_to_int(h3.latlng_to_cell(latitude, longitude, RESOLUTION))
        for window in windows_of(time):
            known = newest[window].get(vehicle)
            if known is None or known[0] <= time:
                newest[window][vehicle] = (time, cell)
    return {window: dict(Counter(cell for _, cell in latest.values())) for window, latest in newest.items()}


@dataclass
class Watched:
    """The same with a watermark: rows come in batches, and a window takes no rows any more once it is over.

    One source partition, `bounded("1s")`: after a batch the watermark is the newest event time seen, less a second
    (rows without a position count, too: the watermark comes before the filter). A window is over when the watermark
    has reached its end; a row for a window that was over before its batch is not counted there, and it is late if all
    its windows were.
    """

    watermark: int | None = None
    kept: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    fired: Answer = field(default_factory=dict)
    open: dict[tuple[int, int], list[Row]] = field(default_factory=lambda: defaultdict(list))

    def batch(self, rows: Iterable[Row]) -> Answer:
        """Take a batch, and give the windows that it completes."""
        newest = self.watermark
        for row in rows:
            _, time, latitude, longitude = row
            newest = time - BOUND if newest is None else max(newest, time - BOUND)
            if latitude is None or longitude is None:
                continue
            alive = [w for w in windows_of(time) if self.watermark is None or w[1] > self.watermark]
            for window in alive:
                self.open[window].append(row)
            (self.kept if alive else self.late).append(row)
        self.watermark = newest
        return self._fire([window for window in self.open if newest is not None and window[1] <= newest])

    def finish(self) -> Answer:
        """Say that no more rows will come; gives the windows that were still open."""
        return self._fire(list(self.open))

    def _fire(self, windows: list[tuple[int, int]]) -> Answer:
        answer: Answer = {window: distribution(self.open.pop(window))[window] for window in sorted(windows)}
        self.fired |= answer
        return answer


def answer_of(results: pl.DataFrame) -> Answer:
    """Turn result rows of the job (`window_start`, `window_end`, `cell`, `vehicles`) into the same shape."""
    answer: Answer = defaultdict(dict)
    columns = results.select(
        pl.col("window_start").dt.timestamp("us"), pl.col("window_end").dt.timestamp("us"), "cell", "vehicles"
    )
    for start, end, cell, vehicles in columns.iter_rows():
        if cell in answer[start, end]:
            raise AssertionError(f"cell {cell} has two results for the window {start}..{end}")
        answer[start, end][cell] = vehicles
    return dict(answer)
