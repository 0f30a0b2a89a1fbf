"""How event time advances for the jobs of the application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.time import bounded
from headrace_transit.settings import TransitSettings

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.time import WatermarkStrategy

#: Reports overtake each other by less than this, but for few.
_DELAY = "1s"
_MILLISECOND = 1_000


def reported_time(settings: Settings) -> WatermarkStrategy:
    """Choose the watermark of vehicles' reports.

    In every fleet some clocks are seconds ahead. What such a vehicle says about the time counts up to the arrival of
    its report plus `transit.clock_tolerance_ms`, so it does not make the reports of all others late.

    >>> from headrace.config import Settings
    >>> reported_time(Settings()).describe()
    'bounded(1s), clock tolerance 0s'
    """
    return bounded(_DELAY, clock_tolerance=settings.section(TransitSettings).clock_tolerance_ms * _MILLISECOND)
