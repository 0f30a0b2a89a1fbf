"""`headrace size`: cores, memory, partitions, disk and network for a load, by a model fitted to measurements."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Json
from headrace.sizing import Kind, Load, Size
from headrace.sizing import size as size_of

_SECOND = 1_000_000


def size(
    events_per_second: Annotated[float, typer.Option(help="At the busiest time.", metavar="N")],
    keys: Annotated[float, typer.Option(help="Keys that are active within a window.", metavar="N")] = 10_000,
    window: Annotated[str, typer.Option(help="Length of the windows.", metavar="TIME")] = "1m",
    slide: Annotated[
        str | None, typer.Option(help="From one window to the next.", metavar="TIME", show_default=False)
    ] = None,
    kind: Annotated[
        Kind, typer.Option(help="Aggregates in windows, a pattern, or a result for every event.")
    ] = "windows",
    jobs: Annotated[int, typer.Option(help="Jobs in one query on the same events.", metavar="N")] = 1,
    event_bytes: Annotated[float, typer.Option(help="Bytes of an event on Kafka.", metavar="N")] = 200,
    retention_days: Annotated[float, typer.Option(help="How long Kafka keeps them.", metavar="N")] = 3,
    copies: Annotated[int, typer.Option(help="Copies of each topic.", metavar="N")] = 3,
    json: Json = False,
) -> None:
    """Say how many cores, how much memory, disk and network a load takes, and how sure that is."""
    from headrace.time.duration import micros

    load = Load(
        events_per_second=events_per_second,
        keys=keys,
        window=micros(window) / _SECOND,
        slide=None if slide is None else micros(slide) / _SECOND,
        kind=kind,
        jobs=jobs,
        event_bytes=event_bytes,
        retention_days=retention_days,
        copies=copies,
    )
    answer = size_of(load)
    if json:
        terminal.document({"load": asdict(load), "size": asdict(answer)})
        return
    terminal.rows(("what", "how much", "why"), _rows(load, answer))
    terminal.line(
        f"Error of the model on measurements that it had not seen: cores {answer.cores_error:.0%} (median), "
        f"{answer.worst_cores_error:.0%} (largest); memory {answer.memory_error:.0%}, {answer.worst_memory_error:.0%}."
    )
    if answer.extrapolated:
        terminal.line("This is beyond what was measured (2 cores, 1,000,000 keys): it goes on along a straight line.")


def _rows(load: Load, answer: Size) -> list[tuple[str, str, str]]:
    return [
        ("cores", f"{answer.cores}", f"{answer.busy_cores:.2f} busy, and room to catch up; Kafka has its own"),
        ("memory", f"{answer.memory_gb:.1f} GB", "driver, Java and Python workers together"),
        ("state", f"{answer.state_gb:.2f} GB", "before compression; give the checkpoint several times that"),
        ("partitions", f"{answer.partitions}", "of each input topic"),
        ("spark.state_partitions", f"{answer.cores}", "as many as cores"),
        ("spark.key_groups", f"{answer.key_groups}", "twice that, so that cores can be added"),
        ("results", f"{load.results_per_second:,.0f}/s", "at most"),
        ("disk of Kafka", f"{answer.kafka_disk_gb:,.0f} GB", f"{load.retention_days:g} days, {load.copies} copies"),
        ("written by Kafka", f"{answer.kafka_in_mb:.1f} MB/s", "on all brokers together"),
        ("read by the run", f"{answer.read_mb:.1f} MB/s", ""),
    ]
