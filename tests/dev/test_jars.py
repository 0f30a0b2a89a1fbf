"""Jars are pinned, fetched once, verified, and repaired.

The repository is a directory of files in Maven's layout, with jars of a few bytes: Ivy, the cache and the repairs are
real.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from headrace.dev.ivy import Coordinate
from headrace.dev.jars import (
    EMBEDDED_BROKER,
    LOCK_FILE,
    SPARK_CONNECTOR,
    Jar,
    JarCache,
    default_directory,
    read_lock,
)
from headrace.dev.lock import ROOTS, render
from headrace.errors import ConfigError, EnvironmentProblem

if TYPE_CHECKING:
    from headrace.dev.progress import Progress


class Repository:
    """A Maven repository in a directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.address = root.as_uri()

    def add(self, name: str, content: bytes, *, pin: bytes | None = None) -> Jar:
        """Put a jar there; `pin` is what the lock file expects, if that is something else."""
        coordinate = Coordinate("org.example", name, "1.0")
        path = self.root / "org" / "example" / name / "1.0" / coordinate.file_name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        pinned = content if pin is None else pin
        return Jar(coordinate=coordinate, sha256=hashlib.sha256(pinned).hexdigest(), size=len(pinned))

    def close(self) -> None:
        """Nothing can be had any more, as without a network."""
        self.root.rename(self.root.with_name("closed"))


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


NAMES = ("alpha", "beta", "gamma", "delta", "epsilon")


@pytest.fixture
def jars(repository: Repository) -> list[Jar]:
    return [repository.add(name, f"the jar {name}".encode() * 100) for name in NAMES]


@pytest.fixture
def cache(tmp_path: Path, repository: Repository) -> JarCache:
    return JarCache(tmp_path / "cache", repository=repository.address)


def collect(messages: list[str]) -> Progress:
    def progress(message: str, /, *, done: int = 0, total: int = 0) -> None:
        assert done <= total
        messages.append(message)

    return progress


def test_the_lock_file_pins_everything_we_ask_for() -> None:
    sets = read_lock()
    assert set(sets) == {SPARK_CONNECTOR, EMBEDDED_BROKER}
    for name, roots in ROOTS.items():
        pinned = {str(jar.coordinate) for jar in sets[name]}
        assert pinned >= set(roots)
        assert len({jar.file_name for jar in sets[name]}) == len(sets[name])
        for jar in sets[name]:
            assert len(jar.sha256) == 64
            assert jar.size > 0
    assert render(sets) == LOCK_FILE.read_text("utf-8")
    assert "://" not in LOCK_FILE.read_text("utf-8")


def test_two_sets_share_no_file_name_with_different_content() -> None:
    seen: dict[str, str] = {}
    for jars in read_lock().values():
        for jar in jars:
            assert seen.setdefault(jar.file_name, jar.sha256) == jar.sha256


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"HEADRACE_HOME": "/h", "XDG_CACHE_HOME": "/c"}, Path("/h/jars")),
        ({"XDG_CACHE_HOME": "/c"}, Path("/c/headrace/jars")),
        ({}, Path.home() / ".cache/headrace/jars"),
    ],
)
def test_where_jars_are_kept(environ: dict[str, str], expected: Path) -> None:
    assert default_directory(environ) == expected


@pytest.mark.parametrize("name", ["a:b", "a,b"])
def test_a_directory_that_java_or_spark_would_take_for_two_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="for a list"):
        JarCache(Path(name))


@pytest.mark.parametrize("text", ["a:b", "a:b:c:d", "a::c", ""])
def test_a_coordinate_has_three_parts(text: str) -> None:
    with pytest.raises(ValueError, match="organisation:artifact:version"):
        Coordinate.parse(text)


@pytest.mark.broker
def test_jars_are_fetched_once(cache: JarCache, jars: list[Jar], repository: Repository) -> None:
    messages: list[str] = []
    assert [problem.kind for problem in cache.check(jars)] == ["missing"] * 5
    paths = cache.get(jars, progress=collect(messages))
    assert [path.name for path in paths] == [jar.file_name for jar in jars]
    assert paths[0].read_bytes() == b"the jar alpha" * 100
    assert messages[0].startswith("fetching 5 jars")
    assert len(messages) == 6
    assert cache.check(jars) == []

    repository.close()
    messages.clear()
    assert cache.get(jars, progress=collect(messages)) == paths
    assert messages == []
    assert not list(cache.directory.glob(".fetch-*"))


@pytest.mark.broker
def test_damaged_jars_are_noticed_named_and_repaired(cache: JarCache, jars: list[Jar]) -> None:
    paths = cache.get(jars)
    good = [path.read_bytes() for path in paths]
    paths[0].write_bytes(good[0][:-1])
    paths[1].write_bytes(b"X" + good[1][1:])
    paths[2].write_bytes(b"")
    paths[3].unlink()
    problems = cache.check(jars)
    assert [problem.path for problem in problems] == list(paths[:4])
    assert [problem.kind for problem in problems] == ["damaged", "damaged", "damaged", "missing"]

    messages: list[str] = []
    cache.get(jars, progress=collect(messages))
    assert [path.read_bytes() for path in paths] == good
    assert cache.check(jars) == []
    assert messages[0] == f"{paths[0]} is damaged (1299 bytes instead of 1300); fetching it again"
    assert messages[1].startswith(f"{paths[1]} is damaged (SHA-256 ")
    assert messages[3].startswith("fetching 4 jars")


@pytest.mark.broker
def test_damage_that_keeps_size_and_time_is_found_by_a_full_check(cache: JarCache, jars: list[Jar]) -> None:
    path = cache.get(jars)[0]
    stat = path.stat()
    path.write_bytes(b"X" * stat.st_size)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert cache.check(jars, full=False) == []
    assert [problem.path for problem in cache.check(jars)] == [path]
    # Without its stamp it is hashed at the next start, too.
    (cache.directory / ".verified.json").write_text("{ not json")
    cache.get(jars)
    assert cache.check(jars) == []


@pytest.mark.broker
def test_a_damaged_jar_without_a_network_is_a_clear_error(
    cache: JarCache, jars: list[Jar], repository: Repository
) -> None:
    path = cache.get(jars)[1]
    path.write_bytes(b"rubbish")
    repository.close()
    with pytest.raises(EnvironmentProblem, match=r"beta-1\.0\.jar is damaged \(7 bytes instead of 1200\)") as caught:
        cache.get(jars)
    assert "org.example:beta:1.0" in caught.value.message
    assert "network" in caught.value.hint


@pytest.mark.broker
def test_a_jar_that_is_not_the_pinned_one_is_refused(cache: JarCache, repository: Repository) -> None:
    evil = repository.add("evil", b"something else", pin=b"what we reviewed")
    with pytest.raises(EnvironmentProblem, match=r"org\.example:evil:1\.0 is not the pinned one") as caught:
        cache.get([evil])
    assert evil.sha256 in caught.value.message
    assert not (cache.directory / evil.file_name).exists()


@pytest.mark.broker
def test_a_jar_that_does_not_exist_is_named(cache: JarCache, jars: list[Jar]) -> None:
    ghost = Jar(coordinate=Coordinate("org.example", "ghost", "9"), sha256="0" * 64, size=1)
    with pytest.raises(EnvironmentProblem, match=r"org\.example:ghost:9"):
        cache.get([*jars, ghost])


@pytest.mark.broker
@pytest.mark.parametrize(
    ("address", "reason"),
    [("http://127.0.0.1:1/m2", "Connection refused"), ("https://nowhere.invalid", "nowhere.invalid")],
)
def test_without_a_network_the_reason_is_given(tmp_path: Path, jars: list[Jar], address: str, reason: str) -> None:
    with pytest.raises(EnvironmentProblem, match=r"Cannot fetch org\.example:alpha:1\.0, .* and 2 more: ") as caught:
        JarCache(tmp_path / "cache", repository=address).get(jars)
    assert reason in caught.value.message
    assert "HEADRACE_JAR_REPOSITORY" in caught.value.hint
    assert len(caught.value.message) < 400


class Stumbling(SimpleHTTPRequestHandler):
    """Serves files, but breaks off the first attempt at each of the larger half."""

    seen: ClassVar[set[str]] = set()

    def do_GET(self) -> None:
        if ("gamma" in self.path or "delta" in self.path) and self.path not in self.seen:
            self.seen.add(self.path)
            self.send_error(503)
            return
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.mark.broker
def test_a_network_that_stumbles_is_tried_again(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Stumbling, directory=str(repository.root))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cache = JarCache(tmp_path / "cache", repository=f"http://127.0.0.1:{server.server_port}")
        cache.get(jars)
        server.shutdown()
    assert len(Stumbling.seen) == 2
    assert cache.check(jars) == []


@pytest.mark.broker
def test_several_processes_may_ask_at_once(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    script = """
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar
from headrace.dev.jars import JarCache, read_lock
messages = []
jars = read_lock(Path(sys.argv[3]))["test"]
paths = JarCache(Path(sys.argv[1]), repository=sys.argv[2]).get(jars, progress=lambda m, /, **_: messages.append(m))
assert [p.stat().st_size for p in paths] == [jar.size for jar in jars]
print(sum(m.startswith("fetching") for m in messages))
"""
    lock = tmp_path / "jars.lock"
    lock.write_text(render({"test": jars}))
    command = [sys.executable, "-c", script, str(tmp_path / "cache"), repository.address, str(lock)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [process.communicate(timeout=60)[0].strip() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert sorted(said) == ["0", "0", "1"]  # one fetched, the others waited for it


@pytest.mark.broker
def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path, jars: list[Jar], repository: Repository) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = JarCache(tmp_path / "file" / "jars", repository=repository.address)
    with pytest.raises(EnvironmentProblem, match=r"Cannot keep jars in .*/file/jars") as caught:
        cache.get(jars)
    assert "HEADRACE_HOME" in caught.value.hint


@pytest.mark.broker
def test_without_java_nothing_can_be_fetched(
    tmp_path: Path, cache: JarCache, jars: list[Jar], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(EnvironmentProblem, match="Java was not found"):
        cache.get(jars)
