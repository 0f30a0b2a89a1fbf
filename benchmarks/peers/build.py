"""Builds the Flink jobs: pinned jars, classes of our schemas, javac.

Nothing is installed: the jars go where Headrace keeps its own, the protobuf compiler beside them (Python's has no Java
in it), classes into a directory that is named by what they were made from.
"""

from __future__ import annotations

import hashlib
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.dev import JarCache, find_java, ivy
from headrace.dev.ivy import Coordinate
from headrace.dev.jars import Jar, read_lock
from headrace.dev.lock import render
from headrace.errors import EnvironmentProblem

HERE = Path(__file__).parent
LOCK = HERE / "jars.lock"
SOURCES = HERE / "flink"
SCHEMAS = Path(__file__).parents[2] / "src"
PROTO_FILES = [f"headrace/events/schemas/{name}.proto" for name in ("envelope", "transit", "records")]

FLINK = "2.2.0"
PROTOBUF = "4.35.1"
ROOTS = (
    f"org.apache.flink:flink-clients:{FLINK}",
    f"org.apache.flink:flink-streaming-java:{FLINK}",
    f"org.apache.flink:flink-cep:{FLINK}",
    f"org.apache.flink:flink-connector-base:{FLINK}",
    "org.apache.flink:flink-connector-kafka:4.0.1-2.0",
    f"com.google.protobuf:protobuf-java:{PROTOBUF}",
    "com.tdunning:t-digest:3.3",
    # Later ones need a newer C library than Debian 12 has.
    "com.uber:h3:4.1.1",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.24.3",
)
#: The compiler for 64-bit Linux, as the public repository has it.
PROTOC_SHA256 = "d2c65c3ea5eeb59427f684ed3e0a0cd458386122fc9f1b98de946a7242b53d31"


def lock() -> None:
    """Pin the jars anew; a maintainers' tool, run by hand after a version above was changed."""
    with tempfile.TemporaryDirectory(prefix="headrace-peers-") as work:
        found = ivy.fetch_with_dependencies([Coordinate.parse(root) for root in ROOTS], Path(work) / "ivy")
        jars = [_pin(coordinate, path) for coordinate, path in sorted(found.items())]
    text = render({"flink": jars}).replace("headrace.dev.lock", "benchmarks.peers.build")
    LOCK.write_text(text.replace("Every jar that Headrace uses", "Every jar of the Flink jobs"), "utf-8")


def _pin(coordinate: Coordinate, path: Path) -> Jar:
    content = path.read_bytes()
    return Jar(coordinate=coordinate, sha256=hashlib.sha256(content).hexdigest(), size=len(content))


def class_path() -> list[Path]:
    """Give the jars and the compiled classes, made if they are not there.

    Raises:
        EnvironmentProblem: Something cannot be fetched, or there is no javac.
    """
    cache = JarCache()
    jars = list(cache.get(read_lock(LOCK)["flink"]))
    return [_classes(cache, jars), *jars]


def _classes(cache: JarCache, jars: list[Path]) -> Path:
    sources = sorted(SOURCES.rglob("*.java"))
    schemas = [SCHEMAS / name for name in PROTO_FILES]
    made_from = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, *schemas, LOCK])).hexdigest()[:16]
    target = cache.directory.parent / f"peers-{made_from}"
    if target.exists():
        return target
    javac = find_java().home / "bin" / "javac"
    if not javac.exists():
        raise EnvironmentProblem(
            f"there is no Java compiler at {javac}",
            hint="Install a JDK (Debian: apt-get install openjdk-17-jdk-headless).",
        )
    with tempfile.TemporaryDirectory(prefix="headrace-peers-", dir=cache.directory.parent) as directory:
        work = Path(directory)
        generated, classes = work / "generated", work / "classes"
        generated.mkdir()
        _run([str(_protoc(cache)), f"-I{SCHEMAS}", f"-I{_well_known()}", f"--java_out={generated}", *PROTO_FILES])
        files = [str(path) for path in (*generated.rglob("*.java"), *sources)]
        path = ":".join(map(str, jars))
        _run([str(javac), "-nowarn", "--release", "17", "-d", str(classes), "-cp", path, *files])
        shutil.copy(SOURCES / "log4j2.properties", classes)
        classes.replace(target)
    return target


def _well_known() -> Path:
    """Where protobuf's own schemas are: in the package of the Python compiler."""
    import grpc_tools

    return Path(grpc_tools.__file__).parent / "_proto"


def _protoc(cache: JarCache) -> Path:
    target = cache.directory / f"protoc-{PROTOBUF}-linux-x86_64"
    if not target.exists():
        with tempfile.TemporaryDirectory(prefix=".protoc-", dir=cache.directory) as work:
            found = _fetch_protoc(Path(work))
            digest = hashlib.sha256(found.read_bytes()).hexdigest()
            if digest != PROTOC_SHA256:
                raise EnvironmentProblem(
                    f"The repository's protoc {PROTOBUF} is not the pinned one: SHA-256 {digest}", hint="Do not use it."
                )
            found.chmod(found.stat().st_mode | stat.S_IXUSR)
            found.replace(target)
    return target


def _fetch_protoc(work: Path) -> Path:
    """Fetch the compiler with Ivy: it is no jar, but lies in the same repository."""
    import os

    repository = os.environ.get("HEADRACE_JAR_REPOSITORY")
    root = "" if not repository else f" root={quoteattr(repository.removesuffix('/') + '/')}"
    lean = 'm2compatible="true" usepoms="false" descriptor="optional" checksums=""'
    (work / "settings.xml").write_text(
        f"<ivysettings><caches defaultCacheDir={quoteattr(str(work / 'cache'))}/>"
        '<settings defaultResolver="maven"/>'
        f'<resolvers><ibiblio name="maven" {lean}{root}/></resolvers></ivysettings>',
        "utf-8",
    )
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="headrace" module="protoc"/><configurations><conf name="default"/></configurations>'
        f'<dependencies><dependency org="com.google.protobuf" name="protoc" rev="{PROTOBUF}" transitive="false" '
        'conf="default->default"><artifact name="protoc" type="exe" ext="exe" m:classifier="linux-x86_64"/>'
        "</dependency></dependencies></ivy-module>",
        "utf-8",
    )
    command = [str(find_java().executable), "-jar", str(ivy.ivy_jar()), "-settings", str(work / "settings.xml")]
    command += ["-ivy", str(work / "ivy.xml"), "-confs", "default", "-retrieve", f"{work}/out/[artifact].[ext]"]
    _run(command)
    return work / "out" / "protoc.exe"


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()[-15:]
        raise EnvironmentProblem(f"{Path(command[0]).name} ended with {done.returncode}:\n" + "\n".join(said))


if __name__ == "__main__":
    lock()
    sys.stdout.write(f"{LOCK}: {len(read_lock(LOCK)['flink'])} jars\n")
