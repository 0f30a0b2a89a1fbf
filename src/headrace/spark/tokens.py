"""Tokens: notes on Kafka that say which batches are out.

A token is a record in the compacted topic `headrace.commits`. Its key names an *author* (a query, or one state
partition of a query), its value says which batch was its last, for which checkpoint, and which *run* of the query wrote
it. It is committed in the same transaction as the results, so it is there if and only if they are.

A token is only worth reading after the author's transactional id was taken: before that, one more could come.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.broker import Consumer, Topics
from headrace.broker.topics import COMMITS
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.broker import Connection


@dataclass(frozen=True)
class Token:
    """What an author has done.

    Args:
        token: Names the checkpoint whose batch numbers count.
        batch: The last batch that is out, -1 for none.
        run: Names the run of the query that wrote it; a later run outdates an earlier one.
        jobs: For a state partition: the jobs whose results it wrote.
    """

    token: str
    batch: int
    run: str = ""
    jobs: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        """Give the token as the value of a record."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, value: bytes) -> Token:
        """Read a token.

        >>> Token.from_bytes(Token("c1", 7, "r1").to_bytes())
        Token(token='c1', batch=7, run='r1', jobs=())
        """
        said = json.loads(value)
        return cls(said["token"], int(said["batch"]), said.get("run", ""), tuple(said.get("jobs", ())))


def read_tokens(connection: Connection, authors: Iterable[str]) -> dict[str, Token]:
    """Read the last token of each author that has one.

    Args:
        connection: The Kafka that holds them.
        authors: Whose tokens.

    Raises:
        BrokerError: Kafka cannot be read.
        StateError: A record there is no token.
    """
    wanted = {author.encode(): author for author in authors}
    # An open transaction of anybody hides the tokens behind it, ours too: a stale one would let a batch out twice.
    Topics(connection).await_stable(COMMITS)
    found: dict[str, Token] = {}
    with Consumer(connection, [COMMITS]) as consumer:
        for record in consumer:
            author = wanted.get(record.key or b"")
            if author is None or record.value is None:
                continue
            try:
                found[author] = Token.from_bytes(record.value)
            except (ValueError, KeyError, TypeError) as problem:
                raise StateError(
                    f"the record at offset {record.offset} of {COMMITS} is no commit token: {problem}",
                    hint="Nothing but Headrace may write to this topic; find out who did.",
                ) from problem
    return found
