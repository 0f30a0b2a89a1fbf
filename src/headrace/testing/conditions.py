"""The little language in which conformance cases write the conditions of a pattern.

It is parsed and becomes a Polars expression, or a function where it asks for events matched so far (`ctx`):

    name == 'a' and price > 3.0
    'b' in name
    name.startswith('foo') and sum(ctx('middle').price) + price < 5.0
    all(event.price < price for event in ctx('middle')) and ctx('start')[0].price == price
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cep.conditions import Condition, Matched, RowView

#: The fields of an event.
SCHEMA = {
    "id": pl.Int64,
    "name": pl.String,
    "price": pl.Float64,
    "timestamp": pl.Int64,
    "volume": pl.Float64,
    "is_subevent": pl.Boolean,
}


class UnsupportedCaseError(HeadraceError, ValueError):
    """A case uses something that this runner does not know."""


_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>()\[\]+\-*/%.,!]))"
)


@dataclass(frozen=True)
class Literal:
    """A constant."""

    value: Any


@dataclass(frozen=True)
class Field:
    """A field of the event at hand."""

    name: str


@dataclass(frozen=True)
class Seen:
    """A field of the events that an element has matched so far; of the events themselves if it has no field."""

    element: str
    field: str | None


@dataclass(frozen=True)
class Each:
    """A value for each of the events that an element has matched so far: `event.price for event in ctx('a')`."""

    value: Node
    name: str
    seen: Node


@dataclass(frozen=True)
class Variable:
    """The event that an `Each` is at."""

    name: str


@dataclass(frozen=True)
class Call:
    """A function or operator with its arguments."""

    name: str
    args: tuple[Node, ...]


Node: TypeAlias = Literal | Field | Seen | Each | Variable | Call

_METHODS = {"startswith": "startswith", "endswith": "endswith", "contains": "contains", "startsWith": "startswith"}
_AGGREGATES = ("sum", "min", "max", "avg", "mean", "count", "len", "size", "first", "next", "last", "any", "all")


def parse(text: str) -> Condition:
    """Turn a condition of the little language into one of a pattern.

    >>> events = pl.DataFrame({"name": ["a", "a", "b"], "price": [4.0, 3.0, 4.0]})
    >>> events.filter(parse("name == 'a' and price > 3.0")).rows()
    [('a', 4.0)]
    >>> callable(parse("sum(ctx('middle').price) == 6.0"))
    True
    """
    node = _Parser(text).condition()
    if not _asks_for_seen(node):
        return _expression(node)

    def ask(row: RowView, so_far: Matched) -> bool:
        return bool(_value(node, row, so_far))

    return ask


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(text.rstrip()):
            token = _TOKEN.match(text, place)
            if token is None:
                raise UnsupportedCaseError(f"condition {text!r} cannot be read at position {place}")
            self.tokens.append((token.lastgroup or "", token[token.lastgroup or 0]))
            place = token.end()
        self.at = 0
        self.variables: list[str] = []

    def condition(self) -> Node:
        node = self._or()
        if self.at < len(self.tokens):
            raise self._problem()
        return node

    def _problem(self) -> UnsupportedCaseError:
        rest = " ".join(value for _, value in self.tokens[self.at :]) or "its end"
        return UnsupportedCaseError(f"condition {self.text!r} cannot be read at {rest!r}")

    def _peek(self, *values: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at][0] != "text" and self.tokens[self.at][1] in values

    def _accept(self, *values: str) -> str | None:
        if self._peek(*values):
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def _expect(self, value: str) -> None:
        if self._accept(value) is None:
            raise self._problem()

    def _or(self) -> Node:
        node = self._and()
        while self._accept("or", "||"):
            node = Call("or", (node, self._and()))
        return node

    def _and(self) -> Node:
        node = self._not()
        while self._accept("and", "&&"):
            node = Call("and", (node, self._not()))
        return node

    def _not(self) -> Node:
        if self._accept("not", "!"):
            return Call("not", (self._not(),))
        return self._comparison()

    def _comparison(self) -> Node:
        node = self._sum()
        while True:
            if sign := self._accept("==", "!=", "<=", ">=", "<", ">"):
                node = Call(sign, (node, self._sum()))
            elif self._accept("in"):
                node = Call("contains", (self._sum(), node))
            else:
                return node

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._accept("+", "-"):
            node = Call(sign, (node, self._product()))
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._accept("*", "/", "%"):
            node = Call(sign, (node, self._unary()))
        return node

    def _unary(self) -> Node:
        if self._accept("-"):
            return Call("neg", (self._unary(),))
        return self._postfix()

    def _postfix(self) -> Node:
        node = self._atom()
        while sign := self._accept(".", "["):
            if sign == "[":
                node = Call("item", (node, self._sum()))
                self._expect("]")
                continue
            name = self._word()
            if name in _METHODS and self._accept("("):
                node = Call(_METHODS[name], (node, self._or()))
                self._expect(")")
            elif name in _AGGREGATES and self._accept("("):
                node = Call(name, (node,))
                self._expect(")")
            elif isinstance(node, Seen) and node.field is None:
                node = Seen(node.element, name)
            elif isinstance(node, (Variable, Call)) and name in SCHEMA:
                node = Call("field", (node, Literal(name)))
            else:
                raise self._problem()
        return node

    def _word(self) -> str:
        if self.at < len(self.tokens) and self.tokens[self.at][0] == "word":
            self.at += 1
            return self.tokens[self.at - 1][1]
        raise self._problem()

    def _atom(self) -> Node:
        if self._accept("("):
            node = self._or()
            if self._peek(","):
                return self._several(node, ")")
            self._expect(")")
            return node
        if self._accept("["):
            return self._several(self._or(), "]")
        if self.at >= len(self.tokens):
            raise self._problem()
        kind, value = self.tokens[self.at]
        if kind == "sign":
            raise self._problem()
        self.at += 1
        if kind == "number":
            return Literal(float(value) if "." in value else int(value))
        if kind == "text":
            return Literal(re.sub(r"\\(.)", r"\1", value[1:-1]))
        if value.lower() in ("true", "false"):
            return Literal(value.lower() == "true")
        if self._accept("("):
            return self._call(value)
        if value in self.variables:
            return Variable(value)
        if value in SCHEMA:
            return Field(value)
        self.at -= 1
        raise self._problem()

    def _several(self, first: Node, end: str) -> Node:
        values = [first]
        while self._accept(","):
            if self._peek(end):
                break
            values.append(self._or())
        self._expect(end)
        if not all(isinstance(value, Literal) for value in values):
            raise self._problem()
        return Literal([value.value for value in values if isinstance(value, Literal)])

    def _each(self) -> Node:
        """An argument, or a value for each of some events; its variable is known only from what follows it."""
        begin = self.at
        depth = 0
        for place in range(begin, len(self.tokens)):
            kind, value = self.tokens[place]
            depth += (value in ("(", "[")) - (value in (")", "]")) if kind == "sign" else 0
            if depth < 0:
                break
            if depth == 0 and kind == "word" and value == "for" and place + 1 < len(self.tokens):
                self.variables.append(self.tokens[place + 1][1])
                value_of = self._or()
                self._expect("for")
                name = self._word()
                self._expect("in")
                self.variables.pop()
                return Each(value_of, name, self._sum())
        return self._or()

    def _call(self, name: str) -> Node:
        argument = self._each()
        self._expect(")")
        if name == "ctx" and isinstance(argument, Literal):
            return Seen(str(argument.value), None)
        if name in _AGGREGATES or name == "abs":
            return Call(name, (argument,))
        self.at -= 1
        raise self._problem()


def _asks_for_seen(node: Node) -> bool:
    return isinstance(node, (Seen, Each)) or (isinstance(node, Call) and any(map(_asks_for_seen, node.args)))


_SIGNS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}


def _expression(node: Node) -> pl.Expr:
    """A condition on the event alone as an expression."""
    match node:
        case Literal(value):
            return pl.lit(value)
        case Field(name):
            return pl.col(name)
        case Call("and", (one, two)):
            return _expression(one) & _expression(two)
        case Call("or", (one, two)):
            return _expression(one) | _expression(two)
        case Call("not", (one,)):
            return ~_expression(one)
        case Call("neg", (one,)):
            return -_expression(one)
        case Call("abs", (one,)):
            return _expression(one).abs()
        case Call("startswith", (one, two)):
            return _expression(one).str.starts_with(_expression(two))
        case Call("endswith", (one, two)):
            return _expression(one).str.ends_with(_expression(two))
        case Call("contains", (Literal(list() as values), two)):
            return _expression(two).is_in(values)
        case Call("contains", (one, two)):
            return _expression(one).str.contains(_expression(two), literal=True)
        case Call(sign, (one, two)) if sign in _SIGNS:
            applied: pl.Expr = _SIGNS[sign](_expression(one), _expression(two))
            return applied
        case _:
            raise UnsupportedCaseError(f"{node} has no meaning for a single event")


def _value(node: Node, row: RowView, so_far: Matched, bound: dict[str, Any] | None = None) -> Any:
    """The value of a condition for an event and the events matched before it."""
    match node:
        case Literal(value):
            return value
        case Field(name):
            return row[name]
        case Variable(name):
            return (bound or {})[name]
        case Each(value_of, name, seen):
            events = _value(seen, row, so_far, bound)
            return [_value(value_of, row, so_far, {**(bound or {}), name: event}) for event in events]
        case Seen(element, None):
            return so_far.rows(element)
        case Seen(element, field) if field is not None:
            return so_far.values(element, field)
        case Call("and", (one, two)):
            return _value(one, row, so_far, bound) and _value(two, row, so_far, bound)
        case Call("or", (one, two)):
            return _value(one, row, so_far, bound) or _value(two, row, so_far, bound)
        case Call(name, args):
            values = [_value(arg, row, so_far, bound) for arg in args]
            return None if any(value is None for value in values) else _apply(name, values)
    raise UnsupportedCaseError(f"{node} has no value")


def _apply(name: str, values: list[Any]) -> Any:
    if name in _SIGNS:
        return _SIGNS[name](values[0], values[1])
    if name in ("startswith", "endswith"):
        return getattr(values[0], name)(values[1])
    if name == "contains":
        return values[1] in values[0]
    if name == "field":
        return values[0][values[1]]
    if name == "item":
        return values[0][values[1]] if -len(values[0]) <= values[1] < len(values[0]) else None
    one = values[0]
    several = one if isinstance(one, list) else [one]
    simple: dict[str, Callable[[], Any]] = {
        "not": lambda: not one,
        "neg": lambda: -one,
        "abs": lambda: abs(one),
        "sum": lambda: sum(several),
        "min": lambda: min(several, default=None),
        "max": lambda: max(several, default=None),
        "avg": lambda: sum(several) / len(several) if several else None,
        "mean": lambda: sum(several) / len(several) if several else None,
        "count": lambda: len(several),
        "len": lambda: len(one),
        "size": lambda: len(several),
        "next": lambda: several[0] if several else None,
        "first": lambda: several[0] if several else None,
        "last": lambda: several[-1] if several else None,
        "any": lambda: any(several),
        "all": lambda: all(several),
    }
    return simple[name]()
