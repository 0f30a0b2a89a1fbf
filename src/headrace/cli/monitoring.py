"""How a command that runs for long is watched: the options for its metrics and its log, and what they start."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.logs import LogFormat, LogLevel

if TYPE_CHECKING:
    from headrace.observe.metrics import Collector, Monitored

MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        metavar="PORT",
        min=0,
        max=65_535,
        help="Serve metrics for Prometheus, /healthz and /readyz on this port; 0 takes a free one.",
        show_default=False,
    ),
]
MetricsHost = Annotated[
    str,
    typer.Option(
        "--metrics-host", metavar="ADDRESS", help="Address of the metrics. They have no password: keep it private."
    ),
]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Write the log for people or for programs.")]
LogLevelOption = Annotated[
    LogLevel, typer.Option("--log-level", help="Least level of Headrace's own records; info has a line per batch.")
]
LOOPBACK = "127.0.0.1"


def serve(port: int | None, host: str, collector: Collector, monitored: Monitored) -> AbstractContextManager[Any]:
    """Serve metrics and health, if a port is given; the context ends the serving.

    Raises:
        EnvironmentProblem: The port is taken.
    """
    if port is None:
        return nullcontext()
    from headrace.observe.metrics import MetricsEndpoint

    endpoint = MetricsEndpoint(port, collector, host=host, monitored=monitored)
    terminal.note(f"Metrics for Prometheus: {endpoint.url}")
    return endpoint
