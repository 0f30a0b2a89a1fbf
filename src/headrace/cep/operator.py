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
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.cep.compiler import compile_pattern, refuse_impossible
from headrace.cep.conditions import rows_read, unknown_column
from headrace.cep.intake import noting, sort_out
from headrace.cep.keyed import PATHS, by_key, of_keys
from headrace.cep.measures import Measure, columns_of, compute, first, last
from headrace.cep.partial import partial_matches
from headrace.cep.saved import pack, refuse_older_pages, unpack
from headrace.cep.streaming import Advance, Piece, Progress, StreamMatcher
from headrace.engine.key_clocks import KeyClocks, index_of
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.keygroups import key_groups
from headrace.engine.operator import EVENT_TIME, Outcome, Turn
from headrace.engine.resplit import resplit_frames
from headrace.engine.row_pages import Layouts
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cep.intake import Sorted
    from headrace.cep.pattern import Pattern
    from headrace.cep.tables import Ints
    from headrace.engine.state import MemorySegments, Segments
    from headrace.time.key_time import KeyTime

_log = logging.getLogger(__name__)

#: The column that tells partial matches whose time was over from matches, where both are asked for.
TIMED_OUT = "timed_out"

_SEGMENT = "pattern"
#: Begins the names of the segments with partial matches.
_PARTIAL = "partial"
#: Partial matches stay in the operator's one segment while they are so few: to part them by key would cost more than to
#: read and write all of them.
_FEW_WAITING = 16_000
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
        key_time: What is promised of the order within a key; None to go by the watermark alone.

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
        key_time: KeyTime | None = None,
    ) -> None:
        self.pattern = pattern
        self.key = list(key)
        self._clocks = None if key_time is None else KeyClocks(key, key_time)
        self.time_by_key = key_time is not None
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
            **({} if self._clocks is None else {"time": "by key"}),
        }

    def turn(self, state: Segments, turn: Turn) -> PatternOutcome:
        """Take one turn."""
        saved = state.get(_SEGMENT)
        record, frames = ({}, {}) if saved is None else unpack(saved)
        if saved is not None:
            refuse_older_pages(saved, state)
        before: int | None = record.get("watermark")
        reached = turn.watermark if self._clocks is None else self._clocks.time.floor(turn.watermark)
        watermark = reached if before is None else max(before, reached)
        note = noting(self._clocks, state, record, before=before, watermark=watermark)
        rows = sort_out(turn.rows, frames.pop("pending", None), before=before, watermark=watermark, note=note)
        pages = _Pages(state, self.key, record)
        progress, loaded = self._under_way(pages, frames, rows, watermark)
        matches = timed_out = given_up = None
        keep = {"pending": rows.waiting} if rows.waiting.height else {}
        keys = pages.keys
        if rows.ready.any() or not progress.idle:
            paged = pages.keys > 0
            advance = self._matcher.advance(
                progress, rows.rows, watermark, ready=rows.ready, changes_only=paged, marks=rows.marks
            )
            if not paged and advance.progress.threads.height <= _FEW_WAITING:
                keep |= {} if advance.progress.idle else advance.progress.frames()
                keys = len(np.unique(advance.row_keys))
            else:
                pages.save(advance, loaded)
                keys = pages.keys
            over = len(advance.timed_out)
            if len(advance.matches) or (over and self.mark_timed_out):
                matches = self._results(advance.matches, self.measures)
                if self.mark_timed_out:
                    matches = _marked(matches, self._results(advance.timed_out, self.measures))
            if self.timed_out is not None and over:
                timed_out = self._results(advance.timed_out, self.timed_out)
            given_up = self._given_up(advance.given_up)
        value = pack({"watermark": watermark, **pages.record(), **index_of(record)}, keep)
        if value != saved:
            state.put(_SEGMENT, value)
        dismissed = [frame for frame in (rows.dismissed, given_up) if frame is not None]
        return PatternOutcome(
            rows=matches,
            late=rows.late,
            dismissed=pl.concat(dismissed, how="diagonal") if dismissed else None,
            timed_out=timed_out,
            watermark=None if self._clocks is None else watermark,
            keys=keys,
        )

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread rows that wait, and partial matches, over other key groups; partial matches then lie in pages."""
        saved = [(state, *unpack(value)) for state in old if (value := state.get(_SEGMENT)) is not None]
        if not saved:
            return
        pending = resplit_frames([frames.pop("pending", None) for _, _, frames in saved], self.key, len(new))
        partial = [
            part
            for state, record, frames in saved
            if (part := _Pages(state, self.key, record).all_rows() if not frames else _paged(frames, self.key))
        ]
        rows, due = pl.DataFrame(), pl.Series(dtype=pl.Int64)
        if partial:
            rows = pl.concat([frame for frame, _ in partial], how="diagonal_relaxed")
            due = pl.concat([times for _, times in partial])
        numbers = pl.Series(key_groups(rows, self.key, len(new)))
        marks = [mark for _, record, _ in saved if (mark := record.get("watermark")) is not None]
        clocks: list[dict[str, Any]] = [{} for _ in new]
        if self._clocks is not None:
            clocks = self._clocks.resplit([state for state, _, _ in saved], [record for _, record, _ in saved], new)
        for number, (state, waiting) in enumerate(zip(new, pending, strict=True)):
            pages = _Pages(state, self.key, {})
            pages.fill(rows.filter(numbers == number), due.filter(numbers == number))
            keep = {} if waiting is None else {"pending": waiting}
            record = {"watermark": min(marks, default=None), **pages.record(), **clocks[number]}
            state.put(_SEGMENT, pack(record, keep))

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the rows that wait for the watermark, and partial matches with what each waits for."""
        saved = state.get(_SEGMENT)
        if saved is None:
            return {}
        record, frames = unpack(saved)
        shown = {"pending": frames.pop("pending")} if "pending" in frames else {}
        if frames:
            progress = Progress.of(frames)
        else:
            pages = _Pages(state, self.key, record).all_rows()
            progress = Progress() if pages is None else of_keys(pages[0], pages[0].drop(PATHS).schema)[0]
        partial = partial_matches(self.compiled.program, progress, self.key)
        return shown if partial is None else {**shown, "partial_matches": partial}

    def _under_way(
        self, pages: _Pages, frames: dict[str, pl.DataFrame], rows: Sorted, watermark: int
    ) -> tuple[Progress, Ints]:
        """Load the partial matches of keys that have rows or are due.

        Returns:
            What is under way, and the number of the key of each row that comes from pages.
        """
        none = np.empty(0, dtype=np.int64)
        if frames:
            return Progress.of(frames), none
        if not pages.keys:
            return Progress(), none
        loaded = pages.load(rows, watermark)
        return (Progress(), none) if loaded is None else of_keys(loaded, rows.rows.schema)

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


class _Pages:
    """The partial matches of one key group in pages.

    Args:
        state: Where they are kept.
        key: The key columns.
        record: The operator's own record, in which `record` is saved.
    """

    def __init__(self, state: Segments, key: list[str], record: dict[str, Any]) -> None:
        #: How many keys have partial matches.
        self.keys: int = record.get("keys", 0)
        self._index = TableIndex.of(record.get(_PARTIAL))
        self._key = key
        self._layouts = Layouts(state)
        self._table = KeyedTable(state, _PARTIAL, key, self._layouts, self._index)

    def load(self, rows: Sorted, watermark: int) -> pl.DataFrame | None:
        """Give the partial matches of the keys of rows that are ready, and of those that are due; None for none."""
        ready = pl.Series(rows.ready)
        keys = pl.DataFrame([rows.rows.get_column(name).filter(ready) for name in self._key])
        hashes = hashes_of([keys if self._key else rows.ready_rows()], self._key)
        return self._table.take(hashes, watermark=watermark)

    def save(self, advance: Advance, loaded: Ints) -> None:
        """Keep what changed.

        Args:
            advance: What came of the rows.
            loaded: For each row of what was loaded, the number of its key. Keys are numbered as they are met, so these
                are the numbers that they have in `advance`.
        """
        kept, due, keys = by_key(advance.progress, advance.row_keys)
        changed = np.isin(loaded, advance.changed)
        self.keys += keys - len(np.unique(loaded[changed]))
        self._table.put(kept, due, stays=~changed)
        if self._index.pages == 0:
            self._layouts.forget()

    def all_rows(self) -> tuple[pl.DataFrame, pl.Series] | None:
        """Read the partial matches of all keys, and when each is due; None where there are none."""
        found = self._table.all_rows() if self.keys else None
        return None if found is None else found[:2]

    def fill(self, rows: pl.DataFrame, due: pl.Series) -> None:
        """Keep the partial matches of keys where there were none before."""
        if rows.height:
            self.keys = int((rows.get_column(PATHS).bin.size() > 0).sum())
            self._table.put(rows, due)

    def record(self) -> dict[str, Any]:
        """Say what must be known to find them again."""
        return {"keys": self.keys, _PARTIAL: self._index.record()} if self._index.pages else {}


def _paged(frames: dict[str, pl.DataFrame], key: list[str]) -> tuple[pl.DataFrame, pl.Series] | None:
    """Bring the partial matches of one segment into the form that they have in pages; None where there are none."""
    progress = Progress.of(frames)
    if progress.rows is None or not progress.rows.height:
        return None
    numbers = progress.rows.select(pl.struct(key).rank("dense")).to_series() if key else None
    row_keys = np.zeros(progress.rows.height, dtype=np.int64) if numbers is None else numbers.to_numpy()
    return by_key(progress, row_keys.astype(np.int64))[:2]


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
