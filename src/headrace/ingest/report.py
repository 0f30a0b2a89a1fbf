"""How an ingestion is doing: counts by cause, rates, and how old events are when they come in."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import datasketches
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

#: Upper limits of the histogram of lag, in seconds.
LAG_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
#: Recent lag is that of the last one to two of these, in seconds.
_RECENT = 60.0


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What happened since the beginning.

    Args:
        feed: Which ingestion.
        messages: Raw messages taken from the connector.
        message_bytes: Size of their payloads together.
        events: Events handed to Kafka.
        events_by_topic: Of them, by input topic.
        dismissed: Messages that became no event, by cause.
        dead_letters: Dismissed messages written to the dead-letter topic.
        cleared: Values that were left out, by field.
        waiting: Records handed over and not yet acknowledged by Kafka.
        reconnects: How often the connector had to connect again.
        gaps: How often the source had not kept what came while we were away: messages may be lost.
        connected: Whether it is connected now.
        behind: Seconds by which a replay or simulation is behind its schedule.
        elapsed: Wall seconds.
        rate: Messages per second since the report before; of the whole run in the last one.
        lag_p50: Seconds from event to arrival that half of the events did not exceed; None without events.
        lag_p99: The same for 99 of 100.
        lag_max: The longest.
        recent_lag_p50: As `lag_p50`, of the last minute or two.
        recent_lag_p99: Likewise.
        lag_counts: Events by lag, one count for each of `LAG_BUCKETS` and one for what is beyond.
        lag_sum: All lags together.
    """

    feed: str
    messages: int
    message_bytes: int
    events: int
    events_by_topic: Mapping[str, int]
    dismissed: Mapping[str, int]
    dead_letters: int
    cleared: Mapping[str, int]
    waiting: int
    reconnects: int
    gaps: int
    connected: bool
    behind: float
    elapsed: float
    rate: float
    lag_p50: float | None
    lag_p99: float | None
    lag_max: float | None
    recent_lag_p50: float | None
    recent_lag_p99: float | None
    lag_counts: tuple[int, ...]
    lag_sum: float

    def to_dict(self) -> dict[str, Any]:
        """Give the report as JSON can hold it."""
        return {"event": "ingest", **asdict(self)}


def _sketch() -> Any:
    return datasketches.kll_floats_sketch(200)


@dataclass(slots=True)
class Tally:
    """Counts while an ingestion runs; it may outlive a run that failed.

    Args:
        clock: Seconds that never go back.
    """

    clock: Callable[[], float] = time.monotonic
    messages: int = 0
    message_bytes: int = 0
    dead_letters: int = 0
    reconnects: int = 0
    gaps: int = 0
    events: Counter[str] = field(default_factory=Counter)
    dismissed: Counter[str] = field(default_factory=Counter)
    cleared: Counter[str] = field(default_factory=Counter)
    lag: Any = field(default_factory=_sketch)
    lag_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(LAG_BUCKETS) + 1, np.int64))
    lag_sum: float = 0.0
    _recent: list[Any] = field(default_factory=lambda: [_sketch(), _sketch()])
    _since: float | None = None

    def add_lags(self, seconds: NDArray[np.float64]) -> None:
        """Note how old events were when they came in."""
        now = self.clock()
        if self._since is None or now - self._since >= _RECENT:
            gone = self._since is not None and now - self._since >= 2 * _RECENT
            self._recent = [_sketch() if gone else self._recent[1], _sketch()]
            self._since = now
        small = seconds.astype(np.float32)
        self.lag.update(small)
        self._recent[1].update(small)
        self.lag_counts += np.bincount(
            np.searchsorted(LAG_BUCKETS, seconds, side="left"), minlength=len(LAG_BUCKETS) + 1
        )
        self.lag_sum += float(seconds.sum())

    def report(
        self,
        feed: str,
        *,
        waiting: int,
        elapsed: float,
        rate: float,
        connected: bool = True,
        behind: float = 0.0,
    ) -> IngestReport:
        """The counts so far."""
        recent = _sketch()
        for part in self._recent:
            recent.merge(part)
        p50, p99 = _quantiles(self.lag)
        recent_p50, recent_p99 = _quantiles(recent)
        return IngestReport(
            feed=feed,
            messages=self.messages,
            message_bytes=self.message_bytes,
            events=self.events.total(),
            events_by_topic=dict(self.events),
            dismissed=dict(self.dismissed),
            dead_letters=self.dead_letters,
            cleared=dict(self.cleared),
            waiting=waiting,
            reconnects=self.reconnects,
            gaps=self.gaps,
            connected=connected,
            behind=behind,
            elapsed=elapsed,
            rate=rate,
            lag_p50=p50,
            lag_p99=p99,
            lag_max=None if self.lag.is_empty() else self.lag.get_max_value(),
            recent_lag_p50=recent_p50,
            recent_lag_p99=recent_p99,
            lag_counts=tuple(self.lag_counts.tolist()),
            lag_sum=self.lag_sum,
        )


def _quantiles(sketch: Any) -> tuple[float | None, float | None]:
    if sketch.is_empty():
        return None, None
    p50, p99 = sketch.get_quantiles([0.5, 0.99])
    return p50, p99
