"""Conditions that look back into the match, asked while it is being tried.

A path (see `headrace.cep.matcher`) is a list linked from its end, shared between the ways that are tried. What
conditions need of it, such as the last two rows mapped to A or the sum of their prices, is kept at each of its links:
one step from the link before, computed when first asked. So a condition costs the same at the thousandth row of a
match as at the first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.cep.matcher import Path, PathCondition
from headrace.cep.sql.aggregates import AGGREGATES, stepwise
from headrace.cep.sql.bound import (
    Aggregate,
    Bound,
    ColumnValue,
    MatchNumber,
    Navigation,
    RowLabel,
    leaves,
    walk,
)
from headrace.cep.sql.compiler import Condition, means_row_at_hand
from headrace.cep.sql.datatypes import NULL
from headrace.cep.sql.expressions import Evaluator, compile_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.cep.sql.table import Table

_KEPT_ROWS = 8
"""Rows kept at a link for FIRST and LAST; offsets beyond are looked up by walking the path."""

_ANY_COLUMN = ColumnValue("", NULL)
"""Stands for the body where only the place matters, so that several navigations share one tracker."""

States: TypeAlias = "Sequence[Any]"
Asked: TypeAlias = tuple[int, Path, States]
"""What a condition sees: the row at hand, the path before it, and the states at the end of that path."""


@dataclass(frozen=True, slots=True)
class _Tracker:
    """A fold over the rows of a path that are mapped to some labels."""

    labels: frozenset[str] | None
    initial: Any
    update: Callable[[Any, int, str], Any]

    def counts(self, label: str) -> bool:
        return self.labels is None or label in self.labels


class PathConditions:
    """The path conditions of one query, compiled once.

    Args:
        table: The rows.
        conditions: The conditions by variable; those with a path part become functions.

    Set `match_number`, `low` and `high` (the partition) before a search.
    """

    def __init__(self, table: Table, conditions: Mapping[str, Condition]) -> None:
        self.match_number = 1
        self.low = 0
        self.high = table.count
        self._table = table
        self._trackers: list[_Tracker] = []
        self._numbers: dict[Bound, int] = {}
        self._functions: dict[str, Evaluator] = {}
        self._updates: dict[str, tuple[tuple[int, Callable[[Any, int, str], Any]], ...]] = {}
        for label, condition in conditions.items():
            if condition.path is not None:
                self._functions[label] = compile_function(condition.path, lambda leaf, own=label: self._leaf(leaf, own))  # type: ignore[misc]
        self._initial: States = tuple(tracker.initial for tracker in self._trackers)

    def condition(self, label: str) -> PathCondition:
        """The condition of a variable as the matcher asks it."""
        function, states = self._functions[label], self._states
        if not self._trackers:
            return lambda row, path: function((row, path, ())) is True
        return lambda row, path: function((row, path, states(path))) is True

    def _states(self, path: Path) -> States:
        memo: States | None = path.memo
        if memo is not None:
            return memo
        parent = path.parent
        if parent is None:
            return self._initial
        # Nearly always the link before was asked already; else walk back to one that was.
        behind = [path]
        while parent.parent is not None and parent.memo is None:
            behind.append(parent)
            parent = parent.parent
        states: States = self._initial if parent.parent is None else parent.memo
        for link in reversed(behind):
            states = link.memo = self._step(states, link.row, link.label)
        return states

    def _step(self, states: States, row: int, label: str) -> States:
        updates = self._updates.get(label)
        if updates is None:
            updates = self._updates[label] = tuple(
                (place, tracker.update) for place, tracker in enumerate(self._trackers) if tracker.counts(label)
            )
        if not updates:
            return states
        stepped = list(states)
        for place, update in updates:
            stepped[place] = update(stepped[place], row, label)
        return stepped

    # Leaves

    def _leaf(self, leaf: Bound, own: str) -> Evaluator:
        match leaf:
            case MatchNumber():
                return lambda _: self.match_number
            case Navigation() if means_row_at_hand(leaf, own):
                return self._at_hand(leaf, own)
            case Navigation():
                return self._navigation(leaf, own)
            case Aggregate():
                return self._aggregate(leaf, own)
            case _:
                raise TypeError(f"{leaf} cannot stand alone")

    def _at_hand(self, leaf: Navigation, own: str) -> Evaluator:
        read = self._reader(leaf, own)
        return lambda asked: read(asked[0], own, asked)

    def _navigation(self, leaf: Navigation, own: str) -> Evaluator:
        read = self._reader(leaf, own)
        find = self._finder(leaf, own)

        def navigate(asked: Asked) -> Any:
            found = find(asked)
            return None if found is None else read(found[0], found[1], asked)

        return navigate

    def _reader(self, leaf: Navigation, own: str) -> Callable[[int, str, Asked], Any]:
        """Reads the body of a navigation at a row it has found, after the physical step."""
        shift = leaf.shift
        if not any(isinstance(item, RowLabel | MatchNumber) for item in walk(leaf.body)):
            values = self._table.values(leaf.body)
            if shift == 0:
                return lambda row, _label, _asked: values[row]
            return lambda row, _label, _asked: values[row + shift] if self.low <= row + shift < self.high else None
        function = self.row_function(leaf.body)

        def read(row: int, label: str, asked: Asked) -> Any:
            place = row + shift
            if not self.low <= place < self.high:
                return None
            return function((place, label if shift == 0 else _label_at(place, own, asked)))

        return read

    def row_function(self, body: Bound) -> Evaluator:
        """A function of (row, label) for an expression on one row and its label."""

        def leaf(node: Bound) -> Evaluator:
            match node:
                case RowLabel():
                    return lambda place: place[1]
                case MatchNumber():
                    return lambda _: self.match_number
                case ColumnValue():
                    values = self._table.values(node)
                    return lambda place: values[place[0]]
                case _:
                    raise TypeError(f"{node} cannot stand inside of a navigation")

        if isinstance(body, ColumnValue) or not any(isinstance(item, RowLabel | MatchNumber) for item in walk(body)):
            values = self._table.values(body) if list(leaves(body)) else None
            if values is not None:
                return lambda place: values[place[0]]
        return compile_function(body, leaf)

    def _finder(self, leaf: Navigation, own: str) -> Callable[[Asked], tuple[int, str] | None]:
        """Finds the (row, label) a navigation starts from, the row at hand counted if it carries a right label."""
        labels, offset, first = leaf.labels, leaf.offset, leaf.first
        included = labels is None or own in labels
        if offset >= _KEPT_ROWS:

            def walk_path(asked: Asked) -> tuple[int, str] | None:
                pairs = [(row, label) for label, row in asked[1].pairs() if labels is None or label in labels]
                if included:
                    pairs.append((asked[0], own))
                if offset >= len(pairs):
                    return None
                return pairs[offset] if first else pairs[-1 - offset]

            return walk_path
        number = self._track(
            Navigation(_ANY_COLUMN, labels, first, offset, False, 0, _ANY_COLUMN.type),
            _rows_tracker(labels, first, offset),
        )

        def find(asked: Asked) -> tuple[int, str] | None:
            kept = asked[2][number]
            if first:
                if offset < len(kept):
                    return kept[offset]  # type: ignore[no-any-return]
                return (asked[0], own) if included and offset == len(kept) else None
            if included:
                if offset == 0:
                    return (asked[0], own)
                return kept[-offset] if offset <= len(kept) else None
            return kept[-1 - offset] if offset < len(kept) else None

        return find

    def _track(self, key: Bound, tracker: _Tracker) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._trackers)
            self._trackers.append(tracker)
        return number

    def _aggregate(self, leaf: Aggregate, own: str) -> Evaluator:
        labels = leaf.labels
        included = labels is None or own in labels
        steps = stepwise(leaf.function, len(leaf.arguments))
        arguments = [self.row_function(argument) for argument in leaf.arguments]
        if steps is None:
            evaluate = AGGREGATES[leaf.function].evaluate

            def whole(asked: Asked) -> Any:
                places = [(row, label) for label, row in asked[1].pairs() if labels is None or label in labels]
                if included:
                    places.append((asked[0], own))
                return evaluate([tuple([argument(place) for argument in arguments]) for place in places])

            return whole
        fold, finish = steps.step, steps.finish
        value = arguments[0] if arguments else lambda _: True

        def update(state: Any, row: int, label: str) -> Any:
            item = value((row, label))
            return state if item is None else fold(state, item)

        number = self._track(leaf, _Tracker(labels, steps.initial, update))
        if not included:
            return lambda asked: finish(asked[2][number])
        return lambda asked: finish(update(asked[2][number], asked[0], own))


def _rows_tracker(labels: frozenset[str] | None, first: bool, offset: int) -> _Tracker:
    size = offset + 1

    def keep_first(kept: tuple[tuple[int, str], ...], row: int, label: str) -> tuple[tuple[int, str], ...]:
        return kept if len(kept) == size else (*kept, (row, label))

    def keep_last(kept: tuple[tuple[int, str], ...], row: int, label: str) -> tuple[tuple[int, str], ...]:
        return (*kept[-offset:], (row, label)) if offset else ((row, label),)

    return _Tracker(labels, (), keep_first if first else keep_last)


def _label_at(place: int, own: str, asked: Asked) -> str | None:
    """The label of a row near the match being tried; rows outside of it and rows to come have none."""
    row, path, _ = asked
    if place == row:
        return own
    node: Path | None = path
    for _ in range(row - 1 - place):
        if node is None or node.parent is None:
            return None
        node = node.parent
    if place > row or node is None or node.parent is None:
        return None
    return node.label
