"""The type registry: from a type_url to a schema."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from google.protobuf import struct_pb2, wrappers_pb2

from headrace.errors import SchemaError
from headrace.events import Codec, Event, TypeRegistry
from headrace.events.decoding import Decoding
from headrace.events.schemas.records_pb2 import Record
from headrace_transit.schemas import StopEvent, VehiclePosition


def test_only_the_name_after_the_last_slash_counts() -> None:
    registry = TypeRegistry(StopEvent)
    for url in (
        "type.googleapis.com/headrace.v1.StopEvent",
        "/headrace.v1.StopEvent",
        "http://a/b/headrace.v1.StopEvent",
    ):
        entry = registry.resolve(url)
        assert entry is not None
        assert entry.message_class is StopEvent
    assert registry.resolve("headrace.v1.StopEvent") is None
    assert registry.resolve("") is None


def test_a_type_is_found_by_name_class_descriptor_or_entry(schema: Any) -> None:
    registry = TypeRegistry(VehiclePosition, StopEvent)
    entry = registry.get("headrace.v1.VehiclePosition")
    assert entry == registry.get("VehiclePosition") == registry.get(VehiclePosition) == registry.get(entry)
    assert entry == registry.get(VehiclePosition.DESCRIPTOR)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match=r"Registered: .*headrace\.v1\.StopEvent"):
        registry.get("Nothing")
    registry.register(schema("message StopEvent { int32 a = 1; }", "StopEvent"))
    with pytest.raises(SchemaError, match="'StopEvent' is not registered"):
        registry.get("StopEvent")  # two have this last name now
    assert "acme.StopEvent" in registry
    assert len(registry) == len(list(registry)) == 7


def test_a_class_that_is_handed_over_is_registered_by_that(schema: Any) -> None:
    registry = TypeRegistry()
    with pytest.raises(SchemaError, match="'VehiclePosition' is not registered"):
        registry.get("VehiclePosition")
    assert registry.get(VehiclePosition) == registry.get("VehiclePosition")
    other = TypeRegistry(schema("message Ping { int32 a = 1; }", "Ping"))
    registry.include(other)
    assert "acme.Ping" in registry
    with pytest.raises(SchemaError, match="is not a protobuf message type"):
        registry.get(int)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [int, "headrace.v1.StopEvent", None, 5])
def test_what_is_no_message_type_is_refused(wrong: Any) -> None:
    with pytest.raises(SchemaError, match="is not a protobuf message type"):
        TypeRegistry(wrong)


def test_names_that_frames_need_are_refused(schema: Any) -> None:
    for field in ("event_time", "ingestion_time", "kafka_offset"):
        with pytest.raises(SchemaError, match=f"Ping.{field} has a name"):
            TypeRegistry(schema(f"message Ping {{ int32 {field} = 1; }}", "Ping"))


def test_protobufs_own_types_cannot_be_events() -> None:
    for kind in (wrappers_pb2.StringValue, struct_pb2.Struct):
        with pytest.raises(SchemaError, match="JSON form of its own"):
            TypeRegistry(kind)


def test_a_group_is_refused_when_it_is_read(schema: Any) -> None:
    from google.protobuf import descriptor_pb2, descriptor_pool

    file = descriptor_pb2.FileDescriptorProto(name="g.proto", package="acme", syntax="proto2")
    message = file.message_type.add(name="Old")
    message.nested_type.add(name="Part")
    message.field.add(name="part", number=1, type=10, label=1, type_name=".acme.Old.Part")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    with pytest.raises(SchemaError, match="is a group"):
        Codec(TypeRegistry(pool.FindMessageTypeByName("acme.Old"))).decode([], types=["Old"])


def test_a_newer_version_replaces_the_older(schema: Any) -> None:
    registry = TypeRegistry(schema("message Ping { int32 a = 1; }", "Ping"))
    codec = Codec(registry)
    assert codec.decode([], types=["Ping"]).frame.columns[2:] == ["a"]
    registry.register(schema("message Ping { int32 a = 1; int32 b = 2; }", "Ping"))
    assert codec.decode([], types=["Ping"]).frame.columns[2:] == ["a", "b"]


def test_versions_of_the_same_file_survive_pickling_side_by_side(schema: Any) -> None:
    ping = schema("message Ping { int32 a = 1; } message Pong { int32 old = 1; }", "Ping")
    pong = schema("message Ping { int32 b = 1; } message Pong { int32 new = 1; }", "Pong")
    copy = pickle.loads(pickle.dumps(TypeRegistry(ping, pong)))  # noqa: S301  our own bytes
    assert [field.name for name in ("Ping", "Pong") for field in copy.get(name).descriptor.fields] == ["a", "new"]
    assert copy.get("Record").message_class is Record


def test_an_unregistered_type_is_a_dead_letter_that_names_it(codec: Codec) -> None:
    value = Event(event_timestamp={"seconds": 1}, details={"type_url": "x/acme.Ping"}).SerializeToString()
    dead = codec.decode([value, value]).dead
    assert dead.select("reason", "event_type").rows() == [("unknown_type", "acme.Ping")] * 2


def test_the_cost_of_made_up_type_urls_follows_the_records(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can slow decoding down by giving every record a type_url of its own."""
    count = 2_000

    def event(url: str, number: int) -> bytes:
        details = VehiclePosition(vehicle_id=str(number)).SerializeToString()
        return Event(event_timestamp={"seconds": 1}, details={"type_url": url, "value": details}).SerializeToString()

    values = [
        event(f"{number}/headrace.v1.VehiclePosition" if number % 2 else f"x/acme.T{number}", number)
        for number in range(count)
    ]
    compared: list[int] = []
    readings: list[int] = []
    find, details = np.flatnonzero, Decoding._details

    def counted_find(mask: Any) -> Any:
        compared.append(len(mask))
        return find(mask)

    def counted_details(self: Decoding, want: Any, envelope: Any, *rest: Any) -> Any:
        readings.append(envelope.num_rows)
        return details(self, want, envelope, *rest)

    monkeypatch.setattr("headrace.events.decoding.np.flatnonzero", counted_find)
    monkeypatch.setattr(Decoding, "_details", counted_details)
    found = codec.decode(values, types=[VehiclePosition])
    assert sum(compared) <= 20 * count
    assert readings == [count // 2]
    assert found.frame.get_column("vehicle_id").to_list() == [str(number) for number in range(1, count, 2)]
    assert found.dead.get_column("event_type").to_list() == [f"acme.T{number}" for number in range(0, count, 2)]
    assert found.dead.row(1, named=True)["text"] == "type 'x/acme.T2' is not registered"
