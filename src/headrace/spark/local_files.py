"""Checkpoint files without a process for each of them.

Hadoop's local file system starts the program `chmod` for every file it makes, and a checksum file beside each. A
micro-batch makes four to eight files, so on a small machine a quarter of its time went there. The class below sets the
permissions by Java itself and writes no checksum files; RocksDB's files and Spark's logs have checksums of their own.

Java code must be compiled. Spark brings a compiler for the code that it generates (Janino), so neither a JDK nor a
binary in this package is needed: the jar is made once, into the directory of the other jars.
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

CLASS = "headrace.LocalFiles"
_SOURCE = """
package headrace;

import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public LocalFiles() {
        super(new Quiet());
        setWriteChecksum(false);
        setVerifyChecksum(false);
    }

    public static class Quiet extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws java.io.IOException {
            String symbols = permission.getUserAction().SYMBOL
                + permission.getGroupAction().SYMBOL
                + permission.getOtherAction().SYMBOL;
            Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
        }
    }
}
"""


def local_files_jar(directory: Path) -> Path:
    """Give the jar that holds the class, made if it is not there.

    Args:
        directory: Where jars are kept.
    """
    mark = hashlib.sha256(f"{pyspark.__version__}{_SOURCE}".encode()).hexdigest()[:12]
    path = directory / f"headrace-local-files-{mark}.jar"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        fresh = directory / f".{path.name}.{uuid.uuid4().hex}"
        with zipfile.ZipFile(fresh, "w") as jar:
            for name, code in _compiled().items():
                jar.writestr(f"{name.replace('.', '/')}.class", code)
        fresh.replace(path)
    return path


def settings(jar: Path) -> dict[str, str]:
    """Tell Spark to use the class."""
    return {"spark.driver.extraClassPath": str(jar), "spark.hadoop.fs.file.impl": CLASS}


def _compiled() -> dict[str, bytes]:
    """Compile in a Java process of our own: the one that is to use the class must find it when it starts."""
    from pyspark.java_gateway import launch_gateway

    quiet = {"stderr": subprocess.DEVNULL}
    gateway: Any = launch_gateway(popen_kwargs=quiet)  # type: ignore[no-untyped-call]
    try:
        compiler = gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_SOURCE)
        codes = compiler.getBytecodes()
        return {name: bytes(codes[name]) for name in codes}
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=30)
