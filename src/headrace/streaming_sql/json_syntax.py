"""The words that stand in calls of JSON functions: RETURNING, ON EMPTY, ON ERROR, WRAPPER, KEY and VALUE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

if TYPE_CHECKING:
    from collections.abc import Callable

#: What JSON_VALUE and others give where there is nothing, or no JSON.
_ENDS = ("EMPTY", "ERROR")


def json_parsers() -> dict[str, Callable[[Any], exp.Expr]]:
    """Give what reads the arguments of each function, behind its opening bracket."""
    return {
        "JSON_VALUE": _value,
        "JSON_QUERY": _query,
        "JSON_EXISTS": _exists,
        "JSON_OBJECT": _object,
        "JSON_ARRAY": _array,
    }


def _call(name: str, arguments: list[Any]) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=arguments)


def _document_and_path(parser: Any) -> list[Any]:
    document = parser._parse_disjunction()  # noqa: SLF001 - these are parts of the parser
    arguments = [document] if document is not None else []
    while parser._match(TokenType.COMMA):  # noqa: SLF001
        arguments.append(parser._parse_disjunction())  # noqa: SLF001
    return arguments


def _value(parser: Any) -> exp.Expr:
    arguments = _document_and_path(parser)
    kind = parser._parse_types() if parser._match_text_seq("RETURNING") else None  # noqa: SLF001
    defaults: dict[str, exp.Expr] = {}
    while True:
        if parser._match_text_seq("NULL", "ON"):  # noqa: SLF001
            given: exp.Expr = exp.Null()
        elif parser._match_text_seq("DEFAULT"):  # noqa: SLF001
            given = parser._parse_bitwise()  # noqa: SLF001
            parser._match_text_seq("ON")  # noqa: SLF001
        elif parser._match_text_seq("ERROR"):  # noqa: SLF001
            parser.raise_error("ERROR ON is not supported: one bad row must not stop a stream; use NULL or DEFAULT")
        else:
            break
        defaults[_end(parser)] = given
    if any(not isinstance(each, exp.Null) for each in defaults.values()):
        arguments += [defaults.get(end, exp.Null()) for end in _ENDS]
    call = _call("JSON_VALUE", arguments)
    return exp.TryCast(this=call, to=kind) if kind is not None else call


def _end(parser: Any) -> str:
    for end in _ENDS:
        if parser._match_text_seq(end):  # noqa: SLF001
            return end
    parser.raise_error("expected EMPTY or ERROR")
    return ""


def _query(parser: Any) -> exp.Expr:
    arguments = _document_and_path(parser)
    match = parser._match_text_seq  # noqa: SLF001
    wrapper = ""
    if match("WITHOUT"):
        match("ARRAY")
        match("WRAPPER")
    elif match("WITH"):
        wrapper = "conditional" if match("CONDITIONAL") else "unconditional"
        match("UNCONDITIONAL")
        match("ARRAY")
        match("WRAPPER")
    while match("NULL", "ON"):
        _end(parser)
    return _call("JSON_QUERY", [*arguments, exp.Literal.string(wrapper)] if wrapper else arguments)


def _exists(parser: Any) -> exp.Expr:
    arguments = _document_and_path(parser)
    parser._match_text_seq("FALSE", "ON", "ERROR")  # noqa: SLF001 - what it gives anyway
    return _call("JSON_EXISTS", arguments)


def _object(parser: Any) -> exp.Expr:
    match = parser._match_text_seq  # noqa: SLF001
    arguments: list[Any] = []
    while parser._curr and parser._curr.token_type != TokenType.R_PAREN:  # noqa: SLF001
        if _nulls_follow(parser):
            break
        match("KEY")
        arguments.append(parser._parse_bitwise())  # noqa: SLF001
        if not (match("VALUE") or parser._match(TokenType.COMMA)):  # noqa: SLF001
            parser.raise_error("expected VALUE")
        arguments.append(parser._parse_disjunction())  # noqa: SLF001
        if not parser._match(TokenType.COMMA):  # noqa: SLF001
            break
    name = "JSON_OBJECT_ABSENT" if match("ABSENT", "ON", "NULL") else "JSON_OBJECT"
    match("NULL", "ON", "NULL")
    return _call(name, arguments)


def _nulls_follow(parser: Any) -> bool:
    following = parser._next.text.upper() if parser._next else ""  # noqa: SLF001
    return parser._curr.text.upper() in ("NULL", "ABSENT") and following == "ON"  # noqa: SLF001


def _array(parser: Any) -> exp.Expr:
    match = parser._match_text_seq  # noqa: SLF001
    arguments: list[Any] = []
    while parser._curr and parser._curr.token_type != TokenType.R_PAREN:  # noqa: SLF001
        if _nulls_follow(parser):
            break
        arguments.append(parser._parse_disjunction())  # noqa: SLF001
        if not parser._match(TokenType.COMMA):  # noqa: SLF001
            break
    name = "JSON_ARRAY_NULLS" if match("NULL", "ON", "NULL") else "JSON_ARRAY"
    match("ABSENT", "ON", "NULL")
    return _call(name, arguments)
