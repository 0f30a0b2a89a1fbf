"""Java classes of our own, compiled into a jar on the user's machine.

Spark brings a compiler for the code that it generates (Janino), so neither a JDK nor a binary in this package is
needed. A jar is compiled once per version of Spark and of its source, and kept in the directory of the other jars.
"""

from __future__ import annotations

import hashlib
import subprocess
import uuid
import zipfile
from typing import TYPE_CHECKING, Any

import pyspark

if TYPE_CHECKING:
    from pathlib import Path


def compiled_jar(directory: Path, name: str, source: str) -> Path:
    """Return the jar of a Java source; compile it if it is not there.

    Args:
        directory: Where jars are kept.
        name: The jar's name; a digest of the source and of Spark's version is added.
        source: One compilation unit.
    """
    digest = hashlib.sha256(f"{pyspark.__version__}{source}".encode()).hexdigest()[:12]
    path = directory / f"headrace-{name}-{digest}.jar"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / f".{path.name}.{uuid.uuid4().hex}"
        with zipfile.ZipFile(unfinished, "w") as jar:
            for class_name, code in _compile(source).items():
                jar.writestr(f"{class_name.replace('.', '/')}.class", code)
        unfinished.replace(path)
    return path


def _compile(source: str) -> dict[str, bytes]:
    """Compile in a Java process of its own: the one that uses the classes must find them when it starts."""
    from pyspark.java_gateway import launch_gateway

    quiet = {"stderr": subprocess.DEVNULL}
    gateway: Any = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(source)
        codes = compiler.getBytecodes()
        return {name: bytes(codes[name]) for name in codes}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
