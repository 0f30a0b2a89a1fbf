"""The numbers of joined rows: what tells results apart that have the same key and time.

A join numbers its results on each key group, in `pane_index`, and the number goes on in the state. After a restart the
same batch gives the same rows the same numbers, so their idempotency keys are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.engine.operator import PANE_INDEX

if TYPE_CHECKING:
    from collections.abc import Sequence

#: The column that is added.
NUMBERED: Final[dict[str, pl.DataType]] = {PANE_INDEX: pl.Int64()}


def number_results(parts: Sequence[pl.DataFrame], saved: dict[str, Any]) -> pl.DataFrame | None:
    """Put results together and number them, from `saved["next"]` on; None where there are none."""
    filled = [part for part in parts if part.height]
    if not filled:
        return None
    results = pl.concat(filled)
    start: int = saved["next"]
    saved["next"] = start + results.height
    return results.with_columns(pl.int_range(start, start + results.height, dtype=pl.Int64).alias(PANE_INDEX))
