"""The shape of objects of JSON: the types that their fields have over many records, and which look like times."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.formats.times import ISO, EventTime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ISO_DATE = "date"

#: Deeper fields, and objects with more fields, are not described: they are maps or trees, which no schema fits.
_MAX_DEPTH = 8
_MAX_FIELDS = 500
#: Texts of a field that are kept to be looked at.
_KEPT = 200
_DATE = re.compile(r"^\d{4}-\d\d-\d\d$")
_ISO = re.compile(r"^\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d")
_INTEGER = re.compile(r"^[+-]?\d{1,18}$")
_FLOAT = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
_TIME_NAME = re.compile(
    r"(time|date|stamp|when|created|updated|moment|instant)|(^|[_.])(ts|at|t|dt|on)($|[_.])|(At|Ts)$", re.IGNORECASE
)
#: Seconds from 2000 to 2100; the other units follow.
_FIRST, _LAST = 946_684_800, 4_102_444_800
_UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_PATTERNS = (
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%Y/%m/%d %H:%M:%S",
    "%Y%m%dT%H%M%SZ",
)


@dataclass(frozen=True, slots=True)
class TimeGuess:
    """A field that looks like a time.

    Args:
        path: Where it is.
        pattern: How it is written.
        present: In how many records it is.
        score: How likely it is the time of the event.
    """

    path: tuple[str, ...]
    pattern: str
    present: int
    score: int


@dataclass
class Shape:
    """What is known of a field, or of whole records: how often which kind of value was there."""

    seen: int = 0
    nulls: int = 0
    booleans: int = 0
    texts: int = 0
    integers: int = 0
    reals: int = 0
    lists: int = 0
    objects: int = 0
    smallest: float = 0
    largest: float = 0
    kept_texts: list[str] = field(default_factory=list)
    kept_numbers: list[float] = field(default_factory=list)
    items: Shape | None = None
    fields: dict[str, Shape] = field(default_factory=dict)
    more_fields: bool = False
    too_deep: bool = False

    def add(self, value: Any, depth: int = 0) -> None:
        """Look at a value."""
        self.seen += 1
        if value is None:
            self.nulls += 1
        elif isinstance(value, bool):
            self.booleans += 1
        elif isinstance(value, str):
            self.texts += 1
            if len(self.kept_texts) < _KEPT:
                self.kept_texts.append(value[:100])
        elif isinstance(value, int | float):
            self._add_number(value)
        elif depth >= _MAX_DEPTH:
            self.too_deep = True
        elif isinstance(value, list):
            self.lists += 1
            self.items = self.items or Shape()
            for each in value[:_KEPT]:
                self.items.add(each, depth + 1)
        else:
            self.objects += 1
            for name, each in value.items():
                if name not in self.fields and len(self.fields) >= _MAX_FIELDS:
                    self.more_fields = True
                    continue
                self.fields.setdefault(name, Shape()).add(each, depth + 1)

    def _add_number(self, value: float) -> None:
        if isinstance(value, int):
            self.integers += 1
        else:
            self.reals += 1
        if not self.kept_numbers:
            self.smallest = self.largest = value
        self.smallest, self.largest = min(self.smallest, value), max(self.largest, value)
        if len(self.kept_numbers) < _KEPT:
            self.kept_numbers.append(value)

    def schema(self) -> tuple[dict[str, Any], list[str]]:
        """The columns of records, and what could not be told."""
        notes: list[str] = []
        columns: dict[str, Any] = {}
        for name, shape in self.fields.items():
            reserved = name in ("event_time", "ingestion_time", "original_value")
            if reserved or name.startswith(("#", "kafka_")):
                if name != "event_time":
                    notes.append(f"{name} is left out: Headrace uses the name itself")
                continue
            kind = shape.kind(name, notes, top=True)
            if kind is not None:
                columns[name] = kind
        if self.more_fields:
            notes.append(f"records have more than {_MAX_FIELDS} different fields; only the first are listed")
        return columns, notes

    def kind(self, path: str, notes: list[str], *, top: bool = False) -> Any:
        """The type of a field; None, with a note, if there is none that all its values fit."""
        numbers = self.integers + self.reals
        named = {"a text": self.texts, "true or false": self.booleans, "a number": numbers}
        named |= {"an array": self.lists, "an object": self.objects}
        present = {name: number for name, number in named.items() if number}
        if self.too_deep:
            notes.append(f"{path} is left out: it is nested deeper than {_MAX_DEPTH} levels")
        elif not present:
            notes.append(f"{path} is left out: it is null wherever it is there")
        elif len(present) > 1:
            kinds = ", ".join(f"{name} in {number:,}" for name, number in present.items())
            notes.append(f"{path} is left out: it is {kinds}, and no column holds both")
        elif self.texts:
            return _text_type(self.kept_texts) if top else pl.String()
        elif self.booleans:
            return pl.Boolean()
        elif numbers:
            return self._number(path, notes)
        elif self.lists:
            items = self.items or Shape()
            if items.seen == items.nulls:
                notes.append(f"{path} is left out: its arrays are empty")
                return None
            inner = items.kind(f"{path}[]", notes)
            return None if inner is None else pl.List(inner)
        else:
            return self._object(path, notes)
        return None

    def _number(self, path: str, notes: list[str]) -> Any:
        if self.reals:
            return pl.Float64()
        if self.smallest >= -(1 << 63) and self.largest < 1 << 63:
            return pl.Int64()
        if self.smallest >= 0 and self.largest < 1 << 64:
            return pl.UInt64()
        notes.append(f"{path} holds whole numbers beyond 64 bits, which are rounded")
        return pl.Float64()

    def _object(self, path: str, notes: list[str]) -> Any:
        present = sum(shape.seen for shape in self.fields.values())
        sparse = len(self.fields) > 50 and present * 5 < len(self.fields) * self.objects
        if self.more_fields or sparse:
            notes.append(f"{path} is left out: it has ever other fields, like a map")
            return None
        inner = {name: shape.kind(f"{path}.{name}", notes) for name, shape in self.fields.items()}
        kept = {name: kind for name, kind in inner.items() if kind is not None}
        if not kept:
            if not self.fields:
                notes.append(f"{path} is left out: its objects are empty")
            return None
        return pl.Struct(kept)

    def times(self) -> list[TimeGuess]:
        """The fields that are a time in every record, the likeliest time of the event first."""
        found = list(self.times_below((), self.objects))
        found.sort(key=lambda guess: (-guess.score, len(guess.path)))
        return found

    def times_below(self, path: tuple[str, ...], records: int) -> Iterable[TimeGuess]:
        """The fields below a path that are a time in each of so many records."""
        for name, shape in self.fields.items():
            here = (*path, name)
            if shape.objects and len(here) < 3:
                yield from shape.times_below(here, records)
            present = shape.seen - shape.nulls
            if present < records or not records:
                continue
            pattern = shape.pattern(name)
            if pattern:
                yield TimeGuess(here, pattern, present, _score(name, pattern))

    def pattern(self, name: str) -> str | None:
        """How the values are written, if they look like times."""
        if self.texts and self.texts == self.seen - self.nulls:
            return text_pattern(self.kept_texts, name)
        if (self.integers or self.reals) and self.integers + self.reals == self.seen - self.nulls:
            return number_pattern(self.smallest, self.largest, name)
        return None


def shape_of(objects: Iterable[dict[str, Any]]) -> Shape:
    """Look at records.

    >>> schema, notes = shape_of([{"a": 1, "b": None}, {"a": 1.5, "c": {"d": [True]}}]).schema()
    >>> schema["a"], schema["c"], notes
    (Float64, Struct({'d': List(Boolean)}), ['b is left out: it is null wherever it is there'])
    """
    shape = Shape()
    for each in objects:
        shape.add(each)
    return shape


def number_pattern(smallest: float, largest: float, name: str) -> str | None:
    """The unit in which numbers are times between 2000 and 2100.

    >>> number_pattern(1772352000000, 1772352001000, "sent"), number_pattern(1772352000, 1772352001, "id")
    ('ms', None)
    """
    for unit, factor in _UNITS.items():
        if _FIRST * factor <= smallest and largest < _LAST * factor:
            # Ten digits may be anything; thirteen and more hardly.
            return unit if unit != "s" or _TIME_NAME.search(name) else None
    return None


def text_pattern(texts: Sequence[str], name: str = "") -> str | None:
    """How texts write times, if they do."""
    if not texts:
        return None
    if all(_ISO.match(each) for each in texts):
        return ISO if not EventTime("field", ("t",)).micros(pl.Series(texts)).null_count() else None
    if all(_INTEGER.match(each) for each in texts):
        numbers = [int(each) for each in texts]
        return number_pattern(min(numbers), max(numbers), name)
    for pattern in _PATTERNS:
        if not EventTime("field", ("t",), pattern).micros(pl.Series(texts)).null_count():
            return pattern
    return None


def scalar_text_type(texts: Sequence[str]) -> tuple[Any, str | None]:
    """The type that all texts can be read as, and how they write times, if they do."""
    pattern = text_pattern(texts)
    if not texts:
        return pl.String(), None
    if all(_INTEGER.match(each) for each in texts):
        return pl.Int64(), pattern
    if all(_FLOAT.match(each) for each in texts):
        return pl.Float64(), None
    if all(each.lower() in ("true", "false") for each in texts):
        return pl.Boolean(), None
    if all(_DATE.match(each) for each in texts):
        return _text_type(texts), ISO_DATE
    return pl.String(), pattern


def _text_type(texts: Sequence[str]) -> Any:
    if texts and all(_ISO.match(each) for each in texts) and text_pattern(texts) == ISO:
        return pl.Datetime("us", "UTC")
    dates = pl.Series(texts)
    if texts and all(_DATE.match(each) for each in texts) and not dates.str.to_date(strict=False).null_count():
        return pl.Date()
    return pl.String()


def _score(name: str, pattern: str) -> int:
    lowered = name.lower().replace("_", "")
    if lowered in ("eventtime", "eventtimestamp", "occurredat", "time", "timestamp", "ts", "at"):
        return 4
    if any(
        word in lowered for word in ("created", "updated", "birth", "expire", "valid", "ingest", "process", "received")
    ):
        return 1
    return 3 if _TIME_NAME.search(name) else 2 if pattern == ISO else 0
