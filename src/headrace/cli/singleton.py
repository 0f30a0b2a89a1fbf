"""One demo per home directory.

The lock is a file lock: the kernel releases it when its holder dies, so a crash leaves nothing to clean up by hand.
The file says who holds it, for the message to whoever comes second.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import EnvironmentProblem


@contextmanager
def only_one(path: Path, *, what: str) -> Iterator[None]:
    """Hold a lock for the length of a block.

    Args:
        path: The lock file; its directory is made.
        what: What holds it, for the error.

    Raises:
        EnvironmentProblem: Somebody else holds it, or the directory cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise EnvironmentProblem(
            f"cannot write {path.parent}: {error.strerror}",
            hint="Make it writable, or set paths.home (HEADRACE_HOME) to a directory of yours.",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip() or "unknown"
            raise EnvironmentProblem(
                f"{what} is already running: process {holder}, data in {path.parent}",
                hint=f"Stop it (Ctrl-C there, or kill {holder}), or use another directory: HEADRACE_HOME=DIR.",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(descriptor)
