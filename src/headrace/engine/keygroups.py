"""Key groups: the unit of state and parallelism.

A key belongs to one of a fixed number of groups by a hash that never changes: neither with the process, nor with a
version of Polars, nor with the machine. Saved state depends on it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)

#: What stands for a null among checksums, and the length from which texts are not gone through byte by byte.
_NULL = 0xFFFFFFFFFF
_LONG = 48


def key_groups(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> NDArray[np.int32]:
    """Tell the key group of every row.

    Args:
        frame: Rows with the key columns; a null key is a key of its own.
        keys: The key columns; none means that all rows belong together.
        groups: How many key groups there are.

    >>> frame = pl.DataFrame({"vehicle": ["40/456", "12/1315", "40/456"]})
    >>> key_groups(frame, ["vehicle"], 8).tolist()
    [0, 1, 0]
    """
    if groups == 1 or not keys or frame.height == 0:
        return np.zeros(frame.height, dtype=np.int32)
    return (_mixed(frame, keys) % np.uint64(groups)).astype(np.int32)


def key_hashes(frame: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.uint64]:
    """Hash the key of every row, in a way that also spreads the keys of one key group; it never changes either.

    >>> frame = pl.DataFrame({"vehicle": ["40/456", "12/1315", "40/456"]})
    >>> first, other, again = key_hashes(frame, ["vehicle"]).tolist()
    >>> first == again, first == other
    (True, False)
    """
    if not keys or frame.height == 0:
        return np.zeros(frame.height, dtype=np.uint64)
    return _mix(_mixed(frame, keys))


def split_by_group(frame: pl.DataFrame, keys: Sequence[str], groups: int) -> dict[int, pl.DataFrame]:
    """Split rows by key group; groups without rows are absent.

    >>> frame = pl.DataFrame({"vehicle": ["40/456", "12/1315", "40/456"]})
    >>> {group: part.height for group, part in sorted(split_by_group(frame, ["vehicle"], 8).items())}
    {0: 2, 1: 1}
    """
    if frame.height == 0:
        return {}
    numbers = key_groups(frame, keys, groups)
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], ordered.size]
    arranged = frame[order]
    return {
        int(ordered[start]): arranged.slice(int(start), int(end - start))
        for start, end in zip(starts, ends, strict=True)
    }


def check_key(name: str, kind: pl.DataType) -> None:
    """Refuse a column whose type cannot be a key.

    >>> check_key("vehicle", pl.String())
    >>> check_key("speed", pl.Float64())
    Traceback (most recent call last):
    ...
    headrace.errors.PlanError: column 'speed' is a floating-point number and cannot be a key. ...
    """
    if kind.is_float():
        raise PlanError(
            f"column {name!r} is a floating-point number and cannot be a key",
            hint="Two numbers that print alike may differ; round it to an integer, or key by another column.",
        )
    narrow = kind.is_integer() and kind not in (pl.Int128, pl.UInt128)
    text = kind in (pl.String, pl.Binary, pl.Categorical) or isinstance(kind, pl.Enum)
    if not (narrow or text or kind.is_temporal() or kind == pl.Boolean):
        raise PlanError(
            f"column {name!r} of type {kind} cannot be a key",
            hint="Key by text, whole numbers, booleans, dates or times; take a struct's fields apart first.",
        )


def _mixed(frame: pl.DataFrame, keys: Sequence[str]) -> NDArray[np.uint64]:
    mixed = np.zeros(frame.height, dtype=np.uint64)
    for key in keys:
        mixed = _mix(mixed * np.uint64(31) + _hashes(frame.get_column(key)))
    return mixed


def _hashes(column: pl.Series) -> NDArray[np.uint64]:
    kind = column.dtype
    check_key(column.name, kind)
    if kind.is_integer():
        # Two's complement wraps a negative number to a large one; both sides of a restart do the same.
        values = column.cast(pl.Int64) if kind.is_signed_integer() else column.cast(pl.UInt64)
        if not column.null_count():
            return _mix(values.to_numpy().astype(np.uint64, copy=False))
        plain = values.fill_null(0).to_numpy().astype(np.uint64, copy=False)
        return np.where(column.is_null().to_numpy(), _GOLDEN, _mix(plain))
    if kind.is_temporal() or kind == pl.Boolean:
        return _hashes(column.to_physical().cast(pl.Int64))
    return _text_hashes(column if kind == pl.Binary else column.cast(pl.String))


def _text_hashes(column: pl.Series) -> NDArray[np.uint64]:
    checks = _checksums(column)
    if checks is None:
        # Long keys repeat, so each distinct one is hashed once.
        distinct = column.unique()
        encoded = (value.encode() if isinstance(value, str) else value for value in distinct.to_list())
        numbers = pl.Series([_NULL if value is None else zlib.crc32(value) for value in encoded], dtype=pl.UInt64)
        found = column.replace_strict(distinct, numbers, return_dtype=pl.UInt64)
        return _mix(found.to_numpy().astype(np.uint64, copy=False))
    if column.null_count():
        checks = np.where(column.is_null().to_numpy(), np.uint64(_NULL), checks)
    return _mix(checks)


def _checksums(column: pl.Series) -> NDArray[np.uint64] | None:
    """Give the CRC-32 of all values, byte by byte over all rows at once; None where they are too long for that."""
    values = column.cast(pl.Binary).to_arrow(compat_level=pl.CompatLevel.oldest())
    _, edges, body = values.buffers()
    starts = np.frombuffer(edges, dtype=np.int64)[values.offset : values.offset + len(values) + 1]
    lengths = starts[1:] - starts[:-1]
    longest, shortest = int(lengths.max()), int(lengths.min())
    if longest > _LONG:
        return None
    text = np.frombuffer(body, dtype=np.uint8) if body is not None else np.zeros(0, dtype=np.uint8)
    checks = np.full(len(values), 0xFFFFFFFF, dtype=np.uint32)
    for place in range(longest):
        rows = slice(None) if place < shortest else np.flatnonzero(lengths > place)
        here = checks[rows]
        checks[rows] = _CRC_TABLE[(here ^ text[starts[:-1][rows] + place]) & 0xFF] ^ (here >> np.uint32(8))
    return (checks ^ np.uint32(0xFFFFFFFF)).astype(np.uint64)


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(0xEDB88320), table >> 1)
    return table


_CRC_TABLE = _crc_table()


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Spread the bits (the finisher of splitmix64), so that neighbouring numbers land in different groups."""
    with np.errstate(over="ignore"):
        values = values + _GOLDEN
        values = (values ^ (values >> np.uint64(30))) * _MIX_1
        values = (values ^ (values >> np.uint64(27))) * _MIX_2
        mixed: NDArray[np.uint64] = values ^ (values >> np.uint64(31))
        return mixed
