"""Files that survive a power cut: synced before they get their name, and the directory after it."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_durably(path: Path, content: str | bytes) -> None:
    """Replace a file, as a whole or not at all; when this returns, the content is on the disk.

    Args:
        path: The file.
        content: What it holds from now on; text is written as UTF-8.
    """
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    with fresh.open("wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_directory(path.parent)


def make_directory(path: Path) -> None:
    """Make a directory, with those above it that are missing; when this returns, all of their names are on the disk."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for made in reversed(missing):
        sync_directory(made.parent)


def sync_file(path: Path) -> None:
    """Bring a file that somebody else has written to the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Bring the names in a directory to the disk: files that were made, renamed or removed there."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
