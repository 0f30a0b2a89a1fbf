"""SQL text to tokens that know where they stand.

Row patterns write `{-`, `*?`, `^` and `$`, which general SQL tokenizers read as something else, and every error of a
query must name a line and a column. So the text is cut here, into words, quoted names, strings, numbers and
punctuation; the row-pattern clauses are parsed from these tokens, and the SQL around them goes on to sqlglot.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from headrace.errors import PlanError

MAX_QUERY_CHARACTERS = 1_000_000
"""Longer queries are refused: nobody writes them by hand, and parsing them would take gigabytes."""

TokenKind = Literal["word", "quoted", "string", "number", "punctuation", "end"]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in the query, both counted from 1."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Token:
    """One token: `text` as the parser compares it (words in upper case), `value` as the user wrote it, unquoted."""

    kind: TokenKind
    text: str
    value: str
    at: Position
    start: int
    end: int

    def is_word(self, *words: str) -> bool:
        """Whether this is one of the given keywords (in upper case)."""
        return self.kind == "word" and self.text in words

    def is_punctuation(self, *marks: str) -> bool:
        """Whether this is one of the given marks."""
        return self.kind == "punctuation" and self.text in marks


def problem(message: str, at: Position, *, hint: str = "") -> PlanError:
    """The error for something wrong at a place in the query."""
    return PlanError(f"{at}: {message}", hint=hint)


_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*.*?\*/)
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
  | (?P<number>(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<word>[^\W\d]\w*)
  | (?P<punctuation><=|>=|<>|!=|\|\||->|=>|::|[-+*/%()\[\]{},.;:=<>|?^$!&@#~])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> tuple[Token, ...]:
    r"""Cuts a query into tokens; the last one is the end.

    >>> [token.text for token in tokenize('SELECT a."b" -- comment\n FROM t')]
    ['SELECT', 'A', '.', 'b', 'FROM', 'T', '']
    """
    if len(text) > MAX_QUERY_CHARACTERS:
        raise PlanError(
            f"The query has {len(text):,} characters; at most {MAX_QUERY_CHARACTERS:,} are read",
            hint="Put the data into a table, not into the text of the query.",
        )
    tokens: list[Token] = []
    offset, line, line_start = 0, 1, 0
    while offset < len(text):
        at = Position(line, offset - line_start + 1)
        found = _TOKEN.match(text, offset)
        if found is None:
            raise problem(_unreadable(text[offset]), at)
        kind, raw = found.lastgroup, found.group()
        if kind not in ("space", "comment"):
            tokens.append(_token(str(kind), raw, at, offset, found.end()))
        newlines = raw.count("\n")
        if newlines:
            line += newlines
            line_start = offset + raw.rindex("\n") + 1
        offset = found.end()
    tokens.append(Token("end", "", "", Position(line, offset - line_start + 1), offset, offset))
    return tuple(tokens)


def _token(kind: str, raw: str, at: Position, start: int, end: int) -> Token:
    match kind:
        case "word":
            return Token("word", raw.upper(), raw, at, start, end)
        case "quoted":
            mark = raw[0]
            value = raw[1:-1].replace(mark * 2, mark)
            return Token("quoted", value, value, at, start, end)
        case "string":
            value = raw[1:-1].replace("''", "'")
            return Token("string", value, value, at, start, end)
        case "number":
            return Token("number", raw, raw.replace("_", ""), at, start, end)
        case _:
            return Token("punctuation", raw, raw, at, start, end)


def _unreadable(character: str) -> str:
    if character == "'":
        return "the string that begins here has no closing quote"
    if character in '"`':
        return "the quoted name that begins here has no closing quote"
    return f"unexpected character {character!r}"


class Cursor:
    """A place in a run of tokens, with the small steps every parser needs.

    Args:
        tokens: The tokens of the whole query.
        start: Index of the first token to read.
        stop: Index after the last one.
    """

    def __init__(self, tokens: tuple[Token, ...], start: int = 0, stop: int | None = None) -> None:
        self.tokens = tokens
        self.index = start
        self.stop = len(tokens) - 1 if stop is None else stop
        last = tokens[self.stop]
        self._end = Token("end", "", "", last.at, last.start, last.start)

    @property
    def token(self) -> Token:
        """The token at the cursor."""
        return self.peek(0)

    def peek(self, ahead: int) -> Token:
        """The token some places further on."""
        place = self.index + ahead
        return self.tokens[place] if place < self.stop else self._end

    def advance(self) -> Token:
        """Returns the token at the cursor and steps over it."""
        token = self.token
        self.index += 1
        return token

    def at_words(self, *words: str) -> bool:
        """Whether the next tokens are exactly these keywords, in this order."""
        return all(self.peek(place).is_word(word) for place, word in enumerate(words))

    def take_words(self, *words: str) -> bool:
        """Steps over the keywords if they come next."""
        if not self.at_words(*words):
            return False
        self.index += len(words)
        return True

    def take(self, *marks: str) -> Token | None:
        """Steps over a punctuation mark if it comes next."""
        return self.advance() if self.token.is_punctuation(*marks) else None

    def expect(self, mark: str, *, within: str) -> Token:
        """Steps over a mark that must come next."""
        if not self.token.is_punctuation(mark):
            raise self.unexpected(f"{mark!r}", within=within)
        return self.advance()

    def expect_words(self, *words: str, within: str) -> None:
        """Steps over keywords that must come next."""
        if not self.take_words(*words):
            raise self.unexpected(" ".join(words), within=within)

    def expect_identifier(self, *, within: str, what: str = "a name") -> Token:
        """Steps over a plain or quoted name."""
        if self.token.kind not in ("word", "quoted"):
            raise self.unexpected(what, within=within)
        return self.advance()

    def unexpected(self, wanted: str, *, within: str) -> PlanError:
        """The error for a token that does not fit here."""
        token = self.token
        found = "the end" if token.kind == "end" else repr(token.value)
        return problem(f"expected {wanted} in {within}, found {found}", token.at)

    def closing(self) -> int:
        """Index of the bracket that closes the one at the cursor."""
        depth = 0
        for place in range(self.index, self.stop):
            token = self.tokens[place]
            if token.is_punctuation("(", "["):
                depth += 1
            elif token.is_punctuation(")", "]"):
                depth -= 1
                if depth == 0:
                    return place
        raise problem("this bracket is never closed", self.token.at)
