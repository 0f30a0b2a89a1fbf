"""`headrace latency`: what it says when nothing answers, and what it refuses."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cli.topics import make_topics
from headrace.config import Settings
from headrace.kafka import Topics
from headrace_transit.jobs import all_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

    from headrace.dev import EmbeddedBroker


@pytest.mark.broker
def test_jobs_that_do_not_run_are_told_with_what_to_do(cli: Cli, broker: EmbeddedBroker, home: Path) -> None:
    make_topics(broker.connection, list(all_jobs().values()), Settings())
    before = {topic.name: topic.count for topic in Topics(broker.connection).overview()}
    words = ["--jobs", "vehicle-distribution,emergency-stop-sql", "--every", "100ms", "--for", "1s", "--patience", "1s"]
    result = cli("latency", *words, "-b", broker.bootstrap, "-o", home / "markers.csv", "--json")
    assert result.exit_code == 6
    assert "no marker came back from emergency-stop-sql, vehicle-distribution" in result.stderr
    assert "headrace run" in result.stderr
    told = {job["job"]: job for job in json.loads(result.stdout)["jobs"]}
    assert told["vehicle-distribution"]["statuses"]["lost"] == 10
    markers = pl.read_csv(home / "markers.csv")
    assert markers.height == 20
    assert markers["ingest"].null_count() == 0
    # One event for the one job, three for the other.
    after = {topic.name: topic.count for topic in Topics(broker.connection).overview()}
    assert after["input.vehicle-position"] - before["input.vehicle-position"] == 40


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--jobs", "vehicle-distributon"], "Did you mean vehicle-distribution?"),
        (["--every", "soon"], "--every 'soon' is not a duration"),
        (["--for", "0s"], "--for is 0s"),
        (["--every", "10s", "--patience", "5s"], "--patience 5s is shorter than --every 10s"),
    ],
)
def test_what_makes_no_sense_is_refused(cli: Cli, words: list[str], message: str) -> None:
    result = cli("latency", *words)
    assert result.exit_code == 2
    assert message in result.stderr
