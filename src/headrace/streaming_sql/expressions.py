"""Binding scalar expressions: from sqlglot's tree to Polars expressions with types.

Truth has three values: a comparison with null is null, and a condition takes only what is true. An operand of CASE,
IF and COALESCE is computed for the rows that need it, so that a CAST in it does not fail for the others.
"""

from __future__ import annotations

import math
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.streaming_sql import casts, operators
from headrace.streaming_sql.dialect import written
from headrace.streaming_sql.errors import QueryError, error_at, similar
from headrace.streaming_sql.function_table import FUNCTIONS
from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.intervals import interval_of
from headrace.streaming_sql.values import (
    BOOLEAN,
    MAX_PRECISION,
    NULL,
    STRING,
    Bound,
    coerced,
    common,
    constant,
    every,
    instance,
    some,
    spoken,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.streaming_sql.functions import ScalarFunction

#: Words that stand for a unit of time as the first argument of these functions.
UNIT_FUNCTIONS: Final = frozenset({"TIMESTAMPDIFF", "TIMESTAMPADD"})
_MAX_TERMS: Final = 5_000


class Binder:
    """Binds expressions over some columns.

    Args:
        text: The query, for messages.
        resolve: Gives what a column name stands for.
        functions: Functions beside the built-in ones, by upper-case name.
        replaced: Whole expressions that stand for something already computed, such as aggregates.
        refused: What an expression cannot hold here, by the name of its class, and what to say.
    """

    def __init__(
        self,
        text: str,
        resolve: Callable[[exp.Column], Bound],
        *,
        functions: Mapping[str, ScalarFunction] | None = None,
        replaced: Callable[[exp.Expr], Bound | None] | None = None,
    ) -> None:
        self._text = text
        self._resolve = resolve
        self._functions = {**FUNCTIONS, **(functions or {})}
        self._replaced = replaced
        self._guards: list[pl.Expr] = []

    def condition(self, node: exp.Expr) -> pl.Expr:
        """Bind what must be true or false."""
        bound = self.bind(node)
        if not isinstance(bound.dtype, pl.Boolean | pl.Null):
            raise self._error(
                node,
                f"a condition is needed here, but this is {spoken(bound.dtype)}",
                hint="Compare it with something, such as x > 0.",
            )
        return bound.expr.cast(BOOLEAN) if isinstance(bound.dtype, pl.Null) else bound.expr

    def bind(self, node: exp.Expr) -> Bound:
        """Bind an expression.

        Raises:
            QueryError: It cannot be computed.
        """
        if self._replaced is not None:
            found = self._replaced(node)
            if found is not None:
                return found
        method: Callable[[Any], Bound] | None = getattr(self, f"_bind_{type(node).__name__.lower()}", None)
        if method is None:
            operator = operators.BINARY.get(type(node).__name__)
            if operator is None:
                raise self._error(node, f"{_spoken_node(node)} is not supported in an expression")
            return self._operation(operator, node)
        return method(node)

    # Names and constants

    def _bind_column(self, node: exp.Column) -> Bound:
        if not node.table and not node.this.quoted and node.name.upper() in ("LOCALTIMESTAMP", "LOCALTIME"):
            return self.call(node.name.upper(), [], node)
        return self._resolve(node)

    def _bind_dot(self, node: exp.Dot) -> Bound:
        if isinstance(node.expression, exp.Anonymous):
            raise self._error(node, "a function with a name in parts", hint="Write the name of the function alone.")
        return self.field(self.bind(node.this), node.expression.name, node)

    def field(self, bound: Bound, name: str, node: exp.Expr) -> Bound:
        """Take a field of a row."""
        if not isinstance(bound.dtype, pl.Struct):
            raise self._error(node, f"{spoken(bound.dtype)} has no fields, so there is no {name!r} in it")
        fields = {each.name: each.dtype for each in bound.dtype.fields}
        found = [each for each in fields if each == name] or [each for each in fields if each.lower() == name.lower()]
        if not found:
            raise self._error(node, f"unknown field {name!r}", hint=similar(name, fields))
        return Bound(bound.expr.struct.field(found[0]), instance(fields[found[0]]))

    def _bind_literal(self, node: exp.Literal) -> Bound:
        if node.is_string:
            return constant(node.this)
        written = str(node.this)
        try:
            if written.isdigit():
                value = int(written)
                if value >= 10**MAX_PRECISION:
                    raise OverflowError
                return constant(value) if value < 2**63 else constant(Decimal(value), pl.Decimal(MAX_PRECISION, 0))
            if "e" in written.lower():
                number = float(written)
                if math.isinf(number):
                    raise OverflowError
                return constant(number)
            decimal = Decimal(written)
            if len(decimal.as_tuple().digits) > MAX_PRECISION:
                raise OverflowError
            return constant(decimal)
        except (ValueError, InvalidOperation, OverflowError) as error:
            shown = written if len(written) < 50 else f"{written[:50]}..."
            raise self._error(
                node,
                f"the number {shown} does not fit into any type",
                hint="DECIMAL has 38 digits; a DOUBLE is written as 1.5e10.",
            ) from error

    def _bind_hexstring(self, node: exp.HexString) -> Bound:
        try:
            return constant(bytes.fromhex(str(node.this)), pl.Binary())
        except ValueError:
            raise self._error(
                node, f"X'{node.this}' are no bytes", hint="Write two digits for each: X'00FF'."
            ) from None

    def _bind_null(self, node: exp.Null) -> Bound:
        del node
        return constant(None)

    def _bind_boolean(self, node: exp.Boolean) -> Bound:
        return constant(bool(node.this))

    def _bind_interval(self, node: exp.Interval) -> Bound:
        value = interval_of(node)
        if value is None:
            raise self._error(
                node,
                f"the interval {written(node)} cannot be read",
                hint="Write INTERVAL '5' SECOND, INTERVAL '1' MONTH or INTERVAL '1:30' MINUTE TO SECOND.",
            )
        return constant(value, operators.MONTHS if isinstance(value, operators.Months) else None)

    def _bind_paren(self, node: exp.Paren) -> Bound:
        return self.bind(node.this)

    # Truth

    def _bind_and(self, node: exp.And) -> Bound:
        return self._chain(node, exp.And)

    def _bind_or(self, node: exp.Or) -> Bound:
        return self._chain(node, exp.Or)

    def _chain(self, node: exp.Expr, kind: type[exp.Expr]) -> Bound:
        """Bind a chain of ANDs or ORs, which may be long, without going down it step by step."""
        terms: list[exp.Expr] = []
        rest: list[exp.Expr] = [node]
        while rest:
            each = rest.pop()
            if isinstance(each, kind):
                rest += [each.expression, each.this]
            else:
                terms.append(each)
        if len(terms) > _MAX_TERMS:
            raise self._error(node, f"more than {_MAX_TERMS} conditions in one expression")
        conditions = [self.condition(term) for term in terms]
        combine = every if kind is exp.And else some
        return Bound(combine(conditions), BOOLEAN)

    def _bind_not(self, node: exp.Not) -> Bound:
        return Bound(~self.condition(node.this), BOOLEAN)

    def _bind_is(self, node: exp.Is) -> Bound:
        left = self.bind(node.this)
        what = node.expression
        if isinstance(what, exp.Null):
            return Bound(left.expr.is_null(), BOOLEAN)
        if isinstance(what, exp.Boolean):
            truth = self.condition(node.this).fill_null(value=not what.this)
            return Bound(truth if what.this else ~truth, BOOLEAN)
        if isinstance(what, exp.Column) and what.name.upper() == "UNKNOWN":
            return Bound(self.condition(node.this).is_null(), BOOLEAN)
        if isinstance(what, exp.JSON) or (isinstance(what, exp.Column) and what.name.upper() == "JSON"):
            kind = str(what.this or "VALUE").upper() if isinstance(what, exp.JSON) else "VALUE"
            return self.call("IS_JSON", [left, constant(kind)], node)
        raise self._error(node, "IS takes NULL, TRUE, FALSE, UNKNOWN or JSON")

    def _bind_in(self, node: exp.In) -> Bound:
        if node.args.get("query") or node.args.get("unnest"):
            raise self._error(node, "IN with a query cannot stand here", hint="It can stand in WHERE, joined by AND.")
        left = self.bind(node.this)
        items = [self.bind(item) for item in node.expressions]
        if not items:
            raise self._error(node, "IN of nothing", hint="Write x IN (1, 2, 3), or x IN (SELECT ...).")
        constants = [item.value for item in items if item.is_constant and not item.is_null]
        same = {type(value) for value in constants}
        if len(constants) == len(items) and len(same) == 1 and len(items) > 3:
            merged = common([left.dtype, *(item.dtype for item in items)])
            if merged is not None and isinstance(merged, pl.String | pl.Int64):
                return Bound(coerced(left, merged).is_in(constants), BOOLEAN)
        tests = [self._applied(operators.BINARY["EQ"], [left, item], node).expr for item in items]
        return Bound(some(tests), BOOLEAN)

    def _bind_between(self, node: exp.Between) -> Bound:
        value, low, high = (self.bind(each) for each in (node.this, node.args["low"], node.args["high"]))
        if node.args.get("symmetric"):
            ends = [self._applied(operators.BINARY[name], [value, end], node).expr
                    for end in (low, high) for name in ("GTE", "LTE")]  # fmt: skip
            return Bound((ends[0] & ends[3]) | (ends[2] & ends[1]), BOOLEAN)
        above = self._applied(operators.BINARY["GTE"], [value, low], node)
        below = self._applied(operators.BINARY["LTE"], [value, high], node)
        return Bound(above.expr & below.expr, BOOLEAN)

    def _bind_like(self, node: exp.Like | exp.ILike, escape: str | None = None, *, ignore_case: bool = False) -> Bound:
        left, pattern = self.bind(node.this), self.bind(node.expression)
        found = self._built(node, lambda: operators.like(left, pattern, escape, ignore_case=ignore_case))
        return Bound(~found.expr, BOOLEAN) if node.args.get("negate") else found

    def _bind_ilike(self, node: exp.ILike) -> Bound:
        return self._bind_like(node, ignore_case=True)

    def _bind_escape(self, node: exp.Escape) -> Bound:
        letter = node.expression
        if (
            not isinstance(letter, exp.Literal)
            or len(letter.name) != 1
            or not isinstance(node.this, exp.Like | exp.ILike)
        ):
            raise self._error(node, "ESCAPE takes one character", hint="Write LIKE '10!%' ESCAPE '!'.")
        return self._bind_like(node.this, letter.name, ignore_case=isinstance(node.this, exp.ILike))

    def _bind_similarto(self, node: exp.SimilarTo) -> Bound:
        left, pattern = self.bind(node.this), self.bind(node.expression)
        return self._built(node, lambda: operators.similar_to(left, pattern))

    # Choices

    def _bind_case(self, node: exp.Case) -> Bound:
        operand = node.this
        branches: list[tuple[pl.Expr, Bound]] = []
        depth = len(self._guards)
        for each in node.args["ifs"]:
            test = exp.EQ(this=operand.copy(), expression=each.this.copy()) if operand is not None else each.this
            if operand is not None:
                condition = self._applied(operators.BINARY["EQ"], [self.bind(operand), self.bind(each.this)], each).expr
            else:
                condition = self.condition(test)
            holds = condition.fill_null(value=False)
            self._guards.append(holds)
            branches.append((holds, self.bind(each.args["true"])))
            self._guards[-1] = ~holds
        last = node.args.get("default")
        rest = self.bind(last) if last is not None else constant(None)
        del self._guards[depth:]
        return self._chosen(node, branches, rest)

    def _bind_if(self, node: exp.If) -> Bound:
        holds = self.condition(node.this).fill_null(value=False)
        self._guards.append(holds)
        true = self.bind(node.args["true"])
        self._guards[-1] = ~holds
        last = node.args.get("false")
        false = self.bind(last) if last is not None else constant(None)
        self._guards.pop()
        return self._chosen(node, [(holds, true)], false)

    def _chosen(self, node: exp.Expr, branches: Sequence[tuple[pl.Expr, Bound]], rest: Bound) -> Bound:
        merged = self._common(node, [bound for _, bound in branches] + [rest])
        chosen: Any = pl
        for holds, bound in branches:
            chosen = chosen.when(holds).then(coerced(bound, merged))
        return Bound(chosen.otherwise(coerced(rest, merged)), merged)

    def _common(self, node: exp.Expr, values: Sequence[Bound]) -> pl.DataType:
        merged = common(value.dtype for value in values)
        if merged is None:
            kinds = list(dict.fromkeys(spoken(value.dtype) for value in values if not value.is_null))
            raise self._error(node, f"{' and '.join(kinds)} have no common type", hint="CAST one of them.")
        return merged

    # Casts, rows, arrays

    def _bind_cast(self, node: exp.Cast) -> Bound:
        return self._cast(node, strict=True)

    def _bind_trycast(self, node: exp.TryCast) -> Bound:
        return self._cast(node, strict=False)

    def _cast(self, node: exp.Cast, *, strict: bool) -> Bound:
        target = casts.type_of(node.to)
        if target is None:
            raise self._error(
                node,
                f"unknown type {written(node.to)}",
                hint="Known are BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p, s), VARCHAR, BYTES, "
                "DATE, TIME, TIMESTAMP, ARRAY<t>, ROW<f t>, MAP<k, v>.",
            )
        bound = self.bind(node.this)
        if self._guards and strict and not bound.is_constant:
            needed = every(self._guards)
            bound = Bound(pl.when(needed).then(bound.expr), bound.dtype)
        value = casts.cast_of(bound, target, strict=strict, length=casts.length_of(node.to))
        if value is None:
            raise self._error(node, f"{spoken(bound.dtype)} cannot be cast to {spoken(target)}")
        if bound.is_constant and not isinstance(bound.value, operators.Months):
            return self._folded(node, value, target)
        return Bound(value, target)

    def _folded(self, node: exp.Expr, value: pl.Expr, target: pl.DataType) -> Bound:
        """Compute a cast of a constant, so that one that fails is told with its place, and once."""
        try:
            found = pl.select(value.alias("value")).item()
        except pl.exceptions.PolarsError as error:
            raise self._error(node, f"{written(node.this)} cannot be cast to {spoken(target)}") from error
        if isinstance(target, pl.List | pl.Struct):
            return Bound(value, target)
        return Bound(pl.lit(found, dtype=target), target, found)

    def _bind_array(self, node: exp.Array) -> Bound:
        items = [self.bind(item) for item in node.expressions]
        merged = self._common(node, items) if items else NULL
        if not items:
            return Bound(pl.lit([], dtype=pl.List(NULL)), pl.List(NULL))
        return Bound(pl.concat_list([coerced(item, merged) for item in items]), pl.List(merged))

    def _bind_tuple(self, node: exp.Tuple) -> Bound:
        items = [self.bind(item) for item in node.expressions]
        if not items:
            raise self._error(node, "a row of nothing", hint="Write ROW(1, 'a').")
        fields = {f"f{place}": item for place, item in enumerate(items)}
        return Bound(
            pl.struct(item.expr.alias(name) for name, item in fields.items()),
            pl.Struct({name: item.dtype for name, item in fields.items()}),
        )

    def _bind_bracket(self, node: exp.Bracket) -> Bound:
        if isinstance(node.this, exp.Column) and node.this.name.upper() == "MAP" and not node.this.this.quoted:
            return self._map(node)
        container = self.bind(node.this)
        if len(node.expressions) != 1:
            raise self._error(node, "an index is one value")
        index = self.bind(node.expressions[0])
        return self._built(node, lambda: operators.subscript(container, index))

    def _map(self, node: exp.Bracket) -> Bound:
        """Bind `MAP['a', 1, 'b', 2]`: a list of keys and values."""
        items = [self.bind(item) for item in node.expressions]
        if not items or len(items) % 2:
            raise self._error(node, "MAP takes keys and values, one after the other", hint="Write MAP['a', 1, 'b', 2].")
        kinds = {"key": self._common(node, items[::2]), "value": self._common(node, items[1::2])}
        pairs = [
            pl.struct(coerced(key, kinds["key"]).alias("key"), coerced(value, kinds["value"]).alias("value"))
            for key, value in zip(items[::2], items[1::2], strict=True)
        ]
        return Bound(pl.concat_list(pairs), pl.List(pl.Struct(kinds)))

    # The time of now

    def _bind_currenttimestamp(self, node: exp.Expr) -> Bound:
        return self.call("CURRENT_TIMESTAMP", [], node)

    def _bind_currentdate(self, node: exp.Expr) -> Bound:
        return self.call("CURRENT_DATE", [], node)

    def _bind_currenttime(self, node: exp.Expr) -> Bound:
        return self.call("CURRENT_TIME", [], node)

    def _bind_overlay(self, node: exp.Overlay) -> Bound:
        parts = [node.this, node.expression, node.args.get("from_") or node.args.get("from"), node.args.get("for_")]
        return self.call("OVERLAY", [self.bind(part) for part in parts if part is not None], node)

    # Calls

    def _bind_anonymous(self, node: exp.Anonymous) -> Bound:
        name = node.name.upper()
        if name == "COALESCE":
            return self._coalesce(node)
        if name == "ROW":
            return self._bind_tuple(exp.Tuple(expressions=node.expressions))
        if name == "IF" and len(node.expressions) == 3:
            first, second, third = node.expressions
            return self._bind_if(exp.If(this=first, true=second, false=third))
        arguments = list(node.expressions)
        if name in UNIT_FUNCTIONS and arguments and isinstance(arguments[0], exp.Column | exp.Var):
            unit = constant(arguments[0].name)
            return self.call(name, [unit, *(self.bind(each) for each in arguments[1:])], node)
        for argument in arguments:
            if isinstance(argument, exp.Star | exp.Distinct):
                raise self._error(node, f"{name} is no aggregate, so it cannot take {written(argument)}")
        return self.call(name, [self.bind(argument) for argument in arguments], node)

    def call(self, name: str, arguments: Sequence[Bound], node: exp.Expr) -> Bound:
        """Call a function by its name."""
        function = self._functions.get(name)
        if function is None:
            raise self._error(node, f"unknown function {name}", hint=similar(name, self._functions))

        def build() -> Bound:
            function.check(arguments)
            typed = function.typed(arguments)
            result = function.result(typed)
            return Bound(function.build(typed), result)

        return self._built(node, build)

    def _coalesce(self, node: exp.Anonymous) -> Bound:
        depth = len(self._guards)
        items: list[Bound] = []
        for each in node.expressions:
            items.append(self.bind(each))
            self._guards.append(items[-1].expr.is_null())
        del self._guards[depth:]
        if not items:
            raise self._error(node, "COALESCE of nothing")
        merged = self._common(node, items)
        return Bound(pl.coalesce([coerced(item, merged) for item in items]), merged)

    def _bind_substring(self, node: exp.Substring) -> Bound:
        parts = [node.this, node.args.get("start") or exp.Literal.number(1), node.args.get("length")]
        return self.call("SUBSTRING", [self.bind(part) for part in parts if part is not None], node)

    def _bind_trim(self, node: exp.Trim) -> Bound:
        names = {"LEADING": "LTRIM", "TRAILING": "RTRIM"}
        name = names.get(str(node.args.get("position") or "").upper(), "TRIM")
        parts = [part for part in (node.this, node.expression) if part is not None]
        return self.call(name, [self.bind(part) for part in parts], node)

    def _bind_strposition(self, node: exp.StrPosition) -> Bound:
        return self.call("STRPOS", [self.bind(node.this), self.bind(node.args["substr"])], node)

    def _bind_extract(self, node: exp.Extract) -> Bound:
        return self.call("EXTRACT", [constant(node.this.name), self.bind(node.expression)], node)

    def _bind_floor(self, node: exp.Floor) -> Bound:
        return self._rounded("FLOOR", node)

    def _bind_ceil(self, node: exp.Ceil) -> Bound:
        return self._rounded("CEIL", node)

    def _rounded(self, name: str, node: exp.Expr) -> Bound:
        unit = node.args.get("to")
        value = self.bind(node.this)
        if unit is not None:
            return self.call(f"{name}_TIME", [value, constant(unit.name)], node)
        return self.call(name, [value], node)

    def _bind_neg(self, node: exp.Neg) -> Bound:
        bound = self.bind(node.this)
        if bound.is_constant and isinstance(bound.value, int | float | Decimal) and not isinstance(bound.value, bool):
            return constant(-bound.value, bound.dtype)
        return self._built(node, lambda: operators.negative(bound))

    def _operation(self, operator: operators.Operator, node: exp.Expr) -> Bound:
        """Bind an operator with two operands; a long chain of them to the left is not gone down step by step."""
        chain: list[exp.Expr] = []
        each = node
        while type(each).__name__ in operators.BINARY and (self._replaced is None or self._replaced(each) is None):
            chain.append(each)
            each = each.this
        if len(chain) > _MAX_TERMS:
            raise self._error(node, f"more than {_MAX_TERMS} operators in one expression")
        bound = self.bind(each)
        for step in reversed(chain):
            applied = operators.BINARY[type(step).__name__]
            bound = self._applied(applied, [bound, self.bind(step.expression)], step)
        del operator
        return bound

    def _applied(self, operator: operators.Operator, operands: Sequence[Bound], node: exp.Expr) -> Bound:
        return self._built(node, lambda: operator(operands[0], operands[1]))

    def _built(self, node: exp.Expr, build: Callable[[], Bound]) -> Bound:
        try:
            return build()
        except ArgumentError as problem:
            raise self._error(node, problem.message, hint=problem.hint) from None

    def _error(self, node: exp.Expr, message: str, *, hint: str = "") -> QueryError:
        return error_at(self._text, node, message, hint=hint)


def _spoken_node(node: exp.Expr) -> str:
    if isinstance(node, exp.Query | exp.Subquery | exp.Exists):
        return "a query"
    if isinstance(node, exp.Window):
        return f"{written(node.this)} OVER"
    if isinstance(node, exp.Star):
        return "*"
    return written(node)[:60]


__all__ = ["STRING", "Binder"]
