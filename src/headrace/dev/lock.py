"""Remaking `jars.lock`: which jars, at which versions, with which content.

A maintainers' tool, run by hand after a version below was changed:

    python -m headrace.dev.lock

It resolves the roots with all they need, hashes what came, and writes the file. Review the difference like code: it
is what users will run.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.dev import ivy
from headrace.dev.ivy import Coordinate
from headrace.dev.jars import EMBEDDED_BROKER, LOCK_FILE, SPARK_CONNECTOR, Jar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPARK = "4.2.0"
KAFKA = "4.3.1"

ROOTS: Mapping[str, Sequence[str]] = {
    # Spark ships everything else that the connector needs (compressors, slf4j, Scala): a second copy would only clash.
    SPARK_CONNECTOR: [
        f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK}",
        # 4.2.0 of this one could not be had when this was pinned; it only adds delegation tokens, and 4.0.0 fits.
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ],
    # Kafka's own jar names no logging back end, since its distribution adds one: without it, it logs nothing at all.
    EMBEDDED_BROKER: [
        f"org.apache.kafka:kafka_2.13:{KAFKA}",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ],
}


def resolve_roots(*, repository: str | None = None) -> dict[str, list[Jar]]:
    """Find out what the roots need.

    Args:
        repository: Address of a mirror, the public repository if not given.
    """
    sets: dict[str, list[Jar]] = {}
    for name, roots in ROOTS.items():
        coordinates = [Coordinate.parse(root) for root in roots]
        with tempfile.TemporaryDirectory(prefix="headrace-lock-") as work:
            get = ivy.fetch_with_dependencies if name == EMBEDDED_BROKER else ivy.fetch
            found = get(coordinates, Path(work) / "ivy", repository=repository)
            sets[name] = [_pin(coordinate, path) for coordinate, path in sorted(found.items())]
    return sets


def render(sets: Mapping[str, Sequence[Jar]]) -> str:
    """The text of the lock file.

    >>> print(render({"a": [Jar(coordinate=Coordinate("org", "thing", "1"), sha256="ab", size=3)]}))
    # Every jar that Headrace uses. Made by `python -m headrace.dev.lock`; do not edit.
    <BLANKLINE>
    [a]
    "org:thing:1" = { sha256 = "ab", size = 3 }
    <BLANKLINE>
    """
    lines = ["# Every jar that Headrace uses. Made by `python -m headrace.dev.lock`; do not edit."]
    for name, jars in sets.items():
        lines += ["", f"[{name}]"]
        lines += [f'"{jar.coordinate}" = {{ sha256 = "{jar.sha256}", size = {jar.size} }}' for jar in jars]
    return "\n".join(lines) + "\n"


def _pin(coordinate: Coordinate, path: Path) -> Jar:
    content = path.read_bytes()
    return Jar(coordinate=coordinate, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def main() -> int:
    """Remake the lock file of this source tree."""
    sets = resolve_roots()
    LOCK_FILE.write_text(render(sets), "utf-8")
    sys.stdout.write("".join(f"{name}: {len(jars)} jars\n" for name, jars in sets.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
