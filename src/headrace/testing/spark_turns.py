"""Turns on Spark: what was played on an operator in process is played again in Spark's state store.

A case decides its moves without looking at what comes out of them. So all cases are run in process first, only to
write down the turns they take (`Recorder`); then all turns run on Spark in one query, in as many micro-batches as the
longest case has turns, or several turns in each of fewer batches, with a restart from the checkpoint in the middle of
every case (`play`); then every case is run once more and given what came out of Spark (`Player`). An error that a turn
ends with is what came of it.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace import errors
from headrace.engine import MemorySegments, Outcome, Turn
from headrace.engine.operator import InputTurn
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.spark.session.session import spark_settings, start_session
from headrace.testing.script import Harness, ScriptError, windows_in
from headrace.windows import WindowOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine import Operator
    from headrace.engine.state import Segments

Windows = tuple[set[tuple[int, int]], set[tuple[int, int]]]

_INPUT = "number int, turns binary"
_OUTPUT = "number int, outcomes binary"
#: Longer cases take several turns in a micro-batch, since a batch costs what it costs.
MAX_BATCHES = 24
_PARTS = ("rows", "late", "dismissed")


@dataclass
class Recording:
    """The turns that one operator took."""

    operator: Operator
    turns: list[tuple[Turn, bool]] = field(default_factory=list)


class _RecordingHarness(Harness):
    def __init__(self, operator: WindowOperator, recording: Recording) -> None:
        super().__init__(operator)
        self._recording = recording

    def take(self, turn: Turn, *, event_timers: bool) -> Outcome:
        self._recording.turns.append((turn, event_timers))
        return super().take(turn, event_timers=event_timers)


@dataclass
class Recorder:
    """Writes down the turns of harnesses, in the order in which they are made."""

    recordings: list[Recording] = field(default_factory=list)

    def harness(self, operator: WindowOperator) -> Harness:
        """Make a harness whose turns are written down."""
        self.recordings.append(Recording(operator))
        return _RecordingHarness(operator, self.recordings[-1])

    def take(self, operator: Operator, turns: Sequence[Turn]) -> list[Outcome]:
        """Take turns in this process, and write them down."""
        recording = Recording(operator)
        self.recordings.append(recording)
        segments, outcomes = MemorySegments(), []
        for turn in turns:
            recording.turns.append((turn, True))
            outcomes.append(operator.turn(segments, turn))
        return outcomes


@dataclass(frozen=True)
class Played:
    """What one turn gave on Spark.

    Args:
        outcome: What came out.
        windows: The windows that it left in the state.
        error: What it ended with, or None.
    """

    outcome: Outcome
    windows: Windows
    error: errors.HeadraceError | None = None

    def told(self) -> Outcome:
        """What came out; raises what the turn ended with."""
        if self.error is not None:
            raise self.error
        return self.outcome


class _PlayingHarness(Harness):
    def __init__(self, operator: WindowOperator, played: Iterator[Played]) -> None:
        super().__init__(operator)
        self._played = played
        self._last: Windows = (set(), set())

    def take(self, turn: Turn, *, event_timers: bool) -> Outcome:
        del turn, event_timers
        try:
            taken = next(self._played)
        except StopIteration:
            raise ScriptError("the case takes more turns with Spark's results than it took in process") from None
        self._last = taken.windows
        return taken.told()

    def open_windows(self) -> Windows:
        return self._last


class Player:
    """Gives harnesses what came out of Spark, in the order in which they were recorded."""

    def __init__(self, played: list[list[Played]]) -> None:
        self._played = iter(played)

    def harness(self, operator: WindowOperator) -> Harness:
        """Make the harness of the next recording."""
        return _PlayingHarness(operator, iter(next(self._played)))

    def take(self, operator: Operator, turns: Sequence[Turn]) -> list[Outcome]:
        """Tell what the turns of the next recording gave."""
        del operator
        outcomes = [each.told() for each in next(self._played)]
        if len(outcomes) != len(turns):
            raise ScriptError(f"{len(outcomes)} turns came back from Spark, not {len(turns)}")
        return outcomes


def play(recordings: list[Recording]) -> Player:
    """Run recorded turns on Spark, all recordings in one query, with a restart in the middle."""
    steps = min(max((len(recording.turns) for recording in recordings), default=0), MAX_BATCHES)
    with tempfile.TemporaryDirectory(prefix="headrace-turns-") as directory:
        home = Path(directory)
        (home / "turns").mkdir()
        settings = spark_settings(jars=[], state_partitions=2, driver_memory="1g", local_directory=home / "local")
        spark = start_session("headrace-conformance", master="local[2]", settings=settings)
        found: dict[int, list[Played]] = defaultdict(list)
        try:
            for first, last in ((0, steps // 2), (steps // 2, steps)):
                for step in range(first, last):
                    _write(home / "turns", step, steps, recordings)
                _run(spark, home, [recording.operator for recording in recordings], found)
        finally:
            spark.stop()
    return Player([found[number] for number in range(len(recordings))])


def _write(directory: Path, step: int, steps: int, recordings: list[Recording]) -> None:
    """Write the turns of one micro-batch as a file; Spark takes files in the order of their times."""
    numbers, turns = [], []
    for number, recording in enumerate(recordings):
        # The turns of a recording are spread over all micro-batches, so that a short one meets the restart, too.
        count = len(recording.turns)
        first, last = (-(-place * count // steps) for place in (step, step + 1))
        if last > first:
            numbers.append(number)
            turns.append(bundle([_turn_to_bytes(*turn) for turn in recording.turns[first:last]]))
    frame = pl.DataFrame({"number": pl.Series(numbers, dtype=pl.Int32), "turns": pl.Series(turns, dtype=pl.Binary)})
    path = directory / f"{step:06}.parquet"
    frame.write_parquet(path)
    os.utime(path, (1_000_000 + step, 1_000_000 + step))


def _run(spark: SparkSession, home: Path, operators: list[Operator], found: dict[int, list[Played]]) -> None:
    from headrace.testing.turn_stage import TurnStage

    turns = spark.readStream.schema(_INPUT).option("maxFilesPerTrigger", 1).parquet(str(home / "turns"))
    taken = turns.groupBy("number").transformWithStateInPandas(TurnStage(operators), _OUTPUT, "Update", "None")

    def collect(frame: DataFrame, _: int) -> None:
        table = frame.toArrow()
        for number, outcomes in zip(table["number"].to_pylist(), table["outcomes"].to_pylist(), strict=True):
            found[number] += [played_from_bytes(outcome) for outcome in unbundled(outcomes)]

    query = (
        taken.writeStream.outputMode("update")
        .foreachBatch(collect)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _turn_to_bytes(turn: Turn, event_timers: bool) -> bytes:
    inputs = [[each.watermark, each.watermark_before] for each in turn.inputs]
    record = {
        "watermark": turn.watermark,
        "before": turn.watermark_before,
        "now": turn.now,
        "event_timers": event_timers,
        "inputs": inputs,
    }
    return _pack(
        record, {"rows": turn.rows, **{f"input {number}": each.rows for number, each in enumerate(turn.inputs)}}
    )


def turn_from_bytes(body: bytes) -> tuple[Turn, bool]:
    """Read a turn, and whether the watermark may fire windows in it."""
    record, frames = _unpack(body)
    inputs = tuple(InputTurn(frames[f"input {number}"], *marks) for number, marks in enumerate(record["inputs"]))
    turn = Turn(frames["rows"], record["watermark"], record["now"], watermark_before=record["before"], inputs=inputs)
    return turn, record["event_timers"]


def played(operator: Operator, segments: Segments, body: bytes) -> bytes:
    """Let an operator take a turn; write down what it gave, and the windows that it left in the state."""
    turn, event_timers = turn_from_bytes(body)
    windows: list[list[tuple[int, int]]] = [[], []]
    try:
        if isinstance(operator, WindowOperator):
            outcome = operator.turn(segments, turn, event_timers=event_timers)
            windows = [sorted(part) for part in windows_in(segments)]
        else:
            outcome = operator.turn(segments, turn)
    except errors.HeadraceError as problem:
        kind = next(each for each in type(problem).__mro__ if each.__module__ == errors.__name__)
        return _pack({"error": [kind.__name__, problem.message, problem.hint]}, {})
    return _pack(
        {"windows": windows, "watermark": outcome.watermark}, {name: getattr(outcome, name) for name in _PARTS}
    )


def played_from_bytes(body: bytes) -> Played:
    """Read what `played` wrote."""
    record, frames = _unpack(body)
    if "error" in record:
        kind, message, hint = record["error"]
        return Played(Outcome(), (set(), set()), getattr(errors, kind)(message, hint=hint))
    live, closed = ({(start, end) for start, end in part} for part in record["windows"])
    rows, late, dismissed = (frames.get(name) for name in _PARTS)
    outcome = Outcome(rows=rows, late=late, dismissed=dismissed, watermark=record["watermark"])
    return Played(outcome, (live, closed))


def bundle(bodies: Sequence[bytes]) -> bytes:
    """Put several byte strings into one.

    >>> unbundled(bundle([b"a", b"", b"bc"]))
    [b'a', b'', b'bc']
    """
    return b"".join(part for body in bodies for part in (len(body).to_bytes(4, "big"), body))


def unbundled(body: bytes) -> list[bytes]:
    """Take apart what `bundle` put together."""
    source, found = io.BytesIO(body), []
    while size := source.read(4):
        found.append(source.read(int.from_bytes(size, "big")))
    return found


def _pack(record: dict[str, Any], frames: Mapping[str, pl.DataFrame | None]) -> bytes:
    bodies = {name: frame_to_bytes(frame) for name, frame in frames.items() if frame is not None}
    head = json.dumps({"record": record, "frames": {name: len(body) for name, body in bodies.items()}}).encode()
    return b"".join([len(head).to_bytes(4, "big"), head, *bodies.values()])


def _unpack(body: bytes) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    source = io.BytesIO(body)
    head = json.loads(source.read(int.from_bytes(source.read(4), "big")))
    return head["record"], {name: frame_from_bytes(source.read(size)) for name, size in head["frames"].items()}
