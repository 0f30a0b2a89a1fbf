"""Matching as rows arrive.

Rows of each key come in event-time order, in pieces, each piece with a watermark; matches come out as soon as they are
decided, and time bounds end at the watermark without a new row. What is kept between two pieces is small and exact:

- the **rows** that are part of partial matches, only with the columns that are still needed,
- the paths of the partial matches as a table of **nodes** (parent, label, row),
- the **threads** themselves: where in the program each one waits,
- matches that are complete and **held**, because an earlier partial match may give them away.

A key without partial matches has nothing there. The cost of a piece follows its rows and the partial matches that are
under way. However the rows are cut into pieces, the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.columnar import FEW_KEYS, Columnar
from headrace.cep.limits import HeldRowsError
from headrace.cep.tables import Decided, Nodes, ThreadTable, reached
from headrace.engine.operator import EVENT_TIME
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.cep.compiled import Compiled
    from headrace.cep.limits import Limit
    from headrace.cep.matcher import Rows
    from headrace.cep.tables import Bools, Ints
    from headrace.engine.key_clocks import Marks

_INDEX = "#index"
NODE_COLUMNS = ("parent", "label", "row")
THREAD_COLUMNS = ("at", "node", "start", "deadline")
#: What is saved of numbers; rows of one key group are far fewer than these can count.
_WIDTHS: dict[str, type[np.int32 | np.int64]] = {
    **dict.fromkeys((*NODE_COLUMNS, *THREAD_COLUMNS), np.int32),
    "deadline": np.int64,
}


def empty_table(columns: tuple[str, ...]) -> pl.DataFrame:
    """A table of nodes or threads without rows."""
    return numbers_table(columns, [np.empty(0, dtype=np.int64)] * len(columns))


def numbers_table(columns: tuple[str, ...], values: Sequence[Ints]) -> pl.DataFrame:
    """A table of nodes or threads."""
    return pl.DataFrame({name: value.astype(_WIDTHS[name]) for name, value in zip(columns, values, strict=True)})


@dataclass(frozen=True)
class Progress:
    """What is under way, for all keys; a value that can be saved as four frames.

    Args:
        rows: The rows of partial matches; None before the first row.
        nodes: Paths.
        threads: Partial matches.
        held: Complete matches that wait.
    """

    rows: pl.DataFrame | None = None
    nodes: pl.DataFrame = field(default_factory=lambda: empty_table(NODE_COLUMNS))
    threads: pl.DataFrame = field(default_factory=lambda: empty_table(THREAD_COLUMNS))
    held: pl.DataFrame = field(default_factory=lambda: empty_table(THREAD_COLUMNS))

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.threads.height and not self.held.height

    def frames(self) -> dict[str, pl.DataFrame]:
        """The frames to save."""
        frames = {"nodes": self.nodes, "threads": self.threads, "held": self.held}
        return frames if self.rows is None else {"rows": self.rows, **frames}

    @classmethod
    def of(cls, frames: dict[str, pl.DataFrame]) -> Progress:
        """What `frames` saved."""
        if not {"nodes", "threads", "held"} <= frames.keys():
            raise StateError(f"saved pattern state has only {sorted(frames)}", hint="Start the job afresh.")
        return cls(frames.get("rows"), frames["nodes"], frames["threads"], frames["held"])


@dataclass(frozen=True)
class Piece:
    """Matches, or partial matches that timed out, of one piece.

    Args:
        detail: Their rows, in order: the number of the match as `#match`, its element (by number) as `#label`, and the
            columns that are kept.
        times: For each match, when it was decided, in microseconds.
        keys: For each match, its key columns.
    """

    detail: pl.DataFrame
    times: NDArray[np.int64]
    keys: pl.DataFrame

    def __len__(self) -> int:
        return len(self.times)


@dataclass(frozen=True)
class Advance:
    """What came of one piece of rows.

    Args:
        progress: What is under way.
        matches: Matches.
        timed_out: Partial matches whose time was over.
        row_keys: For each row of the progress, the number of its key. Keys are numbered from 0 as they are met in the
            rows of the progress before, then in the new ones.
        changed: The numbers of the keys whose partial matches are not what they were.
        given_up: The first rows of partial matches that were given up at the bound; None for none.
    """

    progress: Progress
    matches: Piece
    timed_out: Piece
    row_keys: Ints
    changed: Ints
    given_up: pl.DataFrame | None = None


class StreamMatcher:
    """Matches a compiled pattern over a stream of rows of many keys.

    Args:
        compiled: The pattern.
        key: The key columns; none for one key.
        columns: Columns that the results need, beside the key and the time; None for all.
        time: The column with the event time.
        limit: Bound on the partial matches of one key.
        timed_out: Whether partial matches whose time was over are asked for.
        few_keys: See `headrace.cep.columnar`.

    >>> from datetime import datetime, timezone
    >>> from headrace.cep.compiler import compile_pattern
    >>> from headrace.cep.pattern import Pattern
    >>> up = Pattern.begin("low", pl.col("v") < 2).next("high", pl.col("v") > 5)
    >>> matcher = StreamMatcher(compile_pattern(up), key=["k"])
    >>> def at(second): return datetime(2025, 1, 1, 0, 0, second, tzinfo=timezone.utc)
    >>> rows = pl.DataFrame({"k": ["a", "b", "a"], "v": [1, 1, 9], "event_time": [at(0), at(1), at(2)]})
    >>> one = matcher.advance(Progress(), rows[:2], watermark=0)
    >>> two = matcher.advance(one.progress, rows[2:], watermark=0)
    >>> len(one.matches), two.matches.detail["v"].to_list(), two.matches.keys.rows()
    (0, [1, 9], [('a',)])
    """

    def __init__(
        self,
        compiled: Compiled,
        *,
        key: Sequence[str] = (),
        columns: Sequence[str] | None = None,
        time: str = EVENT_TIME,
        limit: Limit | None = None,
        timed_out: bool = True,
        few_keys: int = FEW_KEYS,
    ) -> None:
        self.timed_out = timed_out
        self.compiled = compiled
        self.key = list(key)
        self.time = time
        self.limit = limit
        self.few_keys = few_keys
        asked = compiled.columns_matched()
        self._kept = None if columns is None or asked is None else {*columns, *asked, time, *self.key}

    def kept(self, columns: Sequence[str]) -> list[str]:
        """Of the columns of the rows, those that are kept for partial matches."""
        return [name for name in columns if self._kept is None or name in self._kept]

    def advance(
        self,
        progress: Progress,
        rows: pl.DataFrame,
        watermark: int,
        *,
        ready: Bools | None = None,
        changes_only: bool = False,
        marks: Marks | None = None,
    ) -> Advance:
        """Match the next rows.

        Args:
            progress: What is under way.
            rows: New rows, in any order; those of one key and time in the order they came. None is older than what
                came before in its key.
            watermark: No row before this time will follow.
            ready: Which of the rows to match; None for all.
            changes_only: Give the progress only of keys for which it changed.
            marks: With time by key, the times before which no row of a key will follow.
        """
        kept = self.kept(rows.columns)
        history = progress.rows if progress.rows is not None else rows[:0].select(kept)
        order, key_of_row, unique_keys = self._by_key(history, rows, ready)
        source = _Source(history, rows.select(kept), order)
        times: Ints = np.concatenate([_micros(history[self.time]), _micros(rows[self.time])[order]])
        threads, held = _load(progress.threads, key_of_row, times), _load(progress.held, key_of_row, times)
        new = key_of_row[history.height :]
        first = np.flatnonzero(np.r_[True, new[1:] != new[:-1]]) if len(new) else new
        runs = (new[first], first + history.height, np.r_[first[1:], len(new)][: len(first)] + history.height)
        bound = self.compiled.rows(rows, times, history=history, order=order)
        last = np.append(key_of_row[1:] != key_of_row[:-1], True)
        try:
            run = self._machine(progress, bound, threads, held, last)
            run.run(*runs)
        except HeldRowsError:
            # A round takes a row of every key, also of keys whose rows lie hours apart: take one key after the other.
            run = self._machine(progress, bound, threads, held, last)
            run.run(*runs, apart=True)
        run.advance(watermark if marks is None else marks.after_each(unique_keys).to_numpy())
        new_threads, new_held = run.threads, run.held_table()
        keys = int(key_of_row.max()) + 1 if len(key_of_row) else 0
        changed = _differing(threads, new_threads, keys) | _differing(held, new_held, keys)
        if changes_only and not changed.all():
            new_threads = new_threads.pick(changed[new_threads.key])
            new_held = new_held.pick(changed[new_held.key])
        progress, kept_rows = _save(run, source, new_threads, new_held)
        return Advance(
            progress,
            self._piece(run, run.matches, source, unique_keys),
            self._piece(run, run.timed_out if self.timed_out else Decided(), source, unique_keys),
            key_of_row[kept_rows],
            np.flatnonzero(changed),
            source.take(np.array(run.given_up, dtype=np.int64)) if run.given_up else None,
        )

    def _machine(
        self, progress: Progress, rows: Rows, threads: ThreadTable, held: ThreadTable, last: Bools
    ) -> Columnar:
        return Columnar(
            self.compiled.program,
            rows,
            skip=self.compiled.skip,
            nodes=Nodes(*(progress.nodes[name].to_numpy().astype(np.int64) for name in NODE_COLUMNS)),
            threads=threads,
            held=held,
            limit=self.limit,
            last=last,
            few_keys=self.few_keys,
            matches_only=not self.timed_out,
        )

    def _by_key(
        self, history: pl.DataFrame, rows: pl.DataFrame, ready: Bools | None
    ) -> tuple[Ints, Ints, pl.DataFrame]:
        """Number the keys; returns the new rows by key and time, the key of each row (history first), and the keys."""
        chosen = np.arange(rows.height, dtype=np.int64) if ready is None else np.flatnonzero(ready)
        before = history.height
        if not self.key:
            keys = np.zeros(before + len(chosen), dtype=np.int64)
            order = np.arange(len(chosen), dtype=np.int64)
            unique = pl.DataFrame(height=1)
        else:
            new_keys = rows.select(self.key)
            if ready is not None and len(chosen) < rows.height:
                new_keys = new_keys.filter(ready)
            both = pl.concat([history.select(self.key), new_keys]).with_row_index(_INDEX)
            groups = both.group_by(self.key, maintain_order=True).agg(_INDEX)
            order = groups[_INDEX].explode(empty_as_null=False).to_numpy().astype(np.int64)
            keys = np.empty(len(order), dtype=np.int64)
            keys[order] = np.repeat(np.arange(groups.height), groups[_INDEX].list.len().to_numpy())
            order = order[order >= before] - before
            unique = groups.drop(_INDEX)
        new, order = keys[before:][order], chosen[order]
        times = _micros(rows[self.time])[order]
        if len(new) and bool(((times[1:] < times[:-1]) & (new[1:] == new[:-1])).any()):
            order = order[np.lexsort((times, new))]
        return order, np.concatenate([keys[:before], new]), unique

    def _piece(self, run: Columnar, decided: Decided, source: _Source, keys: pl.DataFrame) -> Piece:
        if not decided.key:
            number = pl.lit(0, dtype=pl.Int64)
            detail = source.nothing.with_columns(number.alias("#match"), number.alias("#label"))
            return Piece(detail, np.empty(0, dtype=np.int64), keys[:0] if self.key else pl.DataFrame())
        time = np.array(decided.time, dtype=np.int64)
        order = np.argsort(time, kind="stable")
        node = np.array(decided.node, dtype=np.int64)[order]
        match, label, row = _unwind(run.nodes, node)
        detail = source.take(row).with_columns(pl.Series("#match", match), pl.Series("#label", label))
        key = np.array(decided.key, dtype=np.int64)[order]
        return Piece(detail, time[order], keys[key] if self.key else pl.DataFrame(height=len(key)))


class _Source:
    """The rows behind the row numbers of the machine: the history, then the new rows in the order of the machine.

    Few of them are asked for in the end, so they are copied only then.
    """

    def __init__(self, history: pl.DataFrame, rows: pl.DataFrame, order: Ints) -> None:
        self._history = history
        self._rows = rows
        self._order = order
        self.count = history.height + len(order)

    @property
    def nothing(self) -> pl.DataFrame:
        """No rows, with their columns."""
        return self._history[:0]

    def take(self, numbers: Ints) -> pl.DataFrame:
        """The rows of some numbers."""
        before = self._history.height
        old = numbers < before
        if not old.any():
            return self._rows[self._order[numbers - before]]
        if old.all():
            return self._history[numbers]
        parts = [self._history[numbers[old]], self._rows[self._order[numbers[~old] - before]]]
        place = np.empty(len(numbers), dtype=np.int64)
        place[np.concatenate([np.flatnonzero(old), np.flatnonzero(~old)])] = np.arange(len(numbers))
        return pl.concat(parts)[place]


def _micros(times: pl.Series) -> Ints:
    return times.dt.epoch("us").to_numpy().astype(np.int64, copy=False)


def _load(threads: pl.DataFrame, key_of_row: Ints, times: Ints) -> ThreadTable:
    if not threads.height:
        return ThreadTable.empty()
    at, node, start, deadline = (threads[name].to_numpy().astype(np.int64) for name in THREAD_COLUMNS)
    # A thread has the key and the time of its first row.
    return ThreadTable(key_of_row[start], at, node, start, times[start], deadline)


def _unwind(nodes: Nodes, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """All rows of the paths that end at some nodes: number of the path, label and row, oldest first."""
    parent, label, row = nodes.arrays()
    match = np.arange(len(ends), dtype=np.int64)
    parts: list[tuple[Ints, Ints, Ints]] = []
    node = ends
    while len(node):
        parts.append((match, label[node], row[node]))
        up = parent[node]
        more = up >= 0
        node, match = up[more], match[more]
    if not parts:
        none = np.empty(0, dtype=np.int64)
        return none, none, none
    # Later parts are older rows: turned around, each path has its oldest row first.
    matches, labels, rows = (np.concatenate(column[::-1]) for column in zip(*parts, strict=True))
    order = np.argsort(matches, kind="stable")
    return matches[order], labels[order], rows[order]


def _differing(before: ThreadTable, after: ThreadTable, keys: int) -> Bools:
    """For each key, whether its threads are not the same as before."""
    counts = np.bincount(before.key, minlength=keys)
    differs: Bools = counts != np.bincount(after.key, minlength=keys)
    # Of the keys that have as many as before, those in the same place belong together.
    tables = []
    for table in (before, after):
        table = table.pick(~differs[table.key])
        tables.append(table.pick(np.argsort(table.key, kind="stable")))
    one, two = tables
    same = (one.at == two.at) & (one.node == two.node) & (one.start == two.start) & (one.deadline == two.deadline)
    differs[one.key[~same]] = True
    return differs


def _save(run: Columnar, source: _Source, threads: ThreadTable, held: ThreadTable) -> tuple[Progress, Ints]:
    """Keep what threads still need, numbered afresh; returns also the numbers that its rows had before."""
    parent, label, row = run.nodes.arrays()
    needed = reached(parent, np.concatenate([threads.node, held.node]))
    rows: Bools = np.zeros(source.count, dtype=np.bool_)
    rows[row[needed]] = True
    new_node = np.cumsum(needed) - 1
    new_row = np.cumsum(rows) - 1
    up = parent[needed]
    nodes = (np.where(up >= 0, new_node[np.maximum(up, 0)], -1), label[needed], new_row[row[needed]])

    def table(threads: ThreadTable) -> pl.DataFrame:
        _, at, node, start, _, deadline = threads.columns()
        if not len(at):
            return empty_table(THREAD_COLUMNS)
        return numbers_table(THREAD_COLUMNS, (at, new_node[node], new_row[start], deadline))

    kept_rows = np.flatnonzero(rows)
    progress = Progress(
        source.take(kept_rows),
        numbers_table(NODE_COLUMNS, nodes) if needed.any() else empty_table(NODE_COLUMNS),
        table(threads),
        table(held),
    )
    return progress, kept_rows
