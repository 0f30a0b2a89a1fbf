"""The pattern operator: matches a pattern in the rows of one key group.

Rows wait until the watermark has passed them, for only then is their order final; then they are matched, all keys of
the group at once. A row that comes when the watermark has passed it already goes to the late output. A match comes out
with its key, the measures that were asked for, and as event time the time at which it was decided: that of the row that
completed it, or of the end of the time bound that did.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.compiler import compile_pattern, refuse_impossible
from headrace.cep.conditions import rows_read, unknown_column
from headrace.cep.intake import sort_out
from headrace.cep.keyed import by_key, of_keys
from headrace.cep.measures import Measure, columns_of, compute, first, last
from headrace.cep.saved import pack, unpack
from headrace.cep.streaming import Piece, Progress, StreamMatcher
from headrace.engine.keyed_pages import KeyedPages
from headrace.engine.keygroups import key_hashes
from headrace.engine.operator import EVENT_TIME, Outcome, Turn
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cep.intake import Sorted
    from headrace.cep.pattern import Pattern
    from headrace.engine.state import Segments

_log = logging.getLogger(__name__)

#: The column that tells partial matches whose time was over from matches, where both are asked for.
TIMED_OUT = "timed_out"

_SEGMENT = "pattern"
#: Begins the names of the segments with partial matches.
_PARTIAL = "partial"
#: Partial matches stay in the operator's one segment while they are so few, or so few for each row that a turn usually
#: matches: to part them by key would cost more than to read and write all of them.
_FEW_WAITING = 16_000
_WAITING_PER_ROW = 4
#: How fast the usual number of rows follows the last turn.
_FOLLOW = 0.125
_INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True, slots=True)
class PatternOutcome(Outcome):
    """What one turn of the pattern operator gives.

    Args:
        timed_out: Partial matches whose time bound ended, with the key, the event time of the end, and the measures;
            null or empty where an element had no row yet.
    """

    timed_out: pl.DataFrame | None = None


class PatternOperator:
    """Finds a pattern in the rows of each key.

    Args:
        pattern: What to find.
        key: The key columns.
        measures: The columns of a match, by name.
        timed_out: The columns of a partial match that timed out; None for no such output.
        mark_timed_out: Give partial matches that timed out among the matches, with the same measures, and tell them
            apart by a column `timed_out`.

    >>> from polars import col
    >>> from headrace.cep.pattern import Pattern
    >>> from headrace.engine.state import MemorySegments
    >>> low_high = Pattern.begin("low", col("v") < 2).next("high", col("v") > 5)
    >>> operator = PatternOperator(low_high, key=["k"], measures={"v": last("high.v")})
    >>> rows = pl.DataFrame({"k": ["a", "a"], "v": [1, 9], "event_time": [0, 1]}).cast({"event_time": _INSTANT})
    >>> operator.turn(MemorySegments(), Turn(rows, watermark=2, now=0)).rows.drop("event_time").rows()
    [('a', 9)]
    """

    def __init__(
        self,
        pattern: Pattern,
        *,
        key: Sequence[str],
        measures: Mapping[str, Measure] | None = None,
        timed_out: Mapping[str, Measure] | None = None,
        mark_timed_out: bool = False,
    ) -> None:
        self.pattern = pattern
        self.key = list(key)
        self.measures = dict(measures or {"match_start": first(EVENT_TIME), "match_end": last(EVENT_TIME)})
        self.timed_out = None if timed_out is None else dict(timed_out)
        self.mark_timed_out = mark_timed_out
        if (mark_timed_out or timed_out is not None) and not pattern.bounded:
            raise PlanError(
                "partial matches that time out are asked for, and the pattern has no time bound",
                hint='Give it one, such as within("10s").',
            )
        self.compiled = compile_pattern(pattern)
        self._names = self.compiled.program.labels
        for name in {*self.measures, *(self.timed_out or {})}:
            if name in (*self.key, EVENT_TIME) or (mark_timed_out and name == TIMED_OUT):
                raise PlanError(f"a measure is named {name!r}, like a column that every match has", hint="Rename it.")
        needed = columns_of(self.measures, self._names) | columns_of(self.timed_out or {}, self._names)
        self._needed = needed
        self._matcher = StreamMatcher(
            self.compiled,
            key=self.key,
            columns=sorted(needed),
            limit=pattern.bound,
            timed_out=mark_timed_out or timed_out is not None,
        )
        for caution in pattern.cautions():
            _log.warning("pattern %s: %s", " ".join(pattern.names), caution)

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: a pattern needs each of them."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the matches, given those of the rows; refuses conditions that do not fit these."""
        refuse_impossible(self.pattern, self.compiled)
        empty = pl.DataFrame(schema=rows)
        for column in self.key:
            if column not in rows:
                raise unknown_column(column, rows.names())
        self.compiled.rows(empty, None)
        results = self._results(_nothing(empty, self.key), self.measures)
        return (_marked(results, results[:0]) if self.mark_timed_out else results).schema

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """Tell which columns of the rows are read at all; None where that cannot be known."""
        conditions = [condition for condition in self.compiled.conditions if not isinstance(condition, tuple)]
        read = rows_read(conditions)
        return None if read is None else {EVENT_TIME, *self.key, *self._needed, *read} & set(rows)

    def timed_out_schema(self, rows: pl.Schema) -> pl.Schema | None:
        """Tell the columns of timed-out partial matches, given those of the rows; None if they are not asked for."""
        if self.timed_out is None:
            return None
        return self._results(_nothing(pl.DataFrame(schema=rows), self.key), self.timed_out).schema

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved state depends on: the program and the columns that are kept."""
        program = self.compiled.program
        conditions = [c if isinstance(c, tuple) else _told(c) for c in self.compiled.conditions]
        told = json.dumps([repr(program.instructions), program.within, repr(conditions)])
        return {
            "operator": "pattern",
            "format": "2",
            "program": hashlib.sha256(told.encode()).hexdigest()[:16],
            "version": str(program.version),
            "key": ",".join(self.key),
            "columns": ",".join(sorted(self._needed)),
        }

    def turn(self, state: Segments, turn: Turn) -> PatternOutcome:
        """Take one turn."""
        saved = state.get(_SEGMENT)
        record, frames = ({}, {}) if saved is None else unpack(saved)
        before: int | None = record.get("watermark")
        watermark = turn.watermark if before is None else max(before, turn.watermark)
        rows = sort_out(turn.rows, frames.pop("pending", None), before=before, watermark=watermark)
        pages = KeyedPages(state, self.key, _PARTIAL)
        progress, loaded = self._under_way(pages, frames, rows, watermark)
        matches = timed_out = given_up = None
        keep = {"pending": rows.waiting} if rows.waiting.height else {}
        usual = _usual_rows(record.get("rows", 0.0), int(rows.ready.sum()))
        keys = pages.count
        if rows.ready.any() or not progress.idle:
            paged = pages.count > 0
            advance = self._matcher.advance(progress, rows.rows, watermark, ready=rows.ready, changes_only=paged)
            if not paged and advance.progress.threads.height <= max(_FEW_WAITING, _WAITING_PER_ROW * usual):
                keep |= {} if advance.progress.idle else advance.progress.frames()
                keys = len(np.unique(advance.row_keys))
            else:
                kept, numbers = by_key(advance.progress, advance.row_keys, self.key)
                # Keys are numbered as they are met, so those that were loaded have the numbers of their rows there.
                gone = np.setdiff1d(advance.changed[advance.changed < loaded], numbers)
                pages.save(kept, np.where(numbers < loaded, numbers, -1), gone)
                keys = pages.count
            over = len(advance.timed_out)
            if len(advance.matches) or (over and self.mark_timed_out):
                matches = self._results(advance.matches, self.measures)
                if self.mark_timed_out:
                    matches = _marked(matches, self._results(advance.timed_out, self.measures))
            if self.timed_out is not None and over:
                timed_out = self._results(advance.timed_out, self.timed_out)
            given_up = self._given_up(advance.given_up)
        value = pack({"watermark": watermark, "rows": usual}, keep)
        if value != saved:
            state.put(_SEGMENT, value)
        dismissed = [frame for frame in (rows.dismissed, given_up) if frame is not None]
        return PatternOutcome(
            rows=matches,
            late=rows.late,
            dismissed=pl.concat(dismissed, how="diagonal") if dismissed else None,
            timed_out=timed_out,
            keys=keys,
        )

    def _under_way(
        self, pages: KeyedPages, frames: dict[str, pl.DataFrame], rows: Sorted, watermark: int
    ) -> tuple[Progress, int]:
        """Load the partial matches of keys that have rows or are due; returns also how many keys these are."""
        if frames:
            return Progress.of(frames), 0
        if not pages.count:
            return Progress(), 0
        loaded = pages.load(key_hashes(rows.rows, self.key)[rows.ready], watermark)
        if loaded is None:
            return Progress(), 0
        return of_keys(loaded, self.key, rows.rows.schema), loaded.height

    def _given_up(self, rows: pl.DataFrame | None) -> pl.DataFrame | None:
        if rows is None:
            return None
        bound = self.pattern.bound.partial
        reason = f"the partial match that begins here was given up: its key has more than {bound:,} at once"
        return rows.with_columns(reason=pl.lit(reason))

    def _results(self, piece: Piece, measures: Mapping[str, Measure]) -> pl.DataFrame:
        values = compute(measures, self._names, piece.detail, len(piece))
        times = pl.Series(EVENT_TIME, piece.times, dtype=pl.Int64).cast(_INSTANT)
        return piece.keys.with_columns(times).hstack(values)


def _usual_rows(before: float, rows: int) -> float:
    """The number of rows that a turn usually matches; a turn without rows says nothing."""
    if not rows:
        return before
    return round(before + (rows - before) * _FOLLOW, 1) if before else float(rows)


def _told(condition: object) -> str:
    """A condition as a text that is the same in every process, as far as that can be had."""
    if isinstance(condition, pl.Expr):
        return str(condition)
    name = getattr(condition, "__qualname__", None)
    return repr(condition) if name is None else f"{getattr(condition, '__module__', '')}.{name}"


def _nothing(rows: pl.DataFrame, key: list[str]) -> Piece:
    number = pl.Series("", [], dtype=pl.Int64)
    detail = rows.with_columns(number.alias("#match"), number.alias("#label"))
    return Piece(detail, number.to_numpy(), rows.select(key))


def _marked(matches: pl.DataFrame, timed_out: pl.DataFrame) -> pl.DataFrame:
    """Both together in the order of time; the mark stands after the event time."""
    parts = [
        matches.with_columns(pl.lit(False).alias(TIMED_OUT)),
        timed_out.with_columns(pl.lit(True).alias(TIMED_OUT)),
    ]
    together = pl.concat(parts).sort(EVENT_TIME, maintain_order=True)
    place = matches.columns.index(EVENT_TIME) + 1
    return together.select(*matches.columns[:place], TIMED_OUT, *matches.columns[place:])
