"""`headrace watermarks` reads what a job says of its sources."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import polars as pl
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.engine import MemorySegments
from headrace.engine.group import Arrivals, Group, Seen, Timekeeping
from headrace.spark.checkpoint.watermarks_file import StandingFile
from headrace.time import bounded
from headrace.time.instants import INSTANT
from headrace.windows import WindowOperator, count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000


def _standing() -> dict[str, Any]:
    """What a group says after two partitions brought events, one of them 20 s behind the other."""
    strategy = bounded("1s")
    operator = WindowOperator(("k",), tumbling("10s"), {"n": count()})
    schema = pl.Schema({"k": pl.String, "event_time": INSTANT})
    group = Group(operator, (Timekeeping(strategy, name="input.a"),), schema, report=True)
    seen = []
    for partition, seconds in (("input.a/0", [10, 40, 39]), ("input.a/1", [20])):
        times = pl.Series([second * SECOND for second in seconds]).cast(INSTANT)
        seen.append(Seen(0, partition, strategy.observe(pl.DataFrame({"event_time": times}))))
    departures = group.turn(MemorySegments(), Arrivals(seen=seen, now=41 * SECOND))
    partitions = [asdict(report) for report in departures.partitions]
    return {"watermark": departures.reached, "now": departures.now, "partitions": partitions}


def run(checkpoints: Path, *words: str) -> str:
    setting = f"spark.checkpoint_directory={checkpoints}"
    result = CliRunner().invoke(app, ["--set", setting, "watermarks", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_nothing_yet_says_how_to_begin(tmp_path: Path) -> None:
    assert "headrace run" in run(tmp_path / "none")
    assert json.loads(run(tmp_path / "none", "--json")) == {}


def test_it_names_the_partition_that_holds_the_others_back(tmp_path: Path) -> None:
    (tmp_path / "a-job").mkdir()
    StandingFile(tmp_path / "a-job").write({"a-job": _standing()}, batch=3)
    lines = run(tmp_path).splitlines()
    held = next(line for line in lines if line.startswith("input.a/1"))
    free = next(line for line in lines if line.startswith("input.a/0"))
    assert "holds back" in held
    assert "20s" in held
    assert "active" in free
    assert "a-job: watermark 1970-01-01T00:00:19.000+00:00" in lines[0]
    told = json.loads(run(tmp_path, "a-job", "--json"))
    assert [part["holds_back"] for part in told["a-job"]["partitions"]] == [False, True]
    assert json.loads(run(tmp_path, "vehicle-distribution", "--json")) == {}
    unknown = CliRunner().invoke(app, ["watermarks", "another"])
    assert unknown.exit_code == 2
    assert "there is no job 'another'" in unknown.output


def test_the_worst_clocks_are_shown(tmp_path: Path) -> None:
    strategy = bounded("1s", clock="k")
    operator = WindowOperator(("k",), tumbling("10s"), {"n": count()})
    schema = pl.Schema({"k": pl.String, "event_time": INSTANT, "ingestion_time": INSTANT})
    group = Group(operator, (Timekeeping(strategy, name="input.a"),), schema, report=True)
    offsets = [0, 0, 0, 0, 0, 0, 0, 4, -90]
    rows = pl.DataFrame(
        {
            "k": [f"bus {number}" for number in range(len(offsets))],
            "event_time": pl.Series([(1000 + each) * SECOND for each in offsets]).cast(INSTANT),
            "ingestion_time": pl.Series([1000 * SECOND] * len(offsets)).cast(INSTANT),
        }
    )
    seen = [Seen(0, "input.a/0", strategy.observe(rows))]
    departures = group.turn(MemorySegments(), Arrivals(seen=seen, now=1001 * SECOND))
    partitions = [asdict(report) for report in departures.partitions]
    standing = {"watermark": departures.reached, "now": departures.now, "partitions": partitions}
    (tmp_path / "a-job").mkdir()
    StandingFile(tmp_path / "a-job").write({"a-job": standing}, batch=3)
    lines = run(tmp_path, "--clocks").splitlines()
    assert lines[0] == "a-job: of about 9 clocks 1 are ahead by more than a second, 1 behind."
    assert [line.split() for line in lines[-2:]] == [["bus", "8", "1min", "30s", "behind"], ["bus", "7", "4s", "ahead"]]
    (tmp_path / "b-job").mkdir()
    StandingFile(tmp_path / "b-job").write({"b-job": _standing()}, batch=3)
    assert "nothing is known of its clocks" in run(tmp_path, "--clocks", "b-job")
