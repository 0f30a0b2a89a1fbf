"""Rows on standard output, as a table, CSV or JSON lines: all at once, or piece by piece as they come."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING

from headrace.cli import terminal
from headrace.cli.options import UsageError

if TYPE_CHECKING:
    import polars as pl


class Format(StrEnum):
    """How rows are printed."""

    table = "table"
    csv = "csv"
    json = "json"


class Printer:
    """Prints frames of the same columns.

    Args:
        form: How.
        follow: Whether more may come after the first frame.
    """

    def __init__(self, form: Format, *, follow: bool = False) -> None:
        self._form = form
        self._follow = follow
        self._widths: list[int] = []
        self.printed = 0

    def check(self, schema: pl.Schema) -> None:
        """Refuse columns that the format cannot show.

        Raises:
            UsageError: CSV has neither lists nor structs.
        """
        nested = [name for name, kind in schema.items() if kind.is_nested()]
        if self._form is Format.csv and nested:
            raise UsageError(f"CSV has no lists or structs, as in {', '.join(nested)}", hint="Use --format json.")

    def show(self, found: pl.DataFrame) -> None:
        """Print a frame."""
        if self._form is Format.json:
            sys.stdout.write(found.write_ndjson())
        elif self._form is Format.csv:
            self.check(found.schema)
            sys.stdout.write(found.write_csv(include_header=not self._widths))
            self._widths = [0]
        else:
            self._table(found)
        self.printed += found.height
        sys.stdout.flush()

    def _table(self, found: pl.DataFrame) -> None:
        body = [["" if value is None else str(value) for value in row] for row in found.iter_rows()]
        if not self._follow:
            terminal.rows(found.columns, body)
            return
        # Later rows are not known yet: columns grow as they must, and the header stands once.
        lines = body if self._widths else [list(found.columns), *body]
        self._widths = self._widths or [0] * found.width
        for cells in lines:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        for cells in lines:
            terminal.line(
                "  ".join(cell.ljust(width) for cell, width in zip(cells, self._widths, strict=True)).rstrip()
            )
