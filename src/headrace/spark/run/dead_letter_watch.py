"""Notices when most of the input of a query becomes dead letters.

A query that refuses nearly everything runs well otherwise: batches are quick, nothing is behind, nothing fails. It is
a wrong topic, a wrong type, or a producer that has changed its format. The watch looks at the share of refused records
over the last batches and says when it is above a half, with the first reason and a sample, and when that is over.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.formats.origin import origin
from headrace.spark.run.progress import DeadLetterAlarm
from headrace.spark.source.exchange import frames
from headrace.stream.intake import ORIGINAL

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The share of refused records above which the watch speaks, and how many records have to be known for that.
SHARE = 0.5
RECORDS = 100
#: Batches that are looked at; more where they hold fewer than `RECORDS`.
BATCHES = 20
#: A change of the share that is worth another word.
_STEP = 0.05
#: Characters of a sample and of a reason.
MOST_SAMPLE = 200
MOST_REASON = 300
#: Bytes of a record that are looked at for a sample.
_LOOKED_AT = 2_000

_SECRET = re.compile(
    r"""((?:pass(?:word|wd|phrase)?|secret|token|api[_-]?key|access[_-]?key|credentials?|authorization|cookie)
    [\w-]*["']?\s*[:=]\s*)("[^"]*"?|'[^']*'?|(?:bearer|basic)\s+\S+|[^\s,;&}\]]+)""",
    re.IGNORECASE | re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Refused:
    """One refused record.

    Args:
        reason: Why, and where it was.
        sample: The start of its value.
    """

    reason: str
    sample: str


def printable(value: bytes) -> str:
    r"""The start of a value for people: on one line, without control characters, without what looks like a secret.

    >>> printable(b'{"speed": \x00 "fast"}\n'), printable(b"\xff\xfe\x1b[31m")
    ('{"speed": \\x00 "fast"}\\n', '\\xff\\xfe\\x1b[31m')
    >>> printable(b'{"user": "me", "password": "hunter2", "speed": 3}')
    '{"user": "me", "password": ***, "speed": 3}'
    """
    text = value[:_LOOKED_AT].decode("utf-8", "backslashreplace")
    text = _SECRET.sub(r"\1***", text)
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return shown if len(shown) <= MOST_SAMPLE else shown[: MOST_SAMPLE - 3] + "..."


def first_refused(bodies: Mapping[str, list[bytes]]) -> Refused | None:
    """Find the first refused record among the bodies of a job, which is a row of a dead letter or a dismissed row."""
    for kind in ("dead", "dismissed"):
        for frame in frames(bodies.get(kind, ())[:1]):
            if frame.height:
                return _refused(frame.row(0, named=True), kind)
    return None


def _refused(row: Mapping[str, object], kind: str) -> Refused:
    value = row.get("value" if kind == "dead" else ORIGINAL)
    if not isinstance(value, bytes):
        shown = {name: each for name, each in row.items() if name not in ("reason", ORIGINAL)}
        value = b"" if kind == "dead" else repr(shown).encode()
    elif kind == "dismissed":
        value = origin(value).value
    text = row.get("text")
    reason = f"{row.get('reason')}: {text}" if text else f"{row.get('reason')}"
    if row.get("topic") is not None:
        reason += f" ({row['topic']} partition {row.get('partition')} offset {row.get('offset')})"
    return Refused(_reason(reason), printable(value))


def _reason(text: str) -> str:
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return shown[:MOST_REASON]


class DeadLetterWatch:
    """Follows the batches of a query.

    >>> watch = DeadLetterWatch()
    >>> watch.after(records=60, refused=60, first=Refused("malformed", "x")) is None
    True
    >>> watch.after(records=60, refused=60, first=None).to_dict()["text"]
    '100 % of the last 120 records became dead letters. The first reason: malformed. Sample: x'
    >>> watch.after(records=500, refused=0, first=None).active
    False
    """

    def __init__(self) -> None:
        self._batches: deque[tuple[int, int, Refused | None]] = deque()
        self._told: float | None = None
        self._first = Refused("", "")

    def after(self, *, records: int, refused: int, first: Refused | None) -> DeadLetterAlarm | None:
        """Take a batch.

        Args:
            records: Records that it read.
            refused: Those of them that became dead letters.
            first: The first of those.

        Returns:
            What is new: that most records are refused, or no longer; None if nothing has changed.
        """
        if records <= 0:
            return None
        self._batches.append((records, min(refused, records), first))
        known = sum(each for each, _, _ in self._batches)
        while len(self._batches) > BATCHES and known - self._batches[0][0] >= RECORDS:
            known -= self._batches.popleft()[0]
        share = sum(each for _, each, _ in self._batches) / known
        if share > SHARE and known >= RECORDS:
            if self._told is None:
                self._first = next((each for _, _, each in self._batches if each is not None), Refused("not known", ""))
            elif abs(share - self._told) < _STEP:
                return None
            self._told = share
            return DeadLetterAlarm(True, share, known, self._first.reason, self._first.sample)
        if self._told is not None and share <= SHARE:
            self._told = None
            return DeadLetterAlarm(False, share, known, self._first.reason, self._first.sample)
        return None
