"""The matcher: the first match from a row, in the order of preference.

`Matcher` runs a `Program` over the `Rows` of one key. `match_from(start)` follows the preferred way first and comes
back to the others when it fails, so its answer is the first match in preference order, as SQL's row pattern recognition
and regular expressions have it.

A way that failed from an (instruction, row) fails again whenever it is met, so long as only masks are asked: failed
pairs are remembered, also from one start row to the next, and a run over all rows takes at most instructions x rows
steps however the loops are nested. With a time bound a way that failed for one start row may have run into the end of
its time, and a later start row has more: there `Foresight` says how far each way comes. What depends on the path cannot
be remembered so; there, a bound on the steps of one start row keeps a bad pattern from running for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.cep.foresight import Foresight
from headrace.cep.limits import MatchLimitError
from headrace.cep.program import (
    Accept,
    AnchorEnd,
    AnchorStart,
    Consume,
    ExcludeClose,
    ExcludeOpen,
    Gap,
    Jump,
    Program,
    Rest,
    Split,
    condition_ids,
)
from headrace.errors import HeadraceError, PlanError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headrace.cep.vectors import Vector, VectorCondition

#: Steps that one start row may take where path conditions forbid to remember failures.
DEFAULT_MAX_STEPS = 5_000_000

#: With a time bound: after so many splits an attempt looks at all rows of its partition from behind.
_MANY_SPLITS = 256

#: Bytes for remembering failures from one start row to the next; beyond, each start row remembers its own only.
_MAX_TABLE = 256 * 1024 * 1024


class Path:
    """What a thread has matched so far: an immutable list of (label, row), newest last.

    >>> path = Path.EMPTY.add("a", 0).add("b", 1).add("b", 3)
    >>> path.rows("b"), path.first(), path.last("a"), path.last("c"), len(path), path.pairs()
    ((1, 3), 0, 0, None, 3, (('a', 0), ('b', 1), ('b', 3)))
    """

    __slots__ = ("label", "length", "memo", "parent", "row")
    EMPTY: Path
    memo: Any  # for whoever asks conditions: what it has computed from this path, None at first

    def __init__(self, parent: Path | None, label: str, row: int, length: int) -> None:
        self.parent = parent
        self.label = label
        self.row = row
        self.length = length
        self.memo = None

    def add(self, label: str, row: int) -> Path:
        """Return the path with one more row at its end."""
        return Path(self, label, row, self.length + 1)

    def __len__(self) -> int:
        return self.length

    def _backwards(self) -> Iterator[Path]:
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def pairs(self) -> tuple[tuple[str, int], ...]:
        """All (label, row) pairs, oldest first."""
        return tuple((node.label, node.row) for node in self._backwards())[::-1]

    def rows(self, *labels: str) -> tuple[int, ...]:
        """The rows under the labels (of all labels if none is given), oldest first."""
        if not labels:
            return tuple(node.row for node in self._backwards())[::-1]
        return tuple(node.row for node in self._backwards() if node.label in labels)[::-1]

    def last(self, *labels: str) -> int | None:
        """The newest row under the labels; cheap, as a path is walked from its end."""
        for node in self._backwards():
            if not labels or node.label in labels:
                return node.row
        return None

    def first(self, *labels: str) -> int | None:
        """The oldest row under the labels."""
        found = None
        for node in self._backwards():
            if not labels or node.label in labels:
                found = node.row
        return found


Path.EMPTY = Path(None, "", -1, 0)

#: Asked with a row and the path *before* that row.
PathCondition: TypeAlias = Callable[[int, Path], bool]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one key, as a matcher sees them.

    Args:
        count: How many there are.
        masks: By condition number, a boolean per row; for every condition of kind "mask".
        paths: By condition number, a function of row and path; for every condition of kind "path". If it has a mask as
            well, the function is asked only where the mask is true.
        times: Microseconds per row, ascending; needed where the program has time bounds.
        starts_partition: Whether row 0 is the first of its partition, which `AnchorStart` asks.
        complete: Whether no row will follow; if not, a match that may still change with the next row is not decided.
        watermark: No row before this time will follow; lets a time bound decide without a new row.
        ends: For rows of several partitions one after the other: the row after the last of each, ascending, the last
            one equal to count. A match stays within its partition.
        begins: For each of these partitions whether its first row here is its first at all; None for `starts_partition`
            of all of them.
        ahead: So many rows after a row are looked at by its conditions (SQL's NEXT): the last ones of incomplete rows
            cannot be asked yet.
        span: An attempt that needs more rows than this is given up; None for no bound.
        vectors: By condition number, for some of kind "path": the same for many rows and paths at once.
        numbers: The columns that these read.
    """

    count: int
    masks: Mapping[int, NDArray[np.bool_]] = field(default_factory=dict)
    paths: Mapping[int, PathCondition] = field(default_factory=dict)
    times: NDArray[np.int64] | None = None
    starts_partition: bool = True
    complete: bool = True
    watermark: int | None = None
    ends: NDArray[np.int64] | None = None
    begins: NDArray[np.bool_] | None = None
    ahead: int = 0
    span: int | None = None
    vectors: Mapping[int, VectorCondition] = field(default_factory=dict)
    numbers: Mapping[str, Vector] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Match:
    """A match.

    Args:
        pairs: The rows of the match and their labels, oldest first; empty for an empty match.
        start: The row at which matching began.
        end: The row after the last one that was read; equal to start for an empty match.
        excluded: Ranges [from, to) of rows that SQL's `{- -}` leaves out of the output.
    """

    pairs: tuple[tuple[str, int], ...]
    start: int
    end: int
    excluded: tuple[tuple[int, int], ...] = ()

    @property
    def rows(self) -> tuple[int, ...]:
        """The rows of the match, oldest first."""
        return tuple(row for _, row in self.pairs)


@dataclass(frozen=True, slots=True)
class Attempt:
    """What came of trying to match from one row.

    Args:
        match: The first match in preference order, or None.
        decided: False where rows to come may still change the answer (only with incomplete rows); then match is None.
        furthest: The last row that was asked, which is the one that decided it.
        waited: Whether the answer also took that no further row comes in time (or at all).
        cut: Without a match, if asked for: the rows of the preferred of the ways that still fitted when the time was
            over.
        given_up: Whether it needed more rows than an attempt may have.
        ending: The last row that `$` was asked at; it is enough to know that there is such a row.
    """

    match: Match | None
    decided: bool = True
    furthest: int = -1
    waited: bool = False
    cut: Match | None = None
    given_up: bool = False
    ending: int = -1


_CONSUME, _GAP, _SPLIT, _JUMP, _START, _END, _OPEN, _CLOSE, _ACCEPT, _REST = range(10)


class _Mark:
    """A place where an exclusion opens or closes; a list linked from its end."""

    __slots__ = ("before", "opened", "row")

    def __init__(self, before: _Mark | None, opened: bool, row: int) -> None:
        self.before = before
        self.opened = opened
        self.row = row


class Matcher:
    """Finds, for a start row, the first match in preference order.

    Args:
        program: The compiled pattern.
        rows: The rows of one key.
        max_steps: Bound on the steps of one start row where conditions depend on the path.
        keep_cut: Whether to tell how far an attempt came whose time was over.

    >>> import numpy as np
    >>> program = Program((Consume("a", 0), Split(0, 2), Consume("b", 1), Accept()), ("mask", "mask"))
    >>> text = np.array(list("aaab"))
    >>> matcher = Matcher(program, Rows(4, {0: text == "a", 1: text == "b"}))
    >>> matcher.match_from(1).pairs
    (('a', 1), ('a', 2), ('b', 3))
    >>> matcher.match_from(3) is None
    True
    """

    def __init__(
        self, program: Program, rows: Rows, *, max_steps: int = DEFAULT_MAX_STEPS, keep_cut: bool = False
    ) -> None:
        self.program = program
        self.rows = rows
        self.max_steps = max_steps
        self.keep_cut = keep_cut
        # Ways part only at splits, so only there failures are noted: a line per row, a place in it per split.
        splits = [at for at, instruction in enumerate(program.instructions) if isinstance(instruction, Split)]
        self._size = len(splits)
        self._column = dict(zip(splits, range(len(splits)), strict=True))
        if program.within is not None and rows.times is None:
            raise HeadraceError("a pattern with a time bound needs the times of the rows")
        masks = {number: mask.astype(bool, copy=False).tobytes() for number, mask in rows.masks.items()}
        self._code = [_load(instruction, masks, rows) for instruction in program.instructions]
        self._forgetful = _depends_on_path(program)
        # Without a time bound a failed (row, instruction) fails for every start row, so one table serves all of them.
        # The place after the last row of a partition is not the first row of the next: each partition has a line more.
        lines = rows.count + (1 if rows.ends is None else len(rows.ends))
        cells = lines * self._size
        self._failed = bytearray(cells) if program.within is None and cells <= _MAX_TABLE else None
        self._foresight = Foresight.of(program, rows)

    def match_from(self, start: int) -> Match | None:
        """Return the first match in preference order that begins at a row, or None."""
        return self.attempt(start).match

    def all_from(self, start: int) -> list[Match]:
        """Return every distinct match that begins at a row, in the order in which they are complete."""
        from headrace.cep.threads import matches_from  # the other mode of the machine, which shares these types

        return matches_from(self.program, self.rows, start)

    def attempt(self, start: int) -> Attempt:
        """Try to match from a row, and say whether rows to come could change the answer."""
        rows, size, code, forgetful, column = self.rows, self._size, self._code, self._forgetful, self._column
        first, count, partition = self._partition(start)
        foresight = self._foresight
        foreseen = foresight is not None and foresight.built(first)
        limit, open_end = self._reach(start, first, count)
        too_far = rows.span is not None and start + rows.span < limit
        if rows.span is not None and too_far:
            limit = start + rows.span
        failed = self._failed
        seen: set[tuple[int, int]] = set()
        seen_with_path: set[tuple[int, int, int]] = set()
        keep: list[Path] = []  # a path's identity is in seen_with_path, so it must not be freed and used again
        steps = 0
        stack: list[tuple[int, int, Path, _Mark | None]] = []
        at, row, path = 0, start, Path.EMPTY
        marks: _Mark | None = None
        furthest, ending, waited = start, start, False
        cut: tuple[Path, _Mark | None] | None = None
        begins = rows.starts_partition if rows.begins is None else bool(rows.begins[partition])
        while True:
            kind, mask, ask, label, target, other = code[at]
            alive = True
            if kind <= _GAP:
                if row >= limit:
                    if too_far:
                        self._forget(start, partition, limit)
                        return Attempt(None, furthest=limit, given_up=True)
                    if open_end:
                        return self._undecided(start, partition, count)
                    alive, waited = False, True
                    furthest = max(furthest, limit - 1)
                    if cut is None and path.parent is not None:
                        cut = (path, marks)
                elif (mask is not None and not mask[row]) or (ask is not None and not ask(row, path)):
                    alive = False
                    if row > furthest:
                        furthest = row
                else:
                    if row > furthest:
                        furthest = row
                    if kind == _CONSUME:
                        path = Path(path, label, row, path.length + 1)
                    row += 1
                    at += 1
            elif kind == _SPLIT:
                if forgetful[at]:
                    steps += 1
                    if steps > self.max_steps:
                        raise self._too_many_steps(start)
                    key = (at, row, id(path))
                    if key in seen_with_path:
                        alive = False
                    else:
                        seen_with_path.add(key)
                        keep.append(path)
                elif failed is not None:
                    place = (row + partition) * size + column[at]
                    if failed[place]:
                        alive = False
                    else:
                        failed[place] = 1
                elif (at, row) in seen:
                    alive = False
                else:
                    seen.add((at, row))
                    if foresight is not None and not foreseen and len(seen) > _MANY_SPLITS:
                        foresight.build(first, count)
                        foreseen = True
                    if foresight is not None and foreseen:
                        complete, over = foresight.at(at, row, count)
                        if complete >= limit and (over < limit or cut is not None or not self.keep_cut):
                            # No way from here comes to a match in time. What it would have asked counts as asked.
                            alive = False
                            if over >= limit:
                                if too_far:
                                    self._forget(start, partition, limit)
                                    return Attempt(None, furthest=limit, given_up=True)
                                if open_end:
                                    return self._undecided(start, partition, count)
                                waited, over = True, limit - 1
                            furthest = max(furthest, over)
                if alive:
                    stack.append((other, row, path, marks))
                    at = target
            elif kind == _JUMP:
                at = target
            elif kind == _ACCEPT:
                if failed is not None:
                    # The ways on the match's own rows did not fail; a loop over nothing may have marked others there.
                    begin = (start + partition) * size
                    failed[begin : begin + (row + 1 - start) * size] = bytes((row + 1 - start) * size)
                return Attempt(Match(path.pairs(), start, row, _ranges(marks)), True, furthest, waited, ending=ending)
            elif kind == _START:
                alive = row == first and begins
                at += 1
            elif kind == _END:
                if row == count and not rows.complete:
                    return self._undecided(start, partition, count)
                alive = row == count
                waited, ending = waited or alive, max(ending, min(row, count - 1))
                at += 1
            elif kind == _REST:
                at += 1
            else:
                marks = _Mark(marks, kind == _OPEN, row)
                at += 1
            if not alive:
                if not stack:
                    return Attempt(None, True, furthest, waited, self._cut(cut, start, limit), ending=ending)
                at, row, path, marks = stack.pop()

    def _cut(self, cut: tuple[Path, _Mark | None] | None, start: int, limit: int) -> Match | None:
        if cut is None or not self.keep_cut:
            return None
        path, marks = cut
        # What was excluded when the time was over stays so.
        return Match(path.pairs(), start, limit, _ranges(marks, limit))

    def _undecided(self, start: int, partition: int, end: int) -> Attempt:
        self._forget(start, partition, end)
        return Attempt(None, decided=False)

    def _forget(self, start: int, partition: int, end: int) -> None:
        """Forget what failed from a row on: what was being tried has not failed yet."""
        if self._failed is not None:
            begin, stop = (start + partition) * self._size, (end + partition + 1) * self._size
            self._failed[begin:stop] = bytes(stop - begin)

    def _partition(self, start: int) -> tuple[int, int, int]:
        """The rows [first, end) of the partition that a row is in, and its number."""
        ends = self.rows.ends
        if ends is None:
            return 0, self.rows.count, 0
        partition = int(ends.searchsorted(start, side="right"))
        return int(ends[partition - 1]) if partition else 0, int(ends[partition]), partition

    def _reach(self, start: int, first: int, count: int) -> tuple[int, bool]:
        """The row before which a match from `start` must end, and whether rows to come could still be part of it."""
        rows, within = self.rows, self.program.within
        known = count if rows.complete else max(count - rows.ahead, start)
        if within is None or rows.times is None or start >= count:
            return known, not rows.complete
        deadline = int(rows.times[start]) + within
        limit = first + int(rows.times[first:count].searchsorted(deadline, side="left"))
        if limit > known:
            return known, True
        expired = limit < count or (rows.watermark is not None and rows.watermark >= deadline)
        return limit, not rows.complete and not expired

    def _too_many_steps(self, start: int) -> MatchLimitError:
        return MatchLimitError(
            f"matching from row {start} took more than {self.max_steps} steps, as conditions depend on the match",
            hint="Bound the pattern in time, use smaller repetitions, or let conditions depend on the row alone.",
        )


_Code: TypeAlias = tuple[int, bytes | None, PathCondition | None, str, int, int]


def _load(instruction: object, masks: Mapping[int, bytes], rows: Rows) -> _Code:
    """Bind one instruction to the rows."""
    match instruction:
        case Consume(label, condition):
            mask, ask = (None, None) if condition is None else _bind(((condition, True),), masks, rows)
            return (_CONSUME, mask, ask, label, 0, 0)
        case Gap(term):
            mask, ask = _bind(term, masks, rows)
            return (_GAP, mask, ask, "", 0, 0)
        case Split(preferred, other):
            return (_SPLIT, None, None, "", preferred, other)
        case Jump(target):
            return (_JUMP, None, None, "", target, 0)
        case AnchorStart():
            return (_START, None, None, "", 0, 0)
        case AnchorEnd():
            return (_END, None, None, "", 0, 0)
        case ExcludeOpen():
            return (_OPEN, None, None, "", 0, 0)
        case ExcludeClose():
            return (_CLOSE, None, None, "", 0, 0)
        case Accept():
            return (_ACCEPT, None, None, "", 0, 0)
        case Rest():
            return (_REST, None, None, "", 0, 0)
        case _:
            raise PlanError(
                f"{instruction!r} looks at all partial matches and cannot stand in a search for the first match",
                hint="Run the program with headrace.cep.threads.",
            )


def _bind(
    term: tuple[tuple[int, bool], ...], masks: Mapping[int, bytes], rows: Rows
) -> tuple[bytes | None, PathCondition | None]:
    """Split a conjunction into one mask and one path condition."""
    import numpy as np

    packed: bytes | None = None
    asks: list[tuple[PathCondition, bool]] = []
    for number, wanted in term:
        if number in masks:
            part = masks[number] if wanted else (~np.frombuffer(masks[number], dtype=np.bool_)).tobytes()
            both = None if packed is None else np.frombuffer(packed, dtype=np.bool_) & np.frombuffer(part, np.bool_)
            packed = part if both is None else both.tobytes()
        if number in rows.paths:
            asks.append((rows.paths[number], wanted))
        elif number not in masks:
            raise HeadraceError(f"condition {number} of the pattern has neither a mask nor a function")
    if not asks:
        return packed, None
    if len(asks) == 1 and asks[0][1]:
        return packed, asks[0][0]
    return packed, lambda row, path: all(bool(ask(row, path)) is wanted for ask, wanted in asks)


def _depends_on_path(program: Program) -> list[bool]:
    """For each instruction, whether a path condition can be met from it on."""
    size = len(program.instructions)
    before: list[list[int]] = [[] for _ in range(size)]
    todo: list[int] = []
    for at, instruction in enumerate(program.instructions):
        for target in program.targets(at):
            before[target].append(at)
        if any(program.conditions[number] == "path" for number in condition_ids(instruction)):
            todo.append(at)
    found = [False] * size
    while todo:
        at = todo.pop()
        if not found[at]:
            found[at] = True
            todo.extend(before[at])
    return found


def _ranges(marks: _Mark | None, end: int = 0) -> tuple[tuple[int, int], ...]:
    """Row ranges between exclusion marks, the outermost of nested ones; one that is never closed ends at `end`."""
    events: list[tuple[bool, int]] = []
    while marks is not None:
        events.append((marks.opened, marks.row))
        marks = marks.before
    ranges: list[tuple[int, int]] = []
    depth = begin = 0
    for opened, row in reversed(events):
        if opened:
            begin = row if depth == 0 else begin
            depth += 1
        else:
            depth -= 1
            if depth == 0 and row > begin:
                ranges.append((begin, row))
    if depth and end > begin:
        ranges.append((begin, end))
    return tuple(ranges)
