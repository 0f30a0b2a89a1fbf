"""The dashboard as a process: its parts put together, listening, and ending well."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
import time
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import socketio
import uvicorn

from headrace.dashboard.access import Access, Gate
from headrace.dashboard.api import VERSION, make_api
from headrace.dashboard.board import Board
from headrace.dashboard.connections import Connections, counted_protocol, peer_in, room_for
from headrace.dashboard.declaration import declare_all
from headrace.dashboard.defaults import PageDefaults, defaults_for, features_of
from headrace.dashboard.figures import Figures
from headrace.dashboard.metrics import DashboardCollector, make_registry
from headrace.dashboard.pages import Pages
from headrace.dashboard.probe import Probe
from headrace.dashboard.reader import Reader
from headrace.dashboard.sampling import Sampler
from headrace.dashboard.step_figures import StepFigures
from headrace.dashboard.supervision import keep_running
from headrace.dashboard.viewers import MOST_VIEWERS, Viewers
from headrace.dev.ports import port_owner
from headrace.errors import EnvironmentProblem
from headrace.stream.message_types import types_of

if TYPE_CHECKING:
    import threading
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from headrace.kafka import Connection
    from headrace.stream import Job

log = logging.getLogger(__name__)

#: Seconds between two looks at the pipeline.
_GATHER = 1.0
#: What a client may send in one message; a subscription is a few hundred bytes.
_MOST_BYTES = 100_000
_GRACE = 2
#: Seconds between two looks at whether to stop.
_LISTEN_FOR_STOP = 0.1
#: How many ports after the wanted one are tried.
_MORE_PORTS = 100


#: How near the map begins if no application says so: the page then finds the first results.
_WORLD_ZOOM = 10.5


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    """How the dashboard is served.

    Args:
        access: Who may ask.
        title: What the page is called.
        style: The URL of an online map style; empty: the map without the network.
        defaults: What installed applications want to see, such as places on the map.
        viewers: Viewers at a time, at most.
    """

    access: Access = field(default_factory=Access)
    title: str = "Headrace"
    style: str = ""
    defaults: tuple[PageDefaults, ...] = ()
    viewers: int = MOST_VIEWERS


class Dashboard:
    """Everything behind the page.

    Args:
        connection: Where Kafka is.
        jobs: What is shown, in this order.
        options: How.
        pages: The files of the page.
    """

    def __init__(
        self,
        connection: Connection,
        jobs: Sequence[Job],
        options: DashboardOptions | None = None,
        *,
        pages: Pages | None = None,
    ) -> None:
        self.options = options or DashboardOptions()
        self.started = time.time_ns() // 1_000_000
        self.boards = {name: Board(declaration) for name, declaration in declare_all(jobs).items()}
        self.sockets = socketio.AsyncServer(
            async_mode="asgi",
            # The gate in front has decided who may ask; it knows the origins.
            cors_allowed_origins=[],
            max_http_buffer_size=_MOST_BYTES,
            # A viewer's messages are taken in the order in which it sent them.
            async_handlers=False,
            logger=False,
            engineio_logger=False,
        )
        self.connections = Connections(room_for(self.options.viewers))
        self.viewers = Viewers(
            self.sockets, self.boards, greeting=self._greeting, connections=self.connections, most=self.options.viewers
        )
        self.reader = Reader(connection, self.boards, self.viewers.changed)
        self.probe = Probe(connection, jobs, self._heard_watermark)
        self.figures = Figures(self.boards, self.reader, self.probe, self.viewers)
        defaults = defaults_for(self.options.defaults, [topic for job in jobs for topic in job.sources])
        self.collector = DashboardCollector(self.boards, self.reader, self.viewers, self.figures, self.connections)
        self.api = make_api(
            self.boards,
            self.figures,
            make_registry(self.collector),
            pages or Pages(),
            StepFigures(jobs, self.boards, self.reader, self.probe),
            Sampler(connection, [board.declaration for board in self.boards.values()], types_of(jobs)),
            title=self.options.title,
            map_config={
                "style": self.options.style or None,
                "center": list(defaults[0].center) if defaults else None,
                "zoom": defaults[0].zoom if defaults else _WORLD_ZOOM,
            },
            features=cache(partial(features_of, defaults)),
        )
        both = socketio.ASGIApp(self.sockets, self.api, socketio_path="socket.io")
        self.app = Gate(both, self.options.access, let_in=self._let_in)

    def _let_in(self, scope: Any) -> None:
        peer = peer_in(scope)
        if peer is not None:
            self.connections.let_in(peer)

    def _greeting(self) -> list[tuple[str, Any]]:
        now = time.time_ns() // 1_000_000
        return [
            ("hello", {"server": "headrace", "version": VERSION, "now": now, "started": self.started}),
            ("declarations", [board.declaration.to_dict() for board in self.boards.values()]),
        ]

    def _heard_watermark(self, job: str, watermark: int) -> None:
        for board in self.boards.values():
            if board.declaration.run == job:
                board.hear(watermark, now=time.monotonic())

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[list[asyncio.Task[None]]]:
        """Read, look and send while the block runs; the caller serves `app` and sees that no task ends."""
        self.figures.gather()
        tasks = [
            asyncio.create_task(keep_running(self.viewers.part, self.viewers.run)),
            asyncio.create_task(keep_running(self.figures.part, self._gather, on_failure=self._tell_parts)),
        ]
        self.reader.start()
        self.probe.start()
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.to_thread(self._stop)

    def _tell_parts(self) -> None:
        """Let viewers know that the figures they have are not put together any more."""
        parts = [part.to_dict() for part in self.figures.parts]
        self.viewers.show_status({**self.figures.status, "parts": parts})

    def _stop(self) -> None:
        self.reader.stop()
        self.probe.stop()

    async def _gather(self) -> None:
        while True:
            self.connections.sweep()
            self.figures.gather()
            self.viewers.show_status(self.figures.status)
            self.viewers.show_pipeline(self.figures.pipeline)
            await asyncio.sleep(_GATHER)


def listen(host: str, port: int, *, insist: bool) -> socket.socket:
    """Listen on a port, or on the next free one after it.

    Args:
        host: The address.
        port: The port; 0: any.
        insist: Whether another port will not do.

    Raises:
        EnvironmentProblem: The port is taken, or the address is not ours.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for candidate in range(port, min(port + (1 if insist or port == 0 else _MORE_PORTS), 65536)):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(512)
        except OSError as problem:
            listener.close()
            if problem.errno != errno.EADDRINUSE:
                raise EnvironmentProblem(
                    f"The dashboard cannot listen on {host} port {candidate}: {problem.strerror}",
                    hint="Choose another address or port (dashboard.host, dashboard.port); below 1024 needs rights.",
                ) from problem
            continue
        listener.setblocking(False)
        return listener
    owner = port_owner(port)
    raise EnvironmentProblem(
        f"Port {port} for the dashboard is taken" + (f" by {owner}" if owner else ""),
        hint="Stop that process, or choose another port: --port.",
    )


def url_of(listener: socket.socket) -> str:
    """Where a browser finds what is served on a socket."""
    host, port = listener.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"http://{'127.0.0.1' if host == '0.0.0.0' else name}:{port}"  # noqa: S104 - compared, not bound


def _worth_a_line(record: logging.LogRecord) -> bool:
    # A browser that is still asking when we end is no error.
    return not str(record.msg).startswith("Cancel ")


class _Server(uvicorn.Server):
    """A server that leaves the signals to us: uvicorn would raise them again after it has ended well."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(
    dashboard: Dashboard, listener: socket.socket, *, ready: Callable[[str], None], stop: threading.Event
) -> None:
    """Serve until it is stopped.

    Args:
        dashboard: What to serve.
        listener: Where.
        ready: Is told the address when it can be opened.
        stop: Set it, from any thread or a signal handler, to end.
    """
    asyncio.run(_serve(dashboard, listener, ready, stop))


async def _serve(
    dashboard: Dashboard, listener: socket.socket, ready: Callable[[str], None], stop: threading.Event
) -> None:
    config = uvicorn.Config(
        dashboard.app,
        http=counted_protocol(dashboard.connections),
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        # The gate believes forwarded headers from the proxies that are named, and wants to see who is asking.
        proxy_headers=False,
        # 200 viewers would have the same message compressed 200 times.
        ws_per_message_deflate=False,
        ws_max_size=_MOST_BYTES,
        timeout_graceful_shutdown=_GRACE,
    )
    logging.getLogger("uvicorn.error").addFilter(_worth_a_line)
    server = _Server(config)
    async with dashboard.running() as tasks:
        task = asyncio.create_task(server.serve(sockets=[listener]))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            ready(url_of(listener))
        while not stop.is_set() and not task.done() and not any(other.done() for other in tasks):
            await asyncio.sleep(_LISTEN_FOR_STOP)
        # The viewers first: uvicorn would wait for open connections.
        await dashboard.sockets.shutdown()
        server.should_exit = True
        await task
        for other in tasks:
            # They go on for ever: one that has ended has failed.
            if other.done():
                other.result()
