"""The work of a stage on one key group, from exchange rows to exchange rows; the same in streaming and in batch.

Where state is kept, and who calls, is the caller's: Spark's state store in `stateful_stage`, memory in `batch`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.engine import MemorySegments
from headrace.engine.group import Arrivals, Departures, Group, Seen, Timekeeping
from headrace.engine.keygroups import split_by_group
from headrace.engine.tally import tallied
from headrace.spark.run.isolation import Attendance, blamed
from headrace.spark.source.exchange import Parcel, frames, is_final, output_kind
from headrace.stream.handover import hand_over, hand_over_branches
from headrace.stream.intake import timekeeping
from headrace.time.strategies import perfect

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

    from headrace.engine import Segments
    from headrace.engine.limits import StateLimit
    from headrace.stream.pipeline import Pipeline

Received = dict[str, list[bytes]]
#: The segment that says what a job brought along when it came back.
_RETURN = "return"


class StageWork:
    """One stage of every job of a query.

    Args:
        pipelines: The jobs' pipelines, by name; the order numbers the jobs.
        groups: Key groups per job.
        level: Which of a job's stages; a job with fewer lets its results pass.
        partitions: How many partitions each source topic has.
        ended: No more rows will ever come, so event time goes to its end.
        attendance: Which jobs take part, and what those bring along that come back.
        state_limit: How much state the step of each job may keep; each key group may keep its share.
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
    ) -> None:
        self._names = list(pipelines)
        self._pipelines = list(pipelines.values())
        self._attendance = attendance or Attendance()
        self._groups = groups
        self._level = level
        self._partitions = partitions or {}
        self._ended = ended
        self._limit = None if state_limit is None else state_limit.share(groups)

    def turn(self, number: int, received: Received, segments: Segments) -> Parcel:
        """Take one group's turn.

        Args:
            number: The group, counted through all jobs.
            received: The bodies that reached it, by kind.
            segments: Its state.
        """
        job, group = divmod(number, self._groups)
        pipeline = self._pipelines[job]
        parcel = Parcel()
        for kind, bodies in received.items():
            if is_final(kind):
                for body in bodies:
                    parcel.add(number, kind, body)
        if self._level >= len(pipeline.stages) or not self._takes_part(job, received):
            return parcel
        with blamed(self._names[job]):
            self._work(job, group, received, self._unpacked(job, group, segments), parcel)
        return parcel

    def _takes_part(self, job: int, received: Received) -> bool:
        """Tell whether a group is to work; one of a job that is left out may be given what others only send through."""
        name, attendance = self._names[job], self._attendance
        return name not in attendance.absent and (name not in attendance.returning or "clock" in received)

    def _unpacked(self, job: int, group: int, segments: Segments) -> Segments:
        """Put what a job brings along that comes back in the place of the state that it had when it stopped."""
        back = self._attendance.returning.get(self._names[job])
        if back is None or segments.get(_RETURN) == back.mark.encode():
            return segments
        place = (self._level, group)
        for name in back.gone.get(place, ()):
            segments.delete(name)
        for name, value in back.segments.get(place, {}).items():
            segments.put(name, value)
        segments.put(_RETURN, back.mark.encode())
        return segments

    def _work(self, job: int, group: int, received: Received, segments: Segments, parcel: Parcel) -> None:
        number, pipeline = job * self._groups + group, self._pipelines[job]
        stage = pipeline.stages[self._level]
        clocks = [json.loads(body) for body in received.get("clock", ())]
        runner = Group(
            stage.operator,
            self._times(pipeline),
            stage.schema,
            report=group == 0 and self._level == 0,
            limit=self._limit,
            step=f"step {self._level + 1}",
        )
        with tallied() as counts:
            departures = runner.turn(segments, self._arrivals(received, clocks))
            outcome = hand_over(pipeline, self._level, departures.outcome)
            left = [] if outcome.rows is None else [outcome.rows]
            if self._level + 1 == len(pipeline.stages):
                parcel.add_frames(number, "result", left)
                for name, rows in hand_over_branches(pipeline, departures.outcome).items():
                    parcel.add_frames(number, output_kind(name), [rows])
            else:
                self._send_on(parcel, job, group, left, departures)
        parcel.add_counts(number, counts)
        parcel.add_frames(number, "late", [] if outcome.late is None else [outcome.late])
        parcel.add_frames(number, "dismissed", [] if outcome.dismissed is None else [outcome.dismissed])
        if group == 0 and self._level == 0:
            count = sum(clock["rows"] for clock in clocks)
            time = {
                "watermark": departures.reached,
                "now": departures.now,
                "rows": count,
                "ingested": max((clock.get("newest_ingestion") or 0 for clock in clocks), default=0) or None,
                "partitions": [asdict(report) for report in departures.partitions],
            }
            parcel.add(number, "time", json.dumps(time).encode())

    def _times(self, pipeline: Pipeline) -> tuple[Timekeeping, ...]:
        return timekeeping(pipeline, self._partitions) if self._level == 0 else (Timekeeping(perfect()),)

    def _send_on(self, parcel: Parcel, job: int, group: int, left: list[pl.DataFrame], departures: Departures) -> None:
        """Send rows, and the time that this group has come to, to the groups of the next stage."""
        following = self._pipelines[job].stages[self._level + 1]
        first = job * self._groups
        for frame in left:
            parts = split_by_group(frame.select(list(following.schema)), following.keys, self._groups)
            for target, part in parts.items():
                parcel.add_frames(first + target, "rows", [part])
        seen = [0, f"upstream/{group}", {"watermark": departures.watermark}]
        clock = json.dumps({"seen": [seen], "now": departures.now, "rows": 0}).encode()
        for target in range(self._groups):
            parcel.add(first + target, "clock", clock)

    def _arrivals(self, received: Received, clocks: list[dict[str, Any]]) -> Arrivals:
        beats = [int(body) for body in received.get("beat", ())]
        nows = beats + [clock["now"] for clock in clocks if clock.get("now") is not None]
        steady = [clock["steady"] for clock in clocks if clock.get("steady") is not None]
        firsts = [clock["newest_ingestion"] for clock in clocks if clock.get("newest_ingestion") is not None]
        return Arrivals(
            rows=frames(received.get("rows", ())),
            partials=frames(received.get("partials", ())),
            seen=[Seen(*seen) for clock in clocks for seen in clock["seen"]],
            now=max(nows, default=None),
            steady=max(steady, default=None),
            first_now=max(firsts, default=None),
            ended=self._ended,
        )


def group_turn(work: StageWork) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    """Make what Spark's grouped map calls: the one turn of every key group in a batch, with state that nobody keeps."""

    def turn(key: tuple[pa.Scalar, ...], table: pa.Table) -> pa.Table:
        received: Received = defaultdict(list)
        for kind, body in zip(table.column("kind").to_pylist(), table.column("body").to_pylist(), strict=True):
            received[kind].append(body)
        parcel = work.turn(int(key[0].as_py()), received, MemorySegments())
        return pa.Table.from_batches([parcel.to_arrow()])

    return turn
