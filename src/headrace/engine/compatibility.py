"""Whether saved state fits an operator that has changed since.

A step saves the fingerprint of its operator and the types of its columns. State fits if both are as they were; if
columns have become wider in a way that loses nothing; or if the operator can read the older state (`Migrating`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.operator import Migrating
from headrace.engine.state import MemorySegments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from headrace.engine.operator import Operator
    from headrace.engine.state import Segments

#: From a type to those that hold all of its values, and whose values have the same hash as keys.
_WIDER: dict[str, tuple[str, ...]] = {
    "Int8": ("Int16", "Int32", "Int64"),
    "Int16": ("Int32", "Int64"),
    "Int32": ("Int64",),
    "UInt8": ("UInt16", "UInt32", "UInt64", "Int16", "Int32", "Int64"),
    "UInt16": ("UInt32", "UInt64", "Int32", "Int64"),
    "UInt32": ("UInt64", "Int64"),
    "Float32": ("Float64",),
}


@dataclass(frozen=True)
class Fit:
    """How saved state fits.

    Args:
        changes: What has changed, in words; empty where nothing has.
        fits: Whether the state can be read.
    """

    changes: tuple[str, ...] = ()
    fits: bool = True


def column_types(schema: pl.Schema, others: Sequence[pl.Schema] = ()) -> dict[str, str]:
    """Name the types of the columns of a step's inputs, in the form that is saved."""
    types = {name: str(kind) for name, kind in schema.items()}
    for number, other in enumerate(others, 1):
        types |= {f"{number}.{name}": str(kind) for name, kind in other.items()}
    return types


def fit(
    operator: Operator,
    shape: Mapping[str, str],
    saved_types: Mapping[str, str],
    types: Mapping[str, str],
    *,
    state: Segments | None = None,
) -> Fit:
    """Tell whether saved state fits an operator, and bring it into today's form.

    Args:
        operator: What the step does now.
        shape: The fingerprint that was saved.
        saved_types: The types of the columns that were saved.
        types: Those of now.
        state: The operator's segments, which are migrated where need be; None: only to ask.
    """
    changes, fits = list(changes_of(shape, operator.fingerprint())), True
    if changes:
        segments = MemorySegments() if state is None else state
        fits = isinstance(operator, Migrating) and operator.migrate(segments, dict(shape))
    # Another column more or less is the fingerprint's business; one of another type cannot join what was kept.
    for name, kind in saved_types.items():
        now = types.get(name, kind)
        if now != kind:
            changes.append(f"column {name} was {kind}, is {now}")
            fits = fits and now in _WIDER.get(kind, ())
    return Fit(tuple(changes), fits)


def changes_of(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Say what differs between two fingerprints.

    >>> changes_of({"keys": "a", "aggregate n": "count()"}, {"keys": "b", "aggregate n": "count()"})
    ["keys was 'a', is 'b'"]
    """
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    told = []
    for name in changed:
        if name not in before:
            told.append(f"{name} is new: {after[name]}")
        elif name not in after:
            told.append(f"{name} is gone: {before[name]}")
        else:
            told.append(f"{name} was {before[name]!r}, is {after[name]!r}")
    return told
