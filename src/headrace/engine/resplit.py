"""Spreading saved state over another number of key groups.

A key belongs to the key group that its hash names, modulo their number. So with another number of groups, rows by key
are read from all old groups and put into the new ones; what all groups have alike, above all the time, is copied.
Operators do that for their own segments (`Resplitting`); here is what they have in common, and the engine's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.group import CLOCK, OWN
from headrace.engine.keyed_state import KeyedTable, TableIndex
from headrace.engine.keygroups import key_groups, split_by_group
from headrace.engine.operator import Resplitting
from headrace.engine.row_pages import Layouts
from headrace.engine.state import MemorySegments, record_from_bytes, record_to_bytes
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.engine.operator import Operator
    from headrace.engine.state import Segments

Groups = list[dict[str, bytes]]
"""The segments of each key group of a step."""


def resplit_step(operator: Operator, saved: Groups, groups: int, *, step: str) -> Groups:
    """Spread the state of a step over another number of key groups.

    Args:
        operator: What the step does.
        saved: What each key group has saved.
        groups: How many key groups there shall be.
        step: Names the step in messages.

    Raises:
        StateError: The operator cannot do that.
    """
    clocks = [record_from_bytes(parts[CLOCK]) for parts in saved if CLOCK in parts]
    if not clocks:
        return [{} for _ in range(groups)]
    new = [MemorySegments() for _ in range(groups)]
    if any(name.startswith(OWN) for parts in saved for name in parts):
        if not isinstance(operator, Resplitting):
            raise StateError(
                f"the state of {step} is on {len(saved)} key groups and cannot be spread over {groups}: "
                f"{type(operator).__name__} does not say how",
                hint=f"Go on with {len(saved)} key groups (--set spark.key_groups={len(saved)}), or give the operator "
                "a method `resplit` (see docs/savepoints.md).",
            )
        operator.resplit([_own(parts) for parts in saved], new)
    return [
        {CLOCK: _clock(clocks, number, groups, each), **{OWN + name: value for name, value in each.content.items()}}
        for number, each in enumerate(new)
    ]


def _own(parts: dict[str, bytes]) -> MemorySegments:
    return MemorySegments({name.removeprefix(OWN): value for name, value in parts.items() if name.startswith(OWN)})


def _clock(clocks: list[dict[str, Any]], number: int, groups: int, own: MemorySegments) -> bytes:
    """Make the clock of a new key group: all have the same time, and the first also what is reported of lateness."""
    clock = dict(clocks[0] if number == 0 or len(clocks) == 1 else clocks[1])
    clock["watermark"] = min(each["watermark"] for each in clocks)
    clock["now"] = max(each["now"] for each in clocks)
    clock["bytes"] = sum(map(len, own.content.values()))
    clock["inputs"] = [[name, with_senders(state, groups)] for name, state in clock["inputs"]]
    return record_to_bytes(clock)


def with_senders(state: dict[str, Any], groups: int) -> dict[str, Any]:
    """Let the key groups of a stage before be as many as there are now: each is a partition to the stage behind."""
    partitions: dict[str, Any] = state["partitions"]
    senders = [name for name in partitions if name.startswith("upstream/")]
    if not senders:
        return state
    slowest = min((partitions[name] for name in senders), key=lambda entry: entry["watermark"])
    kept = {name: entry for name, entry in partitions.items() if name not in senders}
    return {**state, "partitions": kept | {f"upstream/{number}": dict(slowest) for number in range(groups)}}


def resplit_frames(
    frames: Sequence[pl.DataFrame | None], keys: Sequence[str], groups: int
) -> list[pl.DataFrame | None]:
    """Put rows of several key groups together and split them by their keys; None where a group has none.

    >>> parts = [pl.DataFrame({"k": ["a", "b"]}), None, pl.DataFrame({"k": ["c"]})]
    >>> sorted(row for part in resplit_frames(parts, ["k"], 2) if part is not None for row in part.rows())
    [('a',), ('b',), ('c',)]
    """
    known = [frame for frame in frames if frame is not None and frame.height]
    if not known:
        return [None] * groups
    by_group = split_by_group(pl.concat(known, how="diagonal_relaxed"), keys, groups)
    return [by_group.get(number) for number in range(groups)]


def resplit_tables(
    old: Sequence[KeyedTable],
    new: Sequence[KeyedTable],
    keys: Sequence[str],
    *,
    change: Callable[[int, pl.DataFrame], pl.DataFrame] | None = None,
) -> None:
    """Move the rows of tables, with their due times, to the tables of other key groups.

    Args:
        old: The tables of the key groups as they are.
        new: Those that shall be, in the order of their groups; without rows.
        keys: The key columns.
        change: Changes the rows of an old key group, given its number.
    """
    parts = [(number, *part) for number, table in enumerate(old) if (part := table.all_rows()) is not None]
    if not parts:
        return
    frames = [frame if change is None else change(number, frame) for number, frame, _, _ in parts]
    rows = pl.concat(frames, how="diagonal_relaxed")
    event, clock = pl.concat([times for _, _, times, _ in parts]), pl.concat([times for _, _, _, times in parts])
    numbers = pl.Series(key_groups(rows, keys, len(new)))
    for number, table in enumerate(new):
        mine = numbers == number
        if mine.any():
            table.put(rows.filter(mine), event.filter(mine), clock.filter(mine))


def resplit_table(
    old: Sequence[Segments],
    new: Sequence[Segments],
    name: str,
    keys: Sequence[str],
    indexes: Sequence[TableIndex],
    *,
    patience: int = 0,
    layouts: str = "layouts",
    route: Sequence[str] | None = None,
    change: Callable[[int, pl.DataFrame], pl.DataFrame] | None = None,
) -> list[TableIndex]:
    """Move the rows of a table of an operator to other key groups.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be.
        name: What the names of its pages begin with.
        keys: The key columns.
        indexes: What is known of the old tables.
        patience: As the operator gives it to its table.
        layouts: The segment with the layouts of its pages.
        route: The columns that name the key group of a row, if these are not the key columns.
        change: Changes the rows of an old key group, given its number.

    Returns:
        What is known of the new tables.
    """
    before = [
        KeyedTable(segments, name, keys, Layouts(segments, layouts), index, patience=patience)
        for segments, index in zip(old, indexes, strict=True)
    ]
    after = [
        KeyedTable(segments, name, keys, Layouts(segments, layouts), TableIndex(), patience=patience)
        for segments in new
    ]
    resplit_tables(before, after, keys if route is None else route, change=change)
    return [table.index for table in after]
