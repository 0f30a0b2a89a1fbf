"""`headrace record`: raw messages of a feed into files that `headrace replay` reads.

Nothing is looked at or left out: what arrives is written, with the moment of its arrival. A message is acknowledged to
its source when it is on disk.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Globals, Json, UsageError
from headrace.cli.stopping import stop_on_signals

_REPORT_SECONDS = 5.0
_FLUSH_SECONDS = 1.0


def record(
    ctx: typer.Context,
    feeds_file: Annotated[Path, typer.Argument(metavar="FEEDS", help="A file of feeds, such as feeds.toml.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the files go.")],
    feed: Annotated[
        str | None,
        typer.Option("--feed", metavar="NAME", help="Which feed, if the file has several.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option("--for", metavar="SECONDS", help="Stop after so long.", show_default=False)
    ] = None,
    rotate: Annotated[str, typer.Option("--rotate", metavar="TIME", help="Begin a new file after so long.")] = "1h",
    plain: Annotated[bool, typer.Option("--plain", help="Do not compress.")] = False,
    json: Json = False,
) -> None:
    """Write the raw messages of a feed, with their arrival times, to compressed files, until Ctrl-C."""
    from headrace.cli.feeds import load_feeds
    from headrace.ingest.recorder import Recorder
    from headrace.time.duration import micros

    feeds = {found.name: found for found in load_feeds(feeds_file, Globals.of(ctx).settings())}
    if feed is None and len(feeds) > 1:
        raise UsageError(f"{feeds_file} has {len(feeds)} feeds", hint=f"Choose with --feed: {', '.join(feeds)}.")
    name = feed or next(iter(feeds))
    if name not in feeds:
        raise UsageError(f"{feeds_file} has no feed {name!r}", hint=f"It has: {', '.join(feeds)}.")
    connector = feeds[name].make_connector()
    connector.introduce(feeds[name].make_processor())
    recorder = Recorder(
        folder, prefix=name, compression="none" if plain else "gz", max_seconds=micros(rotate) / 1_000_000
    )
    count, began = 0, time.monotonic()
    flushed = shown = began
    tokens: list[object] = []
    with stop_on_signals() as stop:
        try:
            with connector:
                for batch in connector.batches(stop):
                    for message in batch.messages:
                        recorder.write(message)
                    count += len(batch.messages)
                    tokens += [] if batch.token is None else [batch.token]
                    now = time.monotonic()
                    if now - flushed >= _FLUSH_SECONDS or (tokens and not batch.messages):
                        recorder.flush()
                        connector.acknowledge(tokens)
                        tokens, flushed = [], now
                    if now - shown >= _REPORT_SECONDS and not json:
                        terminal.note(f"{count:,} messages, {count / (now - began):,.0f}/s, in {recorder.files[-1:]}")
                        shown = now
                    if seconds is not None and now - began >= seconds:
                        stop.set()
                recorder.flush()
                connector.acknowledge(tokens)
        finally:
            recorder.close()
    files = [str(path) for path in recorder.files]
    if json:
        terminal.record({"event": "record", "feed": name, "messages": count, "files": files})
    else:
        terminal.line(f"Recorded {count:,} messages of {name} in {len(files)} files in {folder}.")
        if files:
            terminal.note(f"Send them again: headrace replay {files[0]}")
    stop.finish()
