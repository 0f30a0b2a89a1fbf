"""Answers to queries of SQL whose tables are all there: the whole query in this process, to the end of its rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.inprocess.runner import Runner
from headrace.streaming_sql.constants import constant_sources
from headrace.streaming_sql.passing import runnable

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from headrace.streaming_sql.catalog import TableEntry
    from headrace.streaming_sql.planning import Planned


@dataclass(frozen=True)
class SqlAnswer:
    """What a query over tables that are all there gives.

    Args:
        rows: The table that it ends with.
        problems: Lines of files that could not be read, by table.
        late: How many rows came too late for a window.
        dismissed: How many rows could not be used.
    """

    rows: pl.DataFrame
    problems: dict[str, dict[int, str]] = field(default_factory=dict)
    late: int = 0
    dismissed: int = 0

    @property
    def notes(self) -> list[str]:
        """Say what was left out."""
        found = [
            f"{table}: {len(lines):,} lines could not be read; line {next(iter(lines))}: {next(iter(lines.values()))}"
            for table, lines in self.problems.items()
        ]
        found += [f"{self.late:,} rows came too late."] if self.late else []
        return found + ([f"{self.dismissed:,} rows could not be used."] if self.dismissed else [])


def answer_in_process(planned: Planned, tables: Iterable[TableEntry]) -> SqlAnswer:
    """Run a query over tables that are all there.

    Args:
        planned: The query.
        tables: The tables that it may read.

    Raises:
        PlanError: One of them never ends.
    """
    runner = Runner(runnable(planned.stream))
    wanted = {entry.source.name for entry in runner.pipeline.entries}
    fed: dict[str, pl.DataFrame] = constant_sources(planned.stream)
    problems: dict[str, dict[int, str]] = {}
    for table in tables:
        if table.bounded is None or table.bounded.source not in wanted:
            continue
        read = table.bounded.read()
        fed[table.bounded.source] = read.frame
        if read.problems:
            problems[table.name] = read.problems
    endless = sorted(wanted - set(fed))
    if endless:
        raise PlanError(
            f"the rows of {', '.join(endless)} never end, so there is no answer that is complete",
            hint="Follow the query, or run it as a job: INSERT INTO.",
        )
    batches = [runner.step(fed), runner.finish()]
    rows = planned.final([batch.results for batch in batches])
    late = sum(batch.late.height for batch in batches if batch.late is not None)
    dismissed = sum(batch.dismissed.height for batch in batches if batch.dismissed is not None)
    return SqlAnswer(rows, problems, late, dismissed)
