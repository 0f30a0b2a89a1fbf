"""What stands behind `CREATE TABLE name`: columns, watermark, primary key, options."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

from headrace.cep.sql.expression_parser import ExpressionParser
from headrace.cep.sql.lexer import problem
from headrace.streaming_sql.column_types import parse_type
from headrace.streaming_sql.statements import (
    ComputedColumn,
    CreateTable,
    MetadataColumn,
    Option,
    PhysicalColumn,
    Watermark,
)

if TYPE_CHECKING:
    from headrace.cep.sql.lexer import Cursor, Token
    from headrace.streaming_sql.script import Fragment
    from headrace.streaming_sql.statements import Column

_WITHIN: Final = "CREATE TABLE"
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_WATERMARK_HINT: Final = "Write WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, with the same column twice."


def parse_table(part: Fragment, cursor: Cursor, name: str, *, temporary: bool, if_not_exists: bool) -> CreateTable:
    """Read a table from behind its name on.

    Args:
        part: The statement.
        cursor: Its tokens, behind the name.
        name: The name.
        temporary: Whether it was called so.
        if_not_exists: Whether a table of this name may be there.

    Raises:
        PlanError: It is wrong.
    """
    body = _Body(part, cursor)
    if cursor.token.is_word("LIKE"):
        raise problem("CREATE TABLE ... LIKE", cursor.token.at, hint="Write the columns and options out.")
    if not cursor.token.is_word("WITH"):  # without columns: those of the file
        body.read()
    comment = ""
    if cursor.take_words("COMMENT"):
        comment = _string(cursor, "the comment").value
    if cursor.token.is_word("PARTITIONED", "DISTRIBUTED"):
        raise problem(
            f"{cursor.token.text} BY",
            cursor.token.at,
            hint="Records are spread by the key of the query. Leave it out; for files see 'sink.partition-by'.",
        )
    options: dict[str, Option] = {}
    if cursor.take_words("WITH"):
        options = parse_options(part, cursor)
    if cursor.token.is_word("AS", "LIKE"):
        raise problem(
            f"CREATE TABLE ... {cursor.token.text}",
            cursor.token.at,
            hint="Write CREATE TABLE with its columns, then INSERT INTO it; or CREATE VIEW ... AS SELECT.",
        )
    return CreateTable(
        name=name,
        columns=tuple(body.columns.values()),
        watermark=body.watermark,
        primary_key=body.primary_key,
        options=options,
        temporary=temporary,
        if_not_exists=if_not_exists,
        comment=comment,
        text=part,
    )


def parse_options(part: Fragment, cursor: Cursor) -> dict[str, Option]:
    """Read `('key' = 'value', ...)`."""
    cursor.expect("(", within="WITH")
    options: dict[str, Option] = {}
    while not cursor.token.is_punctuation(")"):
        key = _string(cursor, "the name of an option")
        cursor.expect("=", within="WITH")
        value = _string(cursor, f"the value of {key.value!r}")
        if key.value in options:
            raise problem(f"option {key.value!r} is given twice", key.at)
        options[key.value] = Option(value.value, part.part(key.start, value.end))
        if not cursor.take(","):
            break
    cursor.expect(")", within="WITH")
    return options


class _Body:
    """What stands between the brackets."""

    def __init__(self, part: Fragment, cursor: Cursor) -> None:
        self._part = part
        self._cursor = cursor
        self.columns: dict[str, Column] = {}
        self.watermark: Watermark | None = None
        self.primary_key: tuple[str, ...] = ()
        self._key_at: Token | None = None

    def read(self) -> None:
        cursor = self._cursor
        cursor.expect("(", within=_WITHIN)
        while True:
            if cursor.at_words("WATERMARK", "FOR"):
                self._watermark()
            elif cursor.at_words("PRIMARY", "KEY") or cursor.token.is_word("CONSTRAINT"):
                self._primary_key()
            else:
                self._column()
            if not cursor.take(","):
                break
        cursor.expect(")", within=_WITHIN)
        if self.watermark is not None and self.watermark.column not in self.columns:
            raise problem(
                f"WATERMARK FOR {self.watermark.column}, which is no column of the table",
                cursor.tokens[0].at,
                hint=f"Columns: {', '.join(self.columns)}.",
            )
        for name in self.primary_key:
            if not isinstance(self.columns.get(name), PhysicalColumn):
                at = self._key_at or cursor.tokens[0]
                raise problem(f"the PRIMARY KEY names {name}, which is no physical column of the table", at.at)

    def _column(self) -> None:
        cursor = self._cursor
        name = cursor.expect_identifier(within=_WITHIN, what="the name of a column")
        if name.value in self.columns:
            raise problem(f"two columns are named {name.value}", name.at)
        if cursor.take_words("AS"):
            self.columns[name.value] = ComputedColumn(name.value, self._expression())
            self._comment()
            return
        first = cursor.token
        dtype = parse_type(cursor)
        written = self._part.text[first.start : cursor.tokens[cursor.index - 1].end]
        if cursor.take_words("METADATA"):
            key = _string(cursor, "the name of the metadata").value if cursor.take_words("FROM") else name.value
            is_virtual = cursor.take_words("VIRTUAL")
            at = self._part.part(name.start, cursor.tokens[cursor.index - 1].end)
            self.columns[name.value] = MetadataColumn(name.value, dtype, written, key, is_virtual, at)
        else:
            self.columns[name.value] = PhysicalColumn(name.value, dtype, written)
            if cursor.at_words("PRIMARY", "KEY"):
                self._take_key(cursor.token)
                cursor.take_words("PRIMARY", "KEY")
                self._not_enforced()
                self.primary_key = (name.value,)
        self._comment()

    def _comment(self) -> None:
        if self._cursor.take_words("COMMENT"):
            _string(self._cursor, "the comment")

    def _expression(self) -> Fragment:
        """Cut an expression out: up to a comma or the closing bracket."""
        cursor = self._cursor
        first = cursor.token
        depth = 0
        while cursor.token.kind != "end":
            if cursor.token.is_punctuation("(", "["):
                depth += 1
            elif cursor.token.is_punctuation(")", "]"):
                if not depth:
                    break
                depth -= 1
            elif not depth and (cursor.token.is_punctuation(",") or cursor.token.is_word("COMMENT")):
                break
            cursor.advance()
        last = cursor.tokens[cursor.index - 1]
        if cursor.token is first:
            raise cursor.unexpected("an expression", within="the computed column")
        return self._part.part(first.start, last.end)

    def _watermark(self) -> None:
        cursor = self._cursor
        begin = cursor.token
        if self.watermark is not None:
            raise problem("a second WATERMARK", begin.at, hint="A table has one time of its events.")
        cursor.take_words("WATERMARK", "FOR")
        column = cursor.expect_identifier(within="WATERMARK")
        cursor.expect_words("AS", within="WATERMARK")
        named = cursor.expect_identifier(within="WATERMARK", what=column.value)
        if named.value != column.value:
            raise problem(
                f"the watermark of {column.value} is computed from {named.value}", named.at, hint=_WATERMARK_HINT
            )
        delay = 0
        if cursor.take("-"):
            at = cursor.token
            if not at.is_word("INTERVAL"):
                raise cursor.unexpected("INTERVAL", within="WATERMARK")
            value = ExpressionParser(cursor, self._part.text).interval().value
            if not isinstance(value, dt.timedelta) or value < dt.timedelta():
                raise problem("a watermark's delay is an interval of fixed length, 0 or more", at.at)
            delay = value // _MICROSECOND
        if not cursor.token.is_punctuation(",", ")"):
            raise problem(
                "a watermark is a column, or a column minus an interval", cursor.token.at, hint=_WATERMARK_HINT
            )
        at_part = self._part.part(begin.start, cursor.tokens[cursor.index - 1].end)
        self.watermark = Watermark(column.value, delay, at_part)

    def _primary_key(self) -> None:
        cursor = self._cursor
        if cursor.take_words("CONSTRAINT"):
            cursor.expect_identifier(within="CONSTRAINT")
        self._take_key(cursor.token)
        cursor.expect_words("PRIMARY", "KEY", within=_WITHIN)
        cursor.expect("(", within="PRIMARY KEY")
        names = [cursor.expect_identifier(within="PRIMARY KEY", what="the name of a column").value]
        while cursor.take(","):
            names.append(cursor.expect_identifier(within="PRIMARY KEY", what="the name of a column").value)
        cursor.expect(")", within="PRIMARY KEY")
        self._not_enforced()
        self.primary_key = tuple(dict.fromkeys(names))

    def _take_key(self, token: Token) -> None:
        if self._key_at is not None:
            raise problem("a second PRIMARY KEY", token.at, hint="Name all its columns in one: PRIMARY KEY (a, b).")
        self._key_at = token

    def _not_enforced(self) -> None:
        if not self._cursor.take_words("NOT", "ENFORCED"):
            raise self._cursor.unexpected("NOT ENFORCED", within="PRIMARY KEY")


def _string(cursor: Cursor, what: str) -> Token:
    if cursor.token.kind != "string":
        raise cursor.unexpected(f"{what} in single quotes", within=_WITHIN)
    return cursor.advance()
