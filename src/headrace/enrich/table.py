"""Enrichment by a table that every worker holds.

The table is a frame, which travels to the workers once, with the plan; or a function that loads one, which each worker
calls once, and again in the background when the table is older than `refresh`. A lookup joins the different keys of a
batch by a sorted index of hashes, so that it costs what the batch has and not what the table holds.

A null in a key column of the table stands for any value there; of several rows that fit, the one that says most wins.
So "line 6, whatever the day, ends in Arabia" and "line 6 on the 24th of December ends in Hakaniemi" are two rows.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.enrich.lookup import Found, State, found
from headrace.enrich.values import plain_schema
from headrace.errors import HeadraceError, JobError, PlanError
from headrace.time.duration import micros, text

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

log = logging.getLogger(__name__)

#: After a table could not be loaded anew, the old one serves for so many seconds until it is tried again.
_TRY_AGAIN = 60.0


@dataclass(frozen=True)
class Table:
    """A table of values by key; see `table`."""

    gives: pl.Schema
    name: str
    frame: pl.DataFrame | None = field(default=None, compare=False, repr=False)
    load: Callable[[], pl.DataFrame] | None = field(default=None, compare=False, repr=False)
    refresh: float | None = None
    token: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Describe it in a line of `explain()`."""
        often = "" if self.refresh is None else f", loaded anew every {text(int(self.refresh * 1e6))}"
        return f"table {self.name}{often}"

    def check(self, keys: pl.Schema) -> None:
        """See that a table that is there already has these keys, each once."""
        if self.frame is not None:
            Index(self.frame, keys, self.given(keys), self.name)

    def given(self, keys: pl.Schema) -> pl.Schema:
        """The columns that are given for these keys."""
        return pl.Schema({name: kind for name, kind in self.gives.items() if name not in keys})

    def look_up(self, keys: pl.DataFrame) -> Found:
        """Find keys in this process's index of the table."""
        return _holder(self, keys.schema).index().find(keys)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.frame is not None:
            state["frame"] = _packed(self.frame)
            state["token"] = hashlib.blake2b(state["frame"], digest_size=16).hexdigest()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        # The bytes are unpacked when they are needed: a worker reads the plan for every batch, the table once.
        self.__dict__.update(state)


class Index:
    """Finds keys in a table.

    Args:
        table: The rows.
        keys: The key columns, with the types that keys are asked for in.
        gives: The columns that are given.
        name: What the table is called, for messages.

    >>> stops = pl.DataFrame({"line": ["6", "6"], "day": [None, "24.12."], "end": ["Arabia", "Hakaniemi"]})
    >>> index = Index(stops, pl.Schema({"line": pl.String, "day": pl.String}), pl.Schema({"end": pl.String}), "stops")
    >>> index.find(pl.DataFrame({"line": ["6", "6", "7"], "day": ["1.1.", "24.12.", "1.1."]})).values.rows()
    [('Arabia',), ('Hakaniemi',), (None,)]
    """

    def __init__(self, table: pl.DataFrame, keys: pl.Schema, gives: pl.Schema, name: str) -> None:
        rows = _fitting(table, keys, gives, name)
        self._gives = gives
        self._parts: list[_Part] = []
        patterns = rows.select(pl.col(key).is_null() for key in keys)
        for pattern in sorted(patterns.unique().rows(), key=sum):
            here = patterns.select(
                pl.all_horizontal(pl.col(key) == null for key, null in zip(keys, pattern, strict=True))
            ).to_series()
            named = [key for key, null in zip(keys, pattern, strict=True) if not null]
            self._parts.append(_Part(rows.filter(here), named, gives, name))

    def find(self, keys: pl.DataFrame) -> Found:
        """Give the values of keys."""
        values = pl.DataFrame(
            {name: pl.repeat(None, keys.height, dtype=kind, eager=True) for name, kind in self._gives.items()}
        )
        known = np.zeros(keys.height, dtype=bool)
        for part in self._parts:
            places, fits = part.places(keys)
            fits &= ~known
            if fits.all():
                values = part.values[places]
            elif fits.any():
                chosen = pl.Series(fits)
                here = part.values[np.where(fits, places, 0)]
                values = pl.DataFrame(
                    [
                        pl.select(pl.when(chosen).then(here[name]).otherwise(values[name]).alias(name)).to_series()
                        for name in self._gives
                    ]
                )
            known |= fits
            if known.all():
                break
        states = np.where(known, int(State.FOUND), int(State.UNKNOWN))
        return found(values, pl.Series(states), self._gives)


class _Part:
    """The rows of a table that name the same key columns."""

    def __init__(self, rows: pl.DataFrame, keys: list[str], gives: pl.Schema, name: str) -> None:
        doubled = rows.filter(rows.select(keys).is_duplicated()) if keys else rows[1:]
        if doubled.height:
            example = doubled.select(keys).row(0, named=True) if keys else "any"
            raise PlanError(
                f"table {name!r} has several rows for the key {example}",
                hint="Give each key one row: unique(subset=...), or group_by(...).agg(...).",
            )
        self._names = keys
        self.values = rows.select(list(gives))
        if not keys:  # one row for whatever is asked
            return
        self._keys = rows.select(keys)
        # Different keys nearly never have the same hash; if they do, others are tried.
        for seed in range(8):
            hashes = self._hashes(self._keys, seed)
            if len(np.unique(hashes)) == len(hashes):
                break
        else:
            raise PlanError(f"the keys of table {name!r} cannot be told apart", hint="Give it other key columns.")
        self._seed = seed
        order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[order]
        self._keys = self._keys[order]
        self.values = self.values[order]

    def places(self, keys: pl.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """Tell the row of each key, and whether it is there."""
        if not self._names:
            return np.zeros(keys.height, dtype=np.int64), np.ones(keys.height, dtype=bool)
        asked = keys.select(self._names)
        hashes = self._hashes(asked, self._seed)
        places = np.minimum(np.searchsorted(self._sorted, hashes), len(self._sorted) - 1)
        fits = self._sorted[places] == hashes
        there = self._keys[places]
        for name in self._names:
            fits &= (there.get_column(name) == asked.get_column(name)).to_numpy()
        return places, fits

    def _hashes(self, keys: pl.DataFrame, seed: int) -> np.ndarray:
        return keys.hash_rows(seed=seed).to_numpy()


class _Holder:
    """This process's copy of a table."""

    def __init__(self, table: Table, keys: pl.Schema) -> None:
        self._table = table
        self._keys = keys
        self._lock = threading.Lock()
        self._index: Index | None = None
        self._due = 0.0
        self._loading = False

    def index(self) -> Index:
        """Give the index; the first time it is made, later it is made anew in the background."""
        with self._lock:
            if self._index is None:
                self._index = self._made()
                self._due = self._next(self._table.refresh)
            elif self._table.load is not None and time.monotonic() >= self._due and not self._loading:
                self._loading = True
                threading.Thread(target=self._load_again, name=f"table {self._table.name}", daemon=True).start()
            return self._index

    def _made(self) -> Index:
        table = self._table
        try:
            if table.load is not None:
                frame = table.load()
            else:
                frame = table.frame if isinstance(table.frame, pl.DataFrame) else _unpacked(table.frame)
            if not isinstance(frame, pl.DataFrame):
                raise TypeError(f"it gave a {type(frame).__name__}, not a DataFrame")
            return Index(frame, self._keys, table.given(self._keys), table.name)
        except HeadraceError:
            raise
        except Exception as problem:  # a function of the user may raise anything, and give anything
            raise JobError(
                f"table {table.name!r} cannot be loaded: {type(problem).__name__}: {problem}",
                hint="See that what it is loaded from is there on every machine that works on the job.",
            ) from problem

    def _load_again(self) -> None:
        try:
            fresh = self._made()
        except HeadraceError as problem:
            log.warning("%s; the one that was loaded before stays", problem)
            due = self._next(min(self._table.refresh or _TRY_AGAIN, _TRY_AGAIN))
            with self._lock:
                self._due, self._loading = due, False
            return
        with self._lock:
            self._index, self._due, self._loading = fresh, self._next(self._table.refresh), False

    def _next(self, seconds: float | None) -> float:
        return float("inf") if seconds is None else time.monotonic() + seconds


_holders: dict[tuple[Any, ...], _Holder] = {}
_holders_lock = threading.Lock()


def _holder(table: Table, keys: pl.Schema) -> _Holder:
    place = (os.getpid(), table.token, tuple(keys.items()))
    with _holders_lock:
        if place not in _holders:
            _holders[place] = _Holder(table, keys)
        return _holders[place]


def table(
    source: pl.DataFrame | Callable[[], pl.DataFrame],
    *,
    name: str = "",
    gives: dict[str, Any] | pl.Schema | None = None,
    refresh: str | timedelta | None = None,
) -> Table:
    """Enrich by a table that every worker holds.

    Args:
        source: A frame, or a function that loads one. It has the key columns, each key once, and those that are given.
            A null in a key column stands for any value.
        name: What to call it in counters and messages.
        gives: The columns that are given, with their types; of a frame, all but the keys if not said.
        refresh: Call the function again after this time, in the background; the old table serves until the new one is
            there. None: never.

    >>> stops = table(pl.DataFrame({"line": ["6"], "end": ["Arabia"]}), gives={"end": pl.String}, name="stops")
    >>> stops.look_up(pl.DataFrame({"line": ["6", "7"]})).values.rows()
    [('Arabia',), (None,)]
    """
    every = None if refresh is None else micros(refresh, what="refresh") / 1e6
    if every is not None and every <= 0:
        raise PlanError(f"a table that is loaded anew after {refresh!r}", hint="Give a time above zero.")
    if isinstance(source, pl.DataFrame):
        if every is not None:
            raise PlanError("refresh of a table that is a frame", hint="Give a function that loads it.")
        columns = source.schema if gives is None else plain_schema(gives)
        return Table(columns, name or "table", frame=source)
    if gives is None:
        raise PlanError(
            "a table that is loaded by a function, without the columns it gives",
            hint='Name them: gives={"stop": pl.String}; it is loaded when the job runs, not when it is written.',
        )
    return Table(plain_schema(gives), name or getattr(source, "__name__", "table"), load=source, refresh=every)


def _fitting(table: pl.DataFrame, keys: pl.Schema, gives: pl.Schema, name: str) -> pl.DataFrame:
    missing = [column for column in (*keys, *gives) if column not in table.columns]
    if missing:
        raise PlanError(
            f"table {name!r} has no column {', '.join(missing)}", hint=f"It has: {', '.join(table.columns)}."
        )
    wanted = {**gives, **keys}
    for column, kind in wanted.items():
        have = table.schema[column]
        same_kind = have.is_integer() and kind.is_integer()
        if have != kind and not same_kind and have != pl.Null:
            raise PlanError(
                f"table {name!r} has {column!r} as {have}, but it is looked up as {kind}",
                hint="Cast one of them to the other's type.",
            )
    return table.select(pl.col(column).cast(kind) for column, kind in wanted.items())


def _packed(frame: pl.DataFrame) -> bytes:
    sink = io.BytesIO()
    frame.write_ipc(sink, compression="zstd", compat_level=pl.CompatLevel.oldest())
    return sink.getvalue()


def _unpacked(frame: Any) -> pl.DataFrame:
    return pl.read_ipc(io.BytesIO(frame))
