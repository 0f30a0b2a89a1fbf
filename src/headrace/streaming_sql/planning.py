"""Queries as streams: the door to the planner, for all that is not itself a part of a query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError
from headrace.stream.sql import sql

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.stream import Stream
    from headrace.streaming_sql.script import Fragment


def plan(query: Fragment, relations: Mapping[str, Any]) -> Stream:
    """Make a stream of a query.

    Args:
        query: The query.
        relations: What it may name.

    Raises:
        ScriptError: The query is wrong; the message says where.
    """
    found: Stream = sql(query.text, relations)
    return found


def add_column(stream: Stream, name: str, expression: str) -> Stream:
    """Add a column that is computed from others.

    Args:
        stream: The stream.
        name: The name of the column.
        expression: A scalar expression.

    Raises:
        PlanError: It is wrong; the place in the message is counted from the beginning of the expression.
    """
    # The expression has lines of its own, so that the place of an error is easily counted from it.
    query = f"SELECT *,\n{expression}\nAS {quoted(name)} FROM source"  # noqa: S608 - it is run over one stream
    try:
        found: Stream = sql(query, {"source": stream})
    except HeadraceError as wrong:
        message = re.sub(r"^line (\d+)", lambda line: f"line {max(1, int(line[1]) - 1)}", wrong.message)
        raise PlanError(message, hint=wrong.hint) from wrong
    return found


def quoted(name: str) -> str:
    """Give a name in quotes.

    >>> quoted("a b")
    '"a b"'
    """
    return '"' + name.replace('"', '""') + '"'
