"""Records to decode, and what became of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.formats.format import Records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.format import Format

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def records(
    *values: bytes | None,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[dict[str, bytes]] | None = None,
    micros: int | None = 1_767_268_800_000_000,
) -> Records:
    rows = None if headers is None else [[{"key": k, "value": v} for k, v in row.items()] for row in headers]
    return Records(
        pa.array(values, pa.binary()),
        keys=pa.array([None] * len(values) if keys is None else keys, pa.binary()),
        headers=pa.array([None] * len(values) if rows is None else rows, HEADERS),
        timestamps=pa.array([micros] * len(values), pa.timestamp("us", "UTC")),
        partitions=pa.array([3] * len(values), pa.int32()),
        offsets=pa.array(range(100, 100 + len(values)), pa.int64()),
    )


def rows(decoder: Format, *values: bytes | None, **options: Any) -> list[dict[str, Any] | str]:
    """One entry per record: its columns, or the code of its rejection."""
    decoded = decoder.decode(records(*values, **options))
    positions = range(len(values)) if decoded.positions is None else decoded.positions.tolist()
    names = list(decoder.schema.names())
    found: dict[int, Any] = dict(zip(positions, decoded.frame.select(names).to_dicts(), strict=True))
    found |= {position: str(rejection.reason) for position, rejection in decoded.rejections.items()}
    assert sorted(found) == list(range(len(values)))
    return [found[position] for position in range(len(values))]
