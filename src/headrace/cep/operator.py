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
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cep.compiler import compile_pattern
from headrace.cep.conditions import unknown_column
from headrace.cep.measures import Measure, columns_of, compute, first, last
from headrace.cep.streaming import Piece, Progress, StreamMatcher
from headrace.cep.threads import DEFAULT_MAX_PARTIAL
from headrace.engine.operator import EVENT_TIME, Outcome, Turn
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.errors import PlanError, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cep.pattern import Pattern
    from headrace.engine.state import Segments

_log = logging.getLogger(__name__)

_MARK = b"HP1\n"
_SEGMENT = "pattern"
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
        max_partial: Bound on the partial matches of one key; beyond it the job fails with a message that says so.

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
        max_partial: int = DEFAULT_MAX_PARTIAL,
    ) -> None:
        self.pattern = pattern
        self.key = list(key)
        self.measures = dict(measures or {"match_start": first(EVENT_TIME), "match_end": last(EVENT_TIME)})
        self.timed_out = None if timed_out is None else dict(timed_out)
        self.compiled = compile_pattern(pattern)
        self._names = self.compiled.program.labels
        for name in {*self.measures, *(self.timed_out or {})}:
            if name in (*self.key, EVENT_TIME):
                raise PlanError(f"a measure is named {name!r}, like a column that every match has", hint="Rename it.")
        needed = columns_of(self.measures, self._names) | columns_of(self.timed_out or {}, self._names)
        self._needed = needed
        self._matcher = StreamMatcher(self.compiled, key=self.key, columns=sorted(needed), max_partial=max_partial)
        for caution in pattern.cautions():
            _log.warning("pattern %s: %s", " ".join(pattern.names), caution)

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: a pattern needs each of them."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the matches, given those of the rows; refuses conditions that do not fit these."""
        empty = pl.DataFrame(schema=rows)
        for column in self.key:
            if column not in rows:
                raise unknown_column(column, rows.names())
        self.compiled.rows(empty, None)
        return self._results(_nothing(empty, self.key), self.measures).schema

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
            "format": "1",
            "program": hashlib.sha256(told.encode()).hexdigest()[:16],
            "version": str(program.version),
            "key": ",".join(self.key),
            "columns": ",".join(sorted(self._needed)),
        }

    def turn(self, state: Segments, turn: Turn) -> PatternOutcome:
        """Take one turn."""
        saved = state.get(_SEGMENT)
        record, frames = ({}, {}) if saved is None else _unpack(saved)
        before: int | None = record.get("watermark")
        watermark = turn.watermark if before is None else max(before, turn.watermark)
        rows, late, dismissed = self._sort_out(turn.rows, before)
        pending = frames.pop("pending", None)
        if pending is not None:
            rows = pl.concat([pending, rows])
        instant = pl.lit(watermark).cast(_INSTANT)
        is_ready = pl.col(EVENT_TIME) < instant
        ready = rows.filter(is_ready).sort(EVENT_TIME, maintain_order=True)
        waiting = rows.filter(~is_ready) if ready.height else rows
        progress = Progress.of(frames) if frames else Progress()
        matches = timed_out = None
        if ready.height or not progress.idle:
            if not ready.height and not rows.width and progress.rows is not None:
                ready = progress.rows[:0]
            advance = self._matcher.advance(progress, ready, watermark)
            progress = advance.progress
            matches = self._results(advance.matches, self.measures)
            if self.timed_out is not None:
                timed_out = self._results(advance.timed_out, self.timed_out)
        keep = {} if progress.idle else progress.frames()
        if waiting.height:
            keep["pending"] = waiting
        value = _pack({"watermark": watermark}, keep)
        if value != saved:
            state.put(_SEGMENT, value)
        return PatternOutcome(
            rows=_some(matches), late=_some(late), dismissed=_some(dismissed), timed_out=_some(timed_out)
        )

    @staticmethod
    def _sort_out(
        rows: pl.DataFrame, watermark: int | None
    ) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
        """Part rows into usable ones, late ones, and those without a time."""
        dismissed = late = None
        if rows.height and rows[EVENT_TIME].null_count():
            dismissed = rows.filter(pl.col(EVENT_TIME).is_null()).with_columns(reason=pl.lit("it has no event time"))
            rows = rows.filter(pl.col(EVENT_TIME).is_not_null())
        if rows.height and watermark is not None:
            instant = pl.lit(watermark).cast(_INSTANT)
            is_late = pl.col(EVENT_TIME) < instant
            late = rows.filter(is_late).with_columns(lateness=instant - pl.col(EVENT_TIME), watermark=instant)
            if late.height:
                rows = rows.filter(~is_late)
        return rows, late, dismissed

    def _results(self, piece: Piece, measures: Mapping[str, Measure]) -> pl.DataFrame:
        values = compute(measures, self._names, piece.detail, len(piece))
        times = pl.Series(EVENT_TIME, piece.times, dtype=pl.Int64).cast(_INSTANT)
        return piece.keys.with_columns(times).hstack(values)


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


def _some(frame: pl.DataFrame | None) -> pl.DataFrame | None:
    return None if frame is None or not frame.height else frame


def _pack(record: dict[str, Any], frames: Mapping[str, pl.DataFrame]) -> bytes:
    """One segment for all: a state store charges by the call."""
    parts = {name: frame_to_bytes(frame) for name, frame in frames.items()}
    header = json.dumps({"record": record, "sizes": {name: len(part) for name, part in parts.items()}}).encode()
    return b"".join([_MARK, struct.pack("<I", len(header)), header, *parts.values()])


def _unpack(value: bytes) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    if value[:4] != _MARK:
        raise StateError(
            f"saved pattern state starts with {value[:4]!r}",
            hint="It was written by another version of Headrace; start the job afresh or with that version.",
        )
    place = 8 + struct.unpack("<I", value[4:8])[0]
    header = json.loads(value[8:place])
    frames: dict[str, pl.DataFrame] = {}
    for name, size in header["sizes"].items():
        frames[name] = frame_from_bytes(value[place : place + size])
        place += size
    return header["record"], frames
