"""What the masks say about every row at once: can a match begin here, and could one with rows to come?

Where conditions depend on the row and its neighbours alone, this is exact, and most rows need not be tried one by one:
neither those where no way through the pattern goes on, nor those where every way that goes on runs into the end of the
rows. It is found from the last row backwards, one row further for all partitions in each round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from headrace.cep.program import AnchorEnd, AnchorStart, Consume, reachable
from headrace.cep.sql.matching import MAX_LOOK_AHEAD_STEPS, next_row, step_mask

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headrace.cep.program import Program
    from headrace.cep.sql.table import Table

    Bools = NDArray[np.bool_]

_MAX_ROUNDS: Final = 48
"""Ways longer than this many rows are left to the matcher."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is ahead of each row, without regard to time bounds.

    Args:
        matching: A match can begin here.
        open: A way that begins here runs into the end of the rows.
        taken: Some step of the pattern can take this row.
        shortest: Where a match can begin: how many rows further the shortest one ends.
    """

    matching: Bools
    open: Bools
    taken: Bools
    shortest: NDArray[np.int64]


def outlook(program: Program, masks: Mapping[int, Bools], table: Table) -> Outlook | None:
    """Look at all rows; None where the masks do not tell, or ways are very long.

    Args:
        program: The compiled pattern.
        masks: Where its conditions are true.
        table: The rows.
    """
    steps = [at for at, instruction in enumerate(program.instructions) if isinstance(instruction, Consume)]
    first, empty = reachable(program, 0)
    anchored = any(isinstance(instruction, AnchorStart | AnchorEnd) for instruction in program.instructions)
    if program.has_path_conditions or anchored or empty or len(steps) > MAX_LOOK_AHEAD_STEPS:
        return None
    everywhere = np.ones(table.count, dtype=np.bool_)
    own = {at: step_mask(program, at, masks, everywhere) for at in steps}
    following = {at: reachable(program, at + 1) for at in steps}
    matching = {at: own[at] if following[at][1] else np.zeros_like(everywhere) for at in steps}
    last = np.zeros_like(everywhere)
    last[table.ends - 1] = True
    ending = {at: own[at] & last if following[at][0] else np.zeros_like(everywhere) for at in steps}
    rounds = {at: np.zeros(table.count, dtype=np.int64) for at in first}
    for ways, noted in ((matching, rounds), (ending, {})):
        if not _spread(ways, own, following, table, noted):
            return None
    far = np.full(table.count, _MAX_ROUNDS + 1, dtype=np.int64)
    shortest = np.minimum.reduce([np.where(matching[at], rounds[at], far) for at in first])
    return Outlook(
        _any(matching, first, everywhere), _any(ending, first, everywhere), _any(own, steps, everywhere), shortest
    )


def _spread(
    ways: dict[int, Bools],
    own: Mapping[int, Bools],
    following: Mapping[int, tuple[tuple[int, ...], bool]],
    table: Table,
    rounds: Mapping[int, NDArray[np.int64]],
) -> bool:
    """Go backwards from where ways end until nothing new is found; False if that takes too many rounds.

    Args:
        ways: The rows of each step from which a way ends; is filled.
        own: The rows that each step can take.
        following: The steps that can come after each.
        table: The rows.
        rounds: For some steps, takes how many rows further the way ends.
    """
    fresh = dict(ways)
    for number in range(1, _MAX_ROUNDS + 1):
        ahead = {at: next_row(mask, table, False) for at, mask in fresh.items()}
        found: dict[int, Bools] = {}
        for at, (targets, _) in following.items():
            reached = [ahead[target] for target in targets if target in ahead]
            if reached:
                new = own[at] & np.logical_or.reduce(reached) & ~ways[at]
                if new.any():
                    found[at] = new
        if not found:
            return True
        for at, new in found.items():
            ways[at] = ways[at] | new
            if at in rounds:
                rounds[at][new] = number
        fresh = found
    return False


def _any(ways: Mapping[int, Bools], steps: tuple[int, ...] | list[int], everywhere: Bools) -> Bools:
    result = np.zeros_like(everywhere)
    for at in steps:
        result |= ways[at]
    return result
