"""Contract tests: what every part of a kind must keep, to put a part of your own through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from headrace.windows import Assigner


class ContractError(AssertionError):
    """A part does not keep its contract."""


def check_assigner(assigner: Assigner, rows: pl.DataFrame | None = None) -> None:
    """Put windows of your own through what the engine relies on.

    Every row gets at least one window; bounds are instants with start < end; all columns are kept; the same row gets
    the same windows in any order and in any company; a frame without rows is fine; the description is there and stable.

    Args:
        assigner: The windows.
        rows: Rows to try, with all columns that the assigner reads; some timestamps around the epoch unless told.

    >>> from headrace.windows import sliding
    >>> check_assigner(sliding("30s", every="5s"))
    """
    if rows is None:
        times = [-1, 0, 1, 999_999, 1_000_000, 59_999_999, 1_700_000_000_123_456, 1_700_000_000_123_456]
        rows = pl.DataFrame({EVENT_TIME: times}).cast(INSTANT)
    numbered = rows.with_row_index("number")
    whole = _windows(assigner, numbered)
    missing = set(numbered.get_column("number")) - set(whole.get_column("number"))
    _must(not missing, f"row {numbered.row(min(missing), named=True) if missing else ''} belongs to no window")
    _must(_same(whole, _windows(assigner, numbered)), "asked twice, it answers differently")
    _must(_same(whole, _windows(assigner, numbered.reverse())), "the answer depends on the order of the rows")
    single = pl.concat([_windows(assigner, numbered.slice(n, 1)) for n in range(numbered.height)])
    _must(_same(whole, single), "the answer for a row depends on the rows beside it")
    empty = _windows(assigner, numbered.head(0))
    _must(empty.is_empty(), "it makes windows without rows")
    _must(bool(assigner.describe()) and assigner.describe() == assigner.describe(), "its description is not stable")


def _windows(assigner: Assigner, rows: pl.DataFrame) -> pl.DataFrame:
    before = rows.clone()
    found = assigner.assign(rows)
    _must(rows.equals(before), "it changes the rows it is given")
    for name in (WINDOW_START, WINDOW_END):
        _must(name in found.columns, f"it adds no column {name}")
        _must(found.schema[name] == INSTANT, f"{name} is {found.schema[name]}, not {INSTANT}")
    lost = set(rows.columns) - set(found.columns)
    _must(not lost, f"it loses the columns {sorted(lost)}")
    bad = found.filter((pl.col(WINDOW_START) < pl.col(WINDOW_END)).fill_null(value=False).not_())
    _must(bad.is_empty(), f"a window does not end after it starts: {bad.head(1).rows()}")
    return found.select("number", WINDOW_START, WINDOW_END)


def _same(one: pl.DataFrame, two: pl.DataFrame) -> bool:
    return one.sort(one.columns).equals(two.sort(two.columns))


def _must(kept: bool, what: str) -> None:
    if not kept:
        raise ContractError(what)
