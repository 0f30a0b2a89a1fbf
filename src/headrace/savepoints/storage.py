"""Where savepoints are kept: a directory, or any place that fsspec knows by a URL.

Names are relative and use slashes. A local file is on the disk when `write` returns.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import EnvironmentProblem, PlanError
from headrace.extras import require
from headrace.savepoints.durable_files import make_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Callable


class Storage(Protocol):
    """A place with files."""

    def read(self, name: str) -> bytes | None:
        """Return a file, or None where there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Keep a file."""
        ...

    def folders(self) -> list[str]:
        """Name the folders right below."""
        ...

    def remove(self) -> None:
        """Remove all that is here; what is not there is fine."""
        ...


class LocalStorage:
    """A directory of this machine.

    Args:
        directory: Which one; it need not exist yet.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def read(self, name: str) -> bytes | None:
        """Return a file, or None where there is none."""
        path = self._directory / name
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Keep a file; when this returns, it is on the disk."""
        path = self._directory / name
        try:
            make_directory(path.parent)
            write_durably(path, content)
        except OSError as problem:
            raise EnvironmentProblem(
                f"cannot write {path}: {problem.strerror or problem}", hint="Name a place that you can write to."
            ) from problem

    def folders(self) -> list[str]:
        """Name the directories right below."""
        if not self._directory.is_dir():
            return []
        return sorted(path.name for path in self._directory.iterdir() if path.is_dir())

    def remove(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self._directory, ignore_errors=True)

    def __str__(self) -> str:
        return str(self._directory)


class RemoteStorage:
    """A folder that fsspec knows by a URL.

    Args:
        url: Where, such as `s3://bucket/savepoints`; the driver for its protocol has to be installed.
    """

    def __init__(self, url: str) -> None:
        require("ingest", by="a savepoint at a URL")
        import fsspec  # type: ignore[import-untyped]

        self._url = url.rstrip("/")
        try:
            self._files, root = fsspec.core.url_to_fs(self._url)
        except (ValueError, ImportError) as problem:
            raise PlanError(
                f"cannot reach {url}: {problem}",
                hint="Give a directory, or a URL whose fsspec driver is installed (s3fs for s3://, gcsfs for gs://).",
            ) from problem
        self._root = str(root).rstrip("/")

    def read(self, name: str) -> bytes | None:
        """Return a file, or None where there is none."""
        try:
            content: bytes = self._done("read", lambda: self._files.cat_file(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None
        return content

    def write(self, name: str, content: bytes) -> None:
        """Keep a file."""
        path = f"{self._root}/{name}"
        self._done("write", lambda: self._files.makedirs(path.rpartition("/")[0], exist_ok=True))
        self._done("write", lambda: self._files.pipe_file(path, content))

    def folders(self) -> list[str]:
        """Name the folders right below."""
        try:
            listed = self._done("list", lambda: self._files.ls(self._root, detail=True))
        except FileNotFoundError:
            return []
        return sorted(each["name"].rstrip("/").rpartition("/")[2] for each in listed if each["type"] == "directory")

    def remove(self) -> None:
        """Remove the folder."""
        try:
            self._done("remove", lambda: self._files.rm(self._root, recursive=True))
        except FileNotFoundError:
            return

    def _done(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except FileNotFoundError:
            raise
        except OSError as problem:
            raise EnvironmentProblem(
                f"cannot {what} {self._url}: {problem}", hint="See that the place exists and that you have the rights."
            ) from problem

    def __str__(self) -> str:
        return self._url


def storage_at(place: str | Path) -> LocalStorage | RemoteStorage:
    """Give the storage at a path or URL.

    >>> str(storage_at("/data/savepoints"))
    '/data/savepoints'
    """
    if isinstance(place, str) and "://" in place and not place.startswith("file://"):
        return RemoteStorage(place)
    return LocalStorage(Path(str(place).removeprefix("file://")))


def below(place: str | Path, name: str) -> str | Path:
    """Name a place below another one."""
    return place / name if isinstance(place, Path) else f"{place.rstrip('/')}/{name}"
