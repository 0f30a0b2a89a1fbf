"""A fresh virtual environment with the built wheel in it, and dependencies linked from the environment of the tests.

Nothing is downloaded, and the source tree is on nobody's path: `headrace` is what the wheel brings.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(sysconfig.get_path("purelib"))


def build_wheel(directory: Path) -> Path:
    """Build the wheel as `make dist` does."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (wheel,) = directory.glob("headrace-*.whl")
    return wheel


def make_environment(directory: Path, wheel: Path, *, extras: str, also: tuple[str, ...] = ()) -> Path:
    """Make a virtual environment with the wheel and what it depends on; returns its directory of programs.

    Args:
        directory: Where.
        wheel: The wheel.
        extras: Which extras are there, such as "spark,dashboard"; "" for none.
        also: Other packages that the user installs.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=300)
    programs = directory / "bin"
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(programs / "python")]
    subprocess.run([*install, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=300)
    linked = directory / "dependencies"
    linked.mkdir()
    for name in dependencies(extras.split(",") if extras else [], also):
        for part in {file.parts[0] for file in distribution(name).files or () if file.parts[0] not in ("..", "")}:
            if (SITE / part).exists() and not (linked / part).exists() and part != "__pycache__":
                (linked / part).symlink_to(SITE / part)
    library = next((directory / "lib").glob("python3*")) / "site-packages"
    (library / "dependencies.pth").write_text(f"{linked}\n")
    return programs


def dependencies(extras: list[str], also: tuple[str, ...]) -> set[str]:
    """The names of all packages that headrace needs with some extras, directly or by others."""
    from packaging.requirements import Requirement

    found: set[str] = set(also)
    waiting = [("headrace", frozenset(extras)), *((name, frozenset[str]()) for name in also)]
    seen = set(waiting)
    while waiting:
        package, wanted = waiting.pop()
        for text in distribution(package).requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is not None and not any(marker.evaluate({"extra": extra}) for extra in {"", *wanted}):
                continue
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            try:
                distribution(name)
            except PackageNotFoundError:
                continue  # a test environment may lack what only another platform needs
            more = (name, frozenset(requirement.extras))
            if more not in seen:
                seen.add(more)
                waiting.append(more)
            found.add(name)
    return found - {"headrace"}


def environment(programs: Path, **more: str) -> dict[str, str]:
    """The variables of a user who has nothing set but the path to the programs."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "JAVA_HOME", "TMPDIR") if name in os.environ}
    return kept | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "200"} | more
