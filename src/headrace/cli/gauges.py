"""What the live view shows, computed from two streams: the job's progress reports and the results themselves.

`Gauges` is fed by the reader of the job's standard output and by the consumer of its result topic, and asked by the
view. It knows no terminal and no clock: every call says what time it is, so that a test can play an hour in a
millisecond.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Seconds over which rates are averaged, and over which latencies are kept.
RATE_SECONDS = 10.0
LATENCY_SECONDS = 60.0
#: Latencies kept at most: a large fleet gives thousands of results a second, and a minute's sample of them is enough.
LATENCY_SAMPLES = 50_000


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One result, as far as the view needs it.

    Args:
        key: What it is about, such as a map cell.
        count: Its figure.
        window_end: End of its window, in microseconds since the epoch.
        published: Kafka's timestamp of the record, in microseconds since the epoch.
        on_time: Whether it is the first complete answer for its window, which latency is measured on.
    """

    key: str
    count: int
    window_end: int
    published: int
    on_time: bool = True


class Rate:
    """Events per second over the last few seconds.

    >>> rate = Rate(seconds=10)
    >>> for second in range(1, 6):
    ...     rate.add(100, now=float(second))
    >>> rate.per_second(now=5.0)
    100.0
    >>> rate.per_second(now=100.0)
    0.0
    """

    def __init__(self, seconds: float = RATE_SECONDS) -> None:
        self._seconds = seconds
        self._began: float | None = None
        self._last = 0.0
        self._entries: deque[tuple[float, int]] = deque()

    def add(self, count: int, *, now: float) -> None:
        """Count events that are reported now, for the time since the report before."""
        if self._began is None:
            # The first report speaks for a time that we do not know; it only starts the clock one second ago.
            self._began = now - 1.0
        self._entries.append((now, count))
        self._last = now

    def per_second(self, *, now: float) -> float:
        """The mean rate of the last seconds, up to the newest report."""
        while self._entries and self._entries[0][0] <= now - self._seconds:
            self._began = self._entries.popleft()[0]
        if not self._entries or self._began is None:
            return 0.0
        # Reports come once per micro-batch: counting the time since the last one would make the rate saw-toothed.
        span = self._last - self._began
        return sum(count for _, count in self._entries) / span if span > 0 else 0.0


def quantile(ordered: list[float], q: float) -> float | None:
    """The nearest-rank quantile of sorted values.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5), quantile([1.0, 2.0, 3.0, 4.0], 0.99), quantile([], 0.5)
    (2.0, 4.0, None)
    """
    if not ordered:
        return None
    return ordered[max(0, -(-int(q * 1000) * len(ordered) // 1000) - 1)]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at everything, ready to be drawn.

    Latencies and the watermark's lag are in seconds; None stands for "not known yet". `alarm` is empty, or says that
    most of the input becomes dead letters, with the first reason and a sample.
    """

    state: str = "starting"
    detail: str = ""
    events_per_second: float = 0.0
    results_per_second: float = 0.0
    events: int = 0
    results: int = 0
    late: int = 0
    dead_letters: int = 0
    backlog: int = 0
    batch: int | None = None
    batch_ms: int | None = None
    watermark: datetime | None = None
    watermark_lag: float | None = None
    latency_p50: float | None = None
    latency_p99: float | None = None
    window_end: datetime | None = None
    busiest: tuple[tuple[str, int], ...] = ()
    cells: int = 0
    total: int = 0
    alarm: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The figures for `--json`."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        for name in ("watermark", "window_end"):
            value = fields[name]
            fields[name] = None if value is None else value.isoformat()
        fields["busiest"] = [{"key": key, "count": count} for key, count in self.busiest]
        return fields


@dataclass
class Gauges:
    """Everything that was heard so far; safe to feed and to read from several threads.

    >>> gauges = Gauges()
    >>> gauges.progress({"event": "state", "state": "running", "detail": ""}, now=0.0)
    >>> gauges.results([ResultRow("8911", 4, window_end=5_000_000, published=5_700_000)], now=6.0)
    >>> shown = gauges.snapshot(now=6.0)
    >>> shown.state, shown.busiest, shown.latency_p50
    ('running', (('8911', 4),), 0.7)
    """

    #: How many keys the view shows.
    top: int = 10
    #: Windows that ended before this instant (microseconds) say nothing about latency: the job was not there yet.
    since: int = 0
    _state: str = "starting"
    _detail: str = ""
    _alarm: str = ""
    _events: Counter[str] = field(default_factory=Counter)
    _in: Rate = field(default_factory=Rate)
    _out: Rate = field(default_factory=Rate)
    _last: dict[str, Any] = field(default_factory=dict)
    _latencies: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=LATENCY_SAMPLES))
    _window_end: int = 0
    _cells: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def progress(self, report: Mapping[str, Any], *, now: float) -> None:
        """Take one of the job's reports; kinds that are not known are left alone."""
        with self._lock:
            if report.get("event") == "state":
                self._state, self._detail = str(report.get("state", "")), str(report.get("detail") or "")
            elif report.get("event") == "dead_letters":
                self._alarm = str(report.get("text") or "") if report.get("state") == "most" else ""
            elif report.get("event") == "progress":
                self._in.add(int(report.get("rows_in") or 0), now=now)
                self._out.add(int(report.get("results") or 0), now=now)
                for name in ("rows_in", "results", "late", "dead_letters"):
                    self._events[name] += int(report.get(name) or 0)
                self._last = dict(report)

    def results(self, rows: Iterable[ResultRow], *, now: float) -> None:
        """Take results as they come out of Kafka."""
        with self._lock:
            for row in rows:
                if row.on_time and row.window_end >= self.since:
                    self._latencies.append((now, (row.published - row.window_end) / 1e6))
                if row.window_end > self._window_end:
                    self._window_end, self._cells = row.window_end, {}
                if row.window_end == self._window_end:
                    self._cells[row.key] = row.count

    def snapshot(self, *, now: float) -> Snapshot:
        """Look at everything."""
        with self._lock:
            while self._latencies and self._latencies[0][0] <= now - LATENCY_SECONDS:
                self._latencies.popleft()
            ordered = sorted(latency for _, latency in self._latencies)
            busiest = sorted(self._cells.items(), key=lambda cell: (-cell[1], cell[0]))
            lag = self._last.get("watermark_lag_ms")
            return Snapshot(
                state=self._state,
                detail=self._detail,
                events_per_second=self._in.per_second(now=now),
                results_per_second=self._out.per_second(now=now),
                events=self._events["rows_in"],
                results=self._events["results"],
                late=self._events["late"],
                dead_letters=self._events["dead_letters"],
                backlog=int(self._last.get("backlog") or 0),
                batch=self._last.get("batch"),
                batch_ms=self._last.get("duration_ms"),
                watermark=_instant(self._last.get("watermark")),
                watermark_lag=None if lag is None else float(lag) / 1000,
                latency_p50=quantile(ordered, 0.5),
                latency_p99=quantile(ordered, 0.99),
                window_end=datetime.fromtimestamp(self._window_end / 1e6, UTC) if self._window_end else None,
                busiest=tuple(busiest[: self.top]),
                cells=len(self._cells),
                total=sum(self._cells.values()),
                alarm=self._alarm,
            )


def _instant(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
