"""Chance that can be asked twice.

A usual random generator has a state: to know its millionth number one draws the 999,999 before it. Here a number is a
pure function of a seed, a purpose and any keys (vehicle, hour, ...), mixed by the finaliser of SplitMix64. So the
simulator can compute any second of any vehicle alone, in any order, on any machine, and always finds the same
accidents.

>>> import numpy as np
>>> uniform(1, "example", np.arange(3)).round(3).tolist() == uniform(1, "example", np.arange(3)).round(3).tolist()
True
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP = 0x9E3779B97F4A7C15
_MASK = 0xFFFFFFFFFFFFFFFF


def uniform(seed: int, purpose: str, *keys: NDArray[np.integer] | int) -> NDArray[np.float64]:
    """Give numbers in [0, 1), one per row of the keys.

    Args:
        seed: The seed of the whole simulation.
        purpose: What the number is for: two purposes never share their numbers.
        *keys: Whole numbers that tell the draws apart; arrays and single numbers are broadcast.
    """
    mixed = np.full(1, (seed * _STEP + zlib.crc32(purpose.encode())) & _MASK, dtype=np.uint64)
    for key in keys:
        # Asking for int64 first lets negative keys (a period before the start) wrap around instead of raising.
        mixed = _mix(mixed ^ np.asarray(key, dtype=np.int64).astype(np.uint64))
    return (_mix(mixed) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def between(low: float, high: float, draw: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stretch numbers of [0, 1) to [low, high)."""
    return low + (high - low) * draw


def _mix(value: NDArray[np.uint64]) -> NDArray[np.uint64]:
    value = value + np.uint64(_STEP)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
