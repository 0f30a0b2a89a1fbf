"""CloudEvents 1.0, structured and binary."""

from __future__ import annotations

import base64
import json as plain_json
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from google.protobuf import wrappers_pb2
from tests.formats.samples import records, rows

from headrace.errors import SchemaError
from headrace.formats import cloudevents, csv, header_time, json, kafka_time, protobuf, raw, text

AT = datetime(2026, 3, 1, 8, tzinfo=UTC)
SCANS = cloudevents(json({"parcel": pl.String, "weight": pl.Float64}))
ATTRIBUTES = {"specversion": "1.0", "id": "e1", "source": "/depot/north", "type": "parcel.scanned"}
EXPECTED = {"ce_id": "e1", "ce_source": "/depot/north", "ce_type": "parcel.scanned"}


def structured(data: Any = None, **more: Any) -> bytes:
    given = {**ATTRIBUTES, "time": "2026-03-01T09:00:00+01:00", "data": data, **more}
    return plain_json.dumps({name: value for name, value in given.items() if value is not None}).encode()


def headers(**more: str | None) -> dict[str, bytes]:
    given: dict[str, str | None] = {**ATTRIBUTES, "time": "2026-03-01T08:00:00Z", **more}
    found = {f"ce_{name}": value.encode() for name, value in given.items() if value is not None}
    return {"content-type": b"application/json", **found}


def test_both_modes_in_one_topic_in_their_order() -> None:
    values = [b'{"parcel":"a"}', structured({"parcel": "b", "weight": 2}), b'{"parcel":"c"}', structured()]
    kinds = [headers(), {"content-type": b"application/cloudevents+json; charset=UTF-8"}, headers(subject="s"), {}]
    decoded = SCANS.decode(records(*values, headers=kinds))
    assert decoded.frame.get_column("parcel").to_list() == ["a", "b", "c", None]
    assert decoded.frame.get_column("event_time").to_list() == [AT] * 4
    assert decoded.frame.row(1, named=True) == {
        "event_time": AT,
        "ingestion_time": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "parcel": "b",
        "weight": 2.0,
        **EXPECTED,
        "ce_subject": None,
        "ce_time": AT,
    }
    assert decoded.frame.get_column("ce_subject").to_list() == [None, None, "s", None]


def test_data_of_other_formats() -> None:
    lines = cloudevents(csv({"a": pl.Int64, "b": pl.String}), attributes=[])
    assert rows(lines, structured("1,x"), b"2,y", structured({"a": 1}), headers=[{}, headers(), {}]) == [
        {"a": 1, "b": "x"},
        {"a": 2, "b": "y"},
        "wrong_type",
    ]
    packed = wrappers_pb2.StringValue(value="x").SerializeToString()
    messages = cloudevents(protobuf(wrappers_pb2.StringValue), attributes=[])
    encoded = base64.b64encode(packed).decode()
    assert rows(messages, structured(data_base64=encoded), packed, headers=[{}, headers()]) == [{"value": "x"}] * 2


def test_json_in_base64_and_dates() -> None:
    form = cloudevents(json({"on": pl.Date, "n": pl.Int64}), attributes=[])
    encoded = base64.b64encode(b'{"n":2}').decode()
    found = rows(
        form,
        structured({"on": "2026-03-01"}),
        structured(data_base64=encoded),
        structured({"on": "soon"}),
        structured(data_base64="%"),
        structured([1]),
        structured(data_base64=base64.b64encode(b"{").decode()),
    )
    assert found[:2] == [{"on": AT.date(), "n": None}, {"on": None, "n": 2}]
    assert found[2:] == ["wrong_type", "malformed", "wrong_type", "malformed_json"]


@pytest.mark.parametrize(
    ("value", "header", "reason", "complaint"),
    [
        (structured({}, source=None), {}, "malformed", "the attribute source is missing"),
        (structured({}, id=""), {}, "malformed", "the attribute id is missing"),
        (structured({}, specversion="0.3"), {}, "malformed", "CloudEvents of version '0.3'"),
        (structured({}, time="soon"), {}, "bad_timestamp", "'soon'"),
        (plain_json.dumps({**ATTRIBUTES, "data": {}}).encode(), {}, "missing_timestamp", "the attribute time"),
        (b"{}", headers(type=None), "malformed", "the attribute type is missing"),
        (b"{}", headers(time="soon"), "bad_timestamp", "'soon'"),
        (b"{", headers(), "malformed_json", "JSON"),
        (b"{}", {**headers(), "ce_id": b"\xff"}, "malformed", "ce_id is not UTF-8"),
        (None, {}, "empty_value", "no value"),
        (b"[]", {"content-type": b"application/cloudevents-batch+json"}, "malformed_json", "an array"),
    ],
)
def test_what_is_no_event_is_rejected_alone(
    value: bytes | None, header: dict[str, bytes], reason: str, complaint: str
) -> None:
    decoded = SCANS.decode(records(structured({}), value, b"{}", headers=[{}, header, headers()]))
    assert decoded.frame.height == 2
    assert (str(decoded.rejections[1].reason), complaint in decoded.rejections[1].text) == (reason, True)


def test_an_event_without_data_has_nulls() -> None:
    assert rows(cloudevents(text(), attributes=[]), None, structured(), headers=[headers(), {}]) == [{"text": None}] * 2


def test_modes_extensions_prefix_and_time() -> None:
    form = cloudevents(text(), mode="binary", attributes=["id", "traceparent"], prefix="", time=kafka_time())
    found = rows(form, b"x", structured("y"), headers=[headers(traceparent="00-1", time=None), {}])
    assert found == [{"text": "x", "id": "e1", "traceparent": "00-1"}, "malformed"]
    only = cloudevents(text(), mode="structured", attributes=["traceparent"])
    assert only.reads == {"timestamp"}
    assert rows(only, structured("y", traceparent="00-2")) == [{"text": "y", "ce_traceparent": "00-2"}]
    by_header = cloudevents(text(), time=header_time("at", "s"), attributes=[])
    frame = by_header.decode(records(structured("y"), headers=[{"at": b"5"}])).frame
    assert frame.item(0, "event_time") == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)


def test_results_are_events_that_others_read_and_have_the_same_id_again() -> None:
    form = cloudevents(json(), source="/headrace/scans", type="depot.counted")
    frame = pl.DataFrame(
        {"event_time": [AT] * 2, "depot": ["north", "south"], "scans": [2, 1], "ce_subject": ["n", None]}
    )
    first, second = (plain_json.loads(value) for value in form.encode(frame).to_pylist())
    assert len({first["id"], second["id"]}) == 2
    assert [plain_json.loads(value)["id"] for value in form.encode(frame).to_pylist()] == [first["id"], second["id"]]
    del first["id"]
    assert first == {
        "specversion": "1.0",
        "source": "/headrace/scans",
        "type": "depot.counted",
        "subject": "n",
        "time": "2026-03-01T08:00:00.000000Z",
        "datacontenttype": "application/json",
        "data": {"depot": "north", "scans": 2},
    }
    bytes_ = cloudevents(raw("body"), source="/s", type="t", attributes=["id"])
    value = bytes_.encode(pl.DataFrame({"event_time": [AT], "body": [b"\xff"], "ce_id": ["mine"]}))[0].as_py()
    assert rows(bytes_, value) == [{"body": b"\xff", "ce_id": "mine"}]


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: cloudevents(text(), mode="batch"), "the mode 'batch'"),  # type: ignore[arg-type]
        (lambda: cloudevents(text("ce_id")), "both have a column 'ce_id'"),
        (lambda: cloudevents(text(), attributes=["Trace-Id"]), "no attribute"),
        (lambda: cloudevents(json({"at": pl.String}, time="at")), "takes the time of the event from at"),
        (lambda: cloudevents(text(key=raw("k"))), "reads other parts of the record"),
        (lambda: cloudevents(text(), time=json(time="x").time), "cannot take the time from x"),  # type: ignore[attr-defined]
        (lambda: cloudevents(json()).encode(pl.DataFrame({"a": [1]})), "has a source"),
        (lambda: cloudevents(json(), source="/s").encode(pl.DataFrame({"a": [1]})), "has a type"),
    ],
)
def test_refusals(build: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        build()
