"""The row pattern: a regular expression over variables instead of characters.

`PATTERN (A B+ (C | D)?)` reads rows in order. A variable consumes one row that fulfils its DEFINE condition (a
variable that is not defined fits every row); everything else combines. The order in which alternatives are written is
the order in which they are preferred, a greedy quantifier prefers more rows, a reluctant one (`+?`) fewer: the first
whole match in that order is the match.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from headrace.cep.sql.lexer import Cursor, Position, Token, problem

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 100
"""Brackets nested more deeply than this are refused."""

MAX_BOUND = 2_147_483_647


@dataclass(frozen=True, slots=True)
class Variable:
    """One row that is mapped to this variable."""

    label: str
    at: Position


@dataclass(frozen=True, slots=True)
class Empty:
    """`()`: matches no row."""


@dataclass(frozen=True, slots=True)
class PartitionStart:
    """`^`: the next row is the first of the partition."""


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """`$`: the row before is the last of the partition."""


@dataclass(frozen=True, slots=True)
class Concatenation:
    """One after the other."""

    items: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of several, the first preferred."""

    items: tuple[PatternNode, ...]


@dataclass(frozen=True, slots=True)
class Permutation:
    """PERMUTE: all of them in any order, orders preferred as a dictionary would sort them."""

    items: tuple[PatternNode, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class Exclusion:
    """`{- ... -}`: matched, but left out of ALL ROWS PER MATCH."""

    item: PatternNode
    at: Position


@dataclass(frozen=True, slots=True)
class Quantified:
    """A repetition."""

    item: PatternNode
    minimum: int
    maximum: int | None
    greedy: bool
    at: Position


PatternNode: TypeAlias = (
    Variable
    | Empty
    | PartitionStart
    | PartitionEnd
    | Concatenation
    | Alternation
    | Permutation
    | Exclusion
    | Quantified
)


def walk(node: PatternNode) -> Iterator[PatternNode]:
    """The node and all below it, in the order they are written."""
    yield node
    if isinstance(node, Concatenation | Alternation | Permutation):
        for item in node.items:
            yield from walk(item)
    elif isinstance(node, Exclusion | Quantified):
        yield from walk(node.item)


def variables(node: PatternNode) -> dict[str, Position]:
    """The variables of a pattern in the order they are written first.

    >>> from headrace.cep.sql.lexer import tokenize
    >>> list(variables(parse_pattern(Cursor(tokenize("(A b+ | A C)")))))
    ['A', 'B', 'C']
    """
    found: dict[str, Position] = {}
    for item in walk(node):
        if isinstance(item, Variable):
            found.setdefault(item.label, item.at)
    return found


def parse_pattern(cursor: Cursor) -> PatternNode:
    """Reads a pattern in brackets."""
    opening = cursor.expect("(", within="PATTERN")
    if cursor.take(")"):
        return Empty()
    node = _alternation(cursor, 0)
    if cursor.take(")") is None:
        if cursor.token.kind == "end":
            raise problem("the bracket of PATTERN is never closed", opening.at)
        raise cursor.unexpected("a variable, a quantifier or ')'", within="PATTERN")
    return node


def _alternation(cursor: Cursor, depth: int) -> PatternNode:
    if depth > MAX_DEPTH:
        raise problem(f"the pattern is nested more than {MAX_DEPTH} deep", cursor.token.at)
    items = [_concatenation(cursor, depth)]
    while cursor.take("|"):
        items.append(_concatenation(cursor, depth))
    return items[0] if len(items) == 1 else Alternation(tuple(items))


def _concatenation(cursor: Cursor, depth: int) -> PatternNode:
    items: list[PatternNode] = []
    while (item := _primary(cursor, depth)) is not None:
        items.append(_quantified(cursor, item))
    if not items:
        raise cursor.unexpected("a variable, '(', '^', '$', '{-' or PERMUTE", within="PATTERN")
    return items[0] if len(items) == 1 else Concatenation(tuple(items))


def _primary(cursor: Cursor, depth: int) -> PatternNode | None:
    token = cursor.token
    if token.is_punctuation("^"):
        cursor.advance()
        return PartitionStart()
    if token.is_punctuation("$"):
        cursor.advance()
        return PartitionEnd()
    if token.is_punctuation("("):
        cursor.advance()
        if cursor.take(")"):
            return Empty()
        node = _alternation(cursor, depth + 1)
        _close(cursor, token)
        return node
    if token.is_punctuation("{") and cursor.peek(1).is_punctuation("-"):
        cursor.index += 2
        node = _alternation(cursor, depth + 1)
        if not (cursor.token.is_punctuation("-") and cursor.peek(1).is_punctuation("}")):
            raise cursor.unexpected("'-}'", within="PATTERN")
        cursor.index += 2
        return Exclusion(node, token.at)
    if token.is_word("PERMUTE") and cursor.peek(1).is_punctuation("("):
        cursor.index += 2
        items = [_alternation(cursor, depth + 1)]
        while cursor.take(","):
            items.append(_alternation(cursor, depth + 1))
        _close(cursor, token)
        return items[0] if len(items) == 1 else Permutation(tuple(items), token.at)
    if token.kind in ("word", "quoted"):
        cursor.advance()
        return Variable(token.text, token.at)
    return None


def _close(cursor: Cursor, opening: Token) -> None:
    if cursor.take(")") is None:
        if cursor.token.kind == "end":
            raise problem("this bracket is never closed", opening.at)
        raise cursor.unexpected("')'", within="PATTERN")


def _quantified(cursor: Cursor, item: PatternNode) -> PatternNode:
    token = cursor.token
    if token.is_punctuation("*"):
        bounds: tuple[int, int | None] = (0, None)
    elif token.is_punctuation("+"):
        bounds = (1, None)
    elif token.is_punctuation("?"):
        bounds = (0, 1)
    elif token.is_punctuation("{") and not cursor.peek(1).is_punctuation("-"):
        bounds = _bounds(cursor)
    else:
        return item
    cursor.advance()
    greedy = cursor.take("?") is None
    return Quantified(item, *bounds, greedy=greedy, at=token.at)


def _bounds(cursor: Cursor) -> tuple[int, int | None]:
    """Reads `{n}`, `{n,}`, `{n,m}` or `{,m}`, and leaves the cursor at the closing brace."""
    opening = cursor.advance()
    low = _number(cursor)
    high: int | None
    if cursor.take(","):
        high = _number(cursor)
    else:
        if low is None:
            raise cursor.unexpected("a number", within="the quantifier")
        high = low
    if not cursor.token.is_punctuation("}"):
        raise cursor.unexpected("'}'", within="the quantifier")
    low = low or 0
    if low > MAX_BOUND:
        raise problem(f"the lower bound {low} of the quantifier is more than {MAX_BOUND}", opening.at)
    if high is not None:
        if high > MAX_BOUND:
            raise problem(f"the upper bound {high} of the quantifier is more than {MAX_BOUND}", opening.at)
        if high < 1:
            raise problem("the upper bound of a quantifier must be at least 1", opening.at)
        if low > high:
            raise problem(f"the lower bound {low} of the quantifier is above its upper bound {high}", opening.at)
    return low, high


def _number(cursor: Cursor) -> int | None:
    token = cursor.token
    if token.kind != "number":
        return None
    if not token.value.isdigit():
        raise cursor.unexpected("a whole number", within="the quantifier")
    cursor.advance()
    return int(token.value)
