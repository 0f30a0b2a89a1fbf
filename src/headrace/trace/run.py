"""A run that tells what it does for one key.

It is the work of every runner (`headrace.stream.stage_runner`) on one key group, with the rows of each step looked at
before and after. Nothing of it is in the way of a run that is not traced.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine import MemorySegments
from headrace.engine.frames import stacked
from headrace.engine.group import Arrivals, Seen
from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.errors import PlanError
from headrace.savepoints.contents import is_key, step_state
from headrace.stream.intake import ABSURD_TIME, split_null_keys
from headrace.stream.plan import TopicSource
from headrace.stream.stage_runner import StageRunner
from headrace.stream.steps import fitted
from headrace.trace.events import Log, capital
from headrace.trace.look import Look, Standing
from headrace.trace.operators import BY_KEY, told_by, waits_of
from headrace.trace.steps import apply_each
from headrace.trace.story import ALWAYS, Event, Fact

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.formats import Format
    from headrace.savepoints.state import Snapshot
    from headrace.stream.pipeline import Pipeline
    from headrace.stream.stage_runner import StageTurn
    from headrace.stream.stages import Entry
    from headrace.trace.events import Given, Rows
    from headrace.trace.steps import Dropped


class TracedRun:
    """Runs a pipeline over batches, and keeps the facts about a key.

    Args:
        pipeline: What is run.
        key: The values of the key columns.
        partitions: How many partitions each source has, where that is known: one that is silent holds back.
        snapshot: The state to begin with, on one key group.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        key: tuple[Any, ...],
        *,
        partitions: Mapping[str, int] | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.facts: list[Fact] = []
        self._pipeline = pipeline
        self._key = key
        self._log = Log()
        self._segments = [
            MemorySegments(None if snapshot is None or stage.step not in snapshot else snapshot[stage.step][0])
            for stage in pipeline.stages
        ]
        self._runners = [
            StageRunner(pipeline, number, 1, partitions=partitions, report=True)
            for number in range(len(pipeline.stages))
        ]
        self._standing = [Standing() for _ in pipeline.stages]
        self._by_time: list[dict[int, Event]] = [{} for _ in pipeline.stages]
        self._told: set[tuple[str, str, str, int]] = set()
        self._frames: dict[tuple[str, Format | None], tuple[dict[str, pl.DataFrame], list[Fact]]] = {}
        self._batch = 0
        self._now: int | None = None

    def batch(self, given: Given) -> None:
        """Run a batch."""
        if given.number is not None:
            self._batch = given.number
        if given.now is not None:
            self._now = given.now if self._now is None else max(self._now, given.now)
        self._frames.clear()
        arrivals = [Arrivals(now=given.now) for _ in self._pipeline.stages]
        for number, entry in enumerate(self._pipeline.entries):
            self._take_in(number, entry, self._parts(entry, given), arrivals[entry.stage])
        for number, runner in enumerate(self._runners):
            turn = self._turn(number, runner, arrivals[number])
            for onward in turn.onward:
                target = arrivals[onward.edge.target]
                for rows in onward.rows.values():
                    target.add(onward.edge.input, rows)
                target.now = self._now if target.now is None else target.now
                target.seen.append(onward.seen("upstream", turn.departures.watermark))
        self._batch += 1

    def unread(self, given: Given) -> None:
        """Tell of events that have not been read yet."""
        self._frames.clear()
        for entry in self._pipeline.entries:
            frames, _ = self._read(entry, self._parts(entry, given), given.now)
            into = self._pipeline.stages[entry.stage].inputs[entry.input]
            for frame in frames.values():
                rows, _ = apply_each(entry.steps, frame)
                self._tell(
                    Fact("not_read", f"{capital(event.text)} has not been read yet.", event=event, span=_at(event))
                    for event, _ in self._mine(rows, into.keys)
                )

    def end(self) -> None:
        """Tell what has not fired yet, and what it waits for."""
        for number, stage in enumerate(self._pipeline.stages):
            tables = self._kept(number)
            if any(table.height for table in tables.values()):
                self.facts += waits_of(stage, tables, self._standing[number])

    def _parts(self, entry: Entry, given: Given) -> Mapping[str, Rows]:
        """Give what a batch brings to an entry, by partition."""
        rows, name = given.rows, entry.source.name
        if rows is None:
            return {}
        names = list(dict.fromkeys(each.source.name for each in self._pipeline.entries))
        if not isinstance(rows, dict):
            if len(names) > 1:
                raise PlanError(f"rows for which source? There are {', '.join(names)}", hint="Give a mapping by name.")
            return {"0": rows}  # type: ignore[dict-item]
        unknown = [each for each in rows if each not in names]
        if unknown:
            raise PlanError(f"there is no source {unknown[0]!r}", hint=f"The sources are: {', '.join(names)}.")
        parts = rows.get(name, {})
        return parts if isinstance(parts, dict) else {"0": parts}

    def _words(self) -> list[str]:
        return [str(value) for value in self._key if value is not None]

    def _take_in(self, number: int, entry: Entry, parts: Mapping[str, Rows], arrivals: Arrivals) -> None:
        stage = self._pipeline.stages[entry.stage]
        into = stage.inputs[entry.input]
        frames, letters = self._read(entry, parts, self._now)
        self._tell([replace(letter, batch=self._batch) for letter in letters])
        feed = self._pipeline.entries_of(entry.stage).index(number)
        for partition, frame in frames.items():
            untimed, dropped = apply_each(entry.steps[: entry.untimed], frame)
            observation = entry.strategy.observe(untimed, self._now)
            arrivals.seen.append(Seen(feed, partition, observation))
            if observation.get("absurd"):
                absurd = untimed.select(entry.strategy.absurd(untimed, self._now)).to_series()
                self._tell_absurd(entry, untimed.filter(absurd))
                untimed = untimed.filter(~absurd)
            ready, more = apply_each(entry.steps[entry.untimed :], untimed)
            self._tell_dropped([*dropped, *more], into.keys)
            rows = fitted(ready, into.schema, steps=entry.steps, beside=(ORIGINAL,))
            keyed, keyless = split_null_keys(rows, () if into.null_keys else into.keys)
            if keyless is not None:
                self._tell_keyless(keyless, into.keys)
            self._tell(
                Fact("read", f"{capital(event.text)} was read.", batch=self._batch, event=event, span=_at(event))
                for event, _ in self._mine(keyed, into.keys)
            )
            arrivals.add(entry.input, keyed)

    def _turn(self, number: int, runner: StageRunner, arrivals: Arrivals) -> StageTurn:
        stage = self._pipeline.stages[number]
        came = [
            self._of_key(rows, each.keys)
            for place, each in enumerate(stage.inputs)
            for rows in (arrivals.rows if place == 0 else arrivals.others.get(place, []))
        ]
        mine = stacked([rows for rows in came if rows is not None and rows.height])
        if self._is_alone(number):
            arrivals.rows = [] if mine is None else [mine]
        if mine is not None and ORIGINAL in mine.columns:
            for time, each in mine.select(pl.col(EVENT_TIME).to_physical(), ORIGINAL).rows():
                if each is not None and time is not None:
                    self._by_time[number][time] = self._log.event(each)
        before = self._kept(number) if mine is not None else {}
        content = dict(self._segments[number].content)
        turn = runner.turn(self._segments[number], arrivals)
        standing = Standing(turn.departures.reached, turn.departures.partitions, turn.departures.now)
        look = Look(
            stage=stage,
            key=self._key,
            batch=self._batch,
            rows=mine,
            before=before,
            after=self._kept(number) if mine is not None else {},
            content=content,
            outcome=turn.departures.outcome,
            was=self._standing[number],
            stands=standing,
            events=self._log.events,
            by_time=self._by_time[number],
        )
        self._tell(told_by(look))
        self._standing[number] = standing
        self._tell_results(number, look)
        return turn

    def _is_alone(self, number: int) -> bool:
        """Whether rows of other keys make no difference to what a stage gives for the key, nor to what follows it."""
        stage = self._pipeline.stages[number]
        behind = [self._pipeline.stages[edge.target].inputs[edge.input] for edge in self._pipeline.edges_from(number)]
        return (
            isinstance(stage.operator, BY_KEY)
            and len(stage.keys) == len(self._key)
            and all(each.keys == stage.keys for each in behind)
            and not any(output.fold is not None for output in self._pipeline.outputs_of(number))
        )

    def _tell_results(self, number: int, look: Look) -> None:
        """Tell of results that the steps behind a stage dropped."""
        given = look.results()
        if given is None:
            return
        numbered = given.with_columns(
            pl.int_range(pl.len()).cast(pl.String).cast(pl.Binary).alias(ORIGINAL)  # so that each can be followed
        )
        ways = [each.steps for each in self._pipeline.edges_from(number)]
        ways += [each.steps for each in self._pipeline.outputs_of(number)]
        for steps in ways:
            _, dropped = apply_each(steps, numbered)
            for each in dropped:
                for row in each.rows.drop(ORIGINAL).to_dicts():
                    text = f"The result {look.shown(row)} was dropped by `{each.step.text}`."
                    span = look.span(row)
                    self._tell([Fact("filtered", text, step=look.stage.step, batch=self._batch, span=span)])

    def _kept(self, number: int) -> dict[str, pl.DataFrame]:
        """Give what a stage keeps of the key, by table."""
        stage = self._pipeline.stages[number]
        state = step_state(stage.step, [self._segments[number].content], stage)
        found = {}
        for name, table in state.tables.items():
            keys = state.keys_in(table)
            if len(keys) == len(self._key):
                found[name] = table.filter(is_key(keys, self._key))
        return found

    def _of_key(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> pl.DataFrame | None:
        if len(keys) != len(self._key) or any(key not in rows.columns for key in keys):
            return None
        return rows.filter(is_key(keys, self._key))

    def _mine(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> Iterator[tuple[Event, dict[str, Any]]]:
        mine = self._of_key(rows, keys)
        if mine is not None and ORIGINAL in mine.columns:
            for row in mine.to_dicts():
                yield self._log.event(row.pop(ORIGINAL)), row

    def _tell(self, facts: Sequence[Fact] | Iterator[Fact]) -> None:
        """Keep facts, each once: a source that is read at two places of a plan tells the same twice."""
        for fact in facts:
            told = (fact.kind, fact.text, fact.step, fact.batch)
            if told not in self._told:
                self._told.add(told)
                self.facts.append(fact)

    def _read(
        self, entry: Entry, parts: Mapping[str, Rows], now: int | None
    ) -> tuple[dict[str, pl.DataFrame], list[Fact]]:
        """Read what a batch brings to an entry; a source that is read at two places gives the same events."""
        source = entry.source
        place = (source.name, source.format if isinstance(source, TopicSource) else None)
        if place not in self._frames:
            self._frames[place] = self._log.frames(source, parts, now, self._words())
        return self._frames[place]

    def _tell_dropped(self, dropped: Sequence[Dropped], keys: tuple[str, ...]) -> None:
        for each in dropped:
            rows = each.with_keys(keys)
            if rows is None:
                continue
            values = each.rows.drop(ORIGINAL)
            places = {number: place for place, number in enumerate(each.rows.get_column(ORIGINAL))}
            mine = self._of_key(rows, keys)
            for number in [] if mine is None else mine.get_column(ORIGINAL):
                event, row = self._log.event(number), values.row(places[number], named=True)
                read = each.step.reads
                shown = ", ".join(f"{name} = {row[name]}" for name in sorted(read or ()) if name in row)
                text = f"{capital(event.text)} was dropped by `{each.step.text}`" + (f": {shown}." if shown else ".")
                data = {"step": each.step.text, **({name: row[name] for name in sorted(read or ()) if name in row})}
                self._tell([Fact("filtered", text, batch=self._batch, event=event, data=data, span=_at(event))])

    def _tell_absurd(self, entry: Entry, rows: pl.DataFrame) -> None:
        keys = self._pipeline.stages[entry.stage].inputs[entry.input].keys
        after, _ = apply_each(entry.steps[entry.untimed :], rows)
        for event, _row in self._mine(after, keys):
            text = f"{capital(event.text)} has an absurd time: it is too far past the time of its arrival."
            self._tell(
                [
                    Fact(
                        "absurd_time",
                        text,
                        batch=self._batch,
                        event=event,
                        data={"reason": ABSURD_TIME},
                        span=_at(event),
                    )
                ]
            )

    def _tell_keyless(self, rows: pl.DataFrame, keys: tuple[str, ...]) -> None:
        """Tell of events without a key; they may have been meant for this one."""
        for row in rows.to_dicts():
            event = self._log.event(row.pop(ORIGINAL))
            empty = [key for key in keys if row[key] is None]
            rest = [
                wanted
                for key, wanted in zip(keys, self._key, strict=False)
                if row[key] is not None and wanted is not None and str(row[key]) != str(wanted)
            ]
            if len(keys) == len(self._key) and not rest:
                text = f"{capital(event.text)} has no key ({', '.join(empty)} is null) and was dismissed."
                self._tell(
                    [Fact("null_key", text, batch=self._batch, event=event, data={"null": empty}, span=_at(event))]
                )


def _at(event: Event) -> tuple[int, int]:
    return ALWAYS if event.time is None else (event.time, event.time)
