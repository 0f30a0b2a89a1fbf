"""The first match of each start row, for keys that have many rows at hand.

With `skip("past_last")` or `skip("to_next")` a start row gives one match at most: the one that is complete first. Where
conditions ask of a row alone, `Prospects` says for each start row when that is, so partial matches need not be followed
row by row: a climb of a thousand rows begins a thousand of them, which go through the same level flight side by side.
Where a condition asks for what was matched, the partial matches of one start row are followed to their end before those
of the next are looked at; most start rows lie in the match of an earlier one, and are then not looked at at all.

`FirstMatches` goes from start row to start row as long as the answer is known from the rows at hand. From the first
start row whose partial matches live on, `headrace.cep.columnar` follows them as always. Both give the same answer, the
times of decision included: a match is decided when it is complete and no partial match that began earlier lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.cep.prospects import MAX_PLACES, NEVER_ROW, Prospects
from headrace.cep.threads import Found, KeyRun
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cep.program import Program, Term
    from headrace.cep.skip import Skip
    from headrace.cep.tables import Bools, Ints, ThreadTable
    from headrace.cep.threads import Move, Threads

#: One step of following a partial match takes as long as looking at so many rows from behind.
_FEW_STEPS: Final = 16

#: With fewer rows of a key at hand, following its partial matches is as quick.
MANY_ROWS: Final = 48


@dataclass(slots=True)
class Firsts:
    """What is known of one key.

    Args:
        matches: For each match the node that its path goes on from (-1: none), and the labels (by number) and rows
            after that, oldest first.
        times: When each was decided.
        goes_on: The first row from which partial matches must be followed; the row after the last if none must be.
        keeps_waiting: Whether the partial matches that waited before the first row must be followed, too.
    """

    matches: list[tuple[int, list[tuple[int, int]]]]
    times: list[int]
    goes_on: int
    keeps_waiting: bool = False


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What comes of a start row.

    Args:
        time: When it was known.
        path: The labels and rows of its match that are new; None without a match.
        which: Which of its partial matches came to it.
    """

    time: int
    path: list[tuple[int, int]] | None = None
    which: int = 0


def one_match_per_start(skip: Skip, machine: Threads) -> bool:
    """Whether a start row gives one match at most, and all its partial matches have one time bound."""
    rests = machine.table.rests.values()
    return skip.kind in ("past_last", "to_next") and not any(
        rest.completes or rest.within is not None for rest in rests
    )


class FirstMatches:
    """Finds first matches in the rows of a batch.

    Args:
        program: The compiled pattern; see `one_match_per_start`.
        machine: The program bound to the rows.
        times: The time of each row.
        skip: What a match gives away.
        begins: The rows at which a match can begin.
    """

    def __init__(self, program: Program, machine: Threads, times: Ints, skip: Skip, begins: Bools) -> None:
        self._within = program.within
        self._times = times
        self._time: list[int] = times.tolist()
        self._steps_left = 0
        self._past_last = skip.kind == "past_last"
        self._begins = begins
        self._label_number = {name: number for number, name in enumerate(program.labels)}
        table = machine.table
        # The start is a place of its own, as matches begin only with a row that is taken.
        self._place = {at: number for number, at in enumerate(table.moves)}
        self._moves: list[list[Move]] = [list(moves) for moves in table.moves.values()]
        self._start = len(self._moves)
        self._moves.append(machine.begin_moves)
        terms = dict.fromkeys(
            term for moves in self._moves for move in moves for term in (move.condition, *move.accepts) if term
        )
        self._term_number = {term: number for number, term in enumerate(terms)}
        masks = [mask for term in terms if (mask := machine.term(term)[0]) is not None]
        self._machine = machine
        self._prospects: Prospects | None = None
        asked = any(machine.term(term)[1] for term in terms)
        #: Whether it is known what comes of a start row.
        self.usable = asked or 0 < max(len(self._moves), len(masks)) <= MAX_PLACES
        if self.usable and not asked:
            self._prospects = Prospects(len(self._moves), masks, self._step)

    def _held(self, term: Term, holds: tuple[bool, ...]) -> bool:
        return not term or holds[self._term_number[term]]

    def _step(self, place: int, holds: tuple[bool, ...]) -> tuple[bool, tuple[int, ...]]:
        moves = [move for move in self._moves[place] if self._held(move.condition, holds)]
        accepts = any(self._held(term, holds) for move in moves for term in move.accepts)
        if any(move.kind == "stop" for move in moves):
            return accepts, ()
        return accepts, tuple(dict.fromkeys(self._place[move.target] for move in moves if move.target >= 0))

    def find(self, begin: int, end: int, waiting: ThreadTable, row_of_node: Ints) -> Firsts:
        """Go through the start rows of one key as far as the answer is known.

        Args:
            begin: The first row of the key.
            end: The row after its last.
            waiting: Its partial matches before these rows, by start row.
            row_of_node: The row of each node.
        """
        if self._prospects is None and len(waiting):
            return Firsts([], [], begin, keeps_waiting=True)
        # Where start rows are few and their ways short, following them takes less than looking at all rows.
        self._steps_left = (end - begin) // _FEW_STEPS if self._prospects is not None else end * (end - begin)
        if len(waiting):
            self._steps_left = 0
        firsts = Firsts([], [], end)
        kept, decided = 0, -NEVER_ROW
        for start, limit, places, nodes in self._starts(begin, end, waiting):
            if start < kept:
                continue
            outcome = self._follow(start, end) if self._steps_left > 0 else None
            if self._prospects is not None and self._steps_left <= 0:
                if not self._prospects.built(begin):
                    self._prospects.build(begin, end)
                outcome = self._foresee(self._prospects, max(start, begin), end, start, limit, places)
            if outcome is None:
                if start < begin:
                    return Firsts([], [], begin, keeps_waiting=True)
                firsts.goes_on = start
                break
            decided = max(decided, outcome.time)
            if outcome.path is not None:
                node = nodes[outcome.which]
                firsts.matches.append((node, outcome.path))
                firsts.times.append(decided)
                # A row that is passed over can complete a match, too: what must not come did not.
                last = outcome.path[-1][1] if outcome.path else int(row_of_node[node])
                kept = last + 1 if self._past_last else start + 1
        return firsts

    def _follow(self, start: int, end: int) -> _Outcome | None:
        """Follow the partial matches of one start row until a match is complete or all are over."""
        run, found = KeyRun(), Found()
        for row in range(start, end):
            time = self._time[row]
            self._steps_left -= 1
            if self._steps_left < 0:
                return None
            if time >= run.deadline and row > start:
                deadline = run.deadline
                self._machine.advance(run, time, found)
                if not run.threads:
                    return _Outcome(deadline)
            self._machine.step(run, row, time, found, begin=row == start)
            if found.matches:
                numbers = self._label_number
                return _Outcome(time, [(numbers[label], taken) for label, taken in found.matches[0].path.pairs()])
            if not run.threads:
                return _Outcome(time)
        return None

    def _foresee(
        self, prospects: Prospects, row: int, end: int, start: int, limit: int, places: list[int]
    ) -> _Outcome | None:
        """What comes of the partial matches of a start row that wait at some places before a row."""
        complete, over = prospects.at(places, row)
        if complete < min(limit, end):
            which = next(n for n, place in enumerate(places) if prospects.at((place,), row)[0] == complete)
            path = self._path(prospects, places[which], row, complete)
            return _Outcome(int(self._times[complete]), path, which)
        if over < min(limit, end):
            return _Outcome(int(self._times[over]))
        if limit < end and self._within is not None:
            return _Outcome(int(self._times[start]) + self._within)
        return None

    def _starts(self, begin: int, end: int, waiting: ThreadTable) -> Iterator[tuple[int, int, list[int], list[int]]]:
        """Start rows in order, the row at which the time of each is over, and the places and nodes where it waits."""
        times = self._times[begin:end]
        fresh = np.flatnonzero(self._begins[begin:end]) + begin
        for start, threads in groupby(
            zip(waiting.start.tolist(), waiting.at.tolist(), waiting.node.tolist(), strict=True), key=itemgetter(0)
        ):
            same = list(threads)
            limit = self._limits(times, np.array([start]), begin)[0]
            yield start, int(limit), [self._place[at] for _, at, _ in same], [node for _, _, node in same]
        for start, limit in zip(fresh.tolist(), self._limits(times, fresh, begin).tolist(), strict=True):
            yield start, limit, [self._start], [-1]

    def _limits(self, times: Ints, starts: Ints, begin: int) -> Ints:
        if self._within is None:
            return np.full(len(starts), NEVER_ROW)
        return begin + np.searchsorted(times, self._times[starts] + self._within)

    def _path(self, prospects: Prospects, place: int, start: int, complete: int) -> list[tuple[int, int]]:
        """The preferred of the ways from a place before a row to the row that completes a match."""
        path: list[tuple[int, int]] = []
        for row in range(start, complete + 1):
            move, place = self._preferred(prospects, place, row, complete)
            if move.kind == "take":
                path.append((self._label_number[move.label], row))
        return path

    def _preferred(self, prospects: Prospects, place: int, row: int, complete: int) -> tuple[Move, int]:
        holds = prospects.holds(row)
        for move in self._moves[place]:
            if move.kind == "stop" or not self._held(move.condition, holds):
                continue
            if row == complete:
                if any(self._held(term, holds) for term in move.accepts):
                    return move, -1
            elif move.target >= 0:
                target = self._place[move.target]
                if prospects.at((target,), row + 1)[0] == complete:
                    return move, target
        raise HeadraceError(f"no way leads from row {row} to the match that row {complete} completes")
