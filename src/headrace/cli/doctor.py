"""`headrace doctor`: is everything here that Headrace needs, and if not, what to do?

Each check is a function that looks at one thing and returns a `Finding`: OK, WARN (it will work, but not as well as it
could) or FAIL (it will not work), with what was found and what to do about it. Nothing is changed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from headrace.cli import terminal
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.errors import EnvironmentProblem, ExitCode, HeadraceError
from headrace.extras import missing

if TYPE_CHECKING:
    from headrace.config import Settings

Status = Literal["OK", "WARN", "FAIL"]

_STYLES: dict[Status, str] = {"OK": "green", "WARN": "yellow", "FAIL": "bold red"}
_UNITS = {"k": 1024, "m": 1024**2, "g": 1024**3}
#: Beside the two Java heaps: our own process, Spark's Python workers, and what Java needs outside of its heap.
_OVERHEAD = 900 * 1024**2
_DISK_FAIL = 300 * 1024**2
_DISK_WARN = 2 * 1024**3
_FILES = 4096
_TIME_ERROR = 5
#: No clock that is right shows an earlier time than this (2025-01-01).
_EARLIEST = 1_735_689_600


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    check: str
    status: Status
    found: str
    remedy: str = ""


def size(text: str) -> int:
    """Bytes of a memory setting.

    >>> size("512m")
    536870912
    """
    return int(text[:-1]) * _UNITS[text[-1].lower()]


def human(count: float) -> str:
    """A number of bytes for people.

    >>> human(536870912), human(2.5 * 1024**3)
    ('512 MB', '2.5 GB')
    """
    return f"{count / 1024**3:.1f} GB" if count >= 1024**3 else f"{count / 1024**2:.0f} MB"


def check_python(environ: Mapping[str, str]) -> Finding:
    """The interpreter that Spark's workers will run: ours, unless the environment insists on another."""
    name = "Python for the workers"
    found = f"{'.'.join(map(str, sys.version_info[:3]))} at {sys.executable}"
    if not (3, 11) <= sys.version_info[:2] < (3, 14):
        return Finding(name, "FAIL", found, "Use Python 3.11, 3.12 or 3.13.")
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        other = environ.get(variable)
        if other and Path(shutil.which(other) or other).resolve() != Path(sys.executable).resolve():
            return Finding(
                name,
                "WARN",
                f"{found}, but {variable} is {other}",
                f"Unset {variable}: Headrace gives the workers its own Python, which has the packages they need.",
            )
    return Finding(name, "OK", found)


def check_packages() -> Finding:
    """Packages whose wrong version fails late and in strange ways."""
    name = "Python packages"
    if missing("spark"):
        return Finding(
            name,
            "WARN",
            f"not installed: {', '.join(missing('spark'))}; jobs run in process only",
            "To run on Spark and Kafka: pip install 'headrace[spark]'",
        )
    spark, pandas = metadata.version("pyspark"), metadata.version("pandas")
    if spark != "4.2.0" or int(pandas.partition(".")[0]) >= 3:
        return Finding(
            name,
            "FAIL",
            f"pyspark {spark}, pandas {pandas}",
            "Headrace runs on pyspark 4.2.0, which needs pandas below 3: pip install 'headrace[spark]'",
        )
    return Finding(name, "OK", f"pyspark {spark}, pandas {pandas}")


def check_java(environ: Mapping[str, str]) -> Finding:
    """A Java that Spark can run on."""
    from headrace.dev.java import find_java

    try:
        java = find_java(environ=environ)
    except EnvironmentProblem as problem:
        return Finding("Java", "FAIL", problem.message, problem.hint)
    return Finding("Java", "OK", f"{java.version} at {java.executable}")


def check_jars(settings: Settings) -> Finding:
    """The jars of the embedded broker, each with its checksum."""
    from headrace.dev.jars import EMBEDDED_BROKER, JarCache

    if settings.broker.bootstrap:
        return Finding("Jars", "OK", "none are needed with a Kafka of your own")
    cache = JarCache(settings.paths.jars)
    try:
        problems = cache.check(EMBEDDED_BROKER)
    except OSError as error:
        return Finding(
            "Jars", "FAIL", f"cannot read {cache.directory}: {error.strerror}", "Make paths.jars a directory of yours."
        )
    if not problems:
        return Finding("Jars", "OK", f"all there and right in {cache.directory}")
    damaged = [problem for problem in problems if problem.kind == "damaged"]
    if damaged:
        return Finding(
            "Jars",
            "FAIL",
            f"{damaged[0]}" + (f" and {len(damaged) - 1} more" if len(damaged) > 1 else ""),
            "Run `headrace setup`: it fetches damaged jars again.",
        )
    return Finding(
        "Jars",
        "WARN",
        f"{len(problems)} not yet in {cache.directory}",
        "Run `headrace setup`, or let the first `headrace dev` do it.",
    )


def check_port(settings: Settings) -> Finding:
    """The embedded broker's port, or the way to an external Kafka."""
    if settings.broker.bootstrap:
        return _check_bootstrap(settings.broker.bootstrap)
    port, chosen = settings.broker.port, settings.origin("broker.port").kind != "default"
    if port == 0:
        return Finding("Port", "OK", "any free port will be used")
    from headrace.cli.connect import running_broker

    running = running_broker(settings)
    if running is not None:
        return Finding("Port", "OK", f"the embedded broker runs at {running}")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            found = f"127.0.0.1:{port}: {error.strerror}"
            if chosen:
                return Finding("Port", "FAIL", found, "Set broker.port to a free port, or to 0 for any free one.")
            return Finding("Port", "WARN", found, "Another free port will be used; set broker.port to choose one.")
    return Finding("Port", "OK", f"127.0.0.1:{port} is free")


def _check_bootstrap(bootstrap: str) -> Finding:
    for address in bootstrap.split(","):
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=3).close()
        except OSError as error:
            return Finding(
                "Kafka",
                "FAIL",
                f"{address} cannot be reached: {error.strerror or error}",
                "Check broker.bootstrap, the network, and that Kafka runs there.",
            )
    return Finding("Kafka", "OK", f"{bootstrap} accepts connections")


def check_memory(settings: Settings) -> Finding:
    """Enough free memory for both Java heaps and the workers."""
    import psutil

    free = psutil.virtual_memory().available
    need = size(settings.spark.driver_memory) + _OVERHEAD
    need += 0 if settings.broker.bootstrap else size(settings.broker.memory)
    found = f"{human(free)} available, about {human(need)} needed"
    if free >= need:
        return Finding("Memory", "OK", found)
    status: Status = "WARN" if free > need / 2 else "FAIL"
    return Finding("Memory", status, found, "Close other programs, or lower spark.driver_memory and broker.memory.")


def check_disk(settings: Settings) -> Finding:
    """A home that can be written, with room on its disk."""
    home = settings.paths.home
    existing = next(path for path in (home, *home.parents) if path.exists())
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        return Finding("Disk", "FAIL", f"{existing} cannot be written", "Set paths.home to a directory of yours.")
    free = shutil.disk_usage(existing).free
    found = f"{human(free)} free for {home}"
    if free < _DISK_FAIL:
        return Finding("Disk", "FAIL", found, "Free some room, or set paths.home to another disk.")
    if free < _DISK_WARN:
        return Finding("Disk", "WARN", found, "Enough for a short demo; for more set paths.home to another disk.")
    return Finding("Disk", "OK", found)


def check_files() -> Finding:
    """The limit on open files: a broker keeps several per partition."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        return Finding("Open files", "WARN", f"at most {soft}", f"Raise it: ulimit -n {min(hard, 65536)}")
    return Finding("Open files", "OK", f"at most {soft}")


def check_host() -> Finding:
    """Spark asks for the address of its own host's name, and fails to start without one."""
    host = socket.gethostname()
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        return Finding(
            "Host name",
            "WARN",
            f"{host} has no address ({error.strerror or error})",
            f"Add a line `127.0.0.1 {host}` to /etc/hosts, or set SPARK_LOCAL_IP=127.0.0.1.",
        )
    return Finding("Host name", "OK", f"{host} is {address}")


def check_clock(environ: Mapping[str, str]) -> Finding:
    """The clock, which latencies are measured by, and the time zone, in which nothing is computed."""
    name = "Clock and time zone"
    now = time.time()
    zone = environ.get("TZ") or time.tzname[0]
    found = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(now))} UTC, time zone {zone}"
    if now < _EARLIEST:
        return Finding(name, "FAIL", found, "Set the clock: events of today would seem to come from the future.")
    if environ.get("TZ") and not _is_zone(environ["TZ"]):
        return Finding(
            name, "WARN", f"TZ is {environ['TZ']!r}, which is no time zone", "Set TZ to a name such as Europe/Paris."
        )
    if _synchronised() is False:
        return Finding(
            name,
            "WARN",
            f"{found}, the clock is not synchronised",
            "Fine on one machine; start NTP before you compare times of several. Headrace itself works in UTC.",
        )
    return Finding(name, "OK", f"{found}; Headrace itself works in UTC")


def _is_zone(text: str) -> bool:
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(text.removeprefix(":"))
    except (KeyError, ValueError, OSError):
        return False
    return True


def _synchronised() -> bool | None:
    """Ask the kernel whether something keeps its clock right; None where it cannot say."""
    if sys.platform != "linux":
        return None
    buffer = ctypes.create_string_buffer(512)  # struct timex, all zero: read, change nothing
    state: int = ctypes.CDLL(None).adjtimex(buffer)
    return None if state < 0 else state != _TIME_ERROR


def check_all(settings: Settings, environ: Mapping[str, str]) -> list[Finding]:
    """Run every check."""
    distributed: list[Callable[[], Finding]] = [
        lambda: check_java(environ),
        lambda: check_jars(settings),
        lambda: check_port(settings),
        lambda: check_memory(settings),
    ]
    checks: list[Callable[[], Finding]] = [
        lambda: Finding("Settings", "OK", str(settings.file) if settings.file else "no file, all defaults"),
        lambda: check_python(environ),
        check_packages,
        # The broker and Spark; the in-process engine needs none of it.
        *([] if missing("spark") else distributed),
        lambda: check_disk(settings),
        check_files,
        check_host,
        lambda: check_clock(environ),
    ]
    return [check() for check in checks]


def _next_step() -> str:
    if missing("spark"):
        return "jobs run in process; for Spark and Kafka: pip install 'headrace[spark,dashboard]'."
    return "try `headrace dev` in a project, which `headrace new NAME` makes."


def doctor(ctx: typer.Context, bootstrap: Bootstrap = None, json: Json = False) -> None:
    """Check Java, Python, jars, port, memory, disk and clock; say what to do about each."""
    environ = dict(os.environ)
    try:
        settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    except HeadraceError as problem:
        if json:
            terminal.document([asdict(Finding("Settings", "FAIL", problem.message, problem.hint))])
        raise
    findings = check_all(settings, environ)
    if json:
        terminal.document([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            terminal.out.print(f"[{_STYLES[finding.status]}]{finding.status:<4}[/]  ", end="", soft_wrap=True)
            terminal.line(f"{finding.check}: {finding.found}")
            if finding.remedy:
                terminal.line(f"      -> {finding.remedy}", style=_STYLES[finding.status])
    worst = {finding.status for finding in findings}
    if "FAIL" in worst:
        raise typer.Exit(int(ExitCode.ENVIRONMENT))
    if not json:
        warned = ", with warnings" if "WARN" in worst else ""
        terminal.line(f"Ready{warned}; {_next_step()}")
