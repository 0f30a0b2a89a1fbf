"""Ownership: one checkpoint writes the results of a job.

Another set of jobs has another checkpoint, which begins to read at the start of the topics and would write results
that are out a second time. So the topic of the commit tokens also holds, per job and result topic, which checkpoint
writes there. A start with another checkpoint is refused, unless its user takes the results over; then the one that
wrote before is fenced.

Two starts at the same time are told apart by Kafka: whoever writes such a record holds the job's transactional id, and
reads the record after taking it. Of two, the first to take the id is fenced by the second, or has written already.
"""

from __future__ import annotations

import json
import logging
import platform
import re
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.errors import StateError
from headrace.kafka import Topics
from headrace.kafka.producer import FencedError, TransactionalProducer
from headrace.kafka.topics import COMMITS
from headrace.spark.output.tokens import Token, parsed, read_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.kafka import Connection
    from headrace.stream import Delivery, Job

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Who writes the results of a job.

    Args:
        query: The name of the query: its jobs.
        checkpoint: Names the checkpoint among all.
        path: Where it is.
        host: On which machine.
        delivery: What is promised of the job's results.
        partitions: The state partitions of the query, which may write for themselves.
        topic: Kafka's identity of the result topic: one that was made anew holds no results.
        since: When this checkpoint began to write there.
    """

    query: str
    checkpoint: str
    path: str
    delivery: Delivery = "exactly_once"
    partitions: int = 0
    topic: str = ""
    host: str = field(default_factory=platform.node)
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def __str__(self) -> str:
        where = f"{self.path} on {self.host}" if self.path else "written by a version that did not note its directory"
        since = f", since {self.since}" if self.since else ""
        return f"query {self.query} (checkpoint {where}{since})"

    def to_bytes(self) -> bytes:
        """Give it as the value of a record."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Owner:
        """Read it.

        >>> owner = Owner(query="a+b", checkpoint="c1", path="/data/a+b")
        >>> Owner.from_bytes(owner.to_bytes()) == owner
        True
        """
        told = json.loads(value)
        known = {name: told[name] for name in cls.__dataclass_fields__ if name in told}
        return cls(**known)


def owner_key(job: Job) -> str:
    """Give the key of the record that says who writes a job's results; no query has such a name."""
    return f"{job.name}@{job.result_topic}"


def owner_id(job: str) -> str:
    """Give the transactional id under which that is written.

    >>> owner_id("counts")
    'headrace.counts@owner'
    """
    return f"headrace.{job}@owner"


class Ownership:
    """The results of a query's jobs, and who writes them.

    Args:
        connection: The Kafka that holds them.
        jobs: The jobs of the query.
        me: Who is about to write; delivery and topic of each job are filled in.
        modes: Each job's promise.
        fresh: The checkpoint was made anew at the same place, on request.
        take_over: Take results over from whoever wrote them.
    """

    def __init__(
        self,
        connection: Connection,
        jobs: Sequence[Job],
        me: Owner,
        *,
        modes: dict[str, Delivery],
        fresh: bool = False,
        take_over: bool = False,
    ) -> None:
        self._connection = connection
        self._jobs = {owner_key(job): job for job in jobs}
        self._me = me
        self._modes = modes
        self._fresh = fresh
        self._take_over = take_over

    def claim(self, fence: Callable[[Owner], None]) -> None:
        """Become the writer of the jobs' results.

        Args:
            fence: Lets another query write no more. It is called before the results are noted as ours, so that a
                failure leaves them with the other, and once more afterwards, since that query may have started again in
                between.

        Raises:
            StateError: Another checkpoint writes them.
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        topics = Topics(self._connection).ids(sorted({job.result_topic for job in self._jobs.values()}))
        # A first look, which does not wait: a killed run of ours may have left a transaction open that hides what came
        # after it, and ends when our ids are taken. `check` looks again then.
        first = self.read(stable=False)
        if all(key in first and self._is_mine(first[key], topics[job.result_topic]) for key, job in self._jobs.items()):
            self._forget_choices()
            return
        self._foreign(topics, self.read())
        with ExitStack() as stack:
            producers = {}
            for key, job in self._jobs.items():
                producer = TransactionalProducer(self._connection, transactional_id=owner_id(job.name))
                stack.callback(producer.discard)
                producer.prepare()
                producers[key] = producer
            # Only now is it certain that nobody else claims these jobs before we have.
            foreign = self._foreign(topics, self.read())
            others = {owner.checkpoint: owner for owner in foreign.values() if owner is not None}
            for owner in others.values():
                fence(owner)
            for key in foreign:
                self._write(producers[key], key, topics)
        for owner in others.values():
            fence(owner)
            log.warning("took results over from %s", owner)
        self._forget_choices()

    def _forget_choices(self) -> None:
        """Let a restart of this run not take results back from somebody who has taken them over since."""
        self._take_over = self._fresh = False

    def check(self) -> None:
        """See that the results are still ours, after taking the ids that a successor would have fenced.

        Raises:
            FencedError: Another checkpoint has taken them over.
        """
        for key, owner in self.read().items():
            if owner.checkpoint != self._me.checkpoint:
                job = self._jobs[key].name
                raise FencedError(
                    f"the results of {job} were taken over by {owner}; this run may write no more",
                    hint="Run a job in one place only.",
                )

    def _is_mine(self, owner: Owner, topic: str) -> bool:
        mine = owner.checkpoint == self._me.checkpoint and owner.topic == topic
        # Who takes over fences as many tasks as are noted.
        return mine and owner.partitions >= self._me.partitions

    def read(self, *, stable: bool = True) -> dict[str, Owner]:
        """Read who writes, by key; where it was never noted, it is told from the tokens of other queries."""
        names = {job.name: key for key, job in self._jobs.items()}

        def wanted(key: str) -> bool:
            return key in self._jobs or not names.keys().isdisjoint(_jobs_of(key))

        records = read_commits(self._connection, wanted, stable=stable)
        found = {key: parsed(key, value, Owner.from_bytes) for key, value in records.items() if key in self._jobs}
        tokens = {key: parsed(key, value, Token.from_bytes) for key, value in records.items() if key not in self._jobs}
        if any(token.token == self._me.checkpoint and token.batch >= 0 for token in tokens.values()):
            return found  # this checkpoint wrote before owners were noted
        for author, token in tokens.items():
            for job in _jobs_of(author):
                if job in names and names[job] not in found and token.batch >= 0:
                    query, mode = _QUERY_END.split(author)[0], _MODE.search(author)
                    delivery: Any = mode.group(1) if mode else "exactly_once"
                    found[names[job]] = Owner(
                        query=query, checkpoint=token.token, path="", delivery=delivery, host="", since=""
                    )
        return found

    def _foreign(self, topics: dict[str, str], found: dict[str, Owner]) -> dict[str, Owner | None]:
        """Tell which jobs are not ours yet, and whose they are; None where nobody has written.

        Raises:
            StateError: Another checkpoint writes them, and nobody chose to take them over.
        """
        foreign: dict[str, Owner | None] = {}
        refused: dict[str, Owner] = {}
        for key, job in self._jobs.items():
            owner = found.get(key)
            mine = owner is not None and owner.checkpoint == self._me.checkpoint
            renewed = owner is not None and bool(owner.topic) and owner.topic != topics[job.result_topic]
            if owner is None or (mine and not self._is_mine(owner, topics[job.result_topic])):
                foreign[key] = None
            elif not mine:
                foreign[key] = owner
                if renewed:
                    continue  # what it wrote is gone with the topic; the writer may still live
                own = self._fresh and owner.query == self._me.query and owner.path in ("", self._me.path)
                if not own and not self._take_over:
                    refused[key] = owner
        if refused:
            raise _refusal({self._jobs[key].name: owner for key, owner in refused.items()}, self._me)
        return foreign

    def _write(self, producer: TransactionalProducer, key: str, topics: dict[str, str]) -> None:
        job = self._jobs[key]
        told = {**asdict(self._me), "delivery": self._modes[job.name], "topic": topics[job.result_topic]}
        try:
            with producer.transaction():
                producer.send(COMMITS, Owner(**told).to_bytes(), key=key.encode())
        except FencedError as problem:
            raise StateError(
                f"another run claims the results of {job.name} at this moment",
                hint="Run a job in one place only; start this one again if the other was refused.",
            ) from problem


_QUERY_END = re.compile(r"[:#~]")
_MODE = re.compile(r":(\w+)")


def _jobs_of(author: str) -> Collection[str]:
    """Tell the jobs of the query that an author of tokens belongs to.

    >>> _jobs_of("a+b:at_most_once#3"), _jobs_of("a@analytics.a")
    (['a', 'b'], ())
    """
    return () if "@" in author else _QUERY_END.split(author)[0].split("+")


def _refusal(owners: dict[str, Owner], me: Owner) -> StateError:
    told = "; ".join(f"those of {job} by {owner}" for job, owner in owners.items())
    others = sorted({owner.query for owner in owners.values()})
    same = others == [me.query]
    again = (
        "continue with that checkpoint (spark.checkpoint_directory says where it is), or give --fresh if it is gone"
        if same
        else f"run the same jobs again (headrace run {' '.join(others[0].split('+'))})"
    )
    return StateError(
        f"results are written by another checkpoint already: {told}",
        hint=f"This one ({me.path}) would write them a second time. Choose: {again}; or give the job another "
        "result_topic; or --take-over, which stops that query for good and lets this checkpoint write from now on: "
        "without a state of its own it begins at the start of the topics and writes again what is out, with --from now "
        "it leaves out what nobody has read.",
    )
