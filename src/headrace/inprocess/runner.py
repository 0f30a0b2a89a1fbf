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
from headrace.engine.group import Arrivals, Group, Seen, Timekeeping
from headrace.engine.keygroups import split_by_group
from headrace.engine.tally import count, tallied
from headrace.errors import PlanError, StateError
from headrace.events.letters import dead_letters
from headrace.formats import Records
from headrace.formats.format import SKIPPED
from headrace.stream import Job
from headrace.stream.handover import hand_over, hand_over_branches
from headrace.stream.intake import Parts, take_in, timekeeping
from headrace.stream.pipeline import Pipeline, compile_plan
from headrace.stream.plan import TopicSource
from headrace.time.instants import BEGINNING
from headrace.time.strategies import perfect

if TYPE_CHECKING:
    from headrace.engine.limits import StateLimit
    from headrace.formats import Format
    from headrace.stream.plan import Source
    from headrace.stream.stream import Stream

#: What a source is fed: rows, or for a topic its records, or their values alone.
Rows = pl.DataFrame | Records | Sequence[bytes | None]
Snapshot = list[list[dict[str, bytes]]]


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
    """

    results: pl.DataFrame
    late: pl.DataFrame | None
    dismissed: pl.DataFrame | None
    watermark: int
    counts: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, pl.DataFrame] = field(default_factory=dict)
    dead: pl.DataFrame | None = None


class Runner:
    """Runs one stream, step by step.

    Args:
        stream: What to run: a stream, a job, or a compiled pipeline.
        key_groups: How many key groups to spread keys over; the results do not depend on it.
        snapshot: What `snapshot()` of another runner gave, to continue from it.
        prepare: Let operators fold rows before they are sent to key groups, as Spark does.
        state_limit: How much state each stateful step may keep; each key group may keep its share.

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
    ) -> None:
        self.pipeline = _pipeline(stream)
        self._groups = key_groups
        self._prepare = prepare
        self._watermark: int | None = None
        self._partitions: dict[int, dict[str, None]] = {number: {} for number in range(len(self.pipeline.entries))}
        stages = len(self.pipeline.stages)
        contents = snapshot or [[{} for _ in range(key_groups)] for _ in range(stages)]
        if len(contents) != stages or any(len(stage) != key_groups for stage in contents):
            found = f"{len(contents)} stages of {', '.join(str(len(stage)) for stage in contents)} key groups"
            raise StateError(
                f"the snapshot has {found}, the runner has {stages} of {key_groups}",
                hint="Continue with the number of key groups and the stateful steps that the snapshot was taken with.",
            )
        self._segments = [[MemorySegments(content) for content in stage] for stage in contents]
        chained = (Timekeeping(perfect()),)
        self._stages = [
            Group(
                stage.operator,
                timekeeping(self.pipeline) if number == 0 else chained,
                stage.schema,
                limit=None if state_limit is None else state_limit.share(key_groups),
                step=f"step {number + 1}",
            )
            for number, stage in enumerate(self.pipeline.stages)
        ]
        self._now = self._stages[0].now(self._segments[0][0])

    def snapshot(self) -> Snapshot:
        """Return the state of every stage and key group, to continue from it in another runner."""
        return [[dict(group.content) for group in stage] for stage in self._segments]

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
            ended = [Arrivals(ended=True) for _ in range(self._groups)]
            return replace(self._run_stages(ended, []), counts=counts)

    def _arrivals(
        self,
        rows: Rows | Mapping[str, Rows | Mapping[str, Rows]] | None,
        watermark: int | None,
        now: int | None,
        dead: list[pl.DataFrame],
    ) -> tuple[list[Arrivals], list[pl.DataFrame]]:
        """Take rows in, and sort them to the key groups; the second part is what could not be used.

        Dead letters are added to `dead`.
        """
        arrivals = [Arrivals(now=now) for _ in range(self._groups)]
        dismissed: list[pl.DataFrame] = []
        for number, partition, frame in self._fed(rows, dead):
            taken = take_in(
                self.pipeline,
                number,
                Parts({partition: frame}, self._now),
                groups=self._groups,
                watermark=self._watermark if self._prepare else None,
            )
            for group, arrival in enumerate(arrivals):
                arrival.seen.extend(taken.seen)
                if group in taken.rows:
                    arrival.rows.append(taken.rows[group])
                if group in taken.partials:
                    arrival.partials.append(taken.partials[group])
            if taken.dismissed is not None:
                dismissed.append(taken.dismissed)
        if watermark is not None:
            for arrival in arrivals:
                arrival.seen.extend(
                    Seen(number, partition, {"watermark": watermark})
                    for number, partitions in self._partitions.items()
                    for partition in (partitions or ["0"])
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

    def _run_stages(self, arrivals: list[Arrivals], dismissed: list[pl.DataFrame]) -> Batch:
        late: list[pl.DataFrame] = []
        left: list[pl.DataFrame] = []
        beside: dict[str, list[pl.DataFrame]] = {branch.name: [] for branch in self.pipeline.branches}
        reached = BEGINNING
        for number in range(len(self.pipeline.stages)):
            left, marks, own = [], [], []
            for group, arrival in enumerate(arrivals):
                departures = self._stages[number].turn(self._segments[number][group], arrival)
                outcome = hand_over(self.pipeline, number, departures.outcome)
                if number + 1 == len(self.pipeline.stages):
                    for name, part in hand_over_branches(self.pipeline, departures.outcome).items():
                        beside[name].append(part)
                marks.append(departures.watermark)
                own.append(departures.reached)
                left += [] if outcome.rows is None else [outcome.rows]
                late += [] if outcome.late is None else [outcome.late]
                dismissed += [] if outcome.dismissed is None else [outcome.dismissed]
            reached = min(marks)
            if number == 0:
                self._watermark = min(own)
            if number + 1 < len(self.pipeline.stages):
                arrivals = self._onward(number + 1, left, reached)
        rows = pl.concat(left) if left else None
        results = self.pipeline.finish(rows) if rows is not None else self.pipeline.schema.to_frame()
        return Batch(
            results,
            stacked(late),
            stacked(dismissed),
            reached,
            outputs={
                branch.name: branch.finish(pl.concat(parts)) if parts else branch.schema.to_frame()
                for branch, parts in zip(self.pipeline.branches, beside.values(), strict=True)
            },
        )

    def _onward(self, number: int, left: list[pl.DataFrame], reached: int) -> list[Arrivals]:
        stage = self.pipeline.stages[number]
        arrivals = [
            Arrivals(now=self._now, seen=[Seen(0, "upstream", {"watermark": reached})]) for _ in range(self._groups)
        ]
        for frame in left:
            for group, part in split_by_group(frame.select(list(stage.schema)), stage.keys, self._groups).items():
                arrivals[group].rows.append(part)
        return arrivals


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
