"""Partial matches as one row per key, the form in which they are kept (see `headrace.engine.keyed_pages`).

The matcher works on flat tables of all keys at hand (`Progress`): rows, nodes, threads, matches that are held. Here
they are parted by key: each becomes a list in the row of its key, and numbers that refer to rows or nodes count from
the first of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.cep.streaming import NODE_COLUMNS, THREAD_COLUMNS, Progress, empty_table, numbers_table
from headrace.engine.keyed_pages import DUE, NEVER, restored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.cep.tables import Ints

_NODES: Final = "#nodes"
_THREADS: Final = "#threads"
_DEADLINES: Final = "#deadlines"
_HELD: Final = "#held"
_OWN: Final = (_NODES, _THREADS, _DEADLINES, _HELD, DUE)
_KEY: Final = "#key"


def by_key(progress: Progress, row_keys: Ints, key: Sequence[str]) -> tuple[pl.DataFrame, Ints]:
    """Part what is under way by key.

    Args:
        progress: What is under way.
        row_keys: A number for the key of each of its rows.
        key: The key columns.

    Returns:
        One row per key, with the time at which it is due, and the number of each key.
    """
    rows = progress.rows
    if rows is None or not rows.height:
        return pl.DataFrame(schema={DUE: pl.Int64}), np.empty(0, dtype=np.int64)
    order = np.argsort(row_keys, kind="stable")
    numbers, row_counts = np.unique(row_keys, return_counts=True)
    owner_of_row = np.searchsorted(numbers, row_keys)
    row_place = _places_in_key(order, owner_of_row, row_counts)
    columns = [name for name in rows.columns if name not in key]
    parts = rows[order].select(columns).with_columns(pl.Series(_KEY, owner_of_row[order]))
    lists = parts.group_by(_KEY, maintain_order=True).agg(columns).drop(_KEY)
    first = order[np.cumsum(row_counts) - row_counts]

    parent, label, row = (progress.nodes[name].to_numpy().astype(np.int64) for name in NODE_COLUMNS)
    owner_of_node = owner_of_row[row]
    node_order = np.argsort(owner_of_node, kind="stable")
    node_counts = np.bincount(owner_of_node, minlength=len(numbers))
    node_place = _places_in_key(node_order, owner_of_node, node_counts)
    parent = np.where(parent >= 0, node_place[np.maximum(parent, 0)], -1)
    nodes = np.stack([parent, label, row_place[row]], axis=1)[node_order]

    def threads_of(table: pl.DataFrame) -> tuple[Ints, Ints, Ints]:
        at, node, start, deadline = (table[name].to_numpy().astype(np.int64) for name in THREAD_COLUMNS)
        owner = owner_of_row[start]
        in_order = np.argsort(owner, kind="stable")
        values = np.stack([at, node_place[node], row_place[start]], axis=1)[in_order]
        return values, np.bincount(owner, minlength=len(numbers)), deadline[in_order]

    threads, thread_counts, deadlines = threads_of(progress.threads)
    held, held_counts, _ = threads_of(progress.held)
    due = np.full(len(numbers), NEVER, dtype=np.int64)
    np.minimum.at(due, np.repeat(np.arange(len(numbers)), thread_counts), deadlines)
    frame = rows[first].select(key).hstack(lists) if key else lists
    return frame.with_columns(
        _lists(_NODES, nodes, node_counts, np.int32),
        _lists(_THREADS, threads, thread_counts, np.int32),
        _lists(_DEADLINES, deadlines, thread_counts, np.int64),
        _lists(_HELD, held, held_counts, np.int32),
        pl.Series(DUE, due),
    ), numbers


def of_keys(frame: pl.DataFrame, key: Sequence[str], schema: pl.Schema) -> Progress:
    """Put what is under way for some keys together.

    Args:
        frame: One row per key, as `by_key` gave it.
        key: The key columns.
        schema: The types of the columns.
    """
    columns = [name for name in frame.columns if name not in (*_OWN, *key)]
    rows = restored(frame.select(*key, *columns).explode(columns), schema)
    row_counts = np.diff(frame[columns[0]].to_arrow().offsets.to_numpy())
    row_base = np.cumsum(row_counts) - row_counts
    nodes, node_counts = _values(frame[_NODES], 3)
    node_base = np.cumsum(node_counts) - node_counts
    offset = np.repeat(node_base, node_counts)
    node_table = (
        np.where(nodes[:, 0] >= 0, nodes[:, 0] + offset, -1),
        nodes[:, 1],
        nodes[:, 2] + np.repeat(row_base, node_counts),
    )

    def table(name: str, deadlines: Ints | None) -> pl.DataFrame:
        values, counts = _values(frame[name], 3)
        if not len(values):
            return empty_table(THREAD_COLUMNS)
        node, start = np.repeat(node_base, counts) + values[:, 1], np.repeat(row_base, counts) + values[:, 2]
        # The deadline of a match that is held is over: it has none.
        until = np.full(len(values), NEVER, dtype=np.int64) if deadlines is None else deadlines
        return numbers_table(THREAD_COLUMNS, (values[:, 0], node, start, until))

    deadlines, _ = _values(frame[_DEADLINES], 1)
    return Progress(
        rows,
        numbers_table(NODE_COLUMNS, node_table),
        table(_THREADS, deadlines[:, 0]),
        table(_HELD, None),
    )


def _places_in_key(order: Ints, owner: Ints, counts: Ints) -> Ints:
    """The place of each item among those of its key."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places - (np.cumsum(counts) - counts)[owner]


def _lists(name: str, values: Ints, counts: Ints, kind: type[np.int32 | np.int64]) -> pl.Series:
    """Rows of numbers, parted into one list for each key."""
    width = values.shape[1] if values.ndim > 1 else 1
    offsets = np.concatenate([[0], np.cumsum(counts * width)]).astype(np.int64)
    flat = pa.array(values.reshape(-1).astype(kind))
    found = pl.from_arrow(pa.LargeListArray.from_arrays(pa.array(offsets), flat))
    return pl.Series(name, found)


def _values(lists: pl.Series, width: int) -> tuple[NDArray[np.int64], Ints]:
    """The rows of numbers in lists, and how many there are in each."""
    array = lists.to_arrow()
    values = array.flatten().to_numpy().astype(np.int64).reshape(-1, width)
    return values, np.diff(array.offsets.to_numpy()) // width
