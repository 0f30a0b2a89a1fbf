"""`headrace version`: what is installed."""

from __future__ import annotations

import platform
from importlib import metadata

from headrace.cli import terminal
from headrace.cli.options import Json

#: The packages whose versions matter in a bug report.
PACKAGES = ("headrace", "pyspark", "confluent-kafka", "polars", "pyarrow", "protobuf", "ptars")


def _installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def version(json: Json = False) -> None:
    """Show the versions of Headrace and of what it stands on."""
    found = {package: _installed(package) for package in PACKAGES}
    found["python"] = platform.python_version()
    if json:
        terminal.document(found)
        return
    terminal.rows(("package", "version"), list(found.items()))
