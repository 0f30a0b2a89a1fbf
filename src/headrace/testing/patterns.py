"""Runs conformance cases of the pattern builder.

A case is a JSON object: a `pattern` as a list of elements, `events` in order, a skip strategy, and the matches that
another engine's test suite expects. Conditions are written in a little language, which is parsed here and becomes a Polars
expression, or a function where it asks for events matched so far:

    name == 'a' and price > 3.0
    'b' in name
    name.startswith('foo') and sum(ctx('middle').price) + price < 5.0
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from headrace.cep.compiler import compile_pattern
from headrace.cep.pattern import Pattern
from headrace.cep.threads import Found, KeyRun, Threads
from headrace.errors import HeadraceError, JobError, PlanError
from headrace.testing.case import CaseResult
from headrace.time.duration import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cep.conditions import Condition, Matched, RowView

_SKIPS = {
    "noSkip": "none",
    "skipToNext": "to_next",
    "skipPastLastEvent": "past_last",
    "skipToFirst": "to_first",
    "skipToLast": "to_last",
}
#: Errors of the engine whose cases these are, and what stands for them here.
_ERRORS: dict[str, type[HeadraceError]] = {
    "MalformedPatternException": PlanError,
    "UnsupportedOperationException": PlanError,
    "FlinkRuntimeException": JobError,
}
_SCHEMA = {
    "id": pl.Int64,
    "name": pl.String,
    "price": pl.Float64,
    "timestamp": pl.Int64,
    "volume": pl.Float64,
    "is_subevent": pl.Boolean,
}


class UnsupportedCaseError(HeadraceError, ValueError):
    """A case uses something that this runner does not know."""


def run_case(case: dict[str, Any], engine: str = "inprocess") -> CaseResult:
    """Run one case and compare.

    Args:
        case: The JSON object.
        engine: Which engine to run it on; the matcher itself is the only one that a case needs.
    """
    error = case.get("expected_error")
    wanted: object = error or _expected(case)
    if engine != "inprocess":
        return CaseResult(case["id"], "unsupported", wanted, None, f"pattern cases run in process, not on {engine}")
    try:
        found = find(case)
    except UnsupportedCaseError as problem:
        return CaseResult(case["id"], "unsupported", wanted, None, str(problem))
    except HeadraceError as problem:
        right = bool(error) and isinstance(problem, _ERRORS.get(str(error), HeadraceError))
        return CaseResult(case["id"], "pass" if right else "fail", wanted, repr(problem), "" if right else str(problem))
    got = sorted(found if case.get("expected_idx") is not None else _as_events(case, found), key=repr)
    if error:
        return CaseResult(case["id"], "fail", wanted, got, "an error was expected")
    if wanted == got:
        return CaseResult(case["id"], "pass", wanted, got, "")
    return CaseResult(case["id"], "fail", wanted, got, "other matches came out")


def _expected(case: dict[str, Any]) -> list[Any]:
    """The expected matches in a fixed order; as positions if the case states them, else as the events themselves."""
    if case.get("expected_idx") is not None:
        return sorted((sorted(match) for match in case["expected_idx"]), key=repr)
    if case.get("expected_values") is not None:
        return sorted((sorted(match, key=repr) for match in case["expected_values"]), key=repr)
    return []


def _as_events(case: dict[str, Any], found: list[list[int]]) -> list[Any]:
    return [sorted((case["events"][row][:3] for row in match), key=repr) for match in found]


def find(case: dict[str, Any]) -> list[list[int]]:
    """The matches of a case, each as the positions of its events."""
    compiled = compile_pattern(pattern_of(case))
    frame = _frame(case["events"])
    times = np.array([(time or 0) * MILLISECOND for time in frame["timestamp"]], dtype=np.int64)
    # Event order is the order of the case, also where its timestamps go back: that is what its test suite feeds.
    threads = Threads(compiled.program, compiled.rows(frame, times), skip=compiled.skip)
    run, found = KeyRun(), Found()
    threads.feed(run, 0, frame.height, found)
    return [list(match.path.rows()) for match in found.matches]


def _frame(events: list[list[Any]]) -> pl.DataFrame:
    rows = [
        (
            *event[:4],
            event[4] if len(event) > 4 else None,
            len(event) > 4,
        )  # the volume makes it an event of the subtype
        for event in events
    ]
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")


def pattern_of(case: dict[str, Any]) -> Pattern:
    """Build the pattern of a case."""
    pattern = _chain(case["pattern"])
    skip = case.get("skip_strategy") or {"type": "noSkip"}
    if skip["type"] not in _SKIPS:
        raise UnsupportedCaseError(f"skip strategy {skip['type']!r} is not known")
    missing = "error" if skip.get("throwExceptionOnMiss") else "ignore"
    pattern = pattern.skip(_SKIPS[skip["type"]], skip.get("pattern"), on_missing=missing)  # type: ignore[arg-type]
    if case.get("within_ms"):
        kind = case.get("within_type") or "FIRST_AND_LAST"
        if kind not in ("FIRST_AND_LAST", "PREVIOUS_AND_CURRENT"):
            raise UnsupportedCaseError(f"within type {kind!r} is not known")
        time = case["within_ms"] * MILLISECOND
        pattern = pattern.within(time, of="match" if kind == "FIRST_AND_LAST" else "step")
    return pattern


def _chain(elements: list[dict[str, Any]]) -> Pattern:
    pattern: Pattern | None = None
    for element in elements:
        pattern = _element(pattern, element)
    if pattern is None:
        raise PlanError("the pattern is empty")
    return pattern


def _element(pattern: Pattern | None, element: dict[str, Any]) -> Pattern:
    contiguity = element["contiguity"]
    content = _chain(element["group"]) if element.get("group") else element["name"]
    if pattern is None:
        pattern = Pattern.begin(content)
    else:
        methods = {
            "next": pattern.next,
            "followedBy": pattern.followed_by,
            "followedByAny": pattern.followed_by_any,
        }
        negations = {"notNext": pattern.not_next, "notFollowedBy": pattern.not_followed_by}
        if contiguity in methods:
            pattern = methods[contiguity](content)
        elif contiguity in negations:
            pattern = negations[contiguity](content)
        else:
            raise UnsupportedCaseError(f"contiguity {contiguity!r} is not known")
    if element.get("condition") is not None and not element.get("group"):
        pattern = pattern.where(parse(element["condition"]))
    pattern = _quantify(pattern, element)
    if element.get("optional") and not pattern.elements[-1].optional:
        pattern = pattern.optional()
    if element.get("consecutive"):
        pattern = pattern.consecutive()
    if element.get("allowCombinations"):
        pattern = pattern.allow_combinations()
    if element.get("greedy"):
        pattern = pattern.greedy()
    if element.get("until"):
        pattern = pattern.until(parse(element["until"]))
    return pattern


def _quantify(pattern: Pattern, element: dict[str, Any]) -> Pattern:
    quantifier = str(element.get("quantifier") or "one").replace(" ", "")
    bound = element.get("quantifier_within_ms")
    within = None if bound is None else bound * MILLISECOND
    if quantifier == "one":
        return pattern
    if quantifier == "oneOrMore":
        return pattern.one_or_more(within=within)
    if found := re.fullmatch(r"times\((\d+)\)", quantifier):
        return pattern.times(int(found[1]), within=within)
    if found := re.fullmatch(r"times\((\d+),(\d+)\)", quantifier):
        return pattern.times(int(found[1]), int(found[2]), within=within)
    if found := re.fullmatch(r"timesOrMore\((\d+)\)", quantifier):
        return pattern.times_or_more(int(found[1]), within=within)
    raise UnsupportedCaseError(f"quantifier {quantifier!r} is not known")


# The little language of conditions

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<sign>==|!=|<=|>=|&&|\|\||[<>()+\-*/%.,!]))"
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
class Call:
    """A function or operator with its arguments."""

    name: str
    args: tuple[Node, ...]


Node: TypeAlias = Literal | Field | Seen | Call

_METHODS = {"startswith": "startswith", "endswith": "endswith", "contains": "contains", "startsWith": "startswith"}
_AGGREGATES = ("sum", "min", "max", "avg", "mean", "count", "len", "first", "last", "any", "all")


def parse(text: str) -> Condition:
    """Turn a condition of the little language into one of a pattern.

    >>> str(parse("name == 'a' and price > 3.0"))
    '[([(col("name")) == ("a")]) & ([(col("price")) > (dyn float: 3.0)])]'
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
        while self._accept("."):
            name = self._word()
            if isinstance(node, Seen) and node.field is None:
                node = Seen(node.element, name)
            elif name in _METHODS and self._accept("("):
                node = Call(_METHODS[name], (node, self._or()))
                self._expect(")")
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
            self._expect(")")
            return node
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
        if value in _SCHEMA:
            return Field(value)
        self.at -= 1
        raise self._problem()

    def _call(self, name: str) -> Node:
        argument = self._or()
        self._expect(")")
        if name == "ctx" and isinstance(argument, Literal):
            return Seen(str(argument.value), None)
        if name in _AGGREGATES or name == "abs":
            return Call(name, (argument,))
        self.at -= 1
        raise self._problem()


def _asks_for_seen(node: Node) -> bool:
    return isinstance(node, Seen) or (isinstance(node, Call) and any(map(_asks_for_seen, node.args)))


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
        case Call("contains", (one, two)):
            return _expression(one).str.contains(_expression(two), literal=True)
        case Call(sign, (one, two)) if sign in _SIGNS:
            applied: pl.Expr = _SIGNS[sign](_expression(one), _expression(two))
            return applied
        case _:
            raise UnsupportedCaseError(f"{node} has no meaning for a single event")


def _value(node: Node, row: RowView, so_far: Matched) -> Any:
    """The value of a condition for an event and the events matched before it."""
    match node:
        case Literal(value):
            return value
        case Field(name):
            return row[name]
        case Seen(element, None):
            return so_far.rows(element)
        case Seen(element, field) if field is not None:
            return so_far.values(element, field)
        case Call("and", (one, two)):
            return _value(one, row, so_far) and _value(two, row, so_far)
        case Call("or", (one, two)):
            return _value(one, row, so_far) or _value(two, row, so_far)
        case Call(name, args):
            values = [_value(arg, row, so_far) for arg in args]
            return None if any(value is None for value in values) else _apply(name, values)
    raise UnsupportedCaseError(f"{node} has no value")


def _apply(name: str, values: list[Any]) -> Any:
    if name in _SIGNS:
        return _SIGNS[name](values[0], values[1])
    if name in ("startswith", "endswith"):
        return getattr(values[0], name)(values[1])
    if name == "contains":
        return values[1] in values[0]
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
        "first": lambda: several[0] if several else None,
        "last": lambda: several[-1] if several else None,
        "any": lambda: any(several),
        "all": lambda: all(several),
    }
    return simple[name]()
