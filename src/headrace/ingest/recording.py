"""Recordings: raw messages in text files, with the moment of their arrival.

One message is one line: when it arrived, its topic, its payload.

    2020-09-21T03:00:01.148000Z /hfp/v2/journey/ongoing/vp/tram/0040/00456/... {"VP":{"desi":"6", ...}}

A topic may hold spaces, so the payload begins at the first " {". What does not fit into that form (a payload that is no
JSON object or holds a line break, a topic with " {" in it) is written as `base64:<topic> <payload>`, both in Base64, so
that every message comes back exactly as it was.

Files are local or anywhere else, plain or compressed; see `files`. A file whose writer was killed has a torn end: half
a line, or half a compressed block. A `Recording` reads everything before the tear, and says that there is one. A file
that is corrupt (a bad checksum) raises instead.
"""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.errors import ConfigError
from headrace.ingest.files import SourceFile
from headrace.ingest.message import RawMessage
from headrace.ingest.messages import Messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from os import PathLike

_ENCODED = "base64:"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: A line as most are: where its topic begins, and how far the lines of a block are looked at together.
_FORM = np.frombuffer(b"0000-00-00T00:00:00.000000Z ", np.uint8)
_TOPIC = len(_FORM)
_HEAD = _TOPIC + len(_ENCODED)
_DIGITS, _MARKS = (np.flatnonzero(np.isin(_FORM, ord("0"), invert=marks)) for marks in (False, True))
_MARK_BYTES = _FORM[_MARKS]
_ENCODED_BYTES = np.frombuffer(_ENCODED.encode(), np.uint8)
_PLACES = 10 ** np.arange(5, -1, -1)


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


def _parse_alike(lines: list[bytes]) -> Messages | None:
    """Read lines that all look as `format_line` writes messages of JSON, or give None: then they are read each."""
    heads = np.frombuffer(b"".join([line[:_HEAD] for line in lines]), np.uint8)
    if not lines or heads.size != _HEAD * len(lines):
        return None
    heads = heads.reshape(-1, _HEAD)
    digits = heads[:, _DIGITS] - ord("0")
    wheres = [line.find(b" {", _TOPIC) for line in lines]
    alike = (digits <= 9).all() and (heads[:, _MARKS] == _MARK_BYTES).all() and min(wheres) >= 0
    if not alike or (heads[:, _TOPIC:] == _ENCODED_BYTES).all(axis=1).any():
        return None
    # Many arrive in the same second.
    turns = np.flatnonzero((heads[1:, :20] != heads[:-1, :20]).any(axis=1)) + 1
    begins = [0, *turns.tolist()]
    try:
        seconds = [_second(lines[begin][:20]) for begin in begins]
    except ValueError:
        return None
    micros = digits[:, -6:] @ _PLACES
    return Messages(
        [line[_TOPIC:where].decode("utf-8", "replace") for line, where in zip(lines, wheres, strict=True)],
        [line[where + 1 :] for line, where in zip(lines, wheres, strict=True)],
        np.repeat(seconds, np.diff([*begins, len(lines)])) + micros,
    )


class Recording:
    """A file of recorded messages, read from the beginning as often as it is iterated over.

    Args:
        path: The file, or its URL; its suffix says how it is compressed.
        storage: Options of the store that a URL leads to.

    After an iteration `torn` says whether the end of the file is missing, and `bad_lines` lists the numbers of lines
    that are no messages (the first hundred of them; `bad_count` has their number).

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "feed.dump")
    ...     _ = path.write_bytes(format_line(RawMessage("/a", b"{}", 0)) + b"1970-01-01T00:0")
    ...     recording = Recording(path)
    ...     len(list(recording)), recording.torn
    (1, True)
    """

    def __init__(self, path: str | PathLike[str], *, storage: Mapping[str, Any] | None = None) -> None:
        self.path = str(path)
        self.torn = False
        self.bad_lines: list[int] = []
        self.bad_count = 0
        self._file = SourceFile(self.path, storage=storage)

    def check(self) -> RawMessage:
        """See whether the file can be read, and give its first message.

        Raises:
            EnvironmentProblem: It cannot be opened.
            ConfigError: There is no message in it.
        """
        for message in self:
            return message
        raise self._no_message()

    def _no_message(self) -> ConfigError:
        """Say why the file holds no message, and what to do about it, by what its first line looks like."""
        first = self._first_line().decode("utf-8", "replace")
        shown = first if len(first) <= 80 else f"{first[:77]}..."
        if first.startswith("{"):
            return ConfigError(
                f"{self.path} holds JSON lines and no recording: its first line is {shown}",
                hint='JSON lines are replayed by the times that they name: put form = "jsonl" and '
                'time = {field = "NAME"} into [feed.replay], and run headrace ingest (docs/mappings.md).',
            )
        if " {" in first:
            return ConfigError(
                f"{self.path} has no arrival times: its first line is {shown}",
                hint="A line is: arrival time, topic, payload. If arrivals were not recorded, put the event time "
                'before each line; docs/ingestion.md, "Without arrival times", has the command.',
            )
        return ConfigError(
            f"{self.path} holds no recorded message" + (f": its first line is {shown!r}" if first else ": it is empty"),
            hint="A line is: arrival time, topic, payload, such as 2020-09-21T03:00:01.148000Z /topic {...}. Tables "
            'are replayed with form = "csv" or "jsonl" (docs/mappings.md).',
        )

    def _first_line(self) -> bytes:
        """Give the first line that is not blank; empty if there is none."""
        for lines in self._file.lines():
            for line in lines:
                if line.strip():
                    return line.strip()
        return self._file.rest.strip()

    def __iter__(self) -> Iterator[RawMessage]:
        return chain.from_iterable(self.blocks())

    def blocks(self) -> Iterator[Messages]:
        """Give the messages, many at a time; never none."""
        self.torn, self.bad_lines, self.bad_count = False, [], 0
        number = 0
        for lines in self._file.lines():
            found = _parse_alike(lines) or self._parse_each(lines, number)
            number += len(lines)
            if found:
                yield found
        self.torn, rest = self._file.torn, self._file.rest
        if rest.strip():
            # An editor may have left out the last line's end; a message that ends in the middle shows that it does.
            try:
                if self.torn or not rest.endswith(b"}"):
                    raise ValueError("torn")
                message = parse_line(rest)
            except ValueError:
                self.torn = True
            else:
                yield Messages.of([message])

    def _parse_each(self, lines: list[bytes], number: int) -> Messages:
        """Read lines one by one, and note those that are no messages; `number` lines were before."""
        found = []
        for line in lines:
            number += 1
            try:
                found.append(parse_line(line))
            except ValueError:
                if line.strip():
                    self._bad(number)
        return Messages.of(found)

    def _bad(self, number: int) -> None:
        self.bad_count += 1
        if len(self.bad_lines) < 100:
            self.bad_lines.append(number)
