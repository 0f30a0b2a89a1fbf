"""Avro schemas: parsed, checked, and as types that the readers and writers are built from.

A schema is a tree of `AvroType`. Names are resolved, so a type that is used twice stands in the tree twice. A type that
contains itself is refused, since no column holds it; so is an array of items that take no bytes, since a few bytes
could then stand for any number of items.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
#: The most digits of a decimal in columns; one with more is read as its bytes.
MAX_PRECISION = 38
#: Types inside each other, at most so deep.
MAX_DEPTH = 64
#: Types in one schema, at most so many, each counted as often as it is used.
MAX_TYPES = 10_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN = 60
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros", "timestamp-millis", "timestamp-micros", "timestamp-nanos",
        "local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos",
    ),
    "bytes": ("decimal",),
    "fixed": ("decimal", "uuid"),
    "string": ("uuid",),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record.

    Args:
        name: Its name.
        type: Its type.
        aliases: Names that it had before.
        default: Its default as JSON; None if it has none.
    """

    name: str
    type: AvroType
    aliases: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type of Avro.

    Args:
        kind: A primitive type, or "fixed", "enum", "array", "map", "record" or "union".
        logical: The logical type, if it is one that is known and fits.
        name: The full name of a named type.
        aliases: Full names that a named type had before.
        precision: The digits of a decimal.
        scale: Those of them after the point.
        size: The bytes of a fixed.
        symbols: Those of an enum.
        default: The symbol that a reader takes for one that it does not know.
        inner: The types of the items of an array, of the values of a map, or of the branches of a union.
        fields: The fields of a record.
    """

    kind: str
    logical: str | None = None
    name: str = ""
    aliases: tuple[str, ...] = ()
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    inner: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()

    @property
    def branches(self) -> tuple[AvroType, ...]:
        """What a value can be besides null: the branches of a union, or the type itself."""
        each = self.inner if self.kind == "union" else (self,)
        return tuple(branch for branch in each if branch.kind != "null")

    @property
    def is_nullable(self) -> bool:
        """Whether a value can be null."""
        return self.kind == "null" or (self.kind == "union" and any(branch.kind == "null" for branch in self.inner))

    @property
    def label(self) -> str:
        """What the type is called as a branch of a union, and in messages."""
        return self.name.rpartition(".")[2] or self.kind

    @property
    def least_bytes(self) -> int:
        """The fewest bytes that a value takes."""
        if self.kind == "record":
            return sum(field.type.least_bytes for field in self.fields)
        return {"null": 0, "float": 4, "double": 8, "fixed": self.size}.get(self.kind, 1)

    def walk(self) -> Iterator[AvroType]:
        """Give the type and every type in it."""
        yield self
        for each in (*self.inner, *(field.type for field in self.fields)):
            yield from each.walk()


def load_schema(schema: Mapping[str, Any] | list[Any] | str | Path) -> AvroType:
    """Read a schema from a dictionary, JSON text, or the path of an .avsc file.

    Raises:
        SchemaError: It cannot be read, is no schema, or has no columns.
    """
    if isinstance(schema, Path) or (isinstance(schema, str) and not schema.lstrip().startswith(("{", "[", '"'))):
        path = Path(schema)
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = getattr(problem, "strerror", None) or str(problem)
            raise SchemaError(
                f"the Avro schema cannot be read from {str(path)!r}: {reason}",
                hint="Give a dictionary, the JSON text of a schema, or the path of an .avsc file.",
            ) from problem
        return parse_schema(text, where=f" in {path}")
    return parse_schema(schema if isinstance(schema, str) else json.dumps(schema))


def parse_schema(text: str, *, where: str = "") -> AvroType:
    """Parse a schema of a record.

    Args:
        text: The schema as JSON.
        where: Where it was read, for the message of an error.

    >>> parse_schema('{"type": "record", "name": "Scan", "fields": [{"name": "parcel", "type": "string"}]}').label
    'Scan'

    Raises:
        SchemaError: It is no schema, or no record.
    """
    try:
        raw = json.loads(text)
        parsed = _Parser(where).parse(raw, "", 0, "the schema")
    except RecursionError as problem:
        raise SchemaError(f"the Avro schema{where} is nested too deep", hint="Read a flatter schema.") from problem
    except ValueError as problem:
        raise SchemaError(
            f"the Avro schema{where} is no JSON: {problem}", hint="Give the text of an .avsc file, or its path."
        ) from problem
    if parsed.kind != "record":
        raise SchemaError(
            f"the Avro schema{where} is {parsed.kind}, not a record, so it has no columns",
            hint='Wrap it: {"type": "record", "name": ..., "fields": [...]}.',
        )
    return parsed


class _Parser:
    """Parses one schema; knows the named types that it has met."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._named: dict[str, AvroType | None] = {}  # None: it is being parsed
        self._sizes: dict[str, int] = {}
        self._types = 0

    def parse(self, raw: Any, space: str, depth: int, place: str) -> AvroType:
        """Parse a type; `place` is where it stands, for messages."""
        if depth > MAX_DEPTH:
            raise self._error(place, f"is nested deeper than {MAX_DEPTH} types", "Read a flatter schema.")
        self._count(1, place)
        if isinstance(raw, str):
            return AvroType(raw) if raw in PRIMITIVES else self._reference(raw, space, place)
        if isinstance(raw, list):
            return self._union(raw, space, depth, place)
        if not isinstance(raw, dict) or "type" not in raw:
            raise self._error(place, f"is {_shown(raw)}, which is no type", 'Give a name or {"type": ...}.')
        kind = raw["type"]
        if kind in ("array", "map"):
            return self._collection(kind, raw, space, depth, place)
        if kind in ("record", "enum", "fixed", "error"):
            return self._defined(raw, space, depth, place)
        if isinstance(kind, str) and kind in PRIMITIVES:
            return _logical(AvroType(kind), raw)
        return self.parse(kind, space, depth + 1, place)

    def _reference(self, name: str, space: str, place: str) -> AvroType:
        full = name if "." in name or not space else f"{space}.{name}"
        for candidate in (full, name):
            if candidate in self._named:
                known = self._named[candidate]
                if known is None:
                    raise self._error(
                        place,
                        f"is {name}, the record that it stands in: no column holds a type that contains itself",
                        "Read with a schema that leaves the field out.",
                    )
                self._count(self._sizes[candidate], place)
                return known
        raise self._error(place, f"is {name!r}, which is no type of Avro and is not defined before", "")

    def _count(self, types: int, place: str) -> None:
        self._types += types
        if self._types > MAX_TYPES:
            raise self._error(place, f"is beyond the limit of {MAX_TYPES:,} types", "Read a smaller schema.")

    def _union(self, raw: list[Any], space: str, depth: int, place: str) -> AvroType:
        branches = tuple(self.parse(each, space, depth + 1, place) for each in raw)
        labels = [branch.name or branch.kind for branch in branches]
        if not branches or len(set(labels)) < len(labels) or any(branch.kind == "union" for branch in branches):
            raise self._error(place, f"is the union {_shown(raw)}: its branches must be different types", "")
        return AvroType("union", inner=branches)

    def _collection(self, kind: str, raw: dict[str, Any], space: str, depth: int, place: str) -> AvroType:
        key = "items" if kind == "array" else "values"
        if key not in raw:
            raise self._error(place, f"is {_shown(raw)}: {kind} without {key!r}", "")
        inner = self.parse(raw[key], space, depth + 1, f"{place}[]")
        if kind == "array" and not inner.least_bytes:
            raise self._error(
                place,
                f"is an array of {inner.label}, whose items take no bytes",
                "Read with a schema that leaves the field out.",
            )
        return AvroType(kind, inner=(inner,))

    def _defined(self, raw: dict[str, Any], space: str, depth: int, place: str) -> AvroType:
        kind = "record" if raw["type"] == "error" else raw["type"]
        name = raw.get("name")
        if not isinstance(name, str) or not all(_NAME.fullmatch(part) for part in name.split(".")):
            raise self._error(place, f"is a {kind} of the name {_shown(name)}, which is no name of Avro", "")
        space = name.rpartition(".")[0] if "." in name else raw.get("namespace", space) or ""
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._named:
            raise self._error(place, f"defines {full} a second time", "Name it without defining it again.")
        self._named[full], types_before = None, self._types
        aliases = tuple(
            each if "." in each or not space else f"{space}.{each}" for each in self._names(raw, "aliases", place)
        )
        found = AvroType(kind, name=full, aliases=aliases)
        if kind == "record":
            found = AvroType(kind, name=full, aliases=aliases, fields=self._fields(raw, space, depth, place))
        elif kind == "enum":
            symbols = self._names(raw, "symbols", place)
            if not symbols or len(set(symbols)) < len(symbols) or not all(map(_NAME.fullmatch, symbols)):
                raise self._error(place, f"is an enum with the symbols {_shown(list(symbols))}", "Each is a name.")
            default = raw.get("default")
            if default is not None and default not in symbols:
                raise self._error(place, f"is an enum with the default {_shown(default)}", "It is one of its symbols.")
            found = AvroType(kind, name=full, aliases=aliases, symbols=symbols, default=default)
        else:
            size = raw.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise self._error(place, f"is a fixed of the size {_shown(size)}", "Give a whole number of bytes.")
            found = _logical(AvroType(kind, name=full, aliases=aliases, size=size), raw)
        self._named[full], self._sizes[full] = found, self._types - types_before + 1
        return found

    def _fields(self, raw: dict[str, Any], space: str, depth: int, place: str) -> tuple[AvroField, ...]:
        fields: list[AvroField] = []
        listed = raw.get("fields")
        if not isinstance(listed, list):
            raise self._error(place, f"is the record {raw.get('name')} without a list of fields", "")
        for each in listed:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name) or "type" not in each:
                raise self._error(place, f"has the field {_shown(each)}", "A field has a name of Avro and a type.")
            where = f"the field {name!r}" if place == "the schema" else f"{place.removesuffix(repr(''))}.{name}"
            kind = self.parse(each["type"], space, depth + 1, where)
            # {"type": "long", "logicalType": ...} may also stand in the field itself.
            if kind.kind in PRIMITIVES and kind.logical is None and isinstance(each["type"], str):
                kind = _logical(kind, each)
            default = json.dumps(each["default"]) if "default" in each else None
            fields.append(AvroField(name, kind, self._names(each, "aliases", where), default))
        names = [field.name for field in fields]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self._error(place, f"has the field {twice!r} twice", "")
        return tuple(fields)

    def _names(self, raw: dict[str, Any], key: str, place: str) -> tuple[str, ...]:
        names = raw.get(key, [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise self._error(place, f"has {key} that are {_shown(names)}, not a list of names", "")
        return tuple(names)

    def _error(self, place: str, what: str, hint: str) -> SchemaError:
        return SchemaError(f"the Avro schema{self._where} cannot be used: {place} {what}", hint=hint)


def _logical(kind: AvroType, raw: Mapping[str, Any]) -> AvroType:
    """Give a type with its logical type; one that is not known or does not fit is ignored, as Avro has it."""
    logical = raw.get("logicalType")
    if logical not in _LOGICAL.get(kind.kind, ()):
        return kind
    if logical == "uuid" and kind.kind == "fixed" and kind.size != 16:
        return kind
    precision, scale = 0, 0
    if logical == "decimal":
        precision, scale = raw.get("precision", 0), raw.get("scale", 0)
        whole = all(isinstance(each, int) and not isinstance(each, bool) for each in (precision, scale))
        if not whole or not 0 < precision <= MAX_PRECISION or not 0 <= scale <= precision:
            return kind
    return AvroType(
        kind.kind, logical, kind.name, kind.aliases, precision, scale, kind.size, kind.symbols, kind.default
    )


def _shown(value: Any) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def schema_json(kind: AvroType) -> Any:
    """Give a type as JSON holds it; a named type is defined where it stands first and named afterwards."""
    return _Writer().type(kind)


class _Writer:
    def __init__(self) -> None:
        self._defined: set[str] = set()

    def type(self, kind: AvroType) -> Any:
        if kind.kind == "union":
            return [self.type(branch) for branch in kind.inner]
        if kind.name and kind.name in self._defined:
            return kind.name
        found: dict[str, Any] = {"type": kind.kind}
        if kind.name:
            self._defined.add(kind.name)
            found["name"] = kind.name
        if kind.kind in ("array", "map"):
            found["items" if kind.kind == "array" else "values"] = self.type(kind.inner[0])
        elif kind.kind == "enum":
            found["symbols"] = list(kind.symbols)
        elif kind.kind == "fixed":
            found["size"] = kind.size
        elif kind.kind == "record":
            found["fields"] = [self._field(field) for field in kind.fields]
        if kind.logical is not None:
            found["logicalType"] = kind.logical
        if kind.logical == "decimal":
            found |= {"precision": kind.precision, "scale": kind.scale}
        return kind.kind if found == {"type": kind.kind} else found

    def _field(self, field: AvroField) -> dict[str, Any]:
        found = {"name": field.name, "type": self.type(field.type)}
        return found if field.default is None else found | {"default": json.loads(field.default)}


def schema_of(columns: Mapping[str, pl.DataType], name: str = "Result") -> AvroType:
    """Give the schema that rows are written by where none is declared: every field may be null.

    Raises:
        SchemaError: A column has a type or a name that Avro does not have.
    """
    fields = []
    for column, kind in columns.items():
        if not _NAME.fullmatch(column):
            raise SchemaError(
                f"avro() cannot write the column {column!r}: a name of Avro has letters, digits and _ only",
                hint="Give it another name in select(...).",
            )
        union = AvroType("union", inner=(AvroType("null"), _type_of(column, kind, f"{name}_{column}")))
        fields.append(AvroField(column, union, default="null"))
    return AvroType("record", name=name, fields=tuple(fields))


def _type_of(column: str, kind: Any, name: str) -> AvroType:
    kind = kind() if isinstance(kind, type) else kind
    for types, found in _TYPES_OF:
        if isinstance(kind, types):
            return found
    if isinstance(kind, pl.Datetime):
        return AvroType("long", "timestamp-micros" if kind.time_zone else "local-timestamp-micros")
    if isinstance(kind, pl.Decimal):
        return AvroType("bytes", "decimal", precision=kind.precision or MAX_PRECISION, scale=kind.scale or 0)
    if isinstance(kind, pl.List | pl.Array):
        return AvroType(
            "array", inner=(AvroType("union", inner=(AvroType("null"), _type_of(column, kind.inner, name))),)
        )
    if isinstance(kind, pl.Struct):
        return schema_of({field.name: field.dtype for field in kind.fields}, name)  # type: ignore[misc]
    raise SchemaError(
        f"avro() cannot write column {column!r} of type {kind}", hint="Cast it, or leave it out with drop()."
    )


_TYPES_OF: tuple[tuple[Any, AvroType], ...] = (
    ((pl.String, pl.Categorical, pl.Enum), AvroType("string")),
    (pl.Boolean, AvroType("boolean")),
    ((pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16), AvroType("int")),
    ((pl.Int64, pl.UInt32, pl.UInt64), AvroType("long")),
    (pl.Float32, AvroType("float")),
    ((pl.Float64, pl.Duration), AvroType("double")),
    (pl.Binary, AvroType("bytes")),
    (pl.Date, AvroType("int", "date")),
    (pl.Time, AvroType("long", "time-micros")),
)
