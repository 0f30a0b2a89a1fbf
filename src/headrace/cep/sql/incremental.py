"""Matches in rows that are not all there yet: search as far as the answer is decided, and no further.

A match is decided when no row to come can change it: neither itself, nor any search that began before it and may skip
over it. The matcher says of each attempt whether it ran into the end of the rows; the first that did ends the search in
its partition, which goes on from there with the next rows. So whatever the pieces, the matches are those of all rows at
once, in the same order.

When a match was decided is known in event time, too: by the last row that any attempt up to it asked for, or by the end
of the time bound. This does not depend on the pieces either.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from headrace.cep.matcher import Matcher, Rows
from headrace.cep.sql.matching import LOOK_AHEAD, Notes, start_rows
from headrace.cep.sql.outlook import outlook
from headrace.cep.sql.paths import PathConditions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from headrace.cep.matcher import Attempt
    from headrace.cep.sql.matching import Matches
    from headrace.cep.sql.output import Plan
    from headrace.cep.sql.reach import Reach
    from headrace.cep.sql.table import Table


@dataclass(frozen=True)
class Standing:
    """How far the search has come, per partition of a table.

    Args:
        first: The row at which it goes on.
        covered: Rows before this one are in a match.
        numbers: How many matches there were.
        begins: Whether the first row here is the first of the partition at all.
    """

    first: NDArray[np.int64]
    covered: NDArray[np.int64]
    numbers: NDArray[np.int64]
    begins: NDArray[np.bool_]


@dataclass(frozen=True)
class Progress:
    """What came of a search.

    Args:
        matches: Those that are decided.
        times: When each was decided, in microseconds; only for ONE ROW PER MATCH.
        standing: How far it has come.
        given_up: Ranges of rows in which matching was given up, as an attempt needed more rows than it may have.
    """

    matches: Matches
    times: NDArray[np.int64]
    standing: Standing
    given_up: list[tuple[int, int]]


def search(
    plan: Plan,
    reach: Reach,
    table: Table,
    times: NDArray[np.int64],
    standing: Standing,
    *,
    watermark: int,
    ended: bool,
    span: int | None = None,
) -> Progress:
    """Find the matches that are decided.

    Args:
        plan: The query.
        reach: What it looks at.
        table: The rows of some partitions: what was not decided before, with as many rows before it as PREV can reach,
            and the rows since.
        times: Their times in microseconds.
        standing: How far the search has come.
        watermark: No row before this time will follow.
        ended: No row will follow at all.
        span: The most rows that an attempt may need.
    """
    return _Search(plan, reach, table, times, standing, watermark, ended, span).run()


class _Search:
    def __init__(
        self,
        plan: Plan,
        reach: Reach,
        table: Table,
        times: NDArray[np.int64],
        standing: Standing,
        watermark: int,
        ended: bool,
        span: int | None,
    ) -> None:
        self._plan, self._reach, self._table, self._ended = plan, reach, table, ended
        self._span = span
        self._given_up: list[tuple[int, int]] = []
        self._times: list[int] = times.tolist()
        asked = [each for each in plan.conditions.values() if each.mask is not None or each.path is not None]
        masks = {number: table.mask(each.mask) for number, each in enumerate(asked) if each.mask is not None}
        self._paths = PathConditions(table, plan.conditions)
        functions = {
            number: self._paths.condition(each.label) for number, each in enumerate(asked) if each.path is not None
        }
        rows = Rows(
            table.count,
            masks,
            functions,
            times=times if plan.program.within is not None else None,
            complete=ended,
            watermark=watermark,
            ends=table.ends,
            begins=standing.begins,
            ahead=reach.ahead,
            span=span,
        )
        self._matcher = Matcher(plan.program, rows, keep_cut=plan.timed_out)
        self._notes = Notes(plan.labels)
        self._decided: list[int] = []
        self._first = standing.first.tolist()
        self._covered = standing.covered.tolist()
        self._numbers = standing.numbers.tolist()
        self._begins = standing.begins
        self._starts: list[int] = table.starts.tolist()
        self._ends: list[int] = table.ends.tolist()
        # Rows that are known to wait for rows to come; the first of them ends the search in its partition.
        self._waiting: NDArray[np.bool_] = np.zeros(table.count, dtype=np.bool_)
        # How many rows after its first an attempt may have looked at where a row was ruled out as the first of a match.
        self._ruled_out_by = LOOK_AHEAD
        self._taken: bytes | None = None
        self._candidates = self._candidate_rows(masks, times, watermark)

    def _candidate_rows(
        self, masks: dict[int, NDArray[np.bool_]], times: NDArray[np.int64], watermark: int
    ) -> list[int]:
        """The rows at which a match may begin, as far as can be seen for all rows at once."""
        pending = np.arange(self._table.count) >= np.repeat(
            np.array(self._first, dtype=np.int64), self._table.ends - self._table.starts
        )
        if self._plan.rows == "all with unmatched":
            return np.flatnonzero(pending).tolist()
        plain = not self._reach.ahead and not self._plan.timed_out
        seen = outlook(self._plan.program, masks, self._table) if plain else None
        if seen is not None:
            self._ruled_out_by, self._taken = self._table.count, seen.taken.tobytes()
            within = self._plan.program.within
            matching = seen.matching
            if within is not None:
                # Where the shortest match takes too long, none begins.
                ends = np.minimum(np.arange(len(times)) + seen.shortest, len(times) - 1)
                matching = matching & (times[ends] - times < within)
            tried = pending & (matching | self._far(seen.taken))
            if not self._ended:
                open_end = np.ones_like(pending) if within is None else times + within > watermark
                self._waiting = pending & seen.open & ~tried & open_end
            return np.flatnonzero(tried).tolist()
        if self._reach.ahead and not self._ended:
            # What NEXT will be for the last rows is not known: they may be anything.
            unknown = np.arange(self._table.count) >= np.repeat(
                self._table.ends - self._reach.ahead, self._table.ends - self._table.starts
            )
            masks = {number: mask | unknown for number, mask in masks.items()}
        candidates = start_rows(
            self._plan.program,
            masks,
            self._table,
            complete=self._ended,
            times=times if self._plan.timed_out else None,
        )
        return np.flatnonzero(candidates & pending).tolist()

    def _far(self, taken: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The rows from which an attempt may need more rows than it may have: it would have to take all of these."""
        far = np.zeros_like(taken)
        if self._span is None or int((self._table.ends - self._table.starts).max(initial=0)) <= self._span:
            return far
        # For each row, the next that cannot be taken, or the end of its partition.
        stops = np.append(np.flatnonzero(~taken), self._table.count)
        rows = np.arange(self._table.count)
        ends = np.repeat(self._table.ends, self._table.ends - self._table.starts)
        np.greater_equal(np.minimum(stops[np.searchsorted(stops, rows)], ends) - rows, self._span, out=far)
        return far

    def run(self) -> Progress:
        """Go through all partitions that have rows at which a match may begin."""
        # Where no row is left that may begin a match, all rows are decided.
        going_on = list(self._ends)
        waiting = np.flatnonzero(self._waiting)
        owner, places = np.unique(np.searchsorted(self._table.ends, waiting, side="right"), return_index=True)
        for partition, row in zip(owner.tolist(), waiting[places].tolist(), strict=True):
            going_on[partition] = row
        rows, place = self._candidates, 0
        while place < len(rows):
            partition = bisect_right(self._ends, rows[place])
            stop = bisect_left(rows, self._ends[partition], place)
            going_on[partition] = self._partition(partition, rows[place:stop])
            place = stop
        standing = Standing(
            np.array(going_on, dtype=np.int64),
            np.array(self._covered, dtype=np.int64),
            np.array(self._numbers, dtype=np.int64),
            self._begins,
        )
        decided = np.array(self._decided, dtype=np.int64)
        return Progress(self._notes.matches(), decided, standing, self._given_up)

    def _partition(self, partition: int, rows: list[int]) -> int:
        """Search one partition, and return the row at which the answer is not decided; its end if all of it is."""
        low, high = self._starts[partition], self._ends[partition]
        self._paths.low, self._paths.high = low, high
        unmatched = self._plan.rows == "all with unmatched"
        resume, place, decided = self._first[partition], 0, 0
        while place < len(rows):
            row = rows[place]
            if row < resume:
                place = bisect_left(rows, resume, place)
                continue
            stuck = self._first_waiting(resume, row)
            if stuck is not None:
                return stuck
            self._paths.match_number = self._numbers[partition] + 1
            attempt = self._matcher.attempt(row)
            if attempt.given_up and self._span is not None:
                resume = row + self._span
                self._given_up.append((row, resume))
                continue
            match = attempt.match
            told = match or attempt.cut
            if not attempt.decided or (
                told is not None and not self._ended and told.end - 1 + self._reach.beyond >= high
            ):
                return row
            decided = max(decided, self._time(attempt, row, high))
            if told is not None and self._plan.rows == "one":
                for other in self._ruled_out(rows, place, resume):
                    decided = max(decided, self._time(self._matcher.attempt(other), other, high))
                shown = max(told.end - 1 + self._reach.beyond, row)
                decided = max(decided, self._times[min(shown, high - 1)])
                self._decided.append(decided)
            if match is not None:
                self._numbers[partition] += 1
                self._notes.match(match, self._numbers[partition], low, high)
                self._covered[partition] = max(self._covered[partition], match.end)
                resume = self._plan.skip.resume(match) if match.pairs else match.start + 1
            elif attempt.cut is not None:
                self._notes.timed_out(attempt.cut, low, high)
            elif unmatched and row >= self._covered[partition]:
                self._notes.unmatched(row, low, high)
            place += 1
        stuck = self._first_waiting(resume, high)
        return high if stuck is None else stuck

    def _first_waiting(self, begin: int, end: int) -> int | None:
        part = self._waiting[begin:end]
        place = int(part.argmax()) if len(part) else 0
        return begin + place if len(part) and part[place] else None

    def _ruled_out(self, rows: list[int], place: int, resume: int) -> Iterator[int]:
        """The rows before one where no match can begin, but where it may have taken a later row to see that."""
        row = rows[place]
        begin = max(resume, row - self._ruled_out_by)
        if self._taken is not None:
            # To ask a row, an attempt must have taken all rows before it.
            begin = max(begin, self._taken.rfind(b"\0", begin, row) + 1)
        tried = set(rows[bisect_left(rows, begin, 0, place) : place])
        return (other for other in range(begin, row) if other not in tried)

    def _time(self, attempt: Attempt, start: int, high: int) -> int:
        """When the answer of an attempt was decided."""
        # NEXT looks at rows beyond those that are asked; to see that a row is not the last takes the next one alone.
        time = max(
            self._times[min(attempt.furthest + self._reach.ahead, high - 1)], self._times[min(attempt.ending, high - 1)]
        )
        within = self._plan.program.within
        return time if within is None or not attempt.waited else max(time, self._times[start] + within)
