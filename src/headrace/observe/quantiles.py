"""Percentiles that say how sure they are.

A percentile of a sample is an estimate. How far off it may be depends on how many values lie beyond it: the p99 of 100
values is decided by one of them. So every percentile here comes with a confidence interval that assumes nothing about
the distribution, and with a warning where the sample is too small to have one.

- **Independent values** (markers): the interval of order statistics. Of n values, the number below the true quantile is
  binomial; the interval runs between the ranks that this number stays between with the confidence asked for.
- **Values in clusters** (all results of a window become visible in the same moment): thousands of rows may be a few
  dozen observations. Clusters, not rows, are what is counted.

A value that never came (a lost marker) counts as infinite: leaving it out would flatter the tail.

>>> estimate = quantile(list(range(1, 101)), 0.5)
>>> estimate.value, estimate.low, estimate.high
(50.0, 40.0, 61.0)
>>> quantile(list(range(1, 101)), 0.99).warning
'p99 of 100 values: its confidence interval needs 368'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

CONFIDENCE = 0.95
#: The percentiles that reports show.
USUAL = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Quantile:
    """An estimated quantile.

    Args:
        q: Which one, 0 to 1.
        value: The estimate; infinite where it falls on values that never came, NaN if there were no values.
        low: Lower end of its confidence interval; NaN where the sample is too small to tell.
        high: Upper end, likewise.
        samples: Independent observations behind it.
        warning: What to know before believing it; empty if there is nothing.
    """

    q: float
    value: float
    low: float
    high: float
    samples: int
    warning: str = ""

    @property
    def name(self) -> str:
        """How people call it.

        >>> Quantile(0.999, 1.0, 1.0, 1.0, 5000).name
        'p99.9'
        """
        return percent(self.q)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it: what is not finite becomes None, with the reason in `warning`."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        told: dict[str, Any] = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        return told | {"samples": self.samples, "warning": self.warning}


def percent(q: float) -> str:
    """Write a quantile as a percentile.

    >>> percent(0.5), percent(0.99), percent(0.999)
    ('p50', 'p99', 'p99.9')
    """
    return f"p{q * 100:.4g}"


def samples_needed(q: float, *, confidence: float = CONFIDENCE) -> int:
    """Tell how many values a quantile needs for a confidence interval with two ends.

    >>> samples_needed(0.5), samples_needed(0.9), samples_needed(0.99)
    (6, 36, 368)
    """
    if not 0 < q < 1:
        raise PlanError(f"a quantile of {q}", hint="Give a number between 0 and 1.")
    tail = (1 - confidence) / 2
    return math.ceil(math.log(tail) / math.log(max(q, 1 - q)))


def quantile(values: ArrayLike, q: float, *, lost: int = 0, confidence: float = CONFIDENCE) -> Quantile:
    """Estimate a quantile of independent values by the nearest rank.

    Args:
        values: The values that came.
        q: Which quantile, 0 to 1.
        lost: How many never came.
        confidence: Of the interval.

    >>> quantile([1.0] * 98, 0.99, lost=2).value
    inf
    """
    needed = samples_needed(q, confidence=confidence)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if lost:
        ordered = np.append(ordered, np.full(lost, np.inf))
    count = len(ordered)
    if count == 0:
        return Quantile(q, math.nan, math.nan, math.nan, 0, f"{percent(q)} of no values")
    warning = f"{percent(q)} of {count} values: its confidence interval needs {needed}" if count < needed else ""
    low, high = _ranks(count, q, confidence)
    return Quantile(
        q,
        float(ordered[_rank(count, q)]),
        float(ordered[low]) if low >= 0 else math.nan,
        float(ordered[high]) if high < count else math.nan,
        count,
        warning,
    )


def clustered_quantile(values: ArrayLike, clusters: ArrayLike, q: float, *, confidence: float = CONFIDENCE) -> Quantile:
    """Estimate a quantile of values that come in clusters, such as rows of windows.

    The interval is that of as many independent values as there are clusters (fewer, if some are much larger than
    others: Kish's effective size), read off the distribution of all values at the levels of its ranks. Values of a
    cluster that differ can only make it wider than it need be.

    Args:
        values: All values.
        clusters: The cluster of each: any numbers.
        q: Which quantile.
        confidence: Of the interval.

    >>> estimate = clustered_quantile([1.0, 1.0, 3.0, 3.0], [0, 0, 1, 1], 0.5)
    >>> estimate.value, estimate.samples
    (1.0, 2)
    """
    needed = samples_needed(q, confidence=confidence)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) == 0:
        return Quantile(q, math.nan, math.nan, math.nan, 0, f"{percent(q)} of no values")
    _, sizes = np.unique(np.asarray(clusters), return_counts=True)
    count = int(sizes.sum() ** 2 / (sizes.astype(np.float64) ** 2).sum() + 1e-9)
    low, high = _ranks(count, q, confidence)
    # Rank r of n stands for the levels from r / n to (r + 1) / n: take the outer ends.
    told = f"{percent(q)} of {len(ordered):,} values in {count} groups: its confidence interval needs {needed} groups"
    return Quantile(
        q,
        float(ordered[_rank(len(ordered), q)]),
        float(ordered[_rank(len(ordered), low / count)]) if low >= 0 else math.nan,
        float(ordered[_rank(len(ordered), (high + 1) / count)]) if high < count else math.nan,
        count,
        told if count < needed else "",
    )


def _rank(count: int, q: float) -> int:
    # A hair less, since 0.99 * 100 is 99.00000000000001 to a computer.
    return max(0, math.ceil(q * count - 1e-9) - 1)


def _ranks(count: int, q: float, confidence: float) -> tuple[int, int]:
    """Give the ranks (from 0) between which the true quantile lies; -1 or `count` where there is none."""
    tail = (1 - confidence) / 2
    number = np.arange(count + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, count + 1)))])
    mass = np.exp(logs[count] - logs[number] - logs[::-1] + number * math.log(q) + (count - number) * math.log1p(-q))
    below = np.cumsum(mass)
    # The rank r value is above the quantile if at most r values are below it, and so on.
    low = int(np.searchsorted(below, tail)) - 1
    high = int(np.searchsorted(below, 1 - tail))
    return low, high


@dataclass(frozen=True, slots=True)
class Summary:
    """What is told about a set of latencies, in seconds.

    Args:
        quantiles: In the order asked for.
        most: The largest value; infinite if some never came.
        mean: Of those that came.
        count: How many came.
    """

    quantiles: tuple[Quantile, ...]
    most: float
    mean: float
    count: int

    @property
    def warnings(self) -> list[str]:
        """What to know before believing it."""
        return [each.warning for each in self.quantiles if each.warning]

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        told: dict[str, Any] = {each.name: each.to_dict() for each in self.quantiles}
        finite = {"max": self.most, "mean": self.mean}
        return told | {n: v if math.isfinite(v) else None for n, v in finite.items()} | {"count": self.count}


def summarise(
    values: ArrayLike, *, clusters: ArrayLike | None = None, lost: int = 0, quantiles: Sequence[float] = USUAL
) -> Summary:
    """Summarise latencies.

    Args:
        values: The values that came.
        clusters: The cluster of each value, if they are not independent; then nothing may be lost.
        lost: How many never came.
        quantiles: Which ones to tell.
    """
    came = np.asarray(values, dtype=np.float64)
    if clusters is None:
        told = tuple(quantile(came, q, lost=lost) for q in quantiles)
    else:
        told = tuple(clustered_quantile(came, clusters, q) for q in quantiles)
    most = math.inf if lost else float(came.max()) if len(came) else math.nan
    return Summary(told, most, float(came.mean()) if len(came) else math.nan, len(came))
