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

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.ingest import RawMessage
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.files import BLOCK, SourceFile
from headrace.ingest.messages import Messages
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


def _with_a_flipped_bit(packed: bytes, place: int) -> bytes:
    return packed[:place] + bytes([packed[place] ^ 0x10]) + packed[place + 1 :]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_a_bad_checksum_is_corruption_and_not_a_torn_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"feed.dump{suffix}"
    first, second = PACKERS[suffix](CONTENT[: len(CONTENT) // 2]), PACKERS[suffix](CONTENT[len(CONTENT) // 2 :])
    # The checksum of a gzip member stands before its length; those of the others are found anywhere in the data.
    place = len(first) - 6 if suffix == ".gz" else len(first) // 2
    path.write_bytes(_with_a_flipped_bit(first, place) + second)
    recording = Recording(path)
    with pytest.raises(
        EnvironmentProblem, match=rf"feed\.dump{suffix} is corrupt at or before offset [\d,]+, after"
    ) as told:
        list(recording)
    assert told.value.hint
    assert not recording.torn


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zst"])
def test_a_second_stream_is_read_and_what_is_none_is_corruption(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"feed.dump{suffix}"
    half = CONTENT.index(b"\n", len(CONTENT) // 2) + 1
    packed = PACKERS[suffix](CONTENT[:half]) + PACKERS[suffix](CONTENT[half:])
    path.write_bytes(packed)
    assert list(Recording(path)) == MESSAGES
    path.write_bytes(packed + b"something else")
    with pytest.raises(EnvironmentProblem, match="is corrupt"):
        list(Recording(path))
    begun = PACKERS[suffix](CONTENT[:half])
    for size in (1, 2, 5):
        path.write_bytes(begun + packed[:size])
        recording = Recording(path)
        found = list(recording)
        assert recording.torn
        # Of a Zstandard file, what is read together with the tear is lost with it.
        assert suffix == ".zst" or found == MESSAGES[: CONTENT[:half].count(b"\n")]


def test_a_block_that_expands_a_thousandfold_is_read_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(b"0" * 30_000_000))
    blocks = list(SourceFile(str(path)).blocks())
    assert b"".join(blocks) == b"0" * 30_000_000
    assert max(map(len, blocks)) <= BLOCK


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


ARRIVALS = [
    "2020-01-01T00:00:00.000000Z", "2020-13-01T00:00:00.000000Z", "2020-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z",
    "2020-01-01T00:00:00.000000+01:00", "2020-01-01 00:00:00.000000Z", "2020-01-01T00:00:00,000000Z", "", "today",
]  # fmt: skip
TOPICS = ["/hfp/v2/journey", "/hfp/v2/a b", "base64:L2E=", "base64:", "base64 is a topic", "a {b", "\ud800/long"]
LINES = st.builds(
    lambda at, gap, topic, payload: f"{at}{gap}{topic} {payload}".encode("utf-8", "surrogatepass"),
    st.datetimes().map(lambda at: f"{at:%Y-%m-%dT%H:%M:%S.%fZ}".rjust(27, "0")) | st.sampled_from(ARRIVALS),
    st.sampled_from([*[" "] * 8, "", "  ", " {"]),
    st.sampled_from(TOPICS) | st.text(),
    st.sampled_from([*['{"VP":{}}'] * 8, "{}\r", "e30=", "x", "{ {", ""]),
)


@settings(deadline=None, max_examples=300)
@given(lines=st.lists(LINES, min_size=1, max_size=5))
@example(lines=[line.rstrip(b"\n") for line in CONTENT.splitlines()])
def test_a_block_of_lines_is_read_as_each_of_them(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = tmp_path_factory.getbasetemp() / "block.dump"
    lines = [part for line in lines for part in line.split(b"\n")]
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    expected, bad = [], []
    for number, line in enumerate(lines, 1):
        try:
            expected.append(parse_line(line.removesuffix(b"\r")))
        except ValueError:
            bad += [number] if line.strip() else []
    recording = Recording(path)
    assert list(recording) == expected
    assert (recording.bad_lines, recording.torn) == (bad, False)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem, match="cannot read"):
        Recording(tmp_path / "missing.gz").check()
    (tmp_path / "empty.dump").touch()
    with pytest.raises(ConfigError, match="no recorded message"):
        Recording(tmp_path / "empty.dump").check()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            b'\n/hfp/v2/journey/vp {"VP":{"tst":"x"}}\n',
            "has no arrival times: .* /hfp/v2.*put the event time before each",
        ),
        (b'/hfp/v2/journey/vp {"VP":{"tst":"x"}}', "has no arrival times: "),
        (b'{"time": 5, "id": "a"}\n', 'holds JSON lines .* form = "jsonl" and time = {field = "NAME"}'),
        (b"time,id\n5,a\n", "holds no recorded message: its first line is 'time,id'.*form = \"csv\""),
        (b"\n \n", "holds no recorded message: it is empty"),
    ],
)
def test_what_is_no_recording_is_refused_with_what_to_do(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "a.dump").write_bytes(content)
    with pytest.raises(ConfigError, match=f"a.dump {words}"):
        Recording(tmp_path / "a.dump").check()


def test_event_times_stand_in_for_arrivals_as_the_documentation_says(tmp_path: Path) -> None:
    lines = [f'/vp/7 {{"VP":{{"desi":"6","tst":"2024-02-13T16:33:0{second}.000Z"}}}}' for second in (1, 0, 2)]
    (tmp_path / "old.dump").write_text("\n".join([*lines, "/vp/7 {}", ""]))
    page = (Path(__file__).parents[2] / "docs" / "ingestion.md").read_text()
    command = next(line.strip() for line in page.splitlines() if line.startswith("    sed "))
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    recording = Recording(tmp_path / "new.dump")
    found = [(message.arrival % 60_000_000, message.payload.decode()) for message in recording]
    assert found == [(second * 1_000_000, lines[at].partition(" ")[2]) for second, at in ((0, 1), (1, 0), (2, 2))]
    assert recording.bad_count == 1, "a line without a time is told, not invented"


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
from headrace.ingest.files import BLOCK, SourceFile
from headrace.ingest.messages import Messages
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


@settings(deadline=None, max_examples=100)
@given(
    gaps=st.lists(st.integers(-3, 5), min_size=1, max_size=30),
    plan=st.builds(
        ReplayPlan,
        offset=st.integers(0, 20),
        length=st.none() | st.integers(1, 40),
        loops=st.integers(1, 3),
        times=st.sampled_from(["keep", "now"]),
        copies=st.integers(1, 3),
    ),
)
def test_a_file_is_replayed_as_its_messages(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], plan: ReplayPlan
) -> None:
    sent = [
        RawMessage(f"/hfp/vehicle {n}", b"{}", 10**15 + at) for n, at in enumerate(itertools.accumulate(gaps))
    ]  # some arrive before those that were written before them
    path = tmp_path_factory.getbasetemp() / "plan.dump"
    path.write_bytes(b"".join(map(format_line, sent)))
    begin = sent[0].arrival + plan.offset  # type: ignore[operator]
    end = math.inf if plan.length is None else begin + plan.length  # type: ignore[operator]
    kept = [m for m in itertools.takewhile(lambda m: m.arrival < end, sent) if m.arrival >= begin]
    expected: list[RawMessage] = []
    if kept:
        shift = 7 - kept[0].arrival if plan.times == "now" else 0
        span = max(m.arrival for m in kept) - kept[0].arrival + ROUND_GAP
        for turn in range(plan.loops or 0):
            by = shift + turn * span
            moved = [m._replace(arrival=m.arrival + by, shift=by) for m in kept]
            expected += [m._replace(copy=copy) for m in moved for copy in range(plan.copies)]
    assert list(plan.messages([Recording(path)], now=7)) == expected
    assert replayed(plan, sent, now=7) == expected


def test_messages_in_columns_are_a_sequence() -> None:
    columns = Messages.of(MESSAGES)
    assert Messages.of(columns) is columns
    assert (list(columns), len(columns), columns[-1], columns[3]) == (MESSAGES, 40, MESSAGES[-1], MESSAGES[3])
    assert list(columns[3:9]) == MESSAGES[3:9]
    assert [list(part) for part in columns.cut(15)] == [MESSAGES[:15], MESSAGES[15:30], MESSAGES[30:]]
    assert list(Messages.joined([columns[:7], columns[7:8], columns[8:]])) == MESSAGES
    assert list(columns.taken(np.array([5, 2]))) == [MESSAGES[5], MESSAGES[2]]
    assert not Messages.of([])


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
