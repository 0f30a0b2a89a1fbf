"""Run NEXMark: every query in process and on Spark, its answers compared with plain computations.

python -m benchmarks.nexmark [--quick] [--only q5 ...]
python -m benchmarks.nexmark --sql [--quick] [--only q5 ...]     the queries in SQL, on Spark
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from benchmarks import workload
from benchmarks.nexmark import sql_runs
from benchmarks.nexmark.generator import Auctions
from benchmarks.nexmark.queries import QUERIES, TOPIC, bids_of_rows, job
from benchmarks.nexmark.reference import Rows, answers, shown
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.evaluate.parity import until

if TYPE_CHECKING:
    from benchmarks.workload import Figure

RESULTS = Path(__file__).parents[1] / "results" / "nexmark.json"
#: Answers are compared over so many events: plain loops are slow.
CHECKED = 50_000
#: What is in which answer depends on when it was asked.
BY_THE_CLOCK = ("q12",)
console = Console()


def right(query: str, events: pl.DataFrame) -> bool:
    """Whether a query's answers over some events are those of a plain computation."""
    some = events.head(CHECKED)
    _, results = workload.in_process(QUERIES[query](bids_of_rows()), some, batch=7_000)
    return alike(shown(query, pl.concat(results)), answers(query, some))


def alike(found: Rows, expected: Rows) -> bool:
    """Whether there are answers, and the right ones; means may differ in their last digits."""
    return 0 < len(found) == len(expected) and all(
        one == two or (isinstance(two, float) and abs(one - two) <= 1e-9 * abs(two))
        for left, right in zip(found, expected, strict=True)
        for one, two in zip(left, right, strict=True)
    )


def on_spark(
    query: str, broker: EmbeddedBroker, chosen: argparse.Namespace, home: Path, in_process: pl.DataFrame
) -> Figure:
    """Run a query on Spark, and see that its final answers are those it gave in process over the same events.

    Raises:
        SystemExit: They are not.
    """
    figure, found, watermark = workload.on_spark(
        broker, job(query), events=chosen.events, batch=chosen.batch, directory=home
    )
    expected = until(in_process, watermark)
    if query not in BY_THE_CLOCK and not alike(shown(query, found), shown(query, expected)):
        raise SystemExit(f"{query} gives {found.height} answers on Spark that are not the {expected.height} in process")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.nexmark", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second of event time")
    parser.add_argument("--only", action="append", default=[], help="queries to run; all if none is named")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--sql", action="store_true", help="the queries in SQL, q0 to q23 and cep0 to cep3")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    chosen = parser.parse_args()
    if chosen.quick:
        # A minute of event time: what is final ends some seconds before the watermark.
        chosen.events, chosen.batch, chosen.rate = 60_000, 10_000, 1_000
    warnings.filterwarnings("ignore", message=".*may go on for ever")
    if chosen.sql:
        sql_runs.run(chosen)
        return
    events = Auctions(rate=chosen.rate).events(0, chosen.events)
    names = [name for name in QUERIES if not chosen.only or name in chosen.only]
    told: dict[str, dict[str, Any]] = {}
    given: dict[str, pl.DataFrame] = {}
    for name in names:
        figure, results = workload.in_process(QUERIES[name](bids_of_rows()), events, batch=chosen.batch)
        given[name] = pl.concat(results)
        told[name] = {"in process": figure.to_dict(), "right": right(name, events)}
        console.print(
            f"{name}: {figure.events_per_core:,.0f} events/s per core in process, right: {told[name]['right']}"
        )
    if not chosen.no_spark:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
                workload.fill(broker, TOPIC, events, key="auction")
                for name in names:
                    figure = on_spark(name, broker, chosen, home, given.pop(name))
                    told[name]["on Spark"] = figure.to_dict()
                    console.print(f"{name}: {figure.events_per_second:,.0f} events/s on Spark")
    show(told, chosen)


def show(told: dict[str, dict[str, Any]], chosen: argparse.Namespace) -> None:
    table = Table("query", "in process, events/s per core", "on Spark, events/s", "per core", "answers right")
    for name, figures in told.items():
        spark = figures.get("on Spark", {})
        table.add_row(
            name,
            f"{figures['in process']['events_per_core']:,}",
            *(f"{spark[key]:,}" if spark else "-" for key in ("events_per_second", "events_per_core")),
            "yes" if figures["right"] else "NO",
        )
    console.print(table)
    wrong = [name for name, figures in told.items() if not figures["right"]]
    if wrong:
        raise SystemExit(f"wrong answers: {', '.join(wrong)}")
    if chosen.quick or chosen.only or chosen.no_spark:
        console.print("Not written: --quick, --only and --no-spark are for looking, not for figures.")
        return
    record = {
        "conditions": workload.conditions(
            events=chosen.events, events_per_batch=chosen.batch, rate=chosen.rate, cores_used="1 in process, 2 on Spark"
        ),
        "queries": told,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
