"""The user's own modules, where workers find them.

A job's functions travel to the workers by the name of their module: `jobs.py` that does `from helpers import weight`
needs both files there. On this machine the workers get the directories that the driver imports from; on a cluster the
modules travel in one archive.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import sysconfig
import zipfile
from pathlib import Path

import headrace
from headrace.errors import EnvironmentProblem

log = logging.getLogger(__name__)

#: A larger file beside the code is data, and not what a module needs to be imported.
_LARGEST = 5_000_000
_INSTALLED = tuple(Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


def own_directories() -> list[Path]:
    """List the directories on Python's path that hold a user's own code: neither Python's own nor installed."""
    found: dict[Path, None] = {}
    for entry in sys.path:
        path = Path(entry or ".").absolute()
        installed = any(path == place or place in path.parents for place in _INSTALLED)
        if path.is_dir() and not installed and path.name not in ("site-packages", "dist-packages"):
            found[path] = None
    return list(found)


def local_settings() -> dict[str, str]:
    """Tell the Spark settings that let workers on this machine import what the driver can."""
    return {"spark.executorEnv.PYTHONPATH": os.pathsep.join(map(str, own_directories()))}


def pack_modules(directory: Path) -> Path | None:
    """Make an archive of the user's own modules that are imported, and of those beside them.

    Args:
        directory: Where archives are kept.

    Returns:
        The archive; None if there are no such modules.

    Raises:
        EnvironmentProblem: It cannot be written.
    """
    files = _own_files()
    if not files:
        return None
    key = hashlib.sha256()
    for name, path in sorted(files.items()):
        key.update(f"{name}\n".encode() + path.read_bytes())
    archive = directory / f"modules-{key.hexdigest()[:16]}.zip"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(archive, "w") as packed:
            for name, path in sorted(files.items()):
                packed.write(path, name)
    except OSError as problem:
        raise EnvironmentProblem(
            f"cannot write the user's modules to {archive}: {problem}", hint="See that there is room and a right."
        ) from problem
    log.info("packed %d files of the user's own code into %s", len(files), archive)
    return archive


def _own_files() -> dict[str, Path]:
    """Find the files of imported modules of one's own, by their names in an archive."""
    files: dict[str, Path] = {}
    ours = Path(headrace.__file__).parent
    directories = own_directories()
    for name, module in sorted(sys.modules.items()):
        where = getattr(module, "__file__", None)
        if "." in name or where is None or ours in Path(where).parents:
            continue
        home = next((each for each in directories if _is_module_of(Path(where), each, name)), None)
        if home is None:
            continue
        is_package = Path(where).name == "__init__.py"
        # A function may import its neighbours only when it runs.
        found = (home / name).rglob("*") if is_package else home.glob("*.py")
        files |= {str(path.relative_to(home)): path for path in found if _belongs(path, home)}
    return files


def _is_module_of(file: Path, directory: Path, name: str) -> bool:
    return file in (directory / f"{name}.py", directory / name / "__init__.py")


def _belongs(path: Path, home: Path) -> bool:
    parts = path.relative_to(home).parts
    if not path.is_file() or any(part.startswith(".") or part == "__pycache__" for part in parts):
        return False
    if path.stat().st_size > _LARGEST:
        log.warning("%s does not travel to the cluster: it has more than %d bytes", path, _LARGEST)
        return False
    return True
