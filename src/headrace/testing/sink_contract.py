"""The contract test of sinks."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl

from headrace.delivery import DELIVERIES
from headrace.events.letters import SCHEMA
from headrace.sinks.contract import BatchFrames, BatchToken, Sink
from headrace.testing.contracts import ContractError

if TYPE_CHECKING:
    from collections.abc import Callable

_JOB = "contract-of-sinks"
_START = datetime(2026, 3, 1, 23, 59, 58, tzinfo=UTC)


def check_sink(sink: Sink, read: Callable[[str], pl.DataFrame]) -> None:
    """Put a sink of your own through what the runners rely on.

    It can be pickled, names a promise, takes batches with and without rows, keeps all tables apart, and says after a
    restart which batch it holds. What happens to a batch that comes again is what it promises: exactly once, its rows
    are there once, also if the process that wrote it first was killed right after `write`; at least once, they are
    there; at most once, the token is there.

    Args:
        sink: A sink that nothing was written to.
        read: Gives everything that is visible of a table (`<job>`, `<job>.<output>`, `<job>.late`,
            `<job>.dead_letters`), after the sink was closed. A table that was never written may be an empty frame.

    Raises:
        ContractError: The sink does not hold one of these.

    >>> from headrace.sinks import memory
    >>> sink = memory()
    >>> check_sink(sink, sink.table)
    """
    _must(isinstance(sink, Sink), f"{sink!r} is no headrace.sinks.Sink")
    _must(bool(sink.name) and bool(sink.text), "it has no name or no text")
    _must(sink.delivery in DELIVERIES, f"its delivery is {sink.delivery!r}; it may be one of {', '.join(DELIVERIES)}")
    # A class of a notebook or a script has no module to be found in; Spark is sent its code.
    copy = pickle.loads(pickle.dumps(sink)) if type(sink).__module__ in sys.modules else sink  # noqa: S301 - our own bytes
    _must(copy == sink and copy.text == sink.text, "a pickled copy is not equal to it, or has another text")
    _check_order(sink)
    _check_tables(read)
    _check_repetition(copy, read)


def _check_order(sink: Sink) -> None:
    """Open, ask, write, close; a sink without tokens says so always."""
    writer = sink.open(_JOB)
    before = writer.last()
    _must(before is None, f"it holds {before} before anything was written to it")
    writer.write(_token(0), BatchFrames(_JOB, {}))
    writer.write(_token(1), _frames(1))
    writer.close()
    again = sink.open(_JOB)
    held = again.last()
    again.close()
    if sink.delivery == "at_least_once":
        _must(held is None or held == _token(1), f"after batch 1 its last token is {held}")
    else:
        _must(held == _token(1), f"after batch 1 its last token is {held}: whether that batch comes again is not known")


def _check_tables(read: Callable[[str], pl.DataFrame]) -> None:
    expected = dict(_frames(1).tables())
    for table, frame in expected.items():
        seen = read(table)
        _must(seen.height == frame.height, f"table {table} shows {seen.height} of {frame.height} rows")
        # A sink may be unable to hold bytes; everything else is there.
        missing = [name for name, kind in frame.schema.items() if name not in seen.columns and kind != pl.Binary]
        _must(not missing, f"table {table} lacks the columns {', '.join(missing)}")
    keys = Counter(read(_JOB).get_column("idempotency_key").to_list())
    _must(keys == Counter(["1/0", "1/1", "1/2"]), f"table {_JOB} shows the results {dict(keys)}")


def _check_repetition(sink: Sink, read: Callable[[str], pl.DataFrame]) -> None:
    """A process that is killed after `write` and before Spark knows; its writer is never closed."""
    killed = sink.open(_JOB)
    killed.write(_token(2), _frames(2))
    after = sink.open(_JOB)
    held = after.last()
    if sink.delivery != "at_least_once":
        _must(held == _token(2), f"batch 2 was written before a crash, and the last token after it is {held}")
    if held is None or held.batch < 2:
        after.write(_token(2), _frames(2))
    after.write(_token(3), _frames(3))
    after.close()
    keys = Counter(read(_JOB).get_column("idempotency_key").to_list())
    wanted = {f"{batch}/{row}" for batch in (1, 2, 3) for row in range(3)}
    lost, strange = wanted - keys.keys(), keys.keys() - wanted
    _must(not strange, f"it shows results that nobody wrote: {sorted(strange)}")
    if sink.delivery != "at_most_once":
        _must(not lost, f"the results {sorted(lost)} are lost")
    if sink.delivery != "at_least_once":
        double = sorted(key for key, times in keys.items() if times > 1)
        _must(not double, f"the results {double} are there more than once")


def _token(batch: int) -> BatchToken:
    return BatchToken("c1", batch, {"events": {0: batch * 3}}, now=1_700_000_000_000_000 + batch)


def _frames(batch: int) -> BatchFrames:
    """Three results around midnight, one of a further output, one late row, one dead letter."""
    times = pl.Series("event_time", [_START + timedelta(seconds=batch + row) for row in range(3)]).cast(
        pl.Datetime("us", "UTC")
    )
    results = pl.DataFrame(
        {
            "event_time": times,
            "key": ["a", "b", "ä|\n"],
            "count": [batch, None, -1],
            "mean": [0.5, float("nan"), None],
            "list": [[1], [], None],
            "idempotency_key": [f"{batch}/{row}" for row in range(3)],
        }
    )
    late = pl.DataFrame({"event_time": times.head(1), "key": ["a"], "record_value": [b"\x00\xff"]})
    letters = pl.DataFrame([{"reason": "malformed", "text": "", "value": b"{", "value_size": 1}]).cast(
        {"value_size": pl.UInt64}
    )
    dead = pl.DataFrame(schema=SCHEMA).select(pl.all().exclude("reason", "text", "value", "value_size"))
    dead_letters = pl.concat([letters, dead], how="diagonal_relaxed")
    return BatchFrames(_JOB, {_JOB: results, f"{_JOB}.pairs": results.head(1)}, late=late, dead_letters=dead_letters)


def _must(kept: bool, what: str) -> None:
    if not kept:
        raise ContractError(what)
