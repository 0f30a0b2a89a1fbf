"""Reading queries: a dialect of sqlglot with the forms of Flink, and clauses that no other dialect has.

What is read beyond sqlglot: names in back-ticks; window functions in FROM, `TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), ..))`
or `TUMBLE(t, ts, ...)`; MATCH_RECOGNIZE, whose clauses stay with `headrace.cep.sql`; EMIT, ALLOWED LATENESS behind a
query; `LATE(view)` in FROM. Calls of functions stay calls with a name: which function is meant is decided in one place,
the table of functions, and not by the parser.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlglot import exp
from sqlglot import generator as sqlglot_generator
from sqlglot import parser as sqlglot_parser
from sqlglot import tokens as sqlglot_tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ErrorLevel, ParseError, SqlglotError
from sqlglot.tokenizer_core import TokenType

from headrace.cep.sql.lexer import Cursor, tokenize
from headrace.errors import PlanError
from headrace.streaming_sql.errors import QueryError
from headrace.streaming_sql.json_syntax import json_parsers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cep.sql.lexer import Token as ClauseToken

#: Brackets nested more deeply are refused.
MAX_BRACKETS: Final = 100
WINDOW_FUNCTIONS: Final = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_BEGINNINGS: Final = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
#: Words that are no alias of a table where one of these follows.
_AFTER_EMIT: Final[dict[str, tuple[str, ...]]] = {
    "EMIT": ("ON", "CHANGES", "EARLY", "LATE", "WITH"),
    "ALLOWED": ("LATENESS",),
}
_ARGUMENT_NAMES: Final = {
    "DATA": "data",
    "TIMECOL": "time",
    "SIZE": "size",
    "SLIDE": "slide",
    "STEP": "step",
    "GAP": "gap",
    "OFFSET": "offset",
}


class WindowTable(exp.Expression):
    """A window function in FROM: the kind, the table, the time column and the sizes in order.

    `data` is a table or a query; `partition` is what sessions are told apart by.
    """

    arg_types = {  # noqa: RUF012 - as sqlglot wants it
        "this": True,
        "data": True,
        "time": True,
        "sizes": True,
        "named": False,
        "partition": False,
        "alias": False,
        "joins": False,
        "laterals": False,
        "pivots": False,
    }


class MatchTable(exp.Expression):
    """A MATCH_RECOGNIZE behind a table: the table, and where the clauses stand in the query."""

    arg_types = {"this": True, "start": True, "end": True, "alias": False, "joins": False}  # noqa: RUF012


class LateTable(exp.Expression):
    """`LATE(t)`: the rows that came too late for a table."""

    arg_types = {"this": True, "alias": False, "joins": False}  # noqa: RUF012


class Emit(exp.Expression):
    """The EMIT and ALLOWED LATENESS clauses of a query.

    `early` and `late` are intervals or row counts, `mode` what a later result holds.
    """

    arg_types = {  # noqa: RUF012
        "on_close": False,
        "on_change": False,
        "early": False,
        "early_rows": False,
        "late": False,
        "late_rows": False,
        "mode": False,
        "lateness": False,
    }


class Headrace(Dialect):
    """The dialect."""

    class Tokenizer(sqlglot_tokens.Tokenizer):
        """Names stand in back-ticks or double quotes, texts in single quotes."""

        IDENTIFIERS = ["`", '"']  # noqa: RUF012
        QUOTES = ["'"]  # noqa: RUF012
        HEX_STRINGS = [("x'", "'"), ("X'", "'")]  # noqa: RUF012
        KEYWORDS = {  # noqa: RUF012
            **{
                key: kind
                for key, kind in sqlglot_tokens.Tokenizer.KEYWORDS.items()
                if key not in ("CALL", "EXECUTE", "COPY", "SESSION")
            },
            "MATCH_RECOGNIZE": TokenType.MATCH_RECOGNIZE,
        }

    class Generator(sqlglot_generator.Generator):
        """Writes what only this dialect has, well enough to tell one from the other."""

        TRANSFORMS = {  # noqa: RUF012
            **sqlglot_generator.Generator.TRANSFORMS,
            WindowTable: lambda self, node: f"{node.this}({self.sql(node, 'data')}, {self.expressions(node, 'sizes')})",
            MatchTable: lambda self, node: f"{self.sql(node, 'this')} MATCH_RECOGNIZE {node.args['start']}",
            LateTable: lambda self, node: f"LATE({self.sql(node, 'this')})",
            Emit: lambda *_: "EMIT",
        }

    class Parser(sqlglot_parser.Parser):
        """The parser."""

        # Which function a name means is decided by our own table.
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS = {
            name: read
            for name, read in sqlglot_parser.Parser.FUNCTION_PARSERS.items()
            if name in ("CAST", "TRY_CAST", "EXTRACT", "SUBSTRING", "TRIM", "POSITION", "CEIL", "FLOOR", "OVERLAY")
        } | json_parsers()

        def _parse_table(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
            table = self._parse_window_table() or self._parse_late_table()
            if table is None:
                table = super()._parse_table(*args, **kwargs)
            else:
                self._parse_alias_of(table)
            while table is not None and self._curr and self._curr.token_type == TokenType.MATCH_RECOGNIZE:
                table = self._parse_match_table(table)
            if kwargs.get("joins") and isinstance(table, WindowTable | MatchTable | LateTable):
                for join in self._parse_joins():
                    table.append("joins", join)
            return table

        def _parse_cube_or_rollup(self, with_prefix: bool = False) -> exp.Cube | exp.Rollup | None:
            if with_prefix or not self._match_set((TokenType.CUBE, TokenType.ROLLUP)):
                return super()._parse_cube_or_rollup(with_prefix=with_prefix)
            kind = exp.Cube if self._prev.token_type == TokenType.CUBE else exp.Rollup
            return self.expression(kind(expressions=self._parse_wrapped_csv(self._parse_disjunction)))

        def _parse_table_alias(self, *args: Any, **kwargs: Any) -> exp.TableAlias | None:
            following = self._next.text.upper() if self._next else ""
            if self._curr and following in _AFTER_EMIT.get(self._curr.text.upper(), ()):
                return None
            return super()._parse_table_alias(*args, **kwargs)

        def _parse_alias_of(self, table: exp.Expr) -> None:
            alias = self._parse_table_alias(alias_tokens=self.TABLE_ALIAS_TOKENS)
            if alias:
                table.set("alias", alias)

        def _is_window_function(self, ahead: int = 0) -> bool:
            place = self._index + ahead
            if place + 1 >= len(self._tokens):
                return False
            name, bracket = self._tokens[place], self._tokens[place + 1]
            return name.text.upper() in WINDOW_FUNCTIONS and bracket.token_type == TokenType.L_PAREN

        def _parse_window_table(self) -> exp.Expr | None:
            wrapped = (
                self._curr
                and self._curr.token_type == TokenType.TABLE
                and self._next
                and self._next.token_type == TokenType.L_PAREN
                and self._is_window_function(2)
            )
            if wrapped:
                self._advance(2)
            elif not self._is_window_function():
                return None
            kind = self._curr.text.upper()
            name = self._curr
            self._advance(2)
            parts: dict[str, Any] = {"this": kind, "sizes": [], "named": {}}
            self._parse_csv(lambda: self._parse_window_argument(parts))
            self._match_r_paren()
            if wrapped:
                self._match_r_paren()
            if parts.get("data") is None or parts.get("time") is None:
                self.raise_error(f"{kind} needs a table and a time column", name)
            table = WindowTable(**parts)
            table.meta.update(start=name.start, end=name.end)
            return table

        def _parse_window_argument(self, parts: dict[str, Any]) -> exp.Expr | None:
            label = None
            if self._next and self._next.token_type == TokenType.FARROW:
                label = _ARGUMENT_NAMES.get(self._curr.text.upper())
                if label is None:
                    self.raise_error(f"unknown argument {self._curr.text}", self._curr)
                self._advance(2)
            if label == "data" or (label is None and parts.get("data") is None):
                parts["data"] = self._parse_window_data(parts)
            elif label == "time" or (label is None and parts.get("time") is None):
                parts["time"] = self._parse_descriptor()
            else:
                size = self._parse_bitwise()
                if size is None:
                    self.raise_error("a length is missing here", self._curr)
                if label:
                    parts["named"][label] = size
                else:
                    parts["sizes"].append(size)
            return exp.Null()

        def _parse_window_data(self, parts: dict[str, Any]) -> exp.Expr | None:
            self._match(TokenType.TABLE)
            data: exp.Expr | None
            if self._curr and self._curr.token_type == TokenType.L_PAREN:
                data = self._parse_select(table=True)
            else:
                data = self._parse_table_parts()
            if self._match(TokenType.PARTITION_BY):
                bracket = self._match(TokenType.L_PAREN)
                parts["partition"] = self._parse_partition_columns()
                if bracket:
                    self._match_r_paren()
            return data

        def _parse_partition_columns(self) -> list[exp.Expr | None]:
            """Read columns up to the comma before DESCRIPTOR."""
            columns = [self._parse_column()]
            while self._curr.token_type == TokenType.COMMA and self._next.text.upper() != "DESCRIPTOR":
                self._advance()
                columns.append(self._parse_column())
            return columns

        def _parse_descriptor(self) -> exp.Expr | None:
            if self._match_text_seq("DESCRIPTOR"):
                self._match_l_paren()
                column = self._parse_column()
                self._match_r_paren()
                return column
            return self._parse_column()

        def _parse_late_table(self) -> exp.Expr | None:
            if not (
                self._curr
                and self._curr.text.upper() == "LATE"
                and self._curr.token_type == TokenType.VAR
                and self._next
                and self._next.token_type == TokenType.L_PAREN
            ):
                return None
            name = self._curr
            self._advance(2)
            table = LateTable(this=self._parse_table_parts())
            table.meta.update(start=name.start, end=name.end)
            self._match_r_paren()
            return table

        def _parse_match_table(self, table: exp.Expr) -> exp.Expr:
            name = self._curr
            self._advance()
            opening = self._curr
            self._match_l_paren()
            closing = self._curr
            self._match_r_paren()
            match = MatchTable(
                this=table,
                start=exp.Literal.number(opening.end + 1),
                end=exp.Literal.number(closing.start),
            )
            match.meta.update(start=name.start, end=name.end)
            self._parse_alias_of(match)
            return match

        def _parse_query_modifiers(self, this: Any) -> Any:
            this = super()._parse_query_modifiers(this)
            if isinstance(this, exp.Query):
                emit = self._parse_emit()
                if emit is not None:
                    this.set("emit", emit)
            return this

        def _parse_emit(self) -> Emit | None:
            emit: Emit | None = None
            while True:
                if self._match_text_seq("ALLOWED", "LATENESS"):
                    emit = emit or Emit()
                    emit.set("lateness", self._parse_bitwise())
                elif self._match_text_seq("EMIT"):
                    emit = emit or Emit()
                    self._parse_emission(emit)
                    while self._match(TokenType.COMMA):
                        self._parse_emission(emit)
                else:
                    return emit

        def _parse_emission(self, emit: Emit) -> exp.Expr:
            if self._match_text_seq("ON", "WINDOW", "CLOSE"):
                emit.set("on_close", True)
            elif self._match_text_seq("ON", "CHANGE") or self._match_text_seq("CHANGES"):
                emit.set("on_change", True)
            elif self._match_text_seq("WITH", "RETRACTIONS"):
                emit.set("mode", "value_and_retraction")
            elif self._match_text_seq("WITH", "DELTAS"):
                emit.set("mode", "delta")
            elif self._match_texts(("EARLY", "LATE")):
                which = self._prev.text.lower()
                self._match_text_seq("EVERY")
                amount = self._parse_bitwise()
                rows = self._match_texts(("ROWS", "ROW"))
                emit.set(f"{which}_rows" if rows else which, amount)
            else:
                self.raise_error("expected ON WINDOW CLOSE, ON CHANGE, EARLY EVERY, LATE EVERY or WITH RETRACTIONS")
            return emit


def written(node: exp.Expr) -> str:
    """Write a part of a query, for messages and to tell equal parts.

    >>> written(parse_query("SELECT a+ 1 FROM t").expressions[0])
    'a + 1'
    """
    try:
        return str(node.sql(dialect=Headrace))
    except (AttributeError, TypeError, ValueError):  # what sqlglot cannot write, such as a part that is not there
        return repr(node)


def parse_query(text: str) -> exp.Expr:
    """Read one query.

    Raises:
        QueryError: It cannot be read.

    >>> parse_query("SELECT a FROM t").expressions[0].name
    'a'
    """
    clauses = _checked(text)
    blanked = _without_clauses(text, clauses)
    tree = _parsed(blanked, text)
    if not isinstance(tree, exp.Query | exp.Values | exp.Table):
        raise QueryError("only a query can stand here", text, 0, 6, hint="Write SELECT ... FROM ....")
    return tree


def _parsed(blanked: str, text: str) -> exp.Expr:
    dialect = Headrace()
    try:
        trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(dialect.tokenize(blanked), blanked)
    except ParseError as error:
        raise _parse_error(error, text) from None
    except SqlglotError as error:
        raise QueryError(str(error).split("\n")[0], text) from None
    except RecursionError:
        raise QueryError("the query is nested too deeply", text, hint="Use WITH to name parts of it.") from None
    except (AttributeError, TypeError, ValueError, IndexError, KeyError) as error:  # what sqlglot's parser trips over
        raise QueryError("the query cannot be read", text, hint=f"The parser said: {error}") from error
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise QueryError(
            "the query is empty" if not found else "one query at a time",
            text,
            hint="Write SELECT ... FROM ...." if not found else "Run each query by itself.",
        )
    return found[0]


def _parse_error(error: ParseError, text: str) -> QueryError:
    details: dict[str, Any] = error.errors[0] if error.errors else {}
    marked = str(details.get("highlight") or "")
    line, column = int(details.get("line") or 1), int(details.get("col") or 1)
    lines = text.split("\n")
    begin = sum(len(each) + 1 for each in lines[: line - 1])
    start = min(begin + max(column - len(marked), 0), len(text))
    description = str(details.get("description") or error).split("\n")[0].rstrip(".")
    return QueryError(_described(description, marked), text, start, max(len(marked), 1))


def _described(message: str, marked: str) -> str:
    """Say what sqlglot says, without the names of its classes."""
    if marked == "SENTINEL":
        return "the query ends here, but something is missing"
    if message.startswith("Required"):
        return "something is missing here"
    if message.startswith("Invalid expression"):
        return f"{marked!r} does not fit here" if marked else "this does not fit here"
    expecting = re.match(r"Expecting (\S+)", message)
    if expecting:
        return f"expected {expecting.group(1)}" + (f", found {marked!r}" if marked else "")
    return message[:1].lower() + message[1:]


def _checked(text: str) -> list[tuple[int, int]]:
    """Check the brackets of a query, and find the clauses of each MATCH_RECOGNIZE, as offsets."""
    try:
        words = tokenize(text)
    except PlanError as error:
        raise _positioned(error, text) from None
    _check_one(words, text)
    depth = 0
    clauses: list[tuple[int, int]] = []
    place = 0
    while place < len(words):
        word = words[place]
        if word.is_punctuation("(", "["):
            depth += 1
            if depth > MAX_BRACKETS:
                raise QueryError(f"brackets are nested more than {MAX_BRACKETS} deep", text, word.start)
        elif word.is_punctuation(")", "]"):
            depth -= 1
        elif word.is_word("MATCH_RECOGNIZE") and words[place + 1].is_punctuation("("):
            closing = _closing(words, place + 1, text)
            clauses.append((words[place + 1].end, words[closing].start))
            place = closing
        place += 1
    return clauses


def _check_one(words: Sequence[ClauseToken], text: str) -> None:
    """Refuse what is no query, and more than one."""
    first = words[0]
    if first.kind == "end":
        return
    if not (first.is_word(*_BEGINNINGS) or first.is_punctuation("(")):
        raise QueryError("only a query can stand here", text, first.start, first.end - first.start,
                         hint="Write SELECT ... FROM ....")  # fmt: skip
    for word, following in itertools.pairwise(words):
        if word.is_punctuation(";") and following.kind != "end" and not following.is_punctuation(";"):
            raise QueryError("one query at a time", text, following.start, hint="Run each query by itself.")


def _closing(words: Sequence[ClauseToken], opening: int, text: str) -> int:
    try:
        return Cursor(tuple(words), opening, len(words) - 1).closing()
    except PlanError as error:
        raise _positioned(error, text) from None


def _positioned(error: PlanError, text: str) -> QueryError:
    found = re.match(r"line (\d+), column (\d+): (.*)", error.message, re.DOTALL)
    if found is None:
        return QueryError(error.message, "", hint=error.hint)
    lines = text.split("\n")
    start = sum(len(each) + 1 for each in lines[: int(found.group(1)) - 1]) + int(found.group(2)) - 1
    return QueryError(found.group(3), text, start, hint=error.hint)


def _without_clauses(text: str, clauses: list[tuple[int, int]]) -> str:
    """Blank the clauses of MATCH_RECOGNIZE out, so that every other character stays where it is."""
    for start, end in clauses:
        text = text[:start] + re.sub(r"[^\n]", " ", text[start:end]) + text[end:]
    return text


__all__ = ["Emit", "Headrace", "LateTable", "MatchTable", "WindowTable", "parse_query"]
