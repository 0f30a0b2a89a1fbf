"""Metrics for Prometheus, and whether a process is alive and ready: a small HTTP endpoint beside what the process does.

| path | answer |
|---|---|
| `/metrics` | what the collectors give, in the format of Prometheus or of OpenMetrics, as the reader prefers |
| `/healthz` | 200 while the process can do its work without being started again, 503 otherwise |
| `/readyz` | 200 while it does its work, 503 otherwise |

Whoever has figures brings a collector (an object with `collect()`, as prometheus_client defines it); the endpoint asks
it at every scrape. It listens on the loopback address unless another one is given, asks for no password and changes
nothing. An answer names no secret: causes are codes, not messages.
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_address
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any, Protocol, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from socket import socket
    from types import TracebackType

__all__ = ["Collector", "Condition", "MetricsEndpoint", "Monitored"]

#: Seconds that a client may take to send its request or to read the answer.
_CLIENT_SECONDS = 10.0
#: Requests that are answered at the same time; more are turned away.
_MOST_CLIENTS = 8


@dataclass(frozen=True, slots=True)
class Condition:
    """Whether something is as it should be.

    Args:
        ok: Whether it is.
        status: In a word or two, such as "running".
    """

    ok: bool
    status: str


class Monitored(Protocol):
    """A process that can say how it is."""

    def alive(self) -> Condition:
        """Whether it can do its work without being started again."""
        ...

    def ready(self) -> Condition:
        """Whether it does its work."""
        ...


class _AlwaysUp:
    """What is said of a process that says nothing of itself: it answers."""

    def alive(self) -> Condition:
        return Condition(True, "up")

    def ready(self) -> Condition:
        return Condition(True, "up")


class MetricsEndpoint:
    """Serves metrics and health over HTTP.

    Args:
        port: Where; 0 takes a free port, `url` says which.
        collectors: Who has figures; more can be added while it runs.
        host: The address to listen on.
        monitored: Says whether the process is alive and ready; without it, it is both while it answers.

    Raises:
        EnvironmentProblem: The port is taken, or the address is none of this machine.

    >>> with MetricsEndpoint(0) as endpoint:
    ...     endpoint.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(
        self, port: int, *collectors: Collector, host: str = "127.0.0.1", monitored: Monitored | None = None
    ) -> None:
        self.registry = CollectorRegistry()
        for collector in collectors:
            self.add(collector)
        try:
            self._server = _Server(host, port, self.registry, monitored or _AlwaysUp())
        except (OSError, OverflowError) as error:
            raise EnvironmentProblem(
                f"metrics cannot be served on port {port} of {host}: {getattr(error, 'strerror', None) or error}",
                hint="Give another --metrics-port (0 takes a free one) or --metrics-host.",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Where the metrics are."""
        host, port = self._server.server_address[:2]
        return f"http://{host!s}:{port}/metrics"

    def add(self, collector: Collector) -> None:
        """Let one more collector tell."""
        self.registry.register(collector)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class _Server(ThreadingMixIn, TCPServer):
    """A thread per request, and only so many of them."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, host: str, port: int, registry: CollectorRegistry, monitored: Monitored) -> None:
        self.registry = registry
        self.monitored = monitored
        #: A page of a foreign site may point a name of its own at this machine; only names of loopback are accepted.
        self.only_loopback = _is_loopback(host)
        self._clients = threading.BoundedSemaphore(_MOST_CLIENTS)
        super().__init__((host, port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread can be started
            self._clients.release()
            self.shutdown_request(request)

    def process_request_thread(self, request: socket | tuple[bytes, socket], client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _CLIENT_SECONDS
    server_version = "headrace"
    sys_version = ""

    def do_GET(self) -> None:
        asked = (self.headers.get("Host") or "localhost").rpartition(":")
        if self.server.only_loopback and not _is_loopback(asked[0] or asked[2]):
            self._answer(403, "text/plain", b"Ask by the address 127.0.0.1, or by localhost.\n")
            return
        path = self.path.partition("?")[0]
        if path == "/metrics":
            encode, content_type = choose_encoder(self.headers.get("Accept") or "")
            self._answer(200, content_type, encode(self.server.registry))
        elif path in ("/healthz", "/readyz"):
            monitored = self.server.monitored
            condition = monitored.alive() if path == "/healthz" else monitored.ready()
            body = json.dumps({"ok": condition.ok, "status": condition.status}).encode()
            self._answer(200 if condition.ok else 503, "application/json", body)
        else:
            self._answer(404, "text/plain", b"There are /metrics, /healthz and /readyz.\n")

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class calls it so
        """Scrapes are not worth a line."""
