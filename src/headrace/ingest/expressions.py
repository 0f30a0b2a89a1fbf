"""Expressions of a mapping: columns computed and messages chosen by SQL, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import sqlglot
from polars.exceptions import PolarsError
from sqlglot import expressions as sql

from headrace.errors import ConfigError
from headrace.ingest.processor import Cause, Dismissal

if TYPE_CHECKING:
    from collections.abc import Mapping


class Expressions:
    """Computes columns, then chooses rows.

    Args:
        columns: What there is to compute with.
        compute: Column to expression; an expression sees the columns that were read, not other computed ones.
        where: A condition over all columns; empty: every row.

    Raises:
        ConfigError: An expression is no SQL, names what is not there, or looks at more than its own row.

    >>> rules = Expressions({"speed": pl.Float64()}, {"kmh": "speed * 3.6"}, "kmh > 50")
    >>> bad = {}
    >>> rules.apply(pl.DataFrame({"speed": [10.0, 20.0]}), bad)["kmh"].to_list(), bad[0].cause
    ([72.0], <Cause.FILTERED: 'filtered'>)
    """

    def __init__(self, columns: Mapping[str, Any], compute: Mapping[str, str], where: str) -> None:
        empty = pl.Schema(columns).to_frame()
        self._compute = {name: _expression(f"compute {name}", text, empty) for name, text in compute.items()}
        computed = empty.with_columns(**self._compute)
        self._where = _expression("where", where, computed) if where else None
        self._text = where
        if self._where is not None and computed.select(self._where).dtypes != [pl.Boolean]:
            raise ConfigError(f"where: {where} is no condition", hint='Compare something, such as "altitude > 1000".')
        #: All columns, computed ones last.
        self.schema = computed.schema

    def apply(self, frame: pl.DataFrame, bad: dict[int, Dismissal]) -> pl.DataFrame:
        """Compute and choose; rows that are bad already, or turn out so, are left out.

        Args:
            frame: The rows.
            bad: Which of them are no events; more are added.
        """
        if bad:
            good = [row for row in range(frame.height) if row not in bad]
            return self._apply(frame[good], good, bad)
        return self._apply(frame, None, bad)

    def _apply(self, frame: pl.DataFrame, rows: list[int] | None, bad: dict[int, Dismissal]) -> pl.DataFrame:
        try:
            computed = frame.with_columns(**self._compute) if self._compute else frame
            if self._where is None:
                return computed
            chosen = computed.select(self._where).to_series().fill_null(value=False)
        except PolarsError as error:
            return self._one_by_one(frame, rows, bad, error)
        if chosen.all():
            return computed
        left = Dismissal(Cause.FILTERED, f"where: {self._text}"[:200])
        for row in (~chosen).arg_true().to_list():
            bad[row if rows is None else rows[row]] = left
        return computed.filter(chosen)

    def _one_by_one(
        self, frame: pl.DataFrame, rows: list[int] | None, bad: dict[int, Dismissal], error: PolarsError
    ) -> pl.DataFrame:
        """Find the rows for which an expression fails, such as a CAST of what is no number."""
        numbers = list(range(frame.height)) if rows is None else rows
        if frame.height == 1:
            bad[numbers[0]] = Dismissal(Cause.BAD_VALUE, f"compute or where: {str(error).splitlines()[0]}"[:200])
            return self.schema.to_frame()
        half = frame.height // 2
        parts = [
            self._apply(frame[:half], numbers[:half], bad),
            self._apply(frame[half:], numbers[half:], bad),
        ]
        return pl.concat([part.select(*self.schema) for part in parts])


def _expression(where: str, text: str, frame: pl.DataFrame) -> pl.Expr:
    try:
        parsed = sqlglot.parse_one(text, dialect="postgres")
    except sqlglot.errors.SqlglotError as error:
        raise ConfigError(f"{where}: {text!r} is no SQL expression: {str(error).splitlines()[0]}") from error
    wide = parsed.find(sql.AggFunc, sql.Window, sql.Query)
    if wide is not None:
        raise ConfigError(f"{where}: {wide.sql()} looks at more than one row", hint="A message is judged by itself.")
    try:
        expression = pl.sql_expr(text)
        frame.select(expression)
    except PolarsError as error:
        raise ConfigError(
            f"{where}: {text!r} cannot be computed: {str(error).splitlines()[0]}",
            hint=f"The columns are: {', '.join(frame.columns)}.",
        ) from error
    return expression
