"""What a user may write as the expressions of a step: named, and about the row alone.

A step sees rows in batches, and how a stream is cut into batches is chance. So an expression whose value in a row
depends on other rows would give another answer with every cut, and is refused while the stream is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.frames import looks_around
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable


def refuse_unnamed(unnamed: tuple[Any, ...], where: str, example: str) -> None:
    """Refuse expressions without a name for their column.

    Args:
        unnamed: What was given without a name.
        where: The step in the user's words.
        example: How it is written, such as "aggregate(n=count())".

    Raises:
        PlanError: There is one.
    """
    if unnamed:
        raise PlanError(f"{where}({unnamed[0]}): the column has no name", hint=f"Name it: {example}.")


def refuse_other_rows(expressions: Iterable[Any], where: str) -> None:
    """Refuse expressions whose value in a row depends on the rows around it.

    Args:
        expressions: The expressions; what is none is left to Polars.
        where: The step in the user's words.

    Raises:
        PlanError: There is one.
    """
    for expression in expressions:
        other = looks_around(expression) if isinstance(expression, pl.Expr) else None
        if other is not None and str(other).split(".str.")[-1].startswith("strptime"):
            raise PlanError(
                f"{where} reads times in a format that is guessed from the first row: {other}",
                hint="Rows come in batches, and each would be guessed anew. Say the format: "
                'str.to_datetime("%Y-%m-%d %H:%M:%S").',
            )
        if other is not None:
            raise PlanError(
                f"{where} looks at other rows: {other}",
                hint="How rows are cut into batches is chance, so the answer would be, too. Aggregate in a window, or "
                "ask for the row before with previous(...).",
            )
