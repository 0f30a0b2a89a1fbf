"""A process that writes what others say to a log file of bounded size.

Run as a script, by path and without site packages, so that it starts in milliseconds and needs nothing:

    python -I -S log_writer.py PATH MOST_BYTES LOCK_FD

It reads standard input until everybody who could write there is gone, so that nothing is lost when the process that is
logged is killed. The log is kept in pieces of at most MOST_BYTES: PATH is the newest, PATH.1 the one before, and
PATH.first the beginning of the run, which says how it was started. Pieces in between are removed. The log of the run
before is PATH.old. So there are four files at most. LOCK_FD is held while the process runs, so that nobody else takes
the same file.

See `headrace.dev.logs` for the side of the one who is logged.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

_CHUNK = 65_536
_FIRST, _BEFORE, _OLD = ".first", ".1", ".old"


class Pieces:
    """A log in pieces.

    Args:
        path: The newest piece.
        most: Bytes of each.
    """

    def __init__(self, path: str, most: int) -> None:
        self._path = path
        self._most = most
        self._size = 0
        self._has_first = False
        for suffix in (_FIRST, _BEFORE):
            with contextlib.suppress(OSError):
                os.unlink(path + suffix)  # noqa: PTH108
        with contextlib.suppress(OSError):
            os.replace(path, path + _OLD)  # noqa: PTH105
        self._file = self._open()

    def write(self, data: bytes) -> None:
        """Append; a disk that is full loses what does not fit, and the writer goes on."""
        while data:
            room = self._most - self._size
            if len(data) <= room:
                self._put(data)
                return
            # The last line that fits ends a piece; a line that is longer than a whole piece is torn.
            end = data.rfind(b"\n", 0, room) + 1
            if not end and not self._size:
                end = room
            self._put(data[:end])
            data = data[end:]
            self._next()

    def close(self) -> None:
        """End."""
        with contextlib.suppress(OSError):
            os.close(self._file)

    def _put(self, part: bytes) -> None:
        self._size += len(part)
        with contextlib.suppress(OSError):
            while part:
                part = part[os.write(self._file, part) :]

    def _next(self) -> None:
        self.close()
        with contextlib.suppress(OSError):
            os.replace(self._path, self._path + (_BEFORE if self._has_first else _FIRST))  # noqa: PTH105
        self._has_first = True
        self._file = self._open()
        self._size = 0

    def _open(self) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
        try:
            return os.open(self._path, flags, 0o644)
        except OSError:
            # Whoever is logged must not be blocked because its log cannot be written.
            return os.open(os.devnull, os.O_WRONLY)


def main(path: str, most: int) -> None:
    """Write until there is nobody left who could say something."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pieces = Pieces(path, most)
    while data := os.read(0, _CHUNK):
        pieces.write(data)
    pieces.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
