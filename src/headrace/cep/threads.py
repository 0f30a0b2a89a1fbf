"""All matches: every thread of a program is followed, row by row.

Where `headrace.cep.matcher` asks for the first match from a row, this asks for all of them, as the builder's relaxed
contiguity wants. A **thread** is a partial match: a place to rest in the program and the path of rows it has matched.
With every row each thread moves along all the ways that the row allows: it takes the row, passes over it, or ends.
Threads that reach an `Accept` become matches. Time bounds end threads too, at a row or at a watermark: a thread that
`Rest(completes=True)` holds becomes a match then, any other a time-out.

Time is advanced deadline by deadline, so that the answer depends neither on how rows were cut into pieces nor on how
often a watermark was told.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from headrace.cep.limits import Limit
from headrace.cep.matcher import Match, Path, PathCondition, Rows
from headrace.cep.program import Accept, Check, Consume, Gap, Jump, Program, Rest, Split, Stop, Term
from headrace.cep.skip import Skip
from headrace.errors import HeadraceError, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from headrace.cep.vectors import VectorCondition

NEVER: Final = 2**63 - 1

MoveKind: TypeAlias = Literal["take", "pass", "stop"]


class Move(NamedTuple):
    """One way a thread can go with a row.

    Args:
        kind: Take the row, pass over it, or stop the thread.
        condition: What must hold for the row.
        label: Under which label the row is taken.
        target: Where the thread rests then; -1 if nowhere.
        accepts: If any of these holds for the same row, the move also completes a match.
    """

    kind: MoveKind
    condition: Term
    label: str
    target: int
    accepts: tuple[Term, ...]


@dataclass(frozen=True)
class Table:
    """A program as a table: for each place to rest, the moves in the order of preference."""

    moves: dict[int, tuple[Move, ...]]
    start: int
    rests: dict[int, Rest]


@lru_cache(maxsize=256)
def table_of(program: Program) -> Table:
    """Flatten a program into moves between places to rest."""
    moves: dict[int, tuple[Move, ...]] = {}
    start = _settle(program, 0)
    todo = [start]
    while todo:
        at = todo.pop()
        if at in moves:
            continue
        moves[at] = tuple(dict.fromkeys(_moves(program, at)))
        todo.extend(move.target for move in moves[at] if move.target >= 0)
    rests = {at: rest for at in moves if isinstance(rest := program.instructions[at], Rest)}
    return Table(moves, start, rests)


def _settle(program: Program, at: int) -> int:
    """The place where a thread that goes on at an instruction comes to rest."""
    while isinstance(jump := program.instructions[at], Jump):
        at = jump.target
    return at


def _walk(program: Program, at: int) -> Iterable[tuple[int, Term]]:
    """Instructions that can be reached without a row, in the order of preference, with what must hold for that."""
    todo: list[tuple[int, Term]] = [(at, ())]
    seen: set[tuple[int, Term]] = set()
    while todo:
        place = todo.pop()
        if place in seen:
            continue  # a loop over nothing, or a less preferred way to the same place
        seen.add(place)
        at, term = place
        match program.instructions[at]:
            case Split(preferred, other):
                todo.append((other, term))
                todo.append((preferred, term))
            case Jump(target):
                todo.append((target, term))
            case Check(condition):
                todo.append((at + 1, _both(term, condition)))
            case Rest():
                todo.append((at + 1, term))
            case Consume() | Gap() | Stop() | Accept():
                yield at, term
            case other_instruction:
                raise PlanError(f"{other_instruction!r} has no meaning in a search for all matches")


def _both(one: Term, other: Term) -> Term:
    return tuple(dict.fromkeys(one + other))


def _moves(program: Program, at: int) -> Iterable[Move]:
    for place, term in _walk(program, at):
        match program.instructions[place]:
            case Consume(label, condition):
                own: Term = () if condition is None else ((condition, True),)
                target = _settle(program, place + 1)
                accepts = tuple(
                    dict.fromkeys(
                        checks
                        for end, checks in _walk(program, target)
                        if isinstance(program.instructions[end], Accept)
                    )
                )
                final = isinstance(program.instructions[target], Accept)
                yield Move("take", _both(term, own), label, -1 if final else target, accepts)
            case Gap(condition):
                target = _settle(program, place + 1)
                final = isinstance(program.instructions[target], Accept)
                yield Move("pass", _both(term, condition), "", -1 if final else target, ((),) if final else ())
            case Stop(condition):
                yield Move("stop", _both(term, condition), "", -1, ())
            case _:
                pass  # an Accept that needs no row: no match is empty in a search for all matches


class Thread:
    """A partial match, or a match that waits to come out.

    Args:
        at: Where in the program it rests.
        path: The rows it has matched.
        start: Its first row.
        start_time: The time of its first row.
        deadline: When a time bound ends it.
    """

    __slots__ = ("at", "deadline", "path", "start", "start_time")

    def __init__(self, at: int, path: Path, start: int, start_time: int, deadline: int) -> None:
        self.at = at
        self.path = path
        self.start = start
        self.start_time = start_time
        self.deadline = deadline


@dataclass(slots=True)
class KeyRun:
    """What is under way for one key.

    Args:
        threads: Partial matches, the preferred of those with the same first row before the others.
        held: Matches that wait for an earlier partial match, which may give them away.
        deadline: The earliest of the threads' deadlines.
    """

    threads: list[Thread] = field(default_factory=list)
    held: list[Thread] = field(default_factory=list)
    deadline: int = NEVER

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self.threads and not self.held


@dataclass(slots=True)
class Found:
    """What came out: matches and when each was decided, partial matches whose time was over, and those given up."""

    matches: list[Thread] = field(default_factory=list)
    match_times: list[int] = field(default_factory=list)
    timed_out: list[Thread] = field(default_factory=list)
    given_up: list[Thread] = field(default_factory=list)


_Asks: TypeAlias = "tuple[tuple[PathCondition, bool], ...]"
_Bound: TypeAlias = "tuple[bytes | None, _Asks, MoveKind, str, int, tuple[tuple[bytes | None, _Asks], ...], int | None]"


class Threads:
    """Follows the threads of a program over a batch of rows; the rows may belong to many keys, each with a `KeyRun`.

    Args:
        program: The compiled pattern.
        rows: Rows, the conditions on them, and their times.
        skip: What a match gives away.
        limit: Bound on the partial matches of one key.

    >>> program = Program((Consume("a", 0), Split(2, 4), Gap(), Jump(1), Consume("b", 1), Accept()), ("mask", "mask"))
    >>> text = np.array(list("abab"))
    >>> run, found = KeyRun(), Found()
    >>> Threads(program, Rows(4, {0: text == "a", 1: text == "b"})).feed(run, 0, 4, found)
    4
    >>> [match.path.rows() for match in found.matches], len(run.threads)
    ([(0, 1), (0, 3), (2, 3)], 2)
    """

    def __init__(
        self,
        program: Program,
        rows: Rows,
        *,
        skip: Skip | None = None,
        limit: Limit | None = None,
    ) -> None:
        self.program = program
        self.rows = rows
        self.skip = skip or Skip()
        self.limit = limit or Limit()
        self.table = table_of(program)
        self._within = program.within
        timed = self._within is not None or any(rest.within is not None for rest in self.table.rests.values())
        if timed and rows.times is None:
            raise HeadraceError("a pattern with a time bound needs the times of the rows")
        self._terms: dict[Term, tuple[NDArray[np.bool_] | None, _Asks]] = {}
        self._moves = {at: [self._bind(move) for move in moves] for at, moves in self.table.moves.items()}
        self._codes: dict[int, tuple[list[int], list[_Bound], dict[int, list[_Bound]]]] = {}
        self._times = None if rows.times is None else rows.times.tolist()
        self.begin_moves = [move for move in self.table.moves[self.table.start] if move.kind == "take"]
        self._start_moves = [move for move in self._moves[self.table.start] if move[2] == "take"]
        self.begin_at(self.any_mask(self.begin_moves))
        #: Whether of the partial matches of a start row that wait at the same place the preferred one is enough, and
        #: whether that holds for those of all start rows while no match is held.
        self.one_per_start = self.one_per_place = False

    def begin_at(self, rows: NDArray[np.bool_]) -> None:
        """Let threads begin at some rows only."""
        self._begins = rows.tobytes()
        self._starts: list[int] | None = None

    def any_mask(self, moves: Iterable[Move]) -> NDArray[np.bool_]:
        """The rows for which the masks of any of some moves hold."""
        union = np.zeros(self.rows.count, dtype=np.bool_)
        for move in moves:
            mask, _ = self.term(move.condition)
            if mask is None:
                return np.ones(self.rows.count, dtype=np.bool_)
            union |= mask
        return union

    def asked(self, term: Term) -> tuple[list[tuple[VectorCondition, bool]], _Asks]:
        """What is left to ask of a conjunction with the path: for many at once, and one by one."""
        left = [(number, wanted) for number, wanted in term if number not in self.rows.masks]
        vectors = [(self.rows.vectors[number], wanted) for number, wanted in left if number in self.rows.vectors]
        others = [(self.rows.paths[number], wanted) for number, wanted in left if number not in self.rows.vectors]
        return vectors, tuple(others)

    def term(self, term: Term) -> tuple[NDArray[np.bool_] | None, _Asks]:
        """A conjunction as one mask over all rows, and what is left to ask with the path."""
        if term not in self._terms:
            mask: NDArray[np.bool_] | None = None
            asks: list[tuple[PathCondition, bool]] = []
            for number, wanted in term:
                if number in self.rows.masks:
                    part = self.rows.masks[number] == wanted
                    mask = part if mask is None else mask & part
                elif number in self.rows.paths:
                    asks.append((self.rows.paths[number], wanted))
                else:
                    raise HeadraceError(f"condition {number} of the pattern has neither a mask nor a function")
            self._terms[term] = (mask, tuple(asks))
        return self._terms[term]

    def _bind(self, move: Move) -> _Bound:
        mask, asks = self.term(move.condition)
        accepts = tuple((_packed(end_mask), end_asks) for end_mask, end_asks in map(self.term, move.accepts))
        rest = self.table.rests.get(move.target)
        bound = None if rest is None else rest.within
        return (_packed(mask), asks, move.kind, move.label, move.target, accepts, bound)

    def feed(self, run: KeyRun, begin: int, end: int, found: Found, *, most: int | None = None) -> int:
        """Go through the rows [begin, end) of one key; returns the row it has come to.

        Args:
            run: What is under way; is changed.
            begin: The first row.
            end: The row after the last.
            found: Takes what comes out.
            most: Stop early when there are more threads than this.
        """
        if self._starts is None:
            self._starts = np.flatnonzero(np.frombuffer(self._begins, dtype=np.bool_)).tolist()
        starts, times = self._starts, self._times
        row = begin
        while row < end:
            if not run.threads and not run.held:
                place = bisect_left(starts, row)
                if place == len(starts) or starts[place] >= end:
                    return end
                row = starts[place]
            time = 0 if times is None else times[row]
            if time >= run.deadline:
                self.advance(run, time, found)
            self.step(run, row, time, found)
            row += 1
            if most is not None and len(run.threads) > most:
                break
        return row

    def advance(self, run: KeyRun, time: int, found: Found) -> None:
        """End what is over at a time: no row before it will follow."""
        while run.deadline <= time:
            deadline = run.deadline
            rests, live, complete = self.table.rests, [], []
            for thread in run.threads:
                if thread.deadline != deadline:
                    live.append(thread)
                elif thread.at in rests and rests[thread.at].completes:
                    complete.append(thread)
                else:
                    found.timed_out.append(thread)
            run.threads = live
            self.release(run, complete, found, deadline)
            run.deadline = min((thread.deadline for thread in run.threads), default=NEVER)

    def step(self, run: KeyRun, row: int, time: int, found: Found, *, begin: bool = True) -> None:
        """Take one row, at which a match may begin if it is told so; time must have been advanced to it."""
        threads: list[Thread] = []
        complete: list[Thread] = []
        nodes: dict[tuple[int, str], Path] = {}
        seen: set[tuple[int, int]] = set()
        for thread in run.threads:
            if moves := self._open(thread.at, row):
                self._follow(thread, moves, row, time, nodes, seen, threads, complete)
        if begin and self._begins[row] and (moves := self._open(-1, row)):
            start = Thread(self.table.start, Path.EMPTY, row, time, NEVER)
            self._follow(start, moves, row, time, nodes, seen, threads, complete)
        if self.one_per_start and len(threads) > 1:
            threads = self._without_followers(threads, per_place=self.one_per_place and not run.held)
        if len(threads) > self.limit.partial:
            threads = self._limited(threads, found)
        run.threads = threads
        if complete or run.held:
            self.release(run, complete, found, time)
        run.deadline = min([thread.deadline for thread in run.threads], default=NEVER)

    @staticmethod
    def _without_followers(threads: list[Thread], *, per_place: bool) -> list[Thread]:
        first: dict[tuple[int, int], Thread] = {}
        for thread in threads:
            first.setdefault((thread.at, -1 if per_place else thread.start), thread)
        return list(first.values())

    def _limited(self, threads: list[Thread], found: Found) -> list[Thread]:
        """Give up the oldest threads beyond the bound, if that may be."""
        if self.limit.at_limit == "fail":
            raise self.limit.exceeded(len(threads))
        oldest = sorted(range(len(threads)), key=lambda place: threads[place].start)
        given_up = set(oldest[: len(threads) - self.limit.partial])
        found.given_up.extend(threads[place] for place in sorted(given_up))
        return [thread for place, thread in enumerate(threads) if place not in given_up]

    def _open(self, at: int, row: int) -> list[_Bound]:
        """The moves that the masks allow for a row at a place (-1: to begin); found once for all rows alike."""
        codes, moves, known = self._codes[at] if at in self._codes else self._encode(at)
        code = codes[row]
        found = known.get(code)
        if found is None:
            found = known[code] = [move for move in moves if move[0] is None or move[0][row]]
        return found

    def _encode(self, at: int) -> tuple[list[int], list[_Bound], dict[int, list[_Bound]]]:
        """Number the rows by which moves their masks allow."""
        moves = self._start_moves if at < 0 else self._moves[at]
        masks = list(dict.fromkeys(move[0] for move in moves if move[0] is not None))
        codes: NDArray[Any] = np.zeros(self.rows.count, dtype=np.int64 if len(masks) < 63 else object)
        for number, mask in enumerate(masks):
            codes |= np.frombuffer(mask, dtype=np.bool_).astype(codes.dtype) << number
        self._codes[at] = (codes.tolist(), moves, {})
        return self._codes[at]

    def _follow(
        self,
        thread: Thread,
        moves: list[_Bound],
        row: int,
        time: int,
        nodes: dict[tuple[int, str], Path],
        seen: set[tuple[int, int]],
        threads: list[Thread],
        complete: list[Thread],
    ) -> None:
        """Move one thread along all its ways with a row, whose masks allow them."""
        path = thread.path
        next_threads: list[Thread] = []
        stopped = False
        for _, asks, kind, label, target, accepts, bound in moves:
            if asks and not all(bool(ask(row, path)) is wanted for ask, wanted in asks):
                continue
            if kind == "stop":
                stopped = True
                continue
            deadline = NEVER if self._within is None else thread.start_time + self._within
            if kind == "take":
                # Threads with the same path share the longer one, so that the same match is known when met again.
                place = (id(path), label)
                node = nodes.get(place)
                if node is None:
                    node = nodes[place] = Path(path, label, row, path.length + 1)
                if bound is not None:
                    deadline = min(deadline, time + bound)
            else:
                node = path
                if bound is not None:
                    deadline = min(deadline, self._last_time(path) + bound)
            if target >= 0:
                next_threads.append(Thread(target, node, thread.start, thread.start_time, deadline))
            if accepts and (-1, id(node)) not in seen and self._accepted(accepts, row, path):
                seen.add((-1, id(node)))
                complete.append(Thread(-1, node, thread.start, thread.start_time, NEVER))
        if not stopped:
            for new in next_threads:
                identity = (new.at, id(new.path))
                if identity not in seen:
                    seen.add(identity)
                    threads.append(new)

    def _last_time(self, path: Path) -> int:
        return 0 if self._times is None else self._times[path.row]

    @staticmethod
    def _accepted(accepts: tuple[tuple[bytes | None, _Asks], ...], row: int, path: Path) -> bool:
        return any(
            (mask is None or mask[row]) and all(bool(ask(row, path)) is wanted for ask, wanted in asks)
            for mask, asks in accepts
        )

    def release(self, run: KeyRun, complete: list[Thread], found: Found, time: int) -> int:
        """Let out the matches that nothing earlier can give away any more; returns the first row that is kept."""
        if self.skip.kind == "none":
            found.matches.extend(complete)
            found.match_times.extend([time] * len(complete))
            return 0
        # Sorting is stable: of matches with the same first row the preferred stays in front.
        run.held = sorted(run.held + complete, key=_start)
        kept = 0
        while run.held:
            earliest = run.held[0]
            if any(thread.start < earliest.start for thread in run.threads):
                break
            found.matches.append(earliest)
            found.match_times.append(time)
            kept = max(kept, self.skip.first_kept(earliest.path))
            run.held = [thread for thread in run.held[1:] if thread.start >= kept]
            run.threads = [thread for thread in run.threads if thread.start >= kept]
        return kept


def _start(thread: Thread) -> int:
    return thread.start


def _packed(mask: NDArray[np.bool_] | None) -> bytes | None:
    return None if mask is None else mask.tobytes()


def matches_from(program: Program, rows: Rows, start: int) -> list[Match]:
    """Every distinct match that begins at a row, in the order in which they are complete."""
    threads = Threads(program, rows)
    run, found = KeyRun(), Found()
    for row in range(start, rows.count):
        time = 0 if rows.times is None else int(rows.times[row])
        threads.advance(run, time, found)
        threads.step(run, row, time, found)
        # Only what begins at the one row counts.
        run.threads = [thread for thread in run.threads if thread.start == start]
        if not run.threads:
            break
    if rows.watermark is not None:
        threads.advance(run, rows.watermark, found)
    return [Match(match.path.pairs(), start, match.path.row + 1) for match in found.matches if match.start == start]
