"""Stateless steps: each turns one frame into another, row by row or batch by batch, and remembers nothing.

A step is a frozen value. `apply` runs it, `schema` says which columns come out (by running it on no rows), `text` is
its line in `explain()`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.frames import columns_read
from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.engine.tally import count
from headrace.errors import HeadraceError, JobError, PlanError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection


class Step(Protocol):
    """One stateless step."""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Run the step on a batch of rows."""
        ...

    @property
    def text(self) -> str:
        """Describe the step in a line of `explain()`."""
        ...

    @property
    def reads(self) -> set[str] | None:
        """The columns that it reads, beside those that pass through; None where it may be all."""
        ...

    @property
    def gives(self) -> Collection[str]:
        """The columns that it makes."""
        ...


@dataclass(frozen=True)
class WithColumns:
    """Add or replace columns."""

    columns: tuple[tuple[str, pl.Expr], ...]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Compute all columns at once, each from the columns that came in."""
        return frame.with_columns(**dict(self.columns))

    @property
    def reads(self) -> set[str] | None:
        """The columns in the expressions."""
        return columns_read(*(expression for _, expression in self.columns))

    @property
    def gives(self) -> Collection[str]:
        """The columns by name."""
        return dict(self.columns)

    @property
    def text(self) -> str:
        """Name the columns."""
        return f"with_columns {', '.join(name for name, _ in self.columns)}"


@dataclass(frozen=True)
class Select:
    """Keep the named columns only; the event time always stays."""

    columns: tuple[tuple[str, pl.Expr], ...]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Compute the columns and drop the others."""
        chosen = dict(self.columns)
        kept = [pl.col(name) for name in (EVENT_TIME, ORIGINAL) if name in frame.columns and name not in chosen]
        return frame.select(*kept, **chosen)

    @property
    def reads(self) -> set[str] | None:
        """The columns in the expressions."""
        return columns_read(*(expression for _, expression in self.columns))

    @property
    def gives(self) -> Collection[str]:
        """The columns by name."""
        return dict(self.columns)

    @property
    def text(self) -> str:
        """Name the columns."""
        return f"select {', '.join(name for name, _ in self.columns)}"


@dataclass(frozen=True)
class Drop:
    """Leave out the named columns."""

    names: tuple[str, ...]

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Keep the other columns."""
        return frame.drop(self.names)

    @property
    def reads(self) -> set[str] | None:
        """None of them."""
        return set()

    @property
    def gives(self) -> Collection[str]:
        """None."""
        return ()

    @property
    def text(self) -> str:
        """Name the columns."""
        return f"drop {', '.join(self.names)}"


@dataclass(frozen=True)
class Filter:
    """Keep the rows for which the predicate is true; null counts as false."""

    predicate: pl.Expr
    counted: str = ""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Drop the other rows, and count them where that is asked for."""
        kept = frame.filter(self.predicate)
        if self.counted:
            count(self.counted, frame.height - kept.height)
        return kept

    @property
    def reads(self) -> set[str] | None:
        """The columns in the predicate."""
        return columns_read(self.predicate)

    @property
    def gives(self) -> Collection[str]:
        """None."""
        return ()

    @property
    def text(self) -> str:
        """Show the predicate."""
        return f"filter {self.predicate}" + (f", dropped rows counted as {self.counted}" if self.counted else "")


@dataclass(frozen=True)
class MapBatches:
    """Run a function on every batch of rows; it must not depend on how rows are split into batches."""

    function: Callable[[pl.DataFrame], pl.DataFrame]
    name: str

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Call the function."""
        result = self.function(frame)
        if not isinstance(result, pl.DataFrame):
            raise JobError(
                f"step {self.name!r} returned {type(result).__name__}, not a Polars DataFrame",
                hint="Let the function return a DataFrame with the columns that later steps use.",
            )
        return result

    @property
    def reads(self) -> set[str] | None:
        """Nobody knows."""
        return None

    @property
    def gives(self) -> Collection[str]:
        """Nobody knows."""
        return ()

    @property
    def text(self) -> str:
        """Name the function."""
        return f"map_batches {self.name}"


@dataclass(frozen=True)
class FlatMap:
    """Turn each row into any number of rows: a list-valued expression, one row per element."""

    name: str
    items: pl.Expr

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Compute the list and give each of its elements a row; a row with an empty or null list goes."""
        listed = frame.with_columns(self.items.alias(self.name))
        kept = listed.filter(pl.col(self.name).list.len() > 0)
        return kept.explode(self.name)

    @property
    def reads(self) -> set[str] | None:
        """The columns in the expression."""
        return columns_read(self.items)

    @property
    def gives(self) -> Collection[str]:
        """The new column."""
        return (self.name,)

    @property
    def text(self) -> str:
        """Name the new column."""
        return f"flat_map {self.name}"


def schema_after(step: Step, schema: pl.Schema, *, where: str) -> pl.Schema:
    """Tell the columns that come out of a step, or say why it cannot run.

    Args:
        step: The step.
        schema: The columns that go in.
        where: The step in the user's words, for the error.
    """
    try:
        return step.apply(schema.to_frame()).schema
    except HeadraceError as problem:
        raise PlanError(f"{where} cannot work: {problem.message}", hint=problem.hint) from problem
    except Exception as problem:  # a function of the user may raise anything
        raise PlanError(
            f"{where} cannot work: {first_line(problem)}",
            hint=f"The columns here are: {', '.join(schema)}.",
        ) from problem


def replaces(step: Step, column: str) -> bool:
    """Tell whether a step gives a column other values; for a function of the user that is not known, and not told."""
    if isinstance(step, WithColumns | Select):
        value = dict(step.columns).get(column)
        return value is not None and not value.meta.eq(pl.col(column))
    return isinstance(step, FlatMap) and step.name == column


def apply_steps(steps: tuple[Step, ...], frame: pl.DataFrame) -> pl.DataFrame:
    """Run steps one after the other; a failure names the step and shows a row."""
    for step in steps:
        try:
            frame = step.apply(frame)
        except HeadraceError:
            raise
        except Exception as problem:  # a function of the user may raise anything
            example = _example(step, frame)
            raise JobError(
                f"step '{step.text}' failed: {first_line(problem)}; an example row: {example}",
                hint="Mend the step, or filter out the rows that it cannot handle before it.",
            ) from problem
    return frame


def fitted(
    frame: pl.DataFrame, schema: pl.Schema, *, steps: tuple[Step, ...], beside: tuple[str, ...] = ()
) -> pl.DataFrame:
    """Take the columns that were planned for, in their order; say so where a step gave others than it had promised.

    Args:
        frame: What came out of the steps.
        schema: What was planned for, from a run of the same steps on no rows.
        steps: The steps, for the message.
        beside: Further columns to keep where they are there.
    """
    for name, kind in schema.items():
        found = frame.schema.get(name)
        if found != kind:
            told = "is not there" if found is None else f"is {found}"
            guilty = [step.text for step in steps if isinstance(step, MapBatches)] or [step.text for step in steps]
            raise JobError(
                f"after {', '.join(guilty)}, column {name!r} {told}, but it was {kind} when the plan was made",
                hint="Give the same columns of the same types for every batch, also for one without rows.",
            )
    return frame.select(*schema, *(name for name in beside if name in frame.columns))


def _example(step: Step, frame: pl.DataFrame) -> dict[str, Any]:
    """Find a row for which a step fails, by halves; the first row if it fails only for several together."""
    while frame.height > 1:
        half = frame.height // 2
        for part in (frame.slice(0, half), frame.slice(half)):
            try:
                step.apply(part)
            except Exception:  # noqa: BLE001 - whatever it is, it was raised for the whole batch already
                frame = part
                break
        else:
            break
    rows = frame.drop(ORIGINAL, strict=False).head(1).to_dicts()
    return rows[0] if rows else {}


def first_line(problem: Exception) -> str:
    """Say in one line what a failing expression or function of the user said."""
    lines = str(problem).splitlines()
    # Polars lists all columns; our hints do too.
    text = lines[0].partition("; valid columns:")[0] if lines else ""
    return text if isinstance(problem, PolarsError) and text else f"{type(problem).__name__}: {text}"
