"""Jobs that come to a checkpoint and go from it.

A job that is taken out is noted as one that stopped, where the query then stood: its state stays, and when it is run
with the others again it first takes in what it has missed (`headrace.spark.run.catchup`). A job that is new begins in
the same way, with no state and from where a job without a checkpoint begins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import StateError
from headrace.spark.checkpoint.positions import Span
from headrace.spark.run.isolation import StoppedJob
from headrace.spark.run.progress import StateChange

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kafka import Topics
    from headrace.spark.checkpoint.continuity import Progress
    from headrace.spark.checkpoint.identity import Identity
    from headrace.spark.checkpoint.positions import Places
    from headrace.spark.output.delivery import Deliveries
    from headrace.spark.run.isolation import StoppedJobs
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job


@dataclass(frozen=True)
class JobChanges:
    """What is different since the checkpoint was run last.

    Args:
        identity: What the checkpoint holds.
        jobs: What is to run.
        stopped: The jobs that are left out.
        progress: How far the checkpoint has come.
        deliveries: Where batches go; they know what is out.
    """

    identity: Identity
    jobs: Sequence[Job]
    stopped: StoppedJobs
    progress: Progress
    deliveries: Deliveries

    @property
    def added(self) -> list[Job]:
        """Jobs that the checkpoint has no state of."""
        return [job for job in self.jobs if job.name not in self.identity.jobs]

    @property
    def removed(self) -> list[str]:
        """Jobs of the checkpoint that are not run, and were when it was run last."""
        running = {job.name for job in self.jobs} | {*self.stopped.read()}
        return [name for name in self.identity.jobs if name not in running]

    def note(self, topics: Topics | None, report: Callable[[RunEvent], None]) -> None:
        """Note who has come and gone, before the query starts without them or with them.

        Args:
            topics: Kafka's topics, to begin with the oldest events; None: new jobs begin where the query stands.
            report: Is told what was noted.

        Raises:
            StateError: Results of a job are out that the checkpoint has not done: it cannot be taken out now.
        """
        running = {job.name for job in self.jobs}
        for name in self.identity.jobs:
            # Also of one that stopped before and has taken part again in this batch alone.
            if name in running:
                continue
            if self._span is not None and self.deliveries.is_out(self._batch, name, self._span):
                raise StateError(
                    f"job {name!r} cannot be taken out now: results of its last batch are out, and its state does not "
                    "have that batch yet",
                    hint=f"Run {name} together with the others once more and stop them, then leave it out.",
                )
        for name in self.removed:
            self.stopped.add(StoppedJob(name, self.progress.next, "it was taken out of the jobs that run"))
            report(
                StateChange("starting", f"without {name}: its state is kept, and it catches up when it is run again")
            )
        for job in self.added:
            self.stopped.add(StoppedJob(job.name, self._beginning(job, topics), "it is new in this checkpoint"))
            report(StateChange("starting", f"with {job.name}, which is new in this checkpoint"))

    def check_move(self, after: Identity) -> None:
        """See that state can move to another plan now.

        Raises:
            StateError: State partitions have written results apart, of a batch that is not done.
        """
        span, before = self._span, self.identity
        was = (before.state_partitions, before.key_groups)
        if span is None or was == (after.state_partitions, after.key_groups):
            return
        begun = [job.name for job in self.jobs if self.deliveries.begun(self._batch, job.name, span)]
        if begun:
            raise StateError(
                f"there were {was[0]} state partitions and {was[1]} key groups, and there are {after.state_partitions} "
                f"and {after.key_groups}, but a batch of {', '.join(begun)} is out in part, by partition",
                hint=f"Start once more with --set spark.state_partitions={was[0]} --set spark.key_groups={was[1]}, "
                "stop it, and change the numbers then.",
            )

    @property
    def _batch(self) -> int:
        return self.progress.committed + 1

    @property
    def _span(self) -> Span | None:
        planned = self.progress.planned
        return None if planned is None else Span(self.progress.position, planned)

    def _beginning(self, job: Job, topics: Topics | None) -> Places:
        """Tell where a new job begins in the topics that the query has read without it."""
        known = {topic: dict(self.progress.next[topic]) for topic in job.sources if topic in self.progress.next}
        if topics is None:
            return known
        return {
            topic: {each.partition: each.earliest for each in topics.held(topic).partitions if each.partition in read}
            for topic, read in known.items()
        }
