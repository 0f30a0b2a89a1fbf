"""What a run tells Prometheus and its log, by the command as it is used: a real broker, real Spark, a real scrape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.dev.jars import default_directory
from headrace.kafka import Producer, Topics, TopicSpec
from headrace.spark.run.metrics import MOST_REASONS, OTHER, RunMetrics
from headrace.spark.run.progress import BatchDone, DeadLetterAlarm, JobChange, JobFigures, StateChange

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from prometheus_client.metrics_core import Metric

    from headrace.dev import EmbeddedBroker

JOB = """
import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.formats import json
from headrace.windows import count

metered = Job(
    "metered",
    Stream.topic("metered.scans", format=json(schema={"depot": pl.String}, time="at"))
    .watermark(bounded("1s"))
    .key_by("depot")
    .window(tumbling("2s"))
    .aggregate(scans=count()),
)
"""
PATIENCE = 240


def figures(families: Iterable[Metric]) -> dict[tuple[str, ...], float]:
    """The figures of a run by name and values of labels, in the order of the labels' names, without the query."""
    return {
        (
            sample.name.removeprefix("headrace_run_"),
            *(value for label, value in sorted(sample.labels.items()) if label != "query"),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def samples(text: str) -> dict[tuple[str, ...], float]:
    return figures(text_string_to_metric_families(text))


def collected(metrics: RunMetrics) -> dict[tuple[str, ...], float]:
    return figures(metrics.collect())


def batch(number: int, **changes: Any) -> BatchDone:
    plain: dict[str, Any] = dict.fromkeys(("rows_in", "results", "late", "dead_letters"), 0)
    plain |= dict.fromkeys(("duration_ms", "watermark", "backlog"))
    return BatchDone(number, **(plain | changes))


def test_totals_add_up_over_batches_and_gauges_show_the_newest() -> None:
    metrics = RunMetrics("q", ["a", "b"])
    place: dict[str, Any] = {"watermark": 5_000_000, "idle": False, "holds_back": True, "absurd": 2, "ahead": 1}
    place |= {"newest": 6_000_000, "clocks": {"keys": 50, "ahead": 4, "behind": 0, "worst": []}}
    first = JobFigures(10, 4, 1, {"null_key": 2}, ({"partition": "in/it/3", **place},))
    counters = {"a": {"jumps": 3, "state.bytes": 50, "state.bytes/count": 40, "state.keys/count": 7}}
    metrics(batch(0, jobs={"a": first}, seconds=0.3, counters=counters, unreadable={"malformed": 5}))
    metrics(
        batch(
            1,
            jobs={"a": first, "b": JobFigures(1)},
            seconds=400.0,
            counters=counters,
            phases={"addBatch": 1500},
            backlogs={("in/it", 3): 9},
            watermarks={"a": 5_000_000},
            limit=7,
        )
    )
    found = collected(metrics)
    expected = {
        ("events_total", "a"): 20, ("events_total", "b"): 1, ("results_total", "a"): 8, ("late_total", "a"): 2,
        ("dead_letters_total", "a", "null_key"): 4, ("dead_letters_total", "", "malformed"): 5, ("batches_total",): 2,
        ("batch",): 1, ("batch_limit_events",): 7, ("step_counts_total", "a", "jumps"): 6,
        ("step_state_bytes", "a", "count"): 40, ("step_state_keys", "a", "count"): 7,
        ("batch_seconds_bucket", "0.5"): 1, ("batch_seconds_bucket", "300.0"): 1, ("batch_seconds_bucket", "+Inf"): 2,
        ("batch_seconds_count",): 2, ("batch_seconds_sum",): 400.3, ("phase_seconds_total", "addBatch"): 1.5,
        ("backlog", "3", "in/it"): 9, ("watermark_timestamp_seconds", "a"): 5.0,
        ("partition_wrong_clocks", "a", "3", "ahead", "in/it"): 4,
        ("partition_holds_back", "a", "3", "in/it"): 1, ("partition_absurd_events", "a", "3", "in/it"): 2,
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert ("step_counts_total", "a", "state.bytes") not in found
    # The clock has gone on since 1970.
    assert found["watermark_lag_seconds", "a"] > 1e9


def test_a_feed_of_hostile_reasons_does_not_grow_without_end() -> None:
    metrics = RunMetrics("q", ["a"])
    for number in range(3 * MOST_REASONS):
        metrics(batch(number, unreadable={f"reason {number}": 1}))
    reasons = {key[2]: value for key, value in collected(metrics).items() if key[0] == "dead_letters_total"}
    assert len(reasons) == MOST_REASONS + 1
    assert sum(reasons.values()) == 3 * MOST_REASONS
    assert reasons[OTHER] == 2 * MOST_REASONS


def test_health_follows_the_state_of_the_run() -> None:
    metrics = RunMetrics("q", ["a", "b"])
    seen = []
    for event in (
        StateChange("starting"),
        StateChange("warming"),
        StateChange("running"),
        JobChange("b", "stopped", "KeyError"),
        JobChange("b", "catching_up", "9 events"),
        JobChange("b", "returned"),
        StateChange("restarting"),
        StateChange("running"),
        StateChange("failed", "a secret"),
    ):
        metrics(event)
        seen.append((metrics.alive().ok, metrics.ready().ok))
    assert seen == [
        (True, False), (True, False), (True, True), (True, False), (True, False), (True, True), (True, False),
        (True, True), (False, False),
    ]  # fmt: skip
    found = collected(metrics)
    assert found["restarts_total",] == 1
    assert (found["state", "failed"], found["state", "running"]) == (1, 0)
    assert "secret" not in metrics.alive().status


def test_an_alarm_is_shown_until_it_is_cleared() -> None:
    metrics = RunMetrics("q", ["a"])
    seen = []
    for active in (True, False):
        metrics(DeadLetterAlarm(active, 0.75, 200, "malformed", "x"))
        found = collected(metrics)
        seen.append((found["mostly_dead_letters",], found["dead_letter_share",]))
    assert seen == [(1, 0.75), (0, 0)]


class Feed(threading.Thread):
    """Sends scans with the clock's time, and now and then something that is none, until it is stopped."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        super().__init__(daemon=True)
        self._broker = broker
        self.done = threading.Event()

    def run(self) -> None:
        with Producer(self._broker.connection) as producer:
            while not self.done.wait(0.2):
                at = datetime.now(UTC).isoformat()
                producer.send("metered.scans", json.dumps({"depot": "north", "at": at}).encode(), key=b"n")
                producer.send("metered.scans", b"{nothing", key=b"n")


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
def test_a_run_is_scraped_and_logs_json(broker: EmbeddedBroker, tmp_path: Path) -> None:
    Topics(broker.connection).ensure([TopicSpec(name="metered.scans", partitions=1)])
    (tmp_path / "jobs.py").write_text(JOB)
    settings = {
        "HEADRACE_PATHS__HOME": str(tmp_path / "home"),
        "HEADRACE_PATHS__JARS": str(default_directory()),
        "HEADRACE_SPARK__DRIVER_MEMORY": "1g",
    }
    words = ["run", "jobs.py:metered", "--json", "--metrics-port", "0", "--log-format", "json", "--log-level", "info"]
    feed = Feed(broker)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli", *words, "--master", "local[1]", "--bootstrap", broker.bootstrap],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=tmp_path,
            env=os.environ | settings,
        )
    assert process.stdout is not None
    timer = threading.Timer(PATIENCE, process.kill)
    timer.start()
    batches, url, found = [], "", {}
    try:
        feed.start()
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] != "progress":
                continue
            batches.append(event)
            if not url:
                said = (tmp_path / "log").read_text()
                url = said.partition("Metrics for Prometheus: ")[2].split()[0]
            found = samples(httpx.get(url, timeout=20).text)
            # The backlog and the phases of a batch are known when the next one is out.
            known = {("watermark_lag_seconds", "metered"), ("backlog", "0", "metered.scans")} <= set(found)
            if found["results_total", "metered"] > 0 and known:
                break
        else:
            pytest.fail(f"no results: {batches[-1:]} {(tmp_path / 'log').read_text()[-3000:]}")
        health = {path: httpx.get(url.replace("/metrics", path), timeout=20) for path in ("/healthz", "/readyz")}
        process.terminate()
        process.communicate(timeout=60)
    finally:
        timer.cancel()
        feed.done.set()
        process.kill()
        process.stdout.close()
    said = (tmp_path / "log").read_text()
    assert process.returncode == 0, said[-3000:]
    assert [answer.json() for answer in health.values()] == [{"ok": True, "status": "running"}] * 2
    total = {name: sum(each[name] for each in batches) for name in ("rows_in", "results")}
    assert found["results_total", "metered"] >= total["results"] > 0
    assert found["events_total", "metered"] >= total["rows_in"] > 0
    assert found["dead_letters_total", "", "malformed_json"] > 0
    assert found["batches_total",] == found["batch_seconds_count",] >= len(batches)
    assert -60 < found["watermark_lag_seconds", "metered"] < 600
    assert found["partition_holds_back", "metered", "0", "metered.scans"] in (0, 1)
    assert [key[0] for key in found if key[0] in ("step_state_bytes", "step_state_keys")], found
    assert found["process_memory_bytes", "java"] > 50e6
    assert {key[1] for key in found if key[0] == "phase_seconds_total"} >= {"addBatch", "triggerExecution"}
    logged = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    by_batch = {record["batch"]: record for record in logged if "batch" in record and "batch_number" in record}
    assert {each["batch_id"]: each["batch"] for each in batches}.items() <= {
        name: record["batch_number"] for name, record in by_batch.items()
    }.items()
    assert all(record["message"].startswith("batch ") for record in by_batch.values())
