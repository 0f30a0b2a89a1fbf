"""What a MATCH_RECOGNIZE clause says, as frozen values, before names are resolved.

Expressions are few kinds of node on purpose: a literal, a dotted name, a call. Operators are calls too (`a + b` is a
call of `+`), so that everything after the parser treats `a || b` and `concat(a, b)` alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from typing import Literal as OneOf

if TYPE_CHECKING:
    import datetime as dt
    from decimal import Decimal

    from headrace.cep.sql.lexer import Position
    from headrace.cep.sql.pattern import PatternNode

Value: TypeAlias = "bool | int | float | str | Decimal | dt.date | dt.datetime | dt.time | dt.timedelta | Months | None"
Semantics = OneOf["RUNNING", "FINAL"]


@dataclass(frozen=True, slots=True)
class Months:
    """An interval of calendar months, which has no fixed length in microseconds."""

    count: int

    def __neg__(self) -> Months:
        return Months(-self.count)


@dataclass(frozen=True, slots=True)
class Identifier:
    """A name as written. A plain name is compared without regard to case; as a pattern variable it is upper case."""

    text: str
    quoted: bool
    at: Position

    @property
    def label(self) -> str:
        """The pattern variable this names."""
        return self.text if self.quoted else self.text.upper()


@dataclass(frozen=True, slots=True)
class LiteralValue:
    """A constant."""

    value: Value
    at: Position


@dataclass(frozen=True, slots=True)
class Name:
    """A column, or a variable and a column: `price`, `A.price`."""

    parts: tuple[Identifier, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class AllRows:
    """`*` or `A.*` as the argument of a count."""

    label: Identifier | None
    at: Position


@dataclass(frozen=True, slots=True)
class Call:
    """A function or an operator applied to arguments.

    Args:
        name: In lower case; operators by their sign.
        arguments: Its arguments.
        at: Where it begins.
        semantics: RUNNING or FINAL, if written before it.
        quoted: The name was written in quotes, so it is never a row-pattern function.
        refused: A part that calls in other places may have but none here has: DISTINCT, FILTER, ORDER BY, OVER.
    """

    name: str
    arguments: tuple[Expression, ...]
    at: Position
    semantics: Semantics | None = None
    quoted: bool = False
    refused: str = ""


@dataclass(frozen=True, slots=True)
class TypeName:
    """A type as written in a cast."""

    name: str
    parameters: tuple[int | TypeName, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class Cast:
    """CAST or TRY_CAST."""

    operand: Expression
    type: TypeName
    at: Position
    safe: bool = False


@dataclass(frozen=True, slots=True)
class Subquery:
    """A query in brackets: a value, or a list of values after IN, or a question after EXISTS."""

    text: str
    at: Position


Expression: TypeAlias = LiteralValue | Name | AllRows | Call | Cast | Subquery


@dataclass(frozen=True, slots=True)
class OrderItem:
    """One column of ORDER BY."""

    column: Name
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Measure:
    """One output column of MEASURES."""

    expression: Expression
    alias: Identifier


@dataclass(frozen=True, slots=True)
class Definition:
    """The condition a row must fulfil to be mapped to a variable."""

    variable: Identifier
    condition: Expression


@dataclass(frozen=True, slots=True)
class Subset:
    """A union variable: a name for the rows of several variables."""

    variable: Identifier
    members: tuple[Identifier, ...]


RowsPerMatch = OneOf["one", "all show empty", "all omit empty", "all with unmatched"]
SkipTo = OneOf["past last row", "to next row", "to first", "to last"]


@dataclass(frozen=True, slots=True)
class Skip:
    """Where the search goes on after a match."""

    to: SkipTo
    variable: Identifier | None
    at: Position


@dataclass(frozen=True, slots=True)
class MatchRecognize:
    """The whole clause."""

    partition_by: tuple[Name, ...]
    order_by: tuple[OrderItem, ...]
    measures: tuple[Measure, ...]
    rows: RowsPerMatch
    skip: Skip
    pattern: PatternNode
    within: dt.timedelta | None
    subsets: tuple[Subset, ...]
    definitions: tuple[Definition, ...]
    at: Position
    timed_out: Position | None = None
    """Where WITH TIMED OUT MATCHES stands, if it does."""
