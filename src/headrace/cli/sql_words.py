"""Completion in the shell of `headrace sql`: tables, columns, functions and keywords."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from prompt_toolkit.completion import Completer, Completion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from headrace.streaming_sql.catalog import Catalog

_WORDS: Final = """
    ALLOWED AND AS ASC BEGIN BETWEEN BY CASE CAST CREATE CROSS CUMULATE DEFINE DESC DESCRIBE DESCRIPTOR
    DISTINCT DROP ELSE EMIT END EXCEPT EXECUTE EXISTS EXPLAIN FALSE FILTER FOR FROM FULL FUNCTION GROUP
    GROUPING HAVING HOP IF IN INNER INSERT INTERSECT INTERVAL INTO IS JOIN KEY LANGUAGE LATENESS LATERAL LEFT
    LIKE LIMIT MATCH_RECOGNIZE MEASURES METADATA NOT NULL OF ON OR ORDER OUTER OVER PARTITION PATTERN PRIMARY
    RANGE REPLACE RESET RIGHT ROWS SELECT SESSION SET SETS SHOW STATEMENT SYSTEM_TIME TABLE TABLES TEMPORARY
    THEN TRUE TUMBLE UNION UNNEST USING VALUES VIEW VIEWS VIRTUAL WATERMARK WHEN WHERE WINDOW WITH WITHIN
"""
KEYWORDS: Final = tuple(_WORDS.split())
COMMANDS: Final = {
    r"\d": "list tables and views; \\d NAME: the columns of one",
    r"\df": "list the functions of users",
    r"\e": "write the last statement anew in your editor",
    r"\i": "carry out the statements of a file: \\i FILE",
    r"\jobs": "list the jobs that this shell runs; \\log NAME and \\stop NAME",
    r"\log": "show the end of the log of a job",
    r"\q": "leave",
    r"\stop": "stop a job",
    r"\timing": "say how long statements take, or stop saying so",
    r"\watch": "run the last query again and again: \\watch SECONDS",
    r"\?": "this help",
}
#: Words behind which a table stands.
_BEFORE_TABLES: Final = re.compile(r"(?:\b(?:from|join|into|describe|desc|table|view)|\\d|,)\s+[\w`]*$", re.IGNORECASE)
_WORD: Final = re.compile(r"[\w]+$")


class SqlCompleter(Completer):
    """Completes words of SQL.

    Args:
        catalog: The tables and views; asked at every word.
        functions: The names of functions.
    """

    def __init__(self, catalog: Catalog, functions: Iterable[str]) -> None:
        self._catalog = catalog
        self._functions = sorted({name.upper() for name in functions})

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Give what the word before the cursor may become."""
        del complete_event
        before = document.text_before_cursor
        if re.fullmatch(r"\s*\\\w*", before):
            begun = before.strip()
            for command, does in COMMANDS.items():
                if command.startswith(begun):
                    yield Completion(command, -len(begun), display_meta=does)
            return
        found = _WORD.search(before)
        begun = found.group() if found else ""
        for text, meta in self._candidates(before, begun):
            yield Completion(text, -len(begun), display_meta=meta)

    def _candidates(self, before: str, begun: str) -> Iterator[tuple[str, str]]:
        relations = {each.name: each.what for each in self._catalog.tables}
        relations |= {each.name: "view" for each in self._catalog.views}
        for name, what in relations.items():
            if name.lower().startswith(begun.lower()):
                yield name, what
        if _BEFORE_TABLES.search(before) or not begun:
            return
        for name, kind in self._columns(before).items():
            if name.lower().startswith(begun.lower()):
                yield name, kind
        shape = str.lower if begun.islower() else str.upper
        for word in KEYWORDS:
            if word.startswith(begun.upper()):
                yield shape(word), ""
        for name in self._functions:
            if name.startswith(begun.upper()) and name not in KEYWORDS:
                yield shape(name) + "(", "function"

    def _columns(self, text: str) -> dict[str, str]:
        """Give the columns of the tables that are named, or of all where none is."""
        words = {word.lower() for word in re.findall(r"\w+", text)}
        known = {each.name: each.columns for each in self._catalog.tables}
        known |= {each.name: each.planned.schema for each in self._catalog.views}
        named = {name: columns for name, columns in known.items() if name.lower() in words} or known
        return {column: name for name, columns in named.items() for column in columns}
