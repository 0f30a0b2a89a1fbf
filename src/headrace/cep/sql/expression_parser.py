"""Scalar expressions of MEASURES and DEFINE: tokens to syntax, by operator precedence.

`a + b * c = 7 AND NOT d` is read as SQL reads it: OR binds least, then AND, NOT, the predicates (`=`, BETWEEN, IN,
LIKE, IS), `||`, `+ -`, `* / %`, signs. Two additions are of row patterns alone: RUNNING and FINAL before a call, and
`A.*` in a count.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from headrace.cep.sql.lexer import Cursor, Position, Token, problem
from headrace.cep.sql.literals import (
    TYPED_LITERALS,
    UNIT_MICROSECONDS,
    UNIT_MONTHS,
    interval,
    interval_fields,
    number,
    typed_literal,
)
from headrace.cep.sql.syntax import (
    AllRows,
    Call,
    Cast,
    Expression,
    Identifier,
    LiteralValue,
    Months,
    Name,
    Semantics,
    Subquery,
    TypeName,
)

MAX_DEPTH = 100
"""Expressions nested more deeply than this are refused, before Python's own stack ends."""

_COMPARISONS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_OR, _AND, _NOT, _PREDICATE, _CONCAT, _SUM, _PRODUCT, _SIGN = range(1, 9)
# fmt: off
_RESERVED: Final = frozenset({
    "AND", "OR", "NOT", "AS", "WHEN", "THEN", "ELSE", "END", "BETWEEN", "IN", "LIKE", "IS", "FROM", "WHERE", "GROUP",
    "HAVING", "UNION", "SELECT", "ON", "ORDER", "PATTERN", "DEFINE", "MEASURES", "SUBSET", "ESCAPE", "ASC", "DESC",
    "NULLS", "USING",
})
# fmt: on
_NOW: Final = frozenset({"CURRENT_DATE", "CURRENT_TIMESTAMP", "CURRENT_TIME", "LOCALTIME", "LOCALTIMESTAMP"})


class ExpressionParser:
    """Reads expressions at a cursor.

    Args:
        cursor: Where to read; it is left after the expression.
        text: The whole query, from which subqueries are cut.
    """

    def __init__(self, cursor: Cursor, text: str) -> None:
        self.cursor = cursor
        self.text = text
        self._depth = 0

    def expression(self) -> Expression:
        """Reads one expression."""
        at = self.cursor.token.at
        node = self._binary(_OR)
        _check_depth(node, at)
        return node

    def _deeper(self, at: Position) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(at)

    def _binary(self, least: int) -> Expression:
        cursor = self.cursor
        self._deeper(cursor.token.at)
        if least <= _NOT and cursor.token.is_word("NOT"):
            token = cursor.advance()
            left: Expression = Call("not", (self._binary(_NOT),), token.at)
        else:
            left = self._prefix()
        while True:
            token = cursor.token
            if least <= _OR and token.is_word("OR"):
                left = self._junction("or", left, _AND)
            elif least <= _AND and token.is_word("AND"):
                left = self._junction("and", left, _NOT)
            elif least <= _PREDICATE and self._starts_predicate(token):
                left = self._predicate(left)
            elif least <= _CONCAT and token.is_punctuation("||"):
                operands = [left]
                while cursor.take("||"):
                    operands.append(self._binary(_SUM))
                left = Call("||", tuple(operands), token.at)
            elif least <= _SUM and token.is_punctuation("+", "-"):
                cursor.advance()
                left = Call(token.text, (left, self._binary(_PRODUCT)), token.at)
            elif least <= _PRODUCT and token.is_punctuation("*", "/", "%"):
                cursor.advance()
                left = Call(token.text, (left, self._binary(_SIGN)), token.at)
            elif token.is_word("AT") and cursor.peek(1).is_word("TIME") and cursor.peek(2).is_word("ZONE"):
                cursor.index += 3
                left = Call("at_time_zone", (left, self._prefix()), token.at)
            else:
                self._depth -= 1
                return left

    def _junction(self, name: str, first: Expression, tighter: int) -> Expression:
        # One flat call for a chain: machine-made queries join hundreds of conditions.
        at = self.cursor.token.at
        operands = [first]
        while self.cursor.take_words(name.upper()):
            operands.append(self._binary(tighter))
        return Call(name, tuple(operands), at)

    def _starts_predicate(self, token: Token) -> bool:
        if token.is_punctuation(*_COMPARISONS) or token.is_word("IS", "IN", "BETWEEN", "LIKE", "ILIKE"):
            return True
        return token.is_word("NOT") and self.cursor.peek(1).is_word("IN", "BETWEEN", "LIKE", "ILIKE")

    def _predicate(self, left: Expression) -> Expression:
        cursor = self.cursor
        token = cursor.advance()
        if token.kind == "punctuation":
            return Call(_COMPARISONS[token.text], (left, self._binary(_CONCAT)), token.at)
        if token.text == "IS":
            return self._is(left, token.at)
        negated = token.text == "NOT"
        word = cursor.advance() if negated else token
        node: Expression
        match word.text:
            case "BETWEEN":
                low = self._binary(_CONCAT)
                cursor.expect_words("AND", within="BETWEEN")
                node = Call("between", (left, low, self._binary(_CONCAT)), word.at)
            case "IN":
                node = self._in(left, word.at)
            case _:
                arguments = [left, self._binary(_CONCAT)]
                if cursor.take_words("ESCAPE"):
                    arguments.append(self._binary(_CONCAT))
                node = Call(word.text.lower(), tuple(arguments), word.at)
        return Call("not", (node,), token.at) if negated else node

    def _is(self, left: Expression, at: Position) -> Expression:
        cursor = self.cursor
        negated = cursor.take_words("NOT")
        node: Expression
        if cursor.take_words("NULL"):
            node = Call("is_null", (left,), at)
        elif cursor.take_words("DISTINCT", "FROM"):
            node = Call("is_distinct", (left, self._binary(_CONCAT)), at)
        elif cursor.take_words("TRUE"):
            node = Call("is_true", (left,), at)
        elif cursor.take_words("FALSE"):
            node = Call("is_true", (Call("not", (left,), at),), at)
        elif cursor.take_words("UNKNOWN"):
            node = Call("is_null", (left,), at)
        else:
            raise cursor.unexpected("NULL, TRUE, FALSE or DISTINCT FROM", within="IS")
        return Call("not", (node,), at) if negated else node

    def _in(self, left: Expression, at: Position) -> Expression:
        cursor = self.cursor
        if cursor.token.is_punctuation("(") and cursor.peek(1).is_word("SELECT", "WITH", "VALUES"):
            return Call("in_subquery", (left, self._subquery()), at)
        cursor.expect("(", within="IN")
        items = [left, self.nested()]
        while cursor.take(","):
            items.append(self.nested())
        cursor.expect(")", within="IN")
        return Call("in", tuple(items), at)

    def nested(self) -> Expression:
        """Reads a whole expression inside of another."""
        return self._binary(_OR)

    def _subquery(self) -> Subquery:
        cursor = self.cursor
        opening = cursor.token
        closing = cursor.closing()
        text = self.text[opening.end : cursor.tokens[closing].start]
        for token in cursor.tokens[cursor.index : closing]:
            if token.is_word("MATCH_RECOGNIZE"):
                raise problem("MATCH_RECOGNIZE cannot stand inside of another one's MEASURES or DEFINE", token.at)
        cursor.index = closing + 1
        return Subquery(text, opening.at)

    def _prefix(self) -> Expression:
        cursor = self.cursor
        token = cursor.token
        if token.is_punctuation("-", "+"):
            cursor.advance()
            operand = self._binary(_SIGN)
            if token.text == "+":
                return operand
            value = operand.value if isinstance(operand, LiteralValue) else None
            if isinstance(value, int | float | Decimal | Months) and not isinstance(value, bool):
                return LiteralValue(-value, token.at)
            return Call("negate", (operand,), token.at)
        node = self._primary()
        while True:
            if cursor.take("::"):
                node = Cast(node, self._type(), token.at)
            elif cursor.token.is_punctuation("["):
                cursor.advance()
                index = self.nested()
                cursor.expect("]", within="the subscript")
                node = Call("subscript", (node, index), token.at)
            else:
                return node

    def _primary(self) -> Expression:
        cursor = self.cursor
        token = cursor.token
        match token.kind:
            case "number":
                cursor.advance()
                return LiteralValue(number(token), token.at)
            case "string":
                cursor.advance()
                return LiteralValue(token.value, token.at)
            case "quoted":
                return self._name()
            case "word":
                return self._word()
            case _:
                pass
        if token.is_punctuation("("):
            if cursor.peek(1).is_word("SELECT", "WITH", "VALUES"):
                return Call("scalar_subquery", (self._subquery(),), token.at)
            cursor.advance()
            node = self.nested()
            if cursor.token.is_punctuation(","):
                raise problem("row values are not supported here", token.at)
            cursor.expect(")", within="the expression")
            return node
        raise cursor.unexpected("a value", within="the expression")

    def _word(self) -> Expression:
        cursor = self.cursor
        token = cursor.token
        following = cursor.peek(1)
        if token.text in ("RUNNING", "FINAL") and following.kind in ("word", "quoted"):
            cursor.advance()
            called = self._name()
            if not isinstance(called, Call):
                raise problem(f"{token.text} stands before a column; it belongs before a function", token.at)
            semantics: Semantics = "RUNNING" if token.text == "RUNNING" else "FINAL"
            return Call(called.name, called.arguments, token.at, semantics, called.quoted, called.refused)
        if token.text in TYPED_LITERALS and following.kind == "string":
            cursor.index += 2
            return typed_literal(token.text, following)
        match token.text:
            case "TRUE" | "FALSE":
                cursor.advance()
                return LiteralValue(token.text == "TRUE", token.at)
            case "NULL":
                cursor.advance()
                return LiteralValue(None, token.at)
            case "CASE":
                return self._case()
            case "CAST" | "TRY_CAST" if following.is_punctuation("("):
                return self._cast()
            case "INTERVAL" if following.kind in ("string", "number") or following.is_punctuation("-"):
                return self.interval()
            case "EXISTS" if following.is_punctuation("("):
                cursor.advance()
                return Call("exists", (self._subquery(),), token.at)
            case "ARRAY" if following.is_punctuation("["):
                return self._array()
            case "EXTRACT" | "TRIM" | "SUBSTRING" | "POSITION" if following.is_punctuation("("):
                return self._worded_call(token)
            case text if text in _NOW and not following.is_punctuation("."):
                cursor.advance()
                if cursor.take("("):
                    if cursor.token.kind == "number":
                        cursor.advance()
                    cursor.expect(")", within=text)
                return Call(text.lower(), (), token.at)
            case text if text in _RESERVED:
                raise cursor.unexpected("a value", within="the expression")
            case _:
                return self._name()

    def _name(self) -> Expression:
        """Reads a dotted name, or a call if a bracket follows."""
        cursor = self.cursor
        first = cursor.advance()
        parts = [_identifier(first)]
        while cursor.take("."):
            if star := cursor.take("*"):
                if len(parts) > 1:
                    raise problem("'.*' follows one variable, not a longer name", star.at)
                return AllRows(parts[0], first.at)
            parts.append(_identifier(cursor.expect_identifier(within="the name")))
        if len(parts) == 1 and cursor.token.is_punctuation("("):
            return self._call(first)
        return Name(tuple(parts), first.at)

    def _call(self, name: Token) -> Expression:
        cursor = self.cursor
        cursor.expect("(", within="the call")
        refused = ""
        arguments: list[Expression] = []
        if cursor.take_words("DISTINCT"):
            refused = "DISTINCT"
        if not cursor.token.is_punctuation(")"):
            while True:
                arguments.append(self._argument())
                if cursor.take(",") is None:
                    break
        if cursor.take_words("ORDER", "BY"):
            refused = refused or "ORDER BY"
            self._skip_to_bracket()
        cursor.expect(")", within=f"the call of {name.value}")
        for words in (("FILTER",), ("OVER",), ("WITHIN", "GROUP")):
            if cursor.at_words(*words) and cursor.peek(len(words)).is_punctuation("("):
                cursor.index += len(words)
                cursor.index = cursor.closing() + 1
                refused = refused or {"WITHIN": "ORDER BY"}.get(words[0], words[0])
        if cursor.token.is_word("OVER") and cursor.peek(1).kind in ("word", "quoted"):
            cursor.index += 2
            refused = "OVER"
        return Call(name.value.lower(), tuple(arguments), name.at, quoted=name.kind == "quoted", refused=refused)

    def _argument(self) -> Expression:
        cursor = self.cursor
        if cursor.token.is_punctuation("*"):
            return AllRows(None, cursor.advance().at)
        node = self.nested()
        if cursor.token.is_punctuation("->"):
            raise problem("lambda expressions are not supported in row patterns", cursor.token.at)
        return node

    def _skip_to_bracket(self) -> None:
        cursor = self.cursor
        while not cursor.token.is_punctuation(")") and cursor.token.kind != "end":
            cursor.index = cursor.closing() + 1 if cursor.token.is_punctuation("(") else cursor.index + 1

    def _case(self) -> Expression:
        cursor = self.cursor
        at = cursor.advance().at
        subject = None if cursor.token.is_word("WHEN") else self.nested()
        arguments: list[Expression] = []
        while cursor.take_words("WHEN"):
            condition = self.nested()
            arguments.append(condition if subject is None else Call("=", (subject, condition), at))
            cursor.expect_words("THEN", within="CASE")
            arguments.append(self.nested())
        if not arguments:
            raise cursor.unexpected("WHEN", within="CASE")
        arguments.append(self.nested() if cursor.take_words("ELSE") else LiteralValue(None, at))
        cursor.expect_words("END", within="CASE")
        return Call("case", tuple(arguments), at)

    def _cast(self) -> Expression:
        cursor = self.cursor
        token = cursor.advance()
        cursor.expect("(", within=token.text)
        operand = self.nested()
        cursor.expect_words("AS", within=token.text)
        type_name = self._type()
        cursor.expect(")", within=token.text)
        return Cast(operand, type_name, token.at, safe=token.text == "TRY_CAST")

    def _type(self) -> TypeName:
        cursor = self.cursor
        token = cursor.expect_identifier(within="the cast", what="a type")
        name = token.text.upper()
        if name == "DOUBLE":
            cursor.take_words("PRECISION")
        parameters: list[int | TypeName] = []
        if cursor.take("("):
            while True:
                if cursor.token.kind == "number":
                    parameters.append(int(cursor.advance().value))
                else:
                    parameters.append(self._type())
                if cursor.take(",") is None:
                    break
            cursor.expect(")", within="the type")
        if name in ("TIMESTAMP", "TIME") and cursor.token.is_word("WITH", "WITHOUT"):
            if cursor.advance().text == "WITH":
                name += " WITH TIME ZONE"
            cursor.expect_words("TIME", "ZONE", within="the type")
        return TypeName(name, tuple(parameters), token.at)

    def interval(self) -> LiteralValue:
        """Reads `INTERVAL '10' SECOND`, `INTERVAL '1:30' MINUTE TO SECOND` and the like."""
        cursor = self.cursor
        at = cursor.advance().at
        sign = -1 if cursor.take("-") else 1
        amount = cursor.advance()
        if amount.kind not in ("string", "number"):
            raise problem("an interval is written as INTERVAL '10' SECOND", amount.at)
        if cursor.token.kind != "word" or cursor.token.text.removesuffix("S") not in (
            *UNIT_MICROSECONDS,
            *UNIT_MONTHS,
        ):
            words = amount.value.split()
            if len(words) == 2 and words[1].upper().removesuffix("S") in (*UNIT_MICROSECONDS, *UNIT_MONTHS):
                return LiteralValue(interval(words[0], words[1].upper().removesuffix("S"), sign, amount.at), at)
            raise cursor.unexpected("SECOND, MINUTE, HOUR, DAY, MONTH or another unit", within="the interval")
        unit = cursor.advance().text.removesuffix("S")
        if cursor.take("("):
            cursor.advance()
            cursor.expect(")", within="the interval")
        if cursor.take_words("TO"):
            last = cursor.expect_identifier(within="the interval", what="a unit").text.removesuffix("S")
            if cursor.take("("):
                cursor.advance()
                cursor.expect(")", within="the interval")
            return LiteralValue(interval_fields(amount, unit, last, sign), at)
        return LiteralValue(interval(amount.value, unit, sign, amount.at), at)

    def _array(self) -> Expression:
        cursor = self.cursor
        at = cursor.advance().at
        cursor.advance()
        items: list[Expression] = []
        if not cursor.token.is_punctuation("]"):
            items.append(self.nested())
            while cursor.take(","):
                items.append(self.nested())
        cursor.expect("]", within="ARRAY")
        return Call("array", tuple(items), at)

    def _worded_call(self, name: Token) -> Expression:
        """Reads the calls whose arguments are parted by words, not by commas."""
        cursor = self.cursor
        cursor.index += 2
        arguments: tuple[Expression, ...]
        function = name.text.lower()
        if name.text == "EXTRACT":
            field = cursor.expect_identifier(within="EXTRACT", what="a field such as YEAR")
            cursor.expect_words("FROM", within="EXTRACT")
            arguments = (LiteralValue(field.value.lower(), field.at), self.nested())
        elif name.text == "POSITION":
            needle = self._binary(_CONCAT)
            cursor.expect_words("IN", within="POSITION")
            arguments, function = (self.nested(), needle), "strpos"
        elif name.text == "TRIM":
            arguments, function = self._trim()
        else:
            parts = [self.nested()]
            while cursor.take(",") or cursor.take_words("FROM") or cursor.take_words("FOR"):
                parts.append(self.nested())
            arguments = tuple(parts)
        cursor.expect(")", within=name.text)
        return Call(function, arguments, name.at)

    def _trim(self) -> tuple[tuple[Expression, ...], str]:
        cursor = self.cursor
        functions = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "trim"}
        function = functions[cursor.advance().text] if cursor.token.is_word(*functions) else "trim"
        if cursor.take_words("FROM"):
            return (self.nested(),), function
        first = self.nested()
        if cursor.take_words("FROM"):
            return (self.nested(), first), function
        if cursor.take(","):
            return (first, self.nested()), function
        return (first,), function


def _identifier(token: Token) -> Identifier:
    return Identifier(token.value, token.kind == "quoted", token.at)


def children(node: Expression) -> tuple[Expression, ...]:
    """The expressions directly inside of one."""
    if isinstance(node, Call):
        return node.arguments
    return (node.operand,) if isinstance(node, Cast) else ()


def _check_depth(node: Expression, at: Position) -> None:
    """Refuses a deep tree: a long chain of sums is read in a loop but becomes as deep as it is long."""
    level: list[Expression] = [node]
    for _ in range(MAX_DEPTH * 2):
        level = [child for parent in level for child in children(parent)]
        if not level:
            return
    raise _too_deep(at)


def _too_deep(at: Position) -> Exception:
    return problem(
        f"the expression is nested more than {MAX_DEPTH} deep",
        at,
        hint="Split it into several measures, or compute parts of it in the table.",
    )
