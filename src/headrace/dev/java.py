"""Finding a Java that Spark and Kafka can run on.

Spark 4.2 supports Java 17 and 21. `JAVA_HOME` comes first, then `java` on the `PATH`, as Spark's own scripts do it,
so that Spark and the embedded broker run on the same one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Mapping

SUPPORTED: tuple[int, ...] = (17, 21)
"""The feature releases of Java that Spark 4.2 supports."""

_INSTALL = "Install Java 17 (Debian and Ubuntu: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one."
_VERSION = re.compile(r'version "(?P<version>[^"]+)"')


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java that was found and asked for its version.

    >>> Java(executable=Path("/opt/java/bin/java"), version="17.0.15").feature
    17
    """

    executable: Path
    version: str

    @property
    def feature(self) -> int:
        """The feature release: 17 for "17.0.15", 8 for "1.8.0_402"."""
        parts = re.split(r"[._+-]", self.version)
        return int(parts[1]) if parts[0] == "1" and len(parts) > 1 else int(parts[0])

    @property
    def home(self) -> Path:
        """What `JAVA_HOME` should be for this Java."""
        return self.executable.resolve().parent.parent


def find_java(*, environ: Mapping[str, str] | None = None, java_home: Path | None = None) -> Java:
    """Find a supported Java.

    Args:
        environ: Environment to look into, `os.environ` if not given.
        java_home: A Java to use instead of what the environment names.

    Returns:
        The first Java of `java_home`, `JAVA_HOME`, `PATH`; no later one is tried when that is not supported, since
        Spark's scripts would not do so either.

    Raises:
        EnvironmentProblem: There is no Java, it does not run, or it is not a supported version.
    """
    env = os.environ if environ is None else environ
    where, executable = _locate(env, java_home)
    stat = executable.stat()
    java = Java(executable=executable, version=_version(executable, stat.st_mtime_ns))
    if java.feature not in SUPPORTED:
        age = "too old" if java.feature < SUPPORTED[0] else "not supported"
        raise EnvironmentProblem(
            f"Java {java.version} at {executable} (from {where}) is {age}: Spark needs {_supported()}", hint=_INSTALL
        )
    return java


def _supported() -> str:
    return " or ".join(str(release) for release in SUPPORTED)


def _locate(env: Mapping[str, str], java_home: Path | None) -> tuple[str, Path]:
    home = str(java_home) if java_home is not None else env.get("JAVA_HOME", "")
    if home:
        where = "the setting java_home" if java_home is not None else "JAVA_HOME"
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK) or executable.is_dir():
            raise EnvironmentProblem(
                f"{where} is {home}, but there is no program {executable}",
                hint="Set JAVA_HOME to a directory with bin/java, or unset it to use the java on the PATH.",
            )
        return where, executable
    found = shutil.which("java", path=env.get("PATH", ""))
    if found is None:
        raise EnvironmentProblem(
            "Java was not found: JAVA_HOME is not set and there is no java on the PATH", hint=_INSTALL
        )
    return "PATH", Path(found)


# The modification time is part of the key: a Java that was replaced is asked again.
@lru_cache(maxsize=16)
def _version(executable: Path, _mtime_ns: int) -> str:
    try:
        shown = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentProblem(f"{executable} -version does not run: {error}", hint=_INSTALL) from error
    match = _VERSION.search(shown.stderr + shown.stdout)
    if shown.returncode != 0 or match is None:
        said = (shown.stderr + shown.stdout).strip().splitlines()
        raise EnvironmentProblem(
            f"{executable} -version ended with {shown.returncode} and says no version: {said[:1]}", hint=_INSTALL
        )
    return match["version"]
