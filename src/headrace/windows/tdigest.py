"""Reading a t-digest: quantiles and ranks from its centroids.

A t-digest keeps a stream as centroids (mean, weight), small at the ends and large in the middle. `datasketches` builds,
merges and stores them; this module reads them, with the rule that makes small data exact: a centroid of weight 1 *is* a
value, so nothing is interpolated across it, and of each larger centroid at the ends one value is known, the minimum
or the maximum.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import datasketches
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

_EMPTY, _SINGLE = 1, 2


@dataclass(frozen=True)
class Centroids:
    """What a t-digest holds, in order of the means."""

    means: Floats
    weights: Floats
    low: float
    high: float

    @property
    def total(self) -> float:
        """How many values were seen."""
        return float(self.weights.sum())

    def quantile(self, q: float) -> float | None:
        """Return the value below which the share `q` of the values lies; None where there are none.

        >>> digest = Digest(200)
        >>> digest.update(np.array([15.0, 20.0, 32.0, 60.0]))
        >>> [digest.centroids().quantile(q) for q in (0.0, 0.4, 0.5, 1.0)]
        [15.0, 20.0, 32.0, 60.0]
        """
        count = self.means.size
        if count == 0:
            return None
        place, total = q * self.total, self.total
        if place < 1 or total == 1:
            return self.low
        if place > total - 1:
            return self.high
        if count == 1:
            share = 0.0 if total <= 2 else (place - 1) / (total - 2)
            return self.low + share * (self.high - self.low)
        first, last = self.weights[0], self.weights[-1]
        if first > 1 and place < first / 2:
            return float(self.low + (place - 1) / (first / 2 - 1) * (self.means[0] - self.low))
        if last > 1 and total - place <= last / 2:
            return float(self.high - (total - place - 1) / (last / 2 - 1) * (self.high - self.means[-1]))
        # Each centroid is thought to sit in the middle of its weight; find the two around the place.
        middles = np.cumsum(self.weights) - self.weights / 2
        left = int(np.clip(np.searchsorted(middles, place, side="right") - 1, 0, count - 2))
        return self._between(left, place - middles[left], middles[left + 1] - place)

    def _between(self, left: int, behind: float, ahead: float) -> float:
        low, high = float(self.means[left]), float(self.means[left + 1])
        if self.weights[left] == 1:
            if behind < 0.5:
                return low
            behind -= 0.5
        if self.weights[left + 1] == 1:
            if ahead <= 0.5:
                return high
            ahead -= 0.5
        if behind + ahead <= 0:
            return low
        value = (low * ahead + high * behind) / (behind + ahead)
        return float(min(max(value, low), high))

    def cdf(self, x: float) -> float | None:
        """Return the share of the values below `x`, those equal to it counted half; None where there are none.

        >>> digest = Digest(100)
        >>> digest.update(np.array([1.0, 2.0, 3.0]))
        >>> [round(digest.centroids().cdf(x) * 6, 9) for x in (0.9, 1, 1.5, 2, 3, 3.1)]
        [0.0, 1.0, 2.0, 3.0, 5.0, 6.0]
        """
        count, total = self.means.size, self.total
        if count == 0:
            return None
        if x < self.low:
            return 0.0
        if x > self.high:
            return 1.0
        equal = self.means == x
        if equal.any():
            before = float(self.weights[self.means < x].sum())
            return (before + float(self.weights[equal].sum()) / 2) / total
        if x < self.means[0]:
            if x == self.low:
                return 0.5 / total
            share = (x - self.low) / (self.means[0] - self.low)
            return float((1 + share * (self.weights[0] / 2 - 1)) / total)
        if x > self.means[-1]:
            if x == self.high:
                return 1 - 0.5 / total
            share = (self.high - x) / (self.high - self.means[-1])
            return float(1 - (1 + share * (self.weights[-1] / 2 - 1)) / total)
        left = int(np.searchsorted(self.means, x)) - 1
        before = float(self.weights[:left].sum())
        one, two = float(self.weights[left]), float(self.weights[left + 1])
        # A single value is wholly at its place: the left one is in, the right one is not yet.
        start = one if one == 1 else one / 2
        stop = 0.0 if two == 1 else two / 2
        inside = (one - start) + stop
        share = (x - self.means[left]) / (self.means[left + 1] - self.means[left])
        return float((before + start + inside * share) / total)


class Digest:
    """A t-digest that keeps few values as they are, so that small data stays exact.

    Args:
        k: Size: about 1.4 k centroids at most.
        values: The values seen, while there are at most 2 k of them.
        sketch: What took their place when there were more.

    >>> digest = Digest(100)
    >>> digest.update(np.array([1.0, 2.0, 4.0]))
    >>> digest.merge(Digest.load(digest.pack()))
    >>> digest.centroids().quantile(0.5)
    2.0
    """

    def __init__(self, k: int, values: Floats | None = None, sketch: Any = None) -> None:
        self.k = k
        self.values: Floats = np.empty(0) if values is None else values
        self.sketch = sketch

    def update(self, values: Floats) -> None:
        """Add values."""
        if self.sketch is None:
            self.values = np.concatenate([self.values, values])
            if self.values.size <= 2 * self.k:
                return
            self.sketch, values = datasketches.tdigest_double(self.k), self.values
            self.values = np.empty(0)
        self.sketch.update(values)

    def merge(self, other: Digest) -> None:
        """Add what another one has seen."""
        if other.sketch is None:
            self.update(other.values)
            return
        if self.sketch is None:
            self.sketch = datasketches.tdigest_double(self.k)
            self.sketch.update(self.values)
            self.values = np.empty(0)
        self.sketch.merge(other.sketch)

    def centroids(self) -> Centroids:
        """Return what there is to read."""
        if self.sketch is not None:
            return _centroids(self.sketch.serialize())
        ordered = np.sort(self.values)
        low, high = (float(ordered[0]), float(ordered[-1])) if ordered.size else (np.nan, np.nan)
        return Centroids(ordered, np.ones(ordered.size), low, high)

    def pack(self) -> bytes:
        """Write it as bytes."""
        head = struct.pack("<BI", self.sketch is not None, self.k)
        tail: bytes = self.values.tobytes() if self.sketch is None else self.sketch.serialize()
        return head + tail

    @classmethod
    def load(cls, blob: bytes) -> Digest:
        """Read it back from bytes."""
        full, k = struct.unpack_from("<BI", blob)
        if full:
            return cls(k, sketch=datasketches.tdigest_double.deserialize(blob[5:]))
        return cls(k, np.frombuffer(blob, dtype="<f8", offset=5).copy())


def _centroids(blob: bytes) -> Centroids:
    """Take the centroids out of a t-digest of `datasketches`, by its documented serial form."""
    flags = blob[5]
    if flags & _EMPTY:
        nothing = np.empty(0)
        return Centroids(nothing, nothing, np.nan, np.nan)
    if flags & _SINGLE:
        (value,) = struct.unpack_from("<d", blob, 8)
        return Centroids(np.array([value]), np.ones(1), value, value)
    (count,) = struct.unpack_from("<I", blob, 8)
    low, high = struct.unpack_from("<dd", blob, 16)
    pairs = np.frombuffer(blob, dtype=np.dtype([("mean", "<f8"), ("weight", "<u8")]), count=count, offset=32)
    return Centroids(pairs["mean"].copy(), pairs["weight"].astype(np.float64), low, high)


def k_for(compression: float) -> int:
    """Return the `k` of `datasketches` with which a digest keeps at most `compression` centroids.

    >>> k_for(100), k_for(10)
    (64, 10)
    """
    return max(10, int(compression * 0.7) - 6)
