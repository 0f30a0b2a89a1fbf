"""Runs a stream in this process.

Nothing happens by itself: each `step` is one micro-batch with the rows you give it and the processing time you say
it is. So a test can take the time it likes, and the answer is the same as on Spark for the same batches. A source that
is a topic takes the values of its records as well, and reads them as Spark would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.engine import MemorySegments
from headrace.engine.frames import stacked
from headrace.engine.group import Arrivals, Seen
from headrace.engine.tally import count, tallied
from headrace.errors import PlanError, StateError
from headrace.events.letters import dead_letters
from headrace.formats import Records
from headrace.formats.format import SKIPPED
from headrace.savepoints.contents import JobState
from headrace.savepoints.rescale import rescaled
from headrace.savepoints.state import Snapshot, snapshot_of, state_of
from headrace.stream import Job
from headrace.stream.intake import Parts, take_in
from headrace.stream.pipeline import Pipeline, compile_plan
from headrace.stream.plan import TopicSource
from headrace.stream.stage_runner import StageRunner
from headrace.stream.stages import by_output
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from headrace.engine.limits import StateLimit
    from headrace.formats import Format
    from headrace.stream.plan import Source
    from headrace.stream.stream import Stream

#: What a source is fed: rows, or for a topic its records, or their values alone.
Rows = pl.DataFrame | Records | Sequence[bytes | None]


@dataclass(frozen=True)
class Batch:
    """What one step gave.

    Args:
        results: Result rows.
        late: Rows that came after all their windows had expired, or None.
        dismissed: Rows that could not be used, with `reason`, or None.
        watermark: Where event time stands after the step.
        counts: What steps have counted, by name: rows that a filter dropped, events that were not enriched.
        outputs: Result rows of a job's further outputs, by name.
        dead: Records that could not be read, with `reason`, `text` and `value`, or None.
        ways: Result rows by way out, in the order of the pipeline: those of several steps in one output are apart.
    """

    results: pl.DataFrame
    late: pl.DataFrame | None
    dismissed: pl.DataFrame | None
    watermark: int
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, pl.DataFrame] = field(default_factory=dict)
    dead: pl.DataFrame | None = None
    ways: tuple[pl.DataFrame, ...] = ()


class Runner:
    """Runs one stream, step by step.

    Args:
        stream: What to run: a stream, a job, or a compiled pipeline.
        key_groups: How many key groups to spread keys over; the results do not depend on it.
        snapshot: What `snapshot()` of another runner gave, to continue from it; the number of key groups may differ.
        prepare: Let operators fold rows before they are sent to key groups, as Spark does.
        state_limit: How much state each stateful step may keep; each key group may keep its share.
        partitions: How many partitions each topic has, by its name, where that is known: each holds the watermark back
            until it brings rows or is idle. The partition n of a topic is fed as `topic/n` then.

    >>> from datetime import datetime, timezone
    >>> from headrace.stream import Stream
    >>> from headrace.time import bounded
    >>> from headrace.windows import count, tumbling
    >>> stream = (
    ...     Stream.rows("doors", {"door": pl.String}).watermark(bounded("0s"))
    ...     .key_by("door").window(tumbling("10s")).aggregate(openings=count())
    ... )
    >>> runner = Runner(stream)
    >>> at = lambda second: datetime(2026, 1, 1, 0, 0, second, tzinfo=timezone.utc)
    >>> rows = pl.DataFrame({"door": ["a", "a", "b"], "event_time": [at(1), at(2), at(12)]})
    >>> runner.step(rows).results.select("door", "openings").rows()
    [('a', 2)]
    """

    def __init__(
        self,
        stream: Stream | Job | Pipeline,
        *,
        key_groups: int = 4,
        snapshot: Snapshot | None = None,
        prepare: bool = True,
        state_limit: StateLimit | None = None,
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        self.pipeline = _pipeline(stream)
        self._groups = key_groups
        self._prepare = prepare
        self._watermarks: dict[str, int] = {}
        self._partitions: dict[int, dict[str, None]] = {number: {} for number in range(len(self.pipeline.entries))}
        names = [stage.step for stage in self.pipeline.stages]
        contents = {name: [{} for _ in range(key_groups)] for name in names} if snapshot is None else snapshot
        if set(contents) != set(names):
            raise StateError(
                f"the snapshot has the state of {', '.join(map(repr, contents))}; the runner has "
                f"{', '.join(map(repr, names))}",
                hint="Continue with the stateful steps that the snapshot was taken with, or let "
                "`headrace.savepoints.fitted` make it fit.",
            )
        if any(len(groups) != key_groups for groups in contents.values()):
            contents = snapshot_of(rescaled(self.pipeline, state_of(contents), key_groups))
        self._segments = [[MemorySegments(content) for content in contents[name]] for name in names]
        self._stages = [
            StageRunner(
                self.pipeline,
                number,
                key_groups,
                partitions=partitions,
                limit=None if state_limit is None else state_limit.share(key_groups),
            )
            for number in range(len(names))
        ]
        self._now = self._stages[0].now(self._segments[0][0])

    def snapshot(self) -> Snapshot:
        """Return the state of every step and key group, to continue from it in another runner."""
        return {
            stage.step: [dict(group.content) for group in groups]
            for stage, groups in zip(self.pipeline.stages, self._segments, strict=True)
        }

    def state(self) -> JobState:
        """Look into the state as it is now: open windows, partial matches, pending rows, sizes, the rows of a key."""
        return JobState(self.pipeline, self.snapshot())

    def step(
        self,
        rows: Rows | Mapping[str, Rows | Mapping[str, Rows]] | None = None,
        *,
        now: int | None = None,
        watermark: int | None = None,
    ) -> Batch:
        """Run one micro-batch.

        Args:
            rows: The rows of the only source; or by source name; or by source name and partition. For a topic, the
                values of its records will do, or `Records` where a format reads more of them. Values alone have `now`
                for Kafka's timestamp.
            now: Processing time in microseconds since the epoch; stays where it was if not given, or if it goes back.
                Idleness is measured by the steps that it takes forward.
            watermark: What sources with the `perfect()` strategy say their watermark is, in all of their partitions.
        """
        self._now = self._now if now is None else max(now, self._now or now)
        with tallied() as counts:
            dead: list[pl.DataFrame] = []
            arrivals, dismissed = self._arrivals(rows, watermark, now, dead)
            return replace(self._run_stages(arrivals, dismissed), counts=counts, dead=stacked(dead))

    def finish(self) -> Batch:
        """Say that no more rows will come: event time goes to its end, so every window that is still open fires."""
        with tallied() as counts:
            return replace(self._run_stages(self._no_arrivals(Arrivals(ended=True)), []), counts=counts)

    def _no_arrivals(self, empty: Arrivals) -> list[list[Arrivals]]:
        """Make what arrives at each key group of each stage, as yet without rows."""
        return [[Arrivals(now=empty.now, ended=empty.ended) for _ in range(self._groups)] for _ in self.pipeline.stages]

    def _arrivals(
        self,
        rows: Rows | Mapping[str, Rows | Mapping[str, Rows]] | None,
        watermark: int | None,
        now: int | None,
        dead: list[pl.DataFrame],
    ) -> tuple[list[list[Arrivals]], list[pl.DataFrame]]:
        """Take rows in, and sort them to the key groups of their stages; the second part is what could not be used.

        Dead letters are added to `dead`.
        """
        arrivals = self._no_arrivals(Arrivals(now=now))
        dismissed: list[pl.DataFrame] = []
        for number, partition, frame in self._fed(rows, dead):
            taken = take_in(
                self.pipeline,
                number,
                Parts({partition: frame}, self._now),
                groups=self._groups,
                watermarks=self._watermarks if self._prepare else None,
            )
            for group, arrival in enumerate(arrivals[taken.stage]):
                arrival.seen.extend(taken.seen)
                if group in taken.rows:
                    arrival.add(taken.input, taken.rows[group])
                if group in taken.partials:
                    arrival.partials.append(taken.partials[group])
            if taken.dismissed is not None:
                dismissed.append(taken.dismissed)
        if watermark is not None:
            for number, partitions in self._partitions.items():
                stage = self.pipeline.entries[number].stage
                feed = self.pipeline.entries_of(stage).index(number)
                for arrival in arrivals[stage]:
                    arrival.seen.extend(
                        Seen(feed, partition, {"watermark": watermark}) for partition in (partitions or ["0"])
                    )
        return arrivals, dismissed

    def _fed(
        self, rows: Rows | Mapping[str, Rows | Mapping[str, Rows]] | None, dead: list[pl.DataFrame]
    ) -> list[tuple[int, str, pl.DataFrame]]:
        if rows is None:
            return []
        names: dict[str, list[int]] = {}
        for number, entry in enumerate(self.pipeline.entries):
            names.setdefault(entry.source.name, []).append(number)
        if not isinstance(rows, Mapping):
            if len(names) > 1:
                raise PlanError(f"rows for which source? There are {', '.join(names)}", hint="Give a mapping by name.")
            rows = {next(iter(names)): rows}
        fed: list[tuple[int, str, pl.DataFrame]] = []
        for name, given in rows.items():
            if name not in names:
                raise PlanError(f"there is no source {name!r}", hint=f"The sources are: {', '.join(names)}.")
            parts = given if isinstance(given, Mapping) else {"0": given}
            known: dict[tuple[str, Format], pl.DataFrame] = {}
            for number in names[name]:  # one source may stand at several places of a plan
                source = self.pipeline.entries[number].source
                self._partitions[number] |= dict.fromkeys(parts)
                for partition, part in parts.items():
                    frame = part if isinstance(part, pl.DataFrame) else self._read(source, partition, part, known, dead)
                    fed.append((number, partition, _conform(frame, source.schema, name)))
        return fed

    def _read(
        self,
        source: Source,
        partition: str,
        part: Records | Sequence[bytes | None],
        known: dict[tuple[str, Format], pl.DataFrame],
        dead: list[pl.DataFrame],
    ) -> pl.DataFrame:
        """Read the records of a topic; those that cannot be read become dead letters, once for each format."""
        if not isinstance(source, TopicSource):
            raise PlanError(
                f"values of records for {source.text}, which is no topic",
                hint="Give a frame, or begin with Stream.topic(..., format=...).",
            )
        place = (partition, source.format)
        if place not in known:
            records = part if isinstance(part, Records) else _records(part, self._now)
            decoded = source.format.decode(records)
            known[place] = decoded.frame
            count(SKIPPED, 0 if decoded.skipped is None else len(decoded.skipped))
            if decoded.rejections:
                letters = dead_letters(decoded.rejections, records.values)
                dead.append(letters.with_columns(topic=pl.lit(source.topic)))
        return known[place]

    def _run_stages(self, arrivals: list[list[Arrivals]], dismissed: list[pl.DataFrame]) -> Batch:
        late: list[pl.DataFrame] = []
        results: list[list[pl.DataFrame]] = [[] for _ in self.pipeline.outputs]
        places = {id(output): place for place, output in enumerate(self.pipeline.outputs)}
        reached = BEGINNING
        for number, runner in enumerate(self._stages):
            turns = [
                runner.turn(segments, arrival)
                for segments, arrival in zip(self._segments[number], arrivals[number], strict=True)
            ]
            reached = min(turn.departures.watermark for turn in turns)
            self._watermarks[runner.stage.step] = min(turn.departures.reached for turn in turns)
            for turn in turns:
                late += [] if turn.handed.late is None else [turn.handed.late]
                dismissed += [] if turn.handed.dismissed is None else [turn.handed.dismissed]
                for output, rows in turn.handed.results:
                    results[places[id(output)]].append(rows)
                for onward in turn.onward:
                    for group, rows in onward.rows.items():
                        arrivals[onward.edge.target][group].add(onward.edge.input, rows)
            for onward in turns[0].onward:
                for arrival in arrivals[onward.edge.target]:
                    arrival.now = self._now if arrival.now is None else arrival.now
                    arrival.seen.append(onward.seen("upstream", reached))
        ways = tuple(
            output.finish(pl.concat(parts)) if parts else output.schema.to_frame()
            for output, parts in zip(self.pipeline.outputs, results, strict=True)
        )
        finished = by_output(self.pipeline, ways)
        return Batch(finished.pop(""), stacked(late), stacked(dismissed), reached, outputs=finished, ways=ways)


def run(stream: Stream, rows: Rows | Mapping[str, Rows | Mapping[str, Rows]], *, key_groups: int = 4) -> Batch:
    """Run a stream over rows that are all there, in one step and to the end of time."""
    runner = Runner(stream, key_groups=key_groups)
    first = runner.step(rows)
    last = runner.finish()
    return Batch(
        pl.concat([first.results, last.results]),
        stacked([part for part in (first.late, last.late) if part is not None]),
        stacked([part for part in (first.dismissed, last.dismissed) if part is not None]),
        last.watermark,
        {name: first.counts.get(name, 0) + last.counts.get(name, 0) for name in first.counts | last.counts},
        dead=first.dead,
        ways=tuple(map(pl.concat, zip(first.ways, last.ways, strict=True))),
    )


def _pipeline(stream: Stream | Job | Pipeline) -> Pipeline:
    if isinstance(stream, Pipeline):
        return stream
    if isinstance(stream, Job):
        return stream.pipeline
    # Late rows are shown as they came, so no column is left out.
    return compile_plan(stream.node, stream.schema, prune=False)


def _records(values: Sequence[bytes | None], now: int | None) -> Records:
    """Make records of values that arrive now."""
    times = pa.array([now] * len(values), pa.timestamp("us", "UTC"))
    return Records(pa.array(values, pa.binary()), timestamps=times)


def _conform(frame: pl.DataFrame, schema: pl.Schema, name: str) -> pl.DataFrame:
    missing = [column for column in schema if column not in frame.columns]
    if missing:
        raise PlanError(
            f"the rows for {name!r} lack {', '.join(missing)}",
            hint=f"They need the columns {', '.join(schema)}.",
        )
    return frame.select([pl.col(column).cast(kind) for column, kind in schema.items()])
