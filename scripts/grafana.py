"""The Grafana dashboards of Headrace: `python scripts/grafana.py` writes them into deploy/grafana/dashboards.

A test compares the files with what this makes, and the names of metrics in them with what the collectors give.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DASHBOARDS = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "dashboards"
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH, _HEIGHT, _COLUMNS = 8, 7, 3

#: Title, unit, and the expressions with their legends.
Panel = tuple[str, str, list[tuple[str, str]]]
_OF = 'query=~"$query"'

RUN: list[Panel] = [
    ("State", "short", [(f"headrace_run_state{{{_OF}}} == 1", "{{query}} {{state}}")]),
    (
        "Seconds since the last batch",
        "s",
        [(f"time() - headrace_run_last_batch_timestamp_seconds{{{_OF}}}", "{{query}}")],
    ),
    ("Jobs that take part", "short", [(f"headrace_run_job_taking_part{{{_OF}}}", "{{job}}")]),
    ("Events in", "cps", [(f"rate(headrace_run_events_total{{{_OF}}}[$__rate_interval])", "{{job}}")]),
    ("Results out", "cps", [(f"rate(headrace_run_results_total{{{_OF}}}[$__rate_interval])", "{{job}}")]),
    ("Backlog", "short", [(f"sum by (query, topic) (headrace_run_backlog{{{_OF}}})", "{{topic}}")]),
    ("Watermark lag of jobs", "s", [(f"headrace_run_watermark_lag_seconds{{{_OF}}}", "{{job}}")]),
    (
        "Watermark lag of partitions",
        "s",
        [(f"topk(10, headrace_run_partition_watermark_lag_seconds{{{_OF}}})", "{{job}} {{topic}}/{{partition}}")],
    ),
    (
        "Idle partitions",
        "short",
        [(f"sum by (job, topic) (headrace_run_partition_idle{{{_OF}}})", "{{job}} {{topic}}")],
    ),
    (
        "Time of a batch",
        "s",
        [
            (
                f"histogram_quantile({level}, sum by (query, le) "
                f"(rate(headrace_run_batch_seconds_bucket{{{_OF}}}[$__rate_interval])))",
                f"{{{{query}}}} p{round(100 * level)}",
            )
            for level in (0.5, 0.99)
        ],
    ),
    ("Phases of batches", "s", [(f"rate(headrace_run_phase_seconds_total{{{_OF}}}[$__rate_interval])", "{{phase}}")]),
    ("Batches a second", "cps", [(f"rate(headrace_run_batches_total{{{_OF}}}[$__rate_interval])", "{{query}}")]),
    (
        "Dead letters by reason",
        "cps",
        [(f"rate(headrace_run_dead_letters_total{{{_OF}}}[$__rate_interval])", "{{job}} {{reason}}")],
    ),
    ("Late events", "cps", [(f"rate(headrace_run_late_total{{{_OF}}}[$__rate_interval])", "{{job}}")]),
    (
        "Counted by steps",
        "cps",
        [(f"rate(headrace_run_step_counts_total{{{_OF}}}[$__rate_interval])", "{{job}} {{name}}")],
    ),
    ("State by step", "bytes", [(f"headrace_run_step_state_bytes{{{_OF}}}", "{{job}} {{step}}")]),
    ("Keys by step", "short", [(f"headrace_run_step_state_keys{{{_OF}}}", "{{job}} {{step}}")]),
    ("Memory of processes", "bytes", [(f"headrace_run_process_memory_bytes{{{_OF}}}", "{{kind}}")]),
    ("Restarts", "short", [(f"headrace_run_restarts_total{{{_OF}}}", "{{query}}")]),
    ("Memory of state stores", "bytes", [(f"headrace_run_state_store_bytes{{{_OF}}}", "{{query}}")]),
    ("Most events of a batch", "short", [(f"headrace_run_batch_limit_events{{{_OF}}}", "{{query}}")]),
]
INGEST: list[Panel] = [
    ("Messages in", "cps", [("rate(headrace_ingest_messages_total[$__rate_interval])", "{{feed}}")]),
    ("Events to Kafka", "cps", [("rate(headrace_ingest_events_total[$__rate_interval])", "{{feed}} {{topic}}")]),
    ("Bytes in", "Bps", [("rate(headrace_ingest_message_bytes_total[$__rate_interval])", "{{feed}}")]),
    ("Dismissed", "cps", [("rate(headrace_ingest_dismissed_total[$__rate_interval])", "{{feed}} {{cause}}")]),
    ("Lag from event to arrival", "s", [("headrace_ingest_recent_lag_seconds", "{{feed}} p{{quantile}}")]),
    ("Waiting for Kafka", "short", [("headrace_ingest_waiting", "{{feed}}")]),
    ("Connected", "short", [("headrace_ingest_connected", "{{feed}}")]),
    (
        "Reconnects, restarts, gaps",
        "short",
        [
            ("headrace_ingest_reconnects_total", "{{feed}} reconnects"),
            ("headrace_ingest_restarts_total", "{{feed}} restarts"),
            ("headrace_ingest_gaps_total", "{{feed}} gaps"),
        ],
    ),
    ("Behind schedule (replay)", "s", [("headrace_ingest_behind_seconds", "{{feed}}")]),
]
SERVED: list[Panel] = [
    ("Viewers", "short", [("headrace_dashboard_viewers", "{{instance}}")]),
    ("Parts", "short", [("headrace_dashboard_part_ok", "{{part}}")]),
    ("Stages of the pipeline", "short", [("headrace_dashboard_stage_ok", "{{stage}}")]),
    ("Latency of results, p99", "s", [('headrace_dashboard_latency_seconds{quantile="0.99"}', "{{job}} {{leg}}")]),
    ("Results read", "cps", [("rate(headrace_dashboard_results_total[$__rate_interval])", "{{job}}")]),
    ("Values shown", "short", [("headrace_dashboard_entries", "{{job}}")]),
]


def dashboards() -> dict[str, dict[str, Any]]:
    """Make all dashboards, by the names of their files."""
    return {
        "run.json": _dashboard("headrace-run", "Headrace: runs", RUN, by_query=True),
        "ingest.json": _dashboard("headrace-ingest", "Headrace: ingestion", INGEST),
        "dashboard.json": _dashboard("headrace-dashboard", "Headrace: dashboard", SERVED),
    }


def _dashboard(uid: str, title: str, panels: list[Panel], *, by_query: bool = False) -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": "source", "type": "datasource", "query": "prometheus", "label": "Source"}
    ]
    if by_query:
        variables.append(
            {
                "name": "query",
                "type": "query",
                "datasource": _SOURCE,
                "query": {"query": "label_values(headrace_run_info, query)", "refId": "query"},
                "includeAll": True,
                "multi": True,
                "refresh": 2,
            }
        )
    return {
        "uid": uid,
        "title": title,
        "tags": ["headrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [_panel(number, *panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, title: str, unit: str, targets: list[tuple[str, str]]) -> dict[str, Any]:
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": title,
        "datasource": _SOURCE,
        "gridPos": {
            "x": _WIDTH * (number % _COLUMNS),
            "y": _HEIGHT * (number // _COLUMNS),
            "w": _WIDTH,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression, "legendFormat": legend}
            for place, (expression, legend) in enumerate(targets)
        ],
    }


if __name__ == "__main__":
    DASHBOARDS.mkdir(parents=True, exist_ok=True)
    for name, board in dashboards().items():
        (DASHBOARDS / name).write_text(json.dumps(board, indent=1) + "\n")
