"""OVER: each row with aggregates of the rows of its key before it, in the order of event time or of arrival.

In event-time order a row waits until the watermark has passed it: then no row can come between it and those before.
Rows of one time keep their order of arrival. Of each key the operator keeps what rows to come can need: the last rows
that frames and neighbours reach back to, and for a frame without bound what the aggregates have come to. A row for
which a later one is asked (`lead`) waits until that one is there, or until event time has come to its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, Outcome
from headrace.engine.resplit import resplit_frames
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.tables.frames import Edge, Neighbour, Numbered
from headrace.tables.framing import Spans, cumulated, folded
from headrace.tables.held import Held, resplit_held
from headrace.time.instants import END, INSTANT
from headrace.windows.aggregates import Aggregate
from headrace.windows.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn
    from headrace.tables.frames import Frame, OverFunction

_WAITING = "waiting"
_ONE = "#one"
_TIME, _PLACE, _RANK, _DENSE, _FRESH, _DONE = "#time", "#place", "#rank", "#dense", "#fresh", "#done"
_COUNTERS = {_TIME: pl.Int64(), _PLACE: pl.Int64(), _RANK: pl.Int64(), _DENSE: pl.Int64(), _DONE: pl.Boolean()}


@dataclass(frozen=True)
class OverOperator:
    """Adds what a frame of the rows before it says to each row.

    Args:
        keys: The columns to partition by; none for one partition of all rows.
        columns: The columns of a row, the event time among them.
        frame: Which rows count.
        functions: The new columns.
        arrival: Whether rows are in the order of arrival, and not of event time.

    >>> from headrace.engine import MemorySegments, Turn
    >>> from headrace.tables.frames import Frame
    >>> from headrace.windows import sum
    >>> operator = OverOperator(("k",), ("k", "v", "event_time"), Frame("rows", 1), (("two", sum("v")),))
    >>> rows = pl.DataFrame({"k": ["a", "a", "a"], "v": [3, 1, 2], "event_time": [3, 1, 2]})
    >>> turn = Turn(rows.cast({"event_time": INSTANT}), watermark=9, now=0)
    >>> operator.turn(MemorySegments(), turn).rows.select("v", "two").rows()
    [(1, 1), (2, 3), (3, 5)]
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    frame: Frame
    functions: tuple[tuple[str, OverFunction], ...]
    arrival: bool = False

    @cached_property
    def _own_keys(self) -> tuple[str, ...]:
        return self.keys or (_ONE,)

    @cached_property
    def _fold(self) -> Fold:
        return Fold((_PLACE,), tuple((name, each) for name, each in self.functions if isinstance(each, Aggregate)))

    @cached_property
    def _ahead(self) -> int:
        """How many later rows a row waits for."""
        return max([-each.places for _, each in self.functions if isinstance(each, Neighbour)] + [0])

    @cached_property
    def _behind(self) -> int:
        """How many earlier rows a row needs, beside those of a frame of time."""
        reach = [each.places for _, each in self.functions if isinstance(each, Neighbour)]
        return max([*reach, self.frame.preceding or 0 if self.frame.unit == "rows" else 0, 1])

    @cached_property
    def _counts(self) -> bool:
        """Whether the last row of a key is needed for ever: its number, or what aggregates have come to."""
        reaching = any(isinstance(each, Numbered | Neighbour) for _, each in self.functions)
        return reaching or self.frame.preceding is None or self.frame.unit == "rows"

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: their order is known only there."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of a row, and the new ones."""
        own = pl.Schema({name: rows[name] for name in self.columns})
        empty = self._counted(own.to_frame(), None, 0)
        return pl.Schema({**own, **{name: empty.schema[name] for name, _ in self.functions}})

    def fingerprint(self) -> dict[str, str]:
        """Name the partitions, the order, and what is computed."""
        return {
            "operator": "over",
            "keys": ",".join(self.keys),
            "order": "arrival" if self.arrival else "event time",
            "frame": self.frame.describe(),
            **{f"function {name}": each.describe() for name, each in self.functions},
        }

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Let the rows go on that the watermark has passed and that wait for no later one."""
        held = Held.of(state, self._own_keys)
        rows, late, timeless = self._judged(turn)
        if not self.arrival:
            saved = state.get(_WAITING)
            rows = rows if saved is None else pl.concat([frame_from_bytes(saved), rows])
            ready = rows.get_column(EVENT_TIME).to_physical() < turn.watermark
            waits = rows.filter(~ready)
            rows = rows.filter(ready)
            if waits.height:
                state.put(_WAITING, frame_to_bytes(waits))
            elif saved is not None:
                state.delete(_WAITING)
        found = None
        ended = turn.watermark >= END
        if rows.height or held.is_due(turn.watermark) or (ended and self._ahead):
            found = self._pass(held, rows, turn, ended=ended)
            held.save()
        return Outcome(rows=found, late=late, dismissed=timeless, keys=held.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the kept rows, and those that wait, over other key groups."""
        for held in resplit_held(old, new, self._own_keys, self.keys):
            held.save()
        saved = [state.get(_WAITING) for state in old]
        frames = [None if value is None else frame_from_bytes(value) for value in saved]
        for state, waiting in zip(new, resplit_frames(frames, self.keys, len(new)), strict=True):
            if waiting is not None:
                state.put(_WAITING, frame_to_bytes(waiting))

    def _judged(self, turn: Turn) -> tuple[pl.DataFrame, pl.DataFrame | None, pl.DataFrame | None]:
        """Split rows into those in time, those behind the watermark, and those without a time."""
        rows = turn.rows
        if self.arrival:
            return rows.select(self.columns), None, None
        time = pl.col(EVENT_TIME).to_physical()
        timeless = rows.filter(time.is_null()).with_columns(pl.lit("event_time is null").alias("reason"))
        mark = pl.lit(turn.watermark_before, dtype=pl.Int64)
        late = rows.filter(time < mark).with_columns(
            (mark - time).cast(pl.Duration("us")).alias("lateness"), mark.cast(INSTANT).alias("watermark")
        )
        fresh = rows.filter(time >= mark).select(self.columns)
        return fresh, late if late.height else None, timeless if timeless.height else None

    def _pass(self, held: Held, rows: pl.DataFrame, turn: Turn, *, ended: bool) -> pl.DataFrame | None:
        keyed = rows if self.keys else rows.with_columns(pl.lit(0, dtype=pl.Int8).alias(_ONE))
        taken = held.take_all() if ended and self._ahead else held.take(keyed, watermark=turn.watermark)
        counted = self._counted(rows, taken, turn.now)
        beyond = pl.col(_PLACE) + self._ahead <= pl.col(_PLACE).max().over(self._own_keys)
        done = ~pl.col(_DONE) & (pl.lit(value=True) if ended else beyond)
        found = counted.filter(done).select(*self.columns, *(name for name, _ in self.functions))
        self._keep(held, counted.with_columns((pl.col(_DONE) | done).alias(_DONE)), turn.watermark)
        return found if found.height else None

    def _counted(self, rows: pl.DataFrame, taken: pl.DataFrame | None, now: int) -> pl.DataFrame:
        """Put fresh rows after those that are kept, and compute their columns; those of kept rows stay."""
        keys = list(self._own_keys)
        time = pl.lit(now, dtype=pl.Int64) if self.arrival else pl.col(EVENT_TIME).to_physical()
        fresh = rows.with_columns(
            *([] if self.keys else [pl.lit(0, dtype=pl.Int8).alias(_ONE)]),
            time.alias(_TIME),
            pl.lit(value=True).alias(_FRESH),
            pl.lit(value=False).alias(_DONE),
        )
        if taken is not None:
            fresh = pl.concat([taken.with_columns(pl.lit(value=False).alias(_FRESH)), fresh], how="diagonal")
        # Kept rows come first in their key: they are older, and a stable sort keeps their order.
        order = [pl.struct(keys), pl.col(_FRESH), *([] if self.arrival else [pl.col(_TIME)])]
        both = fresh.with_row_index("#arrived").sort(*order, "#arrived").drop("#arrived")
        both = self._numbered(both)
        return self._functions(both)

    def _numbered(self, both: pl.DataFrame) -> pl.DataFrame:
        keys = list(self._own_keys)
        if _PLACE not in both.columns:
            both = both.with_columns(pl.lit(None, pl.Int64).alias(name) for name in (_PLACE, _RANK, _DENSE))
        known = pl.col(_PLACE).max().over(keys).fill_null(0)
        nth = pl.col(_FRESH).cum_sum().over(keys).cast(pl.Int64)
        place = pl.coalesce(_PLACE, known + nth)
        # In order of arrival every row stands for itself.
        alike = pl.lit(value=False) if self.arrival else pl.col(_TIME) == pl.col(_TIME).shift().over(keys)
        begins = pl.col(_FRESH) & ~alike.fill_null(value=False)
        dense = pl.col(_DENSE).max().over(keys).fill_null(0)
        both = both.with_columns(place.alias(_PLACE), begins.alias("#begins"), dense.alias("#before"))
        rank = pl.when("#begins").then(_PLACE).when(~pl.col(_FRESH)).then(_RANK)
        stepped = pl.coalesce(_DENSE, pl.col("#before") + pl.col("#begins").cum_sum().over(keys).cast(pl.Int64))
        return both.with_columns(rank.forward_fill().alias(_RANK), stepped.alias(_DENSE)).drop("#begins", "#before")

    def _functions(self, both: pl.DataFrame) -> pl.DataFrame:
        """Compute the new columns of fresh rows; those that look ahead also of rows that wait."""
        keys = list(self._own_keys)
        spans = Spans.of(both, keys, self.frame, fresh=_FRESH, time=_TIME, peers=not self.arrival)
        columns: dict[str, pl.Series] = {}
        if self._fold.aggregates:
            if self.frame.preceding is None:
                both, values = cumulated(both, self._fold, spans)
            else:
                values = folded(both, self._fold, spans)
            columns |= {name: values.get_column(name) for name, _ in self._fold.aggregates}
        fresh = both.get_column(_FRESH).to_numpy()
        for name, each in self.functions:
            if isinstance(each, Numbered):
                source = {"row_number": _PLACE, "rank": _RANK, "dense_rank": _DENSE}[each.numbering]
                columns[name] = both.get_column(source)
            elif isinstance(each, Edge):
                columns[name] = self._edge(both, name, each, spans)
            elif isinstance(each, Neighbour):
                told = pl.col("#of").shift(each.places).over(keys)
                if each.default is not None:
                    there = pl.int_range(pl.len()).shift(each.places).over(keys).is_not_null()
                    told = pl.when(there).then(told).otherwise(pl.lit(each.default))
                value = both.with_columns(each.of.alias("#of")).select(told.alias(name)).to_series()
                if each.places < 0:  # what later rows say is known better now
                    columns[name] = value
                    continue
                columns[name] = value
            if name in both.columns and not fresh.all():
                columns[name] = columns[name].zip_with(both.get_column(_FRESH), both.get_column(name))
        return both.with_columns(series.alias(name) for name, series in columns.items())

    def _edge(self, both: pl.DataFrame, name: str, each: Edge, spans: Spans) -> pl.Series:
        values = both.select(each.of.alias(name)).to_series()
        if each.last:
            return values[spans.ends]
        if self.frame.preceding is not None:
            return values[spans.starts]
        # Of a frame without bound the first value is handed on from row to row.
        first = f"#first.{name}"
        if first not in both.columns:
            return values[spans.firsts]
        kept = both.get_column(first)[spans.firsts]
        known = ~both.get_column(_FRESH)[spans.firsts]
        return kept.zip_with(known, values[spans.firsts])

    def _keep(self, held: Held, rows: pl.DataFrame, watermark: int) -> None:
        """Keep what rows to come can need."""
        keys = list(self._own_keys)
        back = pl.col(_PLACE).max().over(keys) - pl.col(_PLACE)
        needed = ~pl.col(_DONE)
        if self._counts:
            needed |= back < self._behind + self._ahead
        over = None
        if self.frame.unit == "range" and self.frame.preceding is not None:
            now = pl.col(_TIME).max().over(keys) if self.arrival else pl.lit(watermark, dtype=pl.Int64)
            needed |= pl.col(_TIME) + self.frame.preceding >= now
            if not self._counts and not self._ahead and not self.arrival:
                over = pl.col(_TIME) + self.frame.preceding + 1
        for name, each in self.functions:
            if isinstance(each, Edge) and not each.last and self.frame.preceding is None:
                rows = rows.with_columns(pl.col(name).alias(f"#first.{name}"))
        kept = rows.filter(needed)
        names = [*dict.fromkeys([*self.columns, *self._own_keys]), *_COUNTERS]
        beside = [name for name in kept.columns if name not in names and name != _FRESH]
        kept = kept.select(*names, *beside)
        held.put(kept, None if over is None else kept.select(over).to_series())
