"""`sql`: a query over streams gives a stream, a query over frames gives a frame.

MATCH_RECOGNIZE alone, with a projection and conditions around it, is planned as `headrace.stream.sql` does, which takes
limits and over frames any order of rows. All else is planned by `headrace.streaming_sql`; over frames it is run in this
process to the end of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.cep.sql.lexer import tokenize
from headrace.cep.sql.operator import DEFAULT_MAX_ROWS
from headrace.cep.sql.query import like_input
from headrace.errors import PlanError
from headrace.inprocess.sql_answers import answer_in_process
from headrace.stream import Stream
from headrace.stream.sql import AroundMatchError
from headrace.stream.sql import sql as match_sql
from headrace.streaming_sql.catalog import Catalog
from headrace.streaming_sql.query import plan_query
from headrace.streaming_sql.script import Fragment
from headrace.tables import Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from headrace.cep.limits import AtLimit


def sql(
    query: str,
    tables: Mapping[str, Any],
    *,
    max_rows: int = DEFAULT_MAX_ROWS,
    at_limit: AtLimit = "fail",
    forget_after: str | timedelta | int | None = None,
) -> Any:
    """Run a query: over frames at once, over streams as steps of a stream. See docs/sql.md.

    Args:
        query: One query.
        tables: Streams and tables, or Polars, pyarrow or pandas frames, by the name the query has for them. Beside
            a stream, frames can be used in subqueries of the conditions of MATCH_RECOGNIZE.
        max_rows: Of MATCH_RECOGNIZE over a stream: bound on the rows of one key that wait for a match to be decided.
        at_limit: What to do where a match needs more rows: "fail" the job, or "give_up" on these rows, which are
            dismissed with the reason; matching goes on behind them.
        forget_after: Of MATCH_RECOGNIZE over a stream: a key that had no row for so long ("1h", a timedelta,
            microseconds) begins anew, as if it had never been there; None to remember for ever what MATCH_NUMBER(),
            `^` and PREV ask for.

    Returns:
        A `Stream` if any table is one, with `is_retraction` where its rows may be taken back; else a frame of the same
        kind as the first table.

    Raises:
        PlanError: The query is wrong; the message names line and column.

    >>> import polars as pl
    >>> from headrace.time import bounded
    >>> scans = Stream.rows("scans", {"depot": pl.String, "weight": pl.Float64}).watermark(bounded("1s"))
    >>> heavy = sql(
    ...     '''
    ...     SELECT depot, window_end, COUNT(*) AS parcels
    ...     FROM TABLE(TUMBLE(TABLE scans, DESCRIPTOR(event_time), INTERVAL '5' MINUTE))
    ...     WHERE weight > 10 GROUP BY depot, window_start, window_end
    ...     ''',
    ...     {"scans": scans},
    ... )
    >>> heavy.schema.names()
    ['event_time', 'depot', 'window_end', 'parcels']
    >>> sql("SELECT depot, SUM(weight) AS kilos FROM scans GROUP BY depot ORDER BY kilos DESC",
    ...     {"scans": pl.DataFrame({"depot": ["a", "b", "a"], "weight": [1.5, 2.0, 3.0]})}).rows()
    [('a', 4.5), ('b', 2.0)]
    """
    streams = any(isinstance(table, Stream | Table) for table in tables.values())
    if not _is_match(query):
        return _planned(query, tables, streams=streams)
    try:
        return match_sql(query, tables, max_rows=max_rows, at_limit=at_limit, forget_after=forget_after)
    except AroundMatchError as problem:
        if (max_rows, at_limit, forget_after) != (DEFAULT_MAX_ROWS, "fail", None):
            raise PlanError(
                problem.message, hint="Leave max_rows, at_limit and forget_after out, or do the rest in a second query."
            ) from problem
    return _planned(query, tables, streams=streams)


def _is_match(query: str) -> bool:
    return any(token.is_word("MATCH_RECOGNIZE") for token in tokenize(query))


def _planned(query: str, tables: Mapping[str, Any], *, streams: bool) -> Any:
    if streams:
        return plan_query(query, tables)
    catalog = Catalog()
    for name, frame in tables.items():
        catalog.add(name, frame)
    text = Fragment.whole(query)
    planned = catalog.plan(text)
    answer = answer_in_process(planned, catalog.read_by(planned))
    return like_input(answer.rows, next(iter(tables.values()), None))
