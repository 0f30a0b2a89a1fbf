"""From raw columns to finished ones, and back.

The decoders give what is on the wire: a timestamp as seconds and nanoseconds, an enum as a number (see `layout`). Here
whole columns of that become what a frame holds, and back before encoding. A time that no clock can show (before the
year 1, after 9999, a second with more than 10^9 nanoseconds) is not an error of the batch: its row is marked, and
becomes a dead letter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.events.layout import INSTANT_TYPE, SPAN_TYPE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.events.layout import Layout, Node

#: What google.protobuf.Timestamp allows: 0001-01-01T00:00:00Z to 9999-12-31T23:59:59.999999999Z, in seconds.
MIN_SECONDS = -62_135_596_800
MAX_SECONDS = 253_402_300_799
#: What google.protobuf.Duration allows, either way.
MAX_SPAN_SECONDS = 315_576_000_000
MICROS = 1_000_000


def finish(layout: Layout, raw: pa.RecordBatch) -> tuple[pa.RecordBatch, NDArray[np.bool_] | None, str]:
    """Turn raw columns into those of the frame.

    Returns:
        The columns of the layout; a mask of the rows that hold a time out of range (None: no such row); the name of the
        first column that does.
    """
    bad: NDArray[np.bool_] | None = None
    where = ""
    arrays = []
    for node in layout.nodes:
        column = raw.column(node.name)
        if node.plain:
            arrays.append(column)
            continue
        array, wrong = _finish_column(node, column)
        arrays.append(array)
        if wrong is not None:
            where = where or node.name
            bad = wrong if bad is None else bad | wrong
    return pa.RecordBatch.from_arrays(arrays, schema=layout.arrow_schema), bad, where


def _finish_column(node: Node, column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    if not node.repeated:
        return _finish_elements(node, column)
    values, wrong = _finish_elements(node, column.flatten())
    offsets = _zero_based_offsets(column)
    if node.kind == "map":
        wrong = None if wrong is None else _any_per_list(offsets, wrong)
        values, offsets = _entries_by_key(values, offsets)
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=node.finished_field().type), wrong
    field = node.finished_field()
    array = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=field.type)
    return array, None if wrong is None else _any_per_list(offsets, wrong)


def _finish_elements(node: Node, column: pa.Array) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    if node.kind == "instant":
        return instants(column)
    if node.kind == "span":
        return _spans(column)
    if node.kind == "enum":
        return _enum_names(node, column), None
    if node.kind == "wrapper":
        return column.flatten()[0], None
    if node.kind == "plain":
        return column, None
    children, bad = [], None
    for child, array in zip(node.children, _children(column), strict=True):
        finished, wrong = (array, None) if child.plain else _finish_column(child, array)
        children.append(finished)
        if wrong is not None:
            bad = wrong if bad is None else bad | wrong
    fields = [child.finished_field() for child in node.children]
    mask = column.is_null() if column.null_count else None
    if bad is not None and mask is not None:
        bad &= ~mask.to_numpy(zero_copy_only=False)
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask), bad


def _entries_by_key(entries: pa.StructArray, offsets: NDArray[np.int32]) -> tuple[pa.Array, NDArray[np.int32]]:
    """Sort the entries of each map by key; of entries with the same key the last one counts, as protobuf says."""
    rows = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keys = entries.field("key")
    table = pa.table({"row": rows, "key": keys, "place": np.arange(len(rows))})
    order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("key", "ascending"), ("place", "ascending")])
    codes = keys.dictionary_encode().indices.take(order).to_numpy(zero_copy_only=False)
    sorted_rows = rows[order.to_numpy()]
    last = np.ones(len(rows), bool)
    last[:-1] = (codes[1:] != codes[:-1]) | (sorted_rows[1:] != sorted_rows[:-1])
    counts = np.bincount(sorted_rows[last], minlength=len(offsets) - 1)
    return entries.take(order.filter(pa.array(last))), np.concatenate(([0], np.cumsum(counts))).astype(np.int32)


def instants(column: pa.StructArray) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Timestamps of (seconds, nanos), with a mask of those out of range; sub-microseconds are cut off."""
    seconds, nanos = _seconds_and_nanos(column)
    fine = (seconds >= MIN_SECONDS) & (seconds <= MAX_SECONDS) & (nanos >= 0) & (nanos < 1_000_000_000)
    return _micros(column, seconds * MICROS + nanos // 1_000, fine, INSTANT_TYPE)


def _spans(column: pa.StructArray) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    seconds, nanos = _seconds_and_nanos(column)
    fine = (seconds >= -MAX_SPAN_SECONDS) & (seconds <= MAX_SPAN_SECONDS) & (nanos > -1_000_000_000)
    fine &= (nanos < 1_000_000_000) & ~((seconds > 0) & (nanos < 0)) & ~((seconds < 0) & (nanos > 0))
    return _micros(column, seconds * MICROS + np.sign(nanos) * (np.abs(nanos) // 1_000), fine, SPAN_TYPE)


def _seconds_and_nanos(column: pa.StructArray) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # Under a missing timestamp the numbers may be missing too, and NumPy has no missing integers.
    seconds, nanos = (_numbers(child) for child in _children(column))
    return seconds, nanos.astype(np.int64)


def _micros(
    column: pa.Array, micros: NDArray[np.int64], fine: NDArray[np.bool_], target: pa.DataType
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    null = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    bad: NDArray[np.bool_] | None = None
    if not fine.all():
        bad = ~fine if null is None else ~fine & ~null
        micros = np.where(fine, micros, 0)
    return pa.array(micros, pa.int64(), mask=null).view(target), bad if bad is not None and bad.any() else None


def _enum_names(node: Node, column: pa.Array) -> pa.Array:
    names: dict[int, str] = {}
    for number, name in node.names:
        names.setdefault(number, name)  # of aliases the first one counts
    encoded = column.dictionary_encode()
    texts = [names.get(number, str(number)) for number in encoded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(encoded.indices)


def unfinish(layout: Layout, frame: pl.DataFrame, *, packed: Mapping[str, pa.Array] | None = None) -> pa.RecordBatch:
    """Turn the columns of a frame into raw ones; a column that the frame lacks is null, or protobuf's default.

    Args:
        layout: The layout.
        frame: The columns; others than the layout's are ignored.
        packed: Columns that are already Arrow arrays of the finished type.

    Raises:
        SchemaError: A column has a type or a value that the field cannot hold.
    """
    arrays = []
    for node in layout.nodes:
        if packed is not None and node.name in packed:
            arrays.append(_unfinish_column(layout, node, packed[node.name]))
        elif node.name in frame.columns:
            column = _to_arrow(layout, frame.get_column(node.name), _loosened(node.finished_field().type))
            arrays.append(_unfinish_column(layout, node, column))
        else:
            arrays.append(_absent(node, frame.height))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([node.raw_field() for node in layout.nodes]))


def _absent(node: Node, rows: int) -> pa.Array:
    field = node.raw_field()
    if field.nullable:
        return pa.nulls(rows, field.type)
    return _defaults(field.type, rows)


def _defaults(of: pa.DataType, rows: int) -> pa.Array:
    if pa.types.is_list(of):
        return pa.ListArray.from_arrays(pa.array(np.zeros(rows + 1, np.int32)), pa.array([], of.value_type), type=of)
    zero = "" if pa.types.is_string(of) else b"" if pa.types.is_binary(of) else False if pa.types.is_boolean(of) else 0
    return pa.repeat(pa.scalar(zero, of), rows)


def _loosened(of: pa.DataType) -> pa.DataType:
    """The same type with nulls allowed everywhere: under a null struct all fields are null."""
    if pa.types.is_list(of):
        return pa.list_(_loosened(of.value_type))
    if pa.types.is_struct(of):
        return pa.struct([pa.field(field.name, _loosened(field.type)) for field in of])
    return of


def _to_arrow(layout: Layout, series: pl.Series, target: pa.DataType) -> pa.Array:
    if series.dtype in (pl.Categorical, pl.Enum):
        series = series.cast(pl.String)
    elif isinstance(series.dtype, pl.Datetime) and series.dtype.time_zone is None:
        raise SchemaError(
            f"column {series.name!r} for {layout.name} has no time zone",
            hint='Say which it is: pl.col(...).dt.replace_time_zone("UTC").',
        )
    array = series.rechunk().to_arrow()
    try:
        return array.cast(target) if array.type != target else array
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(
            f"column {series.name!r} ({series.dtype}) does not fit {layout.name}.{series.name} ({target}): {error}",
            hint="Cast the column first.",
        ) from error


def _unfinish_column(layout: Layout, node: Node, column: pa.Array) -> pa.Array:
    if not node.repeated:
        array = _unfinish_elements(layout, node, column)
        if node.nullable or not array.null_count:
            return array
        return pc.fill_null(array, _defaults(array.type, 1)[0])
    if column.null_count == len(column):  # Arrow takes long to fill in lists one by one
        return _defaults(node.raw_field().type, len(column))
    if column.null_count:  # protobuf knows no missing list, only an empty one
        column = pc.fill_null(column, pa.scalar([], column.type))
    values = _unfinish_elements(layout, node, column.flatten())
    offsets = _zero_based_offsets(column)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), values, type=node.raw_field().type)


def _unfinish_elements(layout: Layout, node: Node, column: pa.Array) -> pa.Array:
    if node.repeated and column.null_count:
        raise SchemaError(
            f"a list in column {node.name!r} for {layout.name} holds a null, which protobuf's lists cannot",
            hint="Drop the nulls: pl.col(...).list.drop_nulls().",
        )
    mask = column.is_null() if column.null_count else None
    if node.kind == "plain" and not node.children:
        return column
    if node.kind in ("instant", "span"):
        return _pairs(layout, node, column, mask)
    if node.kind == "enum":
        return _enum_numbers(layout, node, column)
    if node.kind == "wrapper":
        inner = pc.fill_null(column, _defaults(column.type, 1)[0]) if mask is not None else column
        return pa.StructArray.from_arrays([inner], fields=list(node.raw), mask=mask)
    children = [
        _unfinish_column(layout, child, array) for child, array in zip(node.children, _children(column), strict=True)
    ]
    return pa.StructArray.from_arrays(children, fields=list(node.raw), mask=mask)


def _pairs(layout: Layout, node: Node, column: pa.Array, mask: pa.Array | None) -> pa.Array:
    micros = _numbers(column.view(pa.int64()))
    if node.kind == "instant":
        seconds, low, high = micros // MICROS, MIN_SECONDS, MAX_SECONDS
    else:
        seconds, low, high = np.sign(micros) * (np.abs(micros) // MICROS), -MAX_SPAN_SECONDS, MAX_SPAN_SECONDS
    if len(seconds) and (seconds.min() < low or seconds.max() > high):
        raise SchemaError(
            f"column {node.name!r} for {layout.name} holds a time out of protobuf's range",
            hint="Instants are from the year 1 to 9999, durations up to 10,000 years.",
        )
    nanos = ((micros - seconds * MICROS) * 1_000).astype(np.int32)
    return pa.StructArray.from_arrays([pa.array(seconds), pa.array(nanos)], fields=list(node.raw), mask=mask)


def _enum_numbers(layout: Layout, node: Node, column: pa.Array) -> pa.Array:
    numbers = {name: number for number, name in node.names}
    encoded = column.dictionary_encode()
    try:
        values = [numbers[text] if text in numbers else int(text) for text in encoded.dictionary.to_pylist()]
        return pa.array(values, pa.int32()).take(encoded.indices)
    except (ValueError, pa.ArrowInvalid, OverflowError) as error:
        raise SchemaError(
            f"column {node.name!r} for {layout.name} holds a name that the enum does not have: {error}",
            hint=f"Names are: {', '.join(numbers)}.",
        ) from error


def ambiguous(nodes: Sequence[Node], arrays: Iterable[pa.Array]) -> NDArray[np.bool_] | None:
    """The rows in which two members of a oneof are set, which protobuf's own classes never show; None: no such row."""
    found: list[NDArray[np.bool_]] = []
    members: dict[str, list[NDArray[np.bool_]]] = {}
    for node, array in zip(nodes, arrays, strict=True):
        if not node.has_oneof:
            continue
        if node.oneof is not None and array.null_count < len(array):
            members.setdefault(node.oneof, []).append(array.is_valid().to_numpy(zero_copy_only=False))
        if any(child.has_oneof for child in node.children):
            inside = ambiguous(node.children, _children(array.flatten() if node.repeated else array))
            if inside is not None:
                found.append(_any_per_list(_zero_based_offsets(array), inside) if node.repeated else inside)
    found.extend(np.sum(group, axis=0) > 1 for group in members.values() if len(group) > 1)
    if not found:
        return None
    result: NDArray[np.bool_] = np.any(found, axis=0)
    return result if result.any() else None


def _children(column: pa.StructArray) -> Iterable[pa.Array]:
    # field(), not flatten(): what is under a null struct stays as it is instead of becoming null.
    return (column.field(index) for index in range(column.type.num_fields))


def _numbers(column: pa.Array) -> NDArray[Any]:
    """The values of a column of numbers, 0 where there is none."""
    filled = pc.fill_null(column, 0) if column.null_count else column
    numbers: NDArray[Any] = filled.to_numpy(zero_copy_only=False)
    return numbers


def _zero_based_offsets(column: pa.ListArray) -> NDArray[np.int32]:
    lengths = _numbers(column.value_lengths())
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64))).astype(np.int32)


def _any_per_list(offsets: NDArray[np.int32], wrong: NDArray[np.bool_]) -> NDArray[np.bool_]:
    counts = np.concatenate(([0], np.cumsum(wrong, dtype=np.int64)))
    return counts[offsets[1:]] > counts[offsets[:-1]]
