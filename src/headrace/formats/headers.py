"""Headers of records, in columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from numpy.typing import NDArray


def header_values(headers: pa.ListArray | None, name: str, rows: int) -> pa.BinaryArray:
    """Give the last header of a name of each record that has a value; null where there is none.

    Args:
        headers: The headers of each record; None if none were read.
        name: The header.
        rows: How many records there are.
    """
    if headers is None:
        return pa.nulls(rows, pa.binary())
    every = headers.flatten()
    names, values = pc.struct_field(every, "key"), pc.struct_field(every, "value").cast(pa.binary())
    of_name = pc.and_(pc.fill_null(pc.equal(names, name), fill_value=False), values.is_valid())
    places = np.flatnonzero(of_name.to_numpy(zero_copy_only=False))
    lengths = pc.fill_null(pc.list_value_length(headers), 0).to_numpy(zero_copy_only=False)
    records: NDArray[np.int64] = np.repeat(np.arange(rows), lengths)
    last = np.full(rows, -1, np.int64)
    np.maximum.at(last, records[places], places)
    return values.take(pa.array(last, mask=last < 0))


def header_texts(headers: pa.ListArray | None, name: str, rows: int) -> tuple[pl.Series, list[int]]:
    """Give the last header of a name of each record as text; null where there is none or it is no UTF-8.

    Returns:
        The texts, and the positions of the headers that are no UTF-8.
    """
    values = header_values(headers, name, rows)
    try:
        return pl.Series(name, pl.from_arrow(values.cast(pa.string())), dtype=pl.String), []
    except pa.ArrowInvalid:
        pass
    texts: list[str | None] = [None] * rows
    wrong = []
    for row, value in enumerate(values.to_pylist()):
        try:
            texts[row] = None if value is None else value.decode()
        except UnicodeDecodeError:
            wrong.append(row)
    return pl.Series(name, texts, dtype=pl.String), wrong
