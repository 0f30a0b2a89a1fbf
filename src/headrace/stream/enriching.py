"""The step behind `Stream.enrich`: look the batch's different keys up once, and give every row its values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.tally import count
from headrace.enrich import State
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.enrich import Enrichment

_STATE = "#state"


@dataclass(frozen=True)
class Enrich:
    """Add columns that a source knows by key.

    Args:
        source: Who knows.
        on: The columns of a row that make its key, and what the source calls them.
    """

    source: Enrichment
    on: tuple[tuple[str, str], ...]

    @property
    def reads(self) -> set[str]:
        """The columns of a row that make its key."""
        return {name for name, _ in self.on}

    @property
    def gives(self) -> pl.Schema:
        """The columns that are added."""
        keys = {key for _, key in self.on}
        return pl.Schema({name: kind for name, kind in self.source.gives.items() if name not in keys})

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Look keys up, add what is known of them, and count how it went."""
        own = [name for name, _ in self.on]
        keys = frame.select(own).unique(maintain_order=True).drop_nulls()
        gives = self.gives
        if keys.is_empty():
            count(f"{self.source.name}.{State.KEYLESS.name.lower()}", frame.height)
            return frame.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in gives.items())
        found = self.source.look_up(keys.rename(dict(self.on)))
        known = pl.concat(
            [keys, found.values.select(list(gives)), found.states.alias(_STATE).to_frame()], how="horizontal"
        )
        rich = frame.join(known, on=own, how="left", maintain_order="left")
        self._count(rich.get_column(_STATE))
        return rich.drop(_STATE)

    def _count(self, states: pl.Series) -> None:
        numbers = states.fill_null(int(State.KEYLESS)).value_counts()
        for number, rows in numbers.iter_rows():
            count(f"{self.source.name}.{State(number).name.lower()}", rows)

    @property
    def text(self) -> str:
        """Name the source, the key and what it gives."""
        keys = ", ".join(name if name == key else f"{name} as {key}" for name, key in self.on)
        return f"enrich by {self.source.text} on {keys} -> {', '.join(self.gives)}"


#: What to write where a stream is given for something to look up.
JOIN_HINT = (
    "Join the two streams: join(other, on=..., within=...) of rows near in time, window=... of rows of one window, or "
    "join(other.as_table(...), on=...) for the newest row of each key."
)


def enrich(source: Enrichment, on: str | Sequence[str] | Mapping[str, str], schema: pl.Schema) -> Enrich:
    """Make the step, or say why it cannot work.

    Args:
        source: Who knows.
        on: The key columns of a row; a mapping where the source calls them otherwise.
        schema: The columns of a row.
    """
    _check_source(source)
    names = [on] if isinstance(on, str) else list(on)
    pairs = tuple(on.items()) if hasattr(on, "items") else tuple((name, name) for name in names)
    if not pairs:
        raise PlanError("enrich without a key", hint='Name the columns to look up: on="line".')
    for name in names:
        if name not in schema:
            raise PlanError(
                f"enrich on {name!r}: there is no such column", hint=f"The columns here are: {', '.join(schema)}."
            )
    step = Enrich(source, pairs)
    taken = [name for name in step.gives if name in schema]
    if taken or not step.gives:
        what = f"the column {', '.join(taken)} is taken" if taken else "it gives no column beside the key"
        raise PlanError(f"enrich by {source.name}: {what}", hint="Rename it in the source, or drop it before.")
    source.check(pl.Schema({key: schema[name] for name, key in pairs}))
    return step


def _check_source(source: object) -> None:
    """Refuse what is no source of an enrichment, and say how to make one of it."""
    if hasattr(source, "look_up") and hasattr(source, "gives"):
        return
    takes = "enrich takes a table, a function or a service"
    if hasattr(source, "node"):
        raise PlanError(f"{takes}, and this is another stream", hint=JOIN_HINT)
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        collect = ".collect()" if isinstance(source, pl.LazyFrame) else ""
        hint = f"Make a table of it: enrich(table(frame{collect}), on=...), with table from headrace.enrich."
    elif callable(source):
        hint = "Make a source of it: enrich(bulk(function, gives={...}), on=...), with bulk from headrace.enrich."
    else:
        hint = "Make a source with table(...), bulk(...) or http(...) of headrace.enrich."
    raise PlanError(f"{takes}, and this is a {type(source).__name__}", hint=hint)
