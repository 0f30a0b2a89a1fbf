"""`headrace ingest`: feeds by configuration, each supervised, until Ctrl-C."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.monitoring import LOOPBACK, LogFormatOption, LogLevelOption, MetricsHost, MetricsPort
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.reports import Reporter, serve_metrics
from headrace.cli.stopping import stop_on_signals
from headrace.errors import HeadraceError
from headrace.logs import configure_logs

if TYPE_CHECKING:
    from headrace.ingest.feeds import Feed


def ingest(
    ctx: typer.Context,
    feeds_file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FEEDS", help="A file of feeds, such as feeds.toml; --config FILE will do.", show_default=False
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Try every connection, and end.")] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Bring live feeds to Kafka: connectors and processors as FEEDS says, each started again when it fails."""
    configure_logs(log_format, log_level)
    options = Globals.of(ctx)
    if feeds_file is None:
        # What --config names has feeds in it then, and no settings.
        feeds_file, options = options.file, replace(options, file=None)
    if feeds_file is None:
        raise UsageError("no file of feeds is named", hint="Write: headrace ingest feeds.toml")
    settings = options.settings(broker__bootstrap=(bootstrap, "--bootstrap"))

    from headrace.cli.feeds import load_feeds, make_feed_topics
    from headrace.ingest.supervisor import supervise
    from headrace.kafka import Producer

    feeds = load_feeds(feeds_file, settings)
    if check:
        _check(feeds, json=json)
        return
    connection = connect(settings)
    make_feed_topics(connection, feeds, settings)
    metrics, serving = serve_metrics(metrics_port, [feed.name for feed in feeds], host=metrics_host)
    terminal.note(f"{len(feeds)} feed{'s' if len(feeds) > 1 else ''} to {connection.bootstrap}; Ctrl-C ends them")
    with serving, stop_on_signals() as stop, Reporter(json=json, metrics=metrics) as reporter:
        supervise(
            feeds,
            lambda: Producer(connection, client_id="headrace-ingest"),
            stop=stop,
            report=reporter,
            restarted=reporter.restarted,
        )
    stop.finish()


def _check(feeds: list[Feed], *, json: bool) -> None:
    """Try every connection; one that fails does not keep the others from being tried."""
    failed: HeadraceError | None = None
    for feed in feeds:
        try:
            found, fine = feed.make_connector().check(), True
        except HeadraceError as error:
            found, fine, failed = str(error), False, failed or error
        topics = ", ".join(feed.topics)
        if json:
            terminal.record({"feed": feed.name, "ok": fine, "check": found, "topics": list(feed.topics)})
        else:
            terminal.line(f"{feed.name}: {found}" if fine else f"{feed.name}: FAILED: {found}")
            terminal.line(f"  {feed.processor.name} -> {topics}")
            schema = getattr(feed.make_processor(), "schema", None)
            if schema is not None:
                terminal.line(f"  columns: {', '.join(f'{name} {kind}' for name, kind in schema.items())}")
    if failed is not None:
        raise failed
