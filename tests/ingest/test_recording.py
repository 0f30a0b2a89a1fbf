from __future__ import annotations

import bz2
import gzip
import itertools
import lzma
import math
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest import RawMessage
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.recorder import Recorder
from headrace.ingest.recording import Recording, format_line, parse_line
from headrace.ingest.replay import ROUND_GAP, ReplayPlan

SECOND = 1_000_000
MESSAGES = [RawMessage(f"/hfp/vehicle {n}", b'{"n":%d}' % n, 1_600_000_000 * SECOND + n * 250_000) for n in range(40)]
CONTENT = b"".join(map(format_line, MESSAGES))


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}


@settings(deadline=None, max_examples=200)
@given(
    topic=st.text() | st.sampled_from(["base64:x", "a {b", "{", "a\nb", "\ud800"]),
    payload=st.binary() | st.sampled_from([b"{}", b"{\n}", b"{} {", b"{\r"]),
    arrival=st.integers(-(10**15), 10**17),
)
def test_any_message_is_one_line_and_comes_back(topic: str, payload: bytes, arrival: int) -> None:
    line = format_line(RawMessage(topic, payload, arrival))
    assert line.count(b"\n") == 1
    assert parse_line(line[:-1]) == RawMessage(topic, payload, arrival)


@pytest.mark.parametrize("suffix", PACKERS)
def test_plain_and_compressed_files(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"feed.dump{suffix}"
    path.write_bytes(PACKERS[suffix](CONTENT))
    recording = Recording(path)
    assert list(recording) == MESSAGES
    assert list(recording) == MESSAGES
    assert not recording.torn
    assert not recording.bad_count


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".xz", ".zst"])
def test_a_torn_end_is_noticed(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"feed.dump{suffix}"
    packed = PACKERS[suffix](CONTENT)
    path.write_bytes(packed[: len(packed) - 30])
    recording = Recording(path)
    found = list(recording)
    assert recording.torn
    assert found == MESSAGES[: len(found)]
    if not suffix:
        assert len(found) == len(MESSAGES) - 1


def test_a_last_line_without_its_end_counts_if_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "feed.dump"
    path.write_bytes(CONTENT[:-1])
    recording = Recording(path)
    assert list(recording) == MESSAGES
    assert not recording.torn


def test_bad_lines_are_counted_and_cost_only_themselves(tmp_path: Path) -> None:
    path = tmp_path / "feed.dump"
    lines = CONTENT.splitlines(keepends=True)
    bad = [
        b"rubbish\n",
        b"\xff\xfe /a {}\n",
        b"2020-01-01T00:00:00Z base64:!! x\n",
        b"2020-01-01T00:00:00Z base64:YQ==\n",
    ]
    path.write_bytes(b"".join([lines[0], *bad, b"\n", lines[1].replace(b"\n", b"\r\n")]))
    recording = Recording(path)
    assert list(recording) == MESSAGES[:2]
    assert (recording.bad_count, recording.bad_lines, recording.torn) == (4, [2, 3, 4, 5], False)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot read"):
        Recording(tmp_path / "missing.gz").check()
    (tmp_path / "empty.dump").touch()
    with pytest.raises(ConfigError, match="no recorded message"):
        Recording(tmp_path / "empty.dump").check()


@pytest.mark.parametrize("compression", ["none", "gz"])
def test_the_recorder_writes_what_a_recording_reads(tmp_path: Path, compression: str) -> None:
    recorder = Recorder(tmp_path, compression=compression, max_seconds=3)  # type: ignore[arg-type]
    for message in MESSAGES:
        recorder.write(message)
    recorder.close()
    assert len(recorder.files) == 4
    assert sorted(recorder.files) == recorder.files
    assert [m for path in recorder.files for m in Recording(path)] == MESSAGES
    again = Recorder(tmp_path, compression=compression)  # type: ignore[arg-type]
    again.write(MESSAGES[0])
    again.close()
    assert again.files[0] not in recorder.files


def test_a_killed_recorder_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    program = """
import os, signal, sys
from headrace.ingest import RawMessage
from headrace.ingest.recorder import Recorder
recorder = Recorder(sys.argv[1])
for n in range(1000):
    recorder.write(RawMessage("/a", b'{"n":%d}' % n, n))
    if n == 900:
        recorder.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program, tmp_path], check=False, env=os.environ | _source())
    assert done.returncode == -signal.SIGKILL
    (path,) = tmp_path.iterdir()
    recording = Recording(path)
    found = list(recording)
    assert [m.arrival for m in found] == list(range(len(found)))
    assert len(found) >= 901
    assert recording.torn


def _source() -> dict[str, str]:
    return {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}


# ---------------------------------------------------------------- replay


def replayed(plan: ReplayPlan, *recordings: list[RawMessage], now: int = 0) -> list[RawMessage]:
    return list(plan.messages(recordings, now=now))


def test_a_replay_is_the_recording() -> None:
    assert replayed(ReplayPlan(), MESSAGES) == MESSAGES


def test_several_recordings_are_merged_by_arrival() -> None:
    odd, even = MESSAGES[1::2], MESSAGES[::2]
    assert replayed(ReplayPlan(), odd, even) == MESSAGES


def test_aligned_recordings_begin_together() -> None:
    later = [m._replace(arrival=m.arrival + 77 * SECOND) for m in MESSAGES]
    found = replayed(ReplayPlan(align=True, align_on="arrival"), MESSAGES, later)
    assert [m.arrival for m in found] == sorted([m.arrival for m in MESSAGES] * 2)
    assert {m.shift for m in found} == {0, -77 * SECOND}


def test_a_part_of_a_recording() -> None:
    assert replayed(ReplayPlan(offset="2s", length="1s"), MESSAGES) == MESSAGES[8:12]


def test_moved_to_now_keeps_the_gaps() -> None:
    found = replayed(ReplayPlan(times="now", offset="1s"), MESSAGES, now=7)
    assert [m.arrival - 7 for m in found] == [m.arrival - MESSAGES[4].arrival for m in MESSAGES[4:]]
    assert {m.shift for m in found} == {7 - MESSAGES[4].arrival}


def test_rounds_follow_each_other_in_time() -> None:
    found = replayed(ReplayPlan(loops=3), MESSAGES)
    assert len(found) == 120
    arrivals = [m.arrival for m in found]
    assert arrivals == sorted(arrivals)
    span = MESSAGES[-1].arrival - MESSAGES[0].arrival + ROUND_GAP
    assert [m.shift for m in found] == [0] * 40 + [span] * 40 + [2 * span] * 40
    endless = ReplayPlan(loops=None).messages([MESSAGES], now=0)
    assert len([next(endless) for _ in range(500)]) == 500
    assert replayed(ReplayPlan(loops=None), []) == []


def test_copies_arrive_with_the_original() -> None:
    found = replayed(ReplayPlan(copies=16), MESSAGES)
    assert len(found) == 640
    assert [m for m in found if m.copy == 0] == MESSAGES
    assert {(m.arrival, m.copy) for m in found} == {(m.arrival, copy) for m in MESSAGES for copy in range(16)}


@pytest.mark.parametrize("wrong", [{"copies": 0}, {"loops": 0}, {"times": "x"}, {"offset": -1}, {"length": 0}])
def test_plans_that_make_no_sense(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        ReplayPlan(**wrong)  # type: ignore[arg-type]


class Clock(threading.Event):
    """A stop signal on which waiting takes no time, but moves the clock."""

    now = 100.0

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0
        return self.is_set()


@pytest.mark.parametrize("copies", [1, 16])
@pytest.mark.parametrize("speed", [0.5, 1.0, 16.0])
def test_messages_leave_when_they_are_due(tmp_path: Path, speed: float, copies: int) -> None:
    chance = random.Random(7)
    arrivals = itertools.accumulate((chance.choice([0, 1, 700, 40_000, 900_000]) for _ in MESSAGES), initial=0)
    sent = [m._replace(arrival=MESSAGES[0].arrival + at) for m, at in zip(MESSAGES, arrivals, strict=False)]
    path = tmp_path / "feed.dump"
    path.write_bytes(b"".join(map(format_line, sent)))
    clock = Clock()
    settings_ = ReplaySettings(paths=(str(path),), speed=speed, plan=ReplayPlan(copies=copies))
    connector = ReplayConnector(settings_, clock=lambda: clock.now)
    left = []
    with connector:
        for batch in connector.batches(clock):
            left += [(clock.now, message) for message in batch.messages]
    assert [message for _, message in left] == [m._replace(copy=copy) for m in sent for copy in range(copies)]
    # On this clock nothing takes time but waiting, so each leaves at its moment, and its copies with it.
    due = [100 + (message.arrival - sent[0].arrival) / SECOND / speed for _, message in left]
    assert [at for at, _ in left] == pytest.approx(due, abs=1e-6)


def test_as_fast_as_can_be_and_stopped(tmp_path: Path) -> None:
    path = tmp_path / "feed.dump"
    path.write_bytes(CONTENT)
    settings_ = ReplaySettings(paths=(str(path),), speed=math.inf, plan=ReplayPlan(loops=None), batch_size=7)
    connector = ReplayConnector(settings_)
    stop = threading.Event()
    sizes = []
    with connector:
        for batch in connector.batches(stop):
            sizes.append(len(batch.messages))
            if len(sizes) == 20:
                stop.set()
    assert sizes[:20] == [7] * 20
    assert len(sizes) <= 21
