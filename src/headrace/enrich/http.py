"""Enrichment by a service over HTTP.

Two functions of the user make it any service's client: `ask` turns keys into a request, `read` turns the JSON of an
answer into values. Everything else is here: connections that are kept, a time-out for every call, a bound on the size
of an answer, and (`headrace.enrich.service`) retries, the cache and the circuit breaker.

What is secret stays so: header values may be `pydantic.SecretStr`, and neither headers nor addresses nor bodies are
logged. Redirections are not followed, since they could lead secrets elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import logging
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from headrace.enrich.lookup import found
from headrace.enrich.service import CallError, Limits, service
from headrace.enrich.values import check_gives, frame_of, plain_schema
from headrace.errors import PlanError
from headrace.extras import require
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta
    from pathlib import Path

    import httpx
    import polars as pl

    from headrace.enrich.cache import Answer, Key
    from headrace.enrich.lookup import Found

log = logging.getLogger(__name__)

#: Answers of the other side that may be better the next time.
_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Ask:
    """A request for some keys.

    Args:
        path: Added to the service's address.
        params: The query of the address.
        json: The body; a request with a body is a POST.
        method: GET or POST, if the other one is wanted.
    """

    path: str = ""
    params: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    method: str = ""


@dataclass(frozen=True)
class Http:
    """A service that is asked over HTTP; see `http`."""

    url: str
    ask: Callable[[list[dict[str, Any]]], Ask] = field(compare=False)
    read: Callable[[Any, list[dict[str, Any]]], Sequence[Mapping[str, Any] | None]] = field(compare=False)
    gives: pl.Schema
    name: str
    limits: Limits
    timeout: float
    max_bytes: int
    headers: tuple[tuple[str, str | SecretStr], ...] = field(default=(), repr=False)
    cache: Path | None = None
    version: str = ""
    token: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False, repr=False)

    @property
    def text(self) -> str:
        """Describe it in a line of `explain()`."""
        return f"http {self.name} ({urlsplit(self.url).hostname})"

    def check(self, keys: pl.Schema) -> None:
        """Keys are written into requests and into the cache."""
        check_gives(keys, "key", self.name)

    def look_up(self, keys: pl.DataFrame) -> Found:
        """Answer keys from the cache, and by asking within the time there is."""
        names = keys.columns
        run = service(
            self.token, self.name, lambda: _Client(self, names), self.limits, cache=self.cache, kind=self._kind
        )
        answers, states = run.ask(keys.rows())
        return found(frame_of(answers, self.gives), states, self.gives)

    @property
    def _kind(self) -> str:
        columns = ",".join(f"{name}:{kind}" for name, kind in self.gives.items())
        return f"{self.name}|{self.url}|{columns}|{self.version}"


def http(
    url: str,
    *,
    ask: Callable[[list[dict[str, Any]]], Ask],
    read: Callable[[Any, list[dict[str, Any]]], Sequence[Mapping[str, Any] | None]],
    gives: dict[str, Any] | pl.Schema,
    name: str = "http",
    headers: Mapping[str, str | SecretStr] | None = None,
    cache: Path | None = None,
    version: str = "",
    timeout: str | timedelta = "2s",
    patience: str | timedelta = "200ms",
    keep: str | timedelta = "1d",
    keep_unknown: str | timedelta = "10min",
    keep_failed: str | timedelta = "10s",
    retries: int = 2,
    per_call: int = 20,
    parallel: int = 8,
    queue: int = 20_000,
    failures: int = 5,
    cool_down: str | timedelta = "30s",
    max_bytes: int = 1_000_000,
) -> Http:
    """Enrich by a service over HTTP.

    Args:
        url: Where it is; `https://` unless it is near.
        ask: Makes a request for at most `per_call` keys, each a dictionary by column.
        read: Reads an answer's JSON: a dictionary of the promised columns per key, in their order, or None where the
            service knows of no value.
        gives: The columns that it gives, with their types.
        name: What to call it in counters, messages and the cache.
        headers: Sent with every request; use `pydantic.SecretStr` for what nobody may see.
        cache: A file that answers are kept in over a restart, shared by all workers of a machine.
        version: Change it when `read` reads another thing out of the same answer: cached answers are then not used.
        timeout: For each attempt, until the whole answer is there.
        patience: How long batches wait for answers, per second; later answers are for the rows after.
        keep: For how long an answer holds.
        keep_unknown: For how long it holds that there is none.
        keep_failed: For how long a key is not asked for again after a failure.
        retries: How often a call is tried again, after a pause that doubles and is taken by chance.
        per_call: The most keys of one call.
        parallel: The most calls at once, in each worker process.
        queue: The most keys that may wait for an answer; more are refused.
        failures: So many failed attempts in a row open the circuit breaker.
        cool_down: For how long nobody is asked then.
        max_bytes: The largest answer that is read, unpacked.
    """
    require("http", by="headrace.enrich.http")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise PlanError(
            f"enrichment {name!r}: {parts.scheme or 'nothing'!r} is no web address", hint="Give http(s)://HOST."
        )
    if parts.username or parts.password:
        raise PlanError(
            f"enrichment {name!r}: the address holds a password", hint="Send it as a header, as a pydantic.SecretStr."
        )
    columns = plain_schema(gives)
    if not columns:
        raise PlanError(f"enrichment {name!r} gives no column", hint='Name them: gives={"stop": pl.String}.')
    check_gives(columns, "column", name)
    least = {"per_call": per_call, "parallel": parallel, "queue": queue, "failures": failures, "max_bytes": max_bytes}
    for what, number in least.items():
        if number < 1:
            raise PlanError(f"enrichment {name!r}: {what} is {number}", hint="Give a number of 1 or more.")
    limits = Limits(
        per_call=per_call,
        parallel=parallel,
        queue=queue,
        retries=retries,
        patience=micros(patience, what="patience") / 1e6,
        keep=micros(keep, what="keep") / 1e6,
        keep_unknown=micros(keep_unknown, what="keep_unknown") / 1e6,
        keep_failed=micros(keep_failed, what="keep_failed") / 1e6,
        failures=failures,
        cool_down=micros(cool_down, what="cool_down") / 1e6,
    )
    return Http(
        url=url,
        ask=ask,
        read=read,
        gives=columns,
        name=name,
        limits=limits,
        timeout=micros(timeout, what="timeout") / 1e6,
        max_bytes=max_bytes,
        headers=tuple((headers or {}).items()),
        cache=cache,
        version=version,
    )


class _Client:
    """Makes the calls of one service in its event loop."""

    def __init__(self, http: Http, names: Sequence[str]) -> None:
        import httpx

        # httpx would write every address into the log, with what is in its query.
        logging.getLogger("httpx").setLevel(max(logging.getLogger("httpx").level, logging.WARNING))
        self._http = http
        self._names = list(names)
        self._client = httpx.AsyncClient(
            timeout=http.timeout,
            limits=httpx.Limits(max_connections=http.limits.parallel, max_keepalive_connections=http.limits.parallel),
            headers={name: _revealed(value) for name, value in http.headers},
            follow_redirects=False,
        )

    async def call(self, keys: Sequence[Key]) -> list[Answer]:
        import httpx

        named = [dict(zip(self._names, key, strict=True)) for key in keys]
        try:
            async with asyncio.timeout(self._http.timeout):
                status, headers, body = await self._sent(self._request(named))
        except TimeoutError as problem:
            raise CallError(f"no answer within {self._http.timeout:g} s", again=True) from problem
        except httpx.TransportError as problem:
            raise CallError(f"it cannot be reached ({type(problem).__name__})", again=True) from problem
        except httpx.HTTPError as problem:
            raise CallError(f"the call failed ({type(problem).__name__})") from problem
        if status != 200:
            raise CallError(f"it answered {status}", again=status in _AGAIN, rest=_rest(status, headers))
        return self._answers(body, named)

    async def close(self) -> None:
        await self._client.aclose()

    def _request(self, named: list[dict[str, Any]]) -> httpx.Request:
        try:
            ask = self._http.ask(named)
        except Exception as problem:  # a function of the user may raise anything
            raise CallError(f"ask failed ({type(problem).__name__}: {problem})") from problem
        method = ask.method or ("GET" if ask.json is None else "POST")
        return self._client.build_request(method, self._http.url + ask.path, params=dict(ask.params), json=ask.json)

    async def _sent(self, request: httpx.Request) -> tuple[int, Mapping[str, str], bytes]:
        response = await self._client.send(request, stream=True)
        try:
            parts, size = [], 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > self._http.max_bytes:
                    raise CallError(f"an answer has more than {self._http.max_bytes} bytes")
                parts.append(part)
            return response.status_code, response.headers, b"".join(parts)
        finally:
            await response.aclose()

    def _answers(self, body: bytes, named: list[dict[str, Any]]) -> list[Answer]:
        try:
            document = json.loads(body)
        except (ValueError, RecursionError) as problem:
            deep = isinstance(problem, RecursionError)
            raise CallError("its answer is nested too deeply" if deep else "its answer is no JSON") from problem
        try:
            read = list(self._http.read(document, named))
            answers = [None if values is None else tuple(values[name] for name in self._http.gives) for values in read]
            frame_of(answers, self._http.gives)  # so that what does not fit is found out here and not in a batch
        except Exception as problem:  # a function of the user may raise anything, the more so on what it did not expect
            raise CallError(f"its answer cannot be used ({type(problem).__name__})") from problem
        if len(answers) != len(named):
            raise CallError(f"{len(answers)} values were read for {len(named)} keys")
        return answers


def _revealed(value: str | SecretStr) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else value


def _rest(status: int, headers: Mapping[str, str]) -> float:
    """How long the other side asks to be left alone, in seconds; a date instead of a number is taken for 30 s."""
    told = headers.get("retry-after")
    if status not in (429, 503) or told is None:
        return 0.0
    try:
        return max(float(told), 0.1)
    except ValueError:
        return 30.0
