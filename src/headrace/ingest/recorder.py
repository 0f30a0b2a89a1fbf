"""The recorder: raw messages into files that a `Recording` can read, a new file now and then."""

from __future__ import annotations

import zlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest.recording import format_line

if TYPE_CHECKING:
    from os import PathLike

    from headrace.ingest.message import RawMessage

Compression = Literal["none", "gz"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Recorder:
    """Writes messages to files that a `Recording` can read, a new file now and then.

    Nothing that was flushed is lost when the process is killed: compressed files get a complete block at every flush.
    Files are named after the first arrival in them, such as `feed-20200921T030001.148000Z.dump.gz`.

    Args:
        folder: Where the files go; made if it is missing.
        prefix: What their names begin with.
        compression: "gz" or "none".
        max_bytes: Uncompressed bytes after which a new file begins.
        max_seconds: Seconds between the first and the last arrival in a file.
    """

    def __init__(
        self,
        folder: str | PathLike[str],
        *,
        prefix: str = "feed",
        compression: Compression = "gz",
        max_bytes: int = 1 << 30,
        max_seconds: float = 3600.0,
    ) -> None:
        if max_bytes < 1 or not max_seconds > 0:
            raise ConfigError(f"max_bytes is {max_bytes}, max_seconds {max_seconds}", hint="Both must be above 0.")
        self.folder = Path(folder)
        self.files: list[Path] = []
        self._prefix = prefix
        self._compression = compression
        self._max_bytes, self._max_micros = max_bytes, int(max_seconds * 1e6)
        self._file: BinaryIO | None = None
        self._squeeze: zlib._Compress | None = None
        self._first = self._bytes = 0

    def write(self, message: RawMessage) -> None:
        """Write a message; it is safe after the next `flush`.

        Raises:
            EnvironmentProblem: The disk does not take it.
        """
        try:
            full = self._bytes >= self._max_bytes or message.arrival - self._first >= self._max_micros
            if self._file is None or full:
                self._end()
                self._begin(message.arrival)
            line = format_line(message)
            self._bytes += len(line)
            assert self._file is not None  # noqa: S101  _begin sets it
            self._file.write(line if self._squeeze is None else self._squeeze.compress(line))
        except OSError as error:
            raise self._problem(error) from error

    def flush(self) -> None:
        """Bring everything to the operating system, in a form that can be read if nothing follows."""
        try:
            if self._file is not None:
                if self._squeeze is not None:
                    self._file.write(self._squeeze.flush(zlib.Z_SYNC_FLUSH))
                self._file.flush()
        except OSError as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """Finish the file."""
        try:
            self._end()
        except OSError as error:
            raise self._problem(error) from error

    def _begin(self, arrival: int) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        at = (_EPOCH + timedelta(microseconds=arrival)).strftime("%Y%m%dT%H%M%S.%fZ")
        suffix = ".dump.gz" if self._compression == "gz" else ".dump"
        path, again = self.folder / f"{self._prefix}-{at}{suffix}", 1
        while True:
            try:
                self._file = path.open("xb")
                break
            except FileExistsError:
                path, again = self.folder / f"{self._prefix}-{at}-{again}{suffix}", again + 1
        self._squeeze = zlib.compressobj(6, zlib.DEFLATED, 31) if self._compression == "gz" else None
        self.files.append(path)
        self._first, self._bytes = arrival, 0

    def _end(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with closing(file):
                if self._squeeze is not None:
                    file.write(self._squeeze.flush())

    def _problem(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"cannot record to {self.folder}: {error.strerror or error}", hint="Check free space and permissions."
        )
