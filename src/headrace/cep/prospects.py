"""What lies ahead of a row: where a partial match that waits there is complete first, and how far it can come.

Where conditions ask of a row alone, all partial matches that wait at the same place of a program before the same row
have the same future. It is found once, from the last row of a key backwards, instead of by following each of them
forwards: a search that begins at every row then takes time in proportion to the rows, with a time bound as without.

For each place and row there are two numbers:

- **complete**: the row with which the first match is complete; `NEVER_ROW` if none is among the rows at hand.
- **over**: the row with which the last way that goes on from there ends; `NEVER_ROW` if one runs into the end of the
  rows at hand.

Over a run of equal rows these are mostly the same from row to row, so the numbers of the row itself are written as
`HERE`: the run then has one entry, whatever its length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

#: Stands for a row beyond the rows at hand.
NEVER_ROW: Final = 2**62

#: Stands for the row that is asked.
HERE: Final = -1

#: Programs with more places or conditions than this are not looked at: times(5000) has thousands.
MAX_PLACES: Final = 48

#: Of a place and a row: whether the row completes a match, and the places where its ways wait for the next row.
Step: TypeAlias = "tuple[bool, tuple[int, ...]]"
_Outlook: TypeAlias = "tuple[tuple[int, int], ...]"


class Prospects:
    """What lies ahead at each place and row.

    Args:
        places: How many places the program has; they are numbered from 0.
        masks: The conditions that the program asks, over all rows.
        step: Of a place and the values of the conditions at a row, where the row leads.

    >>> def step(place, holds):  # "a+ b": place 0 takes an a, place 1 another a or the b
    ...     takes_a, takes_b = holds
    ...     return (takes_b and place == 1, (1,) if takes_a else ())
    >>> text = np.array(list("aabac"))
    >>> ahead = Prospects(2, [text == "a", text == "b"], step)
    >>> ahead.build(0, 5)
    >>> ahead.at((0,), 0), ahead.at((1,), 1), ahead.at((0,), 3)
    ((2, 2), (2, 2), (4611686018427387904, 4))
    """

    def __init__(
        self,
        places: int,
        masks: Sequence[NDArray[np.bool_]],
        step: Callable[[int, tuple[bool, ...]], Step],
    ) -> None:
        count = len(masks[0]) if masks else 0
        bits = np.zeros(count, dtype=np.int64)
        for number, mask in enumerate(masks):
            bits |= mask.astype(np.int64) << number
        kinds, codes = np.unique(bits, return_inverse=True)
        self._codes: NDArray[np.int64] = codes
        self._steps: list[tuple[Step, ...]] = []
        self._holds: list[tuple[bool, ...]] = []
        for kind in kinds.tolist():
            holds = tuple(bool(kind >> number & 1) for number in range(len(masks)))
            self._holds.append(holds)
            self._steps.append(tuple(step(place, holds) for place in range(places)))
        self._nothing: _Outlook = ((NEVER_ROW, NEVER_ROW),) * places
        self._outlooks: list[_Outlook | None] = [None] * (count + 1)

    def built(self, row: int) -> bool:
        """Whether what lies ahead of a row is known."""
        return self._outlooks[row] is not None

    def holds(self, row: int) -> tuple[bool, ...]:
        """The values of the conditions at a row."""
        return self._holds[int(self._codes[row])]

    def build(self, begin: int, end: int) -> None:
        """Look at the rows [begin, end) of one key."""
        codes = self._codes[begin:end]
        first = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) + begin
        outlooks, stop, known = self._outlooks, end, self._nothing
        for start in first[::-1].tolist():
            steps = self._steps[self._codes[start]]
            for row in range(stop - 1, start - 1, -1):
                new = _before(steps, known, row + 1)
                outlooks[row] = new
                if new == known and row + 1 < stop:
                    # All rows of the run before this one are like it.
                    outlooks[start:row] = [new] * (row - start)
                    known = new
                    break
                known = new
            stop = start

    def at(self, places: Sequence[int], row: int, end: int | None = None) -> tuple[int, int]:
        """The first row that completes a match, and the row with which all is over, before a row at some places.

        Args:
            places: Where partial matches wait.
            row: The next row.
            end: The row after the last of the key; there nothing is known.
        """
        outlook = None if row == end else self._outlooks[row]
        if outlook is None:
            return NEVER_ROW, NEVER_ROW
        complete, over = NEVER_ROW, HERE
        for place in places:
            one_complete, one_over = outlook[place]
            one_complete = row if one_complete == HERE else one_complete
            complete = min(complete, one_complete)
            over = max(over, one_over)
        return complete, row if over == HERE else over


def _before(steps: tuple[Step, ...], after: _Outlook, next_row: int) -> _Outlook:
    """What lies ahead of a row, by what lies ahead of the next one."""
    outlook = []
    for completes, targets in steps:
        complete, over = HERE if completes else NEVER_ROW, HERE
        for target in targets:
            then_complete, then_over = after[target]
            if not completes:
                then_complete = next_row if then_complete == HERE else then_complete
                complete = min(complete, then_complete)
            then_over = next_row if then_over == HERE else then_over
            over = max(over, then_over)
        outlook.append((complete, over))
    return tuple(outlook)
