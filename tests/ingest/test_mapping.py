"""Mappings: any JSON or CSV becomes events, by configuration."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from pydantic import TypeAdapter

from headrace.errors import ConfigError
from headrace.events import Codec, Record, TypeRegistry
from headrace.ingest import Cause, RawMessage
from headrace.ingest.feeds import Feed, load
from headrace.ingest.processors.csv import CsvProcessor, CsvSettings
from headrace.ingest.processors.json import JsonProcessor, JsonSettings
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.ingest import Processed

NOON = 1_777_636_800_000_000
AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def json_processor(**options: Any) -> JsonProcessor:
    usual = {"topic": "input.x", "fields": {"id": "str", "value": "f64"}}
    return JsonProcessor(
        TypeAdapter(JsonSettings).validate_python({**usual, **options}), types=TypeRegistry(VehiclePosition)
    )


def csv_processor(columns: str, **options: Any) -> CsvProcessor:
    usual = {"topic": "input.x", "columns": columns.split(",")}
    return CsvProcessor(TypeAdapter(CsvSettings).validate_python({**usual, **options}))


def message(body: Any, topic: str = "site/a/temperature", **options: Any) -> RawMessage:
    return RawMessage(topic, body if isinstance(body, bytes) else json.dumps(body).encode(), NOON, **options)


def rows(result: Processed) -> list[dict[str, Any]]:
    """The events as they come out of Kafka."""
    assert not result.dismissed, result.dismissed
    (part,) = result.events
    decoded = Codec().decode(Codec().encode(part.frame, part.type), types=[part.type])
    assert decoded.dead.height == 0
    return decoded.frame.to_dicts()


def one(body: Any, **options: Any) -> dict[str, Any]:
    (row,) = rows(json_processor(**options).process([message(body)]))
    return row


def cause(body: Any, **options: Any) -> Cause:
    result = json_processor(**options).process([message(body)])
    assert not result.events
    assert result.dismissed[0].text
    return result.dismissed[0].cause


def test_a_json_message_becomes_a_record() -> None:
    fields = {
        "station": {"field": "@topic.1", "type": "str"},
        "temperature": {"field": "air.temperature", "type": "f64", "unit": "degF"},
        "first": {"field": "states.0.n", "type": "i32"},
        "ok": "bool",
        "seen": {"type": "time", "format": "epoch_ms"},
        "raw": {"field": "air", "type": "json"},
        "source": {"value": "roof", "type": "str"},
        "arrived": {"field": "@arrival", "type": "time"},
        "odd": {"field": ["a.b"], "type": "u8"},
    }
    body = {"at": "2026-05-01T11:59:59.5Z", "air": {"temperature": 212}, "states": [{"n": 7}], "ok": True, "a.b": 255,
            "seen": 1_777_636_800_123}  # fmt: skip
    found = one(body, fields=fields, time="at", key=["station"])
    assert found == {
        "event_time": AT - timedelta(milliseconds=500), "ingestion_time": AT, "station": "a",
        "temperature": pytest.approx(100.0), "first": 7, "ok": True, "seen": AT + timedelta(milliseconds=123),
        "raw": '{"temperature":212}', "source": "roof", "arrived": AT, "odd": 255,
    }  # fmt: skip


def test_the_whole_payload_may_be_the_value() -> None:
    found = one(21.5, fields={"value": {"field": "", "type": "f64"}, "all": {"field": "@topic", "type": "str"}})
    assert (found["value"], found["all"], found["event_time"]) == (21.5, "site/a/temperature", AT)


STATES = "time,icao24,lat,lon,velocity,heading,vertrate,callsign,onground,squawk"
AIRCRAFT: dict[str, Any] = {
    "topic": "input.aircraft",
    "time": {"field": "time", "format": "epoch_s"},
    "key": ["icao24"],
    "fields": {
        "icao24": "str",
        "latitude": {"field": "lat", "type": "f64", "min": -90, "max": 90},
        "longitude": {"field": "lon", "type": "f64", "min": -180, "max": 180},
        "speed": {"field": "velocity", "type": "f64", "unit": "kn"},
        "callsign": {"type": "str", "strip": True, "null": [""]},
        "on_ground": {"field": "onground", "type": "bool", "keep": False},
        "squawk": "i32",
    },
    "where": "NOT on_ground",
    "compute": {"fast": "speed > 200"},
}


def test_a_csv_row_becomes_a_record() -> None:
    processor = csv_processor(STATES, **AIRCRAFT)
    lines = [
        b"1777636799,4ca7b4,60.1,24.9,450,90,0,FIN123  ,False,2000\r\n",
        b'1777636799.25,4ca7b5,,,,,,"A,B",false,\n',
        b"1777636799,4ca7b6,60.1,24.9,10,90,0,X,True,2000",
    ]
    result = processor.process([message(line) for line in lines])
    assert result.dismissed[2].cause is Cause.FILTERED
    (part,) = result.events
    assert part.topic == "input.aircraft"
    assert part.type is Record
    assert part.keys is not None
    assert part.keys.to_list() == ["4ca7b4", "4ca7b5"]
    names = ["event_time", "icao24", "latitude", "speed", "callsign", "squawk", "fast"]
    assert part.frame.select(names).rows() == [
        (AT - timedelta(seconds=1), "4ca7b4", 60.1, pytest.approx(231.5), "FIN123", 2000, True),
        (AT - timedelta(seconds=0.75), "4ca7b5", None, None, "A,B", None, None),
    ]
    assert "on_ground" not in part.frame.columns
    assert processor.schema.names() == ["icao24", "latitude", "longitude", "speed", "callsign", "squawk", "fast"]


@pytest.mark.parametrize(
    ("rule", "value", "expected"),
    [
        ({"type": "f64"}, 3, 3.0),
        ({"type": "f64", "scale": 0.1, "offset": 5}, 10, 6.0),
        ({"type": "f64", "unit": "ft", "scale": 2}, 10, 6.096),
        ({"type": "f64", "unit": "K"}, 273.15, 0.0),
        ({"type": "f32"}, 0.5, 0.5),
        ({"type": "i64"}, 5.0, 5),
        ({"type": "i64"}, -(2**63), -(2**63)),
        ({"type": "u64"}, 2**64 - 1, 2**64 - 1),
        ({"type": "str"}, 12, "12"),
        ({"type": "str", "strip": True}, "  a ", "a"),
        ({"type": "str", "rename": {"A": "airborne"}}, "A", "airborne"),
        ({"type": "bool"}, 1, True),
        ({"type": "i32", "null": [-9999]}, -9999, None),
        ({"type": "bool", "null": [0]}, False, False),
        ({"type": "i32", "default": 7}, None, 7),
        ({"type": "str", "one_of": ["a", "b"]}, "a", "a"),
        ({"type": "time", "format": "epoch_ns"}, 1_777_636_800_000_000_999, AT),
        ({"type": "time", "format": "epoch_us"}, 1_777_636_800_000_000, AT),
        ({"type": "time", "format": "epoch_s"}, 1_777_636_800.25, AT + timedelta(seconds=0.25)),
        ({"type": "time"}, "2026-05-01T15:00:00+03:00", AT),
        ({"type": "time", "zone": "Europe/Helsinki"}, "2026-05-01 15:00", AT),
    ],
)
def test_values_as_they_should_be(rule: dict[str, Any], value: Any, expected: Any) -> None:
    found = one({"value": value}, fields={"value": rule, "other": {"value": 1, "type": "i8"}})["value"]
    assert found == (pytest.approx(expected) if isinstance(expected, float) else expected)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        ({"type": "f64"}, "12.5"), ({"type": "f64"}, True), ({"type": "f64"}, [1]), ({"type": "f64"}, 10**400),
        ({"type": "f32"}, 1e39), ({"type": "i8"}, 128), ({"type": "i64"}, 2**63), ({"type": "u8"}, -1),
        ({"type": "i32"}, 1.5), ({"type": "str"}, True), ({"type": "str"}, {}), ({"type": "bool"}, 2),
        ({"type": "bool"}, "true"), ({"type": "time"}, "soon"), ({"type": "time"}, 5),
        ({"type": "time", "format": "epoch_s"}, "5"), ({"type": "time", "format": "epoch_s"}, 1e300),
        ({"type": "time", "format": "epoch_us"}, 10**30), ({"type": "time", "format": "%d.%m.%Y"}, 2026),
        ({"type": "f64", "min": 0}, -1), ({"type": "f64", "max": 0}, 1), ({"type": "i32", "min": 0}, -1),
        ({"type": "str", "one_of": ["a"]}, "b"), ({"type": "i32", "one_of": [1]}, 2),
        ({"type": "i32", "default": 7}, "x"),
    ],
)  # fmt: skip
def test_values_that_cannot_be_are_dismissed_or_cleared(rule: dict[str, Any], value: Any) -> None:
    fields = {"value": rule, "id": "str"}
    assert cause({"id": "a", "value": value}, fields=fields) is Cause.BAD_VALUE
    # In the middle of good ones: a row does not depend on its neighbours.
    processor = json_processor(fields=fields, bad_fields="clear")
    result = processor.process([message({"id": "a", "value": part}) for part in (None, value, None)])
    (part,) = result.events
    default = rule.get("default")
    assert part.frame["value"].to_list() == [default, None, default]
    assert result.cleared == {"value": 1}
    required = {"value": {**rule, "required": True}, "id": "str"}
    assert cause({"id": "a", "value": value}, fields=required, bad_fields="clear") is Cause.BAD_VALUE


def test_texts_may_be_numbers_where_that_is_allowed() -> None:
    fields = {"a": "f64", "b": "i32", "c": "bool", "d": {"type": "time", "format": "epoch_ms"}, "e": "str"}
    processor = json_processor(fields=fields, parse_text=True)
    result = processor.process([message({"a": "1.5", "b": " 2 ", "c": "Yes", "d": "1777636800000", "e": "5"}),
                                message({"a": 1.5, "b": 2, "c": True, "d": 1777636800000, "e": 5}),
                                message({"a": "x", "b": 2})])  # fmt: skip
    (part,) = result.events
    assert part.frame.select(*fields).rows() == [(1.5, 2, True, AT, "5")] * 2
    assert result.dismissed[2].cause is Cause.BAD_VALUE


def test_what_is_required_must_be_there() -> None:
    assert cause({"value": 1}, key=["id"]) is Cause.MISSING_FIELD
    assert cause({"id": None, "value": 1}, key=["id"]) is Cause.MISSING_FIELD
    assert cause({"id": "a"}, fields={"value": {"type": "f64", "required": True}}) is Cause.MISSING_FIELD
    assert cause({"id": "a"}, time="at") is Cause.MISSING_FIELD
    assert cause({"id": "a", "at": "x"}, time="at", bad_fields="clear") is Cause.BAD_VALUE


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"", Cause.EMPTY), (b"x" * 70_000, Cause.TOO_LARGE), (b'"\xff"', Cause.NOT_UTF8), (b"{", Cause.MALFORMED),
        (b"[" * 60_000, Cause.MALFORMED), (b'{"value":NaN}', Cause.MALFORMED), (b'{"value":1e999}', Cause.BAD_VALUE),
    ],
)  # fmt: skip
def test_payloads_that_are_no_json(body: bytes, expected: Cause) -> None:
    assert cause(body) is expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b"a", Cause.MALFORMED_ROW), (b"a,b,c", Cause.MALFORMED_ROW), (b'"a,b', Cause.MALFORMED_ROW),
        (b"\xff,b", Cause.NOT_UTF8), (b'"a"b,c', Cause.MALFORMED_ROW), (b"a\nb,1", Cause.MALFORMED_ROW),
        (b"a,x", Cause.BAD_VALUE), (b'"a",1\n"b",2', Cause.MALFORMED_ROW),
    ],
)  # fmt: skip
def test_payloads_that_are_no_row(line: bytes, expected: Cause) -> None:
    processor = csv_processor("id,n", fields={"id": "str", "n": "i32"})
    assert processor.process([message(line)]).dismissed[0].cause is expected


def test_wrong_clocks_are_dismissed_as_configured() -> None:
    def at(seconds: float, **options: Any) -> Any:
        body = {"id": "a", "at": NOON / 1e6 + seconds}
        result = json_processor(time={"field": "at", "format": "epoch_s"}, **options).process([message(body)])
        return result.dismissed[0].cause if result.dismissed else None

    assert at(299) is None
    assert at(301) is Cause.CLOCK_AHEAD
    assert at(301, max_ahead=None) is None
    assert at(-1e6) is None
    assert at(-61, max_behind="1m") is Cause.CLOCK_BEHIND


def test_copies_have_another_identity_and_a_shift_moves_every_time() -> None:
    fields = {"id": "str", "n": "i64", "seen": "time"}
    body = {"id": "a", "n": 1, "seen": "2026-05-01T12:00:00Z", "at": "2026-05-01T12:00:00Z"}
    sent = [message(body, copy=copy, shift=3_600_000_000)._replace(arrival=NOON + 3_600_000_000) for copy in range(3)]
    (part,) = json_processor(fields=fields, key=["n", "id"], time="at").process(sent).events
    assert part.keys is not None
    assert part.keys.to_list() == ["1/a", "1/a~1", "1/a~2"]
    assert part.frame["seen"].to_list() == part.frame["event_time"].to_list() == [AT + timedelta(hours=1)] * 3
    (numbers,) = json_processor(fields=fields, key=["n"]).process(sent).events
    assert numbers.frame["n"].to_list() == [1, 1_000_000_001, 2_000_000_001]
    small = json_processor(fields={"n": "i32"}, key=["n"]).process(sent)
    assert small.events[0].frame["n"].to_list() == [1, 1_000_000_001, 2_000_000_001]
    assert json_processor(fields={"n": "i16"}, key=["n"]).process(sent).dismissed[1].cause is Cause.BAD_VALUE


def test_a_computation_that_fails_costs_only_its_own_message() -> None:
    processor = json_processor(fields={"id": "str"}, compute={"n": "CAST(id AS INTEGER) * 2"}, where="n > 2")
    result = processor.process([message({"id": text}) for text in ("1", "x", "5", "7", None)])
    assert result.events[0].frame["n"].to_list() == [10, 14]
    causes = {number: str(dismissal.cause) for number, dismissal in result.dismissed.items()}
    assert causes == {0: "filtered", 1: "bad_value", 4: "filtered"}


def test_events_of_a_type_that_exists() -> None:
    fields = {
        "vehicle_id": {"field": "bus"}, "latitude": {"field": "y"}, "longitude": {"field": "x"},
        "delay": {"field": "late"}, "operator": {"value": 7}, "vehicle_number": {"value": 0},
    }  # fmt: skip
    processor = json_processor(
        type="VehiclePosition", topic="input.vehicle-position", fields=fields, key=["vehicle_id"]
    )
    (part,) = processor.process([message({"bus": "b7", "y": 48.1, "x": 11.5, "late": 60})]).events
    assert part.type is VehiclePosition
    assert part.frame.select(*fields).row(0) == ("b7", 48.1, 11.5, 60, 7, 0)
    assert part.frame.schema["delay"] == pl.Int32
    assert Codec().encode(part.frame, part.type)
    assert processor.process([message({"y": 48.1})]).dismissed[0].cause is Cause.MISSING_FIELD


# ---------------------------------------------------------------- configuration

FEED = """
[[feed]]
name = "aircraft"
connector = "replay"
processor = "csv"

[feed.replay]
paths = ["states.csv.gz"]
form = "csv"
time = {field = "time", format = "epoch_s"}

[feed.csv]
topic = "input.aircraft"
columns = ["time", "icao24", "lat"]
time = {field = "time", format = "epoch_s"}
key = ["icao24"]
where = "latitude > 0"
fields = {icao24 = "str", latitude = {field = "lat", type = "f64", min = -90, max = 90}}
"""


def read(folder: Path, text: str) -> Feed:
    from headrace.ingest.connectors.replay import ReplayConnector

    file = folder / "feeds.toml"
    file.write_text(text)
    (feed,) = load(
        file,
        connectors={"replay": ReplayConnector},
        processors={"csv": CsvProcessor, "json": JsonProcessor},
        types=TypeRegistry(VehiclePosition),
    )
    return feed


def test_a_mapping_in_a_file_of_feeds(tmp_path: Path) -> None:
    feed = read(tmp_path, FEED)
    assert feed.topics == ("input.aircraft",)
    (part,) = feed.make_processor().process([message(b"1777636800,a1,60.5")]).events
    assert part.frame["latitude"].to_list() == [60.5]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"f64"', '"float"', "latitude.*type is 'float'"),
        ("min = -90", "least = -90", "latitude, least: there is no such setting"),
        ('field = "lat"', 'field = "lta"', "'lta' is none of the columns"),
        ('"latitude > 0"', '"latitude >"', "where"),
        ('"latitude > 0"', '"height > 0"', "where.*height"),
        ('"latitude > 0"', '"latitude > AVG(latitude)"', "more than one row"),
        ('"latitude > 0"', '"latitude + 1"', "no condition"),
        ('key = ["icao24"]', 'key = ["tail"]', "key 'tail'"),
        ("epoch_s\"}\nkey", "epoch\"}\nkey", "format is 'epoch'"),
        ("epoch_s\"}\nkey", "%Q\"}\nkey", "%Q"),
        ('topic = "input.aircraft"', "", "topic"),
        ('icao24 = "str"', 'icao24 = ""', "icao24"),
        ('icao24 = "str"', 'event_time = "str"', "event_time"),
        ('icao24 = "str"', 'icao24 = "str", columns = "str"', "'columns'"),
        ('icao24 = "str"', 'icao24 = {type = "str", unit = "ft"}', "unit"),
        ('icao24 = "str"', 'icao24 = {type = "str", min = 1}', "min or max"),
        ('icao24 = "str"', 'icao24 = {type = "i32", default = "x"}', "default"),
        ('icao24 = "str"', 'icao24 = {type = "str", value = "a", field = "b"}', "contradict"),
        ('icao24 = "str"', 'icao24 = {field = "@topic.x", type = "str"}', "@topic"),
        ('icao24 = "str"', 'icao24 = {field = "@arrival", type = "str"}', "arrival"),
        ('columns = ["time", "icao24", "lat"]', 'columns = ["time", "time", "lat"]', "twice"),
        ('topic = "input.aircraft"', 'topic = "input.aircraft"\ntype = "Nothing"', "Nothing"),
        ('topic = "input.aircraft"', 'topic = "input.aircraft"\ntype = "VehiclePosition"', "icao24"),
        ('topic = "input.aircraft"', 'topic = "input.aircraft"\ndelimiter = "ab"', "delimiter"),
        ('topic = "input.aircraft"', 'topic = "input.aircraft"\ncompute = {latitude = "1"}', "both read and computed"),
        ('processor = "csv"', 'processor = "nothing.here:Class"', "cannot be imported"),
        ('processor = "csv"', 'processor = "json:loads"', "is no Processor"),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, old: str, new: str, words: str) -> None:
    assert old in FEED
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, FEED.replace(old, new))


def test_a_processor_of_your_own_by_its_name(tmp_path: Path) -> None:
    text = FEED.replace('processor = "csv"', 'processor = "headrace.ingest.processors.csv:CsvProcessor"')
    assert read(tmp_path, text).processor is CsvProcessor
