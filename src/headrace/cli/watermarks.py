"""`headrace watermarks`: where event time stands in every partition, and which one holds the others back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.jobs import complete_job, pick
from headrace.cli.options import Globals, Json

if TYPE_CHECKING:
    from pathlib import Path

_MILLISECOND = 1_000
#: How many of the clocks that are wrong are named.
_WORST = 10
_HEADER = (
    "partition",
    "watermark",
    "behind",
    "state",
    "events",
    "absurd",
    "ahead",
    "late by p50",
    "p99",
    "max",
    "delay",
)


def watermarks(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[JOB...]", autocompletion=complete_job, show_default=False)
    ] = None,
    clocks: Annotated[
        bool,
        typer.Option("--clocks", help="Show the keys whose clocks are ahead or behind: how many, how far, the worst."),
    ] = False,
    json: Json = False,
) -> None:
    """Show where event time stands per partition, which one holds the others back, and what delay to use."""
    from headrace.spark.checkpoint.watermarks_file import read_standing

    settings = Globals.of(ctx).settings()
    found: dict[str, dict[str, Any]] = {}
    for checkpoint in _checkpoints(settings.checkpoint_directory):
        found.update(read_standing(checkpoint))
    if names:
        # The name of a job that has run is enough; where its code is need not be known.
        others = [name for name in names if name not in found]
        wanted = {*names, *(job.name for job in pick(others, settings))}
        found = {name: standing for name, standing in found.items() if name in wanted}
    if json:
        terminal.document(found)
        return
    if not found:
        terminal.note("No job has told its watermarks yet. Start one: headrace run JOB")
        return
    for name, standing in found.items():
        _show_clocks(name, standing) if clocks else _show(name, standing)


def _checkpoints(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []


def _show(name: str, standing: dict[str, Any]) -> None:
    terminal.line(f"{name}: watermark {_instant(standing['watermark'])}")
    terminal.rows(_HEADER, [_row(partition) for partition in standing["partitions"]])
    delays = [partition["recommended_delay"] for partition in standing["partitions"]]
    if delays:
        delay = _text(max(delays))
        terminal.line(f'With watermark(bounded("{delay}")) 99.9 % of these events would have been on time.')


def _show_clocks(name: str, standing: dict[str, Any]) -> None:
    """Show what all partitions together say of the clocks of keys; a key is in one partition."""
    reports = [each for partition in standing["partitions"] if (each := partition.get("clocks")) is not None]
    if not reports:
        terminal.line(f"{name}: nothing is known of its clocks.")
        terminal.note('Say whose clock gives the time of a row: watermark(bounded("1s", clock="sensor")).')
        return
    keys, ahead, behind = (sum(report[each] for report in reports) for each in ("keys", "ahead", "behind"))
    terminal.line(f"{name}: of about {keys:,} clocks {ahead:,} are ahead by more than a second, {behind:,} behind.")
    worst = sorted((clock for report in reports for clock in report["worst"]), key=lambda clock: -abs(clock["ahead"]))
    if worst:
        rows = [(str(clock["key"]), _text(abs(clock["ahead"])), _side(clock)) for clock in worst[:_WORST]]
        terminal.rows(("clock of", "wrong by", ""), rows)


def _side(clock: dict[str, Any]) -> str:
    return "ahead" if clock["ahead"] > 0 else "behind"


def _row(partition: dict[str, Any]) -> tuple[str, ...]:
    from headrace.time.instants import BEGINNING

    state = "idle" if partition["idle"] else "holds back" if partition["holds_back"] else "active"
    lateness = partition["lateness"]
    return (
        partition["partition"],
        _instant(partition["watermark"]),
        _text(partition["behind"]) if partition["watermark"] > BEGINNING else "-",
        state,
        f"{partition['rows']:,}",
        f"{partition['absurd']:,}",
        f"{partition.get('ahead', 0):,}",
        *(_text(lateness[level]) for level in ("p50", "p99", "max")),
        _text(partition["recommended_delay"]),
    )


def _text(duration: int) -> str:
    """A duration for people, rounded up to milliseconds."""
    from headrace.time.duration import text

    return text(-(-duration // _MILLISECOND) * _MILLISECOND)


def _instant(watermark: int) -> str:
    from headrace.time.instants import BEGINNING, moment

    at = moment(watermark) if watermark > BEGINNING else None
    return at.isoformat(timespec="milliseconds") if at is not None else "none yet"
