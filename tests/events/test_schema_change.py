"""An older and a newer schema in one topic: what docs/schemas.md allows, and what it forbids and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest

from headrace.events import Codec, Event, TypeRegistry

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)

OLD = """
    enum State { UNKNOWN = 0; OPEN = 1; }
    message Door {
      string id = 1; optional int32 width = 2; State state = 3; optional string note = 4; repeated int32 steps = 5;
    }
"""
# width became wider, note went, two fields and an enum value came.
NEW = """
    enum State { UNKNOWN = 0; OPEN = 1; AJAR = 2; }
    message Lock { string maker = 1; }
    message Door {
      string id = 1; optional int64 width = 2; State state = 3; reserved 4; reserved "note"; repeated int32 steps = 5;
      optional double weight = 6; Lock lock = 7;
    }
"""


@pytest.fixture(scope="module")
def doors(schema: Any) -> tuple[Any, Any]:
    return schema(OLD, "Door"), schema(NEW, "Door")


@pytest.fixture(scope="module")
def topic(doors: tuple[Any, Any]) -> list[bytes]:
    """Two events of writers that know the old schema, two of writers that know the new one."""
    old, new = doors
    before, after = Codec(TypeRegistry(old)), Codec(TypeRegistry(new))
    return [
        before.write(old(id="a", width=90, state="OPEN", note="creaks", steps=[1]), event_time=NOON),
        after.write(
            new(id="b", width=2**40, state="AJAR", weight=12.5, lock={"maker": "x"}, steps=[2, 3]), event_time=NOON
        ),
        before.write(old(id="c"), event_time=NOON, encoding="json"),
        after.write(new(id="d", weight=1.0, state="AJAR"), event_time=NOON, encoding="json"),
    ]


def test_a_newer_reader_reads_both(doors: Any, topic: list[bytes], engine: Any) -> None:
    decoded = Codec(TypeRegistry(doors[1]), engine=engine).decode(topic, types=["Door"])
    assert decoded.dead.is_empty()
    assert decoded.frame.drop("event_time", "ingestion_time").to_dicts() == [
        {"id": "a", "width": 90, "state": "OPEN", "steps": [1], "weight": None, "lock": None},
        {"id": "b", "width": 2**40, "state": "AJAR", "steps": [2, 3], "weight": 12.5, "lock": {"maker": "x"}},
        {"id": "c", "width": None, "state": "UNKNOWN", "steps": [], "weight": None, "lock": None},
        {"id": "d", "width": None, "state": "AJAR", "steps": [], "weight": 1.0, "lock": None},
    ]


def test_an_older_reader_reads_both(doors: Any, topic: list[bytes], engine: Any) -> None:
    decoded = Codec(TypeRegistry(doors[0]), engine=engine).decode(topic[:3], types=["Door"])
    assert decoded.dead.is_empty()
    assert decoded.frame.drop("event_time", "ingestion_time").to_dicts() == [
        {"id": "a", "width": 90, "state": "OPEN", "note": "creaks", "steps": [1]},
        # An enum value it does not know is a number; a number too wide for it loses its upper bits, as protobuf says.
        {"id": "b", "width": 0, "state": "2", "note": None, "steps": [2, 3]},
        {"id": "c", "width": None, "state": "UNKNOWN", "note": None, "steps": []},
    ]


def test_in_json_an_older_reader_drops_what_it_does_not_know(doors: Any, topic: list[bytes]) -> None:
    # JSON carries names: a new enum value is a name that the old schema lacks, and counts as not set.
    decoded = Codec(TypeRegistry(doors[0])).decode(topic[3:], types=["Door"])
    assert decoded.dead.is_empty()
    assert decoded.frame["state"].to_list() == ["UNKNOWN"]


def test_unknown_fields_survive_in_single_events(doors: Any, topic: list[bytes]) -> None:
    old, new = doors
    reader = Codec(TypeRegistry(old))
    event = reader.read(topic[1])
    assert isinstance(event, Event)
    payload: Any = reader.payload(event)
    payload.id = "b2"
    again = Codec(TypeRegistry(new)).decode([reader.write(payload, event_time=NOON)], types=["Door"]).frame
    assert again.select("id", "weight", "lock", "width").row(0) == ("b2", 12.5, {"maker": "x"}, 0)
    # The envelope itself keeps them too.
    odd = topic[1] + b"\xa2\x06\x03abc"  # field 100
    kept = reader.read(odd)
    assert isinstance(kept, Event)
    assert kept.SerializeToString().endswith(b"\xa2\x06\x03abc")


def test_unknown_fields_do_not_survive_in_frames(doors: Any, topic: list[bytes], engine: Any) -> None:
    old, new = doors
    reader = Codec(TypeRegistry(old), engine=engine)
    frame = reader.decode(topic[1:2], types=["Door"]).frame
    again = Codec(TypeRegistry(new)).decode(reader.encode(frame, "Door"), types=["Door"]).frame
    assert again["weight"].to_list() == [None]


def test_reusing_a_number_for_another_type_is_what_the_rules_forbid(schema: Any, engine: Any) -> None:
    # Nothing fails: protobuf takes the value for an unknown field, and the new reader sees null where there was data.
    old = schema("message Door { string id = 1; optional int32 width = 2; }", "Door")
    new = schema("message Door { string id = 1; optional string colour = 2; }", "Door")
    value = Codec(TypeRegistry(old)).write(old(id="a", width=90), event_time=NOON)
    frame = Codec(TypeRegistry(new), engine=engine).decode([value], types=["Door"]).frame
    assert frame["colour"].to_list() == [None]


def test_from_one_to_many(schema: Any, engine: Any) -> None:
    one = schema("message Door { optional int32 width = 1; optional string name = 2; }", "Door")
    many = schema("message Door { repeated int32 width = 1; repeated string name = 2; }", "Door")
    old, new = Codec(TypeRegistry(one), engine=engine), Codec(TypeRegistry(many), engine=engine)
    before, after = (codec.write(door, event_time=NOON) for codec, door in (
        (old, one(width=90, name="a")),
        (new, many(width=[80, 90], name=["a", "b"])),
    ))  # fmt: skip
    assert new.decode([before], types=["Door"]).frame.select("width", "name").row(0) == ([90], ["a"])
    # The older reader sees the last text, but no number: lists of numbers are packed.
    assert old.decode([after], types=["Door"]).frame.select("width", "name").row(0) == (None, "b")


def test_a_renamed_field_is_the_same_in_binary_and_another_in_json(schema: Any, engine: Any) -> None:
    old = schema("message Door { string id = 1; }", "Door")
    new = schema("message Door { string name = 1; }", "Door")
    writer, reader = Codec(TypeRegistry(old)), Codec(TypeRegistry(new), engine=engine)
    values = [writer.write(old(id="a"), event_time=NOON, encoding=encoding) for encoding in ("binary", "json")]
    assert reader.decode(values, types=["Door"]).frame["name"].to_list() == ["a", ""]


def test_a_removed_enum_value_is_its_number(schema: Any, engine: Any) -> None:
    old = schema("enum State { NONE = 0; OPEN = 1; } message Door { State state = 1; }", "Door")
    new = schema("enum State { NONE = 0; reserved 1; } message Door { State state = 1; }", "Door")
    value = Codec(TypeRegistry(old)).write(old(state="OPEN"), event_time=NOON)
    assert Codec(TypeRegistry(new), engine=engine).decode([value], types=["Door"]).frame["state"].to_list() == ["1"]


def test_adding_to_a_oneof_unsets_what_an_older_reader_knows(schema: Any, engine: Any) -> None:
    old = schema("message Door { oneof kind { int32 wood = 1; int32 steel = 2; } }", "Door")
    new = schema("message Door { oneof kind { int32 wood = 1; int32 steel = 2; int32 glass = 3; } }", "Door")
    value = Codec(TypeRegistry(new)).write(new(glass=7), event_time=NOON)
    frame = Codec(TypeRegistry(old), engine=engine).decode([value], types=["Door"]).frame
    assert frame.select("wood", "steel").row(0) == (None, None)
    # Reading one member of a oneof only does not make it blind to the others.
    both = Codec(TypeRegistry(old)).write(old(wood=1), event_time=NOON)
    event = Event.FromString(both)
    event.details.value += b"\x10\x02"  # steel, later on the wire: it wins
    frame = (
        Codec(TypeRegistry(old), engine=engine)
        .decode([event.SerializeToString()], types=["Door"], columns=["wood"])
        .frame
    )
    assert frame.get_column("wood").to_list() == [None]
    assert frame.columns == ["event_time", "ingestion_time", "wood"]


def test_two_versions_of_a_result_in_one_topic(codec: Codec) -> None:
    # A job that gained a column, and one whose counter became wider, keep their old results readable.
    first = pl.DataFrame({"event_time": [NOON], "job": ["j"], "cell": [1], "count": pl.Series([5], dtype=pl.Int32)})
    second = first.with_columns(count=pl.lit(2**40), share=pl.lit(0.5))
    values = [value for frame in (first, second) for value in codec.encode(frame, "Result").to_pylist()]
    frame = codec.decode(values, types=["Result"]).frame
    assert frame.select("cell", "count", "share").rows() == [(1, 5, None), (1, 2**40, 0.5)]
    assert frame.schema["count"] == pl.Int64
