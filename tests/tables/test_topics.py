"""Tables of topics: compacted ones with tombstones, and changes as Debezium writes them."""

from __future__ import annotations

import json as plain
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.formats import Format, Records, debezium, json, text
from headrace.formats.tombstones import TombstoneFormat
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded

COLUMNS = {"product": pl.String, "price": pl.Int64}


def records(*pairs: tuple[bytes | None, dict[str, Any] | None]) -> Records:
    """Records of keys and values."""
    values = [None if value is None else plain.dumps(value).encode() for _, value in pairs]
    times = pa.array([1_000_000 * number for number in range(len(pairs))]).cast(pa.timestamp("us", "UTC"))
    return Records(
        pa.array(values, pa.binary()), keys=pa.array([key for key, _ in pairs], pa.binary()), timestamps=times
    )


def changes(format: Format, key: str | list[str], *steps: Records) -> list[list[tuple[Any, ...]]]:  # noqa: A002
    """What a table makes of records, step by step."""
    stream = Stream.table("prices", key=key, format=format, watermark=bounded("1s")).changes()
    runner = Runner(stream)
    return [sorted(runner.step(step).results.drop("event_time", "ingestion_time").rows(), key=str) for step in steps]


def test_a_tombstone_deletes_the_row_of_its_key() -> None:
    one = records((b"tea", {"product": "tea", "price": 3}), (b"rum", {"product": "rum", "price": 9}))
    two = records((b"tea", None), (b"rum", None), (b"rum", {"product": "rum", "price": 8}))
    assert changes(json(COLUMNS), "product", one, two) == [
        [("rum", 9, False), ("tea", 3, False)],
        [("rum", 8, False), ("rum", 9, True), ("tea", 3, True)],
    ]


def test_the_key_may_be_that_of_the_record_alone() -> None:
    one = records((b"tea", {"price": 3}))
    two = records((b"tea", None))
    found = changes(json({"price": pl.Int64}, key=text("product")), "product", one, two)
    assert found == [[(3, "tea", False)], [(3, "tea", True)]]


def test_a_key_of_several_columns_is_an_object() -> None:
    columns = {"shop": pl.Int64, "product": pl.String, "price": pl.Int64}
    one = records((None, {"shop": 1, "product": "tea", "price": 3}))
    two = records((b'{"shop":1,"product":"tea"}', None))
    assert changes(json(columns), ["shop", "product"], one, two) == [[(1, "tea", 3, False)], [(1, "tea", 3, True)]]


def test_a_tombstone_with_a_key_of_another_kind_is_a_dead_letter() -> None:
    stream = Stream.table("shops", key="shop", format=json({"shop": pl.Int64}), watermark=bounded("1s")).changes()
    batch = Runner(stream).step(records((b"1", {"shop": 1}), (b"x", None), (None, None), (b"{", None), (b"\xff", None)))
    assert batch.results.get_column("shop").to_list() == [1]
    assert batch.dead is not None
    assert batch.dead.height == 4


def test_changes_of_debezium_make_a_table() -> None:
    def change(what: str, before: int | None, after: int | None) -> dict[str, Any]:
        rows = [None if price is None else {"product": "tea", "price": price} for price in (before, after)]
        return {"before": rows[0], "after": rows[1], "op": what, "source": {"ts_ms": 1_000}}

    one = records((None, change("c", None, 3)))
    two = records((None, change("u", 3, 4)), (None, change("d", 4, None)), (b"tea", None))
    three = records((None, change("c", None, 5)))
    found = changes(debezium(schema=COLUMNS), "product", one, two, three)
    assert found == [[("tea", 3, False)], [("tea", 3, True)], [("tea", 5, False)]]


def test_a_key_that_is_no_column_is_refused() -> None:
    with pytest.raises(SchemaError, match="the key id is no column"):
        TombstoneFormat(json(COLUMNS), ("id",))
