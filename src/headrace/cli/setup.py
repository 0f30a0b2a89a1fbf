"""`headrace setup`: fetch the jars now, so that nothing has to be fetched later."""

from __future__ import annotations

import time

import typer

from headrace.cli import terminal
from headrace.cli.options import Globals, Json
from headrace.cli.progress import Steps


def setup(ctx: typer.Context, json: Json = False) -> None:
    """Fetch and verify the jars of Kafka and of Spark's connector. Does nothing when they are there."""
    from headrace.dev.jars import EMBEDDED_BROKER, SPARK_CONNECTOR, JarCache
    from headrace.dev.java import find_java

    settings = Globals.of(ctx).settings()
    began = time.monotonic()
    java = find_java()
    cache = JarCache(settings.paths.jars, java=java)
    paths: dict[str, list[str]] = {}
    with Steps() as steps:
        for name, what in ((SPARK_CONNECTOR, "Spark's Kafka connector"), (EMBEDDED_BROKER, "the embedded broker")):
            with steps.step(f"Jars of {what}") as step:
                paths[name] = [str(path) for path in cache.get(name, progress=step.progress)]
                step.done(f"{len(paths[name])} jars")
    if json:
        terminal.document({"directory": str(cache.directory), "java": str(java.executable), "jars": paths})
        return
    count = sum(map(len, paths.values()))
    terminal.line(f"{count} jars ready in {cache.directory} ({time.monotonic() - began:.1f} s). Next: headrace demo")
