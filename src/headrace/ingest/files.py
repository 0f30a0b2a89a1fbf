"""Files: blocks of bytes from anywhere, decompressed, with a torn end noticed.

A file is a local path or any URL that fsspec understands (`s3://`, `gs://`, `https://`, `memory://`, ...), plain or
compressed by its suffix: .gz, .bz2, .xz, .zst. A file whose writer was killed ends in the middle of a compressed block:
what can be decompressed is read, and `torn` says that the end is missing. A store that fails is not a torn file: it
raises, and whoever reads can try again.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest.connector import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

BLOCK = 1 << 18
#: No message is as long; a file with such a line is something else.
MAX_LINE = 64 * 1024 * 1024
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
#: What decompressing a torn or broken file may raise.
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


class SourceFile:
    """A file that is read from the beginning as often as it is asked for.

    Args:
        path: A local path, or a URL.
        storage: Options of the store, such as `{"anon": True}` or `{"endpoint_url": "..."}`, as fsspec takes them.

    After `blocks` is through, `torn` says whether the end is missing; after `lines`, `rest` is what follows the last
    line that has an end.
    """

    def __init__(self, path: str, *, storage: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self.torn = False
        self.rest = b""
        self._storage = dict(storage or {})

    @property
    def is_remote(self) -> bool:
        """Whether it is a URL."""
        return "://" in self.path

    def lines(self) -> Iterator[list[bytes]]:
        """Give the lines, without their ends, some thousands at a time.

        Raises:
            HeadraceError: As `blocks`.
            ConfigError: A line is so long that the file must be something else.
        """
        number, self.rest = 0, b""
        for block in self.blocks():
            content = self.rest + block if self.rest else block
            lines = content.split(b"\n")
            self.rest = lines.pop()
            if b"\r" in content:
                lines = [line.removesuffix(b"\r") for line in lines]
            number += len(lines)
            if len(self.rest) > MAX_LINE:
                raise ConfigError(f"{self.path} is no text: line {number + 1} has no end")
            yield lines

    def blocks(self) -> Iterator[bytes]:
        """Give the content, decompressed, in blocks.

        Raises:
            EnvironmentProblem: The file cannot be opened.
            ConfigError: The URL is of no kind that can be read here.
            SourceError: The store fails while it is read.
        """
        self.torn = False
        with closing(self._open()) as raw:
            file = _decompressed(raw, self.path)
            # One step of decompression at a time: what was read before the tear is not lost with it.
            step = getattr(file, "read1", file.read)
            while True:
                try:
                    block = step(BLOCK)
                except SourceError:
                    raise
                except _BROKEN:
                    self.torn = True
                    return
                if not block:
                    return
                yield block

    def _open(self) -> Any:
        if not self.is_remote:
            try:
                return Path(self.path).open("rb")
            except OSError as error:
                raise _problem(self.path, error.strerror or error) from error
        return _Remote(self.path, self._storage)


class _Remote(io.RawIOBase):
    """A file in a store; whatever the store's library raises becomes one of our errors."""

    def __init__(self, url: str, storage: dict[str, Any]) -> None:
        import fsspec  # type: ignore[import-untyped]

        self._url = url
        try:
            self._file = fsspec.open(url, "rb", **storage).open()
        except FileNotFoundError as error:
            raise _problem(url, "there is no such file") from error
        except ImportError as error:
            raise EnvironmentProblem(
                f"cannot read {url}: {error}", hint="Install the library that it names, beside Headrace."
            ) from error
        except ValueError as error:
            raise ConfigError(f"cannot read {url}: {error}", hint="Check the part before :// and storage.") from error
        except Exception as error:  # every store has errors of its own
            raise _problem(url, error) from error

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        try:
            content: bytes = self._file.read(size)
        except Exception as error:  # every store has errors of its own
            raise SourceError(f"{self._url} cannot be read any further: {error}", hint="Is the store there?") from error
        return content

    def readinto(self, buffer: Any) -> int:
        content = self.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_file"):
            self._file.close()
        super().close()


def _decompressed(raw: Any, path: str) -> Any:
    suffix = Path(path.partition("?")[0]).suffix
    if suffix == ".zst":
        return pa.CompressedInputStream(pa.PythonFile(raw, "r"), "zstd")
    openers: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
    return (
        openers[suffix](io.BufferedReader(raw) if isinstance(raw, io.RawIOBase) else raw) if suffix in openers else raw
    )


def _problem(path: str, why: object) -> EnvironmentProblem:
    return EnvironmentProblem(f"cannot read {path}: {why}", hint="Check the name and its permissions.")
