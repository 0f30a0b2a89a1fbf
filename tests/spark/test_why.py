"""Why, state and replay-job over a real query: its batches and watermarks, its checkpoint, its topics."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from headrace.cli.jobs import pick
from headrace.cli.main import app
from headrace.dev.jars import default_directory
from headrace.kafka.producer import Producer
from headrace.time.instants import instant

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import BatchDone

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "input.why-scans"
JOBS = """
import polars as pl
from headrace.cep import Pattern
from headrace.cep.measures import last
from headrace.formats import json
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.windows import count, tumbling

scans = Stream.topic("input.why-scans", format=json({"parcel": str, "depot": str, "weight": float}, time="at"))
scans = scans.watermark(bounded("2s"), idle_after="1h").filter(pl.col("weight") > 0)
counts = scans.key_by("depot").window(tumbling("10s")).aggregate(n=count()).named("per-depot")
heavy = Pattern.begin("light", pl.col("weight") < 5).next("heavy", pl.col("weight") > 50).within("30s")
jumps = scans.key_by("depot").match(heavy).select(at=last("heavy.event_time")).named("jumps")
job = Job("why-scans", counts, outputs={"jumps": Output(jumps)})
"""
FIRST = [(0, "north", 3.0, 1), (0, "north", -1.0, 2), (0, "south", 1.0, 8)]
FIRST += [(0, "north", 9.0, 6), (1, "south", 1.0, 14), (0, "north", 9.0, 15)]
LATER = [(0, "north", 1.0, 3), (0, "north", 1.0, 16), (1, "south", 1.0, 17)]
UNREAD = [(1, "north", 1.0, 20)]


def at(second: int) -> int:
    return instant(datetime(2026, 3, 2, 7, 30, second, tzinfo=UTC))


def send(bench: Bench, scans: list[tuple[int, str, float, int]], *, broken: bool = False) -> None:
    with Producer(bench.broker.connection) as producer:
        for number, (partition, depot, weight, second) in enumerate(scans):
            at = f"2026-03-02T07:30:{second:02}Z"
            value = {"parcel": f"p{number}", "depot": depot, "weight": weight, "at": at}
            producer.send(TOPIC, json.dumps(value).encode(), partition=partition)
        if broken:
            producer.send(TOPIC, b'{"depot": "north", "weight": ', partition=0)


def test_a_query_can_be_asked_why_looked_into_and_run_again(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "why_scans_jobs.py"
    path.write_text(JOBS)
    [job] = pick([f"{path}:why-scans"])
    bench.prepare(job, partitions=2)
    send(bench, FIRST, broken=True)
    sent: list[bool] = []

    def until(batches: list[BatchDone]) -> bool:
        watermark = batches[-1].watermark if batches else None
        if watermark is not None and watermark >= at(12) and not sent:
            sent.append(True)
            send(bench, LATER)
        return watermark is not None and watermark >= at(14)

    bench.run(job, until=until, patience=120.0)
    send(bench, UNREAD)

    places = ["--set", f"paths.home={tmp_path}", "--set", f"broker.bootstrap={bench.broker.bootstrap}"]
    places += ["--set", f"paths.jars={default_directory()}", "--set", "spark.driver_memory=1g"]

    def told(*words: str) -> Any:
        command = [sys.executable, "-m", "headrace.cli", *places, *words, "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    story = told("why", f"{path}:why-scans", "--key", "north", "--checkpoint", str(bench.checkpoint))
    found = {(fact["kind"], fact["step"], (fact["event"] or {}).get("offset")): fact for fact in story["facts"]}
    assert found["filtered", "", 1]["data"]["weight"] == -1.0
    assert found["dead_letter", "", 5]["data"]["reason"] == "malformed_json"
    assert "[2026-03-02 07:30:00 UTC, 2026-03-02 07:30:10 UTC)" in found["counted", "per-depot", 0]["text"]
    # It was late by the watermark that the query had: that of its batch before.
    assert found["late", "per-depot", 6]["data"]["watermark"] == "2026-03-02 07:30:12 UTC"
    assert found["late", "per-depot", 6]["data"]["held_back_by"] == f"{TOPIC}/1"
    assert found["broken", "jumps", 3]["event"]["time"] is not None
    assert "weight = 9.0" in found["broken", "jumps", 3]["text"]
    [fired] = [fact["data"]["result"] for fact in story["facts"] if fact["kind"] == "given"]
    assert fired["n"] == 2
    assert "watermark" in [fact["data"]["waits_for"] for fact in story["facts"] if fact["kind"] == "waits"]
    assert [fact["event"]["offset"] for fact in story["facts"] if fact["kind"] == "not_read"] == [2]
    assert "absent" in [fact["kind"] for fact in story["facts"]]
    written = bench.read(job.result_topic)
    assert written.filter(depot="north").select("n").rows() == [(2,)]

    state = ["state", f"{path}:why-scans", "--checkpoint", str(bench.checkpoint)]
    windows = told(*state, "--step", "per-depot", "--key", "north")["per-depot"]["windows"]
    assert [row["n"] for row in windows] == [2]

    again = ["replay-job", f"{path}:why-scans", "--from", "0=0,1=0", "--to", "0=5,1=1", "--into", "analytics.again"]
    replayed = told(*again)
    assert (replayed["events"], replayed["topics"]) == (6, ["analytics.again", "analytics.again.jumps"])
    rows = bench.read("analytics.again").select("depot", "window_start", "n").rows()
    assert sorted((depot, n) for depot, _, n in rows) == [("north", 1), ("north", 2), ("south", 1), ("south", 1)]
    refused = CliRunner().invoke(app, [*places, *again])
    assert "has records already" in refused.output
