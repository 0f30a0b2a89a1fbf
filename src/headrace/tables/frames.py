"""What OVER computes for a row: aggregates over a frame of rows before it, its number, and values of its neighbours.

A *frame* says which rows before a row count beside it: the last so many (`rows`), or those so far back in time
(`range`), which takes in all rows of the same time. Neighbours (`lag`, `lead`) are counted in rows whatever the frame.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headrace.errors import PlanError
from headrace.time.duration import text
from headrace.windows.aggregates import Aggregate, Column, column, label_of

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Frame:
    """Which rows count for a row, beside itself.

    Args:
        unit: Whether it is counted in rows, or in time.
        preceding: How many rows before it, or how far back in microseconds; None: all.

    >>> Frame("rows", 2).describe(), Frame("range", None).describe()
    ('rows 2 preceding', 'range unbounded preceding')
    """

    unit: Literal["rows", "range"] = "range"
    preceding: int | None = None

    def __post_init__(self) -> None:
        if self.preceding is not None and self.preceding < 0:
            raise PlanError(f"over {self.unit} {self.preceding} preceding", hint="Give 0 or more.")

    def describe(self) -> str:
        """Write the frame as SQL does."""
        far = self.preceding
        told = "unbounded" if far is None else str(far) if self.unit == "rows" else text(far)
        return f"{self.unit} {told} preceding"


@dataclass(frozen=True)
class Numbered:
    """The number of a row among those of its key: each its own, or rows of one time alike, with gaps or without."""

    numbering: Literal["row_number", "rank", "dense_rank"]

    def describe(self) -> str:
        """Write it as a user does."""
        return f"{self.numbering}()"


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A value of the row so many places before (or after, if negative); the default where there is none."""

    of: pl.Expr
    label: str
    places: int
    default: object = None

    def describe(self) -> str:
        """Write it as a user does."""
        name = "lag" if self.places >= 0 else "lead"
        default = "" if self.default is None else f", default={self.default!r}"
        return f"{name}({self.label}, {abs(self.places)}{default})"


@dataclass(frozen=True, eq=False)
class Edge:
    """A value of the first or the last row of the frame, null if it is null."""

    of: pl.Expr
    label: str
    last: bool = False

    def describe(self) -> str:
        """Write it as a user does."""
        return f"{'last' if self.last else 'first'}_value({self.label})"


#: What `over` takes.
OverFunction = Aggregate | Numbered | Neighbour | Edge


def row_number() -> Numbered:
    """Number the rows of a key in their order, from 1."""
    return Numbered("row_number")


def rank() -> Numbered:
    """Number the rows of a key, those of one time alike, with gaps after them."""
    return Numbered("rank")


def dense_rank() -> Numbered:
    """Number the rows of a key, those of one time alike, without gaps."""
    return Numbered("dense_rank")


def lag(of: Column, places: int = 1, *, default: object = None) -> Neighbour:
    """Take a value of an earlier row of the key.

    Args:
        of: The column.
        places: How many rows before; a negative number is that many rows after.
        default: What to give where there is no such row.
    """
    return Neighbour(column(of), label_of(of), places, default)


def lead(of: Column, places: int = 1, *, default: object = None) -> Neighbour:
    """Take a value of a later row of the key; a row waits until that one is there, or the stream ends.

    Args:
        of: The column.
        places: How many rows after; a negative number is that many rows before.
        default: What to give where there is no such row.
    """
    return Neighbour(column(of), label_of(of), -places, default)


def first_value(of: Column) -> Edge:
    """Take the value of the first row of the frame."""
    return Edge(column(of), label_of(of))


def last_value(of: Column) -> Edge:
    """Take the value of the last row of the frame: the row itself, or the last one of its time."""
    return Edge(column(of), label_of(of), last=True)
