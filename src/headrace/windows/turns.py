"""One turn of the window operator, phase by phase.

The books (see `headrace.windows.ledger`) hold one row per open window and key; every phase takes the rows it concerns
out of them, asks their triggers, gives their panes, and puts back what stays. All of it works on whole frames; only
triggers with a memory of their own are asked one by one.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.keyed_state import hashes_of
from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
    Outcome,
)
from headrace.windows.firing import AfterWatermark, Moment, Repeatedly
from headrace.windows.intake import counted_numbers, without_numbers
from headrace.windows.ledger import (
    CLOSED,
    EARLIEST,
    EVENT_TIMER,
    INDEX,
    LATEST,
    META,
    NEW,
    OWNER_END,
    OWNER_START,
    ROWS,
    TIMER,
    TRIGGER,
    Ledger,
    bucket_numbers,
)
from headrace.windows.sessions import merged_windows

if TYPE_CHECKING:
    from headrace.engine import Turn
    from headrace.windows.operator import WindowOperator

BOUNDS = [WINDOW_START, WINDOW_END]
_FIRE, _FINISH, _EMIT, _TIMING, _LAST, _GONE = "#fire", "#finish", "#emit", "#timing", "#last", "#gone"


class WindowTurn:
    """One turn of a window operator, under way; see `headrace.windows.operator` for the phases."""

    def __init__(self, operator: WindowOperator, ledger: Ledger, turn: Turn) -> None:
        self.operator = operator
        self.intake = operator.intake
        self.ledger = ledger
        self.turn = turn
        self.watermark = ledger.watermark
        self.by = [*operator.keys, *BOUNDS]
        self.read: set[int] = set()
        self.books: pl.DataFrame | None = None
        self.shown: pl.DataFrame | None = None
        self.results: list[pl.DataFrame] = []
        self.late: list[pl.DataFrame] = []
        self.dismissed: list[pl.DataFrame] = []

    # Phase 1: rows

    def take_rows(self) -> None:
        """Place, judge and fold the rows; merge them into the books; let windows that got rows fire."""
        units = self._sorted_units()
        wanted = self.ledger.due(self.turn.watermark, self.turn.now)
        if units is not None or self.turn.partials is not None:
            wanted |= bucket_numbers(self._candidate_ends(units), self.operator.bucket_width)
        self.read = wanted
        hashes = hashes_of([units, self.turn.partials], self.operator.keys)
        self.books, self.shown = self.ledger.read(wanted, hashes, self.turn.watermark, self.turn.now)
        if self.books is not None:
            self.books = self._completed(self.books)
        if units is None and self.turn.partials is None:
            return
        fresh = self._fresh_sessions(units) if self.operator.assigner.merges else self._fresh(units)
        if fresh is None or fresh.is_empty():
            return
        touched = self._merge_in(fresh)
        self._fire_on_rows(touched)

    def _sorted_units(self) -> pl.DataFrame | None:
        rows = self.turn.rows
        if rows.is_empty():
            return None
        found = self.intake.sort_out(rows)
        if found.dismissed is not None:
            self.dismissed.append(found.dismissed)
        return found.rows if found.rows.height else None

    def _candidate_ends(self, units: pl.DataFrame | None) -> pl.Series:
        ends = [pl.Series([], dtype=pl.Int64)]
        for frame in (units, self.turn.partials):
            if frame is not None and frame.height:
                distinct = frame.select(self.intake.unit).unique()
                ends.append(self.intake.windows(distinct).get_column(WINDOW_END))
        everything = pl.concat(ends)
        if self.operator.assigner.merges:
            # A row whose own window has expired may still join one that has not.
            return everything
        return everything.filter(everything + self.operator.lateness > self.ledger.watermark)

    def _fresh(self, units: pl.DataFrame | None) -> pl.DataFrame | None:
        """Fold rows of windows that do not merge; put aside those that are late."""
        intake, kept = self.intake, self.ledger.watermark
        closed = None
        if self.books is not None:
            closed = self.books.filter(pl.col(CLOSED)).select(self.by)
        folded = []
        if units is not None:
            on_time = units.filter(intake.last_end() + self.operator.lateness > kept)
            if closed is not None and closed.height:
                on_time = self._in_open_windows(on_time, closed)
            self._put_aside(units, on_time)
            if on_time.height:
                folded.append(self._folded(on_time, intake.unit))
        if self.turn.partials is not None and self.turn.partials.height:
            folded.append(self.turn.partials)
        if not folded:
            return None
        spread = intake.windows(pl.concat(folded, how="diagonal_relaxed"))
        live = spread.filter(pl.col(WINDOW_END) + self.operator.lateness > kept)
        if closed is not None and closed.height:
            live = live.join(closed, on=self.by, how="anti", nulls_equal=True)
        return live

    def _in_open_windows(self, units: pl.DataFrame, closed: pl.DataFrame) -> pl.DataFrame:
        unit = [*self.operator.keys, *self.intake.unit]
        tagged = units.select(unit).unique().with_row_index("#unit")
        spread = self.intake.windows(tagged).filter(pl.col(WINDOW_END) + self.operator.lateness > self.ledger.watermark)
        open_ = spread.join(closed, on=self.by, how="anti", nulls_equal=True).get_column("#unit").unique()
        alive = tagged.filter(pl.col("#unit").is_in(open_.implode())).drop("#unit")
        return units.join(alive, on=unit, how="semi", nulls_equal=True)

    def _put_aside(self, units: pl.DataFrame, counted: pl.DataFrame) -> None:
        """Keep as late what was placed but does not count anywhere."""
        if counted.height == units.height:
            return
        numbers = counted_numbers(counted)
        if numbers is not None:
            late = without_numbers(units, numbers)
        elif counted.is_empty():
            late = units
        else:
            unit = [*self.operator.keys, *self.intake.unit]
            late = units.join(counted.select(unit).unique(), on=unit, how="anti", nulls_equal=True)
        if late.height:
            self.late.append(self.intake.late(late, self.ledger.watermark))

    def _folded(self, rows: pl.DataFrame, by: list[str]) -> pl.DataFrame:
        dismiss = self.operator.on_error == "dead_letter"
        folded, dismissed = self.intake.fold_or_dismiss(rows, by, self.ledger.watermark, dismiss=dismiss)
        if dismissed is not None:
            self.dismissed.append(dismissed)
        return folded

    def _fresh_sessions(self, units: pl.DataFrame | None) -> pl.DataFrame | None:
        """Merge the windows of rows with those in the books, re-book those, and fold the rows that are not late."""
        if units is None:
            return None
        keys, kept = list(self.operator.keys), self.ledger.watermark
        own = units.select(self.by).unique().with_columns(pl.lit(value=False).alias(CLOSED))
        others = None
        if self.books is not None and keys:
            mine = own.select(keys).unique()
            others = self.books.join(mine, on=keys, how="anti", nulls_equal=True)
            self.books = self.books.join(mine, on=keys, how="semi", nulls_equal=True)
        if self.books is not None:
            own = pl.concat([own, self.books.select(*self.by, CLOSED)])
        mapping = merged_windows(own, keys, touching=self.operator.assigner.touching)
        expired = pl.col("#merged_end") + self.operator.lateness <= kept
        alive = mapping.filter(~expired & ~pl.col(CLOSED)).unique(self.by)
        placed = units.join(alive.drop(CLOSED), on=self.by, how="inner", maintain_order="left", nulls_equal=True)
        self._put_aside(units, placed)
        self._rebook(mapping.filter(~expired))
        if others is not None:
            self._keep(others)
        if placed.is_empty():
            return None
        merged = placed.with_columns(
            pl.col("#merged_start").alias(WINDOW_START), pl.col("#merged_end").alias(WINDOW_END)
        ).drop("#merged_start", "#merged_end")
        return self._folded(merged, BOUNDS)

    def _rebook(self, mapping: pl.DataFrame) -> None:
        """Give windows in the books the bounds of the window they became part of, and make one of those that met."""
        if self.books is None:
            return
        moves = mapping.drop(CLOSED).unique(self.by)
        moved = self.books.join(moves, on=self.by, how="left", maintain_order="left", nulls_equal=True)
        start, end = pl.col("#merged_start"), pl.col("#merged_end")
        changed = ((start != pl.col(WINDOW_START)) | (end != pl.col(WINDOW_END))).fill_null(value=False)
        moved = moved.with_columns(
            # Another window: its panes count from 0.
            pl.when(changed).then(0).otherwise(pl.col(INDEX)).alias(INDEX),
            pl.coalesce(start, WINDOW_START).alias(WINDOW_START),
            pl.coalesce(end, WINDOW_END).alias(WINDOW_END),
        ).drop("#merged_start", "#merged_end")
        self.books = self._united(moved)
        if self.shown is not None:
            owners = moves.rename({WINDOW_START: OWNER_START, WINDOW_END: OWNER_END})
            on = [*self.operator.keys, OWNER_START, OWNER_END]
            self.shown = self.shown.join(owners, on=on, how="left", maintain_order="left", nulls_equal=True)
            self.shown = self.shown.with_columns(
                pl.coalesce("#merged_start", OWNER_START).alias(OWNER_START),
                pl.coalesce("#merged_end", OWNER_END).alias(OWNER_END),
            ).drop("#merged_start", "#merged_end")

    def _united(self, books: pl.DataFrame, extra: list[pl.Expr] | None = None) -> pl.DataFrame:
        """Make one row of the rows of one window."""
        if extra is None and not books.select(self.by).is_duplicated().any():
            return books
        trigger = self._united_triggers(books)
        merged = books.group_by(self.by, maintain_order=True).agg(
            *[expr for name, aggregate in self.intake.aggregates for expr in aggregate.merge(name)],
            pl.col(NEW).sum(),
            pl.col(INDEX).max().fill_null(0),
            pl.col(EARLIEST).min(),
            pl.col(LATEST).max(),
            pl.col(CLOSED).any(),
            pl.col(TRIGGER).drop_nulls().first(),
            pl.col(TIMER).min(),
            pl.col(EVENT_TIMER).min(),
            *(extra or []),
        )
        if trigger is not None:
            merged = merged.join(trigger, on=self.by, how="left", maintain_order="left", nulls_equal=True)
            merged = merged.with_columns(pl.coalesce("#united", TRIGGER).alias(TRIGGER)).drop("#united")
        compact = [expr for name, aggregate in self.intake.aggregates for expr in aggregate.compact(name)]
        return merged.with_columns(compact) if compact else merged

    def _united_triggers(self, books: pl.DataFrame) -> pl.DataFrame | None:
        with_state = books.filter(pl.col(TRIGGER).is_not_null()) if self.operator.assigner.merges else books.head(0)
        if with_state.height:
            with_state = with_state.filter(with_state.select(self.by).is_duplicated())
        if with_state.is_empty():
            return None
        grouped = with_state.group_by(self.by, maintain_order=True).agg(pl.col(TRIGGER).implode())
        united = []
        for end, states in grouped.select(WINDOW_END, TRIGGER).iter_rows():
            at = Moment(end, self.ledger.watermark, self.turn.now)
            united.append(json.dumps(self.operator.trigger.merge([json.loads(state) for state in states], at)))
        return grouped.select(self.by).with_columns(pl.Series("#united", united, dtype=pl.String))

    def _merge_in(self, fresh: pl.DataFrame) -> pl.DataFrame:
        """Merge folded rows with the windows in the books that they belong to; return those, taken out of the books."""
        fresh = self._completed(fresh.with_columns(pl.col(ROWS).alias(NEW)))
        if self.books is None:
            return self._united(fresh, [pl.col(ROWS).sum()])
        old = self.books.join(fresh, on=self.by, how="semi", nulls_equal=True)
        if old.height:
            self.books = self.books.join(fresh, on=self.by, how="anti", nulls_equal=True)
            old = old.with_columns(pl.lit(0, dtype=pl.Int64).alias(ROWS))
            fresh = pl.concat([old, fresh], how="diagonal_relaxed")
        return self._united(fresh, [pl.col(ROWS).sum()])

    def _fire_on_rows(self, touched: pl.DataFrame) -> None:
        asked = self._asked(touched, self.ledger.watermark, rows=True)
        done = pl.col(WINDOW_END) <= self.ledger.watermark
        told = asked.with_columns(
            pl.col(_FIRE).alias(_EMIT),
            pl.when(done).then(pl.lit("late")).otherwise(pl.lit("early")).alias(_TIMING),
            pl.col(_FINISH).alias(_LAST),
            pl.lit(value=False).alias(_GONE),
        ).drop(ROWS)
        self._keep(self._fired(told))

    # Phase 2: the watermark

    def pass_watermark(self) -> None:
        """Let windows fire whose end, or event timer, the watermark passes; give what is left of those that expire."""
        if self.books is None or self.books.is_empty():
            return
        end, lateness = pl.col(WINDOW_END), self.operator.lateness
        crossing = (end > self.ledger.fired) & (end <= self.watermark)
        expiring = end + lateness <= self.watermark
        timed = ((pl.col(EVENT_TIMER) <= self.watermark) & ~pl.col(CLOSED)).fill_null(value=False)
        concerned = self.books.filter(crossing | expiring | timed)
        if concerned.is_empty():
            return
        self.books = self.books.filter(~(crossing | expiring | timed))
        panes = self.operator.panes
        concerned = concerned.with_columns(
            crossing.alias("#crossing"),
            expiring.alias(_GONE),
            timed.alias("#timed"),
            (end <= self.watermark).alias("#done"),
        )
        asked = self._asked(concerned, self.watermark, rows=False)
        wish = pl.col(_FIRE) & (pl.col("#crossing") | pl.col("#timed")) & ~pl.col(CLOSED)
        some = pl.col(NEW) > 0
        on_time = wish if panes.on_time == "always" else wish & (some | pl.col("#timed"))
        left = pl.lit(value=True) if panes.closing == "always" else some
        if panes.on_time == "always":
            # Expiring together with its end, a window gives its pane on time whatever its trigger says.
            left = left | pl.col("#crossing")
        closing = pl.lit(value=False) if panes.closing == "never" else pl.col(_GONE) & ~pl.col(CLOSED) & left
        told = asked.with_columns(
            wish.alias(_FIRE),
            (on_time | closing).alias(_EMIT),
            pl.when(pl.col("#crossing"))
            .then(pl.lit("on_time"))
            .when(pl.col("#done"))
            .then(pl.lit("late"))
            .otherwise(pl.lit("early"))
            .alias(_TIMING),
            ((pl.col(_FINISH) & wish) | pl.col(_GONE)).alias(_LAST),
            (pl.col(_FINISH) & wish).alias(_FINISH),
        ).drop("#crossing", "#timed", "#done")
        self._keep(self._fired(told))

    # Phase 3: processing time

    def pass_clock(self) -> None:
        """Let windows fire whose trigger asked for this processing time."""
        if self.books is None or self.books.is_empty():
            return
        alive = pl.col(WINDOW_END) + self.operator.lateness > self.watermark
        due = ((pl.col(TIMER) <= self.turn.now) & ~pl.col(CLOSED) & alive).fill_null(value=False)
        concerned = self.books.filter(due)
        if concerned.is_empty():
            return
        self.books = self.books.filter(~due)
        asked = self._asked(concerned, self.watermark, rows=False)
        done = pl.col(WINDOW_END) <= self.watermark
        told = asked.with_columns(
            pl.col(_FIRE).alias(_EMIT),
            pl.when(done).then(pl.lit("late")).otherwise(pl.lit("early")).alias(_TIMING),
            pl.col(_FINISH).alias(_LAST),
            pl.lit(value=False).alias(_GONE),
        )
        self._keep(self._fired(told))

    # Firing

    def _asked(self, books: pl.DataFrame, watermark: int, *, rows: bool) -> pl.DataFrame:
        """Ask the trigger of each window whether to fire; add the answers, and keep what the triggers remember."""
        trigger = self.operator.trigger
        complete = pl.col(WINDOW_END) <= watermark
        if trigger == Repeatedly(AfterWatermark()):
            return books.with_columns(complete.alias(_FIRE), pl.lit(value=False).alias(_FINISH))
        if trigger == AfterWatermark():
            return books.with_columns(complete.alias(_FIRE), complete.alias(_FINISH))
        # Many windows stand at the same point: each such point is asked once.
        point = [WINDOW_END, TRIGGER, *([ROWS] if rows else []), *([EARLIEST] if rows and trigger.reads_time() else [])]
        points = books.select(point).unique()
        fires, finishes, states, timers, event_timers = [], [], [], [], []
        for stand in points.iter_rows(named=True):
            kept, count = stand[TRIGGER], stand.get(ROWS, 0)
            at = Moment(stand[WINDOW_END], watermark, self.turn.now, stand.get(EARLIEST))
            state = trigger.start() if kept is None else json.loads(kept)
            if count:
                state = trigger.on_elements(state, count, at)
            fire, finished = trigger.should_fire(state, at), False
            # The answer only counts for a window that is still open, but a closed one has no state to spoil.
            if fire:
                state, finished = trigger.on_fire(state, at)
            fires.append(fire)
            finishes.append(finished)
            states.append(json.dumps(state))
            timers.append(trigger.timer(state))
            event_timers.append(trigger.event_timer(state))
        answers = points.with_columns(
            pl.Series(_FIRE, fires, dtype=pl.Boolean),
            pl.Series(_FINISH, finishes, dtype=pl.Boolean),
            pl.Series("#state", states, dtype=pl.String),
            pl.Series("#next", timers, dtype=pl.Int64),
            pl.Series("#next_event", event_timers, dtype=pl.Int64),
        )
        asked = books.join(answers, on=point, how="left", nulls_equal=True, maintain_order="left")
        answered = {"#state": TRIGGER, "#next": TIMER, "#next_event": EVENT_TIMER}
        return asked.drop(*answered.values()).rename(answered)

    def _fired(self, told: pl.DataFrame) -> pl.DataFrame:
        """Give the panes of the windows that fire; return the windows that stay, as they are after it."""
        emitted = told.filter(pl.col(_EMIT))
        if emitted.height:
            self._show(emitted)
        panes, emit, finish = self.operator.panes, pl.col(_EMIT), pl.col(_FINISH)
        fresh_start = emit if self.operator.assigner.ends else pl.lit(value=False)
        if panes.keep_earliest and self.operator.trigger.fires_on_time():
            fresh_start = fresh_start & (pl.col(_TIMING) != "early")
        emptied = (emit | finish) if panes.mode == "delta" else finish
        stay = told.filter(~pl.col(_GONE))
        if self.shown is not None and stay.height < told.height:
            self._forget_shown(told.filter(pl.col(_GONE) | finish))
        return stay.with_columns(
            (pl.col(INDEX) + emit.cast(pl.Int64)).alias(INDEX),
            pl.when(pl.col(_FIRE) | emit).then(0).otherwise(pl.col(NEW)).alias(NEW),
            pl.when(~fresh_start).then(pl.col(EARLIEST)).alias(EARLIEST),
            pl.when(~fresh_start).then(pl.col(LATEST)).alias(LATEST),
            (pl.col(CLOSED) | finish).alias(CLOSED),
            *[pl.when(~emptied).then(pl.col(part)).alias(part) for part in self.operator.parts],
        ).drop(_FIRE, _FINISH, _EMIT, _TIMING, _LAST, _GONE)

    def _show(self, emitted: pl.DataFrame) -> None:
        last_instant = pl.col(WINDOW_END) - 1
        kind = self.operator.panes.timestamp
        if not self.operator.assigner.ends:
            time = pl.coalesce(LATEST, pl.lit(self.turn.now, dtype=pl.Int64))
        elif kind == "end_of_window":
            time = last_instant
        else:
            time = pl.coalesce(EARLIEST if kind == "earliest" else LATEST, last_instant)
        results = emitted.with_columns(
            *[aggregate.result(name) for name, aggregate in self.intake.aggregates],
            time.alias(EVENT_TIME),
            pl.col(INDEX).alias(PANE_INDEX),
            pl.col(_TIMING).alias(PANE_TIMING),
            pl.col(_LAST).alias(PANE_IS_LAST),
        )
        panes = self.operator.public(results)
        if self.operator.panes.mode == "value_and_retraction":
            self._take_back(emitted)
            owners = results.select(pl.col(WINDOW_START).alias(OWNER_START), pl.col(WINDOW_END).alias(OWNER_END))
            own = panes.with_columns(owners)
            self.shown = own if self.shown is None else pl.concat([self.shown, own], how="diagonal_relaxed")
        self.results.append(panes)

    def _take_back(self, emitted: pl.DataFrame) -> None:
        if self.shown is None:
            return
        on = [*self.operator.keys, OWNER_START, OWNER_END]
        fired = emitted.select(*self.operator.keys, *BOUNDS).rename({WINDOW_START: OWNER_START, WINDOW_END: OWNER_END})
        back = self.shown.join(fired, on=on, how="semi", nulls_equal=True)
        if back.height:
            self.results.append(back.drop(OWNER_START, OWNER_END).with_columns(pl.lit(value=True).alias(IS_RETRACTION)))
            self.shown = self.shown.join(fired, on=on, how="anti", nulls_equal=True)

    def _forget_shown(self, gone: pl.DataFrame) -> None:
        if self.shown is None:
            return
        on = [*self.operator.keys, OWNER_START, OWNER_END]
        names = gone.select(*self.operator.keys, *BOUNDS).rename({WINDOW_START: OWNER_START, WINDOW_END: OWNER_END})
        self.shown = self.shown.join(names, on=on, how="anti", nulls_equal=True)

    def _keep(self, windows: pl.DataFrame) -> None:
        if windows.height:
            self.books = windows if self.books is None else pl.concat([self.books, windows], how="diagonal_relaxed")

    # Phase 4: the books

    def write(self, *, event_timers: bool) -> None:
        """Write the touched buckets and the index."""
        fired = self.watermark if event_timers else self.ledger.fired
        end = pl.col(WINDOW_END)
        due = pl.when((end > fired) & ~pl.col(CLOSED)).then(end).otherwise(end + self.operator.lateness)
        due = pl.min_horizontal(due, pl.when(~pl.col(CLOSED)).then(pl.col(EVENT_TIMER)))
        books = None if self.books is None else self.books.select(*self.by, *META, *self.operator.parts)
        if self.read or (books is not None and books.height):
            self.ledger.write(self.read, books, self.shown, width=self.operator.bucket_width, due=due)
        self.ledger.watermark = self.watermark
        self.ledger.fired = max(self.ledger.fired, fired)
        self.ledger.save()

    def outcome(self) -> Outcome:
        """Return what the turn gave."""
        return Outcome(
            rows=_together(self.results),
            late=_together(self.late),
            dismissed=_together(self.dismissed),
            keys=self.ledger.count(),
        )

    def _completed(self, books: pl.DataFrame) -> pl.DataFrame:
        """Add the columns that books from before a change of the job, or folded rows, do not have."""
        missing = [name for name in (*META, *self.operator.parts) if name not in books.columns]
        if not missing:
            return books
        kinds: dict[str, Any] = {**META}
        if any(name not in kinds for name in missing):
            kinds |= dict(self.operator.template(self.turn.rows).schema)
        defaults = {NEW: 0, INDEX: 0, CLOSED: False}
        return books.with_columns([pl.lit(defaults.get(name), dtype=kinds[name]).alias(name) for name in missing])


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    return pl.concat(frames, how="diagonal_relaxed") if frames else None
