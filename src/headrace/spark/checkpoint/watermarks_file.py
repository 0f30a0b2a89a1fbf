"""Where a query's sources stand: a small file beside its checkpoint, so that other processes can look.

The query writes it after a batch, at most once a second; `headrace watermarks` reads it, also when the query has ended.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "watermarks.json"
_EVERY = 1.0


class StandingFile:
    """Writes where the sources of a query stand."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _FILE
        self._written = 0.0

    def write(self, jobs: dict[str, dict[str, Any]], *, batch: int) -> None:
        """Write it, unless that was done a moment ago.

        Args:
            jobs: Per job its `watermark`, `now` and `partitions`.
            batch: The batch after which it is so.
        """
        if time.monotonic() - self._written < _EVERY:
            return
        self._written = time.monotonic()
        fresh = self._path.with_suffix(".new")
        fresh.write_text(json.dumps({"batch": batch, "jobs": jobs}))
        fresh.replace(self._path)


def read_standing(checkpoint: Path) -> dict[str, dict[str, Any]]:
    """Read where the sources of a query stand, per job; nothing where it has not said so yet."""
    path = checkpoint / _FILE
    try:
        jobs: dict[str, dict[str, Any]] = json.loads(path.read_text())["jobs"]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError) as problem:
        hint = "Remove it; the job writes it anew."
        raise EnvironmentProblem(f"cannot read {path}: {problem}", hint=hint) from problem
    return jobs
