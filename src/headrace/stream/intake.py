"""Intake: from the rows of one source partition to the key groups of a stage.

Every runner takes rows in by the same function: absurd timestamps are split off, the watermark strategy looks at the
rest, stateless steps run, the operator folds what it can, and what is left is sorted into key groups.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine import operator
from headrace.engine.frames import stacked
from headrace.engine.group import Seen, Timekeeping
from headrace.engine.keygroups import split_by_group
from headrace.engine.operator import EVENT_TIME
from headrace.stream.steps import apply_steps, fitted
from headrace.time.strategies import Ascending, Bounded, Percentile, perfect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.stream.stages import Edge, Entry, Pipeline, StageInput
    from headrace.time.strategies import WatermarkStrategy

ORIGINAL = operator.ORIGINAL

#: Why a row was dismissed at the door.
ABSURD_TIME = "absurd_time"
NULL_KEY = "null_key"
CLOCK_AHEAD = "clock_ahead"


@dataclass(frozen=True)
class Intake:
    """What some source partitions brought to a stage in one batch.

    Args:
        seen: What the watermark strategy observed in each; goes to every key group.
        rows: Per key group, rows as they are.
        partials: Per key group, what the operator folded.
        dismissed: Rows that cannot be used, with `reason`.
        stage: The number of the stage.
        input: Which of its inputs.
    """

    seen: tuple[Seen, ...]
    rows: dict[int, pl.DataFrame]
    partials: dict[int, pl.DataFrame]
    dismissed: pl.DataFrame | None = None
    stage: int = 0
    input: int = 0


def timekeeping(
    pipeline: Pipeline, partitions: Mapping[str, int] | None = None, stage: int = 0
) -> tuple[Timekeeping, ...]:
    """Tell how the time of all that leads to a stage advances: of its entries, then of the stages before it.

    Args:
        pipeline: What is run.
        stage: The number of the stage.
        partitions: How many partitions each source has, by its name, where that is known.
    """
    known = partitions or {}
    entries = tuple(
        Timekeeping(
            entry.strategy,
            entry.idle_after,
            partition_names(entry.source.name, known.get(entry.source.name, 0)),
            entry.source.name,
            entry.input,
            entry.all_idle,
        )
        for entry in (pipeline.entries[number] for number in pipeline.entries_of(stage))
    )
    edges = tuple(
        Timekeeping(perfect(), name=f"step {pipeline.stages[edge.source].step}", input=edge.input)
        for edge in pipeline.edges_to(stage)
    )
    return entries + edges


def feed_of_edge(pipeline: Pipeline, edge: Edge) -> int:
    """Tell the place of an edge in what `timekeeping` tells of the stage that it leads to."""
    return len(pipeline.entries_of(edge.target)) + pipeline.edges_to(edge.target).index(edge)


def partition_names(source: str, count: int) -> tuple[str, ...]:
    """Name the partitions of a source.

    >>> partition_names("input.vehicle-position", 2)
    ('input.vehicle-position/0', 'input.vehicle-position/1')
    """
    return tuple(f"{source}/{number}" for number in range(count))


@dataclass(frozen=True)
class Timed:
    """Rows of some source partitions after the watermark strategy has looked at them.

    Args:
        rows: Those of all partitions, without the absurd ones.
        observations: What was seen, by partition.
        absurd: Rows whose time is absurd, with `reason`.
    """

    rows: pl.DataFrame
    observations: dict[str, dict[str, Any]]
    absurd: list[pl.DataFrame]


@dataclass(frozen=True)
class Parts:
    """Rows of some source partitions, for any number of jobs that take them in.

    Jobs that tell time alike share what is found out about it.

    Args:
        rows: The rows by the name of their partition, in the order of the source.
        now: Processing time, for rows without an ingestion time.
    """

    rows: Mapping[str, pl.DataFrame]
    now: int | None = None
    _known: dict[WatermarkStrategy, Timed] = field(default_factory=dict, repr=False, compare=False)

    def timed(self, entry: Entry) -> Timed:
        """Let an entry's watermark strategy look at the rows."""
        alike = _alike(entry)
        if alike is None:
            return self._timed(entry)
        if alike not in self._known:
            self._known[alike] = self._timed(entry)
        return self._known[alike]

    def _timed(self, entry: Entry) -> Timed:
        timed: list[pl.DataFrame] = []
        observations: dict[str, dict[str, Any]] = {}
        refused: list[pl.DataFrame] = []
        for partition, part in self.rows.items():
            rows, observations[partition], absurd = _timed(entry, part, self.now)
            timed.append(rows)
            refused += [] if absurd is None else [absurd]
        # Only time differs by partition: the rest is done for all at once, which counts when batches are small.
        return Timed(timed[0] if len(timed) == 1 else pl.concat(timed, rechunk=True), observations, refused)


def _alike(entry: Entry) -> WatermarkStrategy | None:
    """Give what entries have in common that tell time alike; None for one that cannot be compared."""
    return (
        entry.strategy if isinstance(entry.strategy, Ascending | Bounded | Percentile) and not entry.untimed else None
    )


def take_in(
    pipeline: Pipeline, number: int, parts: Parts, *, groups: int, watermarks: Mapping[str, int] | None
) -> Intake:
    """Take in rows of some source partitions.

    Args:
        pipeline: What is run.
        number: Which of its entries the rows belong to.
        parts: The rows.
        groups: How many key groups there are.
        watermarks: The watermarks of stages after the batch before, exactly, by step, where they are known.
    """
    entry = pipeline.entries[number]
    stage = pipeline.stages[entry.stage]
    into = stage.inputs[entry.input]
    timed = parts.timed(entry)
    keyed, keyless = split_null_keys(_select(entry, into, timed.rows), () if into.null_keys else into.keys)
    refused = timed.absurd + ([] if keyless is None else [keyless])
    partials = None
    if len(stage.inputs) == 1:
        watermark = (watermarks or {}).get(stage.step)
        # With time by key a row may turn out late that is not behind the watermark.
        light = keyed if getattr(stage.operator, "time_by_key", False) else _lightened(keyed, watermark)
        keyed, partials = stage.operator.prepare(light, watermark)
    feed = pipeline.entries_of(entry.stage).index(number)
    return Intake(
        tuple(Seen(feed, partition, observation) for partition, observation in timed.observations.items()),
        into.spread(keyed, groups),
        split_by_group(partials, into.keys, groups) if partials is not None else {},
        stacked(refused),
        entry.stage,
        entry.input,
    )


def _timed(
    entry: Entry, rows: pl.DataFrame, now: int | None
) -> tuple[pl.DataFrame, dict[str, Any], pl.DataFrame | None]:
    """Let the watermark strategy look at the rows of a partition, and split off those whose time is absurd."""
    strategy = entry.strategy
    rows = apply_steps(entry.steps[: entry.untimed], rows)
    observation = strategy.observe(rows, now)
    dismissed: list[pl.DataFrame] = []
    if observation.get("absurd"):
        rows, absurd = _split_off(rows, rows.select(strategy.absurd(rows, now)).to_series(), ABSURD_TIME)
        dismissed.append(absurd)
    if observation.get("ahead") and strategy.ahead == "dismiss":
        rows, ahead = _split_off(rows, rows.select(strategy.far_ahead()).to_series(), CLOCK_AHEAD)
        dismissed.append(ahead)
    elif observation.get("ahead") and strategy.ahead == "clamp":
        rows = rows.with_columns(strategy.clamped())
    return rows, observation, stacked(dismissed)


def _split_off(rows: pl.DataFrame, wanted: pl.Series, reason: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    return rows.filter(~wanted), rows.filter(wanted).with_columns(pl.lit(reason).alias("reason"))


def split_null_keys(rows: pl.DataFrame, keys: tuple[str, ...]) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Split off rows that have no key, with the reason; None where all have one."""
    if not any(rows.get_column(key).null_count() for key in keys):
        return rows, None
    missing = pl.any_horizontal(pl.col(key).is_null() for key in keys)
    return rows.filter(~missing), rows.filter(missing).with_columns(pl.lit(NULL_KEY).alias("reason"))


def _select(entry: Entry, into: StageInput, rows: pl.DataFrame) -> pl.DataFrame:
    ready = apply_steps(entry.steps[entry.untimed :], rows)
    return fitted(ready, into.schema, steps=entry.steps, beside=(ORIGINAL,))


def _lightened(rows: pl.DataFrame, watermark: int | None) -> pl.DataFrame:
    """Let only rows behind the watermark carry what they were made of: no other can turn out late."""
    if watermark is None or ORIGINAL not in rows.columns:
        return rows
    behind = pl.col(EVENT_TIME).to_physical() < watermark
    return rows.with_columns(pl.when(behind).then(pl.col(ORIGINAL)).alias(ORIGINAL))
