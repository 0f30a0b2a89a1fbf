"""`headrace dashboard`: the live map of what the jobs answer, and of how the pipeline is doing."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.jobs import complete_job, registry
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.stopping import stop_on_signals

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.dashboard.server import DashboardOptions
    from headrace.registry import Registry


def dashboard_options(settings: Settings, known: Registry) -> DashboardOptions:
    """How the dashboard is served, by the settings and what applications want to see.

    Raises:
        ConfigError: It would be open to everybody.
    """
    from headrace.dashboard.access import Access
    from headrace.dashboard.server import DashboardOptions

    chosen = settings.dashboard
    access = Access(
        host=chosen.host,
        token=None if chosen.token is None else chosen.token.get_secret_value(),
        proxy_header=chosen.proxy_header,
        proxies=_parts(chosen.proxies),
        origins=_parts(chosen.origins),
        style=chosen.map_style,
    )
    return DashboardOptions(
        access=access,
        style=chosen.map_style,
        defaults=tuple(known.things("pages").values()),
        viewers=chosen.viewers,
    )


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def dashboard(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...", help="Show these; all if left out.", autocompletion=complete_job, show_default=False
        ),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option("--host", metavar="ADDRESS", help="Address to listen on.", show_default=False),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", help="Port to listen on; 0 means any.", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Serve the live map: results of the jobs, and the state of the pipeline, until Ctrl-C."""
    settings = Globals.of(ctx).settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        dashboard__host=(host, "--host"),
        dashboard__port=(port, "--port"),
    )
    known = registry(settings)
    options = dashboard_options(settings, known)
    chosen = known.find(names) if names else known.every()
    connection = connect(settings)

    from headrace.dashboard.pages import Pages
    from headrace.dashboard.server import Dashboard, listen, serve

    wanted = settings.dashboard.port
    insist = settings.origin("dashboard.port").kind != "default"
    listener = listen(settings.dashboard.host, wanted, insist=insist)
    taken = listener.getsockname()[1] != wanted and wanted != 0
    pages = Pages()

    def ready(url: str) -> None:
        if json:
            terminal.record({"event": "listening", "url": url, "built": pages.built})
            return
        if taken:
            terminal.note(f"Port {wanted} is taken; another one is used.")
        if not pages.built:
            terminal.note("The page has not been built yet: `make frontend` does that. The REST interface works.")
        terminal.line(f"Showing {', '.join(job.name for job in chosen)}; Ctrl-C stops.")
        if options.access.token is not None:
            terminal.line(f"Open {url}/?token=...  (the token of dashboard.token)")
        else:
            terminal.line(f"Open {url}")

    logging.getLogger("engineio").setLevel(logging.CRITICAL)
    with stop_on_signals() as stop:
        serve(Dashboard(connection, chosen, options, pages=pages), listener, ready=ready, stop=stop)
    if not json:
        terminal.note("The dashboard has stopped.")
    stop.finish()
