"""Log files of bounded size, for processes that write to a file descriptor and know nothing of it.

Spark's Java process, its Python workers and the commands that `headrace demo` starts write to an inherited standard
error for as long as they run. A `BoundedLog` gives them the end of a pipe; a small process at the other end keeps the
beginning of the run and its newest part (see `headrace.dev.log_writer`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

_WRITER = Path(__file__).with_name("log_writer.py")
#: Bytes of a piece. Four are kept at most: the beginning of the run, its last two, and the last one of the run before.
MOST_BYTES = 8_000_000


class BoundedLog:
    """A log file that others may write to.

    Args:
        path: Where it is. If another process writes there, a number is added to the name.
        most: Bytes of one of its pieces.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with BoundedLog(Path(directory) / "run.log") as log:
    ...         _ = os.write(log.fileno(), b"hello")
    ...     log.path.read_text()
    'hello'
    """

    def __init__(self, path: Path, *, most: int = MOST_BYTES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, lock = _take(path)
        try:
            read_end, self._write_end = os.pipe()
            try:
                self._writer = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(_WRITER), str(self.path), str(most), str(lock)],
                    stdin=read_end,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[lock],
                    # Ctrl-C ends those who are logged, and this one when they have ended.
                    start_new_session=True,
                )
            except OSError:
                os.close(self._write_end)
                raise
            finally:
                os.close(read_end)
        finally:
            os.close(lock)

    def fileno(self) -> int:
        """The file descriptor to write to."""
        return self._write_end

    def release(self) -> None:
        """Write no more from here; others who have the descriptor go on."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def close(self, *, timeout: float = 5.0) -> None:
        """Wait until everything is written, if all who write have ended; go on without waiting after the time-out."""
        self.release()
        try:
            self._writer.wait(timeout)
        except subprocess.TimeoutExpired:
            threading.Thread(target=self._writer.wait, name=f"log {self.path.name}", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def pieces_of(path: Path) -> list[Path]:
    """The files of a log that are there, oldest first, without the run before."""
    names = [path.with_name(path.name + suffix) for suffix in (".first", ".1")]
    return [piece for piece in (*names, path) if piece.exists()]


def _take(path: Path) -> tuple[Path, int]:
    """Find a name that nobody else writes to, and lock it."""
    number = 1
    while True:
        candidate = path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")
        lock = os.open(candidate.with_name(f".{candidate.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return candidate, lock
        os.close(lock)
        number += 1
