"""What a cluster needs of this machine: the packages that tasks import, as one archive.

Spark ships jars and functions to its executors, but not Python packages. An executor on another machine either has
Headrace installed, in the same version, or gets what `pack` makes: Headrace, everything that it requires, and what is
installed of the extras that tasks use, without Spark itself, which is there. The archive is made once for a set of
versions and kept.

An executor then needs no more than a Python of the same minor version and the same operating system.
"""

from __future__ import annotations

import hashlib
import logging
import re
import sys
import tarfile
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import headrace
from headrace.errors import EnvironmentProblem

log = logging.getLogger(__name__)

#: What executors have anyway, with Spark.
_THERE = {"pyspark", "py4j"}
#: The extras of Headrace whose packages a task may import. A dashboard, plots and tests run elsewhere.
_EXTRAS = ("spark", "kafka", "geo", "http", "ingest", "transit")
_NAME = re.compile(r"^[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra\s*==\s*["']([A-Za-z0-9._-]+)["']""")


def required(name: str = "headrace") -> dict[str, Distribution]:
    """List an installed package and all that it requires, by name, without what executors have.

    Of Headrace itself, what is installed of the extras that tasks use is listed as well.

    Args:
        name: The package.

    >>> {"polars", "pandas", "confluent-kafka"} <= set(required())
    True
    """
    found: dict[str, Distribution] = {}
    waiting = [name]
    while waiting:
        wanted = _plain(waiting.pop())
        if wanted in found or wanted in _THERE:
            continue
        try:
            found[wanted] = distribution(wanted)
        except PackageNotFoundError:
            continue  # for another system or Python
        for line in found[wanted].requires or ():
            match, extra = _NAME.match(line), _EXTRA.search(line)
            if match is not None and (extra is None or (wanted == "headrace" and extra[1] in _EXTRAS)):
                waiting.append(match[0])
    return found


def pack(directory: Path) -> Path:
    """Make the archive, unless it is there.

    Args:
        directory: Where archives are kept.

    Raises:
        EnvironmentProblem: It cannot be written.
    """
    packages = required()
    own = Path(headrace.__file__).parent
    key = hashlib.sha256(f"{sys.version_info[:2]}".encode())
    for name, package in sorted(packages.items()):
        key.update(f"{name} {package.version}\n".encode())
    for path in sorted(own.rglob("*.py")):
        key.update(f"{path.relative_to(own)} {path.stat().st_mtime_ns}\n".encode())
    archive = directory / f"environment-{key.hexdigest()[:16]}.tar"
    if archive.exists():
        return archive
    fresh = archive.with_name(f"{archive.name}.{uuid.uuid4().hex}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fresh, "w") as tar:
            for package in packages.values():
                _add(tar, package, own)
            tar.add(own, "headrace", filter=_without_caches)
        fresh.replace(archive)
        for old in directory.glob("environment-*.tar"):
            if old != archive:
                old.unlink(missing_ok=True)
    except OSError as problem:
        fresh.unlink(missing_ok=True)
        raise EnvironmentProblem(
            f"cannot pack the environment into {directory}: {problem}", hint="See that there is room: about 500 MB."
        ) from problem
    log.info("packed %d packages into %s", len(packages), archive)
    return archive


def settings(archive: Path) -> dict[str, str]:
    """Tell the Spark settings that bring an archive to executors, and let their Python find it."""
    return {"spark.archives": f"{archive}#environment", "spark.executorEnv.PYTHONPATH": "environment"}


def _add(tar: tarfile.TarFile, package: Distribution, own: Path) -> None:
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if ".." in file.parts or file.suffix == ".pyc" or not path.is_file() or own in path.parents:
            continue
        tar.add(path, str(file))


def _without_caches(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in info.name else info


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
