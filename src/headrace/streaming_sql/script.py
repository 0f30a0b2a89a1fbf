"""A text of SQL as statements that know where they stand.

Statements end with a semicolon. One in a string, a quoted name or a comment ends nothing; between BEGIN and END of a
statement set the statements belong to the set. An error that was found in a statement is told by its place in the whole
text, with the line it is in and a caret below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.cep.sql.lexer import MAX_QUERY_CHARACTERS, Position
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.errors import HeadraceError

_PIECE = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<open_comment>/\*)
  | (?P<closed>'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`)
  | (?P<open>['"`])
  | (?P<end>;)
  | (?P<word>\w+)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PLACE = re.compile(r"line (\d+), column (\d+): ")
_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Fragment:
    """A part of a text of SQL.

    Args:
        source: The whole text.
        start: Where the part begins.
        end: Where it ends.
        at: The place at which it begins.
    """

    source: str = field(repr=False)
    start: int
    end: int
    at: Position

    @classmethod
    def whole(cls, text: str) -> Fragment:
        """Take a whole text as one part."""
        return cls(text, 0, len(text), Position(1, 1))

    @property
    def text(self) -> str:
        """The part."""
        return self.source[self.start : self.end]

    def part(self, start: int, end: int) -> Fragment:
        """Give a part of this part.

        Args:
            start: Where it begins, counted from the beginning of this part.
            end: Where it ends.
        """
        return Fragment(self.source, self.start + start, self.start + end, self.position(start))

    def position(self, offset: int) -> Position:
        """Tell the place of an offset in the whole text.

        Args:
            offset: Counted from the beginning of this part.
        """
        before = self.source[self.start : self.start + offset]
        lines = before.count("\n")
        column = self.at.column + offset if not lines else offset - before.rfind("\n")
        return Position(self.at.line + lines, column)

    def placed(self, at: Position) -> Position:
        """Tell the place in the whole text of a place that was counted from the beginning of this part."""
        column = self.at.column + at.column - 1 if at.line == 1 else at.column
        return Position(self.at.line + at.line - 1, column)

    def located(self, problem: HeadraceError) -> ScriptError:
        """Give an error of this part with its place in the whole text, and with the line it is in.

        Args:
            problem: The error; a place in its message is counted from the beginning of this part.
        """
        if isinstance(problem, ScriptError):
            return problem
        told, marks = _without_excerpt(problem.message)
        found = _PLACE.match(told)
        at = self.placed(Position(int(found[1]), int(found[2]))) if found else self.at
        message = told[found.end() :] if found else told
        return ScriptError(f"{at}: {message}\n{excerpt(self.source, at, marks)}", hint=problem.hint)

    def moved(self, text: str) -> str:
        """Give a text that begins with a place in this part with its place in the whole text."""
        found = _PLACE.match(text)
        if found is None:
            return text
        return f"{self.placed(Position(int(found[1]), int(found[2])))}: {text[found.end() :]}"

    def problem(self, message: str, offset: int = 0, *, hint: str = "") -> ScriptError:
        """Make the error for something wrong at an offset of this part."""
        at = self.position(offset)
        return ScriptError(f"{at}: {message}\n{excerpt(self.source, at)}", hint=hint)


class ScriptError(PlanError):
    """Something is wrong in a text of SQL; the message says where, and shows the line."""


def _without_excerpt(message: str) -> tuple[str, int]:
    """Take off the line that an error shows, with the marks below it; tell how many marks there are."""
    if not message.endswith("^"):
        return message, 1
    told = message.rsplit("\n", 2)
    return (told[0], message.count("^", message.rfind("\n"))) if len(told) == 3 else (message, 1)


def excerpt(text: str, at: Position, marks: int = 1) -> str:
    r"""Show the line of a place, with carets below it.

    >>> print(excerpt("SELECT a\nFROM scan", Position(2, 6)))
      FROM scan
           ^
    """
    lines = text.split("\n", at.line)
    line = lines[at.line - 1].rstrip("\r") if at.line <= len(lines) else ""
    begin = max(0, at.column - 1 - _SHOWN // 2) if len(line) > _SHOWN else 0
    shown = line[begin : begin + _SHOWN].replace("\t", " ")
    before = at.column - 1 - begin
    return f"  {shown}\n  {' ' * before}{'^' * max(1, min(marks, len(shown) - before))}"


def split_statements(text: str) -> tuple[Fragment, ...]:
    r"""Split a text into its statements, without the semicolons.

    >>> [part.text for part in split_statements("SELECT ';' -- a; b\n; SHOW TABLES;")]
    ["SELECT ';' -- a; b", 'SHOW TABLES']

    Raises:
        PlanError: The text is too long, or a string, a quoted name, a comment or a statement set has no end.
    """
    if len(text) > MAX_QUERY_CHARACTERS:
        raise PlanError(
            f"the text has {len(text):,} characters; at most {MAX_QUERY_CHARACTERS:,} are read",
            hint="Put data into files or topics, not into the text of a query.",
        )
    scan = _Scan(text)
    found = tuple(scan.statements())
    if scan.unclosed is not None:
        raise Fragment(text, scan.open_at, len(text), scan.position(scan.open_at)).problem(
            f"the {scan.unclosed} that begins here has no end", hint="Close it."
        )
    return found


def is_complete(text: str) -> bool:
    """Tell whether a text ends with the end of a statement, so that nothing more is to be waited for.

    >>> [is_complete(text) for text in ("SELECT 1", "SELECT 1;", "SELECT ';", "", "SHOW TABLES; -- all")]
    [False, True, False, True, True]
    """
    scan = _Scan(text)
    for _ in scan.statements():
        pass
    return scan.unclosed is None and not scan.pending


class _Scan:
    """One pass over a text."""

    def __init__(self, text: str) -> None:
        self._text = text
        #: What has no end, and where it begins.
        self.unclosed: str | None = None
        self.open_at = 0
        #: Whether the last statement has no semicolon.
        self.pending = False
        self._line, self._line_start, self._counted = 1, 0, 0

    def position(self, offset: int) -> Position:
        """Tell the place of an offset; offsets are asked for in order."""
        lines = self._text.count("\n", self._counted, offset)
        if lines:
            self._line += lines
            self._line_start = self._text.rfind("\n", 0, offset) + 1
        self._counted = offset
        return Position(self._line, offset - self._line_start + 1)

    def statements(self) -> Iterator[Fragment]:
        """Give the statements."""
        start: int | None = None
        end = 0
        words: list[str] = []  # the first words of the statement, or of the statement in a set
        in_set = False
        for piece in _PIECE.finditer(self._text):
            kind = piece.lastgroup
            if kind in ("space", "comment"):
                end = piece.end() if kind == "comment" and start is not None else end
                continue
            if kind in ("open", "open_comment"):
                names = {"'": "string", '"': "quoted name", "`": "quoted name"}
                self.unclosed, self.open_at = names.get(piece.group(), "comment"), piece.start()
                return
            if kind == "end":
                if start is not None and not (in_set and words != ["END"]):
                    yield self._statement(start, end)
                    start, in_set = None, False
                words = []
                continue
            if start is None:
                start = piece.start()
            end = piece.end()
            if len(words) < 4:
                words.append(piece.group().upper() if kind == "word" else "")
            if words in (["BEGIN", "STATEMENT", "SET"], ["EXECUTE", "STATEMENT", "SET", "BEGIN"]) and not in_set:
                in_set, words = True, []
        if start is None:
            return
        self.pending = True
        if in_set and words != ["END"]:
            self.unclosed, self.open_at = "statement set", start
            return
        yield self._statement(start, end)

    def _statement(self, start: int, end: int) -> Fragment:
        return Fragment(self._text, start, end, self.position(start))
