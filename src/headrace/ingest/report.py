"""How an ingestion is doing: counts by cause, rates, and how old events are when they come in."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import datasketches
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


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
        elapsed: Wall seconds.
        rate: Messages per second since the report before.
        lag_p50: Seconds from event to arrival that half of the events did not exceed; None without events.
        lag_p99: The same for 99 of 100.
        lag_max: The longest.
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
    elapsed: float
    rate: float
    lag_p50: float | None
    lag_p99: float | None
    lag_max: float | None

    def to_dict(self) -> dict[str, Any]:
        """Give the report as JSON can hold it."""
        return {"event": "ingest", **asdict(self)}


@dataclass(slots=True)
class Tally:
    """Counts while an ingestion runs."""

    messages: int = 0
    message_bytes: int = 0
    dead_letters: int = 0
    events: Counter[str] = field(default_factory=Counter)
    dismissed: Counter[str] = field(default_factory=Counter)
    cleared: Counter[str] = field(default_factory=Counter)
    lag: Any = field(default_factory=lambda: datasketches.kll_floats_sketch(200))

    def add_lags(self, seconds: NDArray[np.float64]) -> None:
        """Note how old events were when they came in."""
        self.lag.update(seconds.astype(np.float32))

    def report(self, feed: str, *, waiting: int, elapsed: float, rate: float) -> IngestReport:
        """The counts so far."""
        known = not self.lag.is_empty()
        p50, p99 = self.lag.get_quantiles([0.5, 0.99]) if known else (None, None)
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
            elapsed=elapsed,
            rate=rate,
            lag_p50=p50,
            lag_p99=p99,
            lag_max=self.lag.get_max_value() if known else None,
        )
