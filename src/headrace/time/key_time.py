"""Time by key: what is promised of the order of rows within a key."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.time.duration import text
from headrace.time.instants import BEGINNING, END


@dataclass(frozen=True, slots=True)
class KeyTime:
    """How far the rows of one key may be out of order, and how long a silent key is waited for.

    Args:
        tolerance: How far behind its key's newest time a row may come, in microseconds.
        patience: How far behind the watermark of the source a key may be, in microseconds: the watermark less this
            serves keys that have fallen silent, and a row behind it is late whatever the time of its key.

    >>> KeyTime(patience=10).floor(100), KeyTime(patience=10).floor(END) == END
    (90, True)
    """

    tolerance: int = 0
    patience: int = 0

    def floor(self, watermark: int) -> int:
        """Give the time that every key has come to, from the watermark of the source."""
        return watermark if watermark >= END or watermark <= BEGINNING + self.patience else watermark - self.patience

    def describe(self) -> str:
        """Say in a few words what is promised.

        >>> KeyTime(tolerance=2_000_000).describe()
        'time by key, tolerance 2s'
        """
        tolerance = f", tolerance {text(self.tolerance)}" if self.tolerance else ""
        patience = f", patience {text(self.patience)}" if self.patience else ""
        return f"time by key{tolerance}{patience}"
