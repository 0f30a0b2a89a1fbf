"""Records that are one line of CSV, without a header.

A record is checked first, on its own: a regular expression says whether it has as many fields as the schema has columns
and whether its quotes are balanced (RFC 4180). So no record can reach into the next when they are read together. Then
all records are read at once, as text, and each column is converted.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv

from headrace.errors import SchemaError
from headrace.formats.assembly import assemble, check_time, compose, malformed, readable, strings
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.record import with_key
from headrace.formats.times import ISO, EventTime, field_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.format import RecordPart, Records

#: ISO 8601 with seconds, an optional fraction, and an optional offset or Z.
_INSTANT = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?$"
_OFFSET = r"(?:Z|[+-]\d\d:?\d\d)$"
_NUMBERS = {
    "integer": r"^[+-]?\d{1,20}$",
    "float": r"^(?:[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|[+-]?inf|NaN|nan)$",
}


@dataclass(frozen=True, slots=True)
class Csv(Format):
    """One line of CSV per record. See `csv`."""

    name: ClassVar[str] = "csv"
    fields: tuple[tuple[str, pl.DataType], ...]
    delimiter: str
    quote: str | None
    null_values: tuple[str, ...]
    time: EventTime

    def __post_init__(self) -> None:
        if not self.fields:
            raise SchemaError("the schema of csv() has no columns", hint="Name the columns in their order.")
        if len(dict(self.fields)) != len(self.fields):
            raise SchemaError("the schema of csv() names a column twice", hint="Give each column a name of its own.")
        for what, character in (("delimiter", self.delimiter), ("quote", self.quote)):
            if character is not None and (len(character) != 1 or not character.isascii() or character in "\r\n"):
                raise SchemaError(f"{what} is {character!r}", hint="Give one ASCII character, not a line break.")
        if self.delimiter == self.quote:
            raise SchemaError(f"delimiter and quote are both {self.quote!r}", hint="Give different characters.")
        for column, dtype in self.fields:
            if not _is_readable(dtype):
                raise SchemaError(
                    f"column {column!r} is {dtype}, which csv() does not read",
                    hint="Use String, Boolean, Date, Datetime or a number.",
                )
        check_time(self.time, self.schema)

    @property
    def schema(self) -> pl.Schema:
        """The columns in the order of the fields."""
        return pl.Schema(dict(self.fields))

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers if the time is in one of them."""
        return frozenset({"timestamp", "headers"} if self.time.place == "header" else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"csv, time from {self.time.text}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read the records; one with other fields than the schema's, or a field that does not fit its type, is bad."""
        values, positions, rejections = readable(records)

        def reject(row: int, text: str) -> None:
            rejections[row if positions is None else int(positions[row])] = malformed(text)

        texts, good, wrong = strings(values)
        for row in wrong:
            reject(row, "the value is not UTF-8")
        positions = compose(positions, good)
        lines = pl.Series("line", pl.from_arrow(texts), dtype=pl.String).str.replace(r"\r?\n$", "")
        well_formed = lines.str.contains(self._pattern).to_numpy()
        if not well_formed.all():
            for row in np.flatnonzero(~well_formed).tolist():
                reject(row, self._complaint(lines[row]))
            fine = np.flatnonzero(well_formed)
            lines, positions = lines.gather(fine), compose(positions, fine)
        frame = self._read(lines)
        unfit = np.zeros(frame.height, bool)
        finished = []
        for column, dtype in self.fields:
            text = frame.get_column(column)
            series = _converted(text, dtype)
            failed = (series.is_null() & text.is_not_null()).to_numpy()
            for row in np.flatnonzero(failed & ~unfit).tolist():
                reject(row, f"column {column!r}: {text[row][:80]!r} is no {dtype}")
            unfit |= failed
            finished.append(series)
        result = pl.DataFrame(finished)
        if unfit.any():
            fine = np.flatnonzero(~unfit)
            result, positions = result[fine], compose(positions, fine)
        return assemble(result, positions, rejections, records, self.time, columns)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the columns of the schema in its order; a column that the rows lack is null.

        Raises:
            SchemaError: A column cannot be written as text, or a value needs a quote and there is none.
        """
        if not self.null_values:
            raise SchemaError("csv() without null_values cannot write", hint='Give one: null_values=("",).')
        parts = []
        for column, _ in self.fields:
            if column not in frame.columns:
                parts.append(pl.Series(column, [self.null_values[0]] * frame.height, dtype=pl.String))
                continue
            parts.append(self._written(_as_text(frame.get_column(column))))
        lines = pl.DataFrame(parts).select(pl.concat_str(pl.all(), separator=self.delimiter)).to_series()
        return lines.rechunk().to_arrow().cast(pa.binary())

    def _written(self, text: pl.Series) -> pl.Series:
        special = "|".join(re.escape(c) for c in (self.delimiter, self.quote or self.delimiter, "\n", "\r"))
        needs = text.str.contains(special) | text.is_in(list(self.null_values))
        if self.quote is None:
            if needs.any():
                raise SchemaError(
                    f"a value of column {text.name!r} holds the delimiter, a line break or the text of a null",
                    hint='Give csv() a quote, such as quote="\\"".',
                )
            return text.fill_null(self.null_values[0])
        doubled = text.str.replace_all(self.quote, self.quote * 2, literal=True)
        quoted = self.quote + doubled + self.quote
        chosen = pl.select(pl.when(needs).then(quoted).otherwise(text).alias(text.name)).to_series()
        return chosen.fill_null(self.null_values[0])

    @property
    def _pattern(self) -> str:
        delimiter = re.escape(self.delimiter)
        if self.quote is None:
            field = rf"[^{delimiter}\r\n]*"
        else:
            quote = re.escape(self.quote)
            field = rf"(?:[^{delimiter}{quote}\r\n]*|{quote}[^{quote}]*{quote}(?:{quote}[^{quote}]*{quote})*)"
        # Written out: a counted repetition of a large schema would make a large automaton.
        return r"\A" + delimiter.join([field] * len(self.fields)) + r"\z"

    def _complaint(self, line: str) -> str:
        if self.quote is not None and self.quote in line:
            return f"the record has not {len(self.fields)} fields, or its quotes are not as RFC 4180 has them"
        if "\n" in line or "\r" in line:
            return "the record has a line break outside quotes"
        found = line.count(self.delimiter) + 1
        return f"the record has {found} fields, the schema has {len(self.fields)}"

    def _read(self, lines: pl.Series) -> pl.DataFrame:
        """Read well-formed lines as columns of text."""
        names = [column for column, _ in self.fields]
        if not len(lines):
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        # The first line is ours and is dropped again: at the start of its input Arrow removes a byte order mark.
        data = (self.delimiter * (len(names) - 1) + "\n" + lines.str.join("\n")[0] + "\n").encode()
        longest = max(lines.str.len_bytes().to_list())
        table = pacsv.read_csv(
            io.BytesIO(data),
            # A block must hold the longest record.
            read_options=pacsv.ReadOptions(column_names=names, use_threads=False, block_size=max(1 << 20, longest * 2)),
            parse_options=pacsv.ParseOptions(
                delimiter=self.delimiter,
                quote_char=self.quote or False,
                newlines_in_values=self.quote is not None,
                ignore_empty_lines=False,
            ),
            convert_options=pacsv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                null_values=list(self.null_values),
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
        return pl.DataFrame(pl.from_arrow(table.slice(1))).cast(dict.fromkeys(names, pl.String))


def _is_readable(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_float() or isinstance(dtype, (pl.String, pl.Boolean, pl.Date, pl.Datetime))


def _converted(text: pl.Series, dtype: pl.DataType) -> pl.Series:
    """Convert text by fixed rules: what a value becomes must not depend on the values beside it."""
    if isinstance(dtype, pl.String):
        return text
    if isinstance(dtype, pl.Boolean):
        lower = text.str.to_lowercase()
        truth = pl.when(lower.is_in(["true", "t", "1", "yes"])).then(statement=True)
        return pl.select(
            truth.when(lower.is_in(["false", "f", "0", "no"])).then(statement=False).alias(text.name)
        ).to_series()
    if isinstance(dtype, pl.Date):
        return text.str.strptime(pl.Date, "%Y-%m-%d", strict=False)
    if isinstance(dtype, pl.Datetime):
        return _instants(text, dtype)
    pattern = _NUMBERS["integer" if dtype.is_integer() else "float"]
    return text.str.extract(f"({pattern})", 1).str.strip_prefix("+").cast(dtype, strict=False)


def _instants(text: pl.Series, dtype: pl.Datetime) -> pl.Series:
    matching = text.str.extract(f"({_INSTANT})", 1).str.replace(" ", "T", literal=True).str.replace(r"Z$", "+00:00")
    zoned = pl.select(pl.when(matching.str.contains(_OFFSET)).then(matching).otherwise(matching + "+00:00")).to_series()
    unit = dtype.time_unit
    times = zoned.str.strptime(pl.Datetime(unit, "UTC"), "%Y-%m-%dT%H:%M:%S%.f%:z", strict=False)
    return (times.dt.replace_time_zone(None) if dtype.time_zone is None else times.cast(dtype)).alias(text.name)


def _as_text(series: pl.Series) -> pl.Series:
    dtype = series.dtype
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone is not None:
            return series.dt.convert_time_zone("UTC").dt.strftime("%Y-%m-%dT%H:%M:%S%.fZ")
        return series.dt.strftime("%Y-%m-%dT%H:%M:%S%.f")
    if isinstance(dtype, pl.Boolean):
        return pl.select(pl.when(series).then(pl.lit("true")).when(~series).then(pl.lit("false"))).to_series()
    if dtype.is_nested() or isinstance(dtype, (pl.Binary, pl.Object)):
        raise SchemaError(
            f"csv() cannot write column {series.name!r} of type {dtype}", hint="Make it text, or write with json()."
        )
    return series.cast(pl.String)


def csv(
    schema: Mapping[str, pl.DataType | type[pl.DataType]] | None = None,
    *,
    time: str | EventTime | None = None,
    time_format: str = ISO,
    time_zone: str = "UTC",
    delimiter: str = ",",
    quote: str | None = '"',
    null_values: Sequence[str] = ("",),
    key: Format | None = None,
) -> Format:
    """Read each value as one line of CSV without a header.

    Args:
        schema: The columns in the order of the fields. Every record has exactly these fields; of results these columns
            are written. It cannot be left out.
        time: The column with the event time, or `header_time(...)`; Kafka's timestamp if not given.
        time_format: How a column of numbers or texts writes it: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a
            pattern.
        time_zone: The time zone of texts that do not name one.
        delimiter: What separates fields.
        quote: What encloses a field that holds the delimiter or a line break; doubled it stands for itself. None: no
            quotes.
        null_values: What a field without quotes may hold instead of a value. The first is written for nulls.
        key: How the key of a record becomes columns, such as `text("door")`; see `record`.

    >>> dict(csv({"door": pl.String, "opened": pl.Datetime("us", "UTC")}, time="opened").schema)
    {'door': String, 'opened': Datetime(time_unit='us', time_zone='UTC')}
    """
    if not isinstance(schema, Mapping):
        raise SchemaError(
            "csv() without a schema" if schema is None else f"the schema of csv() is a {type(schema).__name__}",
            hint='Name the columns in the order of the fields, with their types: csv({"door": pl.String}).',
        )
    fields = tuple((name, dtype() if isinstance(dtype, type) else dtype) for name, dtype in schema.items())
    at = field_time((time,), time_format, zone=time_zone) if isinstance(time, str) else time or EventTime()
    return with_key(Csv(fields, delimiter, quote, tuple(null_values), at), key)
