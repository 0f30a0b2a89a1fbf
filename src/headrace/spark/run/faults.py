"""Points at which a test can stop a job, to see what it does after that.

A crash between two lines is rare, so tests do not wait for one. Where the environment variable `HEADRACE_FAULTS` names
a directory, each of the points below looks there for a file of its name, removes it, and does what the file says:
`kill` (SIGKILL to this process) or `sleep SECONDS`. Without the variable, nothing is looked at and nothing happens.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Literal

from headrace.errors import ConfigError

Point = Literal[
    "before-transaction",  # a batch is computed, and nothing of it is written
    "in-transaction",  # half of its records are at the broker
    "before-commit",  # all of its records are at the broker, and not committed
    "after-commit",  # it is out, and Spark does not know
    "between-parts",  # some of its transactions are committed, and not all
    "before-sinks",  # it is out on Kafka, and sinks besides Kafka do not have it
    "after-sinks",  # it is out everywhere, and Spark does not know
    "after-token",  # at most once: it counts as out, and nothing of it is written
]
VARIABLE = "HEADRACE_FAULTS"


def armed(point: Point) -> bool:
    """Tell whether something waits at a point."""
    directory = os.environ.get(VARIABLE)
    return bool(directory) and Path(str(directory), point).exists()


def reach(point: Point) -> None:
    """Do what waits at a point, if anything does."""
    directory = os.environ.get(VARIABLE)
    if not directory:
        return
    order = Path(directory) / point
    try:
        told = order.read_text().split()
        order.unlink()
    except FileNotFoundError:  # nothing waits here, or another process was faster
        return
    if told == ["kill"]:
        os.kill(os.getpid(), signal.SIGKILL)
    elif len(told) == 2 and told[0] == "sleep":
        time.sleep(float(told[1]))
    else:
        raise ConfigError(f"{order} says {' '.join(told)!r}", hint="It may say: kill, or sleep SECONDS.")
