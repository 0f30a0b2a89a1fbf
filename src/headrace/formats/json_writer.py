"""Rows to objects of JSON, in columns.

Instants are texts such as "2026-03-01T08:00:00.000000Z", durations are seconds, bytes are Base64, numbers that are none
(NaN, infinity) are null. Categories are their texts and decimals texts, so that nothing is rounded.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError


def write_objects(frame: pl.DataFrame) -> pa.BinaryArray:
    """Write each row as an object with a field per column.

    >>> write_objects(pl.DataFrame({"depot": ["north"], "parcels": [3]})).to_pylist()
    [b'{"depot":"north","parcels":3}']

    Raises:
        SchemaError: A column holds what JSON cannot.
    """
    if not frame.height:
        return pa.array([], pa.binary())
    plain = frame.select(_plain(pl.col(name), kind, name).alias(name) for name, kind in frame.schema.items())
    buffer = BytesIO()
    plain.write_ndjson(buffer)
    data = buffer.getvalue()
    # A line break in a text is escaped, so every one ends an object; it is dropped with the copy.
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    begins = np.concatenate([[0], ends[:-1] + 1])
    return pa.array([data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)], pa.binary())


def _plain(value: pl.Expr, kind: Any, name: str) -> pl.Expr:
    """Give a column as JSON holds it."""
    if isinstance(kind, pl.Datetime):
        utc = value if kind.time_zone in (None, "UTC") else value.dt.convert_time_zone("UTC")
        return utc.dt.strftime("%Y-%m-%dT%H:%M:%S%.6f" + ("" if kind.time_zone is None else "Z"))
    if isinstance(kind, pl.Duration):
        return value.dt.total_microseconds() / 1_000_000
    if kind == pl.Date:
        return value.dt.strftime("%Y-%m-%d")
    if kind == pl.Time:
        return value.dt.strftime("%H:%M:%S%.6f")
    if kind == pl.Binary:
        return value.bin.encode("base64")
    if kind.is_float():
        return pl.when(value.is_finite()).then(value)
    if isinstance(kind, pl.Categorical | pl.Enum | pl.Decimal):
        return value.cast(pl.String)
    if isinstance(kind, pl.List):
        return value.list.eval(_plain(pl.element(), kind.inner, name))
    if isinstance(kind, pl.Array):
        return _plain(value.arr.to_list(), pl.List(kind.inner), name)
    if isinstance(kind, pl.Struct):
        fields = [_plain(value.struct.field(each.name), each.dtype, name).alias(each.name) for each in kind.fields]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    if kind == pl.Object:
        raise SchemaError(f"column {name!r} is {kind}, which JSON cannot hold", hint="Leave it out with drop().")
    return value
