"""Records that bring their own columns, read for a whole batch at once where they all look alike.

A `Record` is a list of cells, each a message with a name, perhaps a type, and a value. Read message by message, that
costs more than anything else on an event's way. But the records of a topic nearly always have the same columns in the
same order, written by the same code. Here the first record says which names are expected where, and each cell is then
looked at in all records together.

What is taken is narrow on purpose: the names of the first record, values of the natural type of a declared column, or
nulls. Everything else (another order, other types, numbers of more than eight bytes, lists) is left to the general
reader (`headrace.events.cells`), record by record; the two give the same, which tests/events/test_quick_records.py
compares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.events import dtype as dtypes
from headrace.events.reader import value_offsets

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray
    from polars.datatypes import DataType

    Bools = NDArray[np.bool_]
    Longs = NDArray[np.int64]
    Words = NDArray[np.uint64]

#: Tags: of a cell in its record, of name and type in a cell.
_CELL, _NAME, _TYPE = 0x0A, 0x0A, 0x12
#: Tags of the members that hold values, by the type for which a record need not say its type.
_MEMBERS: dict[DataType, int] = {
    pl.Boolean(): 0x18,
    pl.Int64(): 0x20,
    pl.UInt64(): 0x28,
    pl.Float64(): 0x31,
    pl.String(): 0x3A,
}
_MOST_CELLS = 200
#: Bytes behind the last record, so that what a broken record says of its lengths needs no check: a cell begins in its
#: record, and a name has 127 bytes at most.
_PADDING = 256
_WORD = 8
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class QuickRead:
    """What could be read quickly.

    Args:
        frame: The declared columns of the records that fit, in the order of the declaration.
        fits: Which records these are; None: all.
    """

    frame: pl.DataFrame
    fits: Bools | None


def read_records(
    values: pa.BinaryArray, schema: Mapping[str, DataType], *, reserved: Collection[str] = frozenset()
) -> QuickRead | None:
    """Read the records that look like the first one; None where there is no use in trying.

    Args:
        values: Records, as serialised messages.
        schema: The columns that are wanted, with their types.
        reserved: Names that cells cannot have.
    """
    reserved = frozenset(reserved)
    if not schema or not len(values) or values.null_count or any(kind not in _MEMBERS for kind in schema.values()):
        return None
    names = _names(values[0].as_py())
    if names is None or len(set(names)) < len(names):
        return None
    try:
        texts = [name.decode() for name in names]
    except UnicodeDecodeError:
        return None
    if not reserved.isdisjoint(texts):
        return None
    cursor = _Cursor(values)
    columns: dict[str, pl.Series] = {}
    for name, text in zip(names, texts, strict=True):
        begin, end = cursor.cell(name)
        if text in schema:
            columns[text] = _column(cursor, text, schema[text], begin, end)
        else:
            _skim(cursor, begin, end)
    cursor.require(cursor.at == cursor.end)
    fits = cursor.fits
    if not fits.any():
        return None
    ordered = [
        columns.get(name, pl.Series(name, [None], kind).new_from_index(0, len(values))) for name, kind in schema.items()
    ]
    frame = pl.DataFrame(ordered)
    whole = bool(fits.all())
    text_columns = [name for name, kind in schema.items() if kind == pl.String and name in columns]
    frame = frame if whole else frame.filter(pl.Series(fits))
    try:
        frame = frame.with_columns(_texts(frame.get_column(name)) for name in text_columns)
    except pa.ArrowInvalid:
        return None  # a text is no UTF-8: the general reader says which
    return QuickRead(frame, None if whole else fits)


def _texts(column: pl.Series) -> pl.Series:
    array = column.rechunk().to_arrow().cast(pa.large_binary())
    return pl.Series(column.name, pl.from_arrow(array.cast(pa.large_string())), dtype=pl.String)


def _names(record: bytes) -> list[bytes] | None:
    """Read the names of a record's cells; None if it is not made of short, simple cells."""
    names: list[bytes] = []
    at = 0
    while at < len(record):
        if record[at] != _CELL or at + 4 > len(record) or len(names) == _MOST_CELLS:
            return None
        size, header = record[at + 1], 2
        if size & 0x80:
            size, header = size & 0x7F | record[at + 2] << 7, 3
        begin = at + header
        at = begin + size
        if at > len(record) or size < 2 or record[begin] != _NAME or record[begin + 1] > min(0x7F, size - 2):
            return None
        names.append(record[begin + 2 : begin + 2 + record[begin + 1]])
    return names


class _Cursor:
    """Walks through all records of a batch in step.

    Records that turn out not to fit are walked on through with whatever is there: what is read of them is thrown away.
    """

    def __init__(self, values: pa.BinaryArray) -> None:
        offsets = value_offsets(values).astype(np.int64)
        buffer = values.buffers()[2]
        data = np.frombuffer(buffer, np.uint8)[: offsets[-1]] if buffer is not None else np.zeros(0, np.uint8)
        self.data = np.concatenate([data, np.zeros(_PADDING, np.uint8)])
        # Eight bytes at any place, as one number.
        self._words = np.ndarray((len(self.data) - 7,), "<u8", self.data, strides=(1,))
        self.at, self.end = offsets[:-1].copy(), offsets[1:]
        self.fits = np.ones(len(self.at), bool)
        #: How many bytes before each place are no ASCII, counted when it is asked for.
        self._high: NDArray[np.int32] | None = None

    def require(self, condition: Bools) -> None:
        """Keep only records that hold a condition."""
        self.fits &= condition

    def words(self, places: Longs) -> Words:
        """Give the eight bytes at some places, which lie at most the padding behind the last record."""
        return self._words[places]

    def cell(self, name: bytes) -> tuple[Longs, Longs]:
        """Go over one cell, which must have a name; tell where what comes behind the name begins and ends."""
        word = self.words(self.at)
        size = (word >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
        more = size >= 0x80
        header = np.full(len(size), 2)
        if more.any():
            high = (word >> np.uint64(16) & np.uint64(0xFF)).astype(np.int64)
            self.require(~more | (high < 0x80))
            size = np.where(more, size & 0x7F | high << 7, size)
            header = np.where(more, 3, 2)
        begin = self.at + header
        end = begin + size
        self.require((word & np.uint64(0xFF) == _CELL) & (end <= self.end))
        self._require_bytes(begin, bytes([_NAME, len(name)]) + name)
        self.at = np.minimum(end, self.end)
        behind = begin + 2 + len(name)
        self.require(behind <= end)
        return behind, end

    def _require_bytes(self, places: Longs, expected: bytes) -> None:
        for first in range(0, len(expected), 8):
            piece = expected[first : first + 8]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            self.require(self.words(places + first) & mask == np.uint64(int.from_bytes(piece, "little")))

    def is_ascii(self, begin: Longs, end: Longs, asked: Bools) -> Bools:
        """Tell where there is nothing but ASCII between two places, which makes it UTF-8; False if not asked."""
        if not asked.any():
            return asked
        if self._high is None:
            self._high = np.zeros(len(self.data) + 1, np.int32)
            np.cumsum(self.data >= 0x80, out=self._high[1:])
        last = len(self.data)
        # Places behind the value's length byte; a length of two bytes has its high bit in the first.
        skipped = np.where(self.data[np.minimum(begin + 1, last - 1)] >= 0x80, 3, 2)
        counted = self._high[np.minimum(end, last)] - self._high[np.minimum(begin + skipped, last)]
        ascii_only: Bools = asked & (counted == 0)
        return ascii_only

    def matches(self, places: Longs, ends: Longs, expected: bytes) -> Bools:
        """Tell where exactly some bytes lie between two places."""
        same: Bools = ends - places == len(expected)
        for first in range(0, len(expected), 8):
            piece = expected[first : first + 8]
            mask = np.uint64((1 << 8 * len(piece)) - 1)
            same &= self.words(places + first) & mask == np.uint64(int.from_bytes(piece, "little"))
        return same


def _column(cursor: _Cursor, name: str, kind: DataType, begin: Longs, end: Longs) -> pl.Series:
    """Read a value of a type, or null, from each cell."""
    text = dtypes.to_text(kind).encode()
    null = (begin == end) | cursor.matches(begin, end, bytes([_TYPE, len(text)]) + text)
    tag = cursor.data[begin]
    cursor.require(null | (tag == _MEMBERS[kind]))
    at = begin + 1
    if kind == pl.String:
        return _text_column(cursor, name, null, at, end)
    numbers: NDArray[Any]
    if kind == pl.Float64:
        cursor.require(null | (end - at == 8))
        numbers = cursor.words(at).view(np.float64)
    else:
        number = _varint(cursor, null, at, end)
        if kind == pl.Int64:
            numbers = (number >> _ONE).view(np.int64) ^ -(number & _ONE).view(np.int64)
        elif kind == pl.Boolean:
            cursor.require(null | (number <= _ONE))
            numbers = number == _ONE
        else:
            numbers = number
    return _series(name, numbers, null)


def _skim(cursor: _Cursor, begin: Longs, end: Longs) -> None:
    """See that cells which nobody wants are well formed: whether a record is refused depends on no reader's columns."""
    length = int(end[0] - begin[0])
    first = cursor.data[begin[0] : end[0]].tobytes()
    sound = cursor.matches(begin, end, first) if length <= _WORD else np.zeros(len(begin), bool)
    # What the first record has there is looked at as well.
    sound[0] = False
    others = np.flatnonzero(~sound & cursor.fits)
    begin, end = begin[others], end[others]
    size, word = end - begin, cursor.words(begin)
    tag, length_byte = word & np.uint64(0xFF), (word >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
    high = (word >> np.uint64(16) & np.uint64(0xFF)).astype(np.int64)
    long_text = (length_byte >= 0x80) & (high < 0x80)
    text_size = np.where(long_text, (length_byte & 0x7F | high << 7) + 3, length_byte + 2)
    texts = ((tag == _TYPE) & (length_byte < 0x80)) | (tag == _MEMBERS[pl.String()])
    fine = (size == 0) | ((tag == _MEMBERS[pl.Float64()]) & (size == 9))
    fine |= (tag == _MEMBERS[pl.Boolean()]) & (size == 2) & (length_byte <= 1)
    fine |= texts & (text_size == size) & (long_text | (length_byte < 0x80)) & cursor.is_ascii(begin, end, texts)
    numbers = (tag == _MEMBERS[pl.Int64()]) | (tag == _MEMBERS[pl.UInt64()])
    fine |= numbers & (size >= 2) & (size <= _WORD) & _ends_at(word, size)
    cursor.fits[others] &= fine


def _ends_at(word: Words, size: Longs) -> Bools:
    """Tell whether a tag of one byte and a varint take so many bytes, up to eight."""
    bits = np.uint64(8) * np.clip(size, 2, _WORD).astype(np.uint64)
    tops = (
        (word >> np.uint64(8))
        & np.uint64(0x0080808080808080)
        & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(72) - bits))
    )
    expected = np.uint64(0x0080808080808080) & (np.uint64(0x00FFFFFFFFFFFFFF) >> (np.uint64(72) - bits))
    ends: Bools = tops == expected
    return ends


def _series(name: str, numbers: NDArray[Any], null: Bools) -> pl.Series:
    array = pa.array(numbers, mask=null) if null.any() else pa.array(numbers)
    return pl.Series(name, pl.from_arrow(array))


def _varint(cursor: _Cursor, null: Bools, at: Longs, end: Longs) -> Words:
    """Read numbers of one to eight bytes that fill their cells."""
    size = np.where(null, 1, end - at)
    cursor.require((size >= 1) & (size <= 8))
    size = np.clip(size, 1, 8)
    word = cursor.words(at) & (np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - np.uint64(8) * size.astype(np.uint64)))
    ends = np.uint64(0x8080808080808080) >> (np.uint64(64) - np.uint64(8) * (size.astype(np.uint64) - _ONE))
    ends = np.where(size == 1, np.uint64(0), ends)
    cursor.require(null | (word & np.uint64(0x8080808080808080) == ends))
    number = word & np.uint64(0x7F)
    for place in range(1, int(size.max(initial=1))):
        number |= word >> np.uint64(place) & np.uint64(0x7F << 7 * place)
    return number


def _text_column(cursor: _Cursor, name: str, null: Bools, at: Longs, end: Longs) -> pl.Series:
    """Cut texts out of the records; they are still bytes, since nobody has looked whether they are texts."""
    word = cursor.words(at)
    size = (word & np.uint64(0xFF)).astype(np.int64)
    high = (word >> np.uint64(8) & np.uint64(0xFF)).astype(np.int64)
    more = size >= 0x80
    cursor.require(null | ~more | (high < 0x80))
    begin = np.where(more, at + 2, at + 1)
    size = np.where(more, size & 0x7F | high << 7, size)
    cursor.require(null | (begin + size == end))
    size = np.where(null | ~cursor.fits, 0, size)
    offsets = np.zeros(len(size) + 1, np.int64)
    np.cumsum(size, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(begin - offsets[:-1], size)
    valid = pa.array(~null).buffers()[1] if null.any() else None
    array = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(size), [valid, pa.py_buffer(offsets), pa.py_buffer(cursor.data[places])]
    )
    return pl.Series(name, pl.from_arrow(array))
