"""What a broker's log says about why it does not run.

Kafka reports trouble as Java stack traces in a log file. A user wants one sentence and something to do; the table
below knows the usual ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import BrokerError, EnvironmentProblem, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


@dataclass(frozen=True)
class _Cause:
    pattern: re.Pattern[str]
    kind: type[HeadraceError]
    message: str
    hint: str


_CAUSES: tuple[_Cause, ...] = (
    _Cause(
        re.compile(r"No space left on device|Disk quota exceeded|File too large"),
        EnvironmentProblem,
        "The disk of the broker's data directory {data} is full",
        "Free some room, choose another directory (broker.data_directory), or lower the retention of the topics.",
    ),
    _Cause(
        re.compile(r"Address already in use"),
        EnvironmentProblem,
        "The broker's port was taken while it started",
        "Choose another port (broker.port), or 0 for any free one.",
    ),
    _Cause(
        re.compile(r"Failed to acquire lock on file"),
        BrokerError,
        "The data directory {data} is in use by another broker",
        "Stop it, or choose another directory (broker.data_directory).",
    ),
    _Cause(
        re.compile(r"OutOfMemoryError|Could not reserve enough space|Cannot allocate memory|unable to create native"),
        EnvironmentProblem,
        "The broker has too little memory",
        "Raise broker.memory (or lower it, if the machine has less), and look for other large processes.",
    ),
    _Cause(
        re.compile(r"Invalid (maximum|initial) heap size|Too small (maximum|initial) heap"),
        EnvironmentProblem,
        "Java refuses the broker's memory setting",
        "Give broker.memory as a number with m or g, such as 512m.",
    ),
    _Cause(
        re.compile(r"Read-only file system|AccessDeniedException|Permission denied"),
        EnvironmentProblem,
        "The broker cannot write its data directory {data}",
        "Choose another directory (broker.data_directory), or make it writable for you.",
    ),
    _Cause(
        re.compile(r"Invalid cluster\.id|Stored node id|meta\.properties|CorruptRecordException|Corrupt"),
        BrokerError,
        "The data in {data} is damaged or belongs to another broker",
        "Move it away or choose another directory (broker.data_directory) to start afresh.",
    ),
)

# A broker that recovers from a crash speaks of corruption, too, but only warns.
_HARMLESS = re.compile(r"^\S+ (TRACE|DEBUG|INFO|WARN) ")
_SERIOUS = re.compile(r"\b(ERROR|FATAL)\b|Exception|^Error")


def explain(lines: Iterable[str], *, data: Path) -> HeadraceError | None:
    """Find a known cause in a broker's log.

    Args:
        lines: The log, oldest line first; several causes: the first of the table counts, since a full disk makes many.
        data: The broker's data directory, for the message.

    >>> from pathlib import Path
    >>> explain(["java.io.IOException: No space left on device"], data=Path("/data")).message
    "The disk of the broker's data directory /data is full"
    """
    serious = [line for line in lines if not _HARMLESS.match(line)]
    for cause in _CAUSES:
        for line in serious:
            if cause.pattern.search(line):
                return cause.kind(cause.message.format(data=data), hint=cause.hint)
    return None


def worst_line(lines: Iterable[str]) -> str:
    """The last line that looks like an error, for causes nobody has met yet.

    >>> worst_line(["INFO fine", "ERROR Exiting Kafka due to fatal exception", "INFO bye"])
    'ERROR Exiting Kafka due to fatal exception'
    """
    serious = [line.strip() for line in lines if _SERIOUS.search(line)]
    return serious[-1][:300] if serious else ""
