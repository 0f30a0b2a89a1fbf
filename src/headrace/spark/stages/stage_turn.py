"""The work of a level's stages on one key group, from exchange rows to exchange rows; in streaming and in batch.

Where state is kept, and who calls, is the caller's: Spark's state store in `stateful_stage`, memory in `batch`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine import MemorySegments
from headrace.engine.group import Arrivals, Departures, Seen
from headrace.engine.limits import STATE_BYTES, STATE_KEYS
from headrace.engine.tally import tallied
from headrace.spark.run.isolation import Attendance, blamed
from headrace.spark.source.exchange import Parcel, frames, is_final, output_kind, rows_by_input, rows_kind
from headrace.spark.stages.slots import Slots
from headrace.stream.stage_runner import Onward, StageRunner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.engine import Segments
    from headrace.engine.limits import StateLimit
    from headrace.stream.pipeline import Pipeline

Received = dict[str, list[bytes]]
#: The segment that says what a job brought along when it came back.
RETURN = "return"


class StageWork:
    """The stages of one level of every job of a query.

    Args:
        pipelines: The jobs' pipelines, by name, in the order of the jobs.
        groups: Key groups per step.
        level: Which stages work; what is for others passes.
        partitions: How many partitions each source topic has.
        ended: No more rows will ever come, so event time goes to its end.
        attendance: Which jobs take part, and what those bring along that come back.
        state_limit: How much state each step of each job may keep; each key group may keep its share.
        slots: The numbers of the steps; counted through if not given.
    """

    def __init__(
        self,
        pipelines: dict[str, Pipeline],
        groups: int,
        level: int,
        partitions: dict[str, int] | None = None,
        *,
        ended: bool = False,
        attendance: Attendance | None = None,
        state_limit: StateLimit | None = None,
        slots: Slots | None = None,
    ) -> None:
        self._names = list(pipelines)
        self._pipelines = list(pipelines.values())
        self._attendance = attendance or Attendance()
        self._groups = groups
        self._level = level
        self._partitions = partitions or {}
        self._ended = ended
        self._limit = None if state_limit is None else state_limit.share(groups)
        self._slots = slots or Slots.numbered(pipelines, groups)

    def turn(self, number: int, received: Received, segments: Segments) -> Parcel:
        """Take one group's turn.

        Args:
            number: The group, counted through all steps.
            received: The bodies that reached it, by kind.
            segments: Its state.
        """
        job, stage, group = self._slots.place(number)
        pipeline = self._pipelines[job]
        works = pipeline.stages[stage].level == self._level
        parcel = Parcel()
        for kind, bodies in received.items():
            if is_final(kind) or not works:
                for body in bodies:
                    parcel.add(number, kind, body)
        if not works or not self._takes_part(job, received):
            return parcel
        with blamed(self._names[job]):
            self._work(job, stage, group, received, self._unpacked(job, stage, group, segments), parcel)
        return parcel

    def _takes_part(self, job: int, received: Received) -> bool:
        """Tell whether a group is to work; one of a job that is left out may be given what others only send through."""
        name, attendance = self._names[job], self._attendance
        return name not in attendance.absent and (name not in attendance.returning or "clock" in received)

    def _unpacked(self, job: int, stage: int, group: int, segments: Segments) -> Segments:
        """Put what a job brings along that comes back in the place of the state that it had when it stopped."""
        back = self._attendance.returning.get(self._names[job])
        if back is None or segments.get(RETURN) == back.mark.encode():
            return segments
        place = (self._pipelines[job].stages[stage].step, group)
        for name in back.gone.get(place, ()):
            segments.delete(name)
        for name, value in back.segments.get(place, {}).items():
            segments.put(name, value)
        segments.put(RETURN, back.mark.encode())
        return segments

    def _work(self, job: int, stage: int, group: int, received: Received, segments: Segments, parcel: Parcel) -> None:
        name, pipeline = self._names[job], self._pipelines[job]
        number = self._slots.number(name, stage, group)
        clocks = [json.loads(body) for body in received.get("clock", ())]
        reports = group == 0 and bool(pipeline.entries_of(stage))
        runner = StageRunner(
            pipeline, stage, self._groups, partitions=self._partitions, limit=self._limit, report=reports
        )
        with tallied() as counts:
            turn = runner.turn(segments, self._arrivals(received, clocks))
        departures = turn.departures
        # The job's figures are those of all its steps; these are the step's own.
        sizes = {f"{kept}/{runner.stage.step}": counts[kept] for kept in (STATE_BYTES, STATE_KEYS) if kept in counts}
        for output, rows in turn.handed.results:
            parcel.add_frames(number, output_kind(output.name, output.part), [rows])
        for onward in turn.onward:
            self._send_on(parcel, name, group, onward, departures)
        parcel.add_counts(number, {**counts, **sizes})
        parcel.add_frames(number, "late", [] if turn.handed.late is None else [turn.handed.late])
        parcel.add_frames(number, "dismissed", [] if turn.handed.dismissed is None else [turn.handed.dismissed])
        if reports:
            count = sum(clock["rows"] for clock in clocks)
            time = {
                "step": runner.stage.step,
                "watermark": departures.reached,
                "now": departures.now,
                "rows": count,
                "ingested": max((clock.get("newest_ingestion") or 0 for clock in clocks), default=0) or None,
                "partitions": [asdict(report) for report in departures.partitions],
            }
            parcel.add(number, "time", json.dumps(time).encode())

    def _send_on(self, parcel: Parcel, job: str, group: int, onward: Onward, departures: Departures) -> None:
        """Send rows, and the time that this group has come to, to the groups of a later stage."""
        kind = rows_kind(onward.edge.input)
        for target, part in onward.rows.items():
            parcel.add_frames(self._slots.number(job, onward.edge.target, target), kind, [part])
        seen = onward.seen(f"upstream/{group}", departures.watermark)
        told = {"seen": [[seen.input, seen.partition, seen.observation]], "now": departures.now, "rows": 0}
        clock = json.dumps(told).encode()
        for target in range(self._groups):
            parcel.add(self._slots.number(job, onward.edge.target, target), "clock", clock)

    def _arrivals(self, received: Received, clocks: list[dict[str, Any]]) -> Arrivals:
        beats = [int(body) for body in received.get("beat", ())]
        nows = beats + [clock["now"] for clock in clocks if clock.get("now") is not None]
        steady = [clock["steady"] for clock in clocks if clock.get("steady") is not None]
        firsts = [clock["newest_ingestion"] for clock in clocks if clock.get("newest_ingestion") is not None]
        rows = rows_by_input(received)
        return Arrivals(
            rows=rows.pop(0, []),
            others=rows,
            partials=frames(received.get("partials", ())),
            seen=[Seen(*seen) for clock in clocks for seen in clock["seen"]],
            now=max(nows, default=None),
            steady=max(steady, default=None),
            first_now=max(firsts, default=None),
            ended=self._ended,
        )


def merged_times(bodies: Iterable[bytes]) -> dict[str, Any] | None:
    """Put together what the stages of a job tell of the time that they have reached; None where none tells.

    What was read is told by each of the stages; the watermark of the job is the least of theirs.
    """
    told = [json.loads(body) for body in bodies]
    if not told:
        return None
    partitions = {each["partition"]: each for one in told for each in one["partitions"]}
    return {
        "watermark": min(each["watermark"] for each in told),
        "watermarks": {each["step"]: each["watermark"] for each in told},
        "now": max(each["now"] for each in told),
        "rows": max(each["rows"] for each in told),
        "ingested": max((each["ingested"] or 0 for each in told), default=0) or None,
        "partitions": list(partitions.values()),
    }


def run_levels(
    pipelines: dict[str, Pipeline],
    slots: Slots,
    parcels: Mapping[int, Received],
    state: dict[tuple[str, int], dict[str, bytes]],
    *,
    partitions: dict[str, int],
    state_limit: StateLimit | None = None,
    check: Callable[[], None] = lambda: None,
) -> Mapping[int, Received]:
    """Take what has arrived for one job through all its levels, in this process.

    Args:
        pipelines: The job's pipeline, by name.
        slots: The numbers of its steps.
        parcels: What has arrived, by number.
        state: Segments by step and key group; they are changed.
        partitions: How many partitions each source topic has.
        state_limit: How much state each step may keep.
        check: Is called between turns; what it raises ends the work.

    Returns:
        What left the last level, by number.
    """
    for level in range(max(pipeline.levels for pipeline in pipelines.values())):
        work = StageWork(pipelines, slots.groups, level, partitions, state_limit=state_limit, slots=slots)
        following: dict[int, Received] = defaultdict(lambda: defaultdict(list))
        for job, pipeline in pipelines.items():
            for place, stage in enumerate(pipeline.stages):
                for group in range(slots.groups):
                    check()
                    number = slots.number(job, place, group)
                    segments = MemorySegments(state.get((stage.step, group)))
                    parcel = work.turn(number, parcels.get(number, {}), segments)
                    if stage.level == level:
                        state[stage.step, group] = segments.content
                    for target, kind, body in zip(parcel.groups, parcel.kinds, parcel.bodies, strict=True):
                        following[target][kind].append(body)
        parcels = following
    return parcels


def group_turn(work: StageWork) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """Make what Spark's grouped map calls: the one turn of every key group in a batch, with state that nobody keeps."""

    def turn(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        received: Received = defaultdict(list)
        for kind, body in zip(table.column("kind").to_pylist(), table.column("body").to_pylist(), strict=True):
            received[kind].append(body)
        parcel = work.turn(int(key[0].as_py()), received, MemorySegments())
        return pa.Table.from_batches([parcel.to_arrow()])

    return turn
