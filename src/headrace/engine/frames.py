"""Frames that do not quite fit together.

Rows that were dismissed or came late are put side by side for people to look at: those of a source, those after a
step that changed a column's type, those of a later stage. None of them may be lost because another has other columns.
"""

from __future__ import annotations

import polars as pl
from polars.exceptions import PolarsError


def stacked(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    """Put frames of any columns below each other; a column whose types differ becomes text. None for no frames.

    >>> numbers, words = pl.DataFrame({"v": [1], "w": [2]}), pl.DataFrame({"v": ["x"]})
    >>> stacked([numbers, words]).rows()
    [('1', 2), ('x', None)]
    """
    if len(frames) < 2:
        return frames[0] if frames else None
    kinds: dict[str, set[pl.DataType]] = {}
    for frame in frames:
        for name, kind in frame.schema.items():
            kinds.setdefault(name, set()).add(kind)
    mixed = [name for name, found in kinds.items() if len(found) > 1]
    return pl.concat([_as_text(frame, mixed) for frame in frames], how="diagonal")


def _as_text(frame: pl.DataFrame, names: list[str]) -> pl.DataFrame:
    texts = []
    for name in names:
        if name in frame.columns and frame.schema[name] != pl.String:
            values = frame.get_column(name).to_list()
            texts.append(pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String))
    return frame.with_columns(texts)


def columns_read(*expressions: pl.Expr) -> set[str] | None:
    """Tell the columns that expressions read; None where they choose by a pattern or a type (`pl.all()`).

    >>> columns_read(pl.col("speed") > pl.col("limit")) == {"speed", "limit"}
    True
    """
    if any(expression.meta.has_multiple_outputs() for expression in expressions):
        return None
    return {root for expression in expressions for root in expression.meta.root_names()}


def looks_around(expression: pl.Expr) -> pl.Expr | None:
    """Give the part of an expression whose value in a row depends on other rows; None if there is none that is known.

    >>> print(looks_around(pl.col("speed") - pl.col("speed").mean()))
    col("speed").mean()
    >>> looks_around(pl.col("speed") > 10) is None
    True
    >>> looks_around(pl.col("stops").list.reverse()) is None
    True
    """
    if expression.meta.is_literal():
        return None
    try:
        if not expression.meta.is_row_separable():
            return expression
    except PolarsError:
        return None  # a function of the user's own: nobody knows what it looks at
    parts = (looks_around(part) for part in expression.meta.pop() if not _is_of_elements(part))
    return next((part for part in parts if part is not None), None)


def _is_of_elements(part: pl.Expr) -> bool:
    """Tell whether a part is computed within the list of one row, as in `list.eval`, so that it sees no other row."""
    return "element()" in str(part) and not part.meta.root_names()
