"""Jobs of SQL on Spark: windows, and updating results as upserts, from records of JSON to records of JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import ROOT, read_page

from headrace.kafka import Topics
from headrace.kafka.consumer import Consumer
from headrace.kafka.topics import TopicSpec
from headrace.streaming_sql.catalog import Catalog
from headrace.streaming_sql.script_jobs import jobs_of_script

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


def blocks() -> dict[str, str]:
    page = read_page(ROOT / "docs" / "sql-quickstart.md")
    return {block.words[1]: block.text for block in page.blocks if "." in "".join(block.words[1:2])}


def read(bench: Bench, topic: str) -> list[tuple[str | None, Any]]:
    with Consumer(bench.broker.connection, [topic]) as consumer:
        records = list(consumer)
    keys = [None if each.key is None else each.key.decode() for each in records]
    return [(key, each.value and json.loads(each.value)) for key, each in zip(keys, records, strict=True)]


def test_the_jobs_of_the_quickstart(bench: Bench) -> None:
    files = blocks()
    jobs = jobs_of_script(files["load.sql"].replace("'scans'", "'sql.scans'"), Catalog(), name="load")
    assert list(jobs) == ["load-depot-load", "load-parcels"]
    lines = [line.encode() for line in files["scans.jsonl"].splitlines()]
    lines.append(b'{"scanned_at": "2026-03-01T12:01:00Z", "depot": "west", "parcel": "P-1", "weight": 2.5}')
    Topics(bench.broker.connection).ensure([TopicSpec(name="sql.scans", partitions=1)])
    for job in jobs.values():
        bench.prepare(job, partitions=1)
    bench.send("sql.scans", lines, ["a"] * len(lines))
    # The watermark is 2 s behind the last scan.
    bench.run_to(*jobs.values(), watermark=int(datetime(2026, 3, 1, 12, 0, 58, tzinfo=UTC).timestamp()) * 1_000_000)
    loads = {
        (row["depot"], row["window_end"][11:19]): (row["scans"], row["kilos"]) for _, row in read(bench, "depot-load")
    }
    assert loads == {
        ("north", "12:00:10"): (2, 9.5),
        ("south", "12:00:10"): (1, 20.0),
        ("north", "12:00:20"): (1, 1.5),
        ("south", "12:00:40"): (1, 3.0),
    }
    newest = dict(read(bench, "parcels"))
    assert {key: row["depot"] for key, row in newest.items()} == {
        "P-1": "west", "P-2": "south", "P-3": "north", "P-4": "north", "P-5": "south",
    }  # fmt: skip
