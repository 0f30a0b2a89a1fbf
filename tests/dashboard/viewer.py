"""A viewer for the tests: a real Socket.IO client that keeps what it is told as the protocol says."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import socketio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Viewer:
    """Follows jobs.

    Args:
        answers: Whether it says that it has received messages, as it should.
    """

    def __init__(self, *, answers: bool = True) -> None:
        self.answers = answers
        self.client = socketio.AsyncClient(reconnection=False)
        self.heard: dict[str, list[Any]] = defaultdict(list)
        self.entries: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
        self.versions: dict[str, int] = {}
        self._news = asyncio.Event()
        for event in ("hello", "declarations", "status", "pipeline", "snapshot", "changes"):
            self.client.on(event, self._handler(event))

    def _handler(self, event: str) -> Callable[[Any], Any]:
        async def take(payload: Any) -> None:
            self.heard[event].append(payload)
            if event in ("snapshot", "changes"):
                self._apply(event, payload)
                await self.answer(payload["job"], payload["version"])
            elif event == "pipeline" and self.answers:
                await self.client.emit("received", {"pipeline": payload["now"]})
            self._news.set()

        return take

    async def answer(self, job: str, version: int) -> None:
        if self.answers:
            await self.client.emit("received", {"job": job, "version": version})

    def _apply(self, event: str, message: dict[str, Any]) -> None:
        job = message["job"]
        if event == "snapshot":
            self.entries[job] = {}
        else:
            assert message["base"] == self.versions[job], "a gap in the versions"
            for key in message["removed"]:
                self.entries[job].pop(key, None)
        for group in message["groups"]:
            for row, key in enumerate(group["key"]):
                columns = {name: column[row] for name, column in group["values"].items()}
                self.entries[job][key] = {**columns, "window_end": group["window_end"]}
        self.versions[job] = message["version"]

    async def subscribe(self, jobs: Any, **resume: int) -> dict[str, Any]:
        wish: dict[str, Any] = {"jobs": jobs}
        if resume:
            wish["resume"] = resume
        answer: dict[str, Any] = await self.client.call("subscribe", wish, timeout=10)
        return answer

    async def until(self, condition: Callable[[], Any], *, what: str, seconds: float = 20.0) -> Any:
        """Wait until something is so."""
        deadline = asyncio.get_running_loop().time() + seconds
        while not (found := condition()):
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise AssertionError(f"still waiting for: {what}")
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), min(left, 0.2))
            except TimeoutError:
                continue
        return found


@asynccontextmanager
async def watching(
    url: str, *, answers: bool = True, headers: dict[str, str] | None = None, transports: list[str] | None = None
) -> AsyncIterator[Viewer]:
    """A viewer that is connected."""
    viewer = Viewer(answers=answers)
    await viewer.client.connect(url, headers=headers or {}, transports=transports or ["websocket"])
    try:
        yield viewer
    finally:
        await viewer.client.disconnect()
