"""Partial matches as rows by key, the form in which they lie in pages (see `headrace.engine.keyed_state`).

The matcher works on flat tables of all keys at hand (`Progress`): rows, nodes, threads, matches that are held. In pages
the rows of a key stand together. The first of them has the key's nodes, threads and held matches as bytes; numbers that
refer to rows or nodes count from the first of the key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.cep.streaming import NODE_COLUMNS, THREAD_COLUMNS, Progress, empty_table, numbers_table
from headrace.engine.row_pages import NEVER
from headrace.errors import StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.cep.tables import Ints

#: The column with the paths of a key, in its first row; empty in the others.
PATHS: Final = "#paths"

#: Numbers of a node (parent, label, row), of a thread (at, node, first row, and the deadline, which takes two) and of a
#: held match, which has no deadline.
_NODE, _THREAD, _HELD = 3, 5, 3
#: Before them stand the numbers of nodes, threads and held matches.
_HEAD = 3


def by_key(progress: Progress, row_keys: Ints) -> tuple[pl.DataFrame, pl.Series, int]:
    """Part what is under way by key.

    Args:
        progress: What is under way.
        row_keys: A number for the key of each of its rows.

    Returns:
        The rows, those of a key together, with `PATHS`; the time at which the key of each row is due; and the number
        of keys.
    """
    rows = progress.rows
    if rows is None or not rows.height:
        return pl.DataFrame(), pl.Series(dtype=pl.Int64), 0
    order = np.argsort(row_keys, kind="stable")
    numbers, owner_of_row, row_counts = np.unique(row_keys, return_inverse=True, return_counts=True)
    keys = len(numbers)
    row_place = _places_in_key(order, owner_of_row, row_counts)

    parent, label, row = (progress.nodes[name].to_numpy().astype(np.int64) for name in NODE_COLUMNS)
    owner_of_node = owner_of_row[row]
    node_counts = np.bincount(owner_of_node, minlength=keys)
    node_place = _places_in_key(np.argsort(owner_of_node, kind="stable"), owner_of_node, node_counts)
    parent = np.where(parent >= 0, node_place[np.maximum(parent, 0)], -1)
    nodes = np.stack([parent, label, row_place[row]], axis=1).astype(np.int32)

    at, node, start, deadline = (progress.threads[name].to_numpy().astype(np.int64) for name in THREAD_COLUMNS)
    owner_of_thread = owner_of_row[start]
    until = np.ascontiguousarray(deadline).view(np.int32).reshape(-1, 2)
    threads = np.column_stack([at, node_place[node], row_place[start], until]).astype(np.int32)
    due = np.full(keys, NEVER, dtype=np.int64)
    np.minimum.at(due, owner_of_thread, deadline)

    at, node, start, _ = (progress.held[name].to_numpy().astype(np.int64) for name in THREAD_COLUMNS)
    owner_of_held = owner_of_row[start]
    held = np.stack([at, node_place[node], row_place[start]], axis=1).astype(np.int32)

    counts = [node_counts, np.bincount(owner_of_thread, minlength=keys), np.bincount(owner_of_held, minlength=keys)]
    head = np.stack(counts, axis=1).astype(np.int32)
    parts = [
        (np.arange(keys), head),
        (owner_of_node, nodes),
        (owner_of_thread, threads),
        (owner_of_held, held),
    ]
    owner = np.concatenate([np.repeat(owner, values.shape[1]) for owner, values in parts])
    flat = np.concatenate([values.reshape(-1) for _, values in parts])[np.argsort(owner, kind="stable")]
    # The first row of each key has the bytes of the key.
    sizes = np.zeros(len(order), dtype=np.int64)
    sizes[np.cumsum(row_counts) - row_counts] = np.bincount(owner, minlength=keys) * flat.itemsize
    paths = pl.Series(PATHS, _binary(sizes, flat.astype("<i4", copy=False).tobytes()))
    return rows[order].hstack([paths]), pl.Series(due[owner_of_row[order]]), keys


def of_keys(frame: pl.DataFrame, schema: pl.Schema) -> tuple[Progress, Ints]:
    """Put what is under way for some keys together.

    Args:
        frame: Rows as `by_key` gave them: all of each key, one after the other.
        schema: The types of the columns.

    Returns:
        What is under way, and the number of the key of each row; keys are numbered from 0 in the order of the rows.
    """
    sizes, content = _sizes_and_content(frame.get_column(PATHS))
    firsts = np.flatnonzero(sizes)
    if not len(firsts) or firsts[0]:
        raise _damaged()
    row_keys = np.cumsum(sizes > 0) - 1
    flat = np.frombuffer(content, dtype="<i4").astype(np.int64)
    begin = (np.cumsum(sizes[firsts]) - sizes[firsts]) // 4
    node_counts, thread_counts, held_counts = (flat[begin + place] for place in range(_HEAD))
    lengths = _HEAD + node_counts * _NODE + thread_counts * _THREAD + held_counts * _HELD
    if not np.array_equal(lengths * 4, sizes[firsts]):
        raise _damaged()
    nodes_at = begin + _HEAD
    threads_at = nodes_at + node_counts * _NODE
    held_at = threads_at + thread_counts * _THREAD
    node_base = np.cumsum(node_counts) - node_counts

    nodes = _taken(flat, nodes_at, node_counts, _NODE)
    parent = np.where(nodes[:, 0] >= 0, nodes[:, 0] + np.repeat(node_base, node_counts), -1)
    node_table = (parent, nodes[:, 1], nodes[:, 2] + np.repeat(firsts, node_counts))

    def table(values: Ints, counts: Ints, until: Ints) -> pl.DataFrame:
        if not len(values):
            return empty_table(THREAD_COLUMNS)
        node, start = np.repeat(node_base, counts) + values[:, 1], np.repeat(firsts, counts) + values[:, 2]
        return numbers_table(THREAD_COLUMNS, (values[:, 0], node, start, until))

    threads = _taken(flat, threads_at, thread_counts, _THREAD)
    deadlines = np.ascontiguousarray(threads[:, 3:].astype(np.int32)).view(np.int64).reshape(-1)
    held = _taken(flat, held_at, held_counts, _HELD)
    progress = Progress(
        _with_types(pl.DataFrame([column for column in frame.get_columns() if column.name != PATHS]), schema),
        numbers_table(NODE_COLUMNS, node_table),
        table(threads, thread_counts, deadlines),
        # The deadline of a match that is held is over: it has none.
        table(held, held_counts, np.full(len(held), NEVER, dtype=np.int64)),
    )
    return progress, row_keys


def _places_in_key(order: Ints, owner: Ints, counts: Ints) -> Ints:
    """The place of each item among those of its key."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places - (np.cumsum(counts) - counts)[owner]


def _taken(flat: Ints, begin: Ints, counts: Ints, width: int) -> Ints:
    """Take so many rows of numbers for each key, from where those of the key begin."""
    base = np.cumsum(counts) - counts
    first = np.repeat(begin, counts) + (np.arange(int(counts.sum())) - np.repeat(base, counts)) * width
    values: Ints = flat[first[:, None] + np.arange(width)]
    return values


def _binary(sizes: NDArray[np.int64], content: bytes) -> Any:
    """Cut bytes into values of some sizes."""
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(sizes), buffers)


def _sizes_and_content(paths: pl.Series) -> tuple[NDArray[np.int64], bytes]:
    values = paths.to_arrow(compat_level=pl.CompatLevel.oldest())
    _, edges, body = values.buffers()
    offsets = np.frombuffer(edges, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    content = b"" if body is None else memoryview(body)[offsets[0] : offsets[-1]].tobytes()
    return np.diff(offsets), content


def _with_types(rows: pl.DataFrame, schema: pl.Schema) -> pl.DataFrame:
    casts = {name: schema[name] for name, kind in rows.schema.items() if schema.get(name, kind) != kind}
    return rows.cast(casts) if casts else rows  # type: ignore[arg-type]


def _damaged() -> StateError:
    return StateError(
        "the saved partial matches of a key cannot be read",
        hint="The checkpoint is damaged; restore it from a copy, or start the job afresh.",
    )
