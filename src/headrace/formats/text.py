"""Records that are a piece of text, or bytes that nobody but the user reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.formats.assembly import assemble, check_names, compose, malformed, readable, strings
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.record import with_key
from headrace.formats.times import kafka_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.format import Records


@dataclass(frozen=True, slots=True)
class Text(Format):
    """Values that are UTF-8 text, in one column. See `text`."""

    name: ClassVar[str] = "text"
    column: str = "text"

    def __post_init__(self) -> None:
        check_names(self.schema)

    @property
    def schema(self) -> pl.Schema:
        """One column of text."""
        return pl.Schema({self.column: pl.String()})

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read each value as text; what is not UTF-8 is rejected."""
        values, positions, rejections = readable(records)
        texts, good, wrong = strings(values)
        for row in wrong:
            rejections[row if positions is None else int(positions[row])] = malformed("the value is not UTF-8")
        frame = pl.DataFrame({self.column: pl.Series(pl.from_arrow(texts), dtype=pl.String)})
        return assemble(frame, compose(positions, good), rejections, records, kafka_time(), columns)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the text column; other columns are not written.

        Raises:
            SchemaError: There is no such column, or it is no text.
        """
        return _column(self, frame, self.column, pl.String()).to_arrow().cast(pa.binary())


@dataclass(frozen=True, slots=True)
class Raw(Format):
    """Values as they are, in one column of bytes. See `raw`."""

    name: ClassVar[str] = "raw"
    column: str = "value"

    def __post_init__(self) -> None:
        check_names(self.schema)

    @property
    def schema(self) -> pl.Schema:
        """One column of bytes."""
        return pl.Schema({self.column: pl.Binary()})

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Take each value as it is."""
        values, positions, rejections = readable(records)
        frame = pl.DataFrame({self.column: pl.Series(pl.from_arrow(values), dtype=pl.Binary)})
        return assemble(frame, positions, rejections, records, kafka_time(), columns)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the column of bytes (or text); other columns are not written.

        Raises:
            SchemaError: There is no such column, or it is neither bytes nor text.
        """
        return _column(self, frame, self.column, pl.Binary(), pl.String()).to_arrow().cast(pa.binary())


def _column(of: Format, frame: pl.DataFrame, name: str, *types: pl.DataType) -> pl.Series:
    if name not in frame.columns:
        raise SchemaError(
            f"the format {of.name} writes the column {name!r}, which the results do not have",
            hint=f"Name one of: {', '.join(frame.columns)}.",
        )
    series = frame.get_column(name)
    if series.dtype not in types:
        raise SchemaError(
            f"the format {of.name} cannot write column {name!r} of type {series.dtype}", hint="Cast it to text first."
        )
    return series.rechunk()


def text(column: str = "text", *, key: Format | None = None) -> Format:
    """Read each value as a piece of UTF-8 text. The event time is Kafka's timestamp.

    Args:
        column: The name of the column.
        key: How the key of a record becomes columns; see `record`.

    >>> dict(text("line").schema)
    {'line': String}
    """
    return with_key(Text(column), key)


def raw(column: str = "value", *, key: Format | None = None) -> Format:
    """Take each value as bytes. The event time is Kafka's timestamp.

    Args:
        column: The name of the column.
        key: How the key of a record becomes columns; see `record`.

    >>> dict(raw().schema)
    {'value': Binary}
    """
    return with_key(Raw(column), key)
