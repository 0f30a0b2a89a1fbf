"""Put the measured figures of `benchmarks/results/*.json` into the README, between `<!-- figures -->` marks.

    python scripts/figures.py            rewrites the block
    python scripts/figures.py --check    exits with 1 if the block is not what the results say

Which figure of which file is shown is said in `SHOWN` below. A file may also describe its own rows:

    "readme": [{"what": "...", "value": 360000, "unit": "events/s", "beside": {"what": "...", "value": 557000}}]

`beside` is the same work done another way in the same run; without it a figure says little about another machine.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures -->", "<!-- /figures -->"
_BLOCK = re.compile(re.escape(BEGIN) + r".*?" + re.escape(END), re.DOTALL)
NOTHING = "No benchmark has been run on this version yet."


@dataclass(frozen=True)
class Shown:
    """One row of the table: where its figure is, and where the one beside it."""

    file: str
    what: str
    at: tuple[str, ...]
    unit: str
    beside: str = ""
    beside_at: tuple[str, ...] = ()


SHOWN = (
    *(
        Shown(
            "engine",
            f"{what}, Kafka to Kafka, exactly once",
            ("events_per_second", job),
            "events/s",
            "Spark only reads the topic",
            ("events_per_second", "read"),
        )
        for job, what in (
            ("vehicle-distribution", "vehicle-distribution"),
            ("emergency-stop-pattern", "emergency stops by the pattern builder"),
            ("emergency-stop-sql", "emergency stops by MATCH_RECOGNIZE"),
            ("delay-quantiles", "delay quantiles per cell (sliding 5 min every 5 s)"),
        )
    ),
    Shown(
        "engine",
        "for comparison: Spark's own tumbling count on the same topic, without decoding, to nowhere",
        ("events_per_second", "native tumbling count"),
        "events/s",
    ),
    *(
        Shown(
            "peers",
            f"{what}, beside Flink",
            ("events_per_second", job, "headrace"),
            "events/s",
            "Flink 2.2",
            ("events_per_second", job, "flink"),
        )
        for job, what in (
            ("vehicle-distribution", "vehicles per cell"),
            ("delay-quantiles", "delay quantiles per cell"),
            ("emergency-stop-pattern", "emergency stops by a pattern"),
        )
    ),
    *(
        Shown(
            "nexmark",
            f"NEXMark {query} ({what}), Kafka to Kafka, exactly once",
            ("queries", query, "on Spark", "events_per_second"),
            "events/s",
            "the engine alone, in process, per core",
            ("queries", query, "in process", "events_per_core"),
        )
        for query, what in (
            ("q5", "hot items"),
            ("q7", "highest bid"),
            ("q11", "sessions"),
            ("cep0", "MATCH_RECOGNIZE, prices that fall and rise"),
        )
    ),
    Shown(
        "yahoo",
        "Yahoo's streaming benchmark, Kafka to Kafka, exactly once",
        ("views per campaign", "on Spark", "events_per_second"),
        "events/s",
        "the engine alone, in process, per core",
        ("views per campaign", "in process", "events_per_core"),
    ),
    Shown(
        "ingest",
        "HFP messages from MQTT 5 into Kafka as events, one ingester",
        ("results", "MQTT 5 to Kafka", "per_second"),
        "messages/s",
    ),
    Shown(
        "ingest",
        "recorded HFP messages from a file into Kafka as events, one ingester",
        ("results", "file replay to Kafka", "per_second"),
        "messages/s",
    ),
    Shown(
        "ingest",
        "simulated events straight into Kafka, one process",
        ("results", "simulator straight to Kafka", "per_second"),
        "events/s",
    ),
    Shown(
        "codec",
        "Kafka values to typed columns, one core",
        ("decode", "codec, all columns"),
        "events/s",
        "protobuf's Python classes",
        ("decode", "Python classes, all columns"),
    ),
    Shown(
        "codec",
        "the same, the 4 columns that a job reads",
        ("decode", "codec, 4 columns"),
        "events/s",
        "protobuf's Python classes",
        ("decode", "Python classes, 4 columns"),
    ),
    Shown(
        "codec",
        "columns to Kafka values, one core",
        ("encode", "codec"),
        "events/s",
        "protobuf's Python classes",
        ("encode", "Python classes"),
    ),
    Shown(
        "codec",
        "size of a vehicle position",
        ("bytes_per_event", "vehicle position, binary"),
        "bytes",
        "as JSON",
        ("bytes_per_event", "vehicle position, JSON"),
    ),
)


def read_results(directory: Path) -> dict[str, dict[str, Any]]:
    """Read the files of results by name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(directory.glob("*.json"))}


def table(results: dict[str, dict[str, Any]]) -> str:
    """Write the figures as a Markdown table, with the conditions of each file below it."""
    rows: dict[str, list[str]] = {}
    for shown in SHOWN:
        value, other = _find(results, shown.file, shown.at), _find(results, shown.file, shown.beside_at)
        if value is not None:
            beside = f"{shown.beside}: {_amount(other, shown.unit)}" if other is not None else ""
            rows.setdefault(shown.file, []).append(_row(shown.what, _amount(value, shown.unit), beside))
    for name, content in results.items():
        for row in content.get("readme", []):
            unit, beside = row.get("unit", ""), row.get("beside")
            told = f"{beside['what']}: {_amount(beside['value'], beside.get('unit', unit))}" if beside else ""
            rows.setdefault(name, []).append(_row(row["what"], _amount(row["value"], unit), told))
    if not rows:
        return NOTHING
    lines = [
        "| what | measured | beside it, in the same run |",
        "|---|---|---|",
        *(row for each in rows.values() for row in each),
    ]
    conditions = [_conditions(name, results[name].get("conditions", {})) for name in rows]
    return "\n".join([*lines, "", *(f"- {told}" for told in conditions if told)]).rstrip()


def refreshed(readme: str, results: dict[str, dict[str, Any]]) -> str:
    """Give the README with the block filled anew."""
    if not _BLOCK.search(readme):
        raise SystemExit(f"README.md has no block between {BEGIN} and {END}")
    return _BLOCK.sub(lambda _: f"{BEGIN}\n{table(results)}\n{END}", readme)


def _find(results: dict[str, dict[str, Any]], file: str, at: tuple[str, ...]) -> float | None:
    found: Any = results.get(file)
    for name in at:
        found = found.get(name) if isinstance(found, dict) else None
    return found if at and isinstance(found, int | float) else None


def _row(what: str, figure: str, beside: str) -> str:
    return f"| {what} | **{figure}** | {beside} |"


def _amount(value: float, unit: str) -> str:
    """Write a number with three digits that mean something.

    >>> _amount(1_234_567.8, "events/s"), _amount(128.7, "bytes"), _amount(0.4321, "s")
    ('1,230,000 events/s', '129 bytes', '0.432 s')
    """
    text = f"{float(f'{value:.3g}'):,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def _conditions(name: str, conditions: dict[str, Any]) -> str:
    cores, used = conditions.get("cores_of_the_machine") or conditions.get("cores"), conditions.get("cores_used")
    load = conditions.get("load_average_before")
    told = [
        str(conditions.get("date", ""))[:10],
        str(conditions.get("cpu", "")),
        f"{used or cores} of {cores} cores" if cores else "",
        f"Python {conditions['python']}" if "python" in conditions else "",
        f"pyspark {conditions['pyspark']}" if "pyspark" in conditions else "",
        f"{conditions['events']:,} events" if "events" in conditions else "",
        f"median of {conditions['turns']}" if "turns" in conditions else "",
        f"broker {conditions['broker']}" if "broker" in conditions else "",
        f"seconds {conditions['seconds_are']}" if "seconds_are" in conditions else "",
        f"load before {load[0]}" if load else "",
        str(conditions.get("note", "")),
    ]
    return f"`benchmarks/results/{name}.json`: {', '.join(part for part in told if part)}." if any(told) else ""


def main() -> int:
    """Refresh or check; returns the exit code."""
    path = ROOT / "README.md"
    before = path.read_text(encoding="utf-8")
    after = refreshed(before, read_results(ROOT / "benchmarks" / "results"))
    if "--check" in sys.argv[1:]:
        return int(before != after)
    path.write_text(after, encoding="utf-8")
    sys.stdout.write("README.md: figures refreshed\n" if before != after else "README.md: figures unchanged\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
