"""The CSV processor: messages that are one row each, by a mapping.

[[feed]]
name = "aircraft"
connector = "replay"
processor = "csv"

[feed.csv]
topic = "input.aircraft"
columns = ["time", "icao24", "lat", "lon", "velocity", "onground"]
time = {field = "time", format = "epoch_s"}
key = ["icao24"]
where = "NOT on_ground"

[feed.csv.fields]
icao24 = "str"
latitude = {field = "lat", type = "f64", min = -90, max = 90}
longitude = {field = "lon", type = "f64", min = -180, max = 180}
speed = {field = "velocity", type = "f64"}
on_ground = {field = "onground", type = "bool"}
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, with_config

from headrace.errors import ConfigError
from headrace.ingest.mapping import MappingProcessor, MappingSettings
from headrace.ingest.processor import Cause, Dismissal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.events.registry import TypeRegistry


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class CsvSettings(MappingSettings):
    """What rows become; see `MappingSettings`. An empty cell is null.

    Args:
        columns: The names of the cells of a row, in order; `field` names one of them.
        delimiter: Between two cells.
        quote: Around a cell that holds a delimiter; twice inside it stands for itself.

    Raises:
        ConfigError: Something makes no sense.
    """

    columns: tuple[str, ...]
    delimiter: str = ","
    quote: str = '"'

    def __post_init__(self) -> None:
        MappingSettings.__post_init__(self)
        if not self.columns:
            raise ConfigError("columns is empty", hint="Name the cells of a row, as a header would.")
        if len(set(self.columns)) < len(self.columns):
            raise ConfigError("columns names a cell twice", hint="Names tell cells apart.")
        for what, mark in (("delimiter", self.delimiter), ("quote", self.quote)):
            if len(mark) != 1 or mark in "\r\n":
                raise ConfigError(f"{what} is {mark!r}", hint="Give one character.")
        if self.delimiter == self.quote:
            raise ConfigError("delimiter and quote are the same", hint="Give two characters.")


class CsvProcessor(MappingProcessor):
    """Makes events of messages that are one row of CSV each.

    Args:
        settings: The mapping.
        types: The message types that it may name; Headrace's own if not given.

    >>> from headrace.ingest.message import RawMessage
    >>> from headrace.ingest.rules import FieldRule
    >>> mapping = CsvSettings(topic="input.doors", columns=("id", "n"), fields={"n": FieldRule(type="i32")})
    >>> CsvProcessor(mapping).process([RawMessage("", b"north,3", 0)]).events[0].frame["n"].to_list()
    [3]
    """

    name = "csv"
    Settings = CsvSettings
    settings: CsvSettings

    def __init__(self, settings: CsvSettings, *, types: TypeRegistry | None = None) -> None:
        self._delimiter, self._quote = settings.delimiter, settings.quote
        self._places = {name: place for place, name in enumerate(settings.columns)}
        super().__init__(settings, text=True, types=types)

    def _read(self, payload: bytes) -> Any:
        cells = cells_of(payload, self._delimiter, self._quote)
        if isinstance(cells, Dismissal):
            return cells
        if len(cells) != len(self._places):
            return Dismissal(Cause.MALFORMED_ROW, f"{len(cells):,} cells, there are {len(self._places)} columns")
        return cells

    def _values(self, path: tuple[str | int, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        name = ".".join(map(str, path))
        if name not in self._places:
            raise ConfigError(f"field {name!r} is none of the columns", hint=f"There are: {', '.join(self._places)}.")
        place = self._places[name]
        return lambda bodies: [body[place] or None for body in bodies]


def cells_of(payload: bytes, delimiter: str, quote: str) -> list[str] | Dismissal:
    """Take a row apart, or say why it is none.

    >>> cells_of(b'a,"b,c"', ",", '"')
    ['a', 'b,c']
    """
    try:
        text = payload.decode().rstrip("\r\n")
    except UnicodeDecodeError as error:
        return Dismissal(Cause.NOT_UTF8, f"byte {error.start} is not UTF-8")
    if quote not in text and "\n" not in text and "\r" not in text:
        return text.split(delimiter)
    try:
        # All in one, so that a row with a line break inside quotes stays one row.
        (cells,) = csv.reader(text.splitlines(keepends=True), delimiter=delimiter, quotechar=quote, strict=True)
    except (csv.Error, ValueError) as error:
        return Dismissal(Cause.MALFORMED_ROW, f"the payload is not one row: {error}"[:200])
    return cells
