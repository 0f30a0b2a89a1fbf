"""A checkpoint that is older than the results that it has written: found, refused, and gone on with on request.

It is a copy that was restored, it lost its last files in a power cut, or accepting a loss has set it back. Spark would
plan other batches under the numbers of those that are out. So a start compares the tokens with Spark's offset log: all
that a token covers must be done, or be the batch that is planned next. Otherwise nothing is run.

To go on, the source plans batches that end exactly where the tokens do. What lies before is read again for the state
and not written again; what comes after is written.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import StateError
from headrace.spark.checkpoint.continuity import read_position
from headrace.spark.checkpoint.positions import Position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from pathlib import Path

    from headrace.kafka import Topics
    from headrace.spark.checkpoint.continuity import Gap, Progress
    from headrace.spark.output.tokens import Token

_NOWHERE = Position({})


def with_end(checkpoint: Path, token: Token) -> Token:
    """Give a token of a version that did not note offsets those of the batch with its number."""
    return token if token.end is not None else replace(token, end=read_position(checkpoint, token.batch))


def find_ahead(progress: Progress | None, tokens: Mapping[str, Token]) -> dict[str, Token]:
    """Find tokens that cover what the checkpoint has not planned.

    Args:
        progress: What the checkpoint says; None if it has not begun.
        tokens: What is out, by author.
    """
    planned = None if progress is None else progress.planned
    last = -1 if progress is None else progress.committed + (planned is not None)
    return {
        piece: token
        for piece, token in find_pending(progress, tokens).items()
        if (token.batch > last if token.end is None else planned is None or not token.end.matches(planned))
    }


def find_pending(progress: Progress | None, tokens: Mapping[str, Token]) -> dict[str, Token]:
    """Find tokens that cover what is not done: the batch that is planned next, or more.

    A batch of which a part is out counts as well, as if it had a token of its own.

    Args:
        progress: What the checkpoint says; None if it has not begun.
        tokens: What is out, by author.
    """
    done = _NOWHERE if progress is None else progress.position
    committed = -1 if progress is None else progress.committed
    return {
        f"{author}, batch {token.batch}": token
        for author, whole in tokens.items()
        for token in whole.pieces
        if (token.batch > committed if token.end is None else not done.includes(token.end))
    }


def refuse_old(checkpoint: Path, progress: Progress | None, tokens: Collection[Token]) -> StateError:
    """Say what was found, what there is to choose, and what that costs."""
    newest = max(tokens, key=lambda token: token.batch)
    at = "has done no batch" if progress is None or progress.committed < 0 else f"stands at batch {progress.committed}"
    events = ""
    if newest.end is not None:
        between = newest.end.events_since(_NOWHERE if progress is None else progress.position)
        events = f", which have read {between:,} events more"
    go_on = (
        "--accept-old-checkpoint goes on: these events are read again for the state, and results are written for the "
        "events after them only (a result that depended on processing time or on an idle partition may come twice)"
        if newest.end is not None
        else "it cannot be gone on with, since these results were written by a version that did not note their offsets"
    )
    return StateError(
        f"the checkpoint {checkpoint} is older than its results: it {at}, and results are out up to batch "
        f"{newest.batch}{events}",
        hint="It is an older copy, or it lost its last files. Choose: restore the newest copy; or "
        f"{go_on}; or --fresh forgets the state and writes again what is out. Nothing was changed so far.",
    )


def refuse_promise(checkpoint: Path, before: Mapping[str, str], now: Mapping[str, str]) -> StateError:
    """Say that results are out under another promise, whose token nobody would look at.

    Args:
        checkpoint: Its directory.
        before: Jobs, and under which promise their results went out.
        now: Under which promise each job is to run.
    """
    told = "; ".join(
        f"those of {job} went out under {mode}, and it is to run under {now[job]}" for job, mode in before.items()
    )
    mode = next(iter(before.values()))
    return StateError(
        f"results are out that the checkpoint {checkpoint} does not know to be done: {told}",
        hint=f"They might be written a second time. Start with the promise as it was (--delivery {mode}, or in the "
        "job) until a batch is done, and change it then; or --fresh forgets the state and writes again what is out. "
        "Nothing was changed so far.",
    )


def check_possible(
    checkpoint: Path,
    progress: Progress | None,
    tokens: Collection[Token],
    *,
    stopped: Collection[str],
    topics: Topics,
) -> None:
    """See that a checkpoint that is older than its results can be gone on with.

    Args:
        checkpoint: Its directory.
        progress: What it says.
        tokens: What is out and not done.
        stopped: Jobs that the checkpoint knows to be left out.
        topics: The Kafka that is read.

    Raises:
        StateError: It cannot: going on would lose results.
    """
    if any(token.end is None for token in tokens):
        raise refuse_old(checkpoint, progress, tokens)
    left_out = sorted({*stopped, *(job for token in tokens for job in token.absent)}) if tokens else []
    if left_out:
        raise StateError(
            f"the checkpoint {checkpoint} is older than its results, and {', '.join(left_out)} did not take part in "
            "all of them: which of its results are out is not known",
            hint="Restore the newest copy of the checkpoint; --fresh forgets the state and writes again what is out.",
        )
    for stop in stops_of(progress, tokens):
        for topic, each in stop.offsets.items():
            held = {part.partition: part.latest for part in topics.held(topic).partitions}
            for partition, offset in each.items():
                if offset > held.get(partition, 0):
                    raise StateError(
                        f"the results of {checkpoint} cover {topic} partition {partition} up to {offset:,}, but it "
                        f"ends at {held.get(partition, 0):,}: it was cut off or made anew",
                        hint="Restore the newest copy of the checkpoint, or start afresh (--fresh).",
                    )


def stops_of(progress: Progress | None, tokens: Iterable[Token], sinks: Iterable[Position] = ()) -> list[Position]:
    """Tell where batches have to end, in order.

    Args:
        progress: How far the checkpoint is.
        tokens: What is out on Kafka.
        sinks: Up to where sinks besides Kafka hold results.
    """
    done = _NOWHERE if progress is None else progress.position
    reached = [*(token.end for token in tokens), *sinks]
    ends = {str(end): end for end in reached if end is not None and not done.includes(end)}
    return sorted(ends.values(), key=lambda end: (end.now, end.events_since(_NOWHERE)))


def without(token: Token, gaps: Sequence[Gap]) -> Token:
    """Let a token not cover what is read from partitions that begin anew: their offsets mean other events."""
    part = token.part
    if part is not None and part.end is not None:
        part = replace(part, end=_without(part.end, gaps))
    return replace(token, end=None if token.end is None else _without(token.end, gaps), part=part)


def _without(end: Position, gaps: Sequence[Gap]) -> Position:
    offsets = {topic: dict(each) for topic, each in end.offsets.items()}
    for gap in gaps:
        if (gap.renewed or gap.wanted > gap.latest) and gap.partition in offsets.get(gap.topic, {}):
            offsets[gap.topic][gap.partition] = min(gap.earliest, offsets[gap.topic][gap.partition])
    return replace(end, offsets=offsets)
