"""Rows of a query on a terminal: a table that keeps itself up to date, or lines where there is no such terminal."""

from __future__ import annotations

import os
from collections import deque
from typing import TYPE_CHECKING, Self

import polars as pl
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli import terminal
from headrace.cli.printer import Format, Printer
from headrace.engine.operator import IS_RETRACTION

if TYPE_CHECKING:
    from types import TracebackType

    from headrace.streaming_sql.planning import Planned

_KEPT_ROWS = 1_000
_REFRESHES = 4


class CurrentRows:
    """The rows that a query has given and not taken back; the oldest are forgotten when there are many.

    Args:
        most: How many rows are kept.

    >>> rows = CurrentRows(most=2)
    >>> rows.take(pl.DataFrame({"n": [1, 2], "is_retraction": [False, False]}))
    >>> rows.take(pl.DataFrame({"n": [1, 5], "is_retraction": [True, False]}))
    >>> list(rows)
    [('2',), ('5',)]
    """

    def __init__(self, *, most: int = _KEPT_ROWS) -> None:
        self._rows: deque[tuple[str, ...]] = deque(maxlen=most)

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, frame: pl.DataFrame) -> None:
        """Take rows in: additions at the end, retractions of rows that are there."""
        if IS_RETRACTION not in frame.columns:
            self._rows.extend(cells(frame))
            return
        back = frame.get_column(IS_RETRACTION).fill_null(value=False)
        plain = frame.drop(IS_RETRACTION)
        for row in cells(plain.filter(back)):
            if row in self._rows:
                self._rows.remove(row)
        self._rows.extend(cells(plain.filter(~back)))


def cells(frame: pl.DataFrame) -> list[tuple[str, ...]]:
    """Give the values of rows as texts."""
    return [tuple("" if value is None else str(value) for value in row) for row in frame.iter_rows()]


def can_redraw() -> bool:
    """Tell whether standard output is a terminal that can draw over what it has shown."""
    return terminal.out.is_terminal and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


class FollowedRows:
    """Shows the rows of a query that goes on; used in a `with` block.

    Args:
        planned: The query.
        form: How rows are printed.
        redraw: Whether the table is drawn anew in place, instead of line after line.
    """

    def __init__(self, planned: Planned, form: Format, *, redraw: bool) -> None:
        self._planned = planned
        self._redraw = redraw and form is Format.table
        self._printer = Printer(form, follow=True)
        self._rows = CurrentRows()
        self._live: Live | None = None
        self.shown = 0

    def __enter__(self) -> Self:
        if self._redraw:
            self._live = Live(
                self._table(self._height()), console=terminal.out, refresh_per_second=_REFRESHES, transient=True
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            terminal.out.print(self._table(len(self._rows)))

    def show(self, frame: pl.DataFrame) -> None:
        """Show rows: `is_retraction` says which of them are taken back."""
        self.shown += frame.height
        if self._live is None:
            self._printer.show(_marked(frame))
            return
        self._rows.take(frame)
        self._live.update(self._table(self._height()))

    def _height(self) -> int:
        return max(3, terminal.out.height - 4)

    def _table(self, most: int) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
        for name in self._planned.schema:
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        rows = list(self._rows)
        for row in rows[-most:]:
            table.add_row(*map(Text, row))
        if len(rows) > most:
            table.caption = f"the last {most} of {len(rows):,} rows"
        return table


def _marked(frame: pl.DataFrame) -> pl.DataFrame:
    """Say in a first column whether a row is added or taken back, where rows may be taken back."""
    if IS_RETRACTION not in frame.columns:
        return frame
    sign = pl.when(pl.col(IS_RETRACTION)).then(pl.lit("-")).otherwise(pl.lit("+")).alias("op")
    return frame.select(sign, pl.exclude(IS_RETRACTION))
