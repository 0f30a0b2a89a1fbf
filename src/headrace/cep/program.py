"""A compiled pattern: a frozen list of instructions for a machine that reads the rows of one key in order.

A front end (the builder, or SQL's MATCH_RECOGNIZE) says *what* to find; a `Program` says how one thread of the matching
machine goes through the rows. A thread stands before a row at an instruction, carrying the **path**: the (label, row)
pairs it has matched so far. `Consume` makes the row part of the match, `Gap` passes over it, `Split` makes two threads
of one, the first of which is preferred; `Accept` completes a match. Instructions that move on go to the next one in the
list, `Jump` and `Split` say where to go.

Conditions stand in the program as numbers. What is behind a number comes with the rows: a **mask** (a boolean per row,
computed for all rows at once) or a **path condition** (a function of the row and of the path, asked while matching).
A program is a value: it can be compared, kept, pickled, and replaced by another with a higher version.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Collection

#: What a condition is computed from: the row alone or its physical neighbours, or the path as well.
ConditionKind: TypeAlias = Literal["mask", "path"]

#: A conjunction of (condition id, wanted value); the empty one is always true.
Term: TypeAlias = tuple[tuple[int, bool], ...]

ALWAYS: Term = ()

#: More instructions than this come from huge repetition counts; the program would be slow and take much memory.
MAX_INSTRUCTIONS = 50_000


@dataclass(frozen=True, slots=True)
class Consume:
    """The row becomes part of the match under a label, if the condition holds (None: always)."""

    label: str
    condition: int | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """The row is passed over, if the condition holds; it is no part of the match."""

    condition: Term = ALWAYS


@dataclass(frozen=True, slots=True)
class Split:
    """Two ways to go on; matches of the first are preferred to those of the second."""

    preferred: int
    other: int


@dataclass(frozen=True, slots=True)
class Jump:
    """Go on elsewhere."""

    target: int


@dataclass(frozen=True, slots=True)
class AnchorStart:
    """Only before the first row of the partition."""


@dataclass(frozen=True, slots=True)
class AnchorEnd:
    """Only after the last row of the partition."""


@dataclass(frozen=True, slots=True)
class ExcludeOpen:
    """Rows from here on are matched and left out of the output, SQL's `{-`."""


@dataclass(frozen=True, slots=True)
class ExcludeClose:
    """The end of what `ExcludeOpen` began, SQL's `-}`."""


@dataclass(frozen=True, slots=True)
class Accept:
    """The rows consumed so far are a match."""


@dataclass(frozen=True, slots=True)
class Check:
    """Go on only if the condition holds for the row at hand, which is neither consumed nor passed over."""

    condition: Term = ALWAYS


@dataclass(frozen=True, slots=True)
class Stop:
    """If the condition holds for the row at hand, the thread and all that it would become with this row end.

    A match that the row completes is not taken back. Only for a search of all matches.
    """

    condition: Term = ALWAYS


@dataclass(frozen=True, slots=True)
class Rest:
    """Where a thread waits between rows, and how long.

    Args:
        within: The next row of the match must come less than this many microseconds after the one before; None for no
            bound.
        completes: Waiting till the end of the time bound is a match, not a time-out.
    """

    within: int | None = None
    completes: bool = False


Instruction: TypeAlias = (
    Consume | Gap | Split | Jump | AnchorStart | AnchorEnd | ExcludeOpen | ExcludeClose | Accept | Check | Stop | Rest
)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled pattern.

    Args:
        instructions: Begins at the first; every way through it ends at an `Accept`.
        conditions: The kind of each condition, by its number.
        within: All rows of a match lie less than this many microseconds after its first; None for no bound.
        version: Raised by whoever replaces a running pattern by another.

    >>> Program((Consume("a", 0), Split(0, 2), Accept()), ("mask",)).labels
    ('a',)
    """

    instructions: tuple[Instruction, ...]
    conditions: tuple[ConditionKind, ...] = ()
    within: int | None = None
    version: int = 1
    labels: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        size = len(self.instructions)
        if size > MAX_INSTRUCTIONS:
            raise PlanError(
                f"the pattern compiles to {size} instructions, more than {MAX_INSTRUCTIONS}",
                hint="Use smaller repetition counts.",
            )
        for at, instruction in enumerate(self.instructions):
            self._check(at, instruction, size)
        if not any(isinstance(i, Accept) or (isinstance(i, Rest) and i.completes) for i in self.instructions):
            raise PlanError("a program without Accept can match nothing")
        labels = dict.fromkeys(i.label for i in self.instructions if isinstance(i, Consume))
        object.__setattr__(self, "labels", tuple(labels))

    def _check(self, at: int, instruction: Instruction, size: int) -> None:
        targets = self.targets(at)
        if not all(0 <= target < size for target in targets):
            raise PlanError(
                f"instruction {at} ({instruction}) goes to {targets}, outside of the program (0 to {size - 1})"
            )
        used = condition_ids(instruction)
        if not all(0 <= number < len(self.conditions) for number in used):
            raise PlanError(
                f"instruction {at} ({instruction}) uses a condition of which only {len(self.conditions)} are there"
            )

    def targets(self, at: int) -> tuple[int, ...]:
        """Where an instruction can go on, the preferred way first."""
        match self.instructions[at]:
            case Split(preferred, other):
                return (preferred, other)
            case Jump(target):
                return (target,)
            case Accept() | Stop():
                return ()
            case _:
                return (at + 1,)

    def can_match(self, never: Collection[int] = ()) -> bool:
        """Whether there is a way to a match at all.

        Args:
            never: Conditions that never hold.

        >>> Program((Consume("a"), AnchorStart(), Consume("b"), Accept())).can_match()
        False
        """
        # A place, whether a row was read on the way to it, and whether none may be read any more.
        todo = [(0, False, False)]
        seen = set(todo)
        while todo:
            at, read, ended = todo.pop()
            instruction = self.instructions[at]
            if isinstance(instruction, Accept) or (isinstance(instruction, Rest) and instruction.completes and read):
                return True
            if isinstance(instruction, Consume | Gap):
                if ended or _fails(instruction, never):
                    continue
                read = True
            elif isinstance(instruction, AnchorStart):
                if read:
                    continue
            elif isinstance(instruction, Check) and _fails(instruction, never):
                continue
            ended = ended or isinstance(instruction, AnchorEnd)
            new = {(target, read, ended) for target in self.targets(at)} - seen
            seen |= new
            todo.extend(new)
        return False

    @property
    def has_path_conditions(self) -> bool:
        """Whether any condition depends on what was matched before."""
        return "path" in self.conditions


def _fails(instruction: Consume | Gap | Check, never: Collection[int]) -> bool:
    if isinstance(instruction, Consume):
        return instruction.condition in never
    return any(number in never and wanted for number, wanted in instruction.condition)


def condition_ids(instruction: Instruction) -> tuple[int, ...]:
    """The conditions that an instruction asks."""
    match instruction:
        case Consume(_, condition):
            return () if condition is None else (condition,)
        case Gap(term) | Check(term) | Stop(term):
            return tuple(number for number, _ in term)
        case _:
            return ()


def reachable(program: Program, start: int) -> tuple[tuple[int, ...], bool]:
    """The consuming steps that can come next from an instruction, and whether a match can end before any."""
    seen: set[int] = set()
    todo = [start]
    steps: list[int] = []
    accepts = False
    while todo:
        at = todo.pop()
        if at in seen:
            continue
        seen.add(at)
        instruction = program.instructions[at]
        if isinstance(instruction, Consume):
            steps.append(at)
        elif isinstance(instruction, Accept):
            accepts = True
        else:
            todo.extend(program.targets(at))
    return tuple(sorted(steps)), accepts
