"""An aggregate of your own: create, add, merge, result, on columns.

The functions see whole columns, not single rows: `add` gets all rows of a group at once. What they carry from one
call to the next must be a JSON value (numbers, text, lists, dictionaries), since it is kept and sent as bytes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import IS_RETRACTION
from headrace.errors import JobError, PlanError
from headrace.windows.aggregates import Aggregate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Custom(Aggregate):
    """A user-defined aggregate; made by `custom`."""

    label: str
    inputs: tuple[str, ...]
    create: Callable[[], Any] = field(compare=False)
    add: Callable[[Any, pl.DataFrame], Any] = field(compare=False)
    join: Callable[[Any, Any], Any] = field(compare=False)
    finish: Callable[[Any], Any] = field(compare=False)
    kind: pl.DataType
    remove: Callable[[Any, pl.DataFrame], Any] | None = field(default=None, compare=False)

    def partial(self, name: str) -> list[pl.Expr]:
        """Let the user's functions fold each group."""
        names = [*self.inputs, IS_RETRACTION] if self.signed else list(self.inputs)
        folded = pl.struct(names).map_batches(self._fold, return_dtype=pl.Binary, returns_scalar=True)
        return [folded.alias(f"{name}.state")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Let the user's function merge the states of each group."""
        return [pl.col(f"{name}.state").map_batches(self._merged, return_dtype=pl.Binary, returns_scalar=True)]

    def result(self, name: str) -> pl.Expr:
        """Let the user's function read each state."""
        return pl.col(f"{name}.state").map_batches(self._read, return_dtype=self.kind).alias(name)

    def retracting(self) -> Aggregate:
        """Use `remove`, if there is one."""
        if self.remove is None:
            raise PlanError(
                f"aggregate {self.label!r} cannot take back rows, but the step before revises its results",
                hint="Give custom(..., remove=...), or let the step before fire once.",
            )
        return replace(self, signed=True)

    def columns(self) -> list[str]:
        """Name the columns that the functions see."""
        return list(self.inputs)

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"custom({self.label}: {', '.join(self.inputs)})"

    def _fold(self, rows: pl.Series) -> bytes:
        frame = rows.struct.unnest()
        state = self._call("create", self.create)
        if self.signed and self.remove is not None:
            back = pl.col(IS_RETRACTION).fill_null(value=False)
            kept, gone = frame.filter(~back).drop(IS_RETRACTION), frame.filter(back).drop(IS_RETRACTION)
            if kept.height:
                state = self._call("add", self.add, state, kept)
            if gone.height:
                state = self._call("remove", self.remove, state, gone)
        elif frame.height:
            state = self._call("add", self.add, state, frame)
        return self._bytes(state)

    def _merged(self, parts: pl.Series) -> bytes | None:
        known = [json.loads(blob) for blob in parts.drop_nulls().to_list()]
        if not known:
            return None
        state = known[0]
        for other in known[1:]:
            state = self._call("merge", self.join, state, other)
        return self._bytes(state)

    def _read(self, states: pl.Series) -> pl.Series:
        values = [
            self._call("result", self.finish, self.create() if blob is None else json.loads(blob))
            for blob in states.to_list()
        ]
        return pl.Series(values, dtype=self.kind)

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            raise JobError(f"{what} of aggregate {self.label!r} raised {type(error).__name__}: {error}") from error

    def _bytes(self, state: Any) -> bytes:
        try:
            return json.dumps(state, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise JobError(
                f"the state of aggregate {self.label!r} is not JSON: {error}",
                hint="Carry numbers, text, lists and dictionaries only.",
            ) from error


def custom(
    columns: Sequence[str],
    *,
    create: Callable[[], Any],
    add: Callable[[Any, pl.DataFrame], Any],
    merge: Callable[[Any, Any], Any],
    result: Callable[[Any], Any],
    dtype: pl.DataType | type[pl.DataType],
    remove: Callable[[Any, pl.DataFrame], Any] | None = None,
    name: str = "custom",
) -> Custom:
    """Make an aggregate of your own.

    Args:
        columns: The columns that `add` gets.
        create: Returns the state of a window without rows, a JSON value.
        add: Takes a state and the rows of a group, returns the new state.
        merge: Takes two states, returns that of both; must not depend on their order.
        result: Takes a state, returns the value.
        dtype: Type of the value.
        remove: Like `add`, for rows that take back earlier ones.
        name: Named in messages and in the state's fingerprint; change it when the meaning of the state changes.

    >>> longest = custom(
    ...     ["word"],
    ...     create=str,
    ...     add=lambda state, rows: max([state, *rows["word"]], key=len),
    ...     merge=lambda one, two: max(one, two, key=len),
    ...     result=str,
    ...     dtype=pl.String,
    ...     name="longest",
    ... )
    >>> rows = pl.DataFrame({"word": ["mill", "headrace"]})
    >>> rows.select(longest.partial("w")).select(longest.result("w")).item()
    'headrace'
    """
    if not columns:
        raise PlanError(f"aggregate {name!r} reads no columns", hint="Name at least one.")
    kind = dtype if isinstance(dtype, pl.DataType) else dtype()
    return Custom(name, tuple(columns), create, add, merge, result, kind, remove)
