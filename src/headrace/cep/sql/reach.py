"""How far around the rows of a match a query looks: what a stream must keep, and what it must wait for."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cep.program import Consume
from headrace.cep.sql.bound import MatchNumber, Navigation, walk
from headrace.cep.sql.compiler import means_row_at_hand

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cep.program import Program
    from headrace.cep.sql.bound import Bound
    from headrace.cep.sql.output import Plan


@dataclass(frozen=True, slots=True)
class Reach:
    """How far around the rows of a match a query looks.

    Args:
        behind: Rows before the first of a match that PREV can reach.
        ahead: Rows after a row that its condition can reach with NEXT.
        beyond: Rows after the last of a match that a measure can reach with NEXT.
        numbered: Whether the number of the match is asked for.
    """

    behind: int
    ahead: int
    beyond: int
    numbered: bool

    @classmethod
    def of(cls, plan: Plan) -> Reach:
        """What a query needs."""
        places = first_places(plan.program)
        conditions = [
            (each.label, part)
            for each in plan.conditions.values()
            for part in (each.mask, each.path)
            if part is not None
        ]
        measures = [node for _, node in plan.measures]
        asked = [(label, item) for label, node in conditions for item in _navigations(node)]
        told = [item for node in measures for item in _navigations(node)]
        back = [-item.shift - _place(item, label, places) for label, item in asked]
        back += [-item.shift - _place(item, None, places) for item in told]
        nodes = [*(node for _, node in conditions), *measures]
        return cls(
            behind=max([0, *back]),
            ahead=max([0, *(item.shift for _, item in asked)]),
            beyond=max([0, *(item.shift for item in told)]),
            numbered=any(isinstance(item, MatchNumber) for node in nodes for item in walk(node)),
        )


def _navigations(node: Bound) -> Iterator[Navigation]:
    return (item for item in walk(node) if isinstance(item, Navigation))


def _place(item: Navigation, own: str | None, places: dict[str, int]) -> int:
    """How many rows of the match there are, at least, before the row that a navigation starts from."""
    if own is not None and means_row_at_hand(item, own):
        return places.get(own, 0)
    among = places.values() if item.labels is None else [places[label] for label in item.labels if label in places]
    return min(among, default=0) + (item.offset if item.first else 0)


def first_places(program: Program) -> dict[str, int]:
    """For each variable, how many rows of a match come before its first row, at least.

    >>> from headrace.cep.program import Accept, Program, Split
    >>> first_places(Program((Consume("A"), Split(2, 3), Consume("B"), Consume("C"), Accept())))
    {'A': 0, 'B': 1, 'C': 1}
    """
    distance = {0: 0}
    todo = deque([0])
    while todo:
        at = todo.popleft()
        takes = isinstance(program.instructions[at], Consume)
        for target in program.targets(at):
            if target not in distance or distance[target] > distance[at] + takes:
                distance[target] = distance[at] + takes
                # Nearer places first, as in a search for the shortest way.
                (todo.append if takes else todo.appendleft)(target)
    found: dict[str, int] = {}
    for at, instruction in enumerate(program.instructions):
        if isinstance(instruction, Consume) and at in distance:
            found[instruction.label] = min(found.get(instruction.label, distance[at]), distance[at])
    return found
