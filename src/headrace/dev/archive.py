"""Class data archives: what makes the second start of a broker twice as fast as the first.

A JVM spends most of a start on loading classes. It can write what it loaded into an archive when it ends, and map that
into memory at the next start. The first broker that ends cleanly leaves such an archive beside the jars; which one fits
depends on the Java and on the very files of the class path.

An archive is written as a draft and takes its name only after a clean end: a JVM that was killed may leave half of one.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.dev.java import Java

_DRAFT = ".draft"
_STALE_SECONDS = 120
CLEAN_EXITS = (0, 143)
"""Exit statuses of a JVM that ended in order, by itself or after SIGTERM."""


@dataclass(frozen=True, kw_only=True)
class ClassArchive:
    """The archive of one Java and one class path.

    Args:
        path: Where it is, or will be.
    """

    path: Path

    @classmethod
    def of(cls, java: Java, jars: Sequence[Path], *, directory: Path) -> ClassArchive:
        """The archive that fits.

        Args:
            java: The Java that runs.
            jars: The class path.
            directory: Where archives are kept.
        """
        key = hashlib.sha256(f"{java.executable.resolve()} {java.version}".encode())
        for jar in jars:
            stat = jar.stat()
            key.update(f"{jar} {stat.st_size} {stat.st_mtime_ns}\n".encode())
        return cls(path=directory / f"classes-{key.hexdigest()[:16]}.jsa")

    def options(self) -> tuple[list[str], str]:
        """Options of the JVM that use the archive, or make it if there is none.

        Returns:
            The options, and the path of the draft that the JVM will leave (empty if it leaves none).
        """
        # Whatever is wrong with an archive, the JVM starts without it; it need not talk about that.
        quiet = ["-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr"]
        self._remove_stale()
        if self.path.exists():
            return [*quiet, f"-XX:SharedArchiveFile={self.path}"], ""
        draft = self.path.with_suffix(f".{os.getpid()}-{time.monotonic_ns()}{_DRAFT}")
        return [*quiet, f"-XX:ArchiveClassesAtExit={draft}"], str(draft)

    def _remove_stale(self) -> None:
        for draft in self.path.parent.glob(f"classes-*{_DRAFT}"):
            with contextlib.suppress(OSError):
                if time.time() - draft.stat().st_mtime > _STALE_SECONDS:
                    draft.unlink()


def adopt(draft: Path, *, clean: bool) -> None:
    """Take over what a JVM left when it ended.

    Args:
        draft: Where it was to leave it.
        clean: Whether it ended in order.
    """
    name = draft.name.partition(".")[0] + ".jsa"
    with contextlib.suppress(OSError):  # it is only about speed
        if not clean:
            draft.unlink(missing_ok=True)
            return
        draft.replace(draft.with_name(name))
        for other in draft.parent.glob("classes-*.jsa"):
            if other.name != name:
                other.unlink()
