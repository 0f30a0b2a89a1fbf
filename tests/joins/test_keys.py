"""Keys of many types, keys with very many rows, and keys that cannot be compared."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Sequence

INSTANT = pl.Datetime("us", "UTC")
NAN, LARGE = float("nan"), Decimal("123456789012345678901234.01")


def stream(name: str, kind: Any, value: str) -> Stream:
    return Stream.rows(name, {"k": kind, value: pl.Int64}).watermark(bounded("0s"))


def rows(kind: Any, value: str, keys: Sequence[Any]) -> pl.DataFrame:
    frame = pl.DataFrame({"k": pl.Series(keys, dtype=kind)}).with_row_index(value)
    return frame.select("k", pl.col(value).cast(pl.Int64), pl.lit(0).cast(INSTANT).alias("event_time"))


@pytest.mark.parametrize(
    ("left", "left_keys", "right", "right_keys", "pairs"),
    [
        (pl.Int32, [1, -1, None], pl.Int64, [-1, 1, None], [(0, 1), (1, 0)]),
        (pl.Int64, [1, 2], pl.Float64, [2.0, 1.5], [(1, 0)]),
        (pl.Float64, [NAN, -0.0, float("inf")], pl.Float64, [0.0, NAN, 1.0], [(0, 1), (1, 0)]),
        (pl.Float32, [0.5, 0.1], pl.Float64, [0.5, 0.1], [(0, 0)]),
        (pl.UInt64, [2**63 + 5, 7], pl.Int64, [-(2**63) + 5, 7], [(1, 1)]),
        (pl.Decimal(38, 2), [LARGE], pl.Decimal(38, 2), [LARGE + Decimal("0.01"), LARGE], [(0, 1)]),
        (pl.Decimal(38, 2), [Decimal("1.10")], pl.Decimal(38, 4), [Decimal("1.1"), Decimal("1.1001")], [(0, 0)]),
        (pl.Decimal(38, 2), [Decimal(2**53 + 1)], pl.Int64, [2**53, 2**53 + 1], [(0, 1)]),
        (pl.Decimal(38, 0), [Decimal(100), Decimal(1)], pl.Int64, [1, 100], [(0, 1), (1, 0)]),
        (pl.Decimal(10, 2), [Decimal("2.5")], pl.Float64, [2.5, 2.25], [(0, 0)]),
        (pl.Enum(["x", "y"]), ["y", "x"], pl.String, ["x", "z"], [(1, 0)]),
        (pl.Binary, [b"x"], pl.Binary, [b"", b"x"], [(0, 1)]),
        (pl.Date, [None], pl.Date, [None], []),
    ],
)
@pytest.mark.parametrize("groups", [1, 5])
def test_keys_are_compared_by_their_value(
    left: Any, left_keys: list[Any], right: Any, right_keys: list[Any], pairs: list[tuple[int, int]], groups: int
) -> None:
    joined = stream("l", left, "a").join(stream("r", right, "b"), on="k", within=("0s", "0s"))
    runner = Runner(joined, key_groups=groups)

    runner.step({"l": rows(left, "a", left_keys)})
    found = runner.step({"r": rows(right, "b", right_keys)}).results

    assert sorted(found.select("a", "b").rows()) == sorted(pairs)


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        (pl.Boolean, pl.Int64, "keys of different types: k is Boolean, k is Int64"),
        (pl.Date, pl.Datetime("us", "UTC"), "keys of different types"),
        (pl.List(pl.Int64), pl.List(pl.Int64), "cannot be a key"),
        (pl.Struct({"a": pl.Int64}), pl.Struct({"a": pl.Int64}), "cannot be a key"),
    ],
)
def test_keys_that_cannot_be_compared_are_refused(left: Any, right: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        stream("l", left, "a").join(stream("r", right, "b"), on="k", within=("0s", "0s"))


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
def test_a_key_with_very_many_rows_costs_what_its_near_pairs_cost(how: Any) -> None:
    """400 million pairs have the same key, and 3 of 20,000 right rows are near each left one."""
    many = 20_000
    joined = stream("l", pl.Int64, "a").join(stream("r", pl.Int64, "b"), on="k", within=("-1ms", "1ms"), how=how)
    times = (pl.col("value") * 1000).cast(INSTANT).alias("event_time")
    frames = {
        name: pl.DataFrame({"value": range(many + more)}).select(
            pl.lit(7).alias("k"), pl.col("value").alias(value), times
        )
        for name, value, more in (("l", "a", 0), ("r", "b", 100))
    }
    runner = Runner(joined)

    found = pl.concat([runner.step(frames).results, runner.finish().results])

    if how == "semi":
        assert sorted(found["a"]) == list(range(many))
        return
    near = found.drop_nulls()
    assert near.height == 3 * many - 1
    assert (near["a"] - near["b"]).abs().max() == 1
    alone = found.filter(pl.col("a").is_null())
    assert sorted(alone["b"]) == (list(range(many + 1, many + 100)) if how == "full" else [])
