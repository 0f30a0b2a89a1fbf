"""A same-window aggregate that rides on the stage before it.

Every key group folds its own results of a window by the second key; `finish` merges the groups' folds. It is a
stateless step on the first stage's results and one merge per batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.windows.fold import Fold
from headrace.windows.sliced import only_pane

if TYPE_CHECKING:
    from headrace.windows.aggregates import Aggregate

_BOUNDS = (WINDOW_START, WINDOW_END)


@dataclass(frozen=True)
class ChainedFold:
    """Aggregates by another key within the windows of the stage before."""

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    step: str = "aggregate"
    null_keys: bool = False
    fold: Fold = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fold", Fold(self.keys, self.aggregates))

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Fold one key group's results of a window."""
        return self.fold.partials_of(self.step, frame, _BOUNDS)

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`."""
        return f"fold by {', '.join(self.keys)} in the same window"

    def finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Merge the folds of all key groups of a batch."""
        results = self.fold.results(self.fold.merged(frame, _BOUNDS), _BOUNDS)
        # By the window alone, whatever a step in between made of the event time or the pane.
        last_instant = (pl.col(WINDOW_END).to_physical() - 1).cast(results.schema[WINDOW_END]).alias(EVENT_TIME)
        values = [name for name in results.columns if name not in _BOUNDS]
        return results.select(*values, last_instant, *_BOUNDS, *only_pane())
