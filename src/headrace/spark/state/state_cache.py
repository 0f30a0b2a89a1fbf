"""The shelf: what workers wrote to the state store last, at hand for whoever works on the same key group next.

Spark hands state to Python slowly: it writes bytes as text, character by character, and a batch of half a second may
need megabytes. What a turn has written is therefore also put into a file in the directory that Spark gives its workers
for such things, where the next turn finds it, in whichever process of the machine it runs.

The state store stays the only truth. Each turn marks what it wrote with a stamp that nobody had before, in the store
and in the name of its file. The store takes the stamp together with the segments it stands for, or takes neither:
whoever finds a stamp in the store and a file of that name has found what the store holds. Without the file (another
machine, a restart, an attempt that was repeated) the store is asked.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

log = logging.getLogger(__name__)

#: Where Spark tells its workers that they may keep files, which go when the session ends.
_DIRECTORIES = "SPARK_LOCAL_DIRS"
_SUFFIX = ".segments"
_INDEX_SIZE = 8


class Place(NamedTuple):
    """Where a segment is on the shelf."""

    page: str
    offset: int
    length: int


@dataclass(frozen=True)
class Shelf:
    """Files of segments in their stored form, each named by its stamp.

    Args:
        directory: Where they are.

    >>> import tempfile
    >>> shelf = Shelf(Path(tempfile.mkdtemp()))
    >>> first = shelf.put({"a": b"1", "b": b"22"}, {})
    >>> second = shelf.put({"a": b"333"}, {"b": shelf.index(first)["b"]})
    >>> [shelf.read(place) for place in shelf.index(second).values()]
    [b'22', b'333']
    """

    directory: Path

    @classmethod
    def here(cls) -> Shelf | None:
        """The shelf of this worker's machine; None where Spark names no directory."""
        first = os.environ.get(_DIRECTORIES, "").split(",")[0]
        return cls(Path(first)) if first else None

    def put(self, segments: Mapping[str, bytes | None], others: Mapping[str, Place | None]) -> str:
        """Keep what a turn has written, with where to find what it did not touch.

        Args:
            segments: What it wrote or read; None for a segment that the store does not have.
            others: What is on the shelf already.

        Returns:
            Its stamp. Where nothing can be kept, a stamp that no file has.
        """
        stamp = secrets.token_hex(16)
        index = dict(others)
        at = 0
        for name, value in segments.items():
            index[name] = None if value is None else Place(stamp, at, len(value))
            at += len(value or b"")
        head = json.dumps(index).encode()
        try:
            handle = os.open(self._path(stamp), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(len(head).to_bytes(_INDEX_SIZE, "little") + head)
                file.writelines(value for value in segments.values() if value is not None)
        except OSError as problem:
            _warn(self.directory, problem.strerror or str(problem))
            self.discard([stamp])
        return stamp

    def index(self, stamp: str) -> dict[str, Place | None]:
        """Tell what the turn with a stamp left on the shelf, and None for what it knew not to exist.

        Nothing is told if its file cannot be read.
        """
        try:
            with self._path(stamp).open("rb") as file:
                size = int.from_bytes(file.read(_INDEX_SIZE), "little")
                found = json.loads(file.read(size))
        except OSError:
            return {}
        places = {name: None if place is None else Place(*place) for name, place in found.items()}
        own = _INDEX_SIZE + size
        return {
            name: place._replace(offset=place.offset + own) if place is not None and place.page == stamp else place
            for name, place in places.items()
        }

    def read(self, place: Place) -> bytes | None:
        """Give a segment; None if its file has gone or cannot be read: the store has it, too."""
        try:
            with self._path(place.page).open("rb") as file:
                file.seek(place.offset)
                value = file.read(place.length)
        except OSError:
            return None
        return value if len(value) == place.length else None

    def discard(self, stamps: Collection[str]) -> None:
        """Forget the files of some stamps."""
        for stamp in stamps:
            with suppress(OSError):
                self._path(stamp).unlink()

    def _path(self, stamp: str) -> Path:
        return self.directory / f"{stamp}{_SUFFIX}"


@cache
def _warn(directory: Path, problem: str) -> None:
    """Say once per process what every turn would have to say."""
    log.warning("state cannot be kept at hand in %s: %s; the job goes on, slower", directory, problem)
