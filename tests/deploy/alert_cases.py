"""Time series of a healthy installation, and for each alert the fault that must make it fire, and nothing else.

The notation of values is that of promtool: `0+60x1600` is 0, 60, 120, ...; a sample a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

_RUN = 'query="q"'
_JOB = f'{_RUN},job="j"'


#: Minutes from a fault to the look at the alerts: long enough for every `for`.
AFTER = 70
HOUR, DAY = 60, 24 * 60


@dataclass(frozen=True)
class Fault:
    """How a series changes.

    Args:
        series: Which one.
        before: Value, and increase a minute, before the fault.
        after: The same from the fault on; None for the value: it goes on from where it is.
        begins: The minute in which it begins; an alert that compares with the day before wants a later one.
    """

    series: str
    before: tuple[float, float]
    after: tuple[float | None, float]
    begins: int = HOUR

    @property
    def values(self) -> str:
        """The samples, in the notation of promtool."""
        value, increase = self.before
        reached = value + increase * (self.begins - 1)
        then, later = self.after
        return _runs(value, increase, self.begins - 1) + " " + _runs(reached if then is None else then, later, AFTER)


def _runs(value: float, increase: float, times: int) -> str:
    return f"{value:.0f}{increase:+.0f}x{times}"


def healthy(begins: int) -> dict[str, str]:
    """The samples of what is there when all is well, to some time after a minute."""
    return {series: _runs(value, increase, begins + AFTER) for series, (value, increase) in HEALTHY.items()}


def rising(per_minute: float) -> tuple[float, float]:
    return 0, per_minute


def steady(value: float) -> tuple[float, float]:
    return value, 0


#: What is there when all is well.
HEALTHY = {
    'up{job="headrace-run",instance="a"}': steady(1),
    'up{job="headrace-ingest",instance="b"}': steady(1),
    'up{job="headrace-dashboard",instance="c"}': steady(1),
    f"headrace_run_last_batch_timestamp_seconds{{{_RUN}}}": rising(60),
    f"headrace_run_restarts_total{{{_RUN}}}": steady(1),
    f"headrace_run_job_taking_part{{{_JOB}}}": steady(1),
    f"headrace_run_mostly_dead_letters{{{_RUN}}}": steady(0),
    f'headrace_run_dead_letters_total{{{_JOB},reason="malformed"}}': rising(1),
    f"headrace_run_watermark_lag_seconds{{{_JOB}}}": steady(2),
    f"headrace_run_events_total{{{_JOB}}}": rising(60_000),
    f"headrace_run_late_total{{{_JOB}}}": rising(6),
    f'headrace_run_backlog{{{_RUN},topic="t",partition="0"}}': steady(200_000),
    f'headrace_run_batch_seconds_bucket{{{_RUN},le="2.5"}}': rising(30),
    f'headrace_run_batch_seconds_bucket{{{_RUN},le="30.0"}}': rising(30),
    f'headrace_run_batch_seconds_bucket{{{_RUN},le="+Inf"}}': rising(30),
    f'headrace_run_step_state_bytes{{{_JOB},step="s"}}': steady(2e9),
    'headrace_ingest_connected{feed="f"}': steady(1),
    'headrace_ingest_restarts_total{feed="f"}': steady(0),
    'headrace_ingest_messages_total{feed="f"}': rising(60_000),
    'headrace_ingest_gaps_total{feed="f"}': steady(3),
    'headrace_ingest_waiting{feed="f"}': steady(10),
    'headrace_dashboard_part_ok{part="reader"}': steady(1),
}

#: The series that a fault changes, by the alert that it must raise.
FAULTS = {
    "HeadraceRunDown": Fault('up{job="headrace-run",instance="a"}', steady(1), steady(0)),
    "HeadraceNoBatch": Fault(f"headrace_run_last_batch_timestamp_seconds{{{_RUN}}}", rising(60), (None, 0)),
    "HeadraceRestarting": Fault(f"headrace_run_restarts_total{{{_RUN}}}", steady(1), (None, 1)),
    "HeadraceJobStopped": Fault(f"headrace_run_job_taking_part{{{_JOB}}}", steady(1), steady(0)),
    "HeadraceMostlyDeadLetters": Fault(f"headrace_run_mostly_dead_letters{{{_RUN}}}", steady(0), steady(1)),
    "HeadraceDeadLetters": Fault(
        f'headrace_run_dead_letters_total{{{_JOB},reason="malformed"}}', rising(1), (None, 60)
    ),
    "HeadraceWatermarkBehind": Fault(f"headrace_run_watermark_lag_seconds{{{_JOB}}}", steady(2), (302, 60)),
    "HeadraceBacklogGrowing": Fault(
        f'headrace_run_backlog{{{_RUN},topic="t",partition="0"}}', steady(200_000), (None, 1_000)
    ),
    "HeadraceSlowBatches": Fault(f'headrace_run_batch_seconds_bucket{{{_RUN},le="2.5"}}', rising(30), (None, 0)),
    "HeadraceLateEvents": Fault(f"headrace_run_late_total{{{_JOB}}}", rising(6), (None, 3_000)),
    "HeadraceStateGrowing": Fault(
        f'headrace_run_step_state_bytes{{{_JOB},step="s"}}', steady(2e9), steady(3.5e9), begins=DAY
    ),
    "HeadraceIngestDown": Fault('up{job="headrace-ingest",instance="b"}', steady(1), steady(0)),
    "HeadraceFeedDisconnected": Fault('headrace_ingest_connected{feed="f"}', steady(1), steady(0)),
    "HeadraceFeedRestarting": Fault('headrace_ingest_restarts_total{feed="f"}', steady(0), (None, 1)),
    "HeadraceFeedSilent": Fault('headrace_ingest_messages_total{feed="f"}', rising(60_000), (None, 0)),
    "HeadraceFeedGap": Fault('headrace_ingest_gaps_total{feed="f"}', steady(3), (None, 1)),
    "HeadraceIngestWaiting": Fault('headrace_ingest_waiting{feed="f"}', steady(10), steady(60_000)),
    "HeadraceDashboardDown": Fault('up{job="headrace-dashboard",instance="c"}', steady(1), steady(0)),
    "HeadraceDashboardPartFailing": Fault('headrace_dashboard_part_ok{part="reader"}', steady(1), steady(0)),
}
