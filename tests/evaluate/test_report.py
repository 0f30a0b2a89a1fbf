"""The report and its figures, from the directory of an evaluation; and what of it is continued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.config import Settings
from headrace.errors import ConfigError
from headrace.evaluate import measures
from headrace.evaluate.campaign import Campaign
from headrace.evaluate.judgement import judge_backlog
from headrace.evaluate.plan import Plan
from headrace.evaluate.report import write_report
from headrace.evaluate.subject import subject_of
from headrace.evaluate.trial import judge
from headrace.observe.latency import latency_report, write_outcomes
from headrace.observe.tracker import Sighting, Tracker
from headrace.registry import Registry

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.evaluate.plan import Trial

S = 1_000_000
PLAN = Plan(jobs=("vehicle-distribution", "emergency-stop-sql"), volumes=(1, 4), seconds=200, repetitions=2)
REGISTRY = Registry(Settings())
SUBJECT = subject_of(REGISTRY.find(PLAN.jobs), REGISTRY)
UTC = pl.Datetime("us", "UTC")


def results(job: str, dues: list[float], latency: float, rows: int) -> pl.DataFrame:
    frame = pl.DataFrame({"job": job, "due": dues, "rows": rows}, schema_overrides={"due": pl.Float64})
    micros = (pl.col("due") * S).cast(pl.Int64)
    return frame.select(
        "job", micros.cast(UTC).alias("due"), (micros + int(latency * S)).cast(UTC).alias("seen"), "rows"
    )


def made(directory: Path, trial: Trial, number: int, *, behind: float = 0.0) -> dict[str, Any]:
    """Write a trial as it would have been measured: results visible after 1.5 s, or 2 s at the higher volume."""
    folder = directory / "trials" / trial.name
    folder.mkdir(parents=True)
    begin, end = number * 1000 * S, number * 1000 * S + 200 * S
    latency = 1.5 if trial.volume == 1 else 2.0
    tracker = Tracker()
    for index in range(50):
        at = begin + index * S
        for job in PLAN.jobs:
            tracker.generated(job, index, at=at, sent=at)
            tracker.ingested(job, index, at=at + 2_000)
            tracker.seen(job, index, Sighting(f"{index}", at, at + int(latency * S) - 30_000, at + int(latency * S)))
    outcomes = tracker.outcomes(now=end)
    write_outcomes(outcomes, folder / "markers.parquet")
    seen = pl.concat(
        [
            results("vehicle-distribution", [begin / S + 5 * window for window in range(40)], latency, 100),
            results("emergency-stop-sql", [begin / S + 1.5 * index for index in range(120)], latency - 0.5, 1),
        ]
    )
    for kind in ("committed", "uncommitted"):
        seen.write_parquet(folder / f"results-{kind}.parquet")
    backlog = pl.DataFrame({"at": [begin + second * S for second in range(200)], "events": 500}).cast({"at": UTC})
    backlog.write_parquet(folder / "backlog.parquet")
    series = measures.backlog_series(backlog, begin=begin, end=end)
    latencies = {
        job: {
            kind: measures.latency_summary(seen, job, begin=begin, end=end, windowed=job == "vehicle-distribution")
            for kind in ("committed", "uncommitted")
        }
        for job in PLAN.jobs
    }
    record = {
        **{name: getattr(trial, name) for name in ("name", "volume", "rate", "repetition", "searching", "seconds")},
        "begin": begin,
        "end": end,
        "windowed": ["vehicle-distribution"],
        "reasons": [f"the load generator fell {behind} s behind its schedule"] if behind else [],
        "load": {"rate": trial.rate, "most_behind": behind},
        "throughput": float(trial.rate),
        "batches": measures.batch_times([{"at": begin, "duration_ms": 400}], begin=begin, end=end),
        "backlog": judge_backlog(series, rate=trial.rate).to_dict(),
        "latency": latencies,
        "markers": {name: told.to_dict() for name, told in latency_report(outcomes).items()},
        "cores": {"broker": 0.1, "jobs": 0.8, "load": 0.2, "measuring": 0.1, "others": 0.02},
        "memory_mb": {"broker": 400.0, "jobs": 1500.0},
        "late": 0,
        "dead_letters": 0,
        "parity": {
            job: {"rows": 10, "missing": 0, "extra": 0, "different": 0, "approximate": 0, "example": "", "right": True}
            for job in PLAN.jobs
        },
    }
    judge(record)
    (folder / "trial.json").write_text(json.dumps(record))
    return record


@pytest.fixture
def evaluation(tmp_path: Path) -> Path:
    campaign = Campaign(PLAN, SUBJECT, tmp_path)
    campaign.prepare()
    for number, trial in enumerate(PLAN.trials()):
        made(tmp_path, trial, number + 1, behind=2.5 if trial.name == "4x-2" else 0.0)
    (tmp_path / "sizes.json").write_text(json.dumps({"binary": {"value": 127.0, "lz4": 60.0}}))
    return tmp_path


def test_the_figures(evaluation: Path) -> None:
    write_report(evaluation, Campaign(PLAN, SUBJECT, evaluation).records())
    told = json.loads((evaluation / "summary.json").read_text())
    one, four = told["volumes"]
    assert (one["valid"], four["valid"], one["held"]) == (2, 1, 2)
    distribution = one["jobs"]["vehicle-distribution"]["results"]["committed"]
    assert distribution["p50"]["value"] == pytest.approx(1.5)
    assert distribution["count"] == 8000
    assert distribution["p50"]["samples"] == 80  # windows, not rows
    assert "needs 368 groups" in distribution["p99"]["warning"]
    assert four["jobs"]["emergency-stop-sql"]["results"]["committed"]["p50"]["value"] == pytest.approx(1.5)
    assert one["jobs"]["vehicle-distribution"]["markers"]["markers"] == 100
    assert told["highest"] == {"held": 1, "not_held": [4]}
    assert [row["unit"] for row in told["readme"]] == ["s", "s", "events/s"]
    assert told["conditions"]["cores"] >= 1


def test_the_highest_volume_that_the_search_found_is_told_like_the_planned_ones(evaluation: Path) -> None:
    made(evaluation, PLAN.search_trial(2), 9)
    page = write_report(evaluation, Campaign(PLAN, SUBJECT, evaluation).records()).read_text()
    told = json.loads((evaluation / "summary.json").read_text())
    assert [(each["volume"], each["searched"]) for each in told["volumes"]] == [(1, False), (2, True), (4, False)]
    found = told["volumes"][1]["jobs"]["vehicle-distribution"]["results"]["committed"]
    assert found["p50"]["value"] == pytest.approx(2.0)
    assert "at 2,800 events/s" in told["readme"][0]["what"], "the front page shows what was planned"
    assert ">2 x</td><td>vehicle-distribution</td>" in page


def test_the_page_holds_everything_itself(evaluation: Path) -> None:
    page = write_report(evaluation, Campaign(PLAN, SUBJECT, evaluation).records()).read_text()
    assert page.count("<svg") == 4
    assert "src=" not in page
    assert "href=" not in page.replace('xlink:href="#', "")
    assert "not valid" in page
    assert "the load generator fell 2.5 s behind its schedule" in page
    assert "Highest volume held with a flat backlog: 1 x (700 events/s); 4 x was not." in page


def test_a_failed_trial_is_told(evaluation: Path) -> None:
    failure = {"name": "16x-1", "problem": "headrace run <b>ended</b>"}
    page = write_report(evaluation, Campaign(PLAN, SUBJECT, evaluation).records(), failures=[failure]).read_text()
    assert "headrace run &lt;b&gt;ended&lt;/b&gt;" in page


def test_an_evaluation_goes_on_only_with_its_own_plan(evaluation: Path) -> None:
    again = Campaign(PLAN, SUBJECT, evaluation)
    assert [record["name"] for record in again.prepare()] == ["1x-1", "1x-2", "4x-1", "4x-2"]
    other = Campaign(Plan(jobs=PLAN.jobs, volumes=(1, 4), seconds=60, repetitions=2), SUBJECT, evaluation)
    with pytest.raises(ConfigError, match=r"another plan \(seconds was 200, is 60\)"):
        other.prepare()
