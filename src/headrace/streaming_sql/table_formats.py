"""The format of a table: `'format' = 'json'` and its options as a format of `headrace.formats`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import HeadraceError, PlanError
from headrace.formats import avro, csv, debezium, json, protobuf, raw, text
from headrace.formats.times import ISO

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

    from headrace.formats import Format
    from headrace.streaming_sql.options import Options

    Factory = Callable[..., Format]

#: The envelope of Headrace's own events.
ENVELOPE = "headrace"
_CHANGES = "debezium-json"
_KNOWN = ("json", "csv", "avro", "avro-confluent", _CHANGES, "protobuf", "raw", "text", ENVELOPE)


@dataclass(frozen=True)
class FormatChoice:
    """The format that a table asks for.

    Args:
        name: Its name.
        make: Makes the format from columns, and from where the time of an event is.
    """

    name: str
    make: Callable[[Mapping[str, pl.DataType], TimeOfEvents], Format]

    @property
    def is_changelog(self) -> bool:
        """Whether its records are changes of a table."""
        return self.name == _CHANGES

    @property
    def is_envelope(self) -> bool:
        """Whether its records are Headrace's own events."""
        return self.name == ENVELOPE


@dataclass(frozen=True)
class TimeOfEvents:
    """Where the time of an event is: a field and how it is written; no field: Kafka's timestamp."""

    field: str | None = None
    pattern: str = ISO
    zone: str = "UTC"

    @property
    def arguments(self) -> dict[str, Any]:
        """Give it as the formats take it."""
        return {} if self.field is None else {"time": self.field, "time_format": self.pattern, "time_zone": self.zone}


@dataclass(frozen=True)
class OwnFormats:
    """Formats beside Headrace's own.

    Args:
        factories: By name: what makes them from columns and a time.
        types: Gives the message type of a name, for tables of events in the envelope.
    """

    factories: Mapping[str, Factory] = field(default_factory=dict)
    types: Callable[[str], type[Message]] | None = None


def choose_format(options: Options, own: OwnFormats, *, prefix: str = "", default: str = ENVELOPE) -> FormatChoice:
    """Read which format a table has.

    Args:
        options: The options of the table.
        own: Further formats.
        prefix: "key." for the format of the key.
        default: The format where none is given.

    Raises:
        ScriptError: There is no such format, or an option of it has a value that it cannot have.
    """
    option = f"{prefix}format"
    if not prefix and "value.format" in options and "format" not in options:
        option = "value.format"
    known = [*_KNOWN, *(name for name in own.factories if name not in _KNOWN)]
    name = options.choice(option, known, default if not prefix else "raw")
    given = _options_of(options, f"{prefix}{name}.", name)

    def make(columns: Mapping[str, pl.DataType], time: TimeOfEvents) -> Format:
        try:
            return _make(name, columns, time, given, own)
        except HeadraceError as wrong:
            raise options.problem(option, wrong.message, hint=wrong.hint) from wrong

    return FormatChoice(name, make)


def _options_of(options: Options, prefix: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name == "csv":
        found["delimiter"] = options.text(f"{prefix}field-delimiter", ",").replace("\\t", "\t")
        quote = options.text(f"{prefix}quote-character", '"')
        found["quote"] = None if options.flag(f"{prefix}disable-quote-character", default=False) else quote
        found["null_values"] = (options.text(f"{prefix}null-literal", ""),)
    elif name in ("avro", "avro-confluent"):
        found["schema"] = options.text(f"{prefix}schema") or None
        if name == "avro-confluent":
            found["registry"] = options.needed(f"{prefix}url", hint="Name the address of the schema registry.")
            found["subject"] = options.text(f"{prefix}subject") or None
    elif name == "protobuf":
        hint = "Name the .proto file of the messages: 'protobuf.schema' = 'scan.proto'."
        found["schema"] = options.needed(f"{prefix}schema", hint=hint)
        found["message"] = options.text(f"{prefix}message-class-name") or None
    elif name == _CHANGES:
        found["time"] = options.text(f"{prefix}time", "source.ts_ms")
    return found


def _make(
    name: str, columns: Mapping[str, pl.DataType], time: TimeOfEvents, given: Mapping[str, Any], own: OwnFormats
) -> Format:
    match name:
        case "json":
            return json(dict(columns), **time.arguments)
        case "csv":
            return csv(dict(columns), **time.arguments, **given)
        case "avro" | "avro-confluent":
            options = {key: value for key, value in given.items() if key != "schema"}
            # Without a schema of its own records are written with the columns, and read by them.
            schema = given["schema"] or ("latest" if options.get("subject") else _avro_schema(columns, time))
            return avro(schema, **time.arguments, **options)
        case "debezium-json":
            at = {**time.arguments} if time.field is not None else {"time": given["time"]}
            return debezium(dict(columns), **{key: value for key, value in at.items() if key != "time_zone"})
        case "protobuf":
            wanted = [column for column in columns if column != "event_time"]
            return protobuf(given["schema"], message=given["message"], columns=wanted, **time.arguments)
        case "raw" | "text":
            return _of_one_column(name, columns, time)
    return own.factories[name](schema=dict(columns), **time.arguments)


def _of_one_column(name: str, columns: Mapping[str, pl.DataType], time: TimeOfEvents) -> Format:
    if len(columns) != 1 or time.field is not None:
        raise PlanError(
            f"the format {name} with the columns {', '.join(columns) or '(none)'}",
            hint="It has one column, STRING or BYTES; the time of an event is Kafka's timestamp.",
        )
    ((column, dtype),) = columns.items()
    if dtype == pl.String:
        return text(column)
    if dtype == pl.Binary:
        return raw(column)
    raise PlanError(f"column {column} of the format {name} is {dtype}", hint="It is STRING or BYTES.")


_AVRO: dict[pl.DataType, Any] = {
    pl.Boolean(): "boolean",
    pl.Int8(): "int",
    pl.Int16(): "int",
    pl.Int32(): "int",
    pl.Int64(): "long",
    pl.Float32(): "float",
    pl.Float64(): "double",
    pl.String(): "string",
    pl.Binary(): "bytes",
    pl.Date(): {"type": "int", "logicalType": "date"},
    pl.Datetime("us", "UTC"): {"type": "long", "logicalType": "timestamp-micros"},
}


def _avro_schema(columns: Mapping[str, pl.DataType], time: TimeOfEvents) -> dict[str, Any]:
    """Give the Avro schema of columns: each may be null but the time of an event."""
    fields = []
    for name, dtype in columns.items():
        kind = _avro_type(name, dtype, name)
        fields.append({"name": name, "type": kind if name == time.field else ["null", kind]})
    if time.field is not None and time.field not in columns:
        fields.append({"name": time.field, "type": _AVRO[pl.Datetime("us", "UTC")]})
    return {"type": "record", "name": "Row", "fields": fields}


def _avro_type(column: str, dtype: Any, path: str) -> Any:
    found = dtype() if isinstance(dtype, type) else dtype
    if isinstance(found, pl.List):
        return {"type": "array", "items": ["null", _avro_type(column, found.inner, f"{path}_item")]}
    if isinstance(found, pl.Struct):
        inner = [
            {"name": each.name, "type": ["null", _avro_type(column, each.dtype, f"{path}_{each.name}")]}
            for each in found.fields
        ]
        return {"type": "record", "name": path, "fields": inner}
    if isinstance(found, pl.Decimal):
        return {"type": "bytes", "logicalType": "decimal", "precision": found.precision, "scale": found.scale}
    if found not in _AVRO:
        raise PlanError(f"column {column} is {dtype}, which has no type in Avro", hint="Give 'avro.schema'.")
    return _AVRO[found]
