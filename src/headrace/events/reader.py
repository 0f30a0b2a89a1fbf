"""Read and write whole batches of serialised messages of one layout.

Two engines do the same work. `arrow` is ptars, a decoder in Rust from the wire format straight into Arrow columns;
`python` is protobuf's own classes, one message at a time. ptars is young, so it never has the last word: a value that
it refuses is tried with protobuf's classes, and only if they refuse it too is it bad; where ptars is not installed, or
does not take a schema, the classes do everything.

ptars skips unknown groups by recursion without a limit, and a long run of the byte 0x0B would overflow the stack of the
process. So values above `FAST_LIMIT` bytes, which real events never have, are always read by protobuf's classes, which
count their depth.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError

from headrace.events.columns import ambiguous

try:
    import ptars
except ImportError:  # the engine "python" does it all then
    ptars = None  # type: ignore[assignment,unused-ignore]

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message
    from numpy.typing import NDArray

    from headrace.events.layout import Layout, Node

Engine = Literal["auto", "arrow", "python"]

#: Longer values are not given to ptars; see the module's docstring.
FAST_LIMIT = 16_384
#: Down to this many rows a refused batch is halved; then its rows are tried one by one.
_SMALL = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """What came out of a batch of values.

    Args:
        batch: The raw columns of the good rows, in the order of the values.
        rows: The position of each good row among the values; None means that all rows are good.
        bad: Position and reason of every other row.
    """

    batch: pa.RecordBatch
    rows: NDArray[np.int64] | None
    bad: list[tuple[int, str]]


class Reader:
    """Reads and writes messages of one layout in batches.

    Args:
        layout: The layout.
        engine: "arrow" or "python" for one of the two, "auto" for the fast one where it can be had.
    """

    def __init__(self, layout: Layout, *, engine: Engine = "auto") -> None:
        self.layout = layout
        self._handler = None if engine == "python" else _handler(layout)
        if engine == "arrow" and self._handler is None:
            raise ImportError(f"ptars is not installed or does not read {layout.name}")
        self._has_oneof = any(node.has_oneof for node in layout.read_nodes)
        self._getters = [(node, _getter(node)) for node in layout.read_nodes]

    @property
    def engine(self) -> Literal["arrow", "python"]:
        """Which engine reads."""
        return "python" if self._handler is None else "arrow"

    def read(self, values: pa.BinaryArray) -> Reading:
        """Read serialised messages; no value can make this fail."""
        if self._handler is None:
            return self._merge([self._read_slowly(values, np.arange(len(values)))], len(values))
        long = value_lengths(values) > FAST_LIMIT
        if not long.any():
            batch = self._try(values)
            if batch is not None:
                return self._clear(Reading(batch, None, []), values)
            pieces: list[_Piece] = []
            self._halve(values, 0, pieces)
            return self._clear(self._merge(pieces, len(values)), values)
        short_rows, long_rows = np.flatnonzero(~long), np.flatnonzero(long)
        pieces = [self._read_slowly(values.take(pa.array(long_rows)), long_rows)]
        short = self.read(values.take(pa.array(short_rows)))
        rows = short_rows if short.rows is None else short_rows[short.rows]
        pieces.append(_Piece(short.batch, rows, [(int(short_rows[row]), text) for row, text in short.bad]))
        return self._merge(pieces, len(values))

    def write(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """Serialise raw columns; the batch must have the raw schema, or a part of its columns."""
        if self._handler is not None:
            return self._handler.record_batch_to_array(batch)
        return pa.array(
            [_message(self.layout.message_class, row).SerializeToString() for row in batch.to_pylist()], pa.binary()
        )

    def _try(self, values: pa.BinaryArray) -> pa.RecordBatch | None:
        """Read by ptars, or None if it refuses one of the values (it does not say which)."""
        try:
            return self._handler.array_to_record_batch(values)  # type: ignore[union-attr]
        except ValueError:
            return None
        except BaseException as error:
            # A panic in Rust comes as an exception that is no Exception; everything else here is not ours to catch.
            if type(error).__name__ != "PanicException":
                raise
            return None

    def _clear(self, reading: Reading, values: pa.BinaryArray) -> Reading:
        """Read rows again where several members of a oneof are set: the last one counts, but ptars shows them all."""
        if not self._has_oneof:
            return reading
        batch = reading.batch
        doubtful = ambiguous(self.layout.read_nodes, batch.columns)
        if doubtful is None:
            return reading
        rows = np.arange(len(values)) if reading.rows is None else reading.rows
        again = self._read_slowly(values.take(pa.array(rows[doubtful])), rows[doubtful])
        rest = _Piece(batch.filter(pa.array(~doubtful)), rows[~doubtful], reading.bad)
        return self._merge([rest, again], len(values))

    def _halve(self, values: pa.BinaryArray, start: int, pieces: list[_Piece]) -> None:
        """Read values that were refused as a whole: halve until the bad ones stand alone and cost only themselves."""
        size = len(values)
        step = size // 2 if size > _SMALL else 1
        for begin in range(0, size, step):
            part = values.slice(begin, step)
            batch = self._try(part)
            rows = np.arange(start + begin, start + begin + len(part))
            if batch is not None:
                pieces.append(_Piece(batch, rows, []))
            elif len(part) == 1:
                pieces.append(self._read_slowly(part, rows))
            else:
                self._halve(part, start + begin, pieces)

    def _read_slowly(self, values: pa.BinaryArray, rows: NDArray[np.int64]) -> _Piece:
        parse = self.layout.message_class.FromString
        messages, good, bad = [], [], []
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            try:
                messages.append(parse(value))
            except DecodeError as error:
                bad.append((row, self._complaint(error)))
            else:
                good.append(row)
        arrays = [
            pa.array([get(message) for message in messages], node.raw_field().type) for node, get in self._getters
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.layout.raw_schema)
        return _Piece(batch, np.array(good, np.int64), bad)

    def _complaint(self, error: DecodeError) -> str:
        """What protobuf says, with the name of the type instead of that of its reading schema."""
        return str(error).replace(self.layout.root.full_name, self.layout.name)

    def _merge(self, pieces: Sequence[_Piece], total: int) -> Reading:
        bad = sorted(entry for piece in pieces for entry in piece.bad)
        filled = [piece for piece in pieces if piece.batch.num_rows]
        if not filled:
            return Reading(_empty(self.layout), np.zeros(0, np.int64), bad)
        rows = np.concatenate([piece.rows for piece in filled])
        batch = filled[0].batch if len(filled) == 1 else pa.concat_batches([piece.batch for piece in filled])
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            batch, rows = batch.take(pa.array(order)), rows[order]
        return Reading(batch, None if len(rows) == total else rows, bad)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of a batch: the rows that could be read, where they stand in the whole, and those that could not."""

    batch: pa.RecordBatch
    rows: NDArray[np.int64]
    bad: list[tuple[int, str]]


def value_lengths(values: pa.BinaryArray) -> NDArray[np.int32]:
    """Length in bytes of each value (nulls have none)."""
    return np.diff(value_offsets(values))


def value_offsets(values: pa.BinaryArray) -> NDArray[np.int32]:
    """Where each value begins in the data buffer, and the end of the last."""
    buffer = values.buffers()[1]
    if buffer is None or not len(values):
        return np.zeros(len(values) + 1, np.int32)
    return np.frombuffer(buffer, np.int32, count=len(values) + 1, offset=values.offset * 4)


def _empty(layout: Layout) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([], field.type) for field in layout.raw_schema], schema=layout.raw_schema
    )


def _handler(layout: Layout) -> Any | None:
    pools: Any = ptars
    if pools is None:
        return None
    handler = pools.HandlerPool([layout.root.file]).get_for_message(layout.root)
    # A version of ptars that maps a type differently must not be taken at its word.
    return handler if handler.schema().equals(layout.raw_schema) else None


def _getter(node: Node) -> Callable[[Any], Any]:
    """How the value of a field is taken out of a Python message of the reading schema."""
    name = node.name
    if not pa.types.is_struct(node.raw):
        if node.repeated:
            return lambda message: list(getattr(message, name))
        if node.nullable:
            return lambda message: getattr(message, name) if message.HasField(name) else None
        return lambda message: getattr(message, name)
    if node.kind in ("instant", "span"):
        inner = _pair
    else:
        parts = [(child.name, _getter(child)) for child in node.children]

        def inner(message: Any) -> dict[str, Any]:
            return {part: get(message) for part, get in parts}

    if node.repeated:
        return lambda message: [inner(item) for item in getattr(message, name)]
    return lambda message: inner(getattr(message, name)) if message.HasField(name) else None


def _pair(message: Any) -> dict[str, Any]:
    return {"seconds": message.seconds, "nanos": message.nanos}


def _message(message_class: type[Message], row: dict[str, Any]) -> Message:
    """A Python message of the reading schema from one raw row; nulls stay unset."""
    return message_class(**{name: value for name, value in row.items() if value is not None})
