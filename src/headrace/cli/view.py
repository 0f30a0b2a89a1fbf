"""Drawing a `Snapshot`: a screen for a terminal, a line for a log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from headrace.cli.gauges import Snapshot

_BAR = 24
HOW_TO_LOOK = "Look at what is refused: headrace tail input.dead-letter"
#: Seconds of the years 2000 to 2100 that are read as milliseconds are before this, and so are milliseconds read as
#: microseconds and microseconds read as nanoseconds.
_WRONG_UNIT_BEFORE = datetime(1970, 2, 18, tzinfo=UTC)
_STATES = {
    "starting": "yellow",
    "warming": "yellow",
    "running": "green",
    "restarting": "bold yellow",
    "stopping": "yellow",
    "failed": "bold red",
}


def seconds(value: float | None) -> str:
    """A latency for people.

    >>> seconds(0.734), seconds(12.34), seconds(None)
    ('0.73 s', '12.3 s', '-')
    """
    if value is None:
        return "-"
    return f"{value:.2f} s" if abs(value) < 10 else f"{value:.1f} s"


def count(value: float) -> str:
    """A number with separators.

    >>> count(1234567)
    '1,234,567'
    """
    return f"{value:,.0f}"


def centre(cell: str) -> str:
    """Coordinates of the middle of a map cell; nothing for a key that is no cell.

    >>> centre("891126d3117ffff")
    '60.1873, 24.9223'
    >>> centre("no cell")
    ''
    """
    import h3

    if not h3.is_valid_cell(cell):
        return ""
    latitude, longitude = h3.cell_to_latlng(cell)
    return f"{latitude:.4f}, {longitude:.4f}"


def unit_warning(shown: Snapshot) -> str:
    """Say that event time is at the start of 1970, as it is when seconds are read as milliseconds; empty if it is not.

    The records are read without an error then, and the line shows nothing else that is wrong.
    """
    watermark = shown.watermark
    if watermark is None or not datetime(1970, 1, 1, tzinfo=UTC) <= watermark < _WRONG_UNIT_BEFORE:
        return ""
    return (
        f"Event time is {watermark:%Y-%m-%d}: are times counted in another unit than time_format says? "
        "headrace schema infer TOPIC shows the unit."
    )


def status_line(shown: Snapshot, *, results: bool = True, places: bool = True) -> str:
    """Everything in one line.

    Args:
        shown: The figures.
        results: Whether somebody reads the results, too, so that latency and busiest cells are known.
        places: Whether the keys of the results are map cells.
    """
    if shown.batch is None:
        return f"{shown.state}: {shown.detail}" if shown.detail else shown.state
    watermark = "-" if shown.watermark is None else f"{shown.watermark:%H:%M:%S}"
    parts = [
        f"in {count(shown.events_per_second)}/s",
        f"out {count(shown.results_per_second)}/s",
        f"watermark {watermark} UTC ({seconds(shown.watermark_lag)} behind)",
        f"batch {shown.batch_ms or 0} ms",
        f"backlog {count(shown.backlog)}",
        f"dead letters {count(shown.dead_letters)}",
        f"late {count(shown.late)}",
    ]
    if results:
        busiest = ", ".join(f"{key} {figure}" for key, figure in shown.busiest[:3]) or "-"
        parts.insert(3, f"latency p50 {seconds(shown.latency_p50)} p99 {seconds(shown.latency_p99)}")
        parts.append(f"{'busiest' if places else 'largest'} {busiest}")
    warning = unit_warning(shown)
    line = f"{shown.state}: {', '.join(parts)}" + (f" | {warning}" if warning else "")
    return f"MOST INPUT IS REFUSED. {shown.alarm} | {line}" if shown.alarm else line


def screen(
    shown: Snapshot, *, job: str, footer: Sequence[str], warning: str = "", link: str = "", places: bool = True
) -> RenderableType:
    """The live view.

    Args:
        shown: The figures.
        job: What runs.
        footer: Lines below: how to stop, where things are, what to try next.
        warning: Something that the user should know.
        link: Where the live map is, if it is there.
        places: Whether the keys of the results are map cells.
    """
    parts: list[RenderableType] = [
        Panel(_figures(shown), title=_title(shown, job), title_align="left", border_style="dim"),
        Panel(
            _cells(shown, places=places),
            title=_cells_title(shown, places=places),
            title_align="left",
            border_style="dim",
        ),
    ]
    if shown.alarm:
        # In front of everything: the other figures look fine.
        told = Text.assemble((shown.alarm, "bold"), f"\n{HOW_TO_LOOK}")
        parts.insert(0, Panel(told, title="MOST INPUT IS REFUSED", title_align="left", border_style="bold red"))
    parts += [Text(text, style="yellow") for text in (unit_warning(shown), warning) if text]
    parts += [Text(text, style="dim") for text in footer]
    if link:
        parts.append(Text.assemble(("Open ", "bold"), (link, f"bold link {link}")))
    return Group(*parts)


def _title(shown: Snapshot, job: str) -> Text:
    style = _STATES.get(shown.state, "")
    detail = f" ({shown.detail})" if shown.detail and shown.state != "running" else ""
    if shown.alarm and shown.state == "running":
        style, detail = "bold red", ", but most input is refused"
    return Text.assemble((job, "bold"), "  ", (f"{shown.state}{detail}", style))


def _figures(shown: Snapshot) -> Table:
    table = Table.grid(padding=(0, 3, 0, 0), expand=True)
    for column in range(6):
        table.add_column(style="" if column % 2 else "dim", no_wrap=True, justify="left")
    watermark = "-" if shown.watermark is None else f"{shown.watermark:%H:%M:%S} UTC"
    batch = "-" if shown.batch_ms is None else f"{count(shown.batch_ms)} ms"
    cells: list[tuple[str, str | Text]] = [
        ("events in", f"{count(shown.events_per_second)} /s"),
        ("watermark", watermark),
        ("dead letters", _alarm(shown.dead_letters)),
        ("results out", f"{count(shown.results_per_second)} /s"),
        ("its lag", seconds(shown.watermark_lag)),
        ("late events", _alarm(shown.late)),
        ("latency p50", seconds(shown.latency_p50)),
        ("micro-batch", batch),
        ("backlog", count(shown.backlog)),
        ("latency p99", seconds(shown.latency_p99)),
        ("batches", "-" if shown.batch is None else count(shown.batch + 1)),
        ("events so far", count(shown.events)),
    ]
    for start in range(0, len(cells), 3):
        table.add_row(*(part for name, value in cells[start : start + 3] for part in (name, value)))
    return table


def _alarm(number: int) -> Text:
    return Text(count(number), style="yellow" if number else "")


def _cells_title(shown: Snapshot, *, places: bool) -> Text:
    if shown.window_end is None:
        return Text("busiest cells" if places else "largest results")
    if not places:
        return Text(f"largest results, window until {shown.window_end:%H:%M:%S} UTC: {count(shown.cells)} keys")
    return Text(
        f"busiest cells, window until {shown.window_end:%H:%M:%S} UTC: "
        f"{count(shown.total)} in {count(shown.cells)} cells"
    )


def _cells(shown: Snapshot, *, places: bool) -> RenderableType:
    if not shown.busiest and shown.results:
        return Text("results without a window are not shown here; read them from their topic, as below", style="dim")
    if not shown.busiest:
        return Text("waiting for the first window to complete ...", style="dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, min_width=_BAR)
    table.add_column(style="dim", no_wrap=True)
    most = max(figure for _, figure in shown.busiest)
    for key, figure in shown.busiest:
        bar = "█" * max(1, round(_BAR * figure / most)) if figure > 0 else ""
        table.add_row(key, count(figure), Text(bar, style="cyan"), centre(key) if places else "")
    return table


def summary(shown: Snapshot, *, elapsed: float, first_result: float | None, places: bool = True) -> list[str]:
    """What happened, for the end.

    Args:
        shown: The last figures.
        elapsed: Seconds that it ran.
        first_result: Seconds from the start to the first result, if there was one.
        places: Whether the keys of the results are map cells.
    """
    lines = [
        f"Ran {elapsed:.0f} s: {count(shown.events)} events in, {count(shown.results)} results out, "
        f"{count(shown.dead_letters)} dead letters, {count(shown.late)} late."
    ]
    if shown.alarm:
        lines.append(f"Most input was refused at the end. {shown.alarm} {HOW_TO_LOOK}")
    if warning := unit_warning(shown):
        lines.append(warning)
    if first_result is not None:
        lines.append(
            f"First result after {first_result:.1f} s; latency in the last minute: "
            f"p50 {seconds(shown.latency_p50)}, p99 {seconds(shown.latency_p99)}."
        )
    if shown.busiest and places:
        cell, figure = shown.busiest[0]
        lines.append(f"Busiest cell: {cell} ({centre(cell)}) with {count(figure)}.")
    return lines
