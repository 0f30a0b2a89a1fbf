"""A routing service for tests: a real HTTP server with as much of Digitransit's GraphQL as is used, and with moods.

It runs in a thread of its own on a port of its own, can be stopped and started again on the same port, and remembers
what it was asked.
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Trip = tuple[str, int, str, int]
_ASKED = re.compile(
    r"(\w+): fuzzyTrip\(route: \$(\w+), direction: \$(\w+), date: \$(\w+), time: \$(\w+)\) "
    r"\{ arrivalStoptime \{ stop \{ gtfsId lat lon \} \} \}"
)


class RoutingServer:
    """Knows where trips end.

    Args:
        trips: Route, direction, date and seconds since midnight -> (stop, latitude, longitude).
    """

    def __init__(self, trips: dict[Trip, tuple[str, float, float]]) -> None:
        self.trips = trips
        self.calls: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.most_at_once = 0
        #: Answers instead of the service where it gives something; called with the number of the call.
        self.mood: Callable[[int], Awaitable[web.StreamResponse | None]] | None = None
        self.port = 0
        self._at_once = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/routing/v2/hsl/gtfs/v1"

    @property
    def asked(self) -> int:
        """How many trips it was asked for."""
        return sum(len(call) for call in self.calls)

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(10)

    def stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            assert not self._thread.is_alive()
        self._loop = self._thread = None

    def _run(self, ready: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        loop.run_until_complete(site.start())
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        self._loop = loop
        ready.set()
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(runner.cleanup())
            loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            document = await request.json()
            self.headers.append(dict(request.headers))
            self.calls.append({match[0]: match for match in _ASKED.findall(document["query"])})
            if self.mood is not None:
                answer = await self.mood(len(self.calls))
                if answer is not None:
                    return answer
            return web.json_response({"data": self._data(document)})
        finally:
            self._at_once -= 1

    def _data(self, document: dict[str, Any]) -> dict[str, Any]:
        given = document["variables"]
        data: dict[str, Any] = {}
        for name, *variables in _ASKED.findall(document["query"]):
            route, direction, date, time = (given[variable] for variable in variables)
            stop = self.trips.get((route, direction, date, time))
            data[name] = None
            if stop is not None:
                data[name] = {"arrivalStoptime": {"stop": {"gtfsId": stop[0], "lat": stop[1], "lon": stop[2]}}}
        return data
