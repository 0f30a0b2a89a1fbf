"""`headrace ingest`: feeds by configuration, each supervised, until Ctrl-C."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.replay import Reporter
from headrace.cli.stopping import stop_on_signals

if TYPE_CHECKING:
    from headrace.ingest.supervisor import Restart


def ingest(
    ctx: typer.Context,
    feeds_file: Annotated[Path, typer.Argument(metavar="FEEDS", help="A file of feeds, such as feeds.toml.")],
    check: Annotated[bool, typer.Option("--check", help="Try every connection, and end.")] = False,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Bring live feeds to Kafka: connectors and processors as FEEDS says, each started again when it fails."""
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))

    from headrace.broker import Producer
    from headrace.cli.feeds import load_feeds, make_feed_topics
    from headrace.ingest.supervisor import supervise

    feeds = load_feeds(feeds_file)
    if check:
        for feed in feeds:
            found = feed.make_connector().check()
            if json:
                terminal.record({"feed": feed.name, "check": found})
            else:
                terminal.line(f"{feed.name}: {found}")
        return
    connection = connect(settings)
    make_feed_topics(connection, feeds)
    terminal.note(f"{len(feeds)} feed{'s' if len(feeds) > 1 else ''} to {connection.bootstrap}; Ctrl-C ends them")

    def restarted(what: Restart) -> None:
        if json:
            terminal.record({"event": "restart", "feed": what.feed, "error": str(what.error), "pause": what.pause})
        else:
            terminal.note(f"{what.feed} failed: {what.error} Next attempt in {what.pause:g} s.")

    with stop_on_signals() as stop:
        supervise(
            feeds,
            lambda: Producer(connection, client_id="headrace-ingest"),
            stop=stop,
            report=Reporter(json=json),
            restarted=restarted,
        )
    stop.finish()
