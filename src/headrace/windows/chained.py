"""A same-window aggregate that rides on the stage before it.

Every key group folds its own results of a window by the second key; `finish` merges the groups' folds. It is a
stateless step on the first stage's results and one merge per batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.windows.fold import Fold

if TYPE_CHECKING:
    import polars as pl

    from headrace.windows.aggregates import Aggregate

_PANE = (EVENT_TIME, WINDOW_START, WINDOW_END, PANE_INDEX, PANE_TIMING, PANE_IS_LAST, PANE_MODE, IS_RETRACTION)


@dataclass(frozen=True)
class ChainedFold:
    """Aggregates by another key within the windows of the stage before."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    fold: Fold = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fold", Fold(self.keys, self.aggregates))

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Fold one key group's results of a window."""
        return self.fold.partials(frame, _PANE)

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`."""
        return f"fold by {', '.join(self.keys)} in the same window"

    def finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Merge the folds of all key groups of a batch."""
        return self.fold.results(self.fold.merged(frame, _PANE), _PANE)
