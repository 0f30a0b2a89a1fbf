"""Bounds what strangers can hold open: connections in all, and connections that have not shown that they may ask.

A connection counts as let in when the gate (`headrace.dashboard.access`) has let one of its requests in. Until then it
has `PATIENCE` seconds, however slowly it sends; then it is closed. When too many wait, the one that has waited longest
makes room, so that somebody who opens connections and says nothing cannot keep others out.
"""

from __future__ import annotations

import resource
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    import asyncio

#: Seconds that a connection has to send a request that is let in.
PATIENCE = 10.0
#: Connections that may wait for that at the same time.
MOST_WAITING = 512
#: Seconds that a connection that we close has to read what was sent before.
_TIME_TO_CLOSE = 60.0
#: File descriptors that are left for Kafka, files and the rest.
_SPARE_FILES = 128

Peer = tuple[str, int]


def room_for(viewers: int) -> int:
    """Connections for so many viewers and their page loads, as far as the limit of open files allows.

    >>> room_for(10) <= 276
    True
    """
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * viewers + 256
    return wanted if soft == resource.RLIM_INFINITY else max(16, min(wanted, soft - _SPARE_FILES))


@dataclass(slots=True)
class _Open:
    transport: asyncio.Transport
    since: float
    waiting: bool = True
    closing: float | None = None


class Connections:
    """The open connections of the server.

    Args:
        most: Connections at a time.
        most_waiting: Those of them that have not been let in.
        patience: Seconds that they may wait.
    """

    def __init__(self, most: int, *, most_waiting: int = MOST_WAITING, patience: float = PATIENCE) -> None:
        self._most = most
        self._most_waiting = most_waiting
        self._patience = patience
        self._open: dict[Peer, _Open] = {}
        self.counts: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def waiting(self) -> int:
        """How many have not been let in."""
        return sum(each.waiting for each in self._open.values())

    def opened(self, transport: asyncio.Transport) -> None:
        """Take a new connection, or close it where there is no room."""
        peer = peer_of(transport)
        if peer is None:
            return
        if len(self._open) >= self._most:
            self._forget_closed()
        if len(self._open) >= self._most:
            self.counts["refused"] += 1
            transport.abort()
            return
        self._open[peer] = _Open(transport, time.monotonic())
        if self.waiting > self._most_waiting:
            self._forget_closed()
            oldest = next((peer for peer, each in self._open.items() if each.waiting), None)
            if oldest is not None and self.waiting > self._most_waiting:
                self._drop(oldest, "crowded_out")

    def closed(self, transport: asyncio.Transport) -> None:
        """Forget a connection that has ended."""
        peer = peer_of(transport)
        if peer is not None and peer in self._open and self._open[peer].transport is transport:
            del self._open[peer]

    def let_in(self, peer: Peer) -> None:
        """Note that a request of a connection was let in."""
        held = self._open.get(peer)
        if held is not None:
            held.waiting = False

    def abort(self, peer: Peer) -> None:
        """End a connection at once, with whatever it has not read."""
        if peer in self._open:
            self._drop(peer, "slow")

    def pending_bytes(self, peer: Peer) -> int:
        """Bytes that were sent and that the other side has not taken yet."""
        held = self._open.get(peer)
        return 0 if held is None else held.transport.get_write_buffer_size()

    def sweep(self, *, now: float | None = None) -> None:
        """Close those that have waited for too long; about once a second."""
        now = time.monotonic() if now is None else now
        self._forget_closed()
        for peer in [p for p, each in self._open.items() if each.waiting and now - each.since > self._patience]:
            self._drop(peer, "timed_out")

    def _drop(self, peer: Peer, why: str) -> None:
        self.counts[why] += 1
        self._open.pop(peer).transport.abort()

    def _forget_closed(self) -> None:
        # A websocket has another protocol object than the request that it began as, and does not say when it ends.
        now = time.monotonic()
        for peer, held in [(peer, held) for peer, held in self._open.items() if held.transport.is_closing()]:
            if not held.transport.get_write_buffer_size():
                del self._open[peer]
            elif held.closing is None:
                # Closing waits until the other side has read everything.
                held.closing = now
            elif now - held.closing > _TIME_TO_CLOSE:
                self._drop(peer, "unread")


def peer_of(transport: asyncio.BaseTransport) -> Peer | None:
    """The address at the other end, as ASGI has it."""
    name = transport.get_extra_info("peername")
    return (str(name[0]), int(name[1])) if isinstance(name, tuple | list) and len(name) >= 2 else None


def peer_in(scope: Any) -> Peer | None:
    """The address at the other end of a request."""
    client = scope.get("client")
    return (str(client[0]), int(client[1])) if client else None


def counted_protocol(connections: Connections) -> type[H11Protocol]:
    """Uvicorn's protocol for HTTP (and the beginning of websockets), with its connections counted."""

    class Counted(H11Protocol):
        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections.opened(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            connections.closed(self.transport)

    return Counted
