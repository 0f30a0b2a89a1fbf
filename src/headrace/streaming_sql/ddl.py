"""Statements beside queries: what `CREATE TABLE`, `INSERT INTO`, `SHOW` and the others say.

The forms are those of Flink SQL. Queries are not read here: they are cut out of the text, with their places, for
`headrace.streaming_sql.query`.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from headrace.cep.sql.lexer import Cursor, problem, tokenize
from headrace.errors import PlanError
from headrace.streaming_sql import statements
from headrace.streaming_sql.script import split_statements
from headrace.streaming_sql.table_definition import parse_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cep.sql.lexer import Token
    from headrace.streaming_sql.script import Fragment
    from headrace.streaming_sql.statements import Kind, Statement

_KINDS: Final[tuple[Kind, ...]] = ("table", "view", "function")
_QUERIES: Final = ("SELECT", "WITH", "VALUES", "FROM")
_KNOWN: Final = (
    "SELECT",
    "CREATE",
    "INSERT",
    "BEGIN",
    "EXECUTE",
    "EXPLAIN",
    "SHOW",
    "DESCRIBE",
    "SET",
    "RESET",
    "DROP",
    "WITH",
)
#: What SQL has besides, and what to do instead.
_REFUSED: Final = {
    "ALTER": "Drop it and create it anew: a definition lives as long as the session or the file.",
    "USE": "There is one catalog: name tables without a catalog and a database.",
    "UPDATE": "Records of a topic do not change. INSERT INTO a table with a PRIMARY KEY writes the new row of a key.",
    "DELETE": "Records of a topic do not change. Let the query behind INSERT INTO leave out what is not wanted.",
    "MERGE": "INSERT INTO a table with a PRIMARY KEY writes the new row of a key.",
    "TRUNCATE": "`headrace topics` deletes topics.",
    "LOAD": "CREATE FUNCTION name AS 'module:attribute' LANGUAGE PYTHON brings a function in.",
    "ADD": "CREATE FUNCTION name AS 'module:attribute' LANGUAGE PYTHON brings a function in.",
    "CALL": "There are no procedures.",
    "ANALYZE": "There are no statistics to collect.",
}


def parse_script(text: str) -> tuple[Statement, ...]:
    """Read all statements of a text.

    Args:
        text: Statements with semicolons between them.

    Raises:
        PlanError: One of them is wrong; the message says where.
    """
    return tuple(parse_statement(part) for part in split_statements(text))


def parse_statement(part: Fragment) -> Statement:
    """Read one statement.

    Args:
        part: The statement, without a semicolon at its end.

    Raises:
        PlanError: It is wrong; the message says where in the text.

    >>> from headrace.streaming_sql.script import Fragment
    >>> parse_statement(Fragment.whole("CREATE VIEW late AS SELECT * FROM scans")).query.text
    'SELECT * FROM scans'
    """
    word = part.text.split(maxsplit=1)[0].upper().lstrip("(") if part.text.split() else ""
    if word in _QUERIES or (part.text.startswith("(") and not word):
        return statements.Query(part)  # whoever plans the query reads it, and tells what is wrong in it
    try:
        return _Parser(part).statement()
    except PlanError as wrong:
        raise part.located(wrong) from None


class _Parser:
    def __init__(self, part: Fragment) -> None:
        self._part = part
        self._cursor = Cursor(tokenize(part.text))

    def statement(self) -> Statement:
        token = self._cursor.token
        readers: dict[str, Callable[[], Statement]] = {
            "CREATE": self._create,
            "INSERT": self._insert,
            "EXECUTE": self._execute,
            "BEGIN": self._set,
            "EXPLAIN": self._explain,
            "SHOW": self._show,
            "DESCRIBE": self._describe,
            "DESC": self._describe,
            "SET": self._set_option,
            "RESET": self._reset,
            "DROP": self._drop,
        }
        if (token.kind == "word" and token.text in _QUERIES) or token.is_punctuation("("):
            return statements.Query(self._rest())
        if token.kind != "word" or token.text not in readers:
            raise _unknown(token)
        found = readers[token.text]()
        if self._cursor.token.kind != "end":
            raise self._cursor.unexpected("the end of the statement", within=token.text)
        return found

    def _create(self) -> Statement:
        cursor = self._cursor
        cursor.advance()
        replaces = cursor.take_words("OR", "REPLACE")
        temporary = cursor.take_words("TEMPORARY", "SYSTEM") or cursor.take_words("TEMPORARY")
        kind = self._kind("CREATE")
        if replaces and kind == "table":
            raise problem("CREATE OR REPLACE TABLE", cursor.token.at, hint="Write DROP TABLE IF EXISTS before it.")
        if_not_exists = cursor.take_words("IF", "NOT", "EXISTS")
        name = self._name(f"CREATE {kind.upper()}")
        if kind == "table":
            return parse_table(self._part, cursor, name, temporary=temporary, if_not_exists=if_not_exists)
        flags: dict[str, Any] = {
            "temporary": temporary,
            "if_not_exists": if_not_exists,
            "or_replace": replaces,
            "text": self._part,
        }
        if kind == "view":
            return self._view(name, flags)
        return self._function(name, flags)

    def _view(self, name: str, flags: dict[str, Any]) -> statements.CreateView:
        columns = self._column_list("CREATE VIEW") if self._cursor.token.is_punctuation("(") else ()
        if self._cursor.take_words("COMMENT"):
            self._string("the comment")
        self._cursor.expect_words("AS", within="CREATE VIEW")
        return statements.CreateView(name=name, columns=columns, query=self._rest(), **flags)

    def _function(self, name: str, flags: dict[str, Any]) -> statements.CreateFunction:
        cursor = self._cursor
        cursor.expect_words("AS", within="CREATE FUNCTION")
        at = cursor.token
        place = self._string("the place of the function")
        if cursor.take_words("LANGUAGE"):
            language = cursor.expect_identifier(within="CREATE FUNCTION", what="a language")
            if language.text != "PYTHON":
                raise problem(f"LANGUAGE {language.value}", language.at, hint="Functions are written in Python.")
        if ":" not in place:
            hint = "Name a module and a function in it: CREATE FUNCTION clean AS 'functions:clean' LANGUAGE PYTHON."
            raise problem(f"the place of a function is {place!r}", at.at, hint=hint)
        return statements.CreateFunction(name=name, place=place, **flags)

    def _insert(self) -> statements.Insert:
        cursor = self._cursor
        begin = cursor.advance()
        if cursor.token.is_word("OVERWRITE"):
            raise problem("INSERT OVERWRITE", cursor.token.at, hint="Write INSERT INTO: results are added.")
        cursor.expect_words("INTO", within="INSERT")
        table = self._name("INSERT INTO")
        columns: tuple[str, ...] = ()
        if cursor.token.is_punctuation("(") and not cursor.peek(1).is_word(*_QUERIES):
            columns = self._column_list("INSERT INTO")
        if cursor.token.kind == "end":
            raise cursor.unexpected("SELECT", within="INSERT INTO")
        query = self._rest()
        return statements.Insert(table, columns, query, self._part.part(begin.start, len(self._part.text)))

    def _execute(self) -> Statement:
        cursor = self._cursor
        if cursor.at_words("EXECUTE", "STATEMENT", "SET"):
            return self._set()
        cursor.advance()
        if not cursor.token.is_word("INSERT"):
            raise cursor.unexpected("STATEMENT SET or INSERT", within="EXECUTE")
        return self._insert()

    def _set(self) -> statements.StatementSet:
        cursor, part = self._cursor, self._part
        if cursor.take_words("EXECUTE", "STATEMENT", "SET"):
            cursor.expect_words("BEGIN", within="the statement set")
        else:
            cursor.expect_words("BEGIN", "STATEMENT", "SET", within="the statement set")
            cursor.expect(";", within="the statement set")
        begin = cursor.token.start
        last = cursor.tokens[cursor.stop - 1]
        if not last.is_word("END"):
            raise problem(
                "the statement set has no END", cursor.tokens[0].at, hint="Write END; behind its last INSERT."
            )
        inside = part.part(begin, last.start)
        inserts: list[statements.Insert] = []
        for each in split_statements(inside.text):
            found = parse_statement(inside.part(each.start, each.end))
            if not isinstance(found, statements.Insert):
                raise inside.problem("a statement set holds INSERT INTO only", each.start)
            inserts.append(found)
        if not inserts:
            raise problem("the statement set is empty", cursor.tokens[0].at, hint="Put INSERT INTO ... between.")
        cursor.index = cursor.stop
        return statements.StatementSet(tuple(inserts), part)

    def _explain(self) -> statements.Explain:
        cursor = self._cursor
        cursor.advance()
        cursor.take_words("PLAN", "FOR")
        if cursor.token.kind == "end":
            raise cursor.unexpected("a SELECT or INSERT INTO", within="EXPLAIN")
        at = cursor.token
        found = parse_statement(self._rest())
        if not isinstance(found, statements.Query | statements.Insert | statements.StatementSet):
            raise problem(
                "EXPLAIN of a statement that computes nothing", at.at, hint="Give it a SELECT or INSERT INTO."
            )
        return statements.Explain(found, self._part)

    def _show(self) -> Statement:
        cursor = self._cursor
        cursor.advance()
        if cursor.take_words("CREATE"):
            kind = self._kind("SHOW CREATE")
            return statements.ShowCreate(kind, self._name("SHOW CREATE"), self._part)
        cursor.take_words("USER")
        token = cursor.expect_identifier(within="SHOW", what="TABLES, VIEWS, FUNCTIONS or JOBS")
        match token.text:
            case "TABLES" | "VIEWS" | "FUNCTIONS" | "JOBS":
                like = self._string("a pattern") if cursor.take_words("LIKE") else None
                return statements.Show(token.text.lower(), like, self._part)  # type: ignore[arg-type]
        raise problem(
            f"SHOW {token.value}", token.at, hint="Write SHOW TABLES, VIEWS, FUNCTIONS, JOBS or CREATE TABLE name."
        )

    def _describe(self) -> statements.Describe:
        self._cursor.advance()
        self._cursor.take_words("EXTENDED")
        return statements.Describe(self._name("DESCRIBE"), self._part)

    def _set_option(self) -> statements.SetOption:
        cursor = self._cursor
        cursor.advance()
        if cursor.token.kind == "end":
            return statements.SetOption(None, "", self._part)
        key = self._key()
        cursor.expect("=", within="SET")
        start = cursor.token
        value = cursor.advance().value if start.kind == "string" else self._rest().text
        return statements.SetOption(key, value, self._part)

    def _reset(self) -> statements.ResetOption:
        self._cursor.advance()
        return statements.ResetOption(None if self._cursor.token.kind == "end" else self._key(), self._part)

    def _drop(self) -> statements.Drop:
        cursor = self._cursor
        cursor.advance()
        _ = cursor.take_words("TEMPORARY", "SYSTEM") or cursor.take_words("TEMPORARY")
        kind = self._kind("DROP")
        if_exists = cursor.take_words("IF", "EXISTS")
        return statements.Drop(kind, self._name("DROP"), if_exists, self._part)

    def _kind(self, within: str) -> Kind:
        token = self._cursor.token
        for kind in _KINDS:
            if self._cursor.take_words(kind.upper()):
                return kind
        if token.is_word("DATABASE", "CATALOG", "SCHEMA"):
            raise problem(f"{within} {token.value}", token.at, hint=_REFUSED["USE"])
        raise self._cursor.unexpected("TABLE, VIEW or FUNCTION", within=within)

    def _name(self, within: str) -> str:
        token = self._cursor.expect_identifier(within=within)
        if self._cursor.token.is_punctuation("."):
            raise problem(f"a name with a dot behind {token.value}", self._cursor.token.at, hint=_REFUSED["USE"])
        return token.value

    def _key(self) -> str:
        """Read the name of a setting: a string, or words with dots and dashes."""
        cursor = self._cursor
        if cursor.token.kind == "string":
            return cursor.advance().value
        pieces = [cursor.expect_identifier(within="SET", what="the name of a setting").value]
        while (mark := cursor.take(".", "-")) is not None:
            pieces += [mark.text, cursor.expect_identifier(within="SET", what="the name of a setting").value]
        return "".join(pieces)

    def _string(self, what: str) -> str:
        if self._cursor.token.kind != "string":
            raise self._cursor.unexpected(f"{what} in quotes", within="the statement")
        return self._cursor.advance().value

    def _column_list(self, within: str) -> tuple[str, ...]:
        cursor = self._cursor
        cursor.expect("(", within=within)
        names: list[str] = []
        while True:
            token = cursor.expect_identifier(within=within, what="the name of a column")
            if token.value in names:
                raise problem(f"column {token.value} is named twice", token.at)
            names.append(token.value)
            if not cursor.take(","):
                break
        cursor.expect(")", within=within)
        return tuple(names)

    def _rest(self) -> Fragment:
        """Take all that is left as a part of its own."""
        found = self._part.part(self._cursor.token.start, len(self._part.text))
        self._cursor.index = self._cursor.stop
        return found


def _unknown(token: Token) -> PlanError:
    if token.kind == "word" and token.text in _REFUSED:
        return problem(f"{token.text} is not a statement here", token.at, hint=_REFUSED[token.text])
    close = difflib.get_close_matches(token.text, _KNOWN, n=1)
    guess = f"Did you mean {close[0]}? " if close else ""
    shown = token.value or "nothing"
    return problem(f"a statement cannot begin with {shown!r}", token.at, hint=f"{guess}It begins with {_listed()}.")


def _listed() -> str:
    return ", ".join(_KNOWN[:-1]) + f" or {_KNOWN[-1]}"
