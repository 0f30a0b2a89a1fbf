"""Looking into the state of a job: its tables, their sizes, the rows of a key, SQL over all of it.

Each step shows its state as tables (`headrace.engine.contents`): "windows" that are open with what they would give now,
"partial_matches" with what they wait for, "pending" rows that wait for the watermark, and so on. Every table has the
column `key_group` beside its own. Nothing here changes state.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.contents import instants, state_tables, together
from headrace.engine.group import OWN, saved_clock
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.engine.operator import Operator
    from headrace.savepoints.state import Snapshot
    from headrace.stream.stages import Pipeline, Stage

KEY_GROUP = "key_group"
_SIZES: dict[str, Any] = {
    "step": pl.String,
    KEY_GROUP: pl.Int64,
    "bytes": pl.Int64,
    "segments": pl.Int64,
    "rows": pl.Int64,
    "watermark": pl.Int64,
}
_TABLES = pl.Schema({"step": pl.String, "table": pl.String, "rows": pl.Int64, "name": pl.String, "columns": pl.String})


@dataclass(frozen=True)
class StepState:
    """The state of one step.

    Args:
        step: Its name.
        keys: The key columns of each of its inputs; none where the job no longer has the step.
        groups: The segments of each key group.
        operator: What wrote them; None where that is not known.
    """

    step: str
    keys: tuple[tuple[str, ...], ...]
    groups: tuple[Mapping[str, bytes], ...]
    operator: Operator | None = None

    @cached_property
    def tables(self) -> dict[str, pl.DataFrame]:
        """What is kept, by the name of the table; those without rows are left out."""
        found = []
        for group, parts in enumerate(self.groups):
            own = {name.removeprefix(OWN): value for name, value in parts.items() if name.startswith(OWN)}
            number = pl.lit(group, dtype=pl.Int64).alias(KEY_GROUP)
            found.append({name: rows.with_columns(number) for name, rows in state_tables(self._writer, own).items()})
        return together(found)

    @property
    def _writer(self) -> Operator | None:
        """The operator, unless the state was written by another version of the step."""
        clocks = (clock for parts in self.groups if (clock := saved_clock(parts)) is not None)
        shape = next((clock["shape"] for clock in clocks), None)
        return self.operator if self.operator is not None and shape == self.operator.fingerprint() else None

    def keys_in(self, table: pl.DataFrame) -> tuple[str, ...]:
        """Name the key columns that a table has."""
        for keys in self.keys:
            if keys and all(key in table.columns for key in keys):
                return keys
        return ()


class JobState:
    """The state of a job, to look into.

    Args:
        pipeline: The job.
        snapshot: Its state, by step and key group.

    >>> from headrace.inprocess import Runner
    >>> from headrace.stream import Stream
    >>> from headrace.time import bounded
    >>> from headrace.windows import count, tumbling
    >>> doors = Stream.rows("doors", {"door": pl.String}).watermark(bounded("2s"))
    >>> runner = Runner(doors.key_by("door").window(tumbling("10s")).aggregate(n=count()).named("per-door"))
    >>> rows = pl.DataFrame({"door": ["a", "a"], "event_time": [0, 1]}).cast({"event_time": pl.Datetime("us", "UTC")})
    >>> _ = runner.step(rows)
    >>> runner.state().tables("per-door")["windows"].select("door", "n").rows()
    [('a', 2)]
    >>> runner.state().sql("SELECT door, n FROM windows").rows()
    [('a', 2)]
    """

    def __init__(self, pipeline: Pipeline, snapshot: Snapshot) -> None:
        stages = {stage.step: stage for stage in pipeline.stages}
        self._pipeline, self._snapshot = pipeline, snapshot
        self._steps = {step: step_state(step, groups, stages.get(step)) for step, groups in snapshot.items()}

    @property
    def steps(self) -> tuple[str, ...]:
        """The names of the steps."""
        return tuple(self._steps)

    def only(self, step: str) -> JobState:
        """Look at one step alone."""
        self._step(step)
        return JobState(self._pipeline, {step: self._snapshot[step]})

    def tables(self, step: str) -> dict[str, pl.DataFrame]:
        """Give what a step keeps, by the name of the table."""
        return self._step(step).tables

    def sizes(self) -> pl.DataFrame:
        """Tell how much each key group of each step keeps, and how far its time has come."""
        rows = []
        for step, state in self._steps.items():
            counts = _counts(state)
            for group, parts in enumerate(state.groups):
                clock = saved_clock(parts) or {}
                size = sum(len(value) for value in parts.values())
                rows.append((step, group, size, len(parts), counts.get(group, 0), clock.get("watermark")))
        frame = pl.DataFrame(rows, schema=_SIZES, orient="row")
        return frame.with_columns(instants(frame.get_column("watermark")))

    def contents(self) -> pl.DataFrame:
        """List the tables, with the names that they have in SQL."""
        rows = [
            (step, table, frame.height, name, ", ".join(frame.columns))
            for name, (step, table, frame) in self._named().items()
        ]
        return pl.DataFrame(rows, schema=_TABLES, orient="row")

    def largest_keys(self, limit: int = 10) -> pl.DataFrame:
        """Tell which keys have the most rows in a table, with an estimate of their bytes.

        Args:
            limit: How many keys of each table.
        """
        found = []
        for step, table, state, frame in self._all_tables():
            keys = state.keys_in(frame)
            if not keys:
                continue
            each = frame.estimated_size() / max(frame.height, 1)
            counted = frame.group_by(keys).len("rows").sort("rows", *keys, descending=[True, *[False] * len(keys)])
            found.append(
                counted.head(limit).select(
                    pl.lit(step).alias("step"),
                    pl.lit(table).alias("table"),
                    pl.concat_str(
                        [pl.col(key).cast(pl.String).fill_null("null") for key in keys], separator=", "
                    ).alias("key"),
                    pl.col("rows").cast(pl.Int64),
                    (pl.col("rows") * each).round().cast(pl.Int64).alias("bytes"),
                )
            )
        kinds = {"step": pl.String, "table": pl.String, "key": pl.String, "rows": pl.Int64, "bytes": pl.Int64}
        return (
            pl.concat(found).sort("rows", descending=True, maintain_order=True) if found else pl.DataFrame(schema=kinds)
        )

    def of_key(self, *key: Any) -> dict[str, dict[str, pl.DataFrame]]:
        """Give the rows of a key, by step and table; steps with as many key columns as values are looked at.

        Args:
            key: The value of each key column; texts are compared with what other types look like as text.
        """
        found: dict[str, dict[str, pl.DataFrame]] = {}
        for step, table, state, frame in self._all_tables():
            keys = state.keys_in(frame)
            if len(keys) != len(key):
                continue
            rows = frame.filter(is_key(keys, key))
            if rows.height:
                found.setdefault(step, {})[table] = rows
        return found

    def sql(self, query: str) -> pl.DataFrame:
        """Ask in SQL; `sizes` is a table, too, and a table that is the only one of its name goes by it alone.

        Raises:
            StateError: The query cannot be answered.
        """
        tables = {name: frame for name, (_, _, frame) in self._named().items()}
        shared = [table for _, table, _ in self._named().values()]
        short = {table: frame for _, table, frame in self._named().values() if shared.count(table) == 1}
        try:
            return pl.SQLContext({"sizes": self.sizes(), **short, **tables}).execute(query, eager=True)
        except PolarsError as problem:
            raise StateError(
                f"the query over the state cannot be answered: {str(problem).splitlines()[0]}",
                hint=f"The tables are: {', '.join(dict.fromkeys(['sizes', *short, *tables]))}.",
            ) from problem

    def to_dict(self) -> dict[str, Any]:
        """Give sizes, tables and largest keys as values for JSON, without the rows."""
        return {
            "sizes": self.sizes().to_dicts(),
            "tables": self.contents().with_columns(pl.col("columns").str.split(", ")).to_dicts(),
            "largest_keys": self.largest_keys().to_dicts(),
        }

    def _step(self, step: str) -> StepState:
        if step not in self._steps:
            raise StateError(f"there is no state of a step {step!r}", hint=f"The steps are: {', '.join(self._steps)}.")
        return self._steps[step]

    def _all_tables(self) -> Iterator[tuple[str, str, StepState, pl.DataFrame]]:
        for step, state in self._steps.items():
            for table, frame in state.tables.items():
                yield step, table, state, frame

    def _named(self) -> dict[str, tuple[str, str, pl.DataFrame]]:
        """Give the tables by their names in SQL: step and table, without what SQL would have quoted."""
        return {
            re.sub(r"\W+", "_", f"{step}_{table}"): (step, table, frame) for step, table, _, frame in self._all_tables()
        }


def is_key(columns: tuple[str, ...], key: tuple[Any, ...]) -> pl.Expr:
    """Tell which rows have a key; a text matches a value that looks like it, and None matches null."""
    parts = [
        pl.col(column).is_null()
        if value is None
        else pl.col(column).cast(pl.String) == value
        if isinstance(value, str)
        else pl.col(column) == value
        for column, value in zip(columns, key, strict=True)
    ]
    return pl.all_horizontal(parts).fill_null(value=False)


def _counts(state: StepState) -> dict[int, int]:
    numbers = [frame.get_column(KEY_GROUP) for frame in state.tables.values()]
    if not numbers:
        return {}
    return dict(pl.concat(numbers).to_frame().group_by(KEY_GROUP).len().rows())


def step_state(step: str, groups: Sequence[Mapping[str, bytes]], stage: Stage | None) -> StepState:
    """Look at the state of a step.

    Args:
        step: Its name.
        groups: The segments of each key group.
        stage: What it is in the job; None where the job no longer has it.
    """
    if stage is None:
        return StepState(step, (), tuple(groups))
    keys = [each.keys for each in stage.inputs]
    # A join renames the columns that it compares.
    sides = getattr(stage.operator, "columns", None)
    keys += [side.keys for name in ("left", "right") if (side := getattr(sides, name, None)) is not None]
    inside = [tuple(key if not key.startswith("#") else f"_{key[1:]}" for key in each) for each in keys]
    return StepState(step, tuple(dict.fromkeys([*keys, *inside])), tuple(groups), stage.operator)
