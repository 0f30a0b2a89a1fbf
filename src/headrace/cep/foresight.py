"""How far the ways of a program come from each row, for a search for the first match with a time bound.

A search that begins at every row, each with a time bound of its own, would go through the same rows again and again, as
a way that ran out of time for one start row may still come to a match for the next. `Prospects` knows when the first
match from a row is complete; a way that cannot be in time is left at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.cep.program import Accept, Consume, ExcludeClose, ExcludeOpen, Jump, Rest, Split, reachable
from headrace.cep.prospects import MAX_PLACES, NEVER_ROW, Prospects

if TYPE_CHECKING:
    from headrace.cep.matcher import Rows
    from headrace.cep.program import Program

_KNOWN = (Accept, Consume, ExcludeClose, ExcludeOpen, Jump, Rest, Split)


class Foresight:
    """What lies ahead of each row at each split of a program.

    Args:
        program: The compiled pattern.
        rows: The rows, with a mask for every condition.
    """

    def __init__(self, program: Program, rows: Rows) -> None:
        self._program = program
        self._rows = rows
        consuming = [at for at, each in enumerate(program.instructions) if isinstance(each, Consume)]
        self._place = {at: number for number, at in enumerate(consuming)}
        self._conditions: list[int | None] = [_condition(program, at) for at in consuming]
        self._following = [reachable(program, at + 1) for at in consuming]
        self._splits = {
            at: reachable(program, at) for at, each in enumerate(program.instructions) if isinstance(each, Split)
        }
        self._prospects: Prospects | None = None

    @classmethod
    def of(cls, program: Program, rows: Rows) -> Foresight | None:
        """What can be foreseen; None without a time bound, or where conditions ask for more than a row."""
        consuming = sum(isinstance(each, Consume) for each in program.instructions)
        if (
            program.within is None
            or rows.paths
            or not all(isinstance(each, _KNOWN) for each in program.instructions)
            or max(consuming, len(rows.masks)) > MAX_PLACES
        ):
            return None
        return cls(program, rows)

    def built(self, first: int) -> bool:
        """Whether the rows of the partition that begins with a row were looked at."""
        return self._prospects is not None and self._prospects.built(first)

    def build(self, first: int, end: int) -> None:
        """Look at the rows [first, end) of a partition."""
        if self._prospects is None:
            numbers = sorted({number for number in self._conditions if number is not None})
            mask_of = {number: place for place, number in enumerate(numbers)}
            masks = [self._rows.masks[number] for number in numbers] or [np.ones(self._rows.count, dtype=np.bool_)]
            conditions = [None if number is None else mask_of[number] for number in self._conditions]

            def step(place: int, holds: tuple[bool, ...]) -> tuple[bool, tuple[int, ...]]:
                condition = conditions[place]
                if condition is not None and not holds[condition]:
                    return False, ()
                targets, accepts = self._following[place]
                return accepts, tuple(self._place[at] for at in targets)

            self._prospects = Prospects(len(self._place), masks, step)
        self._prospects.build(first, end)

    def at(self, split: int, row: int, end: int) -> tuple[int, int]:
        """The last row of the shortest match on the ways from a split, and the last row that these ways ask.

        Args:
            split: The instruction.
            row: The row at hand.
            end: The row after the last of the partition.
        """
        targets, accepts = self._splits[split]
        if self._prospects is None or accepts:
            return HAS_MATCH, NEVER_ROW
        return self._prospects.at([self._place[at] for at in targets], row, end)


#: Before every row: the ways from here can end at once.
HAS_MATCH = -1


def _condition(program: Program, at: int) -> int | None:
    instruction = program.instructions[at]
    return instruction.condition if isinstance(instruction, Consume) else None
