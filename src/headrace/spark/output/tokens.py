"""Tokens: notes on Kafka that say which batches are out.

A token is a record in the compacted topic `headrace.commits`. Its key names an *author* (a query, or one state
partition of a query), its value says which batch was its last, up to which offsets that one had read, for which
checkpoint, and which *run* of the query wrote it. It is committed in the same transaction as the results, so it is
there if and only if they are.

The offsets decide whether a batch is out, not its number: an older copy of a checkpoint plans other batches under
numbers that were used already.

A token is only worth reading after the author's transactional id was taken: before that, one more could come.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import StateError
from headrace.kafka import Consumer, Topics
from headrace.kafka.topics import COMMITS
from headrace.spark.checkpoint.positions import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.kafka import Connection
    from headrace.spark.checkpoint.positions import Span

_T = TypeVar("_T")


@dataclass(frozen=True)
class Part:
    """How much is out of a batch that is written in several transactions (`headrace.spark.output.sink`).

    Args:
        batch: Its number.
        parts: How many transactions it takes.
        done: How many of them are committed.
        end: Where the batch ends; None where that is not known.
    """

    batch: int
    parts: int
    done: int
    end: Position | None = None

    def is_of(self, batch: int, span: Span | None) -> bool:
        """Tell whether it belongs to a batch: by where that ends, or by its number where that is not known."""
        return self.batch == batch if span is None or self.end is None else self.end.matches(span.end)


@dataclass(frozen=True)
class Token:
    """What an author has done.

    Args:
        token: Names the checkpoint whose batch numbers count.
        batch: The last batch that is out, -1 for none.
        run: Names the run of the query that wrote it; a later run outdates an earlier one.
        jobs: The jobs whose results it wrote; empty in a query's token of a version that did not note them.
        end: Where that batch ended; None in tokens of versions that did not say.
        absent: Jobs of the query that were left out of that batch.
        accepted: Somebody chose to go on with a checkpoint that is older than this token.
        present: For a query: the jobs that took part in the newest batch of which anything is out; empty in a token
            of a version that did not note it.
        part: What is out of the batch after the last, if anything is.
    """

    token: str
    batch: int
    run: str = ""
    jobs: tuple[str, ...] = ()
    end: Position | None = None
    absent: tuple[str, ...] = ()
    accepted: bool = False
    present: tuple[str, ...] = ()
    part: Part | None = None

    @property
    def newest(self) -> Token:
        """What it would be if the batch were out as a whole of which a part is out; itself where there is none."""
        if self.part is None:
            return self
        return replace(self, batch=self.part.batch, end=self.part.end, part=None)

    @property
    def part_end(self) -> Position | None:
        """Where the batch ends of which a part is out; None where there is none, or where that is not known."""
        return None if self.part is None else self.part.end

    @property
    def pieces(self) -> list[Token]:
        """The batch that is out as a whole, and the one of which a part is out: all that must not be written again."""
        whole = [replace(self, part=None)] if self.batch >= 0 else []
        return whole if self.part is None else [*whole, self.newest]

    def is_of(self, batch: int, span: Span | None) -> bool:
        """Tell whether it was this batch that went out last."""
        return self.batch == batch if span is None or self.end is None else self.end.matches(span.end)

    def covers(self, batch: int, span: Span | None) -> bool:
        """Tell whether a batch is out.

        Args:
            batch: Its number, which decides where offsets are not known.
            span: What it reads.

        Raises:
            StateError: Only a part of the batch is out.
        """
        if span is None or self.end is None:
            return batch <= self.batch
        return span.within(self.end)

    def to_bytes(self) -> bytes:
        """Give the token as the value of a record."""
        told: dict[str, Any] = {"token": self.token, "batch": self.batch, "run": self.run, "jobs": self.jobs}
        if self.end is not None:
            told["end"] = self.end.to_dict()
        if self.absent:
            told["absent"] = self.absent
        if self.accepted:
            told["accepted"] = True
        if self.present:
            told["present"] = self.present
        if self.part is not None:
            end = None if self.part.end is None else self.part.end.to_dict()
            told["part"] = {"batch": self.part.batch, "parts": self.part.parts, "done": self.part.done, "end": end}
        return json.dumps(told, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Token:
        """Read a token.

        >>> token = Token("c1", 7, "r1", end=Position({"t": {0: 12}}, 5))
        >>> Token.from_bytes(token.to_bytes()) == token
        True
        >>> Token.from_bytes(b'{"token":"c1","batch":7}').end is None
        True
        >>> Token.from_bytes(Token("c1", 7, part=Part(8, parts=3, done=1)).to_bytes()).part
        Part(batch=8, parts=3, done=1, end=None)
        """
        said = json.loads(value)
        return cls(
            said["token"],
            int(said["batch"]),
            said.get("run", ""),
            tuple(said.get("jobs", ())),
            Position.from_dict(said["end"]) if "end" in said else None,
            tuple(said.get("absent", ())),
            bool(said.get("accepted", False)),
            tuple(said.get("present", ())),
            _part(said["part"]) if said.get("part") is not None else None,
        )


def _part(said: dict[str, Any]) -> Part:
    end = None if said.get("end") is None else Position.from_dict(said["end"])
    return Part(int(said["batch"]), int(said["parts"]), int(said["done"]), end)


def read_tokens(connection: Connection, authors: Iterable[str], *, stable: bool = True) -> dict[str, Token]:
    """Read the last token of each author that has one.

    Args:
        connection: The Kafka that holds them.
        authors: Whose tokens.
        stable: Wait until no open transaction hides tokens; else the answer may be an old one.

    Raises:
        BrokerError: Kafka cannot be read.
        StateError: A record there is no token.
    """
    wanted = set(authors)
    return {
        author: parsed(author, value, Token.from_bytes)
        for author, value in read_commits(connection, wanted.__contains__, stable=stable).items()
    }


def read_commits(connection: Connection, wanted: Callable[[str], bool], *, stable: bool = True) -> dict[str, bytes]:
    """Read the last record of each key in the topic of the tokens.

    Args:
        connection: The Kafka that holds it.
        wanted: Tells which keys.
        stable: Wait until no open transaction hides records; else the answer may be an old one.

    Raises:
        BrokerError: Kafka cannot be read.
    """
    if stable:
        # An open transaction of anybody hides the tokens behind it, ours too: a stale one would let a batch out twice.
        # Kafka ends one at its time-out, and looks every ten seconds which are due.
        Topics(connection).await_stable(COMMITS, timeout=max(90.0, connection.transaction_timeout + 30.0))
    found: dict[str, bytes] = {}
    with Consumer(connection, [COMMITS]) as consumer:
        for record in consumer:
            key = (record.key or b"").decode("utf-8", "replace")
            if not wanted(key):
                continue
            if record.value is None:
                found.pop(key, None)
            else:
                found[key] = record.value
    return found


def parsed(key: str, value: bytes, parse: Callable[[bytes], _T]) -> _T:
    """Read a record of the topic of the tokens.

    Raises:
        StateError: It is none of ours.
    """
    try:
        return parse(value)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise StateError(
            f"the record {key!r} in {COMMITS} is no commit token: {problem}",
            hint="Nothing but Headrace may write to this topic; find out who did.",
        ) from problem
