"""Who watches what: Socket.IO on one side, the boards on the other.

Nothing is queued for a viewer. Per job the server remembers which version a viewer was sent and which of them it has
not acknowledged yet. Every beat, a viewer with fewer than `IN_FLIGHT` unanswered messages gets the difference between
what it has and what there is now; one that is slow gets nothing until it answers, and then one difference with the
newest values. So a stalled browser costs two messages of memory, however long it stalls, and nobody waits for it.

What a viewer acknowledges is its own word. So nothing is sent either while something that was sent before waits to be
written to its connection, and a viewer whose connection does not take anything for `SLOW` seconds is dropped.

All viewers that have the same version get the same difference: it is computed and encoded once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from socketio.exceptions import ConnectionRefusedError as ConnectionRefused

from headrace.dashboard.connections import peer_in
from headrace.dashboard.samples import Rate, Samples
from headrace.dashboard.supervision import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import socketio

    from headrace.dashboard.board import Board
    from headrace.dashboard.connections import Connections

log = logging.getLogger(__name__)

#: Messages of one job that may be on the way to one viewer, unanswered.
IN_FLIGHT = 2
#: Seconds between two beats: what changes within one is one message.
BEAT = 0.1
#: Seconds after which the boards are asked to expire what is old, even if nothing came in.
EXPIRY = 0.25
#: Seconds between two messages about a status in which only figures change.
FIGURES = 5.0
MOST_VIEWERS = 1_000
#: Seconds for which a connection may leave unread what was sent.
SLOW = 60.0
#: Packets (also answers to what it asks) that may wait to be written to a connection.
MOST_WAITING = 100
#: Seconds that a connection has to become a viewer, as Socket.IO wants it.
TIME_TO_CONNECT = 10.0
#: Seconds without a beat after which viewers see old figures.
_STALE = 10.0


@dataclass(slots=True)
class _Channel:
    """What one viewer has of one job."""

    active: bool = True
    sent: int | None = None
    unanswered: deque[tuple[int, float]] = field(default_factory=deque)


@dataclass(slots=True)
class _Viewer:
    sid: str
    greeted: bool = False
    channels: dict[str, _Channel] = field(default_factory=dict)
    line: str = ""
    status: int = -1
    pipelines: deque[int] = field(default_factory=deque)


@dataclass(slots=True)
class _Line:
    """A Socket.IO connection, which may be a viewer's.

    `free_at` is when it last had nothing left to write, on the monotonic clock.
    """

    opened: float
    free_at: float
    waiting: int = 0


class Viewers:
    """Sends every viewer what it has not seen yet.

    Args:
        server: The Socket.IO server; this registers its handlers there.
        boards: By job, in the order of the layers.
        greeting: Gives the events that a new viewer gets first.
        connections: The connections of the server.
        most: Viewers at a time.
    """

    def __init__(
        self,
        server: socketio.AsyncServer,
        boards: Mapping[str, Board],
        *,
        greeting: Callable[[], list[tuple[str, Any]]],
        connections: Connections,
        most: int = MOST_VIEWERS,
    ) -> None:
        self._server = server
        self._boards = dict(boards)
        self._greeting = greeting
        self._connections = connections
        self._lines: dict[str, _Line] = {}
        self._most = most
        self._viewers: dict[str, _Viewer] = {}
        self._wake = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._status: tuple[int, dict[str, Any]] = (0, {})
        self._told = 0.0
        self._pipeline: dict[str, Any] = {}
        self.counts: Counter[str] = Counter()
        self.part = Part("viewers", "sender to viewers", stale_after=_STALE)
        self.answers = Samples()
        self.updates = Rate()
        server.on("connect", self._connect)
        server.on("disconnect", self._disconnect)
        server.on("subscribe", self._subscribe)
        server.on("received", self._received)

    def __len__(self) -> int:
        return len(self._viewers)

    @property
    def behind(self) -> int:
        """How many viewers have not answered the last messages of some job."""
        return sum(
            any(len(channel.unanswered) >= IN_FLIGHT for channel in viewer.channels.values())
            for viewer in self._viewers.values()
        )

    def changed(self) -> None:
        """Say that a board has changed; from any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            # Between the question and the call the loop may close, when the process ends.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._wake.set)

    def show_status(self, status: dict[str, Any]) -> None:
        """Let the viewers have a new status: at once if a state has changed, now and then for its figures."""
        number, before = self._status
        now = time.monotonic()
        changed = _states(status) != _states(before) or (status != before and now - self._told >= FIGURES)
        self._status = (number + changed, status)
        if changed:
            self._told = now
            self._wake.set()

    def show_pipeline(self, figures: dict[str, Any]) -> None:
        """Let the viewers have new figures."""
        self._pipeline = figures
        self._wake.set()

    async def run(self) -> None:
        """Send what is new, for ever."""
        self._loop = asyncio.get_running_loop()
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), EXPIRY)
            self._wake.clear()
            now = time.monotonic()
            for board in self._boards.values():
                board.expire(now=now)
            await self.beat()
            self.part.refresh()
            await asyncio.sleep(BEAT)

    async def beat(self) -> None:
        """Send what is new, once."""
        await self._look_at_lines(time.monotonic())
        await self._greet()
        for job, board in self._boards.items():
            await self._send_results(job, board)
        await self._send_news()

    # ---------------------------------------------------------------- sending

    async def _greet(self) -> None:
        fresh = [viewer for viewer in self._viewers.values() if not viewer.greeted]
        if not fresh:
            return
        sids = [viewer.sid for viewer in fresh]
        for viewer in fresh:
            viewer.greeted = True
        for event, payload in self._greeting():
            await self._server.emit(event, payload, to=sids)

    async def _send_results(self, job: str, board: Board) -> None:
        version = board.version
        ready: dict[int | None, list[tuple[_Viewer, _Channel]]] = defaultdict(list)
        for viewer in self._viewers.values():
            channel = viewer.channels.get(job)
            if not viewer.greeted or channel is None or not channel.active or channel.sent == version:
                continue
            if len(channel.unanswered) >= IN_FLIGHT or not self._is_free(viewer):
                self.counts["held_back"] += 1
                continue
            ready[channel.sent].append((viewer, channel))
        for base, members in ready.items():
            payload = None if base is None else board.changes(base)
            event = "changes"
            if payload is None:
                event, payload = "snapshot", board.snapshot()
            now = time.monotonic()
            for _, channel in members:
                channel.sent = payload["version"]
                channel.unanswered.append((payload["version"], now))
            self.counts[event] += len(members)
            self.updates.add(len(members), now=now)
            await self._server.emit(event, payload, to=[viewer.sid for viewer, _ in members])

    async def _send_news(self) -> None:
        number, status = self._status
        outdated = [
            viewer
            for viewer in self._viewers.values()
            if viewer.greeted
            and viewer.status != number
            and len(viewer.pipelines) < IN_FLIGHT
            and self._is_free(viewer)
        ]
        if status and outdated:
            for viewer in outdated:
                viewer.status = number
            await self._server.emit("status", status, to=[viewer.sid for viewer in outdated])
        figures, self._pipeline = self._pipeline, {}
        keen = [
            viewer
            for viewer in self._viewers.values()
            if viewer.greeted and len(viewer.pipelines) < IN_FLIGHT and self._is_free(viewer)
        ]
        if figures and keen:
            for viewer in keen:
                viewer.pipelines.append(figures["now"])
            await self._server.emit("pipeline", figures, to=[viewer.sid for viewer in keen])

    # ---------------------------------------------------------------- what waits to be written

    def _is_free(self, viewer: _Viewer) -> bool:
        """Whether all that was sent before this beat has been written to the viewer's connection."""
        line = self._lines.get(viewer.line)
        return line is None or not line.waiting

    async def _look_at_lines(self, now: float) -> None:
        sockets = self._server.eio.sockets
        for name in self._lines.keys() - sockets.keys():
            del self._lines[name]
        watched = {viewer.line for viewer in self._viewers.values()}
        for name, socket in list(sockets.items()):
            if socket.closed:
                continue
            line = self._lines.setdefault(name, _Line(now, now))
            line.waiting = socket.queue.qsize()
            peer = peer_in(self._server.environ.get(name, {}).get("asgi.scope", {}))
            if not line.waiting and (peer is None or not self._connections.pending_bytes(peer)):
                line.free_at = now
            silent = name not in watched and now - line.opened > TIME_TO_CONNECT
            if silent or line.waiting > MOST_WAITING or now - line.free_at > SLOW:
                self.counts["dropped"] += 1
                log.info("a viewer was dropped: it does not %s", "say that it is one" if silent else "read")
                await socket.close(wait=False, abort=True)
                if peer is not None:
                    self._connections.abort(peer)

    # ---------------------------------------------------------------- what viewers say

    async def _connect(self, sid: str, _environ: dict[str, Any], _auth: object = None) -> None:
        if len(self._viewers) >= self._most:
            self.counts["refused"] += 1
            raise ConnectionRefused(
                f"{self._most} viewers are here already. Try again later, or raise dashboard.viewers."
            )
        self._viewers[sid] = _Viewer(sid, line=self._server.manager.eio_sid_from_sid(sid, "/") or "")
        self._wake.set()

    async def _disconnect(self, sid: str, _reason: object = None) -> None:
        self._viewers.pop(sid, None)

    async def _subscribe(self, sid: str, wish: object = None) -> dict[str, Any]:
        viewer = self._viewers.get(sid)
        if viewer is None:
            return {"ok": False, "error": "you are not connected"}
        try:
            jobs, resume = self._wish(wish)
        except ValueError as problem:
            return {"ok": False, "error": str(problem)}
        before = {job for job, channel in viewer.channels.items() if channel.active}
        for job, channel in viewer.channels.items():
            channel.active = job in jobs
        for job in jobs:
            # What is on the way counts on: subscribing again and again must not fill the line.
            channel = viewer.channels.setdefault(job, _Channel())
            if job in resume or job not in before:
                channel.sent = resume.get(job)
        self._wake.set()
        return {"ok": True, "jobs": jobs}

    def _wish(self, wish: object) -> tuple[list[str], dict[str, int]]:
        """Check what a viewer asks for; it may be anything."""
        if not isinstance(wish, dict):
            raise ValueError('send {"jobs": [...], "resume": {...}}')
        wanted = wish.get("jobs")
        jobs = list(self._boards) if wanted == "*" else wanted
        if not isinstance(jobs, list) or not all(isinstance(job, str) for job in jobs):
            raise ValueError('"jobs" must be a list of names, or "*" for all')
        for job in jobs:
            if job not in self._boards:
                raise ValueError(f"there is no job {job[:80]!r}")
        resume = wish.get("resume") or {}
        if not isinstance(resume, dict):
            raise ValueError('"resume" must be an object: the version of each job')
        versions = {
            job: version
            for job, version in resume.items()
            if isinstance(version, int) and not isinstance(version, bool)
        }
        return list(dict.fromkeys(jobs)), versions

    async def _received(self, sid: str, answer: object = None) -> None:
        viewer = self._viewers.get(sid)
        if viewer is None or not isinstance(answer, dict):
            return
        seen = answer.get("pipeline")
        if isinstance(seen, int):
            while viewer.pipelines and viewer.pipelines[0] <= seen:
                viewer.pipelines.popleft()
        job, version = answer.get("job"), answer.get("version")
        channel = viewer.channels.get(job) if isinstance(job, str) else None
        if channel is None or not isinstance(version, int):
            return
        now = time.monotonic()
        waited = len(channel.unanswered) >= IN_FLIGHT
        while channel.unanswered and channel.unanswered[0][0] <= version:
            _, sent_at = channel.unanswered.popleft()
            self.answers.add([(now - sent_at) * 1000], now=now)
        if waited:
            self._wake.set()


def _states(status: dict[str, Any]) -> object:
    jobs = status.get("jobs", {})
    parts = [(part["name"], part["state"], part["stale"]) for part in status.get("parts", ())]
    return status.get("broker"), {job: (told["state"], told["text"]) for job, told in jobs.items()}, parts
