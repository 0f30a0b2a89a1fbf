"""What a failed query's long text means, in one line, with what to do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.errors import (
    BrokerError,
    EnvironmentProblem,
    FailedJobError,
    HeadraceError,
    JobError,
    PlanError,
    SchemaError,
    StateError,
)
from headrace.kafka.connection import AccessError
from headrace.kafka.producer import ExpiredError, FencedError, TimeoutTooLongError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The last line of a traceback of a Python worker, for an error of ours, whichever module it is from.
_PYTHON_ERROR = re.compile(r"^headrace\.(?:\w+\.)+([A-Z]\w*): (.+)$", re.MULTILINE)
_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception|Problem)): (.+)$", re.MULTILINE)
_OURS = (
    AccessError,
    BrokerError,
    EnvironmentProblem,
    ExpiredError,
    FencedError,
    JobError,
    PlanError,
    SchemaError,
    StateError,
    TimeoutTooLongError,
)
_KINDS: dict[str, type[HeadraceError]] = {kind.__name__: kind for kind in _OURS}
_LOSS = ("offsets out of range", "data may have been lost", "data may have been missed")

#: What Spark says when a worker has not answered within its 10 or 15 s.
_SLOW_WORKER = ("python worker failed to connect back", "waiting for the python worker to connect back")
_FULL = ("no space left on device", "file too large", "disk quota exceeded")


def is_data_loss(text: str) -> bool:
    """Tell whether a query failed because Kafka no longer holds what it wanted to read."""
    return any(word in text.lower() for word in _LOSS)


def disk_full(checkpoint: Path) -> EnvironmentProblem:
    """Say that there is no room for a checkpoint."""
    return EnvironmentProblem(
        f"the disk is full while writing to {checkpoint}",
        hint="Free some space and start again; the job continues from its checkpoint.",
    )


def explain_failure(text: str, *, topics: Sequence[str], checkpoint: Path) -> HeadraceError:
    """Turn the text of a failed query into an error that says what to do.

    Args:
        text: What Spark said.
        topics: What the query read.
        checkpoint: Where its state is.
    """
    ours = _PYTHON_ERROR.search(text)
    if ours is not None:
        if ours[1] == FailedJobError.__name__:
            return FailedJobError.read(ours[2])
        return _KINDS.get(ours[1], JobError)(ours[2])
    lowered = text.lower()
    if "unknowntopicorpartition" in lowered or "topic not found" in lowered:
        return BrokerError(
            f"a topic is missing: {', '.join(topics)}",
            hint="Create the topics (headrace topics create), or name the broker that has them (--bootstrap).",
        )
    if is_data_loss(text):
        return StateError(
            f"Kafka no longer holds what the job in {checkpoint} wants to read next: the topic was made anew, "
            "or what it held has expired",
            hint="Start afresh (--fresh) to begin with what is there; what is gone cannot be counted.",
        )
    if any(words in lowered for words in _SLOW_WORKER):
        return EnvironmentProblem(
            "a Python worker of Spark did not start in time: the machine is too busy, or short of memory",
            hint="The job continues from its checkpoint when it is started again; give it more cores or memory.",
        )
    if any(word in lowered for word in _FULL):
        return disk_full(checkpoint)
    if "timed out" in lowered and ("kafka" in lowered or "node assignment" in lowered):
        return BrokerError(
            "Kafka did not answer in time",
            hint="See that the broker runs (headrace broker status), then start again: the job continues where it was.",
        )
    lines = _LAST_LINE.findall(text)
    told = [line for line in text.splitlines() if line.strip() and not line.startswith("===")]
    last = f"{lines[-1][0]}: {lines[-1][1]}" if lines else "".join(told[:1]) or "Spark gave no reason"
    return JobError(f"the query failed: {last[:500]}", hint="Spark's log has the rest; --debug shows it.")
