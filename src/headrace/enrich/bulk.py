"""Enrichment by a function: a frame of keys in, a frame of values out.

Without `patience` the function is called in the batch itself, which waits for it: right for a computation, or for a
library that is always quick. With `patience` it is called in the background as an HTTP service is: its answers are
cached, and a batch does not wait longer than that.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.enrich.lookup import Found, State, found
from headrace.enrich.service import CallError, Limits, service
from headrace.enrich.values import check_gives, frame_of, plain_schema
from headrace.errors import PlanError
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta
    from pathlib import Path

    from headrace.enrich.cache import Answer, Key

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bulk:
    """A function that knows values by key; see `bulk`."""

    function: Callable[[pl.DataFrame], pl.DataFrame] = field(compare=False)
    gives: pl.Schema
    name: str
    limits: Limits | None = None
    cache: Path | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Describe it in a line of `explain()`."""
        return f"function {self.name}"

    def check(self, keys: pl.Schema) -> None:
        """Any keys will do; where answers are cached, they must be written down."""
        if self.limits is not None:
            check_gives(keys, "key", self.name)

    def look_up(self, keys: pl.DataFrame) -> Found:
        """Call the function, or look at what it has said."""
        if self.limits is None:
            return self._called(keys)
        schema = keys.schema
        run = service(
            self.token, self.name, lambda: _Caller(self, schema), self.limits, cache=self.cache, kind=self.name
        )
        answers, states = run.ask(keys.rows())
        return found(frame_of(answers, self.gives), states, self.gives)

    def _called(self, keys: pl.DataFrame) -> Found:
        try:
            values = self.values(keys)
        except Exception as problem:  # noqa: BLE001 - a function of the user may raise anything, and rows go on
            log.warning(
                "enrichment %s failed: %s: %s; events go on without it", self.name, type(problem).__name__, problem
            )
            empty = pl.DataFrame(
                {name: pl.repeat(None, keys.height, dtype=kind, eager=True) for name, kind in self.gives.items()}
            )
            return found(empty, [State.FAILED] * keys.height, self.gives)
        unknown = values.select(pl.all_horizontal(pl.all().is_null())).to_series()
        return found(values, unknown.cast(pl.UInt8) * int(State.UNKNOWN), self.gives)

    def values(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Call the function, and see that it gave what it promised: a row per key, or rows with their keys."""
        given = self.function(keys)
        if not isinstance(given, pl.DataFrame):
            raise TypeError(f"it returned {type(given).__name__}, not a Polars DataFrame")
        missing = [name for name in self.gives if name not in given.columns]
        if missing:
            raise ValueError(f"it gave no column {', '.join(missing)}")
        if all(key in given.columns for key in keys.columns):
            given = keys.join(given, on=keys.columns, how="left", maintain_order="left", validate="m:1")
        elif given.height != keys.height:
            raise ValueError(f"it gave {given.height} rows for {keys.height} keys, and not the keys with them")
        return given.select(pl.col(name).cast(kind) for name, kind in self.gives.items())


class _Caller:
    """Calls the function on a thread of its own."""

    def __init__(self, bulk: Bulk, schema: pl.Schema) -> None:
        self._bulk = bulk
        self._schema = schema

    async def call(self, keys: Sequence[Key]) -> list[Answer]:
        frame = pl.DataFrame(list(keys), schema=self._schema, orient="row")
        try:
            values = await asyncio.to_thread(self._bulk.values, frame)
        except Exception as problem:  # a function of the user may raise anything
            raise CallError(f"{type(problem).__name__}: {problem}", again=True) from problem
        return [None if all(value is None for value in row) else row for row in values.iter_rows()]

    async def close(self) -> None:
        return None


def bulk(
    function: Callable[[pl.DataFrame], pl.DataFrame],
    *,
    gives: dict[str, Any] | pl.Schema,
    name: str = "",
    patience: str | timedelta | None = None,
    keep: str | timedelta = "1d",
    per_call: int = 1000,
    parallel: int = 4,
    retries: int = 2,
    cache: Path | None = None,
) -> Bulk:
    """Enrich by a function on columns.

    Args:
        function: Gets a frame of different keys, and gives a frame with the promised columns: one row per key in their
            order, or rows that have the key columns, too. Nulls mean that there is no value.
        gives: The columns that it gives, with their types.
        name: What to call it in counters and messages; the function's name if not given.
        patience: Call it in the background, and let batches wait for it this long per second; None: call it in the
            batch.
        keep: With `patience`: for how long an answer holds.
        per_call: With `patience`: the most keys of one call.
        parallel: With `patience`: the most calls at once, in each worker process.
        retries: With `patience`: how often a call is tried again.
        cache: With `patience`: a file that answers are kept in over a restart.

    >>> def squares(keys: pl.DataFrame) -> pl.DataFrame:
    ...     return keys.select(square=pl.col("n") ** 2)
    >>> source = bulk(squares, gives={"square": pl.Int64})
    >>> source.look_up(pl.DataFrame({"n": [2, 3]})).values.rows()
    [(4,), (9,)]
    """
    columns = plain_schema(gives)
    called = name or getattr(function, "__name__", "function")
    if not columns:
        raise PlanError(f"enrichment {called!r} gives no column", hint='Name them: gives={"stop": pl.String}.')
    if patience is None:
        return Bulk(function, columns, called)
    check_gives(columns, "column", called)
    limits = Limits(
        per_call=per_call,
        parallel=parallel,
        retries=retries,
        patience=micros(patience, what="patience") / 1e6,
        keep=micros(keep, what="keep") / 1e6,
    )
    return Bulk(function, columns, called, limits, cache)
