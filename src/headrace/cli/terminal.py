"""What the commands print, and how.

Results go to standard output, everything about the work itself (progress, errors) to standard error, so that a pipe
gets only results. On a terminal, tables and colours are drawn by rich; elsewhere every row is one plain line, never
wrapped, so that `grep` and `awk` can work on it. `--json` prints one JSON document, or one per line where a command
goes on for long.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.errors import HeadraceError

#: The one console for results.
out = Console(highlight=False, emoji=False)
#: The same for progress and errors.
err = Console(stderr=True, highlight=False, emoji=False)


def line(text: str = "", *, style: str = "") -> None:
    """Print a line of results, never wrapped where no terminal would show it."""
    out.print(Text(text, style=style), soft_wrap=True)


def note(text: str, *, style: str = "") -> None:
    """Tell the user what is going on, on standard error."""
    err.print(Text(text, style=style), soft_wrap=True)


def document(value: Any) -> None:
    """Print one indented JSON document: the whole answer of a command."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def record(value: Any) -> None:
    """Print one JSON line at once: a piece of an answer that goes on."""
    sys.stdout.write(json.dumps(value, separators=(",", ":"), default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def rows(header: Sequence[str], body: Sequence[Sequence[str]], *, styles: Sequence[str] = ()) -> None:
    """Print a table: drawn on a terminal, aligned plain lines elsewhere.

    Args:
        header: Names of the columns.
        body: The cells.
        styles: rich's style of each row, where there is one.
    """
    if not out.is_terminal:
        for plain in _aligned(header, body):
            line(plain)
        return
    table = Table(box=None, pad_edge=False, header_style="bold", show_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate(header):
        table.add_column(name, overflow="fold", no_wrap=index == 0)
    for number, cells in enumerate(body):
        style = styles[number] if number < len(styles) else ""
        table.add_row(*(Text(cell, style=style) for cell in cells))
    out.print(table)


def _aligned(header: Sequence[str], body: Sequence[Sequence[str]]) -> Iterator[str]:
    every = [header, *body]
    widths = [max(len(cells[column]) for cells in every) for column in range(len(header))]
    for cells in every:
        yield "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def error(problem: HeadraceError) -> None:
    """Print an error: what was wrong, then on the next line what to do."""
    err.print(Text.assemble(("Error: ", "bold red"), problem.message), soft_wrap=True)
    if problem.hint:
        err.print(Text(problem.hint), soft_wrap=True)
