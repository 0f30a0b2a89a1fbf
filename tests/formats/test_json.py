"""JSON as columns: a table of cases, and the property that both ways of reading agree."""

from __future__ import annotations

import json as plain_json
import pickle
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.events.letters import Rejection
from headrace.formats import Records, field_time, header_time, json
from headrace.formats import json_reader as reader

SCHEMA: dict[str, Any] = {
    "text": pl.String,
    "real": pl.Float64,
    "whole": pl.Int64,
    "small": pl.UInt8,
    "yes": pl.Boolean,
    "inner": pl.Struct({"x": pl.Int64, "y": pl.List(pl.String)}),
    "list": pl.List(pl.Float64),
}
FORMAT = json(schema=SCHEMA)
AT = datetime(2026, 3, 1, 8, tzinfo=UTC)
NAMES = list(SCHEMA)


def records(*values: bytes | None, **parts: Any) -> Records:
    stamps = pa.array([AT] * len(values), pa.timestamp("us", "UTC"))
    return Records(pa.array(values, pa.binary()), timestamps=stamps, **parts)


def outcome(value: bytes | None) -> dict[str, Any] | str:
    """The fields of a value that are not null, or the reason why it cannot be read."""
    decoded = FORMAT.decode(records(value))
    if decoded.rejections:
        assert decoded.frame.height == 0
        return str(decoded.rejections[0].reason)
    (row,) = decoded.frame.select(NAMES).to_dicts()
    return {name: value for name, value in row.items() if value is not None}


CASES: list[tuple[bytes | None, dict[str, Any] | str]] = [
    (b"{}", {}),
    (b'{"text":null}', {}),
    (b'{"text":"a","unknown":[{"deep":1}]}', {"text": "a"}),
    (b'{"text":1}', "wrong_type"),
    (b'{"text":true}', "wrong_type"),
    (b'{"real":1}', {"real": 1.0}),
    (b'{"real":"1"}', "wrong_type"),
    (b'{"real":1e400}', "wrong_type"),
    (b'{"real":123456789012345678901234567890}', {"real": 123456789012345678901234567890.0}),
    (b'{"real":NaN}', "malformed_json"),
    (b'{"real":-Infinity}', "malformed_json"),
    (b'{"unknown":NaN}', "malformed_json"),
    (b'{"unknown":1e400}', {}),
    (b'{"text":": NaN, Infinity"}', {"text": ": NaN, Infinity"}),
    (b'{"whole":1.0}', {"whole": 1}),
    (b'{"whole":1e2}', {"whole": 100}),
    (b'{"whole":9007199254740993.0}', {"whole": 9007199254740993}),
    (b'{"whole":1.5}', "wrong_type"),
    (b'{"whole":1.00000000000000000001}', "wrong_type"),
    (b'{"whole":0e999999999}', {"whole": 0}),
    (b'{"whole":9223372036854775807}', {"whole": 9223372036854775807}),
    (b'{"whole":9223372036854775808}', "wrong_type"),
    (b'{"whole":' + b"9" * 5000 + b"}", "wrong_type"),
    (b'{"whole":true}', "wrong_type"),
    (b'{"small":255}', {"small": 255}),
    (b'{"small":256}', "wrong_type"),
    (b'{"small":-1}', "wrong_type"),
    (b'{"yes":1}', "wrong_type"),
    (b'{"inner":{"x":1,"z":2}}', {"inner": {"x": 1, "y": None}}),
    (b'{"inner":{"x":"1"}}', "wrong_type"),
    (b'{"inner":[1]}', "wrong_type"),
    (b'{"list":[1,2.5,null]}', {"list": [1.0, 2.5, None]}),
    (b'{"list":[[1]]}', "wrong_type"),
    (b'{"text":"a","text":"b"}', {"text": "b"}),
    (b'{"text":1,"text":"b"}', {"text": "b"}),
    (b'{"inner":{"x":1,"x":2}}', {"inner": {"x": 2, "y": None}}),
    (b'{"te\\u0078t":"a"}', {"text": "a"}),
    (b'\xef\xbb\xbf{"text":"a"}', {"text": "a"}),
    (b' \r\n{"text":\n\n"a"\n}\n', {"text": "a"}),
    (b'{"text":"a\nb"}', "malformed_json"),
    (b'{"text":"a\\nb\\u0000"}', {"text": "a\nb\0"}),
    (b'{"text":"\xff"}', "malformed_json"),
    (b'{"unknown":"\xff"}', "malformed_json"),
    ('{"text":"a"}'.encode("utf-16"), "malformed_json"),
    (b'{"text":"\\ud800"}', "malformed_json"),
    (b'{"unknown":"\\ud800"}', "malformed_json"),
    (b'{"text":"\\ud83d\\ude00"}', {"text": "😀"}),
    (b'{"unknown":' + b"[" * 200 + b"]" * 200 + b"}", {}),
    (b'{"unknown":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "malformed_json"),
    (b'{"a":' * 10_000 + b"}", "malformed_json"),
    (b'{"text":"' + b"[" * 1_000 + b'"}', {"text": "[" * 1_000}),
    (b"[]", "malformed_json"),
    (b"null", "malformed_json"),
    (b"1", "malformed_json"),
    (b"", "malformed_json"),
    (b"rubbish", "malformed_json"),
    (b'{"text":"a"}{"text":"b"}', "malformed_json"),
    (b'{"text":"a"', "malformed_json"),
    (b'{"text":"a",}', "malformed_json"),
    (b'{"whole":01}', "malformed_json"),
    (b"{'text':'a'}", "malformed_json"),
    (None, "empty_value"),
]


@pytest.mark.parametrize(("value", "expected"), CASES, ids=[repr(value)[:40] for value, _ in CASES])
def test_what_becomes_of_a_value(value: bytes | None, expected: dict[str, Any] | str) -> None:
    assert outcome(value) == expected


def test_a_value_is_judged_alone_whatever_is_beside_it_and_whatever_is_asked_for() -> None:
    values = [value for value, _ in CASES] * 3
    for columns in (None, ["text"], []):
        decoded = FORMAT.decode(records(*values), columns)
        assert decoded.frame.columns == ["event_time", "ingestion_time", *(NAMES if columns is None else columns)]
        refused = [row for row, (_, expected) in enumerate(CASES * 3) if isinstance(expected, str)]
        assert sorted(decoded.rejections) == refused
        assert decoded.positions is not None
        assert decoded.positions.tolist() == [row for row in range(len(values)) if row not in set(refused)]
    whole = FORMAT.decode(records(*values)).frame.select(NAMES).to_dicts()
    kept = [expected for _, expected in CASES * 3 if isinstance(expected, dict)]
    assert [{name: value for name, value in row.items() if value is not None} for row in whole] == kept


def test_halves_of_values_never_become_a_row() -> None:
    values = [
        b'{"text":"a","inner":',
        b'{"x":1}}',
        b'{"text":"b"}{"text":"c"}',
        b'{"text":"',
        b'"}',
        b'{"list":[{}',
        b"{}]}",
    ]
    for order in (values, values[::-1], [*values, b"{}"]):
        decoded = FORMAT.decode(records(*order))
        assert decoded.frame.height == len([value for value in order if value == b"{}"])


def test_a_value_of_ten_megabytes_is_read_and_one_beyond_the_limit_is_not() -> None:
    value = b'{"text":"' + b"a" * 10_000_000 + b'"}'
    assert len(FORMAT.decode(records(value)).frame["text"][0]) == 10_000_000
    small = json(schema=SCHEMA, max_value_bytes=100)
    assert small.decode(records(value, b"{}")).rejections[0].reason == "too_large"


def test_a_slice_of_an_array_is_read_as_its_own_values() -> None:
    values = pa.array([b'{"whole":%d}' % number for number in range(10)], pa.binary())
    decoded = FORMAT.decode(Records(values.slice(3, 4), timestamps=pa.array([AT] * 4, pa.timestamp("us", "UTC"))))
    assert decoded.frame["whole"].to_list() == [3, 4, 5, 6]
    assert decoded.positions is None


_TEXT = st.text(max_size=6)
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | _TEXT
    | st.sampled_from([1.0, 2.0**53, -0.0])
)
_VALUES = st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3))
_FITTING = st.fixed_dictionaries(
    {},
    optional={
        "text": _TEXT,
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "whole": st.integers(-(2**63), 2**63 - 1),
        "small": st.integers(0, 255),
        "yes": st.booleans(),
        "inner": st.fixed_dictionaries({}, optional={"x": st.integers(-5, 5), "y": st.lists(_TEXT, max_size=2)}),
        "list": st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.none(), max_size=3),
        "other": _VALUES,
    },
)
_ODD = st.dictionaries(st.sampled_from([*NAMES, "other"]), _VALUES, max_size=4)


@st.composite
def _texts(draw: st.DrawFn) -> bytes:
    """A value: mostly objects, some of them damaged."""
    content = draw(_FITTING | _ODD)
    indent = draw(st.sampled_from([None, None, 1]))
    text = plain_json.dumps(content, ensure_ascii=draw(st.booleans()), indent=indent).encode(errors="surrogatepass")
    damage = draw(st.sampled_from(["none"] * 6 + ["cut", "byte", "twice"]))
    if damage == "cut":
        return text[: draw(st.integers(0, len(text)))]
    if damage == "byte":
        place = draw(st.integers(0, len(text) - 1))
        return text[:place] + bytes([draw(st.integers(0, 255))]) + text[place + 1 :]
    return text + text if damage == "twice" else text


@settings(deadline=None)
@given(st.lists(_texts() | st.binary(max_size=8), max_size=40))
def test_reading_together_agrees_with_reading_one_by_one(values: list[bytes]) -> None:
    (schema,) = FORMAT._schemas
    table, rows, rejections = reader.read_objects(pa.array(values, pa.binary()), schema)
    alone = [reader.read_object(value.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r\n"), schema) for value in values]
    good = [row for row, found in enumerate(alone) if not isinstance(found, Rejection)]
    assert rows.tolist() == good
    assert sorted(rejections) == [row for row in range(len(values)) if row not in set(good)]
    expected = pa.Table.from_pylist([alone[row] for row in good], schema=schema)
    assert repr(table.to_pylist()) == repr(expected.to_pylist())


@settings(deadline=None)
@given(st.lists(_FITTING, min_size=1, max_size=20))
def test_what_fits_is_read_as_json_loads_reads_it(contents: list[dict[str, Any]]) -> None:
    values = [plain_json.dumps(content).encode() for content in contents]
    decoded = FORMAT.decode(records(*values))
    refused = {row for row in range(len(values)) if b"NaN" in values[row] or b"Infinity" in values[row]}
    surrogates = {row for row, value in enumerate(values) if not _has_utf8(plain_json.loads(value))}
    assert set(decoded.rejections) <= refused | surrogates
    positions = range(len(values)) if decoded.positions is None else decoded.positions.tolist()
    for row, found in zip(positions, decoded.frame.select(NAMES).iter_rows(named=True), strict=True):
        wanted = plain_json.loads(values[row])
        inner = wanted.get("inner")
        if inner is not None:
            wanted["inner"] = {"x": inner.get("x"), "y": inner.get("y")}
        assert found == {name: wanted.get(name) for name in NAMES}


def _has_utf8(content: Any) -> bool:
    try:
        plain_json.dumps(content, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


INSTANT = datetime(2026, 3, 1, 8, 0, 0, 123456, tzinfo=UTC)


@pytest.mark.parametrize(
    ("time_format", "written", "expected"),
    [
        ("iso8601", '"2026-03-01T08:00:00.123456Z"', INSTANT),
        ("iso8601", '"2026-03-01 10:00:00.123456789+02:00"', INSTANT),
        ("iso8601", '"2026-03-01t05:00:00,123456-0300"', INSTANT),
        ("iso8601", '"2026-03-01T08:00:00"', AT),
        ("iso8601", '"2026-03-01T08:00+00"', AT),
        ("iso8601", '"2026-02-29T08:00:00Z"', "bad_timestamp"),
        ("iso8601", '"2026-03-01T08:00:60Z"', "bad_timestamp"),
        ("iso8601", '"0000-03-01T08:00:00Z"', "bad_timestamp"),
        ("iso8601", '"yesterday"', "bad_timestamp"),
        ("iso8601", "1772352000", "wrong_type"),
        ("s", "1772352000", AT),
        ("s", "1772352000.123456", INSTANT),
        ("s", '"1772352000.123456"', INSTANT),
        ("s", "1e300", "bad_timestamp"),
        ("s", '"1e3"', "bad_timestamp"),
        ("s", "true", "wrong_type"),
        ("ms", "1772352000123.456", INSTANT),
        ("ms", '"1772352000000"', AT),
        ("us", "1772352000123456", INSTANT),
        ("us", '"1772352000123456"', INSTANT),
        ("ns", "1772352000123456789", INSTANT),
        ("ns", '"1772352000123456789"', INSTANT),
        ("%d.%m.%Y %H:%M:%S", '"01.03.2026 08:00:00"', AT),
        ("%d.%m.%Y %H:%M:%S", '"2026-03-01"', "bad_timestamp"),
        ("iso8601", "null", "missing_timestamp"),
    ],
)
@pytest.mark.parametrize("path", ["at", "meta.at"])
def test_how_times_are_read(path: str, time_format: str, written: str, expected: datetime | str) -> None:
    value = f'{{"at":{written},"meta":{{"at":{written}}},"text":"a"}}'.encode()
    found = json(schema={"text": pl.String}, time=path, time_format=time_format)
    other = b'{"text":"no time at all"}'
    for values in ((value,), (other, value, other, value)):
        decoded = found.decode(records(*values))
        if isinstance(expected, str):
            assert decoded.rejections[values.index(value)].reason == expected
            assert decoded.frame.height == 0
        else:
            assert decoded.frame["event_time"].to_list() == [expected] * values.count(value)


def test_a_time_without_a_zone_is_in_the_zone_that_is_declared() -> None:
    helsinki = json(schema={"text": pl.String}, time="at", time_zone="Europe/Helsinki")
    values = [b'{"at":"2026-06-01T12:00:00"}', b'{"at":"2026-06-01T12:00:00Z"}', b'{"at":"2026-03-29T03:30:00"}']
    decoded = helsinki.decode(records(*values))
    noon = datetime(2026, 6, 1, 12, tzinfo=UTC)
    assert decoded.frame["event_time"].to_list() == [noon - timedelta(hours=3), noon]
    assert decoded.rejections[2].reason == "bad_timestamp"  # that clock shows no such time


def test_the_time_may_be_a_header_or_kafkas_own() -> None:
    headers = pa.array(
        [[("at", b"5"), ("at", b"1772352000")], None],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    by_header = json(schema=SCHEMA, time=header_time("at", "s"))
    decoded = by_header.decode(records(b"{}", b"{}", headers=headers))
    assert by_header.reads == {"timestamp", "headers"}
    assert decoded.frame["event_time"].to_list() == [AT]
    assert decoded.rejections[1].reason == "missing_timestamp"
    assert FORMAT.decode(records(b"{}")).frame["event_time"].to_list() == [AT]
    assert FORMAT.decode(records(b"{}")).frame["ingestion_time"].to_list() == [AT]


def test_instants_and_dates_are_columns_too() -> None:
    times = json(schema={"due": pl.Datetime("us", "UTC"), "day": pl.Date, "near": pl.Float32})
    decoded = times.decode(
        records(b'{"due":"2026-03-01T08:00:00Z","day":"2026-03-01","near":0.1}', b'{"due":"soon"}', b'{"day":"1.3."}')
    )
    assert decoded.frame.rows() == [(AT, AT, AT, date(2026, 3, 1), pytest.approx(0.1))]
    assert [str(decoded.rejections[row].reason) for row in (1, 2)] == ["wrong_type", "wrong_type"]
    assert decoded.frame.schema["near"] == pl.Float32


def test_a_field_that_is_read_for_the_time_is_no_column() -> None:
    found = json(schema={"meta": pl.Struct({"who": pl.String})}, time="meta.at", time_format="ms")
    decoded = found.decode(records(b'{"meta":{"at":1772352000000,"who":"a"}}', b'{"meta":{"at":"1772352000000"}}'))
    assert decoded.frame.select("event_time", "meta").rows() == [(AT, {"who": "a"}), (AT, {"who": None})]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: json(schema={"a": pl.Object}), "not read from JSON"),
        (lambda: json(schema={"a": pl.List(pl.Date)}), "not read from JSON"),
        (lambda: json(schema={"event_time": pl.String}), "a name that Headrace uses itself"),
        (lambda: json(schema=SCHEMA, time="at", time_format="minutes"), "'minutes' is not known"),
        (lambda: json(schema=SCHEMA, time="at", time_zone="Mars/Base"), "Mars/Base"),
        (lambda: json(schema=SCHEMA, time=""), "has no name"),
        (lambda: json(schema=SCHEMA, time="text.at"), "text is no object in the schema"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written(build: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words) as refusal:
        build()
    assert refusal.value.hint


def test_formats_are_compared_by_value_and_travel() -> None:
    one, other = (json(schema=SCHEMA, time=field_time("at", "ms")) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    one.decode(records(b"{}"))
    copy = pickle.loads(pickle.dumps(one))  # noqa: S301  our own bytes
    assert copy == one
    assert copy.decode(records(b"{}")).rejections.keys() == {0}
    assert one != json(schema=SCHEMA, time=field_time("at", "s"))


def test_rows_are_written_as_plain_json_and_read_again() -> None:
    frame = pl.DataFrame(
        {
            "text": ["a\nb", "é\u2028", None],
            "whole": [2**63 - 1, -1, 0],
            "real": [0.1, float("nan"), float("-inf")],
            "at": [AT, INSTANT, None],
            "lateness": [timedelta(milliseconds=1500), timedelta(0), None],
            "raw": [b"\xff", b"", None],
            "inner": [{"at": [AT]}, None, {"at": None}],
            "kind": pl.Series(["x", "y", None], dtype=pl.Categorical),
        }
    )
    written = [plain_json.loads(value) for value in json().encode(frame).to_pylist()]
    stamp = "2026-03-01T08:00:00.000000Z"
    assert written[0] == {
        "text": "a\nb", "whole": 2**63 - 1, "real": 0.1, "at": stamp, "lateness": 1.5, "raw": "/w==",
        "inner": {"at": [stamp]}, "kind": "x",
    }  # fmt: skip
    assert [row["real"] for row in written[1:]] == [None, None]
    assert written[1]["inner"] is None
    assert written[2]["inner"] == {"at": None}
    again = json(schema={"text": pl.String, "whole": pl.Int64}).decode(records(*json().encode(frame).to_pylist()))
    assert again.frame.select("text", "whole").equals(frame.select("text", "whole"))
    assert np.array_equal(json().encode(frame.clear()).to_pylist(), [])


@pytest.mark.parametrize(
    ("time_format", "value", "text"),
    [
        ("s", "1772352001000", "t is '1772352001000', which is not a time as 's'; as 'ms' it would be"),
        ("s", '"1772352001000"', "t is '1772352001000', which is not a time as 's'; as 'ms' it would be"),
        ("ms", "1772352001000000000", "t is '1772352001000000000', which is not a time as 'ms'; as 'ns' it would be"),
        ("s", "7772352001000000", "t is '7772352001000000', which is not a time as 's'"),
        ("s", '"soon"', "t is 'soon', which is not a time as 's'"),
    ],
)
def test_a_count_in_another_unit_is_named(time_format: str, value: str, text: str) -> None:
    decoded = json(schema={"k": pl.String}, time="t", time_format=time_format).decode(
        Records(pa.array([f'{{"k": "a", "t": {value}}}'.encode()], pa.binary()))
    )
    assert decoded.rejections[0].text == text
