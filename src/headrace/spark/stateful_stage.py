"""The stateful stage: one call per key group and batch, state in Spark's state store.

Spark hands over all exchange rows of a group; `headrace.engine.group.Group` does the work; what leaves goes on as
exchange rows. Time mode is "none": the watermark is ours, carried by the rows.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from headrace.engine.group import Arrivals, Departures, Group, Seen, Timekeeping
from headrace.engine.keygroups import split_by_group
from headrace.spark.exchange import FINAL_KINDS, Parcel, frames
from headrace.stream.handover import hand_over
from headrace.stream.intake import timekeeping
from headrace.time.strategies import perfect

if TYPE_CHECKING:
    from collections.abc import Iterator

    import polars as pl
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

    from headrace.stream.pipeline import Pipeline


class StoreSegments:
    """Segments in a map state of Spark's state store."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        found = self._store.getValue((name,))
        return None if found is None else bytes(found[0])

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        self._store.updateValue((name,), (value,))

    def delete(self, name: str) -> None:
        """Forget the segment."""
        self._store.removeKey((name,))


class StatefulStage(StatefulProcessor):
    """Runs one stage of every job of a query.

    Args:
        pipelines: The jobs' pipelines, by name; the order numbers the jobs.
        groups: Key groups per job.
        level: Which of a job's stages; a job with fewer lets its results pass.
        partitions: How many partitions each source topic has.
    """

    def __init__(
        self, pipelines: dict[str, Pipeline], groups: int, level: int, partitions: dict[str, int] | None = None
    ) -> None:
        self._pipelines = list(pipelines.values())
        self._groups = groups
        self._level = level
        self._partitions = partitions or {}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state; called once per task."""
        self._store = handle.getMapState("segments", "name string", "value binary")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """Take one group's turn."""
        received: dict[str, list[bytes]] = defaultdict(list)
        for frame in rows:
            for kind, body in zip(frame["kind"], frame["body"], strict=True):
                received[kind].append(bytes(body))
        parcel = self._turn(int(key[0]), received)
        if parcel.groups:  # Spark cannot tell the types of a frame without rows.
            yield pd.DataFrame({"group": parcel.groups, "kind": parcel.kinds, "body": parcel.bodies})

    def close(self) -> None:
        """Nothing is kept open."""

    def _turn(self, number: int, received: dict[str, list[bytes]]) -> Parcel:
        job, group = divmod(number, self._groups)
        pipeline = self._pipelines[job]
        parcel = Parcel()
        for kind in FINAL_KINDS:
            for body in received[kind]:
                parcel.add(number, kind, body)
        if self._level >= len(pipeline.stages):
            return parcel
        stage = pipeline.stages[self._level]
        clocks = [json.loads(body) for body in received["clock"]]
        runner = Group(stage.operator, self._times(pipeline), stage.schema, report=group == 0 and self._level == 0)
        departures = runner.turn(StoreSegments(self._store), _arrivals(received, clocks))
        outcome = hand_over(pipeline, self._level, departures.outcome)
        left = [] if outcome.rows is None else [outcome.rows]
        if self._level + 1 == len(pipeline.stages):
            parcel.add_frames(number, "result", left)
        else:
            self._send_on(parcel, job, group, left, departures)
        parcel.add_frames(number, "late", [] if outcome.late is None else [outcome.late])
        parcel.add_frames(number, "dismissed", [] if outcome.dismissed is None else [outcome.dismissed])
        if group == 0 and self._level == 0:
            count = sum(clock["rows"] for clock in clocks)
            time = {"watermark": departures.watermark, "now": departures.now, "rows": count}
            parcel.add(number, "time", json.dumps(time).encode())
        return parcel

    def _times(self, pipeline: Pipeline) -> tuple[Timekeeping, ...]:
        return timekeeping(pipeline, self._partitions) if self._level == 0 else (Timekeeping(perfect()),)

    def _send_on(self, parcel: Parcel, job: int, group: int, left: list[pl.DataFrame], departures: Departures) -> None:
        """Send rows to their groups of the next stage; one group tells all of them the time."""
        following = self._pipelines[job].stages[self._level + 1]
        first = job * self._groups
        for frame in left:
            for target, part in split_by_group(
                frame.select(list(following.schema)), following.keys, self._groups
            ).items():
                parcel.add_frames(first + target, "rows", [part])
        if group == 0:
            clock = {"seen": [[0, "upstream", {"watermark": departures.watermark}]], "now": departures.now, "rows": 0}
            for target in range(self._groups):
                parcel.add(first + target, "clock", json.dumps(clock).encode())


def _arrivals(received: dict[str, list[bytes]], clocks: list[dict[str, Any]]) -> Arrivals:
    nows = [int(body) for body in received["beat"]] + [clock["now"] for clock in clocks if clock.get("now") is not None]
    firsts = [clock["newest_ingestion"] for clock in clocks if clock.get("newest_ingestion") is not None]
    return Arrivals(
        rows=frames(received["rows"]),
        partials=frames(received["partials"]),
        seen=[Seen(*seen) for clock in clocks for seen in clock["seen"]],
        now=max(nows, default=None),
        first_now=max(firsts, default=None),
    )
