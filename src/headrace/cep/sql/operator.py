"""MATCH_RECOGNIZE as a step of a stream.

Rows wait until the watermark has passed them, for only then is their order final. Then the query runs over them, for
all keys of the group at once, as far as its answer is decided (see `incremental`). What is kept of a key is the rows
from the first that is not decided, and before them as many as PREV can reach; a key with nothing of the kind has
nothing there. A query that asks for MATCH_NUMBER() or `^` keeps one number for every key it has seen.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.intake import sort_out
from headrace.cep.matcher import MatchLimitError
from headrace.cep.program import AnchorStart
from headrace.cep.saved import pack, unpack
from headrace.cep.sql.bound import ColumnValue, walk
from headrace.cep.sql.incremental import Progress, Reach, Standing, search
from headrace.cep.sql.output import execute, result
from headrace.cep.sql.table import Table
from headrace.engine.operator import EVENT_TIME, Outcome, Turn
from headrace.time.instants import BEGINNING, END, INSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.cep.sql.output import Plan
    from headrace.engine.state import Segments

#: Undecided rows of one key beyond which the job fails; to drop some would give wrong answers.
DEFAULT_MAX_ROWS = 100_000

_SEGMENT = "match"
_STATE = "#state"
_NUMBER = "#number"
_BEGINS = "#begins"
_BEFORE, _PENDING, _COVERED, _NEW = range(4)


class MatchRecognizeOperator:
    """Runs one MATCH_RECOGNIZE clause on the rows of one key group.

    Args:
        plan: The compiled clause; it partitions by the key and orders by event time first.
        max_rows: Bound on the undecided rows of one key.

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

    def __init__(self, plan: Plan, *, max_rows: int = DEFAULT_MAX_ROWS) -> None:
        self.plan = plan
        self.max_rows = max_rows
        self.key = list(plan.partition_by)
        self.reach = Reach.of(plan)
        # Only these ask what came before in the key, however long ago.
        self._remembers = self.reach.numbered or any(
            isinstance(instruction, AnchorStart) for instruction in plan.program.instructions
        )
        self._one = plan.rows == "one"

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
        asked = [plan.program.instructions, plan.program.within, plan.conditions, plan.rows, plan.skip, self.reach]
        told = repr([*asked, "timed out"] if plan.timed_out else asked)
        return {
            "operator": "match_recognize",
            "format": "1",
            "query": hashlib.sha256(re.sub(r"Position\([^)]*\)", "", told).encode()).hexdigest()[:16],
            "key": ",".join(self.key),
            "order": ",".join(key.column for key in plan.order_by),
        }

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Take one turn."""
        saved = state.get(_SEGMENT)
        record, frames = ({}, {}) if saved is None else unpack(saved)
        before: int | None = record.get("watermark")
        watermark = turn.watermark if before is None else max(before, turn.watermark)
        rows = sort_out(turn.rows, frames.get("pending"), before=before, watermark=watermark)
        found, kept, memory = self._advance(rows.ready, frames.get("rows"), frames.get("keys"), watermark, before)
        keep = {"pending": rows.waiting, "rows": kept, "keys": memory}
        value = pack(
            {"watermark": watermark},
            {name: frame for name, frame in keep.items() if frame is not None and frame.height},
        )
        if value != saved:
            state.put(_SEGMENT, value)
        within = self.plan.program.within
        # The rows of a match are older than the match: what follows must wait for them.
        held_back = watermark - within if not self._one and within is not None and watermark < END else None
        return Outcome(rows=found, late=rows.late, dismissed=rows.dismissed, watermark=held_back)

    def _advance(
        self,
        ready: pl.DataFrame,
        kept: pl.DataFrame | None,
        memory: pl.DataFrame | None,
        watermark: int,
        before: int | None,
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None, pl.DataFrame | None]:
        """Match what can be matched; returns results, the rows to keep, and what is remembered of keys."""
        active, resting = self._part(ready, kept, watermark)
        if active is None:
            return None, resting, memory
        table = Table(active, self.plan.partition_by, self.plan.order_by)
        times = table.frame[EVENT_TIME].to_physical().to_numpy()
        progress = search(
            self.plan,
            self.reach,
            table,
            times,
            self._standing(table, memory),
            watermark=watermark,
            ended=watermark >= END,
        )
        found = None
        if progress.matches.count:
            found = result(self.plan, table, progress.matches, hidden=(_STATE,))
            if self._one:
                found = self._dated(found, progress.times, BEGINNING if before is None else before)
        left = self._left(table, progress)
        if resting is not None and resting.height:
            left = pl.concat([resting, left.select(resting.columns)])
        return found, left, self._remembered(table, progress, memory)

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
        state = table.frame[_STATE].to_numpy()
        sizes = table.ends - table.starts
        owner = np.repeat(np.arange(len(sizes)), sizes)
        first = table.starts + np.bincount(owner[state == _BEFORE], minlength=len(sizes))
        covered = first + np.bincount(owner[state == _COVERED], minlength=len(sizes))
        numbers = np.zeros(len(sizes), dtype=np.int64)
        begins = np.ones(len(sizes), dtype=np.bool_)
        if memory is not None:
            known = memory
            if self.key:
                keys = table.frame[table.starts].select(self.key)
                known = keys.join(memory, on=self.key, how="left", nulls_equal=True, maintain_order="left")
            begins = known[_BEGINS].fill_null(True).to_numpy()
            numbers = known[_NUMBER].fill_null(0).to_numpy()
        return Standing(first, covered, numbers, begins)

    def _left(self, table: Table, progress: Progress) -> pl.DataFrame:
        """The rows that are still needed, with what is known of each."""
        standing = progress.standing
        rows, sizes = np.arange(table.count), table.ends - table.starts
        first, covered = np.repeat(standing.first, sizes), np.repeat(standing.covered, sizes)
        undecided = table.ends - standing.first
        if len(undecided) and int(undecided.max()) > self.max_rows:
            raise MatchLimitError(
                f"{int(undecided.max()):,} rows of one key wait for a match to be decided, more than {self.max_rows:,}",
                hint="Bound the pattern with WITHIN, or its repetitions with {n,m}.",
            )
        state = np.where(rows < first, _BEFORE, np.where(rows < covered, _COVERED, _PENDING)).astype(np.int8)
        reads = self.reads(table.frame.schema)
        columns = [name for name in table.columns if reads is None or name in reads or name == _STATE]
        left = table.frame.select(columns).with_columns(pl.Series(_STATE, state))
        return left.filter(pl.Series(rows >= first - self.reach.behind))

    def _remembered(self, table: Table, progress: Progress, memory: pl.DataFrame | None) -> pl.DataFrame | None:
        if not self._remembers:
            return None
        standing = progress.standing
        # While the first row of all is kept, the partition begins with it.
        begins = standing.begins & (standing.first - self.reach.behind <= table.starts)
        columns = [pl.Series(_NUMBER, standing.numbers, dtype=pl.Int64), pl.Series(_BEGINS, begins)]
        if not self.key:
            return pl.DataFrame(columns)
        new = table.frame[table.starts].select(self.key).with_columns(columns)
        if memory is None:
            return new
        return pl.concat([memory.join(new, on=self.key, how="anti", nulls_equal=True), new])

    def _dated(self, found: pl.DataFrame, times: NDArray[np.int64], before: int) -> pl.DataFrame:
        """Give matches the time at which each was decided, after the key, and sort them by it."""
        # What only the end of the stream decided is as new as the watermark was then.
        dated = found.with_columns(pl.Series(EVENT_TIME, np.maximum(times, before), dtype=pl.Int64).cast(INSTANT))
        place = len(self.key)
        columns = [*found.columns[:place], EVENT_TIME, *found.columns[place:]]
        return dated.select(columns).sort(EVENT_TIME, maintain_order=True)
