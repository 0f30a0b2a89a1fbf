"""`headrace run --watch`: start again whenever a file of the project changes.

The jobs run in a child process, which is stopped in order and continues from its checkpoint. Code that cannot be
imported, or a job that does not fit its state any more, ends the child with its message; the next change starts it
again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import terminal

if TYPE_CHECKING:
    from headrace.cli.stopping import Stop

_ENDINGS = (".py", ".toml", ".sql", ".proto")
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv", "build", "dist"})
_SECONDS = 0.5
_GRACE = 20.0


class FileWatch:
    """Notices when source files below directories change, come or go.

    Args:
        directories: Where to look.

    >>> FileWatch([Path("/nowhere")]).changed()
    []
    """

    def __init__(self, directories: Iterable[Path]) -> None:
        self._directories = list(dict.fromkeys(directories))
        self._seen = self._look()

    def changed(self) -> list[Path]:
        """Give the files that differ from what was seen last."""
        now = self._look()
        found = [path for path in {**self._seen, **now} if self._seen.get(path) != now.get(path)]
        self._seen = now
        return sorted(found)

    def _look(self) -> dict[Path, tuple[int, int]]:
        found: dict[Path, tuple[int, int]] = {}
        for directory in self._directories:
            for folder, names, files in os.walk(directory):
                names[:] = [name for name in names if name not in _SKIPPED and not name.startswith(".")]
                for name in files:
                    if name.endswith(_ENDINGS):
                        found |= _stamp(Path(folder, name))
        return found


def _stamp(path: Path) -> dict[Path, tuple[int, int]]:
    try:
        status = path.stat()
    except OSError:
        return {}
    return {path: (status.st_mtime_ns, status.st_size)}


def run_again(command: Sequence[str], watch: FileWatch, stop: Stop) -> None:
    """Run a command until `stop` is set, anew after each change.

    Args:
        command: What to run.
        watch: Says when.
        stop: Ends it.
    """
    from headrace.dev.process import GuardedProcess

    while not stop.is_set():
        process = GuardedProcess(command, grace=_GRACE, stdout=1, stderr=2)
        ended = False
        try:
            while not stop.wait(_SECONDS):
                if changed := watch.changed():
                    more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
                    terminal.note(f"{changed[0].name}{more} changed: starting again.")
                    break
                if not ended and process.poll() is not None:
                    ended = True
                    terminal.note("The jobs have ended; a change of the project's files starts them again.")
        finally:
            process.stop()
