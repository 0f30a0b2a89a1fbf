"""The page on MATCH_RECOGNIZE names what there is."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.cep.program import MAX_INSTRUCTIONS
from headrace.cep.sql.aggregates import AGGREGATES
from headrace.cep.sql.functions import FUNCTIONS
from headrace.cep.sql.lexer import MAX_QUERY_CHARACTERS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "match-recognize.md"
# Written as operators, or made by the parser for such.
UNNAMED = {"field", "ilike", "in", "is_distinct", "is_null", "is_true", "like", "negate", "not", "subscript"}


def test_every_function_is_listed() -> None:
    words = set(re.findall(r"[a-z_0-9]+", PAGE.read_text()))
    named = {name for name in (*FUNCTIONS, *AGGREGATES) if name[0].isalpha()}
    assert named - UNNAMED <= words


def test_bounds_are_as_stated() -> None:
    text = PAGE.read_text()
    assert f"{MAX_QUERY_CHARACTERS:,} characters" in text
    assert f"| {MAX_INSTRUCTIONS:,} |" in text
