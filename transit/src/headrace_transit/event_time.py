"""How event time advances for the jobs of the application, by what `[transit]` says."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from headrace.time import bounded
from headrace_transit.settings import TransitSettings

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.stream import Stream
    from headrace.time import WatermarkStrategy

_MILLISECOND = 1_000
_IDLE_AFTER = "30s"


def reported_time(settings: Settings) -> WatermarkStrategy:
    """Choose the watermark of vehicles' reports.

    In every fleet some clocks are seconds ahead. What such a vehicle says about the time counts up to the arrival of
    its report plus `transit.clock_tolerance_ms`, so it does not make the reports of all others late.

    >>> from headrace.config import Settings
    >>> reported_time(Settings()).describe()
    'bounded(1s), clock tolerance 0s'
    """
    given = settings.section(TransitSettings)
    return bounded(
        given.delay_ms * _MILLISECOND,
        max_ahead=given.max_ahead_ms * _MILLISECOND,
        clock_tolerance=given.clock_tolerance_ms * _MILLISECOND,
        ahead=given.clock_ahead,
        clock="vehicle_id",
    )


def timed(reports: Stream, settings: Settings, *, per: Literal["source", "key"] = "source") -> Stream:
    """Say how the time of a stream of reports advances.

    Args:
        reports: What vehicles report.
        settings: Those of the application.
        per: "key" for a job that looks at one vehicle at a time: a vehicle's own reports come in order, so it need not
            wait for the others.
    """
    given = settings.section(TransitSettings)
    strategy = reported_time(settings)
    if per == "source":
        return reports.watermark(strategy, idle_after=_IDLE_AFTER)
    return reports.watermark(
        strategy,
        idle_after=_IDLE_AFTER,
        per="key",
        tolerance=given.key_tolerance_ms * _MILLISECOND,
        patience=given.patience_ms * _MILLISECOND,
    )


def lateness(settings: Settings) -> timedelta:
    """How long after its end a window still takes reports.

    >>> from headrace.config import Settings
    >>> lateness(Settings())
    datetime.timedelta(0)
    """
    return timedelta(milliseconds=settings.section(TransitSettings).lateness_ms)
