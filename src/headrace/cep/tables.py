"""Partial matches of many keys as tables: paths as a tree, threads, and what was decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from headrace.cep.limits import HeldRowsError
from headrace.cep.matcher import Path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
Bools: TypeAlias = "NDArray[np.bool_]"

#: Rows in all partial matches of a key group at the same time, with those of the matches of one batch; rows that
#: several have in common are counted once.
MAX_HELD_ROWS: Final = 20_000_000

_NONE: Final = np.empty(0, dtype=np.int64)


class Nodes:
    """Paths as a tree in a table: each node is a row under a label, after its parent (-1: none)."""

    def __init__(self, parent: Ints = _NONE, label: Ints = _NONE, row: Ints = _NONE) -> None:
        self._table = np.stack([parent, label, row])
        self.count = len(parent)
        self._paths: dict[int, Path] = {}

    def add(self, parent: Ints, label: Ints, row: Ints) -> Ints:
        """Add nodes; returns their numbers."""
        first, self.count = self.count, self.count + len(parent)
        self._reserve(first)
        self._table[:, first : self.count] = parent, label, row
        return np.arange(first, self.count, dtype=np.int64)

    def add_one(self, parent: int, label: int, row: int) -> int:
        """Add one node; returns its number."""
        node, self.count = self.count, self.count + 1
        self._reserve(node)
        table = self._table
        table[0, node], table[1, node], table[2, node] = parent, label, row
        return node

    def add_path(self, parent: int, path: Sequence[tuple[int, int]]) -> int:
        """Add a node for each (label, row) of a path that goes on from a node; returns the number of the last."""
        if not path:
            return parent
        first, self.count = self.count, self.count + len(path)
        self._reserve(first)
        added = self._table[:, first : self.count]
        added[1:] = np.array(path, dtype=np.int64).T
        added[0] = np.arange(first - 1, self.count - 1)
        added[0, 0] = parent
        return self.count - 1

    def _reserve(self, used: int) -> None:
        if self.count > 2 * MAX_HELD_ROWS:
            raise too_many_rows()
        if self.count > self._table.shape[1]:
            grown = np.empty((3, max(2 * self.count, 1024)), dtype=np.int64)
            grown[:, :used] = self._table[:, :used]
            self._table = grown

    def keep(self, ends: Ints) -> Ints:
        """Keep only the paths that end at some nodes; returns the new number of each node."""
        parent, label, row = self.arrays()
        needed = reached(parent, ends)
        renumbered = np.where(needed, np.cumsum(needed) - 1, -1)
        up = parent[needed]
        self._table = np.stack([np.where(up >= 0, renumbered[np.maximum(up, 0)], -1), label[needed], row[needed]])
        self.count = int(needed.sum())
        self._paths = {}
        return renumbered

    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Parent, label and row of all nodes."""
        parent, label, row = self._table[:, : self.count]
        return parent, label, row

    def known_paths(self) -> dict[int, Path]:
        """Paths that were asked for, by their last node."""
        return self._paths

    def path(self, node: int, names: tuple[str, ...]) -> Path:
        """The path that ends at a node."""
        parent, label, row = self.arrays()
        chain = []
        while node >= 0 and node not in self._paths:
            chain.append(node)
            node = int(parent[node])
        path = self._paths[node] if node >= 0 else Path.EMPTY
        for link in reversed(chain):
            path = self._paths[link] = path.add(names[int(label[link])], int(row[link]))
        return path


def reached(parent: Ints, ends: Ints) -> Bools:
    """Which nodes are on the paths that end at some nodes."""
    needed: Bools = np.zeros(len(parent), dtype=np.bool_)
    node = ends[ends >= 0]
    while len(node):
        needed[node] = True
        node = parent[node]
        node = node[node >= 0]
        node = np.unique(node[~needed[node]])
    return needed


def too_many_rows() -> HeldRowsError:
    """The error for partial matches that hold too many rows."""
    return HeldRowsError(
        f"the partial matches of a key group and the matches of one batch hold more than {MAX_HELD_ROWS:,} rows in all "
        "at once",
        hint="Bound the pattern with within(...), or its repetitions with times(a, b); or give one match per start row "
        'with skip("past_last").',
    )


@dataclass(slots=True)
class ThreadTable:
    """Threads of all keys; those of one key in the order of preference."""

    key: Ints
    at: Ints
    node: Ints
    start: Ints
    start_time: Ints
    deadline: Ints

    @classmethod
    def empty(cls) -> ThreadTable:
        """No threads."""
        return cls(_NONE, _NONE, _NONE, _NONE, _NONE, _NONE)

    def __len__(self) -> int:
        return len(self.key)

    def pick(self, index: Ints | Bools) -> ThreadTable:
        """Some of the threads, in the order of the index."""
        return ThreadTable(*(column[index] for column in self.columns()))

    def columns(self) -> tuple[Ints, ...]:
        """The arrays in order."""
        return (self.key, self.at, self.node, self.start, self.start_time, self.deadline)

    @classmethod
    def concat(cls, tables: list[ThreadTable]) -> ThreadTable:
        """All threads of several tables."""
        return cls(*(np.concatenate(columns) for columns in zip(*(t.columns() for t in tables), strict=True)))


@dataclass(slots=True)
class Decided:
    """What came out, in order: the key, the last node of the path, and when it was decided."""

    key: list[int] = field(default_factory=list)
    node: list[int] = field(default_factory=list)
    time: list[int] = field(default_factory=list)

    def extend(self, key: Ints, node: Ints, time: Ints) -> None:
        """Add several."""
        self.key.extend(key.tolist())
        self.node.extend(node.tolist())
        self.time.extend(time.tolist())
