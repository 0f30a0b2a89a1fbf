"""Patterns of times as Java writes them (`yyyy-MM-dd HH:mm:ss`), which Flink's DATE_FORMAT takes, as `strftime`'s."""

from __future__ import annotations

import re
from typing import Final

_CODES: Final = {
    "yyyy": "%Y",
    "yy": "%y",
    "y": "%Y",
    "u": "%Y",
    "uuuu": "%Y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "M": "%-m",
    "dd": "%d",
    "d": "%-d",
    "DDD": "%j",
    "D": "%-j",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "m": "%-M",
    "ss": "%S",
    "s": "%-S",
    "S": "%3f",
    "SSS": "%3f",
    "SSSSSS": "%6f",
    "SSSSSSSSS": "%9f",
    "a": "%p",
    "EEEE": "%A",
    "EEE": "%a",
    "E": "%a",
    "e": "%u",
    "w": "%V",
    "ww": "%V",
    "X": "Z",
    "XXX": "%:z",
    "Z": "%z",
    "z": "%Z",
}
_PART: Final = re.compile(r"'(?:[^']|'')*'|([A-Za-z])\1*|.", re.DOTALL)


def strftime_of(pattern: str) -> str | None:
    """Translate a pattern; None if it has a letter that is not known.

    >>> strftime_of("yyyy-MM-dd'T'HH:mm"), strftime_of("yyyy-QQ")
    ('%Y-%m-%dT%H:%M', None)
    """
    if "%" in pattern:
        return pattern
    parts: list[str] = []
    for found in _PART.finditer(pattern):
        part = found.group()
        if part.startswith("'"):
            parts.append((part[1:-1].replace("''", "'") or "'").replace("%", "%%"))
        elif found.group(1):
            code = _CODES.get(part)
            if code is None:
                return None
            parts.append(code)
        else:
            parts.append(part)
    return "".join(parts)
