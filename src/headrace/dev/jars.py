"""The jars that Headrace needs: pinned, resolved once, verified always.

There are two sets. `EMBEDDED_BROKER` is a Kafka server with everything below it. `SPARK_CONNECTOR` is Spark's own
source and sink for Kafka: jobs read and write Kafka from Python and do not load it; a program that calls
`spark.readStream.format("kafka")` itself does. `jars.lock`, beside this module, lists every jar of both with its size
and SHA-256; no version is ever decided at run time.

A `JarCache` is a directory of jars shared by all projects of a user. Asking it for a set costs a few file stats when
the jars are there: a stamp file remembers the size and modification time at which each was last found to be right.
What the stamps do not cover is hashed; what is missing or damaged is fetched again. Several processes may ask at
once.

Maintainers remake the lock file with `python -m headrace.dev.lock`.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import logging
import os
import shutil
import tempfile
import threading
import tomllib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace.dev import ivy
from headrace.dev.ivy import Coordinate
from headrace.dev.progress import Progress, silent
from headrace.errors import ConfigError, EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.dev.java import Java

log = logging.getLogger(__name__)

LOCK_FILE = Path(__file__).with_name("jars.lock")
SetName = Literal["spark-connector", "embedded-broker"]
SPARK_CONNECTOR: SetName = "spark-connector"
EMBEDDED_BROKER: SetName = "embedded-broker"


@dataclass(frozen=True, kw_only=True)
class Jar:
    """One pinned jar."""

    coordinate: Coordinate
    sha256: str
    size: int

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        return self.coordinate.file_name


@dataclass(frozen=True, kw_only=True)
class JarProblem:
    """A jar that is not as the lock file says."""

    jar: Jar
    path: Path
    kind: Literal["missing", "damaged"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.path} is {self.kind}" + (f" ({self.detail})" if self.detail else "")


def read_lock(path: Path = LOCK_FILE) -> dict[str, tuple[Jar, ...]]:
    """Read a lock file: the jars of each set.

    >>> {jar.coordinate.version for jar in read_lock()["spark-connector"] if jar.coordinate.artifact == "kafka-clients"}
    {'3.9.2'}
    """
    content = tomllib.loads(path.read_text("utf-8"))
    return {
        name: tuple(
            Jar(coordinate=Coordinate.parse(coordinate), sha256=pin["sha256"], size=pin["size"])
            for coordinate, pin in pins.items()
        )
        for name, pins in content.items()
    }


@cache
def pinned(name: SetName) -> tuple[Jar, ...]:
    """The jars of a set, as the lock file of this version of Headrace pins them."""
    return read_lock()[name]


def default_directory(environ: Mapping[str, str] | None = None) -> Path:
    """Where jars are kept: `$HEADRACE_HOME/jars`, else the user's cache directory.

    >>> default_directory({"HEADRACE_HOME": "/srv/headrace"}).as_posix()
    '/srv/headrace/jars'
    """
    env = os.environ if environ is None else environ
    if home := env.get("HEADRACE_HOME"):
        return Path(home).expanduser() / "jars"
    if caches := env.get("XDG_CACHE_HOME"):
        return Path(caches).expanduser() / "headrace" / "jars"
    return Path.home() / ".cache" / "headrace" / "jars"


class JarCache:
    """A directory of verified jars.

    Args:
        directory: Where they are kept; see `default_directory`.
        repository: Address of a mirror of the public Maven repository (`https:` or `file:`); the environment variable
            `HEADRACE_JAR_REPOSITORY` names one, too.
        java: The Java to run Ivy with, found when it is needed if not given.

    Raises:
        ConfigError: The directory's name cannot be part of a class path.

    >>> jars = JarCache().get(SPARK_CONNECTOR)  # doctest: +SKIP
    >>> [path.name for path in jars]  # doctest: +SKIP
    ['commons-pool2-2.13.1.jar', 'kafka-clients-3.9.2.jar', ...]
    """

    def __init__(
        self, directory: Path | None = None, *, repository: str | None = None, java: Java | None = None
    ) -> None:
        self.directory = (directory or default_directory()).expanduser().absolute()
        if {":", ","} & set(str(self.directory)):
            raise ConfigError(
                f"Jars cannot be kept in {self.directory}: Java takes a colon, and Spark a comma, for a list",
                hint="Choose another directory (paths.jars, or HEADRACE_HOME).",
            )
        self._repository = repository or os.environ.get("HEADRACE_JAR_REPOSITORY") or None
        self._java = java

    def get(self, jars: SetName | Sequence[Jar], *, progress: Progress = silent) -> tuple[Path, ...]:
        """Make sure that jars are there and right, fetching what is not.

        Args:
            jars: The name of a set, or pinned jars.
            progress: Told what is fetched, in bytes done of bytes total.

        Returns:
            Their paths, in the order of the lock file.

        Raises:
            EnvironmentProblem: A jar cannot be had, is not what the lock file says, or the directory cannot be written.
        """
        wanted = pinned(jars) if isinstance(jars, str) else tuple(jars)
        paths = tuple(self.directory / jar.file_name for jar in wanted)
        stamps = _Stamps.read(self.directory)
        if all(stamps.cover(jar, path) for jar, path in zip(wanted, paths, strict=True)):
            return paths
        with _explain_os_errors(self.directory), self._locked(progress):
            # Another process may have done the work while this one waited.
            problems = self._verify(wanted, full=False)
            if problems:
                self._repair(problems, progress)
        return paths

    def check(self, jars: SetName | Sequence[Jar], *, full: bool = True) -> list[JarProblem]:
        """Find what is wrong with jars, and change nothing.

        Args:
            jars: The name of a set, or pinned jars.
            full: Hash every jar, even those whose stamp says that nothing changed.
        """
        wanted = pinned(jars) if isinstance(jars, str) else tuple(jars)
        stamps = _Stamps.read(self.directory)
        found = (self._problem(jar, stamps, full=full) for jar in wanted)
        return [problem for problem in found if problem is not None]

    def _problem(self, jar: Jar, stamps: _Stamps, *, full: bool) -> JarProblem | None:
        path = self.directory / jar.file_name
        try:
            size = path.stat().st_size
            if not full and stamps.cover(jar, path):
                return None
            if size != jar.size:
                detail = f"{size} bytes instead of {jar.size}"
                return JarProblem(jar=jar, path=path, kind="damaged", detail=detail)
            digest = _sha256(path)
        except FileNotFoundError:
            return JarProblem(jar=jar, path=path, kind="missing")
        if digest != jar.sha256:
            detail = f"SHA-256 {digest} instead of {jar.sha256}"
            return JarProblem(jar=jar, path=path, kind="damaged", detail=detail)
        return None

    def _verify(self, wanted: Sequence[Jar], *, full: bool) -> list[JarProblem]:
        stamps = _Stamps.read(self.directory)
        problems: list[JarProblem] = []
        for jar in wanted:
            problem = self._problem(jar, stamps, full=full)
            if problem is None:
                stamps.add(jar, self.directory / jar.file_name)
            else:
                problems.append(problem)
        stamps.write()
        return problems

    def _repair(self, problems: Sequence[JarProblem], progress: Progress) -> None:
        for problem in problems:
            if problem.kind == "damaged":
                log.warning("%s; fetching it again", problem)
                progress(f"{problem}; fetching it again")
        jars = {problem.jar.coordinate: problem.jar for problem in problems}
        total = sum(jar.size for jar in jars.values())
        done = 0
        guard = threading.Lock()

        def arrived(coordinate: Coordinate) -> None:
            nonlocal done
            with guard:
                done += jars[coordinate].size if coordinate in jars else 0
                progress(f"fetched {coordinate.file_name}", done=done, total=total)

        count = f"{len(jars)} jars" if len(jars) > 1 else "1 jar"
        progress(f"fetching {count} ({total / 1e6:.1f} MB) into {self.directory}", done=0, total=total)
        for leftover in self.directory.glob(".fetch-*"):  # of a process that was killed: we hold the lock
            shutil.rmtree(leftover, ignore_errors=True)
        stamps = _Stamps.read(self.directory)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=self.directory) as work:
            try:
                found = ivy.fetch(tuple(jars), Path(work), repository=self._repository, java=self._java, on_jar=arrived)
            except EnvironmentProblem as error:
                damaged = "; ".join(str(problem) for problem in problems if problem.kind == "damaged")
                if not damaged:
                    raise
                raise EnvironmentProblem(f"{damaged}. {error.message}", hint=error.hint) from error
            for coordinate, path in found.items():
                jar = jars[coordinate]
                digest = _sha256(path)
                if digest != jar.sha256:
                    raise EnvironmentProblem(
                        f"The repository's {coordinate} is not the pinned one: "
                        f"SHA-256 {digest} instead of {jar.sha256}",
                        hint="Do not use it: a mirror may be broken or tampered with. Try another one.",
                    )
                target = self.directory / jar.file_name
                path.replace(target)
                stamps.add(jar, target)
        stamps.write()

    @contextmanager
    def _locked(self, progress: Progress) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / ".lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                progress(f"waiting for another process that is fetching jars into {self.directory}")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield


class _Stamps:
    """Size and modification time of jars when their hash was last checked."""

    def __init__(self, path: Path, entries: dict[str, list[object]]) -> None:
        self._path = path
        self._entries = entries

    @classmethod
    def read(cls, directory: Path) -> _Stamps:
        path = directory / ".verified.json"
        try:
            entries = json.loads(path.read_text("utf-8"))
        except (OSError, ValueError):  # no stamps, or half of them: everything is hashed again
            entries = {}
        return cls(path, entries if isinstance(entries, dict) else {})

    def cover(self, jar: Jar, path: Path) -> bool:
        try:
            stat = path.stat()
        except OSError:
            return False
        return self._entries.get(jar.file_name) == [stat.st_size, stat.st_mtime_ns, jar.sha256]

    def add(self, jar: Jar, path: Path) -> None:
        stat = path.stat()
        self._entries[jar.file_name] = [stat.st_size, stat.st_mtime_ns, jar.sha256]

    def write(self) -> None:
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(self._entries, indent=0, sort_keys=True), "utf-8")
        draft.replace(self._path)


@contextmanager
def _explain_os_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except EnvironmentProblem:
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise EnvironmentProblem(
                f"No space left for jars in {directory}", hint="Free some room, or set HEADRACE_HOME to a larger disk."
            ) from error
        raise EnvironmentProblem(
            f"Cannot keep jars in {directory}: {error.strerror or error} ({error.filename})",
            hint="Make it writable, or set HEADRACE_HOME to a directory of yours.",
        ) from error


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
