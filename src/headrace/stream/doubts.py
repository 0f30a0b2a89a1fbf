"""What a stream says and its author hardly meant: it runs, but its results will surprise.

A number without a unit counts microseconds, as in `timedelta(microseconds=10)`: `tumbling(10)` has windows of 10
microseconds. That is what the engine works with, and what tests of operators say; few jobs mean it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.stream.stream import Stream

_SHORT = re.compile(r"(?<![0-9a-z] )\b[1-9][0-9]{0,2}us\b")


def doubts(stream: Stream) -> tuple[str, ...]:
    """Give a sentence for each step that takes times in microseconds.

    Args:
        stream: The stream.

    >>> import polars as pl
    >>> from headrace import Stream, bounded, tumbling
    >>> from headrace.windows import count
    >>> doors = Stream.rows("doors", {"door": pl.String}).watermark(bounded("1s")).key_by("door")
    >>> print(*doubts(doors.window(tumbling(10)).aggregate(n=count())))
    window tumbling(10us): that is 10 millionths of a second. A number without a unit counts microseconds; write "10s".
    """
    found = []
    for line in stream.explain().splitlines():
        for length in _SHORT.findall(line):
            number = length.removesuffix("us")
            found.append(
                f"{line.strip()}: that is {number} millionths of a second. A number without a unit counts "
                f'microseconds; write "{number}s".'
            )
    return tuple(dict.fromkeys(found))
