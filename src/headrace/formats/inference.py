"""What the records of a topic look like: their format, the schema to paste, and where the time may be.

`infer` looks at some records. It says what most of them are (JSON, CSV, text, Headrace's envelope, CloudEvents,
Debezium's changes, Confluent's framing), and writes the call that reads them. Then it reads the same records by it, so
that what it says of them has been tried. What it cannot tell it names.
"""

from __future__ import annotations

import json as json_module
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import polars as pl
import pyarrow as pa

from headrace.events.codec import Codec
from headrace.events.letters import Rejection
from headrace.formats.cloudevents import cloudevents
from headrace.formats.csv import csv
from headrace.formats.debezium import debezium
from headrace.formats.format import Format, Records
from headrace.formats.json import json
from headrace.formats.json_shape import ISO_DATE, Shape, TimeGuess, scalar_text_type, shape_of
from headrace.formats.text import raw, text
from headrace.formats.times import EventTime

if TYPE_CHECKING:
    from collections.abc import Sequence

Kind: TypeAlias = Literal["json", "csv", "text", "raw", "envelope", "cloudevents", "debezium", "confluent"]
#: What `infer` can be told that the records are.
CHOICES: tuple[Kind, ...] = ("json", "csv", "text", "raw", "cloudevents", "debezium")

#: Longer values are not looked into: they would take long, and say nothing that shorter ones do not.
MAX_VALUE_BYTES = 1 << 20
_DELIMITERS = (",", ";", "\t", "|")
_INDENT = "    "


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """One record of a topic.

    Args:
        value: Its value.
        key: Its key.
        headers: Its headers.
        timestamp: Kafka's timestamp in microseconds.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None


@dataclass(frozen=True)
class Inference:
    """What the records look like.

    Args:
        kind: What most of them are.
        records: How many were looked at.
        read: How many of them the format reads.
        format: The format, if there is one that reads them.
        code: The Python that makes it, to paste; "" if there is none.
        time: Where the time of an event is, as far as it can be told.
        times: Fields that look like times, the likeliest first, each with its format.
        notes: What could not be told, and what to look at.
    """

    kind: Kind
    records: int
    read: int
    format: Format | None
    code: str
    time: str
    times: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Draft:
    """A format in the making."""

    format: Format | None
    call: str
    time: str = "Kafka's timestamp of the record"
    times: tuple[tuple[str, str], ...] = ()
    notes: list[str] = field(default_factory=list)


def infer(records: Sequence[SampleRecord], kind: Kind | None = None) -> Inference:
    """Say what records look like.

    Args:
        records: Some records, at least one.
        kind: What they are, if it is known.

    >>> found = infer([SampleRecord(b'{"parcel": "a", "at": "2026-03-01T08:00:00Z"}')])
    >>> found.kind, dict(found.format.schema), found.times
    ('json', {'parcel': String}, (('at', 'iso8601'),))
    """
    kinds = Counter(kind_of(record) for record in records if record.value is not None)
    notes = []
    if empty := sum(record.value is None for record in records):
        notes.append(f"{empty:,} of {len(records):,} records have no value (tombstones)")
    chosen = kind or (kinds.most_common(1)[0][0] if kinds else "raw")
    if kind is None and len(kinds) > 1:
        shares = ", ".join(f"{name} {number:,}" for name, number in kinds.most_common())
        notes.append(f"not all records are of one kind: {shares}; what is not {chosen} becomes a dead letter")
    draft = _DRAFTS[chosen](records)
    read = 0
    if draft.format is not None:
        decoded = draft.format.decode(_columns(records))
        read = decoded.frame.height
        reasons = Counter(rejection.text for rejection in decoded.rejections.values())
        for complaint, number in reasons.most_common(3):
            notes.append(f"{number:,} of {len(records):,} records cannot be read so: {complaint}")
    code = "" if not draft.call else _module(draft.call)
    notes += [*draft.notes, *_about_keys(records)]
    return Inference(chosen, len(records), read, draft.format, code, draft.time, draft.times, tuple(notes))


def kind_of(record: SampleRecord) -> Kind:
    r"""Tell what one record looks like.

    >>> kind_of(SampleRecord(b'{"a": 1}')), kind_of(SampleRecord(b"1,2")), kind_of(SampleRecord(b"\xff"))
    ('json', 'csv', 'raw')
    """
    value = record.value or b""
    names = {name for name, _ in record.headers}
    if "ce_specversion" in names:
        return "cloudevents"
    if value[:1] == b"\x00" and len(value) > 4:  # no JSON, no text and no envelope begins so
        return "confluent"
    content = _object(value)
    if content is not None:
        return _kind_of_object(content)
    if _is_envelope(value):
        return "envelope"
    try:
        line = value.decode()
    except UnicodeDecodeError:
        return "raw"
    if any(ord(character) < 32 and character not in "\t\r\n" for character in line[:1_000]):
        return "raw"
    # Half an object of JSON has commas, and is no line of CSV.
    is_line = "\n" not in line.strip() and not line.lstrip().startswith("{")
    return "csv" if is_line and any(delimiter in line for delimiter in _DELIMITERS) else "text"


def _kind_of_object(content: dict[str, Any]) -> Kind:
    if isinstance(content.get("details"), dict) and "@type" in content["details"]:
        return "envelope"
    if {"specversion", "id", "source", "type"} <= content.keys():
        return "cloudevents"
    change = content.get("payload") if isinstance(content.get("payload"), dict) else content
    return "debezium" if isinstance(change, dict) and _is_change(change) else "json"


def _is_change(content: dict[str, Any]) -> bool:
    return isinstance(content.get("op"), str) and bool({"before", "after"} & content.keys()) and "source" in content


def _is_envelope(value: bytes) -> bool:
    codec = _CODEC
    event = codec.read(value)
    return not hasattr(event, "reason") and "/" in event.details.type_url and event.HasField("event_timestamp")


_CODEC = Codec()


def _object(value: bytes) -> dict[str, Any] | None:
    if len(value) > MAX_VALUE_BYTES or not value.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return None
    try:
        found = json_module.loads(value.removeprefix(b"\xef\xbb\xbf"))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _columns(records: Sequence[SampleRecord]) -> Records:
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    return Records(
        pa.array([record.value for record in records], pa.binary()),
        keys=pa.array([record.key for record in records], pa.binary()),
        headers=pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        timestamps=pa.array([record.timestamp for record in records], pa.int64()).cast(pa.timestamp("us", "UTC")),
    )


def _about_keys(records: Sequence[SampleRecord]) -> list[str]:
    keys = [record.key for record in records if record.key is not None]
    if not keys:
        return []
    try:
        shown = sorted({key.decode() for key in keys})
    except UnicodeDecodeError:
        return ['records have keys that are no text; key=raw("key") makes them a column']
    first = shown[0][:40]
    how = "key=json(schema={...})" if first.startswith("{") else 'key=text("key")'
    return [f"records have keys, such as {first!r}; {how} makes them columns"]


def _objects(values: Sequence[Any]) -> Shape:
    return shape_of([value for value in values if isinstance(value, dict)])


def _json(records: Sequence[SampleRecord]) -> _Draft:
    shape = _objects([_object(record.value) for record in records if record.value is not None])
    schema, notes = shape.schema()
    if not schema:
        return _Draft(None, "", notes=[*notes, "no record is an object of JSON with a field that could be told"])
    times = shape.times()
    options, where = _time_options(times)
    at = times[0] if times else None
    if at is not None and len(schema) > 1 and len(at.path) == 1:
        schema.pop(at.path[0], None)  # it is the column event_time
    form = json(schema, time=None if at is None else at.path, time_format="iso8601" if at is None else at.pattern)
    call = _call("json", [_schema_text(schema, "schema="), *options])
    return _Draft(form, call, where, _named(times), [*notes, *_other_times(times)])


def _debezium(records: Sequence[SampleRecord]) -> _Draft:
    rows = []
    for record in records:
        content = _object(record.value or b"") or {}
        change = content.get("payload") if isinstance(content.get("payload"), dict) else content
        rows += [change.get(name) for name in ("before", "after")] if isinstance(change, dict) else []
    shape = _objects(rows)
    schema, notes = shape.schema()
    if not schema:
        return _Draft(None, "", notes=[*notes, "no change holds a row with columns that could be told"])
    notes.append("times that Debezium writes as numbers are integers here; convert them in the job")
    op = "change" if "op" in schema else "op"
    form = debezium(schema, op=op)
    call = _call("debezium", [_schema_text(schema, ""), *(['op="change"'] if op != "op" else [])])
    return _Draft(form, call, "source.ts_ms, when the database made the change", notes=notes)


def _cloudevents(records: Sequence[SampleRecord]) -> _Draft:
    data: list[Any] = []
    with_time = 0
    for record in records:
        names = dict(record.headers)
        if "ce_specversion" in names:
            data.append(_object(record.value or b""))
            with_time += "ce_time" in names
        else:
            content = _object(record.value or b"") or {}
            data.append(content.get("data"))
            with_time += "time" in content
    shape = _objects(data)
    schema, notes = shape.schema()
    inner: Format
    if schema:
        inner, call = json(schema), _call("json", [_schema_text(schema, "schema=")])
    else:
        inner, call = raw("data"), 'raw("data")'
        notes.append("the data are no objects of JSON: they are taken as bytes")
    options = [call]
    where = "the attribute time"
    at = None
    if with_time * 2 < len(records):
        options.append("time=kafka_time()")
        at, where = EventTime(), "Kafka's timestamp of the record: most events have no attribute time"
    return _Draft(cloudevents(inner, time=at), _call("cloudevents", options), where, notes=notes)


def _csv(records: Sequence[SampleRecord]) -> _Draft:
    lines = [line for line in (_line(record.value) for record in records) if line]
    delimiter, width = _dialect(lines)
    if width < 2:
        draft = _text(records)
        draft.notes.append("the records have no delimiter in common: each is taken as a text")
        return draft
    names = {f"column_{number}": pl.String() for number in range(1, width + 1)}
    plain = csv(names, delimiter=delimiter)
    values = pa.array([line.encode() for line in lines], pa.binary())
    decoded = plain.decode(Records(values, timestamps=pa.array([0] * len(lines), pa.timestamp("us", "UTC"))))
    kinds = {name: scalar_text_type(decoded.frame.get_column(name).drop_nulls().to_list()) for name in names}
    schema = {name: kind for name, (kind, _) in kinds.items()}
    guesses = [TimeGuess((name,), pattern, 0, 0) for name, (_, pattern) in kinds.items() if pattern]
    nulls = {name for name in names if decoded.frame.get_column(name).null_count()}
    guesses = [guess for guess in guesses if guess.path[0] not in nulls and guess.pattern != ISO_DATE]
    options, where = _time_options(guesses)
    at = guesses[0] if guesses else None
    form = csv(
        schema,
        time=None if at is None else at.path[0],
        time_format="iso8601" if at is None else at.pattern,
        delimiter=delimiter,
    )
    more = [] if delimiter == "," else [f"delimiter={delimiter!r}".replace("'", '"')]
    call = _call("csv", [_schema_text(schema, ""), *options, *more])
    notes = ["columns have no names in the records; give them names that say what they hold"]
    return _Draft(form, call, where, _named(guesses), [*notes, *_other_times(guesses)])


def _line(value: bytes | None) -> str:
    try:
        return (value or b"")[:MAX_VALUE_BYTES].decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return ""


def _dialect(lines: Sequence[str]) -> tuple[str, int]:
    """The delimiter by which most lines have the same number of fields, and that number."""
    best = (0, ",", 1)
    for delimiter in _DELIMITERS:
        width, number = Counter(line.count(delimiter) + 1 for line in lines).most_common(1)[0] if lines else (1, 0)
        if width > 1 and number > best[0]:
            best = (number, delimiter, width)
    return best[1], best[2]


def _text(records: Sequence[SampleRecord]) -> _Draft:  # noqa: ARG001  every kind is drafted alike
    return _Draft(text("text"), 'text("text")')


def _raw(records: Sequence[SampleRecord]) -> _Draft:
    if all(record.value is None for record in records):
        return _Draft(None, "", notes=["no record has a value, so there is nothing to tell a format from"])
    note = "the values are neither JSON nor text: they may be compressed, encrypted, or messages of Protobuf or Avro"
    more = 'if they are Protobuf, protobuf("FILE.proto", message="NAME") reads them; no schema can be told from them'
    return _Draft(raw("value"), 'raw("value")', notes=[note, more])


def _envelope(records: Sequence[SampleRecord]) -> _Draft:
    types = Counter(filter(None, (_type_named_by(record.value) for record in records)))
    names = ", ".join(f"{name} ({number:,})" for name, number in types.most_common(5))
    note = "these are events in Headrace's envelope: Stream.topic(TOPIC, TYPE) reads them without format="
    return _Draft(None, "", "the envelope's event_timestamp", notes=[note, f"their types: {names or 'none'}"])


def _type_named_by(value: bytes | None) -> str | None:
    """The message type that an envelope names; it need not be registered here."""
    event = _CODEC.read(value)
    # An envelope in JSON is rejected where its type is not registered, and the rejection names the type.
    return event.event_type if isinstance(event, Rejection) else event.details.type_url.rpartition("/")[2]


def _confluent(records: Sequence[SampleRecord]) -> _Draft:
    ids = Counter(
        int.from_bytes(record.value[1:5], "big")
        for record in records
        if record.value is not None and record.value[:1] == b"\x00" and len(record.value) > 4
    )
    bodies = [record.value[5:6] for record in records if record.value is not None and len(record.value) > 5]
    inner = "JSON" if bodies.count(b"{") * 2 > len(bodies) else "Avro or Protobuf"
    named = ", ".join(str(number) for number, _ in ids.most_common(5))
    notes = [
        f"values begin with the framing of Confluent's schema registry: a zero byte and a schema number ({named})",
        f"what follows is {inner}; the registry knows the schema under that number",
    ]
    return _Draft(None, "", "unknown without the schema", notes=notes)


_DRAFTS = {
    "json": _json,
    "csv": _csv,
    "text": _text,
    "raw": _raw,
    "envelope": _envelope,
    "cloudevents": _cloudevents,
    "debezium": _debezium,
    "confluent": _confluent,
}


def _time_options(times: Sequence[TimeGuess]) -> tuple[list[str], str]:
    if not times:
        return [], "Kafka's timestamp of the record: no field is a time in every record"
    best = times[0]
    dotted = any("." in name for name in best.path)
    path = repr(best.path) if dotted else f'"{".".join(best.path)}"'
    options = [f"time={path}"]
    if best.pattern != "iso8601":
        options.append(f'time_format="{best.pattern}"')
    return options, f"{'.'.join(best.path)} ({best.pattern})"


def _named(times: Sequence[TimeGuess]) -> tuple[tuple[str, str], ...]:
    return tuple((".".join(guess.path), guess.pattern) for guess in times)


def _other_times(times: Sequence[TimeGuess]) -> list[str]:
    others = [f"{'.'.join(guess.path)} ({guess.pattern})" for guess in times[1:6]]
    return [f"other fields look like times, too: {', '.join(others)}"] if others else []


def _schema_text(schema: dict[str, Any], prefix: str) -> str:
    if not schema:
        return f"{prefix}{{}}"
    lines = [
        f"{_INDENT}{json_module.dumps(name, ensure_ascii=False)}: {type_text(kind)}," for name, kind in schema.items()
    ]
    return "\n".join([f"{prefix}{{", *lines, "}"])


def type_text(kind: Any) -> str:
    """Write a type as Python has it.

    >>> type_text(pl.List(pl.Struct({"a": pl.Int64, "b": pl.Datetime("us", "UTC")})))
    'pl.List(pl.Struct({"a": pl.Int64, "b": pl.Datetime("us", "UTC")}))'
    """
    if isinstance(kind, pl.List):
        return f"pl.List({type_text(kind.inner)})"
    if isinstance(kind, pl.Struct):
        fields = (
            f"{json_module.dumps(each.name, ensure_ascii=False)}: {type_text(each.dtype)}" for each in kind.fields
        )
        return f"pl.Struct({{{', '.join(fields)}}})"
    return 'pl.Datetime("us", "UTC")' if isinstance(kind, pl.Datetime) else f"pl.{kind}"


def _call(name: str, arguments: Sequence[str]) -> str:
    lines = [_INDENT + line for argument in arguments for line in f"{argument},".splitlines()]
    return "\n".join([f"{name}(", *lines, ")"])


def _module(call: str) -> str:
    names = sorted(
        name for name in ("cloudevents", "csv", "debezium", "json", "kafka_time", "raw", "text") if f"{name}(" in call
    )
    imports = ["import polars as pl", ""] if "pl." in call else []
    return "\n".join([*imports, f"from headrace.formats import {', '.join(names)}", "", f"records = {call}"])
