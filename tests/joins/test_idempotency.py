"""Joined results have idempotency keys of their own, whatever the key of the join is."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.inprocess import Runner
from headrace.sinks.idempotency import KEY_COLUMN, idempotency_keys
from headrace.stream import Job, Stream
from headrace.stream.sink_frames import keyed_results
from headrace.time import bounded

INSTANT = pl.Datetime("us", "UTC")


def rows(kind: Any, name: str, keys: list[int], time: int) -> pl.DataFrame:
    frame = pl.DataFrame({name: keys}).cast({name: kind})
    return frame.with_columns(pl.lit(time).cast(INSTANT).alias("event_time"))


@pytest.mark.parametrize("kinds", [(pl.Int64, pl.Int64), (pl.Float64, pl.Int64), (pl.Decimal(10, 2), pl.Int64)])
@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_results_of_several_key_groups_and_batches_are_told_apart(kinds: tuple[Any, Any], how: Any) -> None:
    left = Stream.rows("left", {"a": kinds[0]}).watermark(bounded("0s"))
    right = Stream.rows("right", {"b": kinds[1]}).watermark(bounded("0s"))
    job = Job("joined", left.join(right, on={"a": "b"}, within=("0s", "0s"), how=how))
    runner = Runner(job, key_groups=4)
    found = []
    for number in range(6):
        # All rows have the same time, so that the key and the number of a result are all that tells it from others.
        batch = {"left": [number, 50 + number], "right": [number, 80 + number]}
        found.append(
            runner.step(
                {
                    "left": rows(kinds[0], "a", batch["left"], 0),
                    "right": rows(kinds[1], "b", batch["right"], 0),
                }
            ).results
        )
    found.append(runner.finish().results)

    keys = [key for part in found for key in idempotency_keys(part, runner.pipeline.result_keys, job.name)]

    expected = {"inner": 6, "left": 12, "right": 12, "full": 18, "semi": 6, "anti": 6}[how]
    assert (len(keys), len(set(keys))) == (expected, expected)


def test_results_without_their_number_are_told_apart_by_the_batch() -> None:
    left = Stream.rows("left", {"a": pl.Int64}).watermark(bounded("0s"))
    right = Stream.rows("right", {"a": pl.Int64, "b": pl.Int64}).watermark(bounded("0s"))
    job = Job("joined", left.join(right, on="a", within=("0s", "0s")).select("a", "b"))
    runner = Runner(job)
    runner.step({"left": rows(pl.Int64, "a", [1], 0)})
    (way,) = runner.pipeline.outputs
    keys = []
    for number in range(3):
        batch = rows(pl.Int64, "a", [1, 1], 0).with_columns(b=pl.lit(7, pl.Int64))
        found = runner.step({"right": batch}).results
        assert "pane_index" not in found.columns
        given, again = (
            keyed_results(job, way, found, batch=str(number)).get_column(KEY_COLUMN).to_list() for _ in range(2)
        )
        assert given == again
        keys += given

    assert len(set(keys)) == 6
