"""MATCH_RECOGNIZE as a step of a stream.

Rows wait until the watermark has passed them, for only then is their order final. Then the query runs over them, for
all keys of the group at once, as far as its answer is decided (see `incremental`). What is kept of a key is the rows
from the first that is not decided, and before them as many as PREV can reach before a match; a key with nothing of the
kind has nothing there. A query that asks for MATCH_NUMBER() or `^` keeps one number for every key it has seen, unless
it may forget a key that was quiet for long (see `memory`).
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.cep.intake import noting, sort_out
from headrace.cep.limits import AtLimit, MatchLimitError, check_at_limit
from headrace.cep.program import AnchorEnd, AnchorStart
from headrace.cep.saved import pack, unpack
from headrace.cep.sql.bound import ColumnValue, walk
from headrace.cep.sql.incremental import Progress, Standing, search
from headrace.cep.sql.memory import RUN, Memory
from headrace.cep.sql.output import execute, result
from headrace.cep.sql.reach import Reach
from headrace.cep.sql.table import Table
from headrace.engine.key_clocks import KeyClocks, index_of
from headrace.engine.operator import EVENT_TIME, Outcome, Turn
from headrace.engine.resplit import resplit_frames
from headrace.errors import PlanError
from headrace.time.instants import BEGINNING, END, INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.cep.sql.output import Plan
    from headrace.engine.state import MemorySegments, Segments
    from headrace.time.key_time import KeyTime

#: Rows that one match of one key may need before it is decided.
DEFAULT_MAX_ROWS = 100_000

_SEGMENT = "match"
_STATE = "#state"
_BEFORE, _PENDING, _COVERED, _NEW = range(4)


class MatchRecognizeOperator:
    """Runs one MATCH_RECOGNIZE clause on the rows of one key group.

    Args:
        plan: The compiled clause; it partitions by the key and orders by event time first.
        max_rows: Bound on the rows of one key that an undecided match needs.
        at_limit: What to do at that bound: "fail" the job, or "give_up" these rows, which are then dismissed.
        forget_after: A key without rows for so many microseconds begins anew; None to remember every key.
        key_time: What is promised of the order within a key; None to go by the watermark alone.

    >>> from headrace.cep.sql.lexer import Cursor, tokenize
    >>> from headrace.cep.sql.output import plan
    >>> from headrace.cep.sql.parser import ClauseParser
    >>> from headrace.engine.state import MemorySegments
    >>> text = "PARTITION BY k ORDER BY event_time MEASURES up.v AS v PATTERN (low up) DEFINE low AS v < 2, up AS v > 5"
    >>> tokens = tokenize(text)
    >>> clause = ClauseParser(Cursor(tokens), text, tokens[0].at).parse()
    >>> rows = pl.DataFrame({"k": ["a", "a"], "v": [1, 9], "event_time": [0, 1]}).cast({"event_time": INSTANT})
    >>> operator = MatchRecognizeOperator(plan(clause, dict(rows.schema)))
    >>> operator.turn(MemorySegments(), Turn(rows, watermark=2, now=0)).rows.drop("event_time").rows()
    [('a', 9)]
    """

    def __init__(
        self,
        plan: Plan,
        *,
        max_rows: int = DEFAULT_MAX_ROWS,
        at_limit: AtLimit = "fail",
        forget_after: int | None = None,
        key_time: KeyTime | None = None,
    ) -> None:
        self.plan = plan
        self.max_rows = max_rows
        self.at_limit = at_limit
        self.key = list(plan.partition_by)
        self.reach = Reach.of(plan)
        _check_bounds(plan, self.reach, max_rows, at_limit, forget_after)
        # Only these ask what came before in the key, however long ago.
        remembers = self.reach.numbered or any(
            isinstance(instruction, AnchorStart) for instruction in plan.program.instructions
        )
        self._memory = Memory(self.key, needed=remembers, forget_after=forget_after)
        self._one = plan.rows == "one"
        # Rows of one time that have an order of their own must be there together, which only the watermark knows; and
        # the rows of a match must not be older than what follows believes.
        fitting = self._one and len(plan.order_by) == 1
        self._clocks = KeyClocks(self.key, key_time) if key_time is not None and fitting else None
        self.time_by_key = self._clocks is not None

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: a pattern needs each of them."""
        del watermark
        return rows, None

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """Tell which columns of the rows are read; None for all of them, as ALL ROWS PER MATCH shows them."""
        if not self._one:
            return None
        parts = [part for each in self.plan.conditions.values() for part in (each.mask, each.path) if part is not None]
        parts += [node for _, node in self.plan.measures]
        named = {item.name for part in parts for item in walk(part) if isinstance(item, ColumnValue)}
        return {EVENT_TIME, *self.key, *(key.column for key in self.plan.order_by), *named} & set(rows)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the results, given those of the rows."""
        empty = execute(self.plan, rows.to_frame())
        return (self._dated(empty, np.empty(0, dtype=np.int64), 0) if self._one else empty).schema

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved state depends on: the query, wherever its words stand, and the columns."""
        plan = self.plan
        asked: list[object] = [
            plan.program.instructions,
            plan.program.within,
            plan.conditions,
            plan.rows,
            plan.skip,
            self.reach,
        ]
        asked += ["timed out"] * plan.timed_out
        if self._memory.forget_after is not None:
            asked.append(self._memory.forget_after)
        told = repr(asked)
        return {
            "operator": "match_recognize",
            "format": "1",
            "query": hashlib.sha256(re.sub(r"Position\([^)]*\)", "", told).encode()).hexdigest()[:16],
            "key": ",".join(self.key),
            "order": ",".join(key.column for key in plan.order_by),
            **({} if self._clocks is None else {"time": "by key"}),
        }

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Take one turn."""
        saved = state.get(_SEGMENT)
        record, frames = ({}, {}) if saved is None else unpack(saved)
        before: int | None = record.get("watermark")
        reached = turn.watermark if self._clocks is None else self._clocks.time.floor(turn.watermark)
        watermark = reached if before is None else max(before, reached)
        note = noting(self._clocks, state, record, before=before, watermark=watermark)
        rows = sort_out(turn.rows, frames.get("pending"), before=before, watermark=watermark, note=note)
        state_of = (frames.get("rows"), frames.get("keys"))
        found, kept, memory, given_up = self._advance(rows.ready_rows(), *state_of, watermark, before)
        kept, memory = self._memory.forget(kept, memory, watermark)
        keep = {"pending": rows.waiting, "rows": kept, "keys": memory}
        value = pack(
            {"watermark": watermark, **index_of(record)},
            {name: frame for name, frame in keep.items() if frame is not None and frame.height},
        )
        if value != saved:
            state.put(_SEGMENT, value)
        within = self.plan.program.within
        # The rows of a match are older than the match: what follows must wait for them.
        held_back = watermark - within if not self._one and within is not None and watermark < END else None
        if self._clocks is not None:
            held_back = watermark
        dismissed = [frame for frame in (rows.dismissed, given_up) if frame is not None]
        return Outcome(
            rows=found,
            late=rows.late,
            dismissed=pl.concat(dismissed, how="diagonal") if dismissed else None,
            watermark=held_back,
            keys=self._keys(kept, memory),
        )

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows that are kept, and what is remembered of keys, over other key groups."""
        known = [(state, *unpack(value)) for state in old if (value := state.get(_SEGMENT)) is not None]
        saved = [(record, frames) for _, record, frames in known]
        if not saved:
            return
        clocks: list[dict[str, Any]] = [{} for _ in new]
        if self._clocks is not None:
            clocks = self._clocks.resplit([state for state, _, _ in known], [record for record, _ in saved], new)
        marks = [mark for record, _ in saved if (mark := record.get("watermark")) is not None]
        names = ("pending", "rows", "keys")
        parts = {name: resplit_frames([frames.get(name) for _, frames in saved], self.key, len(new)) for name in names}
        for number, state in enumerate(new):
            keep = {name: frame for name in names if (frame := parts[name][number]) is not None}
            state.put(_SEGMENT, pack({"watermark": min(marks, default=None), **clocks[number]}, keep))

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the rows that wait for the watermark, and those of which it is not decided what they match."""
        saved = state.get(_SEGMENT)
        _, frames = ({}, {}) if saved is None else unpack(saved)
        shown = {"pending": "pending", "rows": "partial_matches", "keys": "keys"}
        found = {shown.get(name, name): frame for name, frame in frames.items()}
        if "partial_matches" in found:
            words = pl.col(_STATE).replace_strict({_BEFORE: "before", _COVERED: "covered"}, default="undecided")
            found["partial_matches"] = found["partial_matches"].with_columns(words.alias(_STATE))
        return found

    def _keys(self, kept: pl.DataFrame | None, memory: pl.DataFrame | None) -> int:
        """Count the keys with rows that are kept, or of which something is remembered."""
        frames = [frame for frame in (kept, memory) if frame is not None and frame.height]
        if not frames or not self.key:
            return len(frames[:1])
        return pl.concat([frame.select(self.key) for frame in frames]).n_unique()

    def _advance(
        self,
        ready: pl.DataFrame,
        kept: pl.DataFrame | None,
        memory: pl.DataFrame | None,
        watermark: int,
        before: int | None,
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None, pl.DataFrame | None, pl.DataFrame | None]:
        """Match what can be matched; returns results, rows to keep, what is remembered of keys, and rows given up."""
        active, resting = self._part(ready, kept, watermark)
        if active is None:
            return None, resting, memory, None
        active = self._memory.with_runs(active, memory, is_new=pl.col(_STATE) == _NEW)
        table = Table(active, self._memory.partition_by, self.plan.order_by)
        times = table.column(EVENT_TIME).to_physical().to_numpy()
        progress = search(
            self.plan,
            self.reach,
            table,
            times,
            self._standing(table, memory),
            watermark=watermark,
            ended=watermark >= END,
            span=self.max_rows,
        )
        found = None
        if progress.matches.count:
            found = result(self.plan, table, progress.matches, hidden=(_STATE, RUN))
            if self._one:
                found = self._dated(found, progress.times, BEGINNING if before is None else before)
        left = self._left(table, progress)
        if resting is not None and resting.height:
            left = pl.concat([resting, left.select(resting.columns)])
        standing = progress.standing
        # While the first row of all is kept, the partition begins with it.
        begins = standing.begins & (standing.first - self.reach.behind <= table.starts)
        memory = self._memory.updated(memory, table, standing.numbers, begins)
        return found, left, memory, self._given_up(table, progress)

    def _given_up(self, table: Table, progress: Progress) -> pl.DataFrame | None:
        """The rows in which no match was found because it would have needed more rows than it may have."""
        if not progress.given_up:
            return None
        first = table.take(np.array([progress.given_up[0][0]])).row(0, named=True)
        who = ", ".join(f"{name} {first[name]}" for name in self.key)
        reason = f"a match that begins at {first[EVENT_TIME]} needs more than {self.max_rows:,} rows"
        if self.at_limit == "fail":
            raise MatchLimitError(
                f"{reason} of one key{f' ({who})' if who else ''}, and is not decided yet",
                hint="Bound the pattern with WITHIN or its repetitions with {n,m}, raise max_rows, or give such rows "
                'up: at_limit="give_up".',
            )
        rows = np.concatenate([np.arange(begin, end) for begin, end in progress.given_up])
        shown = [name for name in table.columns if name not in (_STATE, RUN)]
        return table.take(rows, shown).with_columns(reason=pl.lit(f"{reason} of its key"))

    def _part(
        self, ready: pl.DataFrame, kept: pl.DataFrame | None, watermark: int
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Part the rows at hand into those of keys where something may be decided now, and the others."""
        new = ready.with_columns(pl.lit(_NEW, dtype=pl.Int8).alias(_STATE)) if ready.height else None
        if kept is None:
            return new, None
        rows = kept if new is None else pl.concat([kept, new.select(kept.columns)])
        if watermark >= END:
            return rows, None
        is_active = (pl.col(_STATE) == _NEW).any()
        within = self.plan.program.within
        if within is not None:
            oldest = pl.col(EVENT_TIME).to_physical().filter(pl.col(_STATE) != _BEFORE).min()
            is_active |= (oldest <= watermark - within).fill_null(False)
        marks = rows.select((is_active.over(self.key) if self.key else is_active).alias("active"))["active"]
        if not self.key:
            return (rows, None) if marks[0] else (None, rows)
        if not marks.any():
            return None, rows
        return rows.filter(marks), rows.filter(~marks)

    def _standing(self, table: Table, memory: pl.DataFrame | None) -> Standing:
        state = table.column(_STATE).to_numpy()
        sizes = table.ends - table.starts
        owner = np.repeat(np.arange(len(sizes)), sizes)
        first = table.starts + np.bincount(owner[state == _BEFORE], minlength=len(sizes))
        covered = first + np.bincount(owner[state == _COVERED], minlength=len(sizes))
        return Standing(first, covered, *self._memory.known(table, memory))

    def _left(self, table: Table, progress: Progress) -> pl.DataFrame:
        """The rows that are still needed, with what is known of each."""
        standing = progress.standing
        rows, sizes = np.arange(table.count), table.ends - table.starts
        first, covered = np.repeat(standing.first, sizes), np.repeat(standing.covered, sizes)
        state = np.where(rows < first, _BEFORE, np.where(rows < covered, _COVERED, _PENDING)).astype(np.int8)
        reads = self.reads(table.schema)
        columns = [name for name in table.columns if name != RUN and (reads is None or name in reads or name == _STATE)]
        kept = np.flatnonzero((rows >= first - self.reach.behind) & self._memory.is_last_run(table))
        return table.take(kept, columns).with_columns(pl.Series(_STATE, state[kept]))

    def _dated(self, found: pl.DataFrame, times: NDArray[np.int64], before: int) -> pl.DataFrame:
        """Give matches the time at which each was decided, after the key, and sort them by it."""
        # What only the end of the stream decided is as new as the watermark was then.
        dated = found.with_columns(pl.Series(EVENT_TIME, np.maximum(times, before), dtype=pl.Int64).cast(INSTANT))
        place = len(self.key)
        columns = [*found.columns[:place], EVENT_TIME, *found.columns[place:]]
        return dated.select(columns).sort(EVENT_TIME, maintain_order=True)


def _check_bounds(plan: Plan, reach: Reach, max_rows: int, at_limit: AtLimit, forget_after: int | None) -> None:
    if max_rows < 1:
        raise PlanError(f"max_rows is {max_rows}", hint="Give a number of at least 1.")
    check_at_limit(at_limit)
    if forget_after is None:
        return
    within = plan.program.within
    if within is None or within > forget_after:
        raise PlanError(
            "forget_after needs a WITHIN that is not longer: otherwise it would forget what may still match",
            hint="Add WITHIN INTERVAL '...', or give a longer forget_after.",
        )
    if reach.ahead or reach.beyond or any(isinstance(each, AnchorEnd) for each in plan.program.instructions):
        raise PlanError(
            "forget_after with NEXT or $, which wait for the next row of a key however long that takes",
            hint="Leave out one of the two.",
        )
