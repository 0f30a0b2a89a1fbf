"""From the row pattern and the DEFINE conditions to a program for the matcher.

A condition that needs only the row at hand and its physical neighbours becomes a mask over all rows. In DEFINE of B
that is more than it seems: `B.price`, `price`, `LAST(B.price)` and `PREV(B.price)` all mean the row at hand or its
neighbour, since that row is the last one mapped to B. What looks back into the match is asked while matching. A
condition joined by AND is parted, and its mask is asked first.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cep.program import (
    MAX_INSTRUCTIONS,
    Accept,
    AnchorEnd,
    AnchorStart,
    ConditionKind,
    Consume,
    ExcludeClose,
    ExcludeOpen,
    Instruction,
    Jump,
    Program,
    Split,
)
from headrace.cep.sql.bound import Bound, Constant, MatchNumber, Navigation, Operation, RowLabel, leaves, walk
from headrace.cep.sql.datatypes import BOOLEAN, STRING
from headrace.cep.sql.expressions import Evaluator, compile_function
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
)
from headrace.errors import HeadraceError, PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Condition:
    """The condition of one variable, in two parts that must both hold; None where there is nothing to ask."""

    label: str
    mask: Bound | None
    path: Bound | None


def split_condition(label: str, condition: Bound, *, masks: bool = True) -> Condition:
    """Parts a condition into what is known from the rows alone and what depends on the match.

    Args:
        label: The variable it defines.
        condition: The bound condition.
        masks: False leaves all to the match (slower, the same result; the tests compare both).
    """
    operands = condition.operands if isinstance(condition, Operation) and condition.name == "and" else (condition,)
    rows: list[Bound] = []
    rest: list[Bound] = []
    for operand in operands:
        if masks and all(_is_at_row(leaf, label) for leaf in leaves(operand)):
            rows.append(_with_label(operand, label))
        else:
            rest.append(operand)
    mask = _conjunction(rows, condition)
    if isinstance(mask, Constant) and mask.value is True:
        mask = None
    return Condition(label, mask, _conjunction(rest, condition))


def never_holds(condition: Condition) -> bool:
    """Whether a part of a condition is a constant that is not true."""
    parts = [part for part in (condition.mask, condition.path) if part is not None]
    return any(not any(True for _ in leaves(part)) and _constant(part) is not True for part in parts)


def _constant(node: Bound) -> object:
    try:
        return compile_function(node, _no_leaf)(None)
    except HeadraceError:
        return True  # it cannot be computed, which whoever asks it will be told


def _no_leaf(leaf: Bound) -> Evaluator:
    raise TypeError(f"{leaf} is no constant")


def _conjunction(parts: list[Bound], whole: Bound) -> Bound | None:
    if not parts:
        return None
    if len(parts) == 1 or not isinstance(whole, Operation):
        return parts[0]
    return Operation("and", tuple(parts), BOOLEAN, whole.at)


def means_row_at_hand(node: Navigation, label: str) -> bool:
    """Whether, in the DEFINE condition of a variable, a navigation starts at the row that is being asked."""
    return not node.first and node.offset == 0 and (node.labels is None or label in node.labels)


def _is_at_row(leaf: Bound, label: str) -> bool:
    if not isinstance(leaf, Navigation) or not means_row_at_hand(leaf, label):
        return False
    inside = list(walk(leaf.body))
    if any(isinstance(item, MatchNumber) for item in inside):
        return False
    # Another row's label is known only while matching.
    return leaf.shift == 0 or not any(isinstance(item, RowLabel) for item in inside)


def _with_label(node: Bound, label: str) -> Bound:
    """Puts the variable's own name for CLASSIFIER()."""
    match node:
        case RowLabel():
            return Constant(label, STRING)
        case Operation():
            return Operation(node.name, tuple(_with_label(item, label) for item in node.operands), node.type, node.at)
        case Navigation():
            body = _with_label(node.body, label)
            if isinstance(body, Constant):
                return body
            return Navigation(body, node.labels, node.first, node.offset, node.final, node.shift, node.type)
        case _:
            return node


def compile_pattern(pattern: PatternNode, conditions: Mapping[str, Condition], *, within: int | None = None) -> Program:
    """Compiles a pattern; conditions are numbered in the order of the mapping.

    >>> from headrace.cep.sql.lexer import Cursor, tokenize
    >>> from headrace.cep.sql.pattern import parse_pattern
    >>> compile_pattern(parse_pattern(Cursor(tokenize("(A | B)"))), {}).instructions
    (Split(preferred=1, other=3), Consume(label='A', condition=None), Jump(target=4),
     Consume(label='B', condition=None), Accept())
    """
    if _size(pattern) > MAX_INSTRUCTIONS:
        raise PlanError(
            f"the pattern unfolds to more than {MAX_INSTRUCTIONS:,} steps",
            hint="Use smaller bounds in quantifiers, and fewer variables in PERMUTE.",
        )
    asked = [condition for condition in conditions.values() if condition.mask is not None or condition.path is not None]
    numbers = {condition.label: number for number, condition in enumerate(asked)}
    kinds: list[ConditionKind] = ["mask" if condition.path is None else "path" for condition in asked]
    code: list[Instruction] = []
    _emit(pattern, code, numbers)
    code.append(Accept())
    return Program(tuple(code), tuple(kinds), within=within)


def _size(node: PatternNode) -> int:
    """How many instructions a node unfolds to, at least; found without unfolding it."""
    match node:
        case Variable() | PartitionStart() | PartitionEnd():
            return 1
        case Empty():
            return 0
        case Concatenation(items):
            return sum(_size(item) for item in items)
        case Alternation(items):
            return sum(_size(item) + 2 for item in items)
        case Exclusion(item):
            return _size(item) + 2
        case Permutation(items):
            return (
                math.factorial(len(items)) * sum(_size(item) for item in items)
                if len(items) < 20
                else MAX_INSTRUCTIONS + 1
            )
        case Quantified():
            copies = node.minimum + 1 if node.maximum is None else node.maximum
            return copies * (_size(node.item) + 1)


def _emit(node: PatternNode, code: list[Instruction], numbers: Mapping[str, int]) -> None:
    match node:
        case Variable(label):
            code.append(Consume(label, numbers.get(label)))
        case Empty():
            pass
        case PartitionStart():
            code.append(AnchorStart())
        case PartitionEnd():
            code.append(AnchorEnd())
        case Concatenation(items):
            for item in items:
                _emit(item, code, numbers)
        case Alternation(items):
            _alternatives(items, code, numbers)
        case Permutation(items):
            orders = tuple(Concatenation(order) for order in itertools.permutations(items))
            _alternatives(orders, code, numbers)
        case Exclusion(item):
            code.append(ExcludeOpen())
            _emit(item, code, numbers)
            code.append(ExcludeClose())
        case Quantified():
            _repeat(node, code, numbers)


def _alternatives(items: tuple[PatternNode, ...], code: list[Instruction], numbers: Mapping[str, int]) -> None:
    jumps: list[int] = []
    for item in items[:-1]:
        split = len(code)
        code.append(Jump(0))
        _emit(item, code, numbers)
        jumps.append(len(code))
        code.append(Jump(0))
        code[split] = Split(split + 1, len(code))
    _emit(items[-1], code, numbers)
    for jump in jumps:
        code[jump] = Jump(len(code))


def _repeat(node: Quantified, code: list[Instruction], numbers: Mapping[str, int]) -> None:
    if node.maximum is None:
        _loop(node, code, numbers)
        return
    for _ in range(node.minimum):
        _emit(node.item, code, numbers)
    splits: list[int] = []
    for _ in range(node.maximum - node.minimum):
        splits.append(len(code))
        code.append(Jump(0))
        _emit(node.item, code, numbers)
    for split in splits:
        code[split] = _choice(node.greedy, split + 1, len(code))


def _loop(node: Quantified, code: list[Instruction], numbers: Mapping[str, int]) -> None:
    """A repetition without upper bound.

    The choice stands behind the item, as in Perl: an iteration over no rows is taken, and ends the loop, since the
    matcher follows no instruction twice at the same row.
    """
    entry = len(code)
    if node.minimum == 0:
        code.append(Jump(0))
    for _ in range(max(node.minimum, 1)):
        body = len(code)
        _emit(node.item, code, numbers)
    code.append(_choice(node.greedy, body, len(code) + 1))
    if node.minimum == 0:
        code[entry] = _choice(node.greedy, entry + 1, len(code))


def _choice(greedy: bool, more: int, enough: int) -> Split:
    return Split(more, enough) if greedy else Split(enough, more)
