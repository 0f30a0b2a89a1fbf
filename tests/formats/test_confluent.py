"""Records in Confluent's wire format, and a registry over HTTP."""

from __future__ import annotations

import base64
import contextlib
import importlib
import json as plain_json
import pickle
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import TYPE_CHECKING, Any
from uuid import UUID

import fastavro
import polars as pl
import pyarrow as pa
import pytest
from tests.formats.samples import records, rows

from headrace.errors import ConfigError, RegistryError, SchemaError
from headrace.formats import SchemaRegistry, avro, confluent, debezium, json, protobuf, schema_registry
from headrace.formats.confluent import frame, frame_indexes, message_indexes, unframe
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Iterator

GUID = "8a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"
OLD = {"type": "record", "name": "Scan", "fields": [{"name": "parcel", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Scan",
    "fields": [*OLD["fields"], {"name": "belt", "type": ["null", "int"], "default": None}],
}


class Registry(ThreadingHTTPServer):
    """A registry that keeps its schemas in memory and speaks Confluent's protocol."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.schemas: dict[str, dict[str, Any]] = {}
        self.subjects: dict[str, list[str]] = {}
        self.asked: Counter[str] = Counter()
        self.failures: list[int] = []
        self.auth: str | None = None
        self.knows_guids = True
        #: What is answered instead, by path: the bytes, and the seconds between one and the next (0: all at once).
        self.strange: dict[str, tuple[bytes, float]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def put(self, subject: str, schema: dict[str, Any], **more: Any) -> int:
        text = plain_json.dumps(schema)
        known = [number for number, each in self.schemas.items() if each["schema"] == text and number.isdigit()]
        number = known[0] if known else str(len(self.schemas) + 1)
        self.schemas[number] = {"schema": text, **more}
        self.subjects.setdefault(subject, []).append(number)
        return int(number)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Registry

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def _answer(self, status: int, body: Any) -> None:
        text = plain_json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _say(self, content: bytes, pause: float) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with contextlib.suppress(OSError):  # nobody waits for the end
            for part in (content,) if not pause else (bytes([byte]) for byte in content):
                self.wfile.write(part)
                time.sleep(pause)
        self.close_connection = True

    def _refused(self) -> bool:
        self.server.asked[self.path] += 1
        if self.path in self.server.strange:
            self._say(*self.server.strange[self.path])
            return True
        if self.server.auth is not None and self.headers.get("Authorization") != self.server.auth:
            self._answer(401, {"error_code": 401, "message": "who are you?"})
            return True
        if self.server.failures:
            self._answer(self.server.failures.pop(0), {"error_code": 50001, "message": "not now"})
            return True
        return False

    def do_GET(self) -> None:
        if self._refused():
            return
        match self.path.strip("/").split("/"):
            case ["schemas", ("ids" | "guids"), number] if number in self.server.schemas:
                self._answer(200, self.server.schemas[number])
            case ["schemas", "types"]:
                self._answer(200, ["JSON", "PROTOBUF", "AVRO"])
            case ["schemas", "guids", _] if not self.server.knows_guids:
                self._answer(404, {"error_code": 404, "message": "HTTP 404 Not Found"})
            case ["schemas", *_]:
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})
            case ["subjects", subject, "versions", "latest"] if subject in self.server.subjects:
                number = self.server.subjects[subject][-1]
                self._answer(200, {"subject": subject, "id": int(number), **self.server.schemas[number]})
            case ["subjects", *_]:
                self._answer(404, {"error_code": 40401, "message": "Subject not found"})
            case _:
                self._answer(404, {"message": "no such page"})

    def do_POST(self) -> None:
        body = plain_json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self._refused():
            return
        schema = plain_json.loads(body["schema"])
        match self.path.strip("/").split("/"):
            case ["subjects", "strict-value", "versions"]:
                self._answer(409, {"error_code": 409, "message": "incompatible with an earlier schema"})
            case ["subjects", subject, "versions"]:
                self._answer(200, {"id": self.server.put(subject, schema)})
            case ["subjects", subject]:
                for number in self.server.subjects.get(subject, []):
                    if self.server.schemas[number]["schema"] == plain_json.dumps(schema):
                        self._answer(200, {"subject": subject, "id": int(number)})
                        return
                self._answer(404, {"error_code": 40403, "message": "Schema not found"})


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(schema_registry, "_FIRST_PAUSE", 0.01)
    server = Registry()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()
    # Another server may get the port, and connections are closed before they are collected.
    client = SchemaRegistry(server.url).client
    if client._connection is not None:
        client._connection.close()
    schema_registry._client.cache_clear()


def value(number: int, schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + buffer.getvalue()


def test_values_are_read_by_the_schemas_that_wrote_them(registry: Registry) -> None:
    old, new = registry.put("scans-value", OLD), registry.put("scans-value", NEW)
    registry.schemas[GUID] = {"schema": plain_json.dumps(NEW)}
    values = [
        value(new, NEW, {"parcel": "a", "belt": 1}),
        value(old, OLD, {"parcel": "b"}),
        b"\x01" + UUID(GUID).bytes + value(new, NEW, {"parcel": "c", "belt": 3})[5:],
        value(99, OLD, {"parcel": "d"}),
        b"\0\0\0",
        b"{}",
        b"",
        value(new, NEW, {"parcel": "e", "belt": None})[:-1],
        None,
        value(old, OLD, {"parcel": "f"}),
    ]
    scans = avro("latest", registry=registry.url, subject="scans-value")
    malformed = "malformed"
    expected = [
        {"parcel": "a", "belt": 1}, {"parcel": "b", "belt": None}, {"parcel": "c", "belt": 3}, malformed, malformed,
        malformed, malformed, malformed, "empty_value", {"parcel": "f", "belt": None},
    ]  # fmt: skip
    assert rows(scans, *values) == expected
    assert rows(scans, *values) == expected
    texts = {position: each.text for position, each in scans.decode(records(*values)).rejections.items()}
    assert texts[3] == f"the schema 99: the registry at {registry.url} does not know it"
    assert "begins with b'{}'" in texts[5]
    # Each number was asked for once, also the one that is not known.
    assert set(registry.asked.values()) == {1}
    assert len(registry.asked) == 5
    # Without "latest" the reader's own schema counts, and nothing is asked for until a record comes.
    assert rows(avro(OLD, registry=registry.url), values[0], values[1]) == [{"parcel": "a"}, {"parcel": "b"}]
    assert "schemas from http://127.0.0.1" in scans.text
    assert pickle.loads(pickle.dumps(scans)) == scans  # noqa: S301  our own bytes


@pytest.mark.parametrize(
    ("schema", "more", "complaint"),
    [
        ({"type": "record", "name": "Scan", "fields": [{"name": "parcel", "type": "long"}]}, {}, "cannot be read as"),
        ({"type": "array", "items": "string"}, {}, "not a record"),
        (
            {
                **OLD,
                "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A"], "default": ["A"]}}],
            },
            {},
            r'is an enum with the default ["A"]',
        ),
        (OLD, {"schemaType": "JSON"}, "it is a schema of JSON"),
        (OLD, {"references": [{"name": "x", "subject": "x", "version": 1}]}, "types of other subjects"),
    ],
)
def test_a_schema_that_does_not_fit_costs_its_records_alone(
    registry: Registry, schema: dict[str, Any], more: dict[str, Any], complaint: str
) -> None:
    good, bad = registry.put("scans-value", OLD), registry.put("other-value", schema | {"doc": "other"}, **more)
    scans = avro(OLD, registry=registry.url)
    framed = frame(bad, pa.array([b"\x02a"], pa.binary()))[0].as_py()
    decoded = scans.decode(records(framed, value(good, OLD, {"parcel": "a"})))
    assert decoded.frame.get_column("parcel").to_list() == ["a"]
    assert complaint in decoded.rejections[0].text


def test_a_registry_that_does_not_answer_is_an_error_and_no_dead_letter(registry: Registry) -> None:
    number = registry.put("scans-value", OLD)
    values = records(value(number, OLD, {"parcel": "a"}))
    patient = avro(OLD, registry=SchemaRegistry(registry.url, attempts=3))
    registry.failures = [503, 429]
    assert patient.decode(values).frame.height == 1  # the third attempt
    registry.failures = [500] * 2
    hasty = SchemaRegistry(registry.url, attempts=2, timeout=5)
    with pytest.raises(RegistryError, match="cannot be asked after 2 attempts: it answers 500"):
        avro(OLD, registry=hasty).decode(values)
    assert avro(OLD, registry=hasty).decode(values).frame.height == 1  # the batch is repeated
    hasty.client._connection.close()
    patient.registry.client._connection.close()
    nowhere = SchemaRegistry("http://127.0.0.1:9", attempts=2)
    with pytest.raises(RegistryError, match="ConnectError"):
        avro(OLD, registry=nowhere).decode(values)
    nowhere.client._connection.close()
    with pytest.raises(RegistryError, match="is no schema registry"):
        SchemaRegistry(f"{registry.url}/elsewhere").client.schema(1)
    SchemaRegistry(f"{registry.url}/elsewhere").client._connection.close()


def test_made_up_schemas_are_dead_letters_with_any_registry(registry: Registry) -> None:
    """A registry that has no page for GUIDs, or takes no number beyond four signed bytes, is asked in vain for ever."""
    registry.knows_guids = False
    good = registry.put("scans-value", OLD)
    values = [
        b"\x01" + b"\xab" * 16 + b"\x02a",
        b"\0\xff\xff\xff\xff\x02a",
        b"\0\x80\0\0\0\x02a",
        value(good, OLD, {"parcel": "a"}),
    ]
    assert rows(avro(OLD, registry=registry.url), *values) == ["malformed"] * 3 + [{"parcel": "a"}]
    assert set(registry.asked) == {
        f"/schemas/guids/{UUID(bytes=bytes([0xAB] * 16))}",
        "/schemas/types",
        f"/schemas/ids/{good}",
    }
    wrong = SchemaRegistry(f"{registry.url}/elsewhere")
    with pytest.raises(RegistryError, match="is no schema registry"):
        avro(OLD, registry=wrong).decode(records(values[0]))
    wrong.client._connection.close()


def test_crowds_of_made_up_schemas_cost_a_bounded_number_of_questions(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.import_module("headrace.formats.avro"), "MAX_UNKNOWN", 5)
    good = registry.put("scans-value", OLD)
    made_up = [value(number, OLD, {"parcel": "x"}) for number in range(1_000, 1_050)]
    values = [*made_up, *(value(good, OLD, {"parcel": name}) for name in "ab")]
    decoded = avro(OLD, registry=registry.url).decode(records(*values))
    assert decoded.frame.get_column("parcel").to_list() == ["a", "b"], "schemas of more records are asked for first"
    assert sorted(decoded.rejections) == list(range(50))
    assert "was not asked for" in decoded.rejections[49].text
    assert len(registry.asked) == 6


@pytest.mark.parametrize(
    ("content", "pause", "complaint"),
    [
        (b"[" * 200_000, 0, "is no schema registry"),
        (b'{"schema":' + b"[" * 200_000, 0, "is no schema registry"),
        (b'{"schema": 7}', 0, "is no schema registry"),
        (b"[]", 0, "is no schema registry"),
        (b'"' + b"x" * 17_000_000 + b'"', 0, "more than 16 MiB"),
        (b" " * 1_000, 0.1, "ReadTimeout"),
    ],
)
def test_strange_answers_of_a_registry_are_errors_that_name_it(
    registry: Registry, content: bytes, pause: float, complaint: str
) -> None:
    registry.strange["/schemas/ids/1"] = (content, pause)
    hasty = SchemaRegistry(registry.url, attempts=1, timeout=1 if pause else 10)
    with pytest.raises(RegistryError, match=complaint):
        hasty.client.schema(1)
    hasty.client._connection.close()


@pytest.mark.parametrize("number", ["-1", "4294967296", "true", '"1"'])
def test_a_number_that_no_registry_gives_is_not_written(registry: Registry, number: str) -> None:
    registry.strange["/subjects/depots-value/versions"] = (f'{{"id": {number}}}'.encode(), 0)
    with pytest.raises(RegistryError, match="is no schema registry"):
        avro(registry=registry.url, subject="depots-value").encode(pl.DataFrame({"n": [3]}))


def test_the_password_is_in_the_environment_alone(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    number = registry.put("scans-value", OLD)
    registry.auth = "Basic " + base64.b64encode(b"reader:hush").decode()
    secure = SchemaRegistry(registry.url, username="reader", password_env="REGISTRY_PASSWORD")
    values = records(value(number, OLD, {"parcel": "a"}))
    with pytest.raises(RegistryError, match="has no REGISTRY_PASSWORD"):
        avro(OLD, registry=secure).decode(values)
    monkeypatch.setenv("REGISTRY_PASSWORD", "hush")
    scans = avro(OLD, registry=secure)
    assert scans.decode(values).frame.height == 1
    assert "hush" not in repr(scans) + scans.text
    assert b"hush" not in pickle.dumps(scans)
    secure.client._connection.close()
    with pytest.raises(RegistryError, match="refuses schemas/ids/1: 401"):
        SchemaRegistry(registry.url).client.schema(1)


def test_results_are_written_under_a_subject(registry: Registry) -> None:
    results = pl.DataFrame({"depot": ["north"], "n": [3]})
    written = avro(registry=registry.url, subject="depots-value")
    assert len(written.encode(results.clear())) == 0
    assert not registry.asked
    values = written.encode(results).to_pylist()
    assert written.encode(results).to_pylist() == values
    assert sum(registry.asked.values()) == 1
    assert rows(avro("latest", registry=registry.url, subject="depots-value"), *values) == results.to_dicts()
    with pytest.raises(RegistryError, match="does not have the schema of the results under 'new-value'"):
        avro(registry=registry.url, subject="new-value", register=False).encode(results)
    assert avro(registry=registry.url, subject="depots-value", register=False).encode(results).to_pylist() == values
    with pytest.raises(RegistryError, match=r"409.*incompatible"):
        avro(registry=registry.url, subject="strict-value").encode(results)
    with pytest.raises(RegistryError, match="no subject 'nothing-value'"):
        avro("latest", registry=registry.url, subject="nothing-value")
    with pytest.raises(SchemaError, match="cannot write without subject"):
        avro(OLD, registry=registry.url).encode(pl.DataFrame({"parcel": ["a"]}))


def test_what_is_kept_has_a_bound(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "_KEPT", 2)
    monkeypatch.setattr(schema_registry, "_KEPT_UNKNOWN", 3)
    registry.put("scans-value", OLD)
    registry.put("scans-value", NEW)
    registry.put("scans-value", NEW | {"doc": "3"})
    client = SchemaRegistry(registry.url).client
    for number in [1, 2, 3, *range(10, 20)]:
        client.schema(number)
    assert len(client._schemas.answers) == 2
    assert len(client._unknown.answers) == 3


def test_other_formats_in_the_wire_format() -> None:
    scans = confluent(json(schema={"parcel": pl.String}))
    assert rows(scans, b'\0\0\0\0\x07{"parcel":"a"}', b'{"parcel":"b"}', b"\0\0\0\0\x07{", None, b"\0\0\0\0\x08{}") == [
        {"parcel": "a"}, "malformed", "malformed_json", "empty_value", {"parcel": None},
    ]  # fmt: skip
    body = VehiclePosition(vehicle_id="1").SerializeToString()
    positions = confluent(protobuf(VehiclePosition, columns=["vehicle_id"]))
    begin = b"\0\0\0\0\x07"
    values = [begin + b"\0" + body, begin + frame_indexes((1, 0)) + body, begin, begin + b"\x01" + body]
    assert rows(positions, *values) == [{"vehicle_id": "1"}, {"vehicle_id": "1"}, "malformed", "malformed"]
    with pytest.raises(SchemaError, match="does not take avro"):
        confluent(avro(OLD))


def test_what_the_format_of_the_bodies_skips_is_skipped() -> None:
    changes = confluent(debezium({"id": pl.Int64}))
    change = b'\0\0\0\0\x07{"op":"c","after":{"id":1},"source":{"ts_ms":1}}'
    decoded = changes.decode(records(b"{}", None, change, None))
    assert decoded.skipped is not None
    assert decoded.skipped.tolist() == [1, 3]
    assert (decoded.positions.tolist(), list(decoded.rejections)) == ([2], [0])


def test_message_indexes() -> None:
    for indexes in ((0,), (1,), (0, 0), (3, 200, 1)):
        assert message_indexes(frame_indexes(indexes) + b"rest") == (indexes, len(frame_indexes(indexes)))
    for bad in (b"", b"\x80", b"\x02", b"\xff" * 9, b"\x02\x01", b"\xfe\xff\x03"):
        with pytest.raises(ValueError, match="message ind"):
            message_indexes(bad)


def test_framing_of_any_bytes() -> None:
    values = pa.array(
        [b"", b"\0", b"\0" * 5, b"\0\xff\xff\xff\xff" + b"x" * 300, b"\x01" * 17, b"\x02" * 40], pa.binary()
    )
    framed = unframe(values)
    assert {schema: bodies.to_pylist() for schema, _, bodies in framed.groups} == {
        0: [b""], 2**32 - 1: [b"x" * 300], str(UUID(bytes=b"\x01" * 16)): [b""],
    }  # fmt: skip
    assert sorted(framed.refused) == [0, 1, 5]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"url": "localhost:8081"}, "address of the schema registry is"),
        ({"url": "http://me:secret@localhost"}, "has a user or a password"),
        ({"url": "http://localhost", "attempts": 0}, "positive"),
    ],
)
def test_descriptions_that_cannot_be(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint) as caught:
        SchemaRegistry(**options)
    assert "secret" not in str(caught.value)
