"""Catching up: a job that was left out of its query takes in what came meanwhile, and then takes part again.

The query has gone on without the job, so its checkpoint stands at later offsets. Before it starts again, the driver
gives the job what it has missed: the same Arrow stage and the same work per key group as in the query, with the job's
state in memory, from the offsets at which it stopped up to those at which the query goes on. The job then brings its
state along into the query, where it takes the place of what lay there since the stop.

It goes in steps of bounded size. After each, the state and the offsets are noted in a file, then the results are
written under a token with the number of the step, in one transaction: whatever happens in between, the token says which
note counts, and no result is lost or written twice. Processing time stands still meanwhile.

Records that cannot be read become dead letters once for all jobs that read them. So a job that catches up writes those
that no other job has read in the meantime.
"""

from __future__ import annotations

import json
import logging
import shutil
import sys
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import StateError
from headrace.events import Codec
from headrace.kafka.producer import ExpiredError
from headrace.kafka.ranges import LogEnds, Range, shared_reader
from headrace.savepoints.durable_files import make_directory, write_durably
from headrace.savepoints.rescale import rescaled
from headrace.spark.checkpoint.saved_state import read_state, write_state
from headrace.spark.output.delivery import author_name
from headrace.spark.output.records import Writer
from headrace.spark.output.sink import Author, make_sink
from headrace.spark.run.isolation import Return
from headrace.spark.source.arrow_stage import ArrowStage
from headrace.spark.source.exchange import Parcel, frames
from headrace.spark.stages.slots import Slots
from headrace.spark.stages.stage_turn import run_levels
from headrace.stream.message_types import types_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pyarrow as pa

    from headrace.engine.limits import StateLimit
    from headrace.events import Encoding
    from headrace.kafka import Connection
    from headrace.savepoints.state import State
    from headrace.spark.checkpoint.positions import Places
    from headrace.spark.run.isolation import StoppedJob
    from headrace.stream import Delivery, Job

log = logging.getLogger(__name__)

#: Events of one step.
STEP_EVENTS = 50_000


def has_returned(state: State, stopped: StoppedJob) -> bool:
    """Tell whether a job took part again after a stop, by what lies in its state."""
    return any(parts.get("return", b"").startswith(stopped.mark.encode()) for parts in state.values())


class CatchUpStopped(Exception):  # noqa: N818 - nothing is wrong
    """Catching up was ended on request; the next start goes on with it."""


class MissedEventsLostError(StateError):
    """Kafka no longer holds what a job has missed."""


@dataclass(frozen=True)
class Companion:
    """Another job of the query.

    Args:
        job: Which one.
        until: Where it stopped itself, per topic and partition; None: it took part all the time.
    """

    job: Job
    until: Places | None = None


@dataclass(frozen=True, kw_only=True)
class CatchUp:
    """What it takes to let a job catch up.

    Args:
        job: Which one.
        stopped: Where it stopped.
        connection: The Kafka to read from and write to.
        groups: Key groups per job.
        partitions: How many partitions each source topic has.
        query: The query's name.
        token: Names the checkpoint.
        delivery: What is promised of the job's results.
        encoding: How they are written.
        directory: Where it is noted how far the job has come.
        tell: Is told how many events are left.
        run_id: Names the run of the query.
        stop: Ends it between two steps of its work; what is done so far is kept.
        state_limit: How much state each stateful step may keep.
        companions: The other jobs of the query.
        check_owner: Raises an error if another checkpoint writes the job's results by now.
        accept_loss: Go on where Kafka no longer holds what the job has missed.
    """

    job: Job
    stopped: StoppedJob
    connection: Connection
    groups: int
    partitions: dict[str, int]
    query: str
    token: str
    delivery: Delivery
    encoding: Encoding
    directory: Path
    tell: Callable[[int], None]
    run_id: str
    stop: threading.Event
    state_limit: StateLimit | None = None
    companions: Sequence[Companion] = ()
    check_owner: Callable[[], None] = lambda: None
    accept_loss: bool = False

    def run(self, before: State, until: Places, batch: int) -> Return:
        """Catch up.

        Args:
            before: The job's state in the query's checkpoint.
            until: Where the query goes on reading.
            batch: The first batch that the job then takes part in.

        Raises:
            FailedJobError: The job's own code fails still, or again.
            MissedEventsLostError: Some of what it missed has expired, and nobody chose to go on without.
            FencedError: Another checkpoint has taken the results over.
            CatchUpStopped: It was stopped.
        """
        name = author_name(self.query, self.delivery, catching_up=self.job.name)
        author = Author(name, self._token, self.run_id)
        # A step after a crash may have other events than before, so it goes out as a whole; its size is bounded.
        sink = make_sink(self.delivery, self.connection, author, most=sys.maxsize)
        sink.open()
        try:
            # With the id in our hands: who takes the results over from now on fences it.
            self.check_owner()
            step, state, places = self._last(before, until, sink.committed)
            places = self._there(places, until)
            while left := _ranges(places, until):
                self._check_stop()
                self.tell(sum(len(each) for each in left))
                part = _bounded(left, STEP_EVENTS)
                bodies = self._worked(part, state)
                places = {topic: dict(each) for topic, each in places.items()}
                for each in part:
                    places[each.topic][each.partition] = each.end
                step += 1
                self._note(step, state, places)
                counts: Counter[str] = Counter()
                writer = Writer(self.job, Codec(), self.encoding)
                given = writer.outgoing(bodies, time.time_ns() // 1_000, counts, batch=f"{self._token}/{step}")
                sink.write(step, list(given))
        except ExpiredError:
            self.check_owner()  # whoever took the results over has ended our transaction as well
            raise
        finally:
            sink.close()
        gone = {place: [name for name in parts if name not in state.get(place, {})] for place, parts in before.items()}
        return Return(batch, f"{self.stopped.mark}/{step}", state, gone)

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise CatchUpStopped

    @property
    def _token(self) -> str:
        return f"{self.token}/{self.stopped.mark}"

    def _worked(self, ranges: list[Range], state: State) -> dict[str, list[bytes]]:
        """Take the events of some ranges through all stages of the job, and give what left the last one, by kind."""
        pipelines = {self.job.name: self.job.pipeline}
        slots = Slots.numbered(pipelines, self.groups)
        stage = ArrowStage(pipelines, self.groups, Codec(types_of([self.job])), known={}, slots=slots)
        rows = stage(shared_reader(self.connection).read(tuple(ranges), parts=stage.reads), None)
        parcels = run_levels(
            pipelines,
            slots,
            _by_group(rows),
            state,
            partitions=self.partitions,
            state_limit=self.state_limit,
            check=self._check_stop,
        )
        bodies: dict[str, list[bytes]] = defaultdict(list)
        for number in sorted(parcels):
            for kind, those in parcels[number].items():
                if kind != "time":
                    bodies[kind] += those
        if bodies["dead"]:
            parcel = Parcel()
            parcel.add_frames(0, "dead", [self._unwritten(pl.concat(frames(bodies["dead"])), ranges)])
            bodies["dead"] = parcel.bodies
        return bodies

    def _unwritten(self, letters: pl.DataFrame, ranges: list[Range]) -> pl.DataFrame:
        """Leave out the dead letters that the query has written for jobs that took part."""
        for companion in self.companions:
            read = [
                replace(each, end=min(each.end, _stop_of(companion, each)))
                for each in ranges
                if each.topic in companion.job.sources
            ]
            pipelines = {companion.job.name: companion.job.pipeline}
            stage = ArrowStage(pipelines, self.groups, Codec(types_of([companion.job])), known={})
            chunks = shared_reader(self.connection).read(tuple(each for each in read if len(each)), parts=stage.reads)
            written = stage.unreadable(chunks)
            if written:
                letters = letters.join(pl.concat(written), on=["topic", "partition", "offset", "reason"], how="anti")
        return letters

    def _there(self, places: Places, until: Places) -> Places:
        """See that Kafka still holds what the job has missed; go on behind what is gone where that was chosen."""
        wanted = {(each.topic, each.partition): each for each in _ranges(places, until)}
        begins = LogEnds(self.connection).begins(list(wanted)) if wanted else {}
        gone = {place: begins[place] for place, each in wanted.items() if begins[place] > each.start}
        if not gone:
            return places
        told = "; ".join(
            f"{topic} partition {number}: offsets {wanted[topic, number].start:,} to {first - 1:,} have expired"
            for (topic, number), first in gone.items()
        )
        if not self.accept_loss:
            raise MissedEventsLostError(
                f"Kafka no longer holds all that job {self.job.name!r} has missed: {told}",
                hint="Its state is kept. Start with --accept-loss: it takes in what is left, and goes on.",
            )
        log.warning("%s goes on without what is lost: %s", self.job.name, told)
        after = {topic: dict(each) for topic, each in places.items()}
        for (topic, number), first in gone.items():
            after[topic][number] = min(first, wanted[topic, number].end)
        return after

    def _last(self, before: State, until: Places, committed: Callable[[int], bool]) -> tuple[int, State, Places]:
        """Find the last step whose results are out: its state and its offsets."""
        steps = sorted((int(path.stem) for path in self.directory.glob("*.json")), reverse=True)
        if committed(max(steps, default=0) + 1):
            raise StateError(
                f"the notes of {self.job.name} in {self.directory} are older than its results: results are out beyond "
                f"step {max(steps, default=0)}",
                hint="The checkpoint is an older copy, or lost its last files. Restore the newer copy, or start afresh "
                "(--fresh), which writes results that are out again.",
            )
        for step in steps:
            if committed(step):
                state = rescaled(self.job.pipeline, read_state(self.directory / f"{step}.arrow"), self.groups)
                places = json.loads((self.directory / f"{step}.json").read_text("utf-8"))
                whole = {topic: {int(n): int(at) for n, at in each.items()} for topic, each in places.items()}
                return step, state, whole
        shutil.rmtree(self.directory, ignore_errors=True)
        # It has missed nothing of a topic that the query is about to read for the first time.
        mine = {topic: dict(self.stopped.places.get(topic, until.get(topic, {}))) for topic in self.job.sources}
        return 0, {place: dict(parts) for place, parts in before.items()}, mine

    def _note(self, step: int, state: State, places: Places) -> None:
        make_directory(self.directory)
        write_state(self.directory / f"{step}.arrow", state)
        write_durably(self.directory / f"{step}.json", json.dumps(places))
        for old in (step - 2,):
            (self.directory / f"{old}.json").unlink(missing_ok=True)
            (self.directory / f"{old}.arrow").unlink(missing_ok=True)


def _stop_of(companion: Companion, part: Range) -> int:
    """Tell up to where another job has taken part in what a range holds."""
    if companion.until is None:
        return part.end
    return max(part.start, companion.until.get(part.topic, {}).get(part.partition, 0))


def _by_group(rows: pa.RecordBatch) -> dict[int, dict[str, list[bytes]]]:
    parcels: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
    columns = (rows.column(name).to_pylist() for name in ("group", "kind", "body"))
    for group, kind, body in zip(*columns, strict=True):
        parcels[group][kind].append(body)
    return parcels


def _ranges(places: Places, until: Places) -> list[Range]:
    """Tell what lies between the offsets of a job and those of its query."""
    return [
        Range(topic, number, places[topic].get(number, 0), end)
        for topic in places
        for number, end in sorted(until.get(topic, {}).items())
        if end > places[topic].get(number, 0)
    ]


def _bounded(ranges: list[Range], most: int) -> list[Range]:
    """Take the same share of every range, so that their event times stay together.

    >>> [len(each) for each in _bounded([Range("t", 0, 0, 90), Range("t", 1, 5, 15)], 50)]
    [45, 5]
    """
    total = sum(len(each) for each in ranges)
    if total <= most:
        return ranges
    return [
        Range(each.topic, each.partition, each.start, each.start + max(1, len(each) * most // total)) for each in ranges
    ]
