"""Changes of a table as Debezium writes them."""

from __future__ import annotations

import json as plain_json
from datetime import UTC, date, datetime
from typing import Any

import polars as pl
import pytest
from tests.formats.samples import records, rows

from headrace.errors import SchemaError
from headrace.formats import debezium, header_time, json, kafka_time, text
from headrace.inprocess import run
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

AT = datetime(2026, 3, 1, 8, tzinfo=UTC)
MS = int(AT.timestamp() * 1_000)
ORDERS = debezium({"id": pl.Int64, "state": pl.String})


def change(op: str | None, before: Any = None, after: Any = None, *, wrapped: bool = False, **more: Any) -> bytes:
    """What Debezium writes for PostgreSQL, with fields that nobody reads."""
    envelope = {
        "before": before,
        "after": after,
        "source": {"version": "3.0", "connector": "postgresql", "ts_ms": MS, "table": "orders", "lsn": 9},
        "transaction": None,
        "op": op,
        "ts_ms": MS + 250,
        **more,
    }
    schema = {"type": "struct", "fields": [{"field": "before", "type": "struct"}, {"field": "op", "type": "string"}]}
    return plain_json.dumps({"schema": schema, "payload": envelope} if wrapped else envelope).encode()


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with schema"])
def test_the_row_and_what_was_done(wrapped: bool) -> None:
    new, old = {"id": 1, "state": "new"}, {"id": 1, "state": "paid"}
    values = [
        change("c", None, new, wrapped=wrapped),
        change("u", new, old, wrapped=wrapped),
        change("d", old, None, wrapped=wrapped),
        change("r", None, new, wrapped=wrapped),
    ]
    assert rows(ORDERS, *values) == [
        {"id": 1, "state": "new", "op": "insert"},
        {"id": 1, "state": "paid", "op": "update"},
        {"id": 1, "state": "paid", "op": "delete"},
        {"id": 1, "state": "new", "op": "read"},
    ]


def test_both_kinds_in_one_topic_and_a_delete_of_which_only_the_key_is_known() -> None:
    form = debezium({"id": pl.Int64, "state": pl.String}, key=json(schema={"key_id": pl.Int64}))
    values = [change("c", None, {"id": 1, "state": "new"}, wrapped=True), change("d"), change("d", {"id": 3})]
    found = rows(form, *values, keys=[b'{"key_id":1}', b'{"key_id":2}', b'{"key_id":3}'])
    assert found == [
        {"id": 1, "state": "new", "op": "insert", "key_id": 1},
        {"id": None, "state": None, "op": "delete", "key_id": 2},
        {"id": 3, "state": None, "op": "delete", "key_id": 3},
    ]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, AT),
        ({"time": "ts_ms"}, AT.replace(microsecond=250_000)),
        ({"time": "source.ts_us"}, AT.replace(microsecond=7)),
        ({"time": "at"}, AT.replace(hour=9)),
        ({"time": header_time("at", "s")}, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        ({"time": kafka_time()}, datetime(2026, 1, 1, 12, tzinfo=UTC)),
    ],
    ids=["database", "connector", "microseconds", "a column", "a header", "Kafka"],
)
def test_the_time(options: Any, expected: datetime) -> None:
    form = debezium({"id": pl.Int64, "at": pl.Datetime("us", "UTC")}, **options)
    source = {"ts_ms": MS, "ts_us": MS * 1_000 + 7}
    value = change("c", None, {"id": 1, "at": "2026-03-01T09:00:00Z"}, source=source)
    frame = form.decode(records(value, headers=[{"at": b"5"}])).frame
    assert frame.item(0, "event_time") == expected


def test_columns_of_the_source_and_types_of_the_row() -> None:
    form = debezium(
        {"day": pl.Date, "tags": pl.List(pl.String)}, source={"table": pl.String, "lsn": pl.Int64}, op="did"
    )
    found = rows(
        form,
        change("c", None, {"day": "2026-03-01", "tags": ["a"]}),
        change("c", None, {"day": "1 March", "tags": None}),
        change("c", None, {"tags": "a"}),
    )
    assert found[0] == {
        "day": date(2026, 3, 1),
        "tags": ["a"],
        "did": "insert",
        "source_table": "orders",
        "source_lsn": 9,
    }
    assert found[1:] == ["wrong_type", "wrong_type"]


@pytest.mark.parametrize(
    ("value", "reason", "text"),
    [
        (b"{}", "malformed", "there is no op"),
        (change("t"), "malformed", "truncated"),
        (change("m"), "malformed", "op is 'm'"),
        (change("c", {"id": 1}, None), "malformed", "the insert has no row after it"),
        (change("c", None, {"id": "1"}), "wrong_type", "id is the text '1'"),
        (change("c", None, {"id": 1}, source={}), "missing_timestamp", "source.ts_ms"),
        (b"no json", "malformed_json", "no JSON"),
        (b'{"op":"c","after":[1]}', "wrong_type", "after is an array"),
    ],
)
def test_what_is_no_change_is_a_dead_letter(value: bytes, reason: str, text: str) -> None:
    good = change("c", None, {"id": 1})
    decoded = ORDERS.decode(records(good, value, good))
    assert decoded.frame.height == 2
    assert str(decoded.rejections[1].reason) == reason
    assert text in decoded.rejections[1].text


def test_tombstones_are_skipped_and_counted() -> None:
    stream = Stream.topic("orders", format=ORDERS).watermark(bounded("0s")).key_by("op")
    batch = run(
        stream.window(tumbling("10s")).aggregate(changes=count()),
        records(change("c", None, {"id": 1}), change("d", {"id": 1}), None, None, b"{}", micros=MS * 1_000),
    )
    assert sorted(batch.results.select("op", "changes").rows()) == [("delete", 1), ("insert", 1)]
    assert batch.counts == {"records_skipped": 2}
    assert batch.dead is not None
    assert batch.dead.height == 1


def test_an_envelope_in_another_format() -> None:
    row = pl.Struct({"id": pl.Int64, "state": pl.String})
    envelope = json({"before": row, "after": row, "op": pl.String, "ts_ms": pl.Int64})
    form = debezium(envelope=envelope, time="ts_ms")
    assert form.schema.names() == ["id", "state", "op"]
    assert rows(form, change("u", None, {"id": 1, "state": "a"}), b"{", b"{}") == [
        {"id": 1, "state": "a", "op": "update"},
        "malformed_json",
        "malformed",
    ]
    assert debezium({"id": pl.Int64}, envelope=envelope, time="ts_ms").schema.names() == ["id", "op"]


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: debezium({}), "has no columns"),
        (lambda: debezium({"op": pl.String}), "the table has a column 'op'"),
        (lambda: debezium({"source_table": pl.String}, source={"table": pl.String}), "a column 'source_table'"),
        (lambda: debezium({"id": pl.Int64}, time="at"), "neither in the envelope nor a column"),
        (lambda: debezium({"id": pl.Object}), "not read from JSON"),
        (lambda: debezium(envelope=text()), "has no columns before, after"),
        (lambda: ORDERS.encode(pl.DataFrame()), "cannot write"),
    ],
)
def test_refusals(build: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        build()
