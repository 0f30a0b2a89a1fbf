"""Logs of Headrace's own code: as text for people or as JSON for programs, each record with the id of its batch.

A batch has one id from its plan to its commit, the same when it is repeated after a failure. It is in the log records
that are written while the batch is under way, in the progress events of `headrace run --json`, and in the record of
`headrace.progress`, so that a line of a log can be found again there.

>>> import logging, sys
>>> handler = handler_for("json", sys.stdout)
>>> record = logging.LogRecord("headrace.example", logging.WARNING, "example.py", 1, "%s rows are late", (3,), None)
>>> with in_batch("9d1c"):
...     told = json.loads(handler.format(record)) if handler.filter(record) else {}
>>> told["level"], told["message"], told["batch"]
('WARNING', '3 rows are late', '9d1c')
"""

from __future__ import annotations

import json
import logging
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_batch: ContextVar[str] = ContextVar("batch", default="")
#: What a record has besides its message; the field `figures` of a record is written as it is.
_FIGURES = "figures"
_OURS = ("headrace", "headrace_transit")


@contextmanager
def in_batch(name: str) -> Iterator[None]:
    """Give the records that this thread logs inside the block the id of a batch."""
    token = _batch.set(name)
    try:
        yield
    finally:
        _batch.reset(token)


def configure_logs(log_format: LogFormat = "text", level: LogLevel = "warning", stream: IO[str] | None = None) -> None:
    """Write the logs of this process to standard error.

    Args:
        log_format: For people, or a JSON object per line.
        level: The least level of Headrace's own records; others are written from "warning" on.
        stream: Where to; standard error if not given.
    """
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(handler)
    root.addHandler(handler_for(log_format, stream))
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())


def handler_for(log_format: LogFormat, stream: IO[str] | None = None) -> logging.Handler:
    """Make a handler that writes records to a stream; to what is standard error at the time if none is given."""
    handler = _Handler(stream)
    handler.setFormatter(_JsonLines() if log_format == "json" else _Text())
    handler.addFilter(_with_batch)
    return handler


class _Handler(logging.StreamHandler[IO[str]]):
    """Known by its type, so that configuring twice does not write everything twice."""

    def __init__(self, stream: IO[str] | None) -> None:
        super().__init__(stream or sys.stderr)
        self._to_stderr = stream is None

    def emit(self, record: logging.LogRecord) -> None:
        if self._to_stderr:
            self.stream = sys.stderr
        super().emit(record)


def _with_batch(record: logging.LogRecord) -> bool:
    record.batch = _batch.get()
    return True


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Text(logging.Formatter):
    """One line, and the traceback below it if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        name = getattr(record, "batch", "")
        batch = f" [batch {name}]" if name else ""
        line = f"{_time(record)} {record.levelname} {record.name}{batch}: {record.getMessage()}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonLines(logging.Formatter):
    """One JSON object per record; line breaks are inside its strings."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        batch = getattr(record, "batch", "")
        if batch:
            told["batch"] = batch
        if record.exc_info:
            told["exception"] = self.formatException(record.exc_info)
        figures = getattr(record, _FIGURES, None)
        if isinstance(figures, dict):
            told.update({name: value for name, value in figures.items() if name not in told})
        return json.dumps(told, default=str)
