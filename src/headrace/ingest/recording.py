"""Recordings: raw messages in text files, with the moment of their arrival.

One message is one line: when it arrived, its topic, its payload.

    2020-09-21T03:00:01.148000Z /hfp/v2/journey/ongoing/vp/tram/0040/00456/... {"VP":{"desi":"6", ...}}

A topic may hold spaces, so the payload begins at the first " {". What does not fit into that form (a payload that is no
JSON object or holds a line break, a topic with " {" in it) is written as `base64:<topic> <payload>`, both in Base64, so
that every message comes back exactly as it was.

Files are plain or compressed, by their suffix: .gz, .bz2, .xz, .zst. A file whose writer was killed has a torn end:
half a line, or half a compressed block. A `Recording` reads everything before the tear, and says that there is one.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import gzip
import lzma
import zlib
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

import pyarrow as pa

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest.message import RawMessage

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

Compression = Literal["none", "gz"]

_BLOCK = 1 << 18
#: No message is as long; a file with such a line is something else.
_MAX_LINE = 64 * 1024 * 1024
_ENCODED = "base64:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUFFIXES: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What decompressing a torn or broken file may raise.
_BROKEN = (EOFError, OSError, zlib.error, lzma.LZMAError)


def format_line(message: RawMessage) -> bytes:
    r"""Write a message as a line, its end included.

    >>> format_line(RawMessage("/a b", b'{"x":1}', 1_600_657_201_148_000))
    b'2020-09-21T03:00:01.148000Z /a b {"x":1}\n'
    >>> format_line(RawMessage("/a", b"no JSON", 0))
    b'1970-01-01T00:00:00.000000Z base64:L2E= bm8gSlNPTg==\n'
    """
    topic, payload = message.topic, message.payload
    at = (_EPOCH + timedelta(microseconds=message.arrival)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    plain = (
        payload[:1] == b"{"
        and b"\n" not in payload
        and " {" not in topic
        and "\n" not in topic
        and topic.isprintable()
        and not topic.startswith((_ENCODED, "{"))
    )
    if plain:
        return b"%b %b %b\n" % (at.encode(), topic.encode(), payload)
    name = base64.b64encode(topic.encode("utf-8", "surrogatepass"))
    return b"%b base64:%b %b\n" % (at.encode(), name, base64.b64encode(payload))


def parse_line(line: bytes) -> RawMessage:
    """Read a line without its end.

    Raises:
        ValueError: It is none.

    >>> parse_line(b'2020-09-21T03:00:01.148000Z /a b {"x":1}')
    RawMessage(topic='/a b', payload=b'{"x":1}', arrival=1600657201148000, shift=0, copy=0)
    """
    at, _, rest = line.partition(b" ")
    arrival = _arrival(at)
    if rest.startswith(b"base64:"):
        name, gap, content = rest[len(_ENCODED) :].partition(b" ")
        if not gap:
            raise ValueError("the payload is missing")
        try:
            topic = base64.b64decode(name, validate=True).decode("utf-8", "surrogatepass")
            return RawMessage(topic, base64.b64decode(content, validate=True), arrival)
        except binascii.Error as error:
            raise ValueError(str(error)) from error
    where = rest.find(b" {")
    if where < 0:
        raise ValueError("the payload is missing")
    return RawMessage(rest[:where].decode("utf-8", "replace"), rest[where + 1 :], arrival)


def _arrival(text: bytes) -> int:
    # Arrivals come in order, so the second is nearly always one that was read before.
    if len(text) == 27 and text[26:] == b"Z" and text[20:26].isdigit():
        return _second(text[:20]) + int(text[20:26])
    return _micros(text.decode("ascii"))


@lru_cache(maxsize=1024)
def _second(text: bytes) -> int:
    return _micros(text[:19].decode("ascii"))


def _micros(text: str) -> int:
    at = datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(microseconds=1)


class Recording:
    """A file of recorded messages, read from the beginning as often as it is iterated over.

    Args:
        path: The file; its suffix says how it is compressed.

    After an iteration `torn` says whether the end of the file is missing, and `bad_lines` lists the numbers of lines
    that are no messages (the first hundred of them; `bad_count` has their number).

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "feed.dump")
    ...     _ = path.write_bytes(format_line(RawMessage("/a", b"{}", 0)) + b"1970-01-01T00:0")
    ...     recording = Recording(path)
    ...     len(list(recording)), recording.torn
    (1, True)
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.torn = False
        self.bad_lines: list[int] = []
        self.bad_count = 0

    def check(self) -> RawMessage:
        """See whether the file can be read, and give its first message.

        Raises:
            EnvironmentProblem: It cannot be opened.
            ConfigError: There is no message in it.
        """
        for message in self:
            return message
        raise ConfigError(
            f"{self.path} holds no recorded message", hint="A line is: arrival time, topic, payload, such as {...}."
        )

    def __iter__(self) -> Iterator[RawMessage]:
        self.torn, self.bad_lines, self.bad_count = False, [], 0
        number, rest = 0, b""
        for block in self._blocks():
            lines = (rest + block).split(b"\n") if rest else block.split(b"\n")
            rest = lines.pop()
            if len(rest) > _MAX_LINE:
                raise ConfigError(f"{self.path} is no recording: line {number + len(lines) + 1} has no end")
            for line in lines:
                number += 1
                try:
                    message = parse_line(line.removesuffix(b"\r"))
                except ValueError:
                    if line.strip():
                        self._bad(number)
                    continue
                yield message
        if rest.strip():
            # An editor may have left out the last line's end; a message that ends in the middle shows that it does.
            try:
                if self.torn or not rest.endswith(b"}"):
                    raise ValueError("torn")
                message = parse_line(rest)
            except ValueError:
                self.torn = True
            else:
                yield message

    def _bad(self, number: int) -> None:
        self.bad_count += 1
        if len(self.bad_lines) < 100:
            self.bad_lines.append(number)

    def _blocks(self) -> Iterator[bytes]:
        try:
            file = self._open()
        except OSError as error:
            raise EnvironmentProblem(
                f"cannot read {self.path}: {error.strerror or error}", hint="Check the name and its permissions."
            ) from error
        with closing(file):
            # One step of decompression at a time: what was read before the tear is not lost with it.
            step = getattr(file, "read1", file.read)
            while True:
                try:
                    block = step(_BLOCK)
                except _BROKEN:
                    self.torn = True
                    return
                if not block:
                    return
                yield block

    def _open(self) -> Any:
        if self.path.suffix == ".zst":
            source = pa.OSFile(str(self.path), "rb")
            return pa.CompressedInputStream(source, "zstd")
        opener = _SUFFIXES.get(self.path.suffix)
        return self.path.open("rb") if opener is None else opener(self.path, "rb")


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
