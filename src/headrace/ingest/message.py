"""Raw messages: what a connector hands over, before anybody has looked inside.

A raw message is a topic, some bytes, and the moment at which it arrived. Nothing is known about the bytes: they may be
a position, a joke, or half of something. A processor finds out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class RawMessage(NamedTuple):
    """One message as it came in.

    Args:
        topic: Where it was published; connectors without topics leave it empty.
        payload: Its bytes, as they were.
        arrival: When it came in, in microseconds since the epoch.
        shift: Microseconds that a processor adds to every time it reads in the payload. A replay that moves a
            recording to today sets it, with an `arrival` that is moved already.
        copy: 0 for the message itself. A replay that scales the load sends copies 1, 2, ...; a processor gives what
            the message is about another identity for each.

    >>> RawMessage("depots/north/scans", b"{}", 1_600_657_201_148_000).copy
    0
    """

    topic: str
    payload: bytes
    arrival: int
    shift: int = 0
    copy: int = 0


class Batch(NamedTuple):
    """Messages that were handed over together, in the order of their arrival.

    Args:
        messages: The messages.
        token: What the connector wants back in `Connector.acknowledge` once all of them are safe; None if it does not
            want to know.
    """

    messages: Sequence[RawMessage]
    token: object = None
