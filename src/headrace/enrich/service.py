"""Asking somebody who may be slow, wrong or away, without ever waiting long.

A `Service` answers keys from its cache and asks for the others in the background: a thread of the process runs an
event loop with all calls, and stays when a batch is over. A batch waits for the answers it lacks, but not longer than
`patience`; what comes later is in the cache for the batches after. Four bounds keep it sound however the other side
behaves: calls at once (`parallel`), keys that wait (`queue`), time per call (the call's own time-out) and time per
second that batches may wait (`patience`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import threading
import time
from concurrent import futures
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.enrich.breaker import Breaker
from headrace.enrich.cache import Answer, Cache, Key
from headrace.enrich.lookup import State

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

#: The other side may ask for a pause; this is the longest that is granted.
_LONGEST_REST = 300.0
_LOG_SECONDS = 60.0


class CallError(Exception):
    """A call failed.

    Args:
        reason: Why, without anything secret; it goes to the log.
        again: Whether trying again may help.
        rest: Seconds that the other side asks to be left alone.
    """

    def __init__(self, reason: str, *, again: bool = False, rest: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again
        self.rest = min(rest, _LONGEST_REST)


class Caller(Protocol):
    """Makes the calls of a service, in its event loop."""

    async def call(self, keys: Sequence[Key]) -> list[Answer]:
        """Ask for keys at once; an answer per key, in their order.

        Raises:
            CallError: It did not work.
        """
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How a service is asked; times in seconds.

    Args:
        per_call: The most keys of one call.
        parallel: The most calls at once, in each worker process.
        queue: The most keys that may wait for an answer; more are refused.
        retries: How often a call is tried again.
        pause: Before the first retry; doubled before each further one, and taken by chance from zero up to that.
        patience: How long batches wait for answers, per second.
        keep: For how long an answer holds.
        keep_unknown: For how long it holds that there is none.
        keep_failed: For how long a key is not asked for again after a failure.
        failures: So many failed calls in a row open the circuit breaker.
        cool_down: For how long the breaker is open.
    """

    per_call: int = 20
    parallel: int = 8
    queue: int = 20_000
    retries: int = 2
    pause: float = 0.1
    patience: float = 0.2
    keep: float = 86_400.0
    keep_unknown: float = 600.0
    keep_failed: float = 10.0
    failures: int = 5
    cool_down: float = 30.0


@dataclass
class _Waiting:
    """Keys that are asked for: which call will answer each, and which failed a moment ago."""

    calls: dict[Key, futures.Future[None]] = field(default_factory=dict)
    failed: dict[Key, float] = field(default_factory=dict)


class Service:
    """Answers keys, by its cache or by asking.

    Args:
        name: What it is called in the log.
        caller: Makes the object that makes the calls; called once, in the event loop.
        limits: How much it may do.
        cache: Where answers are kept.
        clock: Seconds that never go back, by which the other side is left alone; for tests.
    """

    def __init__(
        self,
        name: str,
        caller: Callable[[], Caller],
        limits: Limits,
        cache: Cache,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name = name
        self._clock = clock
        self._make_caller = caller
        self._limits = limits
        self._cache = cache
        self._breaker = Breaker(failures=limits.failures, cool_down=limits.cool_down, clock=clock)
        self._waiting = _Waiting()
        self._lock = threading.Lock()
        self._budget = limits.patience
        self._budget_at = time.monotonic()
        self._logged: dict[str, float] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._slots: asyncio.Semaphore | None = None
        self._caller: Caller | None = None

    def ask(self, keys: Sequence[Key]) -> tuple[list[Answer], list[State]]:
        """Answer keys as well as can be done in the time there is; an answer and a state per key, in their order."""
        known = self._cache.get(keys)
        missing = [key for key in keys if key not in known]
        refused: dict[Key, State] = {}
        if missing:
            refused, calls = self._begin(missing)
            self._wait(calls)
            known |= self._cache.get([key for key in missing if key not in refused])
        answers: list[Answer] = []
        states: list[State] = []
        for key in keys:
            entry = known.get(key)
            answers.append(None if entry is None else entry.answer)
            if entry is not None:
                states.append(State.UNKNOWN if entry.answer is None else State.FOUND)
            else:
                states.append(refused.get(key) or self._state(key))
        return answers, states

    def close(self) -> None:
        """End the calls under way and let go of everything."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            futures.wait([asyncio.run_coroutine_threadsafe(self._shut(), loop)], timeout=2)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=2)
        self._cache.close()

    def _state(self, key: Key) -> State:
        with self._lock:
            return State.FAILED if key in self._waiting.failed else State.UNANSWERED

    def _begin(self, keys: Sequence[Key]) -> tuple[dict[Key, State], set[futures.Future[None]]]:
        """Ask for keys that nobody asks for yet; tells which are refused, and which calls to wait for."""
        now = self._clock()
        refused: dict[Key, State] = {}
        fresh: list[Key] = []
        calls: set[futures.Future[None]] = set()
        with self._lock:
            waiting = self._waiting
            waiting.failed = {key: until for key, until in waiting.failed.items() if until > now}
            room = self._limits.queue - len(waiting.calls)
            for key in keys:
                if key in waiting.calls:
                    calls.add(waiting.calls[key])
                elif key in waiting.failed:
                    refused[key] = State.FAILED
                elif len(fresh) >= room:
                    refused[key] = State.REFUSED
                else:
                    fresh.append(key)
        for start in range(0, len(fresh), self._limits.per_call):
            part = fresh[start : start + self._limits.per_call]
            if not self._breaker.allows():
                refused |= dict.fromkeys(fresh[start:], State.REFUSED)
                break
            with self._lock:
                call = asyncio.run_coroutine_threadsafe(self._answer(part), self._running())
                self._waiting.calls |= dict.fromkeys(part, call)
            calls.add(call)
        return refused, calls

    def _wait(self, calls: set[futures.Future[None]]) -> None:
        """Wait for calls within the budget: `patience` per second of the clock, whatever the number of batches."""
        if not calls:
            return
        began = time.monotonic()
        patience = self._limits.patience
        self._budget = min(patience, self._budget + (began - self._budget_at) * patience)
        futures.wait(calls, timeout=max(self._budget, 0.0))
        ended = time.monotonic()
        self._budget, self._budget_at = self._budget - (ended - began), ended

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_run, args=(loop,), name=f"enrich {self._name}", daemon=True)
            thread.start()
            self._loop, self._thread = loop, thread
        return self._loop

    async def _shut(self) -> None:
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._caller is not None:
            await self._caller.close()

    async def _answer(self, keys: list[Key]) -> None:
        """Call for keys until there is an answer or no hope of one, and keep what comes of it."""
        if self._slots is None or self._caller is None:
            self._slots, self._caller = asyncio.Semaphore(self._limits.parallel), self._make_caller()
        try:
            async with self._slots:
                if self._breaker.state == "open":  # since these keys were taken on
                    raise CallError("it has failed too often of late")
                answers = await self._try(self._caller, keys)
            await asyncio.to_thread(self._keep, dict(zip(keys, answers, strict=True)))
        except CallError as problem:
            self._complain(problem.reason)
            until = self._clock() + (problem.rest or self._limits.keep_failed)
            with self._lock:
                self._waiting.failed |= dict.fromkeys(keys, until)
        finally:
            with self._lock:
                for key in keys:
                    self._waiting.calls.pop(key, None)

    async def _try(self, caller: Caller, keys: list[Key]) -> list[Answer]:
        for attempt in range(self._limits.retries + 1):
            # The first attempt was allowed when the keys were taken on.
            if attempt and not self._breaker.allows():
                raise CallError("it has failed too often of late")
            try:
                answers = await caller.call(keys)
            except CallError as problem:
                if self._breaker.failed(rest=problem.rest):
                    self._complain(f"{problem.reason}; it is left alone for a while")
                if not problem.again or problem.rest or attempt == self._limits.retries:
                    raise
                # Chance keeps workers that failed together from coming back together.
                await asyncio.sleep(random.uniform(0, self._limits.pause * 2**attempt))  # noqa: S311 - no secret
            except BaseException:
                self._breaker.forgot()
                raise
            else:
                self._breaker.succeeded()
                return answers
        raise CallError("no attempt was made")

    def _keep(self, answers: dict[Key, Answer]) -> None:
        found = {key: answer for key, answer in answers.items() if answer is not None}
        unknown: dict[Key, Answer] = {key: None for key in answers if key not in found}
        if found:
            self._cache.put(found, seconds=self._limits.keep)
        if unknown:
            self._cache.put(unknown, seconds=self._limits.keep_unknown)

    def _complain(self, reason: str) -> None:
        """Say what went wrong; the same thing once a minute."""
        now = time.monotonic()
        if now - self._logged.get(reason, -_LOG_SECONDS) < _LOG_SECONDS:
            return
        if len(self._logged) > 100:
            self._logged.clear()
        self._logged[reason] = now
        log.warning("enrichment %s: %s; events go on without it", self._name, reason)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    with contextlib.closing(loop):
        loop.run_forever()


_services: dict[tuple[int, str], Service] = {}
_services_lock = threading.Lock()


def service(
    token: str, name: str, caller: Callable[[], Caller], limits: Limits, *, cache: Path | None, kind: str
) -> Service:
    """Give this process's service for a description, which a worker reads anew for every batch.

    Args:
        token: Names the description.
        name: What the service is called.
        caller: Makes the object that makes the calls.
        limits: How much it may do.
        cache: The file that answers are kept in.
        kind: What the answers are about.
    """
    # A forked process has the dictionary of its parent, but not the threads.
    place = (os.getpid(), token)
    with _services_lock:
        if place not in _services:
            _services[place] = Service(name, caller, limits, Cache(cache, kind=kind))
        return _services[place]


def close_services() -> None:
    """End all services of this process."""
    with _services_lock:
        mine = [place for place in _services if place[0] == os.getpid()]
        ended = [_services.pop(place) for place in mine]
    for each in ended:
        each.close()
