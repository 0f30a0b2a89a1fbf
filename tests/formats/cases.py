"""Every format with samples of its records: the contract and the fuzz tests run over them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING

import fastavro
import polars as pl
from tests.formats.samples import records

from headrace.events import Codec, Layout, Record, TypeRegistry
from headrace.formats import (
    avro,
    cloudevents,
    confluent,
    csv,
    debezium,
    header_time,
    json,
    kafka_time,
    protobuf,
    raw,
    record,
    text,
)
from headrace.formats.envelope import EnvelopeFormat
from headrace.formats.tombstones import TombstoneFormat
from headrace.streaming_sql.table_sink import TableFormat, TargetColumn
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.formats.format import Format, Records


@dataclass(frozen=True)
class Case:
    label: str
    format: Format
    samples: Records


_CE = {
    "ce_specversion": b"1.0",
    "ce_id": b"7",
    "ce_source": b"/s",
    "ce_type": b"t",
    "ce_time": b"2026-01-01T00:00:00Z",
    "ce_ext": b"x",
}
_AT = datetime(2026, 1, 1, tzinfo=UTC)
_POSITIONS = EnvelopeFormat(
    VehiclePosition.DESCRIPTOR.full_name,
    tuple(Layout(VehiclePosition.DESCRIPTOR).schema.items()),
    TypeRegistry(VehiclePosition),
)
_READINGS = EnvelopeFormat(Record.DESCRIPTOR.full_name, (("sensor", pl.String()), ("value", pl.Float64())))


_SCAN = {
    "type": "record",
    "name": "Scan",
    "namespace": "parcels",
    "fields": [
        {"name": "parcel", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "belt", "type": ["null", "int"], "default": None},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}},
        {"name": "stops", "type": {"type": "array", "items": {"type": "record", "name": "Stop", "fields": [
            {"name": "depot", "type": ["null", "string"]},
            {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        ]}}},
        {"name": "tags", "type": {"type": "map", "values": "double"}},
        {"name": "first", "type": ["null", "Stop"]},
    ],
}  # fmt: skip
_ODD = {
    "type": "record",
    "name": "Odd",
    "fields": [
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "either", "type": ["null", "long", "string"]},
        {"name": "nothing", "type": "null"},
        {"name": "real", "type": "float"},
    ],
}


def _avro(schema: dict, *rows: dict) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    found = []
    for row in rows:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, parsed, row)
        found.append(buffer.getvalue())
    return found


_STOP = {"depot": "north", "day": date(2026, 1, 1)}
_SCANS = _avro(
    _SCAN,
    {"parcel": "zwölf", "at": _AT, "belt": -3, "price": Decimal("12.34"), "state": "OLD", "stops": [_STOP, _STOP],
     "tags": {"a": 1.5}, "first": _STOP},
    {"parcel": "", "at": _AT, "belt": None, "price": None, "state": "NEW", "stops": [], "tags": {}, "first": None},
)  # fmt: skip
_ODDS = _avro(
    _ODD,
    {"hash": b"ab", "either": None, "nothing": None, "real": 1.5},
    {"hash": b"cd", "either": 7, "nothing": None, "real": -1.5},
    {"hash": b"ef", "either": "x", "nothing": None, "real": 0.0},
)


def _events(kind: type, **columns: list[object]) -> list[bytes]:
    rows = pl.DataFrame({"event_time": [_AT] * len(next(iter(columns.values()))), **columns})
    values: list[bytes] = Codec().encode(rows, kind).to_pylist()
    return values


CASES: list[Case] = [
    Case(
        "table",
        TableFormat(
            json({"a": pl.Int64, "b": pl.String}),
            (TargetColumn("a", "a", pl.Int64()), TargetColumn("b", "b", pl.String())),
        ),
        records(b'{"a":1,"b":"x"}', b'{"a":2}', b'{"a":"x"}', b"{", None),
    ),
    Case(
        "tombstones",
        TombstoneFormat(json({"shop": pl.Int64, "product": pl.String, "price": pl.Int64}), ("shop", "product")),
        records(
            b'{"shop":1,"product":"tea","price":3}',
            None,
            None,
            None,
            b"{",
            keys=[None, b'{"shop":1,"product":"tea"}', b'{"shop":"x"}', None, b"\xff"],
        ),
    ),
    Case(
        "json",
        json({"a": pl.Int64, "b": pl.String, "c": pl.Struct({"d": pl.List(pl.Float64)}), "e": pl.Date}),
        records(
            b'{"a":1,"b":"x","c":{"d":[1.5,null]},"e":"2026-01-31"}',
            '{"b":"zwölf"}'.encode(),
            b'{"a":9223372036854775807,"a":2,"unknown":{}}',
            b'{"a":"1"}',
            b'{"e":"2026-02-30"}',
            b"[]",
            b"{",
            b"\xff",
            None,
        ),
    ),
    Case(
        "json with a nested time in milliseconds",
        json({"a": pl.Int64}, time="meta.at", time_format="ms"),
        records(
            b'{"a":1,"meta":{"at":1767268800000}}',
            b'{"a":2,"meta":{"at":"1767268800000"}}',
            b'{"a":3,"meta":{"at":true}}',
            b'{"a":4}',
        ),
    ),
    Case(
        "json with the time in a header",
        json({"a": pl.Int64}, time=header_time("at", "s")),
        records(
            *[b'{"a":1}'] * 4,
            headers=[{"at": b"1767268800"}, {"at": b"1767268801.5"}, {"at": b"soon"}, {}],
        ),
    ),
    Case(
        "envelope",
        _POSITIONS,
        records(*_events(VehiclePosition, vehicle_id=["1", "2"], speed=[1.0, None]), b"rubbish", b"", None),
    ),
    Case(
        "envelope of an open type",
        _READINGS,
        records(
            *_events(Record, sensor=["a", "b"], value=[1.0, 2.0]),
            *_events(Record, sensor=["c"], value=["no number"]),
            b"rubbish",
        ),
    ),
    Case(
        "avro",
        avro(_SCAN, time="at"),
        records(*_SCANS, *(value[:-1] for value in _SCANS), *(value + b"\0" for value in _SCANS), b"", None),
    ),
    Case("avro-one-by-one", avro(_ODD), records(*_ODDS, *(value[:-1] for value in _ODDS), b"\xff", None)),
    Case(
        "avro-of-an-older-writer",
        avro(
            {
                "type": "record",
                "name": "Parcel",
                "fields": [
                    {"name": "id", "aliases": ["parcel"], "type": "string"},
                    {"name": "belt", "type": ["null", "double"]},
                    {"name": "weight", "type": "double", "default": 1.0},
                    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
                ],
            },
            writer_schema=_SCAN,
            time="at",
        ),
        records(*_SCANS, b"\xff"),
    ),
    Case(
        "protobuf",
        protobuf(VehiclePosition),
        records(
            VehiclePosition(vehicle_id="1", speed=2.5, line="6").SerializeToString(),
            VehiclePosition().SerializeToString(),
            b"\xff",
            b"\x0b" * 40,
            None,
        ),
    ),
    Case(
        "record",
        record(
            json({"a": pl.Int64}),
            key=json({"k": pl.String, "n": pl.Struct({"x": pl.Int64})}),
            headers={"trace": "trace-id"},
            partition="partition",
            offset="offset",
            timestamp="sent_at",
        ),
        records(
            *[b'{"a":1}'] * 7,
            b"{",
            None,
            keys=[b'{"k":"x","n":{"x":1}}', b"{}", None, b"no json", b'{"k":1}', b"", b"{}", b"{", b'{"k":"y"}'],
            headers=[{"trace-id": b"t"}, {}, {"other": b"t"}, {}, {}, {}, {"trace-id": b"\xff"}, {}, {}],
        ),
    ),
    Case(
        "csv with a key",
        csv({"a": pl.Int64}, key=text("k")),
        records(b"1", b"2", b"3", b"x", keys=[b"x", b"\xff", None, b"y"]),
    ),
    Case(
        "confluent",
        confluent(json({"a": pl.Int64}, time="at", time_format="ms")),
        records(
            *(b"\0\0\0\0" + number + b'{"a":1,"at":1767268800000}' for number in (b"\1", b"\2", b"\1")),
            b"\1" + b"\xff" * 16 + b'{"a":2,"at":1767268800000}',
            b"\0\0\0\0\1{",
            b"\0\0",
            b'{"a":1}',
            None,
        ),
    ),
    Case(
        "debezium",
        debezium({"id": pl.Int64, "on": pl.Date}, source={"table": pl.String}),
        records(
            b'{"op":"c","after":{"id":1,"on":"2026-01-01"},"source":{"ts_ms":1,"table":"t"}}',
            b'{"payload":{"op":"d","before":{"id":1},"source":{"ts_ms":1}},"schema":{}}',
            b'{"op":"c","after":{"id":1,"on":"soon"},"source":{"ts_ms":1}}',
            b'{"op":"t","source":{"ts_ms":1}}',
            b'{"op":"u","before":{"id":1},"source":{"ts_ms":1}}',
            b'{"op":"u","after":{"id":1}}',
            None,
            b"[]",
        ),
    ),
    Case(
        "cloudevents",
        cloudevents(json({"a": pl.Int64, "on": pl.Date}), source="/tests", attributes=["id", "type", "source", "ext"]),
        records(
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-01T00:00:00Z","data":{"a":1}}',
            b'{"a":2}',
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-01T00:00:00Z","data_base64":"e30="}',
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-01T00:00:00Z","data_base64":"!"}',
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","time":"2026-01-01T00:00:00Z","data":{"on":"x"}}',
            b'{"specversion":"1.0","id":"","source":"/s","type":"t","time":"soon"}',
            b"{",
            None,
            None,
            headers=[
                {},
                _CE,
                {},
                {},
                {},
                {},
                {},
                {},
                _CE | {"ce_time": b"soon"},
            ],
        ),
    ),
    Case(
        "cloudevents of csv",
        cloudevents(
            csv({"a": pl.Int64}), mode="structured", source="/tests", type="t", attributes=[], time=kafka_time()
        ),
        records(
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"1"}',
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data":"x"}',
            b'{"specversion":"1.0","id":"1","source":"/s","type":"t","data_base64":"MQ=="}',
            b'{"specversion":"0.3","id":"1","source":"/s","type":"t"}',
        ),
    ),
    Case("text", text(), records(b"one", "zwölf".encode(), b"", b"\xff\xfe", None)),
    Case("raw", raw("body"), records(b"one", b"\xff", b"", None)),
    Case(
        "csv",
        csv(
            {"a": pl.Int64, "b": pl.String, "c": pl.Float64, "d": pl.Boolean, "at": pl.Datetime("us", "UTC")},
            time="at",
        ),
        records(
            b"1,x,1.5,true,2026-01-01T00:00:00Z",
            b'-2,"a,""b""\nc",,false,2026-01-01 00:00:00.123456+02:00',
            b',"",1e300,,2026-01-01T00:00:00',
            b"1,x,1.5,true,",
            b"x,x,1.5,true,2026-01-01T00:00:00Z",
            b"1,x",
        ),
    ),
    Case("csv-one-column", csv({"a": pl.String}), records(b"", b"x", b'""', b"x,y")),
]
