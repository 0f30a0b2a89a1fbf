"""Fetching jars from a Maven repository with the Ivy that pyspark ships.

No Maven and no repository address of our own are needed: Ivy's `ibiblio` resolver in Maven mode knows the public
repository, and a mirror can be given. Coordinates are fetched as they are, without their dependencies and without
reading a POM (the lock file lists everything), which makes one request per jar and lets several Ivys work side by
side.
"""

from __future__ import annotations

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.sax.saxutils import quoteattr

from headrace.dev.java import Java, find_java
from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_DONE = re.compile(r"\[SUCCESSFUL \] (?P<org>[^#]+)#(?P<name>[^;]+);(?P<rev>[^!]+)!")
_MISSING = re.compile(r":: (?P<org>[^#\s]+)#(?P<name>[^;]+);(?P<rev>[^:\s]+): not found")
_REASON = re.compile(r"Host \S+ not found|java\.[a-z.]*\w+(?:Exception|Error): [^)]*|No space left on device")
_WORKERS = 4
_JARS_PER_WORKER = 6


@dataclass(frozen=True, order=True)
class Coordinate:
    """A jar in a Maven repository.

    >>> Coordinate.parse("org.apache.kafka:kafka-clients:3.9.2").file_name
    'kafka-clients-3.9.2.jar'
    """

    organisation: str
    artifact: str
    version: str

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        """Read `organisation:artifact:version`.

        Raises:
            ValueError: The text has another number of parts.
        """
        parts = text.split(":")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"{text!r} is not organisation:artifact:version")
        return cls(*parts)

    @property
    def file_name(self) -> str:
        """The file name a Maven repository uses."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.organisation}:{self.artifact}:{self.version}"


def ivy_jar() -> Path:
    """The Ivy inside pyspark.

    Raises:
        EnvironmentProblem: This pyspark has none.
    """
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    found = sorted(jars.glob("ivy-*.jar"))
    if not found:
        raise EnvironmentProblem(
            f"There is no ivy-*.jar in {jars}", hint="Install pyspark again; the full distribution has it."
        )
    return found[-1]


def fetch(
    coordinates: Sequence[Coordinate],
    directory: Path,
    *,
    repository: str | None = None,
    java: Java | None = None,
    on_jar: Callable[[Coordinate], None] | None = None,
) -> dict[Coordinate, Path]:
    """Fetch exactly these jars, nothing they depend on.

    Args:
        coordinates: What to fetch; a module may occur once only.
        directory: An empty directory of the caller; the jars come to be inside it, with Ivy's own files beside them.
        repository: Address of a mirror (`https:` or `file:`), the public repository if not given.
        java: The Java to run Ivy with.
        on_jar: Called for each jar that arrived, from several threads.

    Returns:
        Where each jar is.

    Raises:
        EnvironmentProblem: A jar could not be had; says which, and what Ivy said.
    """
    java = java or find_java()
    # A JVM costs more than a jar or two.
    workers = min(_WORKERS, -(-len(coordinates) // _JARS_PER_WORKER))
    shards = [coordinates[number::workers] for number in range(workers)]

    def run(number: int, shard: Sequence[Coordinate]) -> dict[Coordinate, Path]:
        work = directory / f"ivy-{number}"
        return _run_ivy(shard, work, transitive=False, repository=repository, java=java, on_jar=on_jar)

    with ThreadPoolExecutor(max_workers=_WORKERS, thread_name_prefix="ivy") as pool:
        found: dict[Coordinate, Path] = {}
        for part in pool.map(run, range(len(shards)), shards):
            found |= part
    missing = [coordinate for coordinate in coordinates if coordinate not in found]
    if missing:
        raise _cannot_fetch(missing, [], status=0)
    return found


def fetch_with_dependencies(
    coordinates: Sequence[Coordinate], directory: Path, *, repository: str | None = None, java: Java | None = None
) -> dict[Coordinate, Path]:
    """Fetch jars and what they need to run; for making the lock file, where nothing is pinned yet.

    Args:
        coordinates: The roots.
        directory: An empty directory of the caller.
        repository: Address of a mirror, the public repository if not given.
        java: The Java to run Ivy with.
    """
    return _run_ivy(
        coordinates, directory, transitive=True, repository=repository, java=java or find_java(), on_jar=None
    )


def _run_ivy(
    coordinates: Sequence[Coordinate],
    work: Path,
    *,
    transitive: bool,
    repository: str | None,
    java: Java,
    on_jar: Callable[[Coordinate], None] | None,
) -> dict[Coordinate, Path]:
    work.mkdir(parents=True)
    (work / "settings.xml").write_text(_settings(work / "cache", repository=repository, poms=transitive), "utf-8")
    (work / "ivy.xml").write_text(_module(coordinates, transitive=transitive), "utf-8")
    command = [
        str(java.executable),
        "-Xshare:auto",
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        *_proxy_options(os.environ),
        *("-jar", str(ivy_jar())),
        *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml"), "-confs", "default"),
        *("-retrieve", f"{work}/out/[organisation]/[artifact]/[revision]/[artifact]-[revision].[ext]"),
    ]
    outcome = _listen(command, on_jar)
    if outcome.status != 0 and outcome.arrived:
        # Some came and some did not: a network that stumbles. Ivy has kept what came.
        outcome = _listen(command, on_jar)
    if outcome.status != 0:
        raise _cannot_fetch(outcome.missing or coordinates, outcome.reasons, status=outcome.status)
    found: dict[Coordinate, Path] = {}
    for path in sorted((work / "out").glob("*/*/*/*.jar")):
        organisation, artifact, version = path.parts[-4:-1]
        found[Coordinate(organisation, artifact, version)] = path
    return found


@dataclass
class _Outcome:
    """What an Ivy said."""

    status: int = 0
    arrived: int = 0
    missing: list[Coordinate] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def _listen(command: Sequence[str], on_jar: Callable[[Coordinate], None] | None) -> _Outcome:
    outcome = _Outcome()
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        try:
            for line in process.stdout or ():
                if done := _DONE.search(line):
                    outcome.arrived += 1
                    if on_jar is not None:
                        on_jar(Coordinate(done["org"], done["name"], done["rev"]))
                elif lacks := _MISSING.search(line):
                    outcome.missing.append(Coordinate(lacks["org"], lacks["name"], lacks["rev"]))
                elif reason := _REASON.search(line):
                    outcome.reasons.append(reason[0].strip())
        except BaseException:
            process.kill()
            raise
    outcome.status = process.returncode
    return outcome


def _cannot_fetch(missing: Sequence[Coordinate], reasons: Sequence[str], *, status: int) -> EnvironmentProblem:
    names = ", ".join(map(str, missing[:3])) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
    why = "; ".join(dict.fromkeys(reasons)) or f"not in the repository (Ivy ended with {status})"
    if "No space left" in why:
        return EnvironmentProblem(f"Cannot fetch {names}: the disk is full", hint="Free some room.")
    return EnvironmentProblem(
        f"Cannot fetch {names}: {why[:500]}",
        hint="Check the network connection, or name a mirror in HEADRACE_JAR_REPOSITORY.",
    )


def _settings(cache: Path, *, repository: str | None, poms: bool) -> str:
    root = "" if repository is None else f" root={quoteattr(repository.removesuffix('/') + '/')}"
    # Our own SHA-256 replaces the repository's checksum files: one request per jar instead of two.
    lean = "" if poms else ' usepoms="false" descriptor="optional" checksums=""'
    return (
        "<ivysettings>\n"
        f"  <caches defaultCacheDir={quoteattr(str(cache))}/>\n"
        '  <settings defaultResolver="maven"/>\n'
        f'  <resolvers><ibiblio name="maven" m2compatible="true"{root}{lean}/></resolvers>\n'
        "</ivysettings>\n"
    )


def _module(coordinates: Sequence[Coordinate], *, transitive: bool) -> str:
    lines = [
        '<ivy-module version="2.0">',
        '<info organisation="headrace" module="jars"/>',
        '<configurations><conf name="default"/></configurations>',
        "<dependencies>",
    ]
    for c in coordinates:
        names = f"org={quoteattr(c.organisation)} name={quoteattr(c.artifact)} rev={quoteattr(c.version)}"
        artifact = "" if transitive else f'<artifact name={quoteattr(c.artifact)} type="jar" ext="jar"/>'
        flag = "true" if transitive else "false"
        lines.append(f'<dependency {names} transitive="{flag}" conf="default->default">{artifact}</dependency>')
    return "\n".join([*lines, "</dependencies>", "</ivy-module>", ""])


def _proxy_options(env: Mapping[str, str]) -> list[str]:
    """Java does not read the proxy variables that every other program reads."""
    options: list[str] = []
    for scheme in ("http", "https"):
        value = env.get(f"{scheme}_proxy") or env.get(f"{scheme.upper()}_PROXY") or ""
        proxy = urlsplit(value if "//" in value else f"//{value}")
        if proxy.hostname:
            options.append(f"-D{scheme}.proxyHost={proxy.hostname}")
            options.append(f"-D{scheme}.proxyPort={proxy.port or 80}")
    exceptions = env.get("no_proxy") or env.get("NO_PROXY") or ""
    if options and exceptions:
        hosts = (host.strip() for host in exceptions.split(","))
        patterns = ("*" + host if host.startswith(".") else host for host in hosts if host)
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(patterns)}")
    return options
