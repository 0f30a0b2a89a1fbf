"""Count and name the tests that were skipped: skipped.py REPORT..., as pytest's --junitxml writes them."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET


def skipped(reports: list[Path]) -> dict[str, list[str]]:
    """Give the names of skipped tests by the reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest has written it a moment ago
            for skip in case.iter("skipped"):
                if skip.get("type") == "pytest.skip":
                    found[skip.get("message", "no reason")].append(f"{case.get('classname')}::{case.get('name')}")
    return dict(found)


def summary(found: dict[str, list[str]]) -> str:
    """Say how many were skipped, which, and why."""
    lines = [f"==> {sum(map(len, found.values()))} tests were skipped"]
    for reason, names in sorted(found.items()):
        lines += [f"{reason}:", *(f"  {name}" for name in sorted(names))]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(summary(skipped([Path(name) for name in sys.argv[1:] if Path(name).exists()])) + "\n")
