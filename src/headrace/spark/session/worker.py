"""Worker processes: what a process that runs tasks does for itself."""

from __future__ import annotations

import gc
from itertools import count

_tasks = count(1)
#: After its first tasks a process has loaded what it needs; what came later is looked at once more.
_SETTLED_AT = (3, 30)


def settle() -> None:
    """Keep what the process has loaded out of the garbage collector's way; called at the start of every task.

    pyspark lets a worker collect all garbage after every task. That walks through every object of every library that
    was imported, 35 to 60 ms each time: as much as our own work on a small batch, and none of them is ever garbage.
    """
    if next(_tasks) in _SETTLED_AT:
        gc.collect()
        gc.freeze()
