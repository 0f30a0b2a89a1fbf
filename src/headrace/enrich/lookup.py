"""What every enrichment is: keys in, values out, and for each key how it went."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence


class State(IntEnum):
    """How the lookup of a key went."""

    #: There is a value.
    FOUND = 0
    #: The source was asked and knows of none.
    UNKNOWN = 1
    #: The source failed, or answered what cannot be used.
    FAILED = 2
    #: The source was not asked: it has failed too often of late, or too much is waiting for it already.
    REFUSED = 3
    #: The answer has not come in time; when it comes, it is kept for the rows after.
    UNANSWERED = 4
    #: The row has no key to look up.
    KEYLESS = 5


@dataclass(frozen=True)
class Found:
    """The values of some keys.

    Args:
        values: One row per key, in the order of the keys; nulls where there is no value.
        states: How each went, as numbers of `State`.
    """

    values: pl.DataFrame
    states: pl.Series


@runtime_checkable
class Enrichment(Protocol):
    """A source of values by key.

    It is a description: it is built once where the job is written, and travels to every worker with the plan. What it
    holds open there (an index, a connection, a cache) belongs to the process.
    """

    @property
    def name(self) -> str:
        """What it is called in counters and messages."""
        ...

    @property
    def gives(self) -> pl.Schema:
        """The columns it gives."""
        ...

    @property
    def text(self) -> str:
        """Describe it in a line of `explain()`."""
        ...

    def check(self, keys: pl.Schema) -> None:
        """Refuse keys that it can never find, with a PlanError; called when the plan is made."""
        ...

    def look_up(self, keys: pl.DataFrame) -> Found:
        """Look keys up.

        Args:
            keys: Different keys, none of them null, under the names that the source has for them; never empty.
        """
        ...


def found(values: Sequence[pl.Series] | pl.DataFrame, states: pl.Series | Sequence[int], gives: pl.Schema) -> Found:
    """Put values and states into the form that they are handed on in."""
    frame = values if isinstance(values, pl.DataFrame) else pl.DataFrame(list(values))
    return Found(frame.select(list(gives)), pl.Series("state", states, dtype=pl.UInt8))
