"""Advice to the source, which plans batches in a process of its own: how much to read, and what is worth a wait."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Advice:
    """What the source should know when it plans the next batch.

    Args:
        most: The most events that it may read.
        due: When windows will be complete, in microseconds since the epoch; None where nobody knows.
        patience: For how long a batch may wait for that, in microseconds.

    >>> Advice(most=5_000, due=1_000_300, patience=500_000).wait(now=1_000_000)
    300
    >>> Advice(most=5_000, due=1_000_300, patience=200).wait(now=1_000_000)
    0
    """

    most: int
    due: int | None = None
    patience: int = 0

    def wait(self, now: int) -> int:
        """Tell for how long a batch that could be planned now had better wait, in microseconds."""
        left = 0 if self.due is None else self.due - now
        return left if 0 < left <= self.patience else 0


class AdviceFile:
    """Where the driver leaves its advice for the source.

    Args:
        path: The file.

    >>> import tempfile, pathlib
    >>> file = AdviceFile(pathlib.Path(tempfile.mkdtemp()) / "advice")
    >>> file.read(), file.write(Advice(most=5_000)), file.read()
    (None, None, Advice(most=5000, due=None, patience=0))
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: Advice | None = None

    def write(self, advice: Advice) -> None:
        """Leave advice for the next batch."""
        if advice != self._written:
            fresh = self._path.with_name(f".{self._path.name}.new")
            fresh.write_text(json.dumps(asdict(advice)))
            fresh.replace(self._path)
            self._written = advice

    def read(self) -> Advice | None:
        """Tell the newest advice; None if there is none."""
        try:
            return Advice(**json.loads(self._path.read_text()))
        except FileNotFoundError:
            return None
