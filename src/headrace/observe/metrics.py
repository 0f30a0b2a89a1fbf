"""Metrics for Prometheus: an endpoint on this machine that shows what collectors tell.

Whoever has something to tell brings a collector (an object with `collect()`, as prometheus_client defines it); the
endpoint asks it whenever somebody looks. It listens on the loopback address only: what scrapes it from elsewhere comes
through whatever guards the machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from headrace.errors import EnvironmentProblem

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Collector", "MetricsEndpoint"]


class MetricsEndpoint:
    """Serves metrics over HTTP, on the loopback address.

    Args:
        port: Where; 0 takes a free port, `url` says which.
        collectors: Who tells; more can be added while it runs.

    Raises:
        EnvironmentProblem: The port is taken.

    >>> with MetricsEndpoint(0) as endpoint:
    ...     endpoint.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, port: int, *collectors: Collector) -> None:
        self.registry = CollectorRegistry()
        for collector in collectors:
            self.add(collector)
        try:
            self._server, self._thread = start_http_server(port, addr="127.0.0.1", registry=self.registry)
        except (OSError, OverflowError) as error:
            raise EnvironmentProblem(
                f"metrics cannot be served on port {port}: {getattr(error, 'strerror', None) or error}",
                hint="Give another --metrics-port; 0 takes a free one.",
            ) from error

    @property
    def url(self) -> str:
        """Where the metrics are."""
        return f"http://127.0.0.1:{self._server.server_port}/metrics"

    def add(self, collector: Collector) -> None:
        """Let one more tell."""
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
