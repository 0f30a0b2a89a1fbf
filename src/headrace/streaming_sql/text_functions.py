"""Functions of texts: letters, parts, patterns, hashes."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.streaming_sql.casts import cast_of
from headrace.streaming_sql.functions import ArgumentError, Table, by_value, text_constant
from headrace.streaming_sql.values import BIGINT, BOOLEAN, STRING, Bound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: REPEAT, LPAD and RPAD make no longer texts.
MAX_CHARACTERS: Final = 1_000_000


def add_text_functions(table: Table) -> None:
    """Add them to the table."""
    _letters(table)
    _parts(table)
    _searches(table)
    _patterns(table)
    _codes(table)


def text_of(bound: Bound) -> pl.Expr:
    """Give a value as text, as CAST to VARCHAR does."""
    if isinstance(bound.dtype, pl.String):
        return bound.expr
    return cast_of(bound, STRING, strict=True)  # type: ignore[return-value] # every type can be told as text


def _letters(table: Table) -> None:
    group = "texts"
    table.add(
        "UPPER(text)",
        group,
        "In upper case.",
        ("UPPER('ab')", "'AB'"),
        STRING,
        lambda a: a[0].expr.str.to_uppercase(),
        "text",
        aliases=("UCASE",),
    )
    table.add(
        "LOWER(text)",
        group,
        "In lower case.",
        ("LOWER('AB')", "'ab'"),
        STRING,
        lambda a: a[0].expr.str.to_lowercase(),
        "text",
        aliases=("LCASE",),
    )
    table.add(
        "INITCAP(text)",
        group,
        "Each word begins in upper case.",
        ("INITCAP('new york')", "'New York'"),
        STRING,
        lambda a: a[0].expr.str.to_titlecase(),
        "text",
    )
    table.add(
        "REVERSE(text)",
        group,
        "From the end to the beginning.",
        ("REVERSE('abc')", "'cba'"),
        STRING,
        lambda a: a[0].expr.str.reverse(),
        "text",
    )
    table.add(
        "CHAR_LENGTH(text)",
        group,
        "How many characters.",
        ("CHAR_LENGTH('abc')", "3"),
        BIGINT,
        lambda a: a[0].expr.str.len_chars().cast(BIGINT),
        "text",
        aliases=("CHARACTER_LENGTH", "LENGTH", "LEN"),
    )
    table.add(
        "CONCAT(a, b, ...)",
        group,
        "One after the other; null if one is null.",
        ("CONCAT('a', 'b')", "'ab'"),
        STRING,
        lambda a: pl.concat_str([text_of(each) for each in a]),
        any_number=True,
        optional=2,
    )
    table.add(
        "CONCAT_WS(between, a, b, ...)",
        group,
        "With a text between; nulls are left out.",
        ("CONCAT_WS('-', 'a', NULL, 'b')", "'a-b'"),
        STRING,
        _concat_ws,
        "text",
        "any",
        any_number=True,
        optional=2,
    )
    table.add(
        "REPEAT(text, n)",
        group,
        "n times; null where that has more than a million characters.",
        ("REPEAT('ab', 2)", "'abab'"),
        STRING,
        by_row(_repeated, STRING),
        "text",
        "integer",
    )


def _parts(table: Table) -> None:
    group = "texts"
    table.add(
        "SUBSTRING(text, start, length)",
        group,
        "A part, counted from 1; from the end if start is negative.",
        ("SUBSTRING('headrace', 5, 2)", "'ra'"),
        STRING,
        substring,
        "text",
        "integer",
        "integer",
        optional=1,
        aliases=("SUBSTR",),
    )
    table.add(
        "LEFT(text, n)",
        group,
        "The first n characters.",
        ("LEFT('abc', 2)", "'ab'"),
        STRING,
        lambda a: a[0].expr.str.slice(0, a[1].expr.clip(0)),
        "text",
        "integer",
    )
    table.add(
        "RIGHT(text, n)",
        group,
        "The last n characters.",
        ("RIGHT('abc', 2)", "'bc'"),
        STRING,
        lambda a: a[0].expr.str.tail(a[1].expr.clip(0)),
        "text",
        "integer",
    )
    table.add(
        "TRIM(text, letters)",
        group,
        "Without blanks, or some letters, at both ends.",
        ("TRIM(' ab ')", "'ab'"),
        STRING,
        lambda a: _stripped(a, "both"),
        "text",
        optional=1,
        aliases=("BTRIM",),
    )
    table.add(
        "LTRIM(text, letters)",
        group,
        "Without them at the beginning.",
        ("LTRIM(' ab')", "'ab'"),
        STRING,
        lambda a: _stripped(a, "leading"),
        "text",
        optional=1,
    )
    table.add(
        "RTRIM(text, letters)",
        group,
        "Without them at the end.",
        ("RTRIM('ab ')", "'ab'"),
        STRING,
        lambda a: _stripped(a, "trailing"),
        "text",
        optional=1,
    )
    table.add(
        "LPAD(text, length, fill)",
        group,
        "Filled up, or cut, to a length of at most a million.",
        ("LPAD('7', 3, '0')", "'007'"),
        STRING,
        _padded("lpad"),
        "text",
        "integer",
        "text",
        optional=1,
    )
    table.add(
        "RPAD(text, length, fill)",
        group,
        "Filled up at the end.",
        ("RPAD('7', 3, '.')", "'7..'"),
        STRING,
        _padded("rpad"),
        "text",
        "integer",
        "text",
        optional=1,
    )
    table.add(
        "SPLIT_INDEX(text, separator, n)",
        group,
        "The part at place n, counted from 0; null behind the last.",
        ("SPLIT_INDEX('a/b/c', '/', 1)", "'b'"),
        STRING,
        _split_index,
        "text",
        "text",
        "integer",
    )
    table.add(
        "SPLIT_PART(text, separator, n)",
        group,
        "The part at place n, counted from 1.",
        ("SPLIT_PART('a/b/c', '/', 2)", "'b'"),
        STRING,
        lambda a: _split_at(a[0].expr, a[1].expr, a[2].expr - 1),
        "text",
        "text",
        "integer",
    )
    table.add(
        "SPLIT(text, separator)",
        group,
        "The parts as an array.",
        ("SPLIT('a/b', '/')", "['a', 'b']"),
        pl.List(STRING),
        lambda a: a[0].expr.str.split(a[1].expr),
        "text",
        "text",
    )
    table.add(
        "REPLACE(text, old, new)",
        group,
        "With every occurrence replaced.",
        ("REPLACE('a-b', '-', '+')", "'a+b'"),
        STRING,
        _replace,
        "text",
    )


def _searches(table: Table) -> None:
    group = "texts"
    table.add(
        "STRPOS(text, part)",
        group,
        "Where a part begins, counted from 1; 0 if it is not there.",
        ("STRPOS('abc', 'b')", "2"),
        BIGINT,
        lambda a: position(a[0].expr, a[1].expr),
        "text",
        aliases=("INSTR",),
    )
    table.add(
        "LOCATE(part, text, start)",
        group,
        "The same, with the part first; looked for from a start on.",
        ("LOCATE('b', 'abc')", "2"),
        BIGINT,
        _located,
        "text",
        "text",
        "integer",
        optional=1,
    )
    table.add(
        "STARTSWITH(text, part)",
        group,
        "Whether it begins so.",
        ("STARTSWITH('abc', 'ab')", "True"),
        BOOLEAN,
        lambda a: a[0].expr.str.starts_with(a[1].expr),
        "text",
        aliases=("STARTS_WITH",),
    )
    table.add(
        "ENDSWITH(text, part)",
        group,
        "Whether it ends so.",
        ("ENDSWITH('abc', 'bc')", "True"),
        BOOLEAN,
        lambda a: a[0].expr.str.ends_with(a[1].expr),
        "text",
        aliases=("ENDS_WITH",),
    )


def _patterns(table: Table) -> None:
    group = "regular expressions"
    table.add(
        "REGEXP(text, pattern)",
        group,
        "Whether a regular expression is found in it.",
        ("REGEXP('tram 17', '[0-9]+')", "True"),
        BOOLEAN,
        _regexp_like,
        "text",
        aliases=("REGEXP_LIKE",),
    )
    table.add(
        "REGEXP_EXTRACT(text, pattern, group)",
        group,
        "What a group of the pattern matched; 0 is all of it.",
        ("REGEXP_EXTRACT('tram 17', '([a-z]+) ([0-9]+)', 2)", "'17'"),
        STRING,
        _regexp_extract,
        "text",
        "text",
        "integer",
        optional=1,
    )
    table.add(
        "REGEXP_REPLACE(text, pattern, new)",
        group,
        "With every match replaced; $1 is the first group.",
        ("REGEXP_REPLACE('tram 17', '[0-9]', '#')", "'tram ##'"),
        STRING,
        _regexp_replace,
        "text",
    )


def _codes(table: Table) -> None:
    group = "codes and hashes"
    for name in ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512"):
        gives = hashlib.new(name.lower(), b"a", usedforsecurity=False).hexdigest()
        table.add(
            f"{name}(text)",
            group,
            f"The {name} hash in hexadecimal digits.",
            (f"{name}('a')", repr(gives)),
            STRING,
            _per_text(_hash(name.lower())),
            "text",
        )
    table.add(
        "ASCII(text)",
        group,
        "The code of the first character.",
        ("ASCII('A')", "65"),
        BIGINT,
        _per_text(lambda text: ord(text[0]) if text else 0, BIGINT),
        "text",
    )
    table.add(
        "CHR(code)",
        group,
        "The character with a code.",
        ("CHR(65)", "'A'"),
        STRING,
        lambda a: a[0].expr.map_batches(_characters, return_dtype=STRING, is_elementwise=True),
        "integer",
    )
    table.add(
        "TO_BASE64(text)",
        group,
        "In base 64.",
        ("TO_BASE64('ab')", "'YWI='"),
        STRING,
        lambda a: a[0].expr.cast(pl.Binary).bin.encode("base64"),
        "text",
    )
    table.add(
        "FROM_BASE64(text)",
        group,
        "Read from base 64; null if it is none.",
        ("FROM_BASE64('YWI=')", "'ab'"),
        STRING,
        lambda a: a[0].expr.str.decode("base64", strict=False).cast(STRING, strict=False),
        "text",
    )


def by_row(function: Callable[..., Any], result: pl.DataType) -> Callable[[Sequence[Bound]], pl.Expr]:
    """Call a function of Python for each row; with a null among its arguments it gives null."""

    def call(values: pl.Series) -> pl.Series:
        rows = values.struct.unnest().iter_rows()
        found = [None if any(value is None for value in row) else function(*row) for row in rows]
        return pl.Series(values.name, found, dtype=result)

    def build(arguments: Sequence[Bound]) -> pl.Expr:
        row = pl.struct([argument.expr.alias(f"a{place}") for place, argument in enumerate(arguments)])
        return row.map_batches(call, return_dtype=result, is_elementwise=True)

    return build


def _repeated(text: str, number: int) -> str | None:
    return text * max(number, 0) if len(text) * number <= MAX_CHARACTERS else None


def _padded(name: str) -> Callable[[Sequence[Bound]], pl.Expr]:
    """Call LPAD or RPAD; no value of a column can make a text that fills the memory."""

    def build(arguments: Sequence[Bound]) -> pl.Expr:
        size = pl.when(arguments[1].expr <= MAX_CHARACTERS).then(arguments[1].expr)
        return by_value(name, STRING)([arguments[0], Bound(size, BIGINT), *arguments[2:]])

    return build


def substring(arguments: Sequence[Bound]) -> pl.Expr:
    """Cut a part out; a part that begins before the text is empty."""
    if all(argument.is_constant for argument in arguments[1:]) and isinstance(arguments[1].value, int):
        start = arguments[1].value
        length = arguments[2].expr.clip(0) if len(arguments) > 2 else None
        if start > 0:
            return arguments[0].expr.str.slice(start - 1, length)
    return by_value("substring", STRING)(arguments)


def position(text: pl.Expr, part: pl.Expr) -> pl.Expr:
    """Tell where a part begins in a text, in characters counted from 1; 0 if it is not there."""
    pair = pl.struct(text.alias("text"), part.alias("part"))

    def find(values: pl.Series) -> pl.Series:
        found = [
            None if row is None or row["text"] is None or row["part"] is None else row["text"].find(row["part"]) + 1
            for row in values
        ]
        return pl.Series(values.name, found, dtype=BIGINT)

    return pair.map_batches(find, return_dtype=BIGINT, is_elementwise=True)


def _located(arguments: Sequence[Bound]) -> pl.Expr:
    if len(arguments) < 3:
        return position(arguments[1].expr, arguments[0].expr)
    skipped = (arguments[2].expr - 1).clip(0)
    found = position(arguments[1].expr.str.slice(skipped), arguments[0].expr)
    return pl.when(found > 0).then(found + skipped).otherwise(found)


def _concat_ws(arguments: Sequence[Bound]) -> pl.Expr:
    between, *parts = arguments
    if isinstance(between.value, str):
        return pl.concat_str([text_of(each) for each in parts], separator=between.value, ignore_nulls=True)
    return by_value("concat_ws", STRING)(arguments)


def _stripped(arguments: Sequence[Bound], side: str) -> pl.Expr:
    letters = arguments[1].expr if len(arguments) > 1 else pl.lit(" ")
    text = arguments[0].expr.str
    return {"both": text.strip_chars, "leading": text.strip_chars_start, "trailing": text.strip_chars_end}[side](
        letters
    )


def _split_index(arguments: Sequence[Bound]) -> pl.Expr:
    return _split_at(*(argument.expr for argument in arguments))


def _split_at(text: pl.Expr, separator: pl.Expr, place: pl.Expr) -> pl.Expr:
    return pl.when(place >= 0).then(text.str.split(separator).list.get(place, null_on_oob=True))


def _replace(arguments: Sequence[Bound]) -> pl.Expr:
    if isinstance(arguments[1].value, str) and arguments[1].value:
        return arguments[0].expr.str.replace_all(arguments[1].expr, arguments[2].expr, literal=True)
    return by_value("replace", STRING)(arguments)


def regex_of(argument: Bound) -> str:
    """Give a regular expression that must be a constant.

    Raises:
        ArgumentError: It is none, or cannot be read.
    """
    pattern = text_constant(argument, "the pattern")
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.PolarsError as error:
        said = next((line for line in str(error).split("\n") if line.startswith("error: ")), str(error).split("\n")[0])
        said = said.removeprefix("error: ").removeprefix("regex error: ")
        raise ArgumentError(f"the pattern {pattern!r} cannot be read: {said}") from None
    return pattern


def _regexp_like(arguments: Sequence[Bound]) -> pl.Expr:
    return arguments[0].expr.str.contains(regex_of(arguments[1]))


def _regexp_extract(arguments: Sequence[Bound]) -> pl.Expr:
    group = arguments[2].value if len(arguments) > 2 else 0
    if not isinstance(group, int):
        raise ArgumentError("the group must be a number")
    pattern = regex_of(arguments[1])
    groups = re.compile(pattern).groups if _is_python(pattern) else group
    if group < 0 or group > groups:
        raise ArgumentError(f"the pattern has {groups} groups, not {group}")
    return arguments[0].expr.str.extract(pattern, group)


def _is_python(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _regexp_replace(arguments: Sequence[Bound]) -> pl.Expr:
    return arguments[0].expr.str.replace_all(regex_of(arguments[1]), arguments[2].expr)


def _hash(name: str) -> Callable[[str], str]:
    return lambda text: hashlib.new(name, text.encode(), usedforsecurity=False).hexdigest()


def _per_text(function: Callable[[str], Any], dtype: pl.DataType = STRING) -> Callable[[Sequence[Bound]], pl.Expr]:
    def call(values: pl.Series) -> pl.Series:
        found = [None if value is None else function(value) for value in values]
        return pl.Series(values.name, found, dtype=dtype)

    return lambda arguments: arguments[0].expr.map_batches(call, return_dtype=dtype, is_elementwise=True)


def _characters(values: pl.Series) -> pl.Series:
    found = [None if value is None or not 0 <= value < 0x110000 else chr(value) for value in values]
    return pl.Series(values.name, found, dtype=STRING)
