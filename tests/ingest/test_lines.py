"""Data sets as lines, replayed by the times they name; files from anywhere."""

from __future__ import annotations

import gzip
import math
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import fsspec  # type: ignore[import-untyped]
import pytest

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest import RawMessage, SourceError
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.files import SourceFile
from headrace.ingest.lines import LineFile
from headrace.ingest.recording import Recording, format_line
from headrace.ingest.replay import ReplayPlan
from headrace.ingest.rules import FieldRule

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EPOCH = FieldRule(field="time", format="epoch_s")
ROWS = [b"10,a,1", b"11,b,2", b'11.5,"c,d",3', b"rubbish", b"11,late,4", b"13,e,5"]
ARRIVALS = [10_000_000, 11_000_000, 11_500_000, 11_500_000, 11_500_000, 13_000_000]


def test_rows_of_a_table_arrive_when_they_happened(tmp_path: Path) -> None:
    path = tmp_path / "states.csv.gz"
    path.write_bytes(gzip.compress(b"time,id,n\r\n" + b"\r\n".join(ROWS) + b"\r\n\r\n"))
    file = LineFile(path, form="csv", time=EPOCH)
    expected = [RawMessage("", row, at) for row, at in zip(ROWS, ARRIVALS, strict=True)]
    assert list(file) == list(file) == expected
    assert file.check() == expected[0]


def test_a_table_without_a_header_and_without_a_last_line_end(tmp_path: Path) -> None:
    path = tmp_path / "states.csv"
    path.write_bytes(b"a;10\nb;11")
    file = LineFile(path, form="csv", time=FieldRule(field=1, format="epoch_s"), header=False, delimiter=";")
    assert [(m.payload, m.arrival) for m in file] == [(b"a;10", 10_000_000), (b"b;11", 11_000_000)]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "states.jsonl"
    lines = [b'{"at":{"t":"2026-05-01T12:00:00Z"}}', b"{", b'{"at":{"t":"2026-05-01T12:00:01Z"}}']
    path.write_bytes(b"\n".join(lines))
    found = list(LineFile(path, form="jsonl", time=FieldRule(field="at.t")))
    assert [m.payload for m in found] == lines
    assert [m.arrival - found[0].arrival for m in found] == [0, 0, 1_000_000]


def test_lines_before_the_first_time_are_not_lost(tmp_path: Path) -> None:
    path = tmp_path / "states.csv"
    path.write_bytes(b"time,id\n,x\n,y\n5,z\n")
    assert [(m.payload, m.arrival) for m in LineFile(path, form="csv", time=EPOCH)] == [
        (b",x", 5_000_000), (b",y", 5_000_000), (b"5,z", 5_000_000),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (b"id,n\na,1\n", {}, "no cell 'time'"),
        (b"time,n\nx,1\n", {}, "no line of .* has a time"),
        (b"", {}, "no line of .* has a time"),
        (b"1,2\n", {"header": False}, "no header"),
        (b"time\n1\n", {"time": FieldRule(format="epoch_s")}, "names no field"),
    ],
)
def test_tables_that_cannot_be_replayed(tmp_path: Path, content: bytes, options: dict[str, Any], words: str) -> None:
    path = tmp_path / "states.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        LineFile(path, **{"form": "csv", "time": EPOCH, **options}).check()


def test_the_replay_connector_reads_tables(tmp_path: Path) -> None:
    path = tmp_path / "states.csv"
    path.write_bytes(b"time,id,n\n" + b"\n".join(ROWS) + b"\n")
    settings = ReplaySettings(
        paths=(str(path),), form="csv", time=EPOCH, speed=math.inf, plan=ReplayPlan(loops=2, copies=2)
    )
    with ReplayConnector(settings) as connector:
        found = [m for batch in connector.batches(threading.Event()) for m in batch.messages]
    assert len(found) == 4 * len(ROWS)
    assert found[-1].shift == 4_000_000
    with pytest.raises(ConfigError, match=r'form is "csv", but time is not set.*time = {field = "time"}'):
        ReplaySettings(paths=("a",), form="csv")
    with pytest.raises(ConfigError, match=r'form is "dump".*leave time out'):
        ReplaySettings(paths=("a",), time=EPOCH)


# ---------------------------------------------------------------- files from anywhere

MESSAGES = [RawMessage("/a", b'{"n":%d}' % n, n * 1000) for n in range(20_000)]
CONTENT = b"".join(map(format_line, MESSAGES))


class _Server(SimpleHTTPRequestHandler):
    """Serves files; those below /half break off in the middle."""

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        if not self.path.startswith("/half"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])

    def do_HEAD(self) -> None:
        self.path = self.path.removeprefix("/half")
        super().do_HEAD()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """A folder on a real HTTP server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Server, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_recordings_from_a_web_server(tmp_path: Path, served: str, suffix: str) -> None:
    (tmp_path / f"feed.dump{suffix}").write_bytes(gzip.compress(CONTENT) if suffix else CONTENT)
    recording = Recording(f"{served}/feed.dump{suffix}")
    assert list(recording) == MESSAGES
    assert not recording.torn
    with pytest.raises(EnvironmentProblem, match="no such file"):
        Recording(f"{served}/none.dump").check()


def test_recordings_from_a_store(tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe("/bucket/feed.dump.gz", gzip.compress(CONTENT))
    store.pipe("/bucket/torn.dump.gz", gzip.compress(CONTENT)[:-30])
    assert list(Recording("memory://bucket/feed.dump.gz")) == MESSAGES
    torn = Recording("memory://bucket/torn.dump.gz")
    assert len(list(torn)) > 19_000
    assert torn.torn
    local = tmp_path / "feed.dump"
    local.write_bytes(CONTENT)
    assert list(Recording(f"file://{local}")) == MESSAGES


def test_urls_that_nobody_can_read() -> None:
    with pytest.raises(ConfigError, match="nothing"):
        Recording("nothing://bucket/feed.dump").check()


def test_a_store_that_fails_is_no_torn_file(tmp_path: Path, served: str) -> None:
    (tmp_path / "feed.dump").write_bytes(CONTENT)
    file = SourceFile(f"{served}/half/feed.dump")
    with pytest.raises(SourceError, match="cannot be read any further"):
        list(file.blocks())
    assert not file.torn
