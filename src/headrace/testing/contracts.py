"""Contract tests: what every part of a kind must keep, to put a part of your own through."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.errors import SchemaError
from headrace.events.letters import Reason
from headrace.formats.format import Records
from headrace.testing.contract_error import ContractError, must
from headrace.testing.plugin_contracts import check_connector, check_processor, check_settings, check_type
from headrace.testing.sink_contract import check_sink
from headrace.time.instants import INSTANT

__all__ = [
    "ContractError",
    "check_assigner",
    "check_connector",
    "check_format",
    "check_processor",
    "check_settings",
    "check_sink",
    "check_type",
]

if TYPE_CHECKING:
    from headrace.formats.format import Format
    from headrace.windows import Assigner


def check_assigner(assigner: Assigner, rows: pl.DataFrame | None = None) -> None:
    """Put windows of your own through what the engine relies on.

    Every row gets at least one window; bounds are instants with start < end; all columns are kept; the same row gets
    the same windows in any order and in any company; a frame without rows is fine; the description is there and stable.

    Args:
        assigner: The windows.
        rows: Rows to try, with all columns that the assigner reads; some timestamps around the epoch unless told.

    >>> from headrace.windows import sliding
    >>> check_assigner(sliding("30s", every="5s"))
    """
    if rows is None:
        times = [-1, 0, 1, 999_999, 1_000_000, 59_999_999, 1_700_000_000_123_456, 1_700_000_000_123_456]
        rows = pl.DataFrame({EVENT_TIME: times}).cast(INSTANT)
    numbered = rows.with_row_index("number")
    whole = _windows(assigner, numbered)
    missing = set(numbered.get_column("number")) - set(whole.get_column("number"))
    must(not missing, f"row {numbered.row(min(missing), named=True) if missing else ''} belongs to no window")
    must(_same(whole, _windows(assigner, numbered)), "asked twice, it answers differently")
    must(_same(whole, _windows(assigner, numbered.reverse())), "the answer depends on the order of the rows")
    single = pl.concat([_windows(assigner, numbered.slice(n, 1)) for n in range(numbered.height)])
    must(_same(whole, single), "the answer for a row depends on the rows beside it")
    empty = _windows(assigner, numbered.head(0))
    must(empty.is_empty(), "it makes windows without rows")
    must(bool(assigner.describe()) and assigner.describe() == assigner.describe(), "its description is not stable")


def check_format(format: Format, samples: Records | None = None) -> None:  # noqa: A002  it is what it is
    """Put a format of your own through what the runners rely on.

    A format is compared by value, can be hashed and pickled. Every record becomes one row or one rejection, whatever
    its bytes are. What becomes of a record depends neither on the records beside it nor on the columns that are asked
    for. `event_time` is never null. What `encode` writes is read again as the same rows,
    unless the time of an event is in none of the columns.

    Args:
        format: The format.
        samples: Records of the format, some of them good; without them only bytes that fit no format are tried.

    Raises:
        ContractError: The format does not hold one of these.

    >>> from headrace.formats.text import text
    >>> check_format(text())
    """
    copy = pickle.loads(pickle.dumps(format))  # noqa: S301  our own bytes
    must(copy == format and hash(copy) == hash(format), "a pickled copy is not equal to it, or has another hash")
    must(bool(format.name) and bool(format.text), "it has no name or no text")
    batches = [_garbage(), _records([]), _nulls(3)]
    if samples is not None:
        batches += [samples, _joined(samples, _garbage())]
    for records in batches:
        whole = _outcomes(format, records, None)
        must(whole == _outcomes(copy, records, None), "asked twice, it answers differently")
        names = format.schema.names()
        for columns in ([], names[:1], names[-1:], list(reversed(names))):
            chosen = _outcomes(format, records, columns)
            expected = [
                {name: value for name, value in outcome.items() if name in columns or name in _TIMES}
                if isinstance(outcome, dict)
                else outcome
                for outcome in whole
            ]
            must(chosen == expected, f"rows or rejections differ if only the columns {columns} are asked for")
        for cut in sorted({min(1, len(records)), len(records) // 2, max(len(records) - 1, 0)}):
            parts = [_part(records, 0, cut), _part(records, cut, len(records) - cut)]
            pieces = [outcome for part in parts for outcome in _outcomes(format, Records(**part), None)]
            must(whole == pieces, f"rows or rejections differ if the batch is split at {cut}")
        single = [_outcomes(format, Records(**_part(records, n, 1)), None)[0] for n in range(len(records))]
        must(whole == single, "what becomes of a record depends on the records beside it")
    if samples is not None:
        _check_encoding(format, samples)


def _check_encoding(format: Format, samples: Records) -> None:  # noqa: A002
    decoded = format.decode(samples)
    try:
        values = format.encode(decoded.frame)
    except SchemaError as error:
        must("cannot write" in error.message, f"it cannot write its own columns: {error}")
        return
    must(len(values) == decoded.frame.height, "it does not write one value per row")
    if "key" in format.reads or "headers" in format.reads:
        return  # what is in the key or the headers is not in the value
    again = format.decode(Records(values, timestamps=pa.array([0] * len(values), pa.timestamp("us", "UTC"))))
    if again.rejections and all(each.reason == Reason.MISSING_TIMESTAMP for each in again.rejections.values()):
        return  # its time is in no column, so it is not written
    must(not again.rejections, f"it cannot read what it wrote: {next(iter(again.rejections.values()), None)}")
    names = format.schema.names()
    same = again.frame.select(names).equals(decoded.frame.select(names))
    must(same, "what it wrote is read as other rows")


_TIMES = ("event_time", "ingestion_time")


def _outcomes(format: Format, records: Records, columns: list[str] | None) -> list[Any]:  # noqa: A002
    """What became of each record: a dictionary, or the rejection."""
    decoded = format.decode(records, columns)
    frame, names = decoded.frame, format.schema.names() if columns is None else columns
    must(frame.columns == [*_TIMES, *names], f"its columns are {frame.columns}, not {[*_TIMES, *names]}")
    expected = {**dict.fromkeys(_TIMES, INSTANT), **{name: format.schema[name] for name in names}}
    must(dict(frame.schema) == expected, f"its types are {frame.schema}, not {expected}")
    must(not frame.get_column(EVENT_TIME).null_count(), "an event_time is null")
    positions = range(frame.height) if decoded.positions is None else decoded.positions.tolist()
    must(len(positions) == frame.height, "there is not one position per row")
    must(list(positions) == sorted(set(positions)), "the rows are not in the order of the records")
    # repr: a value that is not a number must be equal to itself.
    rows = [{name: repr(value) for name, value in row.items()} for row in frame.to_dicts()]
    outcomes: dict[int, Any] = dict(zip(positions, rows, strict=True))
    both = outcomes.keys() & decoded.rejections.keys()
    must(not both, f"the records {sorted(both)} are rows and rejections as well")
    outcomes |= decoded.rejections
    skipped = [] if decoded.skipped is None else decoded.skipped.tolist()
    must(not outcomes.keys() & set(skipped), "a record that was skipped is a row or a rejection as well")
    outcomes |= dict.fromkeys(skipped, "skipped")
    missing = set(range(len(records))) ^ outcomes.keys()
    must(not missing, f"the records {sorted(missing)} became neither a row nor a rejection, or are not in the batch")
    return [outcomes[position] for position in range(len(records))]


_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def _records(values: list[bytes | None]) -> Records:
    times = pa.array([1_700_000_000_000_000] * len(values), pa.timestamp("us", "UTC"))
    return Records(pa.array(values, pa.binary()), pa.array(values, pa.binary()), pa.nulls(len(values), _HEADERS), times)


def _garbage() -> Records:
    """Values that hurt readers: empty, truncated, deep, long, no text."""
    digits = b"9" * 400
    longest = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # the varint of 2^64 - 1
    return _records(
        [
            *(b"", b"\x00", b"\xff" * 20, b"\x80" * 11, b"\xfe" + longest[1:], longest, b"\x0b" * 3_000),
            *(b"{", b"{}", b"[]", b"null", b"[" * 5_000, b'{"a":' * 2_000, b'{"a":' + digits + b"}", digits),
            *(b'{"a":1,"a":2}', b"\xef\xbb\xbf{}", b'{"a":"\\ud800"}', b"\xc3\x28", b"\x00\x00\x00\x00\x01"),
            *(b'"', b'"\n', b",,,,", b"\n\n", b"a" * 100_000),
        ]
    )


def _nulls(rows: int) -> Records:
    return _records([None] * rows)


def _part(records: Records, begin: int, rows: int) -> dict[str, Any]:
    columns = {"values": records.values, "keys": records.keys, "headers": records.headers}
    columns |= {"timestamps": records.timestamps, "partitions": records.partitions, "offsets": records.offsets}
    return {name: None if column is None else column.slice(begin, rows) for name, column in columns.items()}


def _joined(one: Records, two: Records) -> Records:
    """The records of two batches in turn, as far as both have them, then the rest."""
    order = np.argsort(np.concatenate([np.arange(len(one)) * 2, np.arange(len(two)) * 2 + 1]), kind="stable")
    joined: dict[str, Any] = {}
    for name, column in _part(one, 0, len(one)).items():
        other = _part(two, 0, len(two))[name]
        if column is not None and other is not None:
            joined[name] = pa.concat_arrays([column, other]).take(pa.array(order))
    return Records(**joined)


def _windows(assigner: Assigner, rows: pl.DataFrame) -> pl.DataFrame:
    before = rows.clone()
    found = assigner.assign(rows)
    must(rows.equals(before), "it changes the rows it is given")
    for name in (WINDOW_START, WINDOW_END):
        must(name in found.columns, f"it adds no column {name}")
        must(found.schema[name] == INSTANT, f"{name} is {found.schema[name]}, not {INSTANT}")
    lost = set(rows.columns) - set(found.columns)
    must(not lost, f"it loses the columns {sorted(lost)}")
    bad = found.filter((pl.col(WINDOW_START) < pl.col(WINDOW_END)).fill_null(value=False).not_())
    must(bad.is_empty(), f"a window does not end after it starts: {bad.head(1).rows()}")
    return found.select("number", WINDOW_START, WINDOW_END)


def _same(one: pl.DataFrame, two: pl.DataFrame) -> bool:
    return one.sort(one.columns).equals(two.sort(two.columns))
