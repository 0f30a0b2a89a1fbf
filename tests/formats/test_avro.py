"""Records that are values of an Avro schema."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import TYPE_CHECKING, Any

import fastavro
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.samples import records, rows

from headrace.errors import SchemaError
from headrace.formats import avro, header_time
from headrace.formats.avro_columns import converter
from headrace.formats.avro_reader import MalformedError, read_value, read_values, reader, varint, wire_schema
from headrace.formats.avro_schema import load_schema, schema_json

if TYPE_CHECKING:
    from pathlib import Path

AT = datetime(2026, 1, 1, 12, 0, 0, 123_000, tzinfo=UTC)


def record(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


def logical(kind: str, name: str, **more: int) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def written(schema: dict[str, Any], *values: dict[str, Any]) -> list[bytes]:
    """Write with another library."""
    parsed = fastavro.parse_schema(schema)
    found = []
    for value in values:
        buffer = BytesIO()
        fastavro.schemaless_writer(buffer, parsed, value)
        found.append(buffer.getvalue())
    return found


STATE = {"type": "enum", "name": "State", "symbols": ["NEW", "OLD"]}
STOP = {
    "type": "record",
    "name": "Stop",
    "fields": [{"name": "depot", "type": ["null", "string"]}, {"name": "belt", "type": "int"}],
}


@pytest.mark.parametrize(
    ("kind", "values", "dtype"),
    [
        ("boolean", [True, False], pl.Boolean()),
        ("int", [-(2**31), 2**31 - 1, 0], pl.Int32()),
        ("long", [-(2**63), 2**63 - 1, 64], pl.Int64()),
        ("float", [1.5], pl.Float32()),
        ("double", [1e300, -0.0], pl.Float64()),
        ("string", ["", "zwölf"], pl.String()),
        ("bytes", [b"", b"\xff\x00"], pl.Binary()),
        ({"type": "fixed", "name": "F", "size": 2}, [b"ab"], pl.Binary()),
        (STATE, ["NEW", "OLD"], pl.String()),
        (["null", "long"], [None, 5], pl.Int64()),
        (["long", "null"], [None, 5], pl.Int64()),
        (["string"], ["x"], pl.String()),
        ({"type": "array", "items": "int"}, [[], [1, -2]], pl.List(pl.Int32)),
        ({"type": "array", "items": ["null", STOP]}, [[None, {"depot": "a", "belt": 1}]],
         pl.List(pl.Struct({"depot": pl.String, "belt": pl.Int32}))),
        (["null", STOP], [None, {"depot": None, "belt": 1}, None], pl.Struct({"depot": pl.String, "belt": pl.Int32})),
        (logical("long", "timestamp-millis"), [AT], pl.Datetime("us", "UTC")),
        (logical("long", "timestamp-micros"), [AT], pl.Datetime("us", "UTC")),
        (logical("long", "local-timestamp-millis"), [AT.replace(tzinfo=None)], pl.Datetime("us")),
        (logical("long", "local-timestamp-micros"), [AT.replace(tzinfo=None)], pl.Datetime("us")),
        (logical("int", "date"), [date(1, 1, 1), date(9999, 12, 31)], pl.Date()),
        (logical("int", "time-millis"), [time(23, 59, 59, 999_000)], pl.Time()),
        (logical("long", "time-micros"), [time(0, 0, 0, 1)], pl.Time()),
        (logical("bytes", "decimal", precision=10, scale=2),
         [Decimal("-12.34"), Decimal("0.00"), Decimal("-0.05"), Decimal("99999999.99")], pl.Decimal(10, 2)),
        (logical("bytes", "decimal", precision=38), [Decimal(10**38 - 1), Decimal(-(10**38) + 1)], pl.Decimal(38, 0)),
        ({"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 18, "scale": 2},
         [Decimal("-12.34")], pl.Decimal(18, 2)),
        ({"type": "string", "logicalType": "uuid"}, ["180ef8ab-cc59-46be-a73a-ce334e82355a"], pl.String()),
        ({"type": "string", "logicalType": "of my own"}, ["x"], pl.String()),
    ],
)  # fmt: skip
def test_types_are_read_and_written_as_another_library_does(kind: Any, values: list[Any], dtype: pl.DataType) -> None:
    schema = record(x=kind)
    theirs = written(schema, *({"x": value} for value in values))
    ours = avro(schema)
    assert dict(ours.schema) == {"x": dtype}
    frame = ours.decode(records(*theirs)).frame
    assert frame.get_column("x").to_list() == values
    if kind != ["string"]:  # a union of one; what is written is read the same all the same
        assert ours.encode(frame).to_pylist() == theirs


def test_a_map_is_a_list_of_pairs() -> None:
    schema = record(x={"type": "map", "values": ["null", "int"]})
    value = written(schema, {"x": {"a": 1, "b": None}})[0]
    frame = avro(schema).decode(records(value)).frame
    assert frame.get_column("x").to_list() == [[{"key": "a", "value": 1}, {"key": "b", "value": None}]]
    assert avro(schema).encode(frame).to_pylist() == [value]


def test_a_union_of_several_types_is_a_struct() -> None:
    schema = record(x=["null", "long", "string", STOP])
    theirs = written(schema, {"x": None}, {"x": 4}, {"x": "a"}, {"x": {"depot": "n", "belt": 1}})
    frame = avro(schema).decode(records(*theirs)).frame
    nothing = {"long": None, "string": None, "Stop": None}
    assert frame.get_column("x").to_list() == [
        None, nothing | {"long": 4}, nothing | {"string": "a"}, nothing | {"Stop": {"depot": "n", "belt": 1}},
    ]  # fmt: skip
    assert avro(schema).encode(frame).to_pylist() == theirs


def test_nanoseconds_are_rounded_down() -> None:
    schema = record(x=["null", logical("long", "timestamp-nanos")])
    frame = avro(schema).decode(records(*written(schema, {"x": -1}, {"x": None}, {"x": 1_999}))).frame
    assert frame.get_column("x").to_physical().to_list() == [-1, None, 1]


def test_a_type_that_is_used_again_by_its_name() -> None:
    schema = {
        "type": "record", "name": "n.R",
        "fields": [
            {"name": "a", "type": STOP}, {"name": "b", "type": ["null", "Stop"]}, {"name": "c", "type": "n.Stop"},
        ],
    }  # fmt: skip
    stop = {"depot": "north", "belt": 1}
    value = written(schema, {"a": stop, "b": stop, "c": stop})[0]
    assert rows(avro(schema), value) == [{"a": stop, "b": stop, "c": stop}]


BIG = 2**40


@pytest.mark.parametrize(
    ("kind", "value", "complaint"),
    [
        ("long", b"", "ends in the middle of x"),
        ("long", b"\x80", "ends in the middle of x"),
        ("long", b"\xff" * 12, "more than 10 bytes"),
        ("long", b"\x02rest", "4 bytes are left"),
        ("int", varint(2**31), "x is 2147483648, which is no int"),
        ("string", varint(5) + b"ab", "5 bytes; 2 are left"),
        ("string", varint(2**62) + b"ab", "bytes; 2 are left"),
        ("string", varint(-2) + b"ab", "-2 bytes"),
        ("string", varint(2) + b"\xff\xfe", "not UTF-8"),
        ("bytes", varint(BIG), "0 are left"),
        ("double", b"\0" * 7, "ends in the middle"),
        ("boolean", b"\x02", "neither true nor false"),
        ("boolean", b"", "ends before"),
        ({"type": "fixed", "name": "F", "size": 3}, b"ab", "ends in the middle"),
        (STATE, b"\x04", "symbol 2"),
        (STATE, b"\x01", "symbol -1"),
        (["null", "long"], b"\x04", "branch 2"),
        (["null", "long"], b"\x01", "branch -1"),
        ({"type": "array", "items": "long"}, varint(BIG) + b"\0", "1 bytes are left"),
        ({"type": "array", "items": "long"}, varint(-(2**63)) + b"\0", "ends in the middle"),
        ({"type": "array", "items": "long"}, varint(1) + b"\0", "ends in the middle"),
        ({"type": "map", "values": "long"}, varint(BIG) + b"\0", "items"),
        (logical("int", "date"), varint(2**31 - 1), "which is no date"),
        (logical("long", "timestamp-micros"), varint(2**62), "which is no timestamp-micros"),
        (logical("long", "time-micros"), varint(-1), "which is no time-micros"),
        (logical("bytes", "decimal", precision=4, scale=2), varint(40) + b"\x7f" * 40, "no decimal of 4 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), varint(4) + b"\x7f" * 4, "no decimal of 4 digits"),
        (logical("bytes", "decimal", precision=38), varint(16) + b"\x7f" + b"\xff" * 15, "no decimal of 38 digits"),
        (logical("bytes", "decimal", precision=4, scale=2), varint(0), "no decimal"),
    ],
)  # fmt: skip
def test_bad_bytes_are_rejected_alone(kind: Any, value: bytes, complaint: str) -> None:
    """Behind a good field and before good records."""
    schema = record(first="string", x=kind)
    first = varint(3) + b"abc"
    name = kind if isinstance(kind, str) else ""
    if isinstance(kind, dict):
        name = kind.get("logicalType") or kind["type"]
    good = {"double": b"\0" * 8, "fixed": b"\0" * 3, "decimal": varint(1) + b"\x01"}.get(name, b"\0")
    batch = records(*[first + good] * 30, first + value, *[first + good] * 30)
    decoded = avro(schema).decode(batch)
    assert decoded.frame.height == 60
    assert list(decoded.rejections) == [30]
    assert str(decoded.rejections[30].reason) == "malformed"
    assert complaint in decoded.rejections[30].text


def test_the_mark_is_found_only_where_the_value_ends() -> None:
    """A value that is cut, or followed by what may be the next number, is never read by the quick way."""
    schema = load_schema(record(a="string", b="long"))
    assert wire_schema(schema) is not None
    whole = varint(2) + b"ab" + varint(300)
    values = [whole, whole[:-1], whole + b"\x02", whole + varint(2**62 - 1)]
    _, kept, rejections = read_values(pa.array(values, pa.binary()), schema, converter(schema, schema))
    assert kept.tolist() == [0]
    assert sorted(rejections) == [1, 2, 3]


leaf = st.sampled_from([
    "boolean", "int", "long", "float", "double", "string", "bytes", logical("long", "timestamp-millis"),
    logical("int", "date"), logical("bytes", "decimal", precision=9, scale=3),
])  # fmt: skip
types = st.recursive(
    leaf,
    lambda inner: st.one_of(
        inner.map(lambda kind: {"type": "array", "items": kind}),
        inner.map(lambda kind: {"type": "map", "values": kind}),
        inner.filter(lambda kind: not isinstance(kind, list)).map(lambda kind: ["null", kind]),
    ),
    max_leaves=3,
)


@settings(max_examples=150, deadline=None)
@given(st.lists(types, min_size=1, max_size=4), st.lists(st.binary(max_size=30), min_size=1, max_size=5))
def test_the_quick_way_accepts_nothing_that_is_not_right(kinds: list[Any], values: list[bytes]) -> None:
    """Whatever is read in columns is what reading byte by byte gives."""
    schema = load_schema(record(**{f"f{n}": kind for n, kind in enumerate(kinds)}))
    read = reader(schema)
    convert = converter(schema, schema)
    found, kept, _ = read_values(pa.array(values, pa.binary()), schema, convert)
    by_position = dict(zip(kept.tolist(), found.to_pylist(), strict=True))
    for position, value in enumerate(values):
        try:
            raw = pa.array([read_value(value, read)])
        except MalformedError:
            assert position not in by_position
            continue
        if position in by_position:
            from headrace.formats.avro_columns import raw_type

            alone = convert(pa.array(raw.to_pylist(), raw_type(schema))).to_pylist()
            assert repr(alone[0]) == repr(by_position[position])


def fields(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(listed)}


def test_a_newer_schema_reads_what_an_older_one_wrote() -> None:
    old = fields(
        {"name": "parcel", "type": "string"},
        {"name": "weight", "type": "int"},
        {"name": "gone", "type": ["null", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "OLD", "LOST"]}},
        {"name": "at", "type": logical("long", "timestamp-millis")},
        {"name": "note", "type": "string"},
    )
    new = fields(
        {"name": "id", "aliases": ["parcel"], "type": ["null", "string"]},
        {"name": "weight", "type": "double"},
        {"name": "belt", "type": ["null", "int"], "default": None},
        {"name": "stops", "type": {"type": "array", "items": "int"}, "default": [1]},
        {"name": "place", "type": STOP, "default": {"depot": None, "belt": 7}},
        {"name": "state", "type": STATE | {"default": "OLD"}},
        {"name": "at", "type": logical("long", "timestamp-micros")},
        {"name": "note", "type": "bytes"},
    )
    value = written(old, {"parcel": "a", "weight": 3, "gone": "x", "state": "LOST", "at": AT, "note": "ö"})[0]
    decoded = avro(new, writer_schema=old, time="at").decode(records(value)).frame.to_dicts()[0]
    assert decoded.pop("event_time") == decoded.pop("at") == AT
    del decoded["ingestion_time"]
    assert decoded == {
        "id": "a", "weight": 3.0, "belt": None, "stops": [1], "place": {"depot": None, "belt": 7}, "state": "OLD",
        "note": "ö".encode(),
    }  # fmt: skip


def test_a_value_that_the_readers_schema_does_not_have_is_rejected_alone() -> None:
    old = record(x=["null", "long"], y=["long", "string"], z=STATE)
    new = record(x="long", y="string", z={"type": "enum", "name": "State", "symbols": ["NEW"]})
    values = written(
        old,
        {"x": 1, "y": "a", "z": "NEW"},
        {"x": None, "y": "a", "z": "NEW"},
        {"x": 1, "y": 2, "z": "NEW"},
        {"x": 1, "y": "a", "z": "OLD"},
    )
    decoded = avro(new, writer_schema=old).decode(records(*values))
    assert decoded.frame.select("x", "y", "z").rows() == [(1, "a", "NEW")]
    assert [decoded.rejections[n].text for n in (1, 2, 3)] == [
        "x is null, which the reader's schema does not allow",
        "y is long, which the reader's schema does not have",
        "z has a symbol that the reader's schema does not have",
    ]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("string", "long", "x was written as string and cannot be read as long"),
        ("double", "int", "cannot be read as int"),
        (["null", "string"], ["null", "long"], "written as null or string and cannot be read as null or long"),
        ({"type": "array", "items": "string"}, {"type": "array", "items": "int"}, r"x\[\] was written as string"),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "cannot be read"),
        (logical("bytes", "decimal", precision=4), logical("bytes", "decimal", precision=5), "cannot be read"),
    ],
)
def test_schemas_that_do_not_fit_are_refused(old: Any, new: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        avro(record(x=new), writer_schema=record(x=old))


@pytest.mark.parametrize(
    ("schema", "complaint"),
    [
        ("{", "no JSON"),
        ('"string"', "is string, not a record"),
        ("nowhere.avsc", "cannot be read from 'nowhere.avsc'"),
        (record(x="strong"), "'strong', which is no type"),
        (record(x={"type": "array"}), "array without 'items'"),
        (record(x={"type": "array", "items": "null"}), "items take no bytes"),
        (record(x=["null", ["string"]]), "branches must be different"),
        (record(x=["long", "long"]), "branches must be different"),
        (record(x={"type": "enum", "name": "E", "symbols": []}), "symbols"),
        (record(x={"type": "fixed", "name": "F", "size": -1}), "size"),
        (record(x=["null", "R"]), "contains itself"),
        (record(x=STATE, y=STATE), "a second time"),
        (record(**{"x-y": "long"}), "has the field"),
        (fields({"name": "x", "type": "int"}, {"name": "x", "type": "int"}), "twice"),
        (record(event_time="long"), "event_time"),
        (record(ingestion_time="long"), "ingestion_time"),
        ({"type": "record", "name": "R"}, "without a list of fields"),
    ],
)
def test_schemas_that_cannot_be_used(schema: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        avro(schema)


def test_schemas_without_bounds_are_refused() -> None:
    deep: Any = "long"
    for _ in range(100):
        deep = {"type": "array", "items": deep}
    with pytest.raises(SchemaError, match="nested deeper"):
        avro(record(x=deep))
    with pytest.raises(SchemaError, match="nested"):
        avro('{"type":"array","items":' * 100_000)
    doubled = [{"name": "f0", "type": record(x="long") | {"name": "T0"}}]
    for n in range(1, 30):
        inner = [{"name": name, "type": f"T{n - 1}"} for name in "ab"]
        doubled.append({"name": f"f{n}", "type": {"type": "record", "name": f"T{n}", "fields": inner}})
    with pytest.raises(SchemaError, match="10,000 types"):
        avro({"type": "record", "name": "Wide", "fields": doubled})


def test_a_schema_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "scan.avsc"
    path.write_text(json.dumps(record(x="long")))
    assert avro(path) == avro(str(path)) == avro(record(x="long")) == avro(json.dumps(record(x="long")))
    path.write_text("{")
    with pytest.raises(SchemaError, match=r"scan\.avsc is no JSON"):
        avro(path)


@pytest.mark.parametrize(
    ("kind", "value", "options"),
    [
        (logical("long", "timestamp-millis"), AT, {}),
        ("long", 1_767_268_800_123, {"time_format": "ms"}),
        ("string", "2026-01-01T12:00:00.123Z", {}),
        ("string", "1767268800.123", {"time_format": "s"}),
        (["null", logical("long", "timestamp-micros")], AT, {}),
    ],
)
def test_the_time_of_a_field(kind: Any, value: Any, options: dict[str, Any]) -> None:
    nested = {"type": "record", "name": "Meta", "fields": [{"name": "at", "type": kind}]}
    for schema, row, path in (
        (record(at=kind), {"at": value}, "at"),
        (record(meta=nested), {"meta": {"at": value}}, "meta.at"),
        (record(meta=["null", nested]), {"meta": {"at": value}}, ("meta", "at")),
    ):
        decoded = avro(schema, time=path, **options).decode(records(*written(schema, row)))
        assert decoded.frame.get_column("event_time").to_list() == [AT]


def test_the_time_is_missing_or_bad() -> None:
    schema = record(at=["null", "string"])
    decoded = avro(schema, time="at").decode(records(*written(schema, {"at": None}, {"at": "soon"})), [])
    assert [str(decoded.rejections[n].reason) for n in (0, 1)] == ["missing_timestamp", "bad_timestamp"]


def test_a_field_event_time_may_be_the_time() -> None:
    schema = record(x="long", event_time=logical("long", "timestamp-millis"))
    decoded = avro(schema, time="event_time").decode(records(*written(schema, {"x": 1, "event_time": AT})))
    assert decoded.frame.columns == ["event_time", "ingestion_time", "x"]
    assert decoded.frame.get_column("event_time").to_list() == [AT]
    again = avro(schema, time="event_time").encode(decoded.frame).to_pylist()
    assert again == written(schema, {"x": 1, "event_time": AT})


def test_the_time_of_a_header() -> None:
    decoded = avro(record(x="long"), time=header_time("at", "s")).decode(
        records(b"\x02", headers=[{"at": b"1767268800.123"}])
    )
    assert decoded.frame.get_column("event_time").to_list() == [AT]


@pytest.mark.parametrize(
    ("path", "options", "complaint"),
    [
        ("when", {}, "no field 'when'"),
        ("x.y", {}, "x has no field 'y'"),
        ("x", {}, "unit is not known"),
        ("flag", {}, "which is no time"),
    ],
)
def test_a_time_that_cannot_be(path: str, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        avro(record(x="long", flag="boolean"), time=path, **options)


def test_results_of_any_columns_are_written_without_a_schema() -> None:
    frame = pl.DataFrame({
        "event_time": [AT], "depot": pl.Series(["north"], dtype=pl.Categorical), "n": pl.Series([3], dtype=pl.UInt32),
        "mean": [1.5], "lateness": [AT - AT.replace(microsecond=0)], "raw": [b"\xff"], "day": [AT.date()],
        "price": [Decimal("1.50")], "inner": [{"belts": [1, None]}], "nothing": pl.Series([None], dtype=pl.String),
    })  # fmt: skip
    value = avro().encode(frame)[0].as_py()
    from headrace.formats.avro_schema import schema_of

    schema = fastavro.parse_schema(schema_json(schema_of(frame.schema)))
    assert fastavro.schemaless_reader(BytesIO(value), schema, None) == {
        "event_time": AT, "depot": "north", "n": 3, "mean": 1.5, "lateness": 0.123, "raw": b"\xff", "day": AT.date(),
        "price": Decimal("1.50"), "inner": {"belts": [1, None]}, "nothing": None,
    }  # fmt: skip
    assert len(avro().encode(frame.clear())) == 0


@pytest.mark.parametrize(
    ("kind", "column", "complaint"),
    [
        ("long", pl.Series([None], dtype=pl.Int64), "cannot write null in x"),
        ("int", pl.Series([2**40]), "cannot write column 'x' of type Int64 as int"),
        ("long", pl.Series(["a"]), "cannot write column 'x' of type String as long"),
        (STATE, pl.Series(["LOST"]), "the enum State does not have it"),
        ({"type": "fixed", "name": "F", "size": 2}, pl.Series([b"abc"]), "has not 2 bytes"),
        ({"type": "array", "items": "long"}, pl.Series([[1, None]]), r"cannot write null in x\[\]"),
        (logical("bytes", "decimal", precision=3, scale=2), pl.Series([123.0]), "as decimal"),
    ],
)
def test_what_does_not_fit_the_schema_is_not_written(kind: Any, column: pl.Series, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        avro(record(x=kind)).encode(pl.DataFrame({"x": column}))


def test_a_missing_column_is_its_default_or_refused() -> None:
    schema = fields({"name": "x", "type": "long"}, {"name": "note", "type": "string", "default": "-"})
    assert rows(avro(schema), *avro(schema).encode(pl.DataFrame({"x": [1]})).to_pylist()) == [{"x": 1, "note": "-"}]
    with pytest.raises(SchemaError, match="has the field 'x', which the results do not have"):
        avro(schema).encode(pl.DataFrame({"y": [1]}))
    with pytest.raises(SchemaError, match="a name of Avro has letters"):
        avro().encode(pl.DataFrame({"x y": [1]}))


def test_a_format_travels() -> None:
    one = avro(record(x=["null", "long"]), time=header_time("at"))
    copy = pickle.loads(pickle.dumps(one))  # noqa: S301  our own bytes
    assert copy == one
    assert hash(copy) == hash(one)
    assert one != avro(record(x=["null", "int"]), time=header_time("at"))
    assert avro(record(x="long")).text == "avro of R, time from Kafka's timestamp"
