"""`headrace setup`: fetch the jars of the embedded broker now, so that nothing has to be fetched later.

Jobs need no jars: their tasks read and write Kafka from Python. A program of one's own that reads Kafka with Spark's
own source (`spark.readStream.format("kafka")`) needs those of Spark's connector: `--spark-connector`.
"""

from __future__ import annotations

import time
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Globals, Json
from headrace.cli.progress import Steps


def setup(
    ctx: typer.Context,
    connector: Annotated[
        bool,
        typer.Option("--spark-connector", help="Also those for programs that read Kafka with Spark's own source."),
    ] = False,
    json: Json = False,
) -> None:
    """Fetch and verify the jars of the embedded broker. Does nothing when they are there."""
    from headrace.dev.jars import EMBEDDED_BROKER, SPARK_CONNECTOR, JarCache
    from headrace.dev.java import find_java

    settings = Globals.of(ctx).settings()
    began = time.monotonic()
    java = find_java()
    cache = JarCache(settings.paths.jars, java=java)
    wanted = [(EMBEDDED_BROKER, "the embedded broker")]
    wanted += [(SPARK_CONNECTOR, "Spark's Kafka connector")] if connector else []
    paths: dict[str, list[str]] = {}
    with Steps() as steps:
        for name, what in wanted:
            with steps.step(f"Jars of {what}") as step:
                paths[name] = [str(path) for path in cache.get(name, progress=step.progress)]
                step.done(f"{len(paths[name])} jars")
    if json:
        terminal.document({"directory": str(cache.directory), "java": str(java.executable), "jars": paths})
        return
    count = sum(map(len, paths.values()))
    terminal.line(f"{count} jars ready in {cache.directory} ({time.monotonic() - began:.1f} s). Next: headrace dev")
    for path in paths.get(SPARK_CONNECTOR, []):
        terminal.line(path)
