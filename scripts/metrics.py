"""All metrics of Headrace, as its own collectors name them: the table of docs/metrics.md, and the names for checks.

python scripts/metrics.py            write the tables into docs/metrics.md
python scripts/metrics.py --names    print the names of all time series
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.dashboard.server import Dashboard
from headrace.ingest.metrics import IngestMetrics
from headrace.kafka import Connection
from headrace.spark.run.metrics import RunMetrics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

PAGE = Path(__file__).resolve().parents[1] / "docs" / "metrics.md"
_BEGIN, _END = "<!-- {part}: made by scripts/metrics.py -->", "<!-- end of {part} -->"


@dataclass(frozen=True)
class Named:
    """A metric.

    Args:
        name: Without what the kind adds.
        kind: counter, gauge or histogram.
        labels: Of its samples.
        text: What it says.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    text: str

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its time series."""
        endings = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(self.kind, ("",))
        return tuple(self.name + ending for ending in endings)


def metrics() -> dict[str, list[Named]]:
    """Ask the collectors of each part, before there is anything to tell."""
    dashboard = Dashboard(Connection(bootstrap="localhost:1"), [])
    return {
        "run": _named(RunMetrics("q", ["j"]).collect()),
        "ingest": _named(IngestMetrics(["f"]).collect()),
        "dashboard": _named(dashboard.collector.collect()),
    }


def _named(families: Iterable[Metric]) -> list[Named]:
    return [Named(each.name, each.type, _labels(each), each.documentation.rstrip(".")) for each in families]


def _labels(family: Metric) -> tuple[str, ...]:
    return tuple(getattr(family, "_labelnames", ()))


def table(named: list[Named]) -> str:
    """Make the table of a part."""
    rows = ["| metric | kind | labels | what it says |", "|---|---|---|---|"]
    for each in named:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(
            f"| `{each.series[0] if each.kind == 'counter' else each.name}` | {each.kind} | {labels} | {each.text} |"
        )
    return "\n".join(rows)


def filled(page: str) -> str:
    """Put the tables in their places."""
    for part, named in metrics().items():
        begin, end = _BEGIN.format(part=part), _END.format(part=part)
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        page = f"{before}{begin}\n{table(named)}\n{end}{after}"
    return page


if __name__ == "__main__":
    if "--names" in sys.argv[1:]:
        sys.stdout.write("".join(f"{name}\n" for named in metrics().values() for each in named for name in each.series))
    else:
        PAGE.write_text(filled(PAGE.read_text()))
