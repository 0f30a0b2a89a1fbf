"""The matcher gives the first match in the standard's order of preference, for any pattern and rows.

The reference lists all matches in that order, straight from the standard's definition, and takes the first: slow and
simple on purpose. It shares no code with the matcher, only the pattern's syntax tree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cep.matcher import Matcher, Path, Rows
from headrace.cep.sql.bound import Constant
from headrace.cep.sql.compiler import Condition, compile_pattern
from headrace.cep.sql.datatypes import BOOLEAN
from headrace.cep.sql.lexer import Cursor, Position, tokenize
from headrace.cep.sql.pattern import (
    Alternation,
    Concatenation,
    Empty,
    Exclusion,
    PartitionEnd,
    PartitionStart,
    PatternNode,
    Permutation,
    Quantified,
    Variable,
    parse_pattern,
)

if TYPE_CHECKING:
    from headrace.cep.program import Program

Row = int
Mapped = tuple[tuple[str, Row], ...]
Holds = Callable[[str, Row, Mapped], bool]
"""Whether a row fulfils the condition of a variable, given what was mapped before it."""


def ways(node: PatternNode, at: Row, mapped: Mapped, count: int, holds: Holds) -> Iterator[tuple[Row, Mapped]]:
    """All ways to match a pattern from a row on, the preferred first, as the row after it and the rows mapped."""
    match node:
        case Variable(label):
            if at < count and holds(label, at, mapped):
                yield at + 1, (*mapped, (label, at))
        case Empty():
            yield at, mapped
        case PartitionStart():
            if at == 0:
                yield at, mapped
        case PartitionEnd():
            if at == count:
                yield at, mapped
        case Concatenation(items):
            yield from _sequence(items, at, mapped, count, holds)
        case Alternation(items):
            for item in items:
                yield from ways(item, at, mapped, count, holds)
        case Permutation(items):
            for order in itertools.permutations(items):
                yield from _sequence(order, at, mapped, count, holds)
        case Exclusion(item):
            yield from ways(item, at, mapped, count, holds)
        case Quantified():
            yield from _repeated(node, 0, at, mapped, count, holds)


def _sequence(
    items: tuple[PatternNode, ...], at: Row, mapped: Mapped, count: int, holds: Holds
) -> Iterator[tuple[Row, Mapped]]:
    if not items:
        yield at, mapped
        return
    for after, longer in ways(items[0], at, mapped, count, holds):
        yield from _sequence(items[1:], after, longer, count, holds)


def _repeated(
    node: Quantified, done: int, at: Row, mapped: Mapped, count: int, holds: Holds
) -> Iterator[tuple[Row, Mapped]]:
    enough = done >= node.minimum
    if enough and not node.greedy:
        yield at, mapped
    if node.maximum is None or done < node.maximum:
        for after, longer in ways(node.item, at, mapped, count, holds):
            if after == at and enough and node.maximum is None:
                yield after, longer  # as in Perl, an iteration over no rows ends a loop that has no bound
            else:
                yield from _repeated(node, done + 1, after, longer, count, holds)
    if enough and node.greedy:
        yield at, mapped


def first_match(node: PatternNode, start: Row, count: int, holds: Holds) -> Mapped | None:
    """The rows of the preferred match from a row on."""
    return next((mapped for _, mapped in ways(node, start, (), count, holds)), None)


HERE = Position(1, 1)
LABELS = ("A", "B", "C")


def _leaves() -> st.SearchStrategy[PatternNode]:
    variables = st.sampled_from(LABELS).map(lambda label: Variable(label, HERE))
    return st.one_of(variables, variables, variables, st.sampled_from([Empty(), PartitionStart(), PartitionEnd()]))


def _bounds() -> st.SearchStrategy[tuple[int, int | None]]:
    return st.sampled_from([(0, None), (1, None), (0, 1), (2, None), (1, 2), (0, 2), (2, 2)])


def _combined(inner: st.SearchStrategy[PatternNode]) -> st.SearchStrategy[PatternNode]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(
        several.map(Concatenation),
        several.map(Alternation),
        st.lists(inner, min_size=2, max_size=2).map(lambda items: Permutation(tuple(items), HERE)),
        inner.map(lambda item: Exclusion(item, HERE)),
        st.builds(
            lambda item, bounds, greedy: Quantified(item, *bounds, greedy=greedy, at=HERE),
            inner,
            _bounds(),
            st.booleans(),
        ),
    )


PATTERNS = st.recursive(_leaves(), _combined, max_leaves=5)
MASKS = st.lists(st.tuples(*[st.booleans()] * len(LABELS)), min_size=1, max_size=5)


def _program(pattern: PatternNode, path: bool) -> Program:
    asked = Constant(None, BOOLEAN)  # stands for a condition; what is behind it comes with the rows
    conditions = {label: Condition(label, None if path else asked, asked if path else None) for label in LABELS}
    return compile_pattern(pattern, conditions)


@given(PATTERNS, MASKS)
@settings(max_examples=400, deadline=None)
def test_matcher_is_the_standard_on_masks(pattern: PatternNode, rows: list[tuple[bool, ...]]) -> None:
    masks = {number: np.array([row[number] for row in rows]) for number in range(len(LABELS))}
    by_mask = Matcher(_program(pattern, path=False), Rows(len(rows), masks))
    by_path = Matcher(
        _program(pattern, path=True),
        Rows(len(rows), paths={n: (lambda row, _, mask=mask: bool(mask[row])) for n, mask in masks.items()}),
    )

    def holds(label: str, row: int, mapped: Mapped) -> bool:
        return rows[row][LABELS.index(label)]

    for start in range(len(rows)):
        expected = first_match(pattern, start, len(rows), holds)
        for matcher in (by_mask, by_path):
            found = matcher.match_from(start)
            assert (None if found is None else found.pairs) == expected


@given(PATTERNS, st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(0, 6))
@settings(max_examples=300, deadline=None)
def test_matcher_is_the_standard_on_conditions_that_look_back(
    pattern: PatternNode, values: list[int], limit: int
) -> None:
    """A while the sum of A is small, B after a smaller A, C if B was seen as often as C."""

    def holds(label: str, row: int, mapped: Mapped) -> bool:
        of_a = [values[place] for name, place in mapped if name == "A"]
        if label == "A":
            return sum(of_a) + values[row] <= limit
        if label == "B":
            return bool(of_a) and of_a[-1] <= values[row]
        return sum(name == "B" for name, _ in mapped) >= sum(name == "C" for name, _ in mapped)

    def condition(label: str) -> Callable[[int, Path], bool]:
        return lambda row, path: holds(label, row, path.pairs())

    matcher = Matcher(
        _program(pattern, path=True), Rows(len(values), paths={n: condition(label) for n, label in enumerate(LABELS)})
    )
    for start in range(len(values)):
        found = matcher.match_from(start)
        assert (None if found is None else found.pairs) == first_match(pattern, start, len(values), holds)


@pytest.mark.parametrize(
    ("text", "rows", "expected"),
    [
        ("A B* C", "ABBC", "ABBC"),
        ("A (B | C)* C", "ACBC", "ACBC"),
        ("(A | B)*?", "AB", ""),
        ("(A B?)+?", "AAB", "A"),
        ("(A?){3} B", "AAB", "AAB"),
        ("(A??)* B", "AAB", "AAB"),
        ("(() | A)+ B", "AAB", "AAB"),
        ("((A*)*)*", "AAA", "AAA"),
        ("PERMUTE(A, B, C)", "CAB", "CAB"),
        ("^ A $", "A", "A"),
    ],
)
def test_examples(text: str, rows: str, expected: str) -> None:
    pattern = parse_pattern(Cursor(tokenize(f"({text})")))
    masks = {number: np.array([letter == label for letter in rows]) for number, label in enumerate(LABELS)}
    found = Matcher(_program(pattern, path=False), Rows(len(rows), masks)).match_from(0)
    assert found is not None
    assert "".join(label for label, _ in found.pairs) == expected


@given(
    PATTERNS,
    st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans(), st.integers(0, 2)), min_size=1, max_size=9),
    st.data(),
)
@settings(max_examples=400, deadline=None)
def test_what_is_foreseen_changes_neither_a_match_nor_when_it_is_decided(
    pattern: PatternNode, rows: list[tuple[bool, bool, bool, int]], data: st.DataObject
) -> None:
    """With a time bound ways that cannot be in time are left; the attempts tell the same as if they had been gone."""
    count = len(rows)
    masks = {number: np.array([row[number] for row in rows]) for number in range(len(LABELS))}
    times = np.cumsum([row[3] for row in rows])
    ends = np.unique([data.draw(st.integers(1, count)), count])
    settled = Rows(
        count,
        masks,
        times=times,
        ends=ends,
        complete=data.draw(st.booleans()),
        watermark=data.draw(st.one_of(st.none(), st.integers(0, 12))),
        ahead=data.draw(st.integers(0, 1)),
        span=data.draw(st.sampled_from([None, 2, 4])),
    )
    program = replace(_program(pattern, path=False), within=data.draw(st.integers(1, 6)))
    keep_cut = data.draw(st.booleans())
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.cep.matcher._MANY_SPLITS", 0)
        foreseeing = Matcher(program, settled, keep_cut=keep_cut)
        attempts = [foreseeing.attempt(start) for start in range(count)]
    following = Matcher(program, settled, keep_cut=keep_cut)
    assert attempts == [following.attempt(start) for start in range(count)]
