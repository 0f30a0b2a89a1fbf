"""Percentiles: right on known samples, with intervals that hold what they promise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headrace.errors import PlanError
from headrace.observe.quantiles import clustered_quantile, quantile, samples_needed, summarise


@pytest.mark.parametrize(
    ("values", "q", "expected"),
    [
        ([5.0], 0.5, 5.0),
        ([1.0, 2.0], 0.5, 1.0),
        ([3.0, 1.0, 2.0], 0.5, 2.0),
        (range(1, 101), 0.5, 50.0),
        (range(1, 101), 0.9, 90.0),
        (range(1, 101), 0.99, 99.0),
        (range(1, 1001), 0.99, 990.0),
    ],
)
def test_the_nearest_rank(values: list[float], q: float, expected: float) -> None:
    assert quantile(list(values), q).value == expected


# The ranks of the textbook: B(n, q) stays within them with 95 %.
@pytest.mark.parametrize(
    ("count", "q", "low", "high"),
    [(100, 0.5, 40, 61), (10, 0.5, 2, 9), (6, 0.5, 1, 6), (1000, 0.99, 983, 997), (36, 0.9, 29, 36)],
)
def test_the_interval_of_order_statistics(count: int, q: float, low: float, high: float) -> None:
    estimate = quantile(list(range(1, count + 1)), q)
    assert (estimate.low, estimate.high) == (low, high)
    assert not estimate.warning


@pytest.mark.parametrize(("count", "q"), [(5, 0.5), (35, 0.9), (367, 0.99)])
def test_too_few_values_are_told(count: int, q: float) -> None:
    estimate = quantile(list(range(count)), q)
    assert math.isnan(estimate.high)
    assert f"needs {samples_needed(q)}" in estimate.warning
    assert count + 1 == samples_needed(q)


@pytest.mark.parametrize(("count", "q"), [(60, 0.5), (150, 0.9), (500, 0.99)])
def test_the_interval_holds_the_true_quantile_as_often_as_promised(count: int, q: float) -> None:
    draw = np.random.default_rng(7)
    truth = -math.log(1 - q)
    estimates = [quantile(draw.exponential(size=count), q) for _ in range(2000)]
    share = np.mean([each.low <= truth <= each.high for each in estimates])
    assert share > 0.935  # 95 %, less three standard errors of 2,000 draws


def test_values_of_a_cluster_count_once() -> None:
    draw = np.random.default_rng(7)
    truth = math.log(2)
    held = naive = 0
    for _ in range(500):
        values, clusters = np.repeat(draw.exponential(size=50), 40), np.repeat(np.arange(50), 40)
        estimate = clustered_quantile(values, clusters, 0.5)
        assert estimate.samples == 50
        held += estimate.low <= truth <= estimate.high
        row_by_row = quantile(values, 0.5)
        naive += row_by_row.low <= truth <= row_by_row.high
    assert held / 500 > 0.92
    assert naive / 500 < 0.6  # what it would be to take 2,000 rows for 2,000 observations


def test_clusters_of_very_different_size_are_fewer_than_they_look() -> None:
    values = np.ones(1009)
    clusters = [0] * 1000 + list(range(1, 10))
    assert clustered_quantile(values, clusters, 0.5).samples == 1


def test_what_never_came_is_infinite() -> None:
    estimate = quantile([1.0] * 95, 0.99, lost=5)
    assert estimate.value == math.inf
    assert estimate.to_dict()["value"] is None
    summary = summarise([1.0] * 95, lost=5)
    assert summary.most == math.inf
    assert summary.quantiles[0].value == 1.0
    assert summary.count == 95


def test_nothing_at_all() -> None:
    summary = summarise([])
    assert math.isnan(summary.quantiles[0].value)
    assert summary.warnings == ["p50 of no values", "p90 of no values", "p99 of no values"]
    assert clustered_quantile([], [], 0.5).samples == 0


@pytest.mark.parametrize("q", [0.0, 1.0, -1.0, 2.0])
def test_a_quantile_lies_between_0_and_1(q: float) -> None:
    with pytest.raises(PlanError, match="a quantile of"):
        quantile([1.0], q)
