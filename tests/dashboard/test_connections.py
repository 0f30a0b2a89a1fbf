"""What strangers and viewers who do not read can hold open."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import websockets.sync.client
from tests.dashboard.city import CELLS, Hand, fresh, serving, until, vehicles_job, window_end

from headrace.dashboard import connections as connections_module
from headrace.dashboard import viewers as viewers_module
from headrace.dashboard.access import Access
from headrace.dashboard.connections import Connections
from headrace.dashboard.server import DashboardOptions
from headrace.kafka import Connection

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

NOWHERE = Connection(bootstrap="127.0.0.1:1")
TOKEN = "a-token-of-some-length"
ACCESS = Access(token=TOKEN)
BEARER = {"Authorization": f"Bearer {TOKEN}"}


class Line(asyncio.Transport):
    """A connection of which only the ends matter."""

    def __init__(self, port: int, *, unread: int = 0) -> None:
        super().__init__({"peername": ("127.0.0.1", port)})
        self.port, self.unread, self.aborted, self.closing = port, unread, False, False

    def is_closing(self) -> bool:
        return self.closing or self.aborted

    def get_write_buffer_size(self) -> int:
        return self.unread

    def abort(self) -> None:
        self.aborted = True


def test_a_connection_that_is_not_let_in_is_closed_in_time() -> None:
    held = Connections(10, patience=5.0)
    silent, good = Line(1), Line(2)
    held.opened(silent)
    held.opened(good)
    held.let_in(("127.0.0.1", 2))
    held.sweep(now=time.monotonic() + 4)
    assert not silent.aborted
    held.sweep(now=time.monotonic() + 6)
    assert (silent.aborted, good.aborted) == (True, False)
    assert (len(held), held.waiting, held.counts["timed_out"]) == (1, 0, 1)


def test_those_who_wait_make_room_for_those_who_come() -> None:
    held = Connections(100, most_waiting=3)
    lines = [Line(port) for port in range(1, 6)]
    for line in lines:
        held.opened(line)
    assert [line.port for line in lines if line.aborted] == [1, 2]
    assert (held.waiting, held.counts["crowded_out"]) == (3, 2)


def test_there_is_room_for_so_many_connections() -> None:
    held = Connections(2)
    lines = [Line(port) for port in (1, 2, 3)]
    for line in lines[:2]:
        held.opened(line)
        held.let_in(("127.0.0.1", line.port))
    held.opened(lines[2])
    assert [line.aborted for line in lines] == [False, False, True]
    lines[0].closing = True
    held.opened(Line(4))
    assert (len(held), held.counts["refused"]) == (2, 1)


def test_a_connection_that_is_closed_and_never_reads_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    held = Connections(5)
    line = Line(1, unread=9)
    held.opened(line)
    held.let_in(("127.0.0.1", 1))
    line.closing = True
    held.sweep()
    assert not line.aborted
    monkeypatch.setattr(connections_module, "_TIME_TO_CLOSE", -1.0)
    held.sweep()
    assert (line.aborted, held.counts["unread"]) == (True, 1)


def test_strangers_are_cut_off_and_others_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a request, a refused one on a kept connection, and nothing at all; Kafka is not needed for that."""
    monkeypatch.setattr("headrace.dashboard.server.room_for", lambda _viewers: 40)
    with serving(NOWHERE, [vehicles_job("counts")], DashboardOptions(access=ACCESS)) as served:
        monkeypatch.setattr(served.dashboard.connections, "_patience", 1.0)
        host, port = served.url.removeprefix("http://").split(":")
        strangers = [socket.create_connection((host, int(port)), timeout=30) for _ in range(3)]
        strangers[1].sendall(b"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        strangers[2].sendall(b"GET /api/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert b"401" in strangers[2].recv(4096)
        for stranger in strangers:
            with contextlib.suppress(ConnectionResetError):
                while stranger.recv(4096):
                    pass
            stranger.close()
        assert served.dashboard.connections.counts["timed_out"] >= 2
        assert httpx.get(f"{served.url}/api/jobs", headers=BEARER).status_code == 200
        until(lambda: len(served.dashboard.connections) <= 1, what="the connections to be forgotten")


def test_a_crowd_of_silent_connections_keeps_nobody_out() -> None:
    with serving(NOWHERE, [vehicles_job("counts")], DashboardOptions(access=ACCESS)) as served:
        held = served.dashboard.connections
        held._most_waiting = 20
        host, port = served.url.removeprefix("http://").split(":")
        strangers = [socket.create_connection((host, int(port)), timeout=30) for _ in range(60)]
        until(lambda: held.counts["crowded_out"] >= 40, what="the first of them to be closed")
        assert held.waiting <= 20
        assert httpx.get(f"{served.url}/api/jobs", headers=BEARER).status_code == 200
        for stranger in strangers:
            stranger.close()


def test_who_does_not_become_a_viewer_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers_module, "TIME_TO_CONNECT", 0.5)
    with serving(NOWHERE, [vehicles_job("counts")]) as served:
        address = served.url.replace("http", "ws") + "/socket.io/?EIO=4&transport=websocket"
        with websockets.sync.client.connect(address) as line:
            line.recv(timeout=30)  # the handshake of Engine.IO
            with pytest.raises(websockets.exceptions.ConnectionClosed):
                line.recv(timeout=30)
        assert served.dashboard.viewers.counts["dropped"] == 1


@pytest.mark.broker
def test_a_viewer_that_acknowledges_without_reading_is_bounded_and_dropped(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(viewers_module, "SLOW", 3.0)
    job = vehicles_job(fresh("deaf"))
    hand = Hand(broker.connection, (job,))
    with contextlib.ExitStack() as stack, serving(broker.connection, [job]) as served:
        host, port = served.url.removeprefix("http://").split(":")
        line = stack.enter_context(socket.create_connection((host, int(port)), timeout=30))
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.sendall(
            b"GET /socket.io/?EIO=4&transport=websocket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n"
            b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        # Not more than the answer to the handshake is ever read.
        assert b"101" in line.recv(64)
        line.sendall(_frame("40"))
        until(lambda: len(served.dashboard.viewers) == 1, what="the viewer")
        line.sendall(_frame('42["subscribe",{"jobs":"*"}]'))
        queued: list[int] = []
        wide = "x" * 400

        def feed() -> bool:
            """Change everything, and claim to have read it."""
            board = served.dashboard.boards[job.name]
            for name in range(2_000):
                board._entries.pop(f"{name}-{wide}", None)
            _fill(board, wide)
            served.dashboard.viewers.changed()
            answer = json.dumps(["received", {"job": job.name, "version": board.version + 10**6}])
            later = json.dumps(["received", {"pipeline": 10**15}])
            with contextlib.suppress(OSError):
                line.sendall(_frame(f"42{answer}"))
                line.sendall(_frame(f"42{later}"))
            queued.extend(each.queue.qsize() for each in served.dashboard.sockets.eio.sockets.values())
            return len(served.dashboard.viewers) == 0

        until(feed, what="the viewer to be dropped")
        assert max(queued) <= 6
        assert served.dashboard.viewers.counts["dropped"] >= 1
        until(lambda: not len(served.dashboard.connections), what="its connection to be forgotten")
        hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(3))
        until(lambda: served.dashboard.reader.arrivals.rates[job.name].total, what="the dashboard to go on")
    hand.close()


def _fill(board: Any, wide: str) -> None:
    from headrace.dashboard.cleaning import Rows

    keys = [f"{name}-{wide}" for name in range(2_000)]
    now = time.time_ns() // 1_000_000
    count = len(keys)
    board.apply(
        Rows(
            key=keys,
            event_time=[now] * count,
            window_start=[now - 30_000] * count,
            window_end=[now] * count,
            published=[now] * count,
            retraction=[False] * count,
            places={"cell": keys},
            values={"vehicles": [1] * count},
        ),
        now=time.monotonic(),
    )


def _frame(text: str) -> bytes:
    """A text frame as a client sends it: masked, here with zeros."""
    body = text.encode()
    length = bytes([0x80 | len(body)]) if len(body) < 126 else bytes([0x80 | 126]) + len(body).to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + body
