"""Advice to the source, which plans batches in a process of its own: how much to read, and what is worth a wait."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


#: A batch that is begun when it would be so nearly done by then, as a part of itself, is begun.
_NEARLY = 0.3


@dataclass(frozen=True, slots=True)
class Advice:
    """What the source should know when it plans the next batch.

    Args:
        most: The most events that it may read.
        due: When windows will be complete, in microseconds since the epoch; None where nobody knows.
        step: The time from one batch to the next, in microseconds, if nobody waits.
        most_bytes: The most bytes that it may read; None: any number.
        record_bytes: How long records of a partition are, by "topic/partition", as far as batches have read some.

    >>> Advice(most=5_000, due=1_000_000, step=300_000).wait(now=0, since=0)
    333333
    """

    most: int
    due: int | None = None
    step: int = 1
    most_bytes: int | None = None
    record_bytes: dict[str, int] = field(default_factory=dict)

    def wait(self, now: int, since: int) -> int | None:
        """Tell for how long a batch that could be planned now had better wait, so that one begins when windows are due.

        The batches until then are spread evenly: none of them waits long.

        Args:
            now: In microseconds since the epoch.
            since: How long ago the last batch was planned, in microseconds.

        Returns:
            In microseconds; None where nothing is foreseen.
        """
        whole = 0 if self.due is None else self.due - now + since
        if whole <= 0:
            return None
        batches = max(1, int(whole / self.step + _NEARLY))
        return max(0, whole // batches - since)


class AdviceFile:
    """Where the driver leaves its advice for the source.

    Args:
        path: The file.

    >>> import tempfile, pathlib
    >>> file = AdviceFile(pathlib.Path(tempfile.mkdtemp()) / "advice")
    >>> file.read(), file.write(Advice(most=5_000)), file.read()
    (None, None, Advice(most=5000, due=None, step=1, most_bytes=None, record_bytes={}))
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
        """Tell the newest advice; None if there is none, or none that can be read.

        It is not synced, and another version may have written it: a run must not fail for a lack of advice.
        """
        try:
            return Advice(**json.loads(self._path.read_text()))
        except (FileNotFoundError, ValueError, TypeError):
            return None
