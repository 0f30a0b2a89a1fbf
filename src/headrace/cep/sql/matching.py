"""All matches of a table: search, note, skip, search on.

Matches are kept as columns (`Matches`), not as objects: where each begins, how long it is, the variable of each of its
rows. The rows of a SQL match are neighbours, so these few arrays are all there is to know, and the measures are
computed from them for all matches at once.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.cep.limits import MatchLimitError
from headrace.cep.matcher import Match, Matcher, Rows
from headrace.cep.program import Consume, Program, reachable
from headrace.cep.sql.paths import PathConditions
from headrace.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.cep.sql.compiler import Condition
    from headrace.cep.sql.syntax import SkipTo
    from headrace.cep.sql.table import Table

MATCHED: Final = 0
EMPTY: Final = 1
UNMATCHED: Final = 2
TIMED_OUT: Final = 3

LOOK_AHEAD: Final = 3
"""Rows looked at to rule out start rows at once; more costs as many column operations and rules out little more."""

MAX_MATCHED_ROWS: Final = 20_000_000
"""Rows of all matches of one search; overlapping matches (SKIP TO NEXT ROW) can have the square of the input's."""

MAX_LOOK_AHEAD_STEPS: Final = 64
"""Programs with more row-consuming steps are searched from every row."""


@dataclass(frozen=True)
class SkipRule:
    """Where the search goes on after a match; `labels` for the forms that name a variable."""

    to: SkipTo
    labels: frozenset[str] = frozenset()
    name: str = ""

    def resume(self, match: Match) -> int:
        """The row from which the search goes on after a match that has rows."""
        match self.to:
            case "past last row":
                return match.end
            case "to next row":
                return match.start + 1
            case "to first":
                found = next((row for label, row in match.pairs if label in self.labels), None)
            case "to last":
                found = next((row for label, row in reversed(match.pairs) if label in self.labels), None)
        if found is None:
            raise JobError(
                f"AFTER MATCH SKIP failed: variable {self.name} has no row in the match at row {match.start}",
                hint="Skip to a variable that every match has, or use SKIP PAST LAST ROW.",
            )
        if found == match.start:
            raise JobError(
                f"AFTER MATCH SKIP failed: cannot skip to the first row of the match at row {match.start}, "
                "it would be found again without end",
                hint="Skip to a variable behind the first row, or use SKIP TO NEXT ROW.",
            )
        return found


@dataclass
class Matches:
    """The matches of a table in the order they were found, and the rows without one if they are asked for.

    Args:
        labels: The variables, by the code that stands for them.
        starts: First row of each.
        lengths: How many rows each has.
        numbers: MATCH_NUMBER of each.
        kinds: MATCHED, EMPTY, UNMATCHED or TIMED_OUT.
        lows: First row of the partition of each.
        highs: Row after the last of it.
        codes: The variables of the rows of all matches, one after the other.
        excluded: For each of these rows whether ALL ROWS PER MATCH leaves it out; None if none is.
    """

    labels: tuple[str, ...]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    numbers: NDArray[np.int64]
    kinds: NDArray[np.int8]
    lows: NDArray[np.int64]
    highs: NDArray[np.int64]
    codes: NDArray[np.int16]
    excluded: NDArray[np.bool_] | None
    offsets: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.offsets = np.concatenate(([0], np.cumsum(self.lengths))).astype(np.int64)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.starts)


class Notes:
    """Matches being collected."""

    def __init__(self, labels: Sequence[str], *, max_rows: int | None = None) -> None:
        self._labels = tuple(labels)
        self._max_rows = MAX_MATCHED_ROWS if max_rows is None else max_rows
        self._code = {label: code for code, label in enumerate(labels)}
        self._entries: list[tuple[int, int, int, int, int, int]] = []
        self._codes = array("h")  # overlapping matches can have very many rows in all
        self._excluded: list[tuple[int, int]] = []

    def match(self, match: Match, number: int, low: int, high: int) -> None:
        """Notes a match of the partition [low, high)."""
        self._note(match, number, MATCHED if match.pairs else EMPTY, low, high)

    def _note(self, match: Match, number: int, kind: int, low: int, high: int) -> None:
        self._entries.append((match.start, len(match.pairs), number, kind, low, high))
        shift = len(self._codes) - match.start
        self._excluded.extend((begin + shift, end + shift) for begin, end in match.excluded)
        code = self._code
        self._codes.extend([code[label] for label, _ in match.pairs])
        if len(self._codes) > self._max_rows:
            raise MatchLimitError(
                f"the matches have more than {self._max_rows:,} rows in all, as they overlap",
                hint="Use AFTER MATCH SKIP PAST LAST ROW, or bound the matches with WITHIN or {n,m}.",
            )

    def timed_out(self, match: Match, low: int, high: int) -> None:
        """Notes a partial match whose time was over."""
        self._note(match, 0, TIMED_OUT, low, high)

    def unmatched(self, row: int, low: int, high: int) -> None:
        """Notes a row that is in no match."""
        self._entries.append((row, 0, 0, UNMATCHED, low, high))

    def matches(self) -> Matches:
        """All that was noted, as columns."""
        columns = np.array(self._entries, dtype=np.int64).reshape(-1, 6).T
        excluded = None
        if self._excluded:
            excluded = np.zeros(len(self._codes), dtype=np.bool_)
            for begin, end in self._excluded:
                excluded[begin:end] = True
        starts, lengths, numbers, kinds, lows, highs = columns
        codes = np.frombuffer(self._codes, dtype=np.int16)
        return Matches(self._labels, starts, lengths, numbers, kinds.astype(np.int8), lows, highs, codes, excluded)


def find_matches(
    table: Table,
    program: Program,
    conditions: Mapping[str, Condition],
    skip: SkipRule,
    *,
    times: NDArray[np.int64] | None = None,
    unmatched: bool = False,
    timed_out: bool = False,
    labels: Sequence[str] = (),
) -> Matches:
    """Finds all matches.

    Args:
        table: The rows.
        program: The compiled pattern.
        conditions: What its condition numbers stand for, by variable.
        skip: Where to go on after a match.
        times: Microseconds per row, for a pattern with WITHIN.
        unmatched: Also note rows that are in no match.
        timed_out: Also note partial matches whose time was over.
        labels: The variables of the pattern.
    """
    asked = [condition for condition in conditions.values() if condition.mask is not None or condition.path is not None]
    masks = {number: table.mask(condition.mask) for number, condition in enumerate(asked) if condition.mask is not None}
    paths = PathConditions(table, conditions)
    functions = {
        number: paths.condition(condition.label) for number, condition in enumerate(asked) if condition.path is not None
    }
    notes = Notes(labels or program.labels)
    if table.count:
        rows = Rows(table.count, masks, functions, times=times, ends=table.ends)
        matcher = Matcher(program, rows, keep_cut=timed_out)
        candidates = start_rows(program, masks, table, times=times if timed_out else None)
        search = _Search(table, matcher, paths, skip, notes)
        if unmatched:
            search.with_unmatched(candidates)
        else:
            search.only_matches(candidates)
    return notes.matches()


class _Search:
    """One run over the rows."""

    def __init__(self, table: Table, matcher: Matcher, paths: PathConditions, skip: SkipRule, notes: Notes) -> None:
        self._ends: list[int] = table.ends.tolist()
        self._matcher = matcher
        self._paths = paths
        self._skip = skip
        self._notes = notes
        self._partition = 0
        self._low = 0
        self._high = -1
        self._number = 0

    def _enter(self, row: int) -> None:
        """Comes to the partition of a row."""
        self._partition = bisect_left(self._ends, row + 1, self._partition)
        self._low = self._ends[self._partition - 1] if self._partition else 0
        self._high = self._ends[self._partition]
        self._number = 0
        self._paths.low, self._paths.high = self._low, self._high

    def _try(self, row: int) -> Match | None:
        self._paths.match_number = self._number + 1
        attempt = self._matcher.attempt(row)
        if attempt.match is not None:
            self._number += 1
            self._notes.match(attempt.match, self._number, self._low, self._high)
        elif attempt.cut is not None:
            self._notes.timed_out(attempt.cut, self._low, self._high)
        return attempt.match

    def _resume(self, match: Match) -> int:
        return self._skip.resume(match) if match.pairs else match.start + 1

    def only_matches(self, candidates: NDArray[np.bool_]) -> None:
        rows: list[int] = np.flatnonzero(candidates).tolist()
        place, resume = 0, 0
        while place < len(rows):
            row = rows[place]
            if row < resume:
                place = bisect_left(rows, resume, place)
                continue
            if row >= self._high:
                self._enter(row)
            match = self._try(row)
            place += 1
            if match is not None:
                resume = self._resume(match)

    def with_unmatched(self, candidates: NDArray[np.bool_]) -> None:
        row, covered = 0, 0
        while row < len(candidates):
            if row >= self._high:
                self._enter(row)
            match = self._try(row) if candidates[row] else None
            if match is not None:
                if match.pairs:
                    covered = max(covered, match.end)
                row = self._resume(match)
                continue
            if row >= covered:
                self._notes.unmatched(row, self._low, self._high)
            row += 1


def start_rows(
    program: Program,
    masks: Mapping[int, NDArray[np.bool_]],
    table: Table,
    *,
    complete: bool = True,
    times: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """The rows at which a match can begin, as far as the masks of the first rows tell.

    Most rows begin no match; to see it for all of them at once is much cheaper than to try each.

    Args:
        program: The compiled pattern.
        masks: Where its conditions are true, as far as they are masks.
        table: The rows.
        complete: Whether no row will follow in any partition; if not, what follows the last one may be anything.
        times: Given, rows also count at which a match can begin whose time is over before it is complete.
    """
    everywhere = np.ones(table.count, dtype=np.bool_)
    steps = [at for at, instruction in enumerate(program.instructions) if isinstance(instruction, Consume)]
    if len(steps) > MAX_LOOK_AHEAD_STEPS:
        return everywhere
    first, accepts = reachable(program, 0)
    if accepts:
        return everywhere
    following = {at: reachable(program, at + 1) for at in steps}
    own = {at: step_mask(program, at, masks, everywhere) for at in steps}
    alive = own
    for rows in range(LOOK_AHEAD, 0, -1):
        ahead = {at: next_row(alive[at], table, not complete or times is not None) for at in steps}
        alive = {at: own[at] & _any(ahead, *following[at], everywhere) for at in steps}
        if times is not None and program.within is not None:
            # The row after these many is too late for a match that begins with the first of them.
            over = np.zeros_like(everywhere)
            over[rows - 1 : -1] = times[rows:] - times[:-rows] >= program.within
            alive = {at: alive[at] | (own[at] & over) for at in steps}
    return _any(alive, first, False, everywhere)


def step_mask(
    program: Program, at: int, masks: Mapping[int, NDArray[np.bool_]], everywhere: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """The rows that a consuming step can take, as far as its mask tells."""
    instruction = program.instructions[at]
    if isinstance(instruction, Consume) and instruction.condition is not None:
        return masks.get(instruction.condition, everywhere)
    return everywhere


def _any(
    by_step: Mapping[int, NDArray[np.bool_]], steps: Sequence[int], accepts: bool, everywhere: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    if accepts:
        return everywhere
    result = np.zeros_like(everywhere)
    for at in steps:
        result |= by_step[at]
    return result


def next_row(mask: NDArray[np.bool_], table: Table, after_last: bool) -> NDArray[np.bool_]:
    """The mask of the next row of the same partition."""
    result = np.empty_like(mask)
    result[:-1] = mask[1:]
    result[table.ends - 1] = after_last
    return result
