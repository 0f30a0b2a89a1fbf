"""The recorder: raw messages into files that a `Recording` can read.

Nothing that was flushed is lost when the process is killed: a compressed file gets a complete block at every flush.
"""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest.recording import format_line

if TYPE_CHECKING:
    from os import PathLike

    from headrace.ingest.message import RawMessage

Compression = Literal["none", "gz"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class RecordingFile:
    """One file of messages; compressed if its name ends in .gz.

    Args:
        path: The file, or a URL that fsspec understands; a store may show it only after `close`.
        exclusive: Whether a file that exists already is an error instead of being replaced.

    Raises:
        FileExistsError: It exists, and is to be left alone.
        EnvironmentProblem: It cannot be written.
    """

    def __init__(self, path: str | PathLike[str], *, exclusive: bool = False) -> None:
        self.path = str(path)
        #: Uncompressed bytes so far.
        self.size = 0
        try:
            self._file = self._open("xb" if exclusive else "wb")
        except FileExistsError:
            raise
        except OSError as error:
            raise self._problem(error) from error
        self._squeeze = zlib.compressobj(6, zlib.DEFLATED, 31) if self.path.endswith(".gz") else None

    def _open(self, mode: str) -> Any:
        if "://" not in self.path:
            return Path(self.path).open(mode)
        import fsspec  # type: ignore[import-untyped]

        try:
            return fsspec.open(self.path, mode).open()
        except ImportError as error:
            raise EnvironmentProblem(f"cannot write {self.path}: {error}", hint="Install what it names.") from error
        except ValueError as error:
            raise ConfigError(f"cannot write {self.path}: {error}", hint="Check the part before ://.") from error

    def write(self, message: RawMessage) -> None:
        """Write a message; it is safe after the next `flush`.

        Raises:
            EnvironmentProblem: The disk does not take it.
        """
        line = format_line(message)
        self.size += len(line)
        self._put(line if self._squeeze is None else self._squeeze.compress(line))

    def flush(self) -> None:
        """Bring everything to the operating system, in a form that can be read if nothing follows.

        Raises:
            EnvironmentProblem: The disk does not take it.
        """
        if self._squeeze is not None:
            self._put(self._squeeze.flush(zlib.Z_SYNC_FLUSH))
        try:
            self._file.flush()
        except OSError as error:
            raise self._problem(error) from error

    def close(self) -> None:
        """Finish the file.

        Raises:
            EnvironmentProblem: The disk does not take its end.
        """
        if self._file.closed:
            return
        try:
            if self._squeeze is not None:
                self._put(self._squeeze.flush())
        finally:
            self._file.close()

    def _put(self, content: bytes) -> None:
        try:
            self._file.write(content)
        except OSError as error:
            raise self._problem(error) from error

    def _problem(self, error: OSError) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"cannot record to {self.path}: {error.strerror or error}", hint="Check free space and permissions."
        )


class Recorder:
    """Writes messages to files, a new one now and then.

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
        self._suffix = ".dump.gz" if compression == "gz" else ".dump"
        self._max_bytes, self._max_micros = max_bytes, int(max_seconds * 1e6)
        self._file: RecordingFile | None = None
        self._first = 0

    def write(self, message: RawMessage) -> None:
        """Write a message; it is safe after the next `flush`.

        Raises:
            EnvironmentProblem: The disk does not take it.
        """
        file = self._file
        if file is None or file.size >= self._max_bytes or message.arrival - self._first >= self._max_micros:
            self.close()
            file = self._begin(message.arrival)
        file.write(message)

    def flush(self) -> None:
        """Bring everything to the operating system, in a form that can be read if nothing follows."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _begin(self, arrival: int) -> RecordingFile:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot record to {self.folder}: {error.strerror or error}", hint="Check its name and permissions."
            ) from error
        at = (_EPOCH + timedelta(microseconds=arrival)).strftime("%Y%m%dT%H%M%S.%fZ")
        path, again = self.folder / f"{self._prefix}-{at}{self._suffix}", 1
        while True:
            try:
                file = self._file = RecordingFile(path, exclusive=True)
                break
            except FileExistsError:
                path, again = self.folder / f"{self._prefix}-{at}-{again}{self._suffix}", again + 1
        self.files.append(path)
        self._first = arrival
        return file
