"""Errors of a query: what is wrong, in which line and column, with the line itself and a mark under the place."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sqlglot import exp

_WIDTH = 100


class QueryError(PlanError):
    """A query cannot be planned.

    Args:
        message: What is wrong.
        text: The query.
        start: Where in the query, as an offset.
        length: How many characters are meant.
        hint: What to do about it.

    >>> print(QueryError("unknown column 'depo'", "SELECT depo FROM t", 7, 4, hint="Did you mean depot?"))
    line 1, column 8: unknown column 'depo'
      SELECT depo FROM t
             ^^^^
    Did you mean depot?
    """

    def __init__(self, message: str, text: str = "", start: int = 0, length: int = 1, *, hint: str = "") -> None:
        self.line, self.column = place_of(text, start)
        self.summary = message
        where = f"line {self.line}, column {self.column}: " if text else ""
        super().__init__(f"{where}{message}{_excerpt(text, start, length)}", hint=hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


def place_of(text: str, offset: int) -> tuple[int, int]:
    """Tell the line and the column of an offset, both counted from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def error_at(text: str, node: exp.Expr | None, message: str, *, hint: str = "") -> QueryError:
    """Make an error that points at a part of a query."""
    start, end = span_of(node)
    return QueryError(message, text, start, end - start, hint=hint)


def span_of(node: exp.Expr | None) -> tuple[int, int]:
    """Tell where the names in a part of a query begin and the first of them ends; (0, 1) where that is not known."""
    for each in _near(node):
        start, end = each.meta.get("start"), each.meta.get("end")
        if isinstance(start, int) and isinstance(end, int):
            return start, end + 1
    return 0, 1


def _near(node: exp.Expr | None) -> Iterable[Any]:
    if node is None:
        return
    placed = [each for each in node.walk() if isinstance(each.meta.get("start"), int)]
    if placed:
        yield min(placed, key=lambda each: int(each.meta["start"]))
    parent = node.parent
    if parent is not None and not placed:
        yield from _near(parent)


def similar(name: str, known: Iterable[str]) -> str:
    """Suggest the known name that is most like a misspelt one, or list some that are known.

    >>> similar("depo", ["depot", "line"])
    'Did you mean depot?'
    >>> similar("x", ["depot", "line"])
    'Known are: depot, line.'
    """
    names = list(dict.fromkeys(known))
    by_lower = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    if found:
        return f"Did you mean {by_lower[found[0]]}?"
    if not names:
        return ""
    listed = ", ".join(names[:20])
    return f"Known are: {listed}{', ...' if len(names) > 20 else ''}."


def _excerpt(text: str, start: int, length: int) -> str:
    if not text:
        return ""
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    line = text[begin : len(text) if end < 0 else end]
    column = start - begin
    cut = max(0, column - _WIDTH // 2)
    shown = line[cut : cut + _WIDTH].replace("\t", " ")
    marks = "^" * max(1, min(length, len(shown) - (column - cut)))
    return f"\n  {shown}\n  {' ' * (column - cut)}{marks}"
