"""Rows in pages: a binary form of rows that is cheap to cut into many small parts and to join again.

An Arrow IPC frame costs some ten microseconds per column and part, so state in thousands of small pages would spend
its time on headers. Here the columns of fixed width and the lengths of texts are one numpy record per row, and the
bytes of each text column follow as one block. Nested columns, which few jobs keep, remain Arrow batches.

Rows keep this form while they are only moved from page to page; only those that an operator asks for become a frame.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.engine.state import Segments

#: Stands for "at no time" among due times.
NEVER = int(np.iinfo(np.int64).max)

_HASH, _EVENT, _CLOCK, _NULLS = "hash", "event", "clock", "nulls"
#: Begins a segment that is a page.
MARK = b"HP1\n"
#: Bytes at the beginning of a page that name its layout.
PREFIX = 6
_END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
_NUMBERS: dict[Any, str] = {
    pl.Int8: "i1",
    pl.Int16: "i2",
    pl.Int32: "i4",
    pl.Int64: "i8",
    pl.UInt8: "u1",
    pl.UInt16: "u2",
    pl.UInt32: "u4",
    pl.UInt64: "u8",
    pl.Float32: "f4",
    pl.Float64: "f8",
    pl.Boolean: "u1",
    pl.Date: "i4",
    pl.Datetime: "i8",
    pl.Duration: "i8",
    pl.Time: "i8",
}
_TEXTS = (pl.String, pl.Binary, pl.Categorical, pl.Enum)


@dataclass(frozen=True)
class PagedRows:
    """Rows of one layout.

    Args:
        fixed: One record per row: hash, due times, null bits, and what has a fixed width.
        texts: The values of each text column.
        nested: The other columns; None where there are none.
    """

    fixed: NDArray[Any]
    texts: tuple[Any, ...] = ()
    nested: pl.DataFrame | None = None

    @property
    def height(self) -> int:
        """How many rows there are."""
        return len(self.fixed)

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """The hash of each row's key."""
        return self.fixed[_HASH]

    @property
    def event(self) -> NDArray[np.int64]:
        """When each row is due by event time."""
        return self.fixed[_EVENT]

    @property
    def clock(self) -> NDArray[np.int64]:
        """When each row is due by processing time."""
        return self.fixed[_CLOCK]

    def chosen(self, places: NDArray[np.int64]) -> PagedRows:
        """Give the rows at these places, in their order."""
        taken = pa.array(places) if self.texts else None
        nested = None if self.nested is None else self.nested[places]
        # As plain bytes: numpy copies records field by field.
        record = self.fixed.dtype
        fixed = self.fixed.view(np.dtype((np.void, record.itemsize)))[places].view(record)
        return PagedRows(fixed, tuple(text.take(taken) for text in self.texts), nested)


@dataclass(frozen=True)
class Layout:
    """How the rows of one schema are written.

    Args:
        number: What pages call it.
        schema: The columns.
    """

    number: int
    schema: pl.Schema

    @cached_property
    def texts(self) -> list[str]:
        """The text columns."""
        return [name for name, kind in self.schema.items() if isinstance(kind, _TEXTS)]

    @cached_property
    def nested(self) -> list[str]:
        """The columns that are neither numbers nor texts."""
        known = (*_NUMBERS, *_TEXTS)
        return [name for name, kind in self.schema.items() if kind.base_type() not in known]

    @cached_property
    def record(self) -> np.dtype[Any]:
        """The type of one row's record."""
        plain = [(name, kind) for name, kind in self.schema.items() if name not in self.nested]
        fields: list[Any] = [(_HASH, "<u8"), (_EVENT, "<i8"), (_CLOCK, "<i8"), (_NULLS, "u1", ((len(plain) + 7) // 8,))]
        fields += [(f"/{name}", "<" + _NUMBERS.get(kind.base_type(), "u4")) for name, kind in plain]
        return np.dtype(fields)

    @cached_property
    def _head(self) -> struct.Struct:
        return struct.Struct(f"<4sHI{len(self.texts) + 1}I")

    @cached_property
    def _nested_schema(self) -> tuple[Any, bytes]:
        empty = storable(self.schema.to_frame().select(self.nested))
        arrow = empty.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
        return arrow, arrow.serialize().to_pybytes()

    def encode(
        self, frame: pl.DataFrame, hashes: NDArray[np.uint64], event: NDArray[np.int64], clock: NDArray[np.int64]
    ) -> PagedRows:
        """Bring a frame of this layout's schema, with the hashes and due times of its rows, into this form."""
        fixed = np.zeros(frame.height, dtype=self.record)
        fixed[_HASH], fixed[_EVENT], fixed[_CLOCK] = hashes, event, clock
        texts = []
        plain = [column for column in frame.get_columns() if column.name not in self.nested]
        for number, column in enumerate(plain):
            if column.null_count():
                fixed[_NULLS][:, number // 8] |= column.is_null().to_numpy().astype(np.uint8) << (number % 8)
            if column.name in self.texts:
                text = column if column.dtype == pl.Binary else column.cast(pl.String).cast(pl.Binary)
                values = text.fill_null(b"").to_arrow(compat_level=pl.CompatLevel.oldest())
                texts.append(values)
                fixed[f"/{column.name}"] = np.diff(_offsets(values))
            elif column.null_count() < frame.height:
                numbers = column.cast(pl.UInt8) if column.dtype == pl.Boolean else column.to_physical()
                fixed[f"/{column.name}"] = (numbers.fill_null(0) if column.null_count() else numbers).to_numpy()
        return PagedRows(fixed, tuple(texts), frame.select(self.nested) if self.nested else None)

    def decode(self, rows: PagedRows) -> pl.DataFrame:
        """Make a frame of rows."""
        nulls = rows.fixed[_NULLS]
        some = np.bitwise_or.reduce(nulls, axis=0) if rows.height else nulls.sum(axis=0)
        found: dict[str, pl.Series] = {}
        texts = dict(zip(self.texts, rows.texts, strict=True))
        for number, (name, kind) in enumerate(item for item in self.schema.items() if item[0] not in self.nested):
            if name in texts:
                series = pl.Series(name, texts[name], dtype=pl.Binary)
                series = series if kind == pl.Binary else series.cast(pl.String)
            else:
                series = pl.Series(name, np.ascontiguousarray(rows.fixed[f"/{name}"]))
            bit = number % 8
            if some[number // 8] >> bit & 1:
                series = series.set(pl.Series((nulls[:, number // 8] >> bit & 1).astype(bool)), None)
            found[name] = series.cast(kind)
        if rows.nested is not None:
            found |= {column.name: column for column in rows.nested.get_columns()}
        return pl.DataFrame([found[name] for name in self.schema])

    def cut(self, rows: PagedRows, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        """Write rows as pages, each from a start to an end."""
        width, pack = self.record.itemsize, self._head.pack
        body = np.ascontiguousarray(rows.fixed).view(np.uint8).data if rows.height else memoryview(b"")
        # Of each text column: its bytes, and where those of each page begin and end; columns without any are left out.
        blocks = []
        lengths = np.zeros((len(starts), len(self.texts) + 1), dtype=np.int64)
        for number, text in enumerate(rows.texts):
            offsets = _offsets(text)
            lows, highs = offsets[np.asarray(starts, dtype=np.int64)], offsets[np.asarray(ends, dtype=np.int64)]
            lengths[:, number] = highs - lows
            if offsets[-1] > offsets[0]:
                blocks.append((memoryview(text.buffers()[2]), lows.tolist(), highs.tolist()))
        tails = self._nested_pages(rows.nested, starts, ends) if rows.nested is not None else [b""] * len(starts)
        lengths[:, -1] = [len(tail) for tail in tails]
        if not blocks and rows.nested is None:
            none = [0] * (len(self.texts) + 1)
            return [
                pack(MARK, self.number, end - start, *none) + body[start * width : end * width]
                for start, end in zip(starts, ends, strict=True)
            ]
        pages = []
        for page, (start, end, tail, own) in enumerate(zip(starts, ends, tails, lengths.tolist(), strict=True)):
            parts = [block[lows[page] : highs[page]] for block, lows, highs in blocks]
            head = pack(MARK, self.number, end - start, *own)
            pages.append(b"".join((head, body[start * width : end * width], *parts, tail)))
        return pages

    def joined(self, pages: Sequence[bytes]) -> PagedRows:
        """Read pages of this layout, one after the other."""
        size, width = self._head.size, self.record.itemsize
        heads = np.frombuffer(b"".join([page[PREFIX:size] for page in pages]), dtype="<u4").reshape(len(pages), -1)
        # Where each part of each page ends: its records, the bytes of each text column, what is nested.
        parts = heads.astype(np.int64)
        parts[:, 0] = size + parts[:, 0] * width
        edges = np.cumsum(parts, axis=1)
        ends = edges.T.tolist()
        if ends[-1] != list(map(len, pages)):
            page, end = next((page, end) for page, end in zip(pages, ends[-1], strict=True) if len(page) != end)
            raise _damaged(page, f"it should have {end} bytes")
        body = b"".join([page[size:end] for page, end in zip(pages, ends[0], strict=True)])
        fixed = np.frombuffer(body, dtype=self.record)
        texts = []
        for number, name in enumerate(self.texts):
            block = b""
            if parts[:, number + 1].any():
                places = zip(pages, ends[number], ends[number + 1], strict=True)
                block = b"".join([page[low:high] for page, low, high in places])
            texts.append(_text_array(fixed[f"/{name}"], block))
        nested = [page[low:] for page, low in zip(pages, ends[-2], strict=True)] if self.nested else []
        return PagedRows(fixed, tuple(texts), self._nested_rows(nested) if self.nested else None)

    def _nested_pages(self, nested: pl.DataFrame, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        # Categories would be a dictionary, for which a batch alone has no room.
        batch = storable(nested).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest()).combine_chunks()
        pages = []
        for start, end in zip(starts, ends, strict=True):
            own = batch.slice(start, end - start).to_batches() if end > start else []
            pages.append(b"".join(part.serialize().to_pybytes() for part in own))
        return pages

    def _nested_rows(self, tails: list[bytes]) -> pl.DataFrame:
        _, head = self._nested_schema
        try:
            frame = pl.read_ipc_stream(io.BytesIO(head + b"".join(tails) + _END_OF_STREAM))
        except PolarsError as problem:
            raise _damaged(b"".join(tails), str(problem)) from problem
        return frame.cast({name: self.schema[name] for name in self.nested}).rechunk()


def stacked(parts: Sequence[PagedRows]) -> PagedRows:
    """Put rows of one layout one after the other."""
    if len(parts) == 1:
        return parts[0]
    texts = tuple(pa.concat_arrays(list(texts)) for texts in zip(*(part.texts for part in parts), strict=True))
    nested = [part.nested for part in parts if part.nested is not None]
    record = parts[0].fixed.dtype
    plain = np.concatenate([part.fixed.view(np.dtype((np.void, record.itemsize))) for part in parts])
    return PagedRows(plain.view(record), texts, pl.concat(nested, rechunk=True) if nested else None)


class Layouts:
    """The layouts that pages of one operator have been written in, kept in a segment of their own.

    There is one, and one more each time the columns of the saved rows change their types.
    """

    def __init__(self, segments: Segments, name: str = "layouts") -> None:
        self._segments = segments
        self._name = name

    @cached_property
    def known(self) -> list[Layout]:
        """All layouts, the newest last."""
        value = self._segments.get(self._name) or b""
        found: list[Layout] = []
        at = 0
        while at < len(value):
            (length,) = struct.unpack_from("<I", value, at)
            frame = frame_from_bytes(value[at + 4 : at + 4 + length])
            found.append(Layout(len(found), frame.schema))
            at += 4 + length
        return found

    def forget(self) -> None:
        """Forget the layouts of an operator that has no pages any more; nothing is read to find that out."""
        if "known" in self.__dict__ and self.known:
            self.known.clear()
            self._segments.delete(self._name)

    def of_page(self, page: bytes) -> Layout:
        """Tell the layout of a page."""
        if page[:4] != MARK:
            raise StateError(
                f"a page of saved rows starts with {page[:4]!r}, not with {MARK!r}",
                hint="It was written by another version of Headrace; start the job afresh or with that version.",
            )
        (number,) = struct.unpack_from("<H", page, 4)
        if number >= len(self.known):
            raise _damaged(page, f"its layout {number} is not known")
        layout: Layout = self.known[number]
        return layout

    def fitting(self, schema: pl.Schema) -> Layout:
        """Give the newest layout if it can hold rows of this schema, else a new one that can hold both."""
        if self.known and self.known[-1].schema == schema:
            return self.known[-1]
        for layout in reversed(self.known):
            if layout.schema.keys() == schema.keys() and _united(layout.schema, schema) == layout.schema:
                return layout
        layout = Layout(len(self.known), schema)
        self.known.append(layout)
        frames = [frame_to_bytes(each.schema.to_frame()) for each in self.known]
        self._segments.put(self._name, b"".join(struct.pack("<I", len(frame)) + frame for frame in frames))
        return layout


def storable(frame: pl.DataFrame) -> pl.DataFrame:
    """Give columns of categories as text: a page has no room for a dictionary.

    >>> dict(storable(pl.DataFrame({"line": ["7"]}, schema={"line": pl.Enum(["7", "9"])})).schema)
    {'line': String}
    """
    casts = {name: plain for name, kind in frame.schema.items() if (plain := _plain(kind)) != kind}
    return frame.cast(casts) if casts else frame  # type: ignore[arg-type]


def _plain(kind: pl.DataType) -> pl.DataType:
    if isinstance(kind, (pl.Categorical, pl.Enum)):
        return pl.String()
    if isinstance(kind, pl.List):
        return pl.List(_plain(kind.inner))  # type: ignore[arg-type]
    if isinstance(kind, pl.Array):
        return pl.Array(_plain(kind.inner), shape=kind.size)  # type: ignore[arg-type]
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _plain(field.dtype) for field in kind.fields})  # type: ignore[arg-type]
    return kind


def _united(one: pl.Schema, two: pl.Schema) -> pl.Schema:
    try:
        return pl.concat([one.to_frame(), two.to_frame()], how="diagonal_relaxed").schema
    except PolarsError:
        return two


def _offsets(values: Any) -> NDArray[np.int64]:
    return np.frombuffer(values.buffers()[1], dtype=np.int64)[values.offset : values.offset + len(values) + 1]


def _text_array(lengths: NDArray[Any], block: bytes) -> Any:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(block)]
    )


def _damaged(page: bytes, problem: str) -> StateError:
    return StateError(
        f"a page of saved rows of {len(page)} bytes cannot be read: {problem}",
        hint="The checkpoint is damaged; restore it from a copy, or start the job afresh.",
    )
