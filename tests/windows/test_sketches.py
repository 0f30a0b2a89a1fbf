"""Sketches: close to the truth whatever the split, and honest about what they cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest

from headrace.errors import JobError, PlanError
from headrace.windows import Aggregate, custom, distinct, frequent_items, quantile
from headrace.windows.tdigest import Digest

RANDOM = np.random.default_rng(7)
VALUES = RANDOM.normal(100, 15, 20_000)


def fold(aggregate: Aggregate, values: Any, parts: int) -> Any:
    rows = pl.DataFrame({"v": values}).with_row_index("n").with_columns(part=pl.col("n") % parts, key=pl.lit(1))
    partials = rows.group_by("key", "part").agg(aggregate.partial("x"))
    merged = partials.group_by("key").agg(aggregate.merge("x"))
    value = merged.select(aggregate.result("x")).item()
    return value.to_list() if isinstance(value, pl.Series) else value


def rank_error(values: Any, estimate: float, q: float) -> float:
    return abs(float((values <= estimate).mean()) - q)


@pytest.mark.parametrize("parts", [1, 2, 50])
@pytest.mark.parametrize(("method", "bound"), [("kll", 0.02), ("tdigest", 0.01)])
def test_quantiles_are_close(method: Any, bound: float, parts: int) -> None:
    levels = [0.01, 0.5, 0.9, 0.99]
    estimates = fold(quantile("v", levels, method=method), VALUES, parts)
    assert all(rank_error(VALUES, e, q) <= bound for e, q in zip(estimates, levels, strict=True))
    assert fold(quantile("v", 0.5, method=method), VALUES, parts) == pytest.approx(100, abs=2)


@pytest.mark.parametrize("method", ["kll", "tdigest"])
def test_small_data_is_exact_and_nulls_and_nan_are_left_out(method: Any) -> None:
    values = pl.Series([None, 3.0, float("nan"), 1.0, 2.0])
    assert fold(quantile("v", [0.0, 0.5, 1.0], method=method), values, 3) == [1.0, 2.0, 3.0]
    nothing = pl.Series([None], dtype=pl.Float64)
    assert fold(quantile("v", 0.5, method=method), nothing, 1) is None
    assert fold(quantile("v", [0.5], method=method), nothing, 1) == [None]


@pytest.mark.parametrize("parts", [1, 20])
@pytest.mark.parametrize("method", ["hll", "theta"])
@pytest.mark.parametrize("kind", [pl.Int64, pl.String, pl.Float64])
def test_distinct_counts_are_close(method: Any, parts: int, kind: Any) -> None:
    values = pl.Series(RANDOM.integers(0, 5_000, 20_000)).cast(kind)
    assert fold(distinct("v", method=method), values, parts) == pytest.approx(values.n_unique(), rel=0.06)


def test_distinct_of_nothing_and_of_other_types() -> None:
    assert fold(distinct("v", method="hll"), pl.Series([None], dtype=pl.Int64), 1) == 0
    assert round(fold(distinct("v", method="hll"), pl.Series([True, False, True]), 2)) == 2
    assert round(fold(distinct("v", method="theta"), pl.Series([1, 2, 2]).cast(pl.Date), 2)) == 2


def test_frequent_items_bound_their_counts() -> None:
    values = [str(n) for n in range(200) for _ in range(1 if n else 500)]
    top, *_ = fold(frequent_items("v", 3, lg_size=5), values, 4)
    assert top["value"] == "0"
    assert top["at_least"] <= 500 <= top["at_most"]


def test_a_digest_survives_bytes_on_both_sides_of_its_limit() -> None:
    for size in (0, 1, 5, 50, 5_000):
        digest = Digest(20)
        digest.update(VALUES[:size].copy())
        again = Digest.load(digest.pack())
        assert again.centroids().total == size
        other = Digest(20)
        other.update(VALUES[:30].copy())
        other.merge(again)
        assert other.centroids().total == size + 30
        if size:
            low, high = VALUES[:size].min(), VALUES[:size].max()
            found = [again.centroids().quantile(q) for q in (0, 0.3, 0.7, 1)]
            assert found == sorted(found)  # type: ignore[type-var]
            assert (found[0], found[-1]) == (low, high)
            assert again.centroids().cdf(low - 1) == 0
            assert again.centroids().cdf(high + 1) == 1


def test_a_custom_aggregate_merges_takes_back_and_says_what_went_wrong() -> None:
    spread = custom(
        ["v"],
        create=list,
        add=lambda state, rows: sorted([*state, *rows["v"]]),
        remove=lambda state, rows: [v for v in state if v not in set(rows["v"])],
        merge=lambda one, two: sorted([*one, *two]),
        result=lambda state: state[-1] - state[0] if state else None,
        dtype=pl.Int64,
        name="spread",
    )
    assert fold(spread, [5, 1, 9, 2], 2) == 8
    rows = pl.DataFrame({"v": [1, 5, 9, 9], "is_retraction": [False, False, False, True]})
    assert rows.select(spread.retracting().partial("x")).select(spread.result("x")).item() == 4
    broken = custom(
        ["v"], create=set, add=lambda s, _: s, merge=lambda s, _: s, result=len, dtype=pl.Int64, name="broken"
    )
    with pytest.raises(JobError, match="not JSON"):
        fold(broken, [1], 1)


def test_what_cannot_work_is_refused() -> None:
    for sketch in (
        quantile("v", 0.5, method="kll"),
        quantile("v", 0.5, method="tdigest"),
        distinct("v", method="hll"),
        frequent_items("v", 3),
    ):
        with pytest.raises(PlanError, match="cannot take back"):
            sketch.retracting()
        assert sketch.columns() == ["v"]
        assert sketch.describe()
    with pytest.raises(PlanError, match="no method"):
        quantile("v", 0.5, method="guess")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="exact only"):
        distinct("v", values=True, method="hll")
    with pytest.raises(PlanError, match="reads no columns"):
        custom([], create=int, add=lambda s, _: s, merge=lambda s, _: s, result=int, dtype=pl.Int64)
