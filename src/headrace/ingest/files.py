"""Files: blocks of bytes from anywhere, decompressed, with a torn end noticed.

A file is a local path or any URL that fsspec understands (`s3://`, `gs://`, `https://`, `memory://`, ...), plain or
compressed by its suffix: .gz, .bz2, .xz, .zst. A file whose writer was killed ends in the middle of a compressed block:
what can be decompressed is read, and `torn` says that the end is missing. Only a last block that is incomplete is a
torn end. Data that contradict themselves (a bad checksum, an impossible code, something else behind a block) are
corruption, which raises. A store that fails is neither: it raises, and whoever reads can try again.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest.connector import SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

BLOCK = 1 << 18
#: No message is as long; a file with such a line is something else.
MAX_LINE = 64 * 1024 * 1024
SUFFIXES = (".gz", ".bz2", ".xz", ".zst")
_CHUNK = 1 << 16
#: What pyarrow says of a Zstandard file that ends in the middle of a frame; anything else is corruption.
_ZSTD_TORN = "Truncated compressed stream"


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
            EnvironmentProblem: The file cannot be opened, or is corrupt.
            ConfigError: The URL is of no kind that can be read here.
            SourceError: The store fails while it is read.
        """
        self.torn = False
        with closing(self._open()) as file:
            suffix = Path(self.path.partition("?")[0]).suffix
            if suffix == ".zst":
                yield from self._zstd(file)
            elif suffix in _DECODERS:
                yield from self._decompressed(file, suffix)
            else:
                while block := self._read(file, BLOCK):
                    yield block

    def _decompressed(self, file: Any, suffix: str) -> Iterator[bytes]:
        """Decompress one stream after the other; the standard library's files ignore what follows the first of them.

        Little by little: what was read before a tear is not lost with it, and a block that expands a thousandfold does
        not fill the memory.
        """
        decoder: _Decoder | None = None
        data, position, size = b"", 0, 0
        while True:
            if not data and (decoder is None or decoder.needs_input):
                data = self._read(file, _CHUNK)
                if not data:
                    break
                position += len(data)
            if decoder is None:
                data = data.lstrip(b"\0")  # streams may be padded
                if not data:
                    continue
                decoder = _DECODERS[suffix]()
            try:
                block, data = decoder.decompress(data)
            except (OSError, zlib.error, lzma.LZMAError) as error:
                raise self._corrupt(error, position, size) from error
            if decoder.eof:
                decoder = None
            if block:
                size += len(block)
                yield block
        self.torn = decoder is not None

    def _zstd(self, file: Any) -> Iterator[bytes]:
        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        size = 0
        while True:
            try:
                block = stream.read1(BLOCK)
            except SourceError:
                raise
            except OSError as error:
                if _ZSTD_TORN in str(error):
                    self.torn = True
                    return
                raise self._corrupt(error, file.tell(), size) from error
            if not block:
                return
            size += len(block)
            yield block

    def _read(self, file: Any, size: int) -> bytes:
        try:
            content: bytes = file.read(size)
        except SourceError:
            raise
        except OSError as error:
            why = error.strerror or error
            raise SourceError(f"{self.path} cannot be read any further: {why}", hint="Is the disk sound?") from error
        return content

    def _corrupt(self, why: Exception, position: int, size: int) -> EnvironmentProblem:
        return EnvironmentProblem(
            f"{self.path} is corrupt at or before offset {position:,}, after {size:,} bytes of content: {why}",
            hint="Copy it again from where it came. What stands before that place was read; nothing behind it can be.",
        )

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


class _Decoder(Protocol):
    """Decompresses one stream of a file."""

    @property
    def eof(self) -> bool:
        """Whether the stream is at its end."""
        ...

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing more without further data."""
        ...

    def decompress(self, data: bytes) -> tuple[bytes, bytes]:
        """Give some content, and the data to go on with: what is behind the stream, after its end."""
        ...


class _Gzip:
    """A member of a gzip file."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._stream.eof

    def decompress(self, data: bytes) -> tuple[bytes, bytes]:
        block = self._stream.decompress(data, BLOCK)
        # A block that is full may have more behind it, with or without data that are left.
        self.needs_input = len(block) < BLOCK
        return block, self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail


class _Stream:
    """A stream of a .bz2 or .xz file; it keeps the data itself that it has not gone through."""

    def __init__(self, stream: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._stream = stream

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return self._stream.needs_input

    def decompress(self, data: bytes) -> tuple[bytes, bytes]:
        block = self._stream.decompress(data, BLOCK)
        return block, self._stream.unused_data if self._stream.eof else b""


_DECODERS: dict[str, Callable[[], _Decoder]] = {
    ".gz": _Gzip,
    ".bz2": lambda: _Stream(bz2.BZ2Decompressor()),
    ".xz": lambda: _Stream(lzma.LZMADecompressor()),
}


def _problem(path: str, why: object) -> EnvironmentProblem:
    return EnvironmentProblem(f"cannot read {path}: {why}", hint="Check the name and its permissions.")
