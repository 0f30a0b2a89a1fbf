"""Functions of texts that are computed value by value: regular expressions with groups, addresses, kinds of texts."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote_plus, unquote_plus, urlsplit

import polars as pl

from headrace.streaming_sql.functions import ArgumentError, Table, text_constant
from headrace.streaming_sql.text_functions import by_row, regex_of
from headrace.streaming_sql.values import BIGINT, BOOLEAN, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.values import Bound

_TEXTS = pl.List(STRING)
_MAP = pl.List(pl.Struct({"key": STRING, "value": STRING}))
_ALPHA = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+", re.ASCII)
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def add_text_patterns(table: Table) -> None:
    """Add them to the table."""
    _regular(table)
    _replacing(table)
    _addresses(table)
    _kinds(table)
    _codes(table)


def _regular(table: Table) -> None:
    group = "regular expressions"
    table.add(
        "REGEXP_COUNT(text, pattern)",
        group,
        "How often the pattern matches.",
        ("REGEXP_COUNT('a1b2', '[0-9]')", "2"),
        BIGINT,
        lambda a: a[0].expr.str.count_matches(regex_of(a[1])).cast(BIGINT),
        "text",
    )
    table.add(
        "REGEXP_SUBSTR(text, pattern)",
        group,
        "The first match; null if there is none.",
        ("REGEXP_SUBSTR('tram 17', '[0-9]+')", "'17'"),
        STRING,
        lambda a: a[0].expr.str.extract(regex_of(a[1]), 0),
        "text",
    )
    table.add(
        "REGEXP_EXTRACT_ALL(text, pattern, group)",
        group,
        "What a group of the pattern matched, for every match; 1 unless told otherwise, 0 is all of it.",
        ("REGEXP_EXTRACT_ALL('a1 b2', '([a-z])([0-9])', 2)", "['1', '2']"),
        _TEXTS,
        _extract_all,
        "text",
        "text",
        "integer",
        optional=1,
    )
    table.add(
        "REGEXP_INSTR(text, pattern)",
        group,
        "Where the first match begins, counted from 1; 0 if there is none.",
        ("REGEXP_INSTR('tram 17', '[0-9]')", "6"),
        BIGINT,
        lambda a: _place_of_match(a[0].expr, regex_of(a[1])),
        "text",
    )


def _place_of_match(text: pl.Expr, pattern: str) -> pl.Expr:
    # `find` tells bytes; the characters before the match are counted.
    place = text.str.find(pattern)
    before = text.cast(pl.Binary).bin.slice(0, place).cast(STRING, strict=False).str.len_chars().cast(BIGINT) + 1
    return pl.when(place.is_not_null()).then(before).when(text.is_not_null()).then(pl.lit(0, dtype=BIGINT))


def _extract_all(arguments: Sequence[Bound]) -> pl.Expr:
    group = arguments[2].value if len(arguments) > 2 else 1
    pattern = regex_of(arguments[1])
    try:
        known = re.compile(pattern)
    except re.error as error:
        raise ArgumentError(f"the pattern {pattern!r} cannot be read: {error}") from None
    if not isinstance(group, int) or not 0 <= group <= known.groups:
        raise ArgumentError(f"the pattern has {known.groups} groups, not {group}")
    matches = arguments[0].expr.str.extract_all(pattern)
    return matches if group == 0 else matches.list.eval(pl.element().str.extract(pattern, group))


def _replacing(table: Table) -> None:
    group = "texts"
    table.add(
        "OVERLAY(text, new, start, length)",
        group,
        "With a part replaced; OVERLAY(text PLACING new FROM start FOR length), too.",
        ("OVERLAY('headrace', 'tail', 1, 4)", "'tailrace'"),
        STRING,
        by_row(_overlaid, STRING),
        "text",
        "text",
        "integer",
        "integer",
        optional=1,
    )
    table.add(
        "TRANSLATE(text, letters, others)",
        group,
        "Each letter replaced by the one at its place; those without one are left out.",
        ("TRANSLATE('hello', 'el', 'ip')", "'hippo'"),
        STRING,
        by_row(_translated, STRING),
        "text",
    )
    table.add(
        "OCTET_LENGTH(text)",
        group,
        "How many bytes in UTF-8.",
        ("OCTET_LENGTH('abc')", "3"),
        BIGINT,
        lambda a: a[0].expr.str.len_bytes().cast(BIGINT),
        "text",
    )
    table.add(
        "ELT(n, a, b, ...)",
        group,
        "The n-th text, counted from 1; null if there is none.",
        ("ELT(2, 'a', 'b')", "'b'"),
        STRING,
        lambda a: pl.concat_list([each.expr for each in a[1:]]).list.get(
            pl.when(a[0].expr > 0).then(a[0].expr - 1), null_on_oob=True
        ),
        "integer",
        "text",
        any_number=True,
        optional=2,
    )
    table.add(
        "STR_TO_MAP(text, between, equals)",
        group,
        "Pairs such as a=1,b=2 as a map.",
        ("STR_TO_MAP('a=1,b=2')['b']", "'2'"),
        _MAP,
        by_row(_pairs, _MAP),
        "text",
        optional=2,
    )


def _overlaid(text: str, new: str, start: int, length: int | None = None) -> str:
    if start < 1 or start > len(text):
        return text
    end = start - 1 + (len(new) if length is None else max(length, 0))
    return text[: start - 1] + new + text[end:]


def _translated(text: str, letters: str, others: str) -> str:
    table: dict[int, str | None] = {}
    for place, letter in enumerate(letters):
        table.setdefault(ord(letter), others[place] if place < len(others) else None)
    return text.translate(table)


def _pairs(text: str, between: str = ",", equals: str = "=") -> list[dict[str, Any]] | None:
    if not between or not equals:
        return None
    parts = [part.partition(equals) for part in text.split(between)] if text else []
    return [{"key": key, "value": value if sign else None} for key, sign, value in parts]


def _addresses(table: Table) -> None:
    group = "addresses"
    table.add(
        "PARSE_URL(url, part, key)",
        group,
        "A part of an address: PROTOCOL, HOST, PATH, QUERY, REF, AUTHORITY, FILE or USERINFO; of QUERY also one key.",
        ("PARSE_URL('http://a.org/b?c=1', 'QUERY', 'c')", "'1'"),
        STRING,
        by_row(_url_part, STRING),
        "text",
        optional=1,
    )
    table.add(
        "URL_ENCODE(text)", group, "As a part of an address.", ("URL_ENCODE('a b')", "'a+b'"), STRING,
        by_row(quote_plus, STRING), "text",
    )  # fmt: skip
    table.add(
        "URL_DECODE(text)", group, "Read from a part of an address.", ("URL_DECODE('a+b')", "'a b'"), STRING,
        by_row(unquote_plus, STRING), "text",
    )  # fmt: skip


def _url_part(url: str, part: str, key: str | None = None) -> str | None:
    try:
        found = urlsplit(url)
        host = found.hostname
    except ValueError:
        return None
    if key is not None:
        return next(iter(parse_qs(found.query).get(key, [])), None) if part == "QUERY" else None
    file = found.path + (f"?{found.query}" if found.query else "")
    user = found.netloc.rpartition("@")[0]
    parts = {
        "PROTOCOL": found.scheme,
        "HOST": host,
        "PATH": found.path,
        "QUERY": found.query,
        "REF": found.fragment,
        "AUTHORITY": found.netloc,
        "FILE": file,
        "USERINFO": user,
    }
    return parts.get(part) or None


def _kinds(table: Table) -> None:
    group = "texts"
    for name, pattern, does, example in (
        ("IS_ALPHA", _ALPHA, "Whether it is letters only.", "abc"),
        ("IS_DIGIT", _DIGITS, "Whether it is digits only.", "17"),
        ("IS_DECIMAL", _DECIMAL, "Whether it is a number.", "1.5"),
    ):
        table.add(
            f"{name}(text)", group, does, (f"{name}('{example}')", "True"), BOOLEAN,
            by_row(lambda text, _of=pattern: _of.fullmatch(text) is not None, BOOLEAN), "text",
        )  # fmt: skip


def _codes(table: Table) -> None:
    group = "codes and hashes"
    gives = hashlib.sha256(b"a").hexdigest()
    table.add(
        "SHA2(text, bits)",
        group,
        "The SHA-2 hash with 224, 256, 384 or 512 bits.",
        ("SHA2('a', 256)", repr(gives)),
        STRING,
        _sha2,
        "text",
        "integer",
    )
    table.add(
        "UNHEX(text)",
        group,
        "Read from hexadecimal digits, as UTF-8; null if it is none.",
        ("UNHEX('6162')", "'ab'"),
        STRING,
        lambda a: a[0].expr.str.decode("hex", strict=False).cast(STRING, strict=False),
        "text",
    )
    table.add(
        "ENCODE(text, charset)",
        group,
        "A text as bytes in a charset.",
        ("DECODE(ENCODE('a', 'UTF-16LE'), 'UTF-16LE')", "'a'"),
        pl.Binary(),
        lambda a: by_row(lambda text: text.encode(_charset(a[1]), "replace"), pl.Binary())(a[:1]),
        "text",
    )
    table.add(
        "DECODE(bytes, charset)",
        group,
        "Bytes in a charset as a text.",
        ("DECODE(ENCODE('a', 'UTF-8'), 'UTF-8')", "'a'"),
        STRING,
        lambda a: by_row(lambda held: held.decode(_charset(a[1]), "replace"), STRING)(a[:1]),
        "bytes",
        "text",
    )


def _sha2(arguments: Sequence[Bound]) -> pl.Expr:
    bits = arguments[1].value
    if bits not in (224, 256, 384, 512):
        raise ArgumentError(f"SHA2 of {bits} bits", "Write 224, 256, 384 or 512.")
    return by_row(lambda text: hashlib.new(f"sha{bits}", text.encode()).hexdigest(), STRING)(arguments[:1])


def _charset(argument: Bound) -> str:
    name = text_constant(argument, "the charset").upper()
    if name not in ("US-ASCII", "ISO-8859-1", "UTF-8", "UTF-16BE", "UTF-16LE", "UTF-16"):
        raise ArgumentError(
            f"unknown charset {name}", "Known are US-ASCII, ISO-8859-1, UTF-8, UTF-16BE, UTF-16LE, UTF-16."
        )
    return name
