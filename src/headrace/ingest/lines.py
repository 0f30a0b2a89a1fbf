"""Files of lines: CSV or JSON lines, one message each, that arrive when they say they happened.

Data sets of other domains come as tables, without the moments at which their rows arrived. A `LineFile` takes the time
that a line itself names as its arrival, so that it can be replayed like a recording; a line that is older than the one
before it arrives with it. The lines themselves are not touched: a mapping makes events of them, and a line without a
time goes to it like any other, to be dismissed there with the reason.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import ConfigError
from headrace.ingest.fields import INSTANT
from headrace.ingest.files import SourceFile
from headrace.ingest.message import RawMessage
from headrace.ingest.processor import Dismissal
from headrace.ingest.processors.csv import cells_of
from headrace.ingest.processors.json import read_json, values_at
from headrace.ingest.rules import Rule, path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from os import PathLike

    from headrace.ingest.rules import FieldRule

Form = Literal["csv", "jsonl"]


class LineFile:
    """A file of lines, read from the beginning as often as it is iterated over.

    Args:
        path: The file, or its URL; its suffix says how it is compressed.
        form: "csv", or "jsonl" for one JSON value a line.
        time: Where a line says when it happened, and how; in CSV, `field` is a name of the header or a place from 0 on.
        header: Whether the first line of a CSV file names the cells; it is no message.
        delimiter: Between two cells of CSV.
        storage: Options of the store that a URL leads to.

    `torn`, `bad_lines` and `bad_count` are as those of a `Recording`.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        form: Form,
        time: FieldRule,
        header: bool = True,
        delimiter: str = ",",
        storage: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = str(path)
        self.torn = False
        self.bad_lines: list[int] = []
        self.bad_count = 0
        self._form, self._header, self._delimiter = form, header and form == "csv", delimiter
        self._rule = Rule("time", replace(time, type="time"), text=True)
        self._where = () if time.field is None else path_of(time.field)
        self._file = SourceFile(self.path, storage=storage)
        if not self._where:
            raise ConfigError("time names no field", hint='Say where a line has its time: time = {field = "time"}.')

    def check(self) -> RawMessage:
        """See whether the file can be read, and give its first message.

        Raises:
            EnvironmentProblem: It cannot be opened.
            ConfigError: There is no line in it that says when it happened.
        """
        for lines, times in self._timed():
            for line, at in zip(lines, times, strict=True):
                if at is not None:
                    return RawMessage("", line, at)
        raise ConfigError(f"no line of {self.path} has a time", hint="Check time: its field and its format.")

    def __iter__(self) -> Iterator[RawMessage]:
        self.torn, self.bad_lines, self.bad_count = False, [], 0
        latest: int | None = None
        waiting: list[bytes] = []
        for lines, times in self._timed():
            for line, at in zip(lines, times, strict=True):
                if at is not None and (latest is None or at > latest):
                    latest = at
                if latest is None:
                    waiting.append(line)  # nobody knows yet when it was
                    continue
                while waiting:
                    yield RawMessage("", waiting.pop(0), latest)
                yield RawMessage("", line, latest)
        self.torn = self._file.torn

    def _timed(self) -> Iterator[tuple[list[bytes], list[int | None]]]:
        """Lines, some thousands at a time, with the time that each names."""
        values: Callable[[list[bytes]], list[Any]] | None = None
        for batch in self._lines():
            lines = batch
            if values is None:
                values = self._reader(lines[0])
                lines = lines[1:] if self._header else lines
            series, _ = self._rule.read(values(lines))
            yield lines, series.cast(INSTANT).dt.timestamp("us").to_list()

    def _lines(self) -> Iterator[list[bytes]]:
        for lines in self._file.lines():
            kept = [line for line in lines if line.strip()]
            if kept:
                yield kept
        if self._file.rest.strip() and not self._file.torn:
            yield [self._file.rest]

    def _reader(self, first: bytes) -> Callable[[list[bytes]], list[Any]]:
        if self._form == "jsonl":
            values = values_at(self._where)
            return lambda lines: values([_or_nothing(read_json(line)) for line in lines])
        place = self._place(cells_of(first, self._delimiter, '"'))

        def cell(line: bytes) -> str | None:
            cells = cells_of(line, self._delimiter, '"')
            return None if isinstance(cells, Dismissal) or place >= len(cells) else cells[place] or None

        return lambda lines: [cell(line) for line in lines]

    def _place(self, names: list[str] | Dismissal) -> int:
        (wanted, *more) = self._where
        if isinstance(names, Dismissal) or more:
            raise ConfigError(f"the first line of {self.path} is no CSV", hint="Check form and delimiter.")
        if isinstance(wanted, int):
            return wanted
        if not self._header or wanted not in names:
            what = f"has no cell {wanted!r}" if self._header else "has no header, so cells have no names"
            raise ConfigError(f"{self.path} {what}", hint=f"The first line is: {', '.join(names)[:200]}")
        return names.index(wanted)


def _or_nothing(value: Any) -> Any:
    return None if isinstance(value, Dismissal) else value
