"""The Parquet sink: what readers see, and what a kill at any point leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.sinks import BatchFrames, BatchToken, SinkError, parquet
from headrace.testing import check_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.sinks import SinkWriter

parquet_module = sys.modules["headrace.sinks.parquet"]
ROOT = Path(__file__).parents[2]
START = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)


def frames(*numbers: int) -> BatchFrames:
    times = [START + timedelta(seconds=number) for number in numbers]
    return BatchFrames("counts", {"counts": pl.DataFrame({"event_time": times, "n": list(numbers)})})


def token(batch: int, checkpoint: str = "c1") -> BatchToken:
    return BatchToken(checkpoint, batch, {"scans": {0: batch}}, now=batch)


def shown(path: Path, table: str = "counts") -> pl.DataFrame:
    return pl.read_parquet(path / table / "**/*.parquet") if (path / table).exists() else pl.DataFrame()


def numbers(path: Path) -> list[int]:
    return sorted(shown(path)["n"].to_list()) if (path / "counts").exists() else []


@pytest.mark.parametrize("options", [{}, {"roll": "0s"}, {"partition_by": "date"}, {"roll_rows": 1}])
def test_the_contract(tmp_path: Path, options: dict[str, str]) -> None:
    def read(table: str) -> pl.DataFrame:
        return shown(tmp_path, table)

    check_sink(parquet(tmp_path, **options), read)


def test_rows_are_staged_until_it_is_time_and_then_are_one_file(tmp_path: Path) -> None:
    writer = parquet(tmp_path, roll="1h", roll_rows=4).open("counts")
    writer.write(token(1), frames(1))
    writer.write(token(2), frames(2, 3))
    assert numbers(tmp_path) == []
    writer.write(token(3), frames(4))
    assert numbers(tmp_path) == [1, 2, 3, 4]
    assert len(list((tmp_path / "counts").iterdir())) == 1
    assert list((tmp_path / "_headrace/counts/staged").iterdir()) == []
    writer.write(token(4), frames(5))
    writer.close()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]


def test_rows_go_to_the_directory_of_their_date(tmp_path: Path) -> None:
    writer = parquet(tmp_path, partition_by="date").open("counts")
    writer.write(token(1), frames(0, 1, 2, 3))
    writer.close()
    names = sorted(each.name for each in (tmp_path / "counts").iterdir())
    assert names == ["date=2026-03-01", "date=2026-03-02"]
    read = pl.read_parquet(tmp_path / "counts", hive_partitioning=True).sort("n")
    assert read["date"].cast(str).to_list() == ["2026-03-01"] * 2 + ["2026-03-02"] * 2


def test_an_empty_batch_writes_nothing(tmp_path: Path) -> None:
    writer = parquet(tmp_path).open("counts")
    before = (tmp_path / "_headrace/counts/commit.json").stat().st_mtime_ns
    writer.write(token(1), BatchFrames("counts", {}))
    assert (tmp_path / "_headrace/counts/commit.json").stat().st_mtime_ns == before
    assert writer.last() is None


def test_two_jobs_share_a_directory(tmp_path: Path) -> None:
    one, two = parquet(tmp_path).open("counts"), parquet(tmp_path).open("sums")
    one.write(token(1), frames(1))
    two.write(token(1), BatchFrames("sums", {"sums": pl.DataFrame({"sum": [7]})}))
    one.close()
    two.close()
    assert numbers(tmp_path) == [1]
    assert shown(tmp_path, "sums")["sum"].to_list() == [7]


def test_a_run_that_was_replaced_can_write_no_more(tmp_path: Path) -> None:
    old = parquet(tmp_path, roll="0s").open("counts")
    old.write(token(1), frames(1))
    new = parquet(tmp_path, roll="0s").open("counts")
    with pytest.raises(SinkError, match="another run writes to"):
        old.write(token(2), frames(9))
    new.write(token(2), frames(2))
    new.close()
    assert numbers(tmp_path) == [1, 2]


def test_another_checkpoint_goes_on_behind_what_is_staged(tmp_path: Path) -> None:
    parquet(tmp_path).open("counts").write(token(7), frames(1))
    after = parquet(tmp_path).open("counts")
    assert after.last() == token(7)
    after.write(token(0, "c2"), frames(2))
    after.close()
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("damage", ["no json", '{"version": 2}', '{"version": 1, "writer": "w"}', "[]"])
def test_a_damaged_commit_is_named(tmp_path: Path, damage: str) -> None:
    parquet(tmp_path).open("counts")
    (tmp_path / "_headrace/counts/commit.json").write_text(damage)
    with pytest.raises(SinkError, match=r"commit\.json"):
        parquet(tmp_path).open("counts")


@pytest.mark.parametrize("options", [{"partition_by": "hour"}, {"roll": "-1s"}, {"roll_rows": 0}, {"path": ""}])
def test_options_are_checked_where_they_are_written(options: dict[str, object]) -> None:
    with pytest.raises(PlanError):
        parquet(**{"path": "out", **options})  # type: ignore[arg-type]


class Killed(BaseException):
    """Stands for SIGKILL: nothing that the writer would still do is done."""


def write_all(path: Path, roll_rows: int) -> None:
    writer: SinkWriter = parquet(path, roll="1h", roll_rows=roll_rows, partition_by="date").open("counts")
    last = writer.last()
    for batch in range(0 if last is None else last.batch + 1, 5):
        writer.write(token(batch), frames(2 * batch, 2 * batch + 1))
    writer.close()


def kill_before(monkeypatch: pytest.MonkeyPatch, operation: int) -> None:
    """Stop at the n-th operation on files."""
    to_do = [operation]

    def counted(whole: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            to_do[0] -= 1
            if to_do[0] == 0:
                raise Killed
            return whole(*arguments)

        return call

    for name in ("write", "replace", "move", "delete"):
        monkeypatch.setattr(parquet_module._Files, name, counted(getattr(parquet_module._Files, name)))


@pytest.mark.parametrize("roll_rows", [1, 4])
def test_a_kill_before_any_file_operation_loses_and_doubles_nothing(tmp_path: Path, roll_rows: int) -> None:
    kills = 0
    for operation in range(1, 200):
        path = tmp_path / str(operation)
        with pytest.MonkeyPatch.context() as patched:
            kill_before(patched, operation)
            try:
                write_all(path, roll_rows)
            except Killed:
                kills += 1
            else:
                break
        seen = numbers(path)
        assert len(seen) == len(set(seen))
        write_all(path, roll_rows)
        assert numbers(path) == list(range(10))
        assert list((path / "_headrace/counts/staged").iterdir()) == []
    assert kills > 20


_ENDLESS = """
from itertools import count
import sys
from headrace.sinks import parquet
from tests.sinks.test_parquet import frames, token

writer = parquet(sys.argv[1], roll="0s").open("counts")
last = writer.last()
for batch in count(0 if last is None else last.batch + 1):
    writer.write(token(batch), frames(batch))
    print(batch, flush=True)
"""


def test_a_process_that_is_killed_at_any_moment_leaves_each_batch_once(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    command = [sys.executable, "-c", _ENDLESS, str(tmp_path)]
    last = -1
    for _ in range(2):
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as writing:
            assert writing.stdout is not None
            for _ in range(5):
                last = int(writing.stdout.readline())
            writing.send_signal(signal.SIGKILL)
    parquet(tmp_path).open("counts").close()
    seen = numbers(tmp_path)
    assert seen == list(range(len(seen)))
    assert len(seen) > last
