"""The window operator: any windows, any trigger, any mode, on one key group.

One turn goes through four phases, always in this order:

1. **Rows** are judged by the watermark of the turn before. A row is late only if *all* of its windows have expired or
   are closed; otherwise it counts in those that have not. Then windows that got rows may fire.
2. **The watermark** moves. Windows whose end it passes may fire on time; windows that expire (end + allowed lateness)
   give what is left, and are forgotten.
3. **Processing time** moves. Windows whose trigger asked for it may fire, with or without new rows.
4. The books are written back: the buckets that were touched, and the index.

In each of the first three a window fires at most once; a window that completes and expires in one step gives one pane.
`SlicedOperator` is the quick path for aligned windows that fire once; this one is for everything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.contents import instants
from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_TIMING,
    WINDOW_END,
    Outcome,
)
from headrace.errors import PlanError
from headrace.time.duration import micros, text
from headrace.time.instants import END
from headrace.windows.assigners import Aligned
from headrace.windows.firing import AfterWatermark, Trigger
from headrace.windows.fold import Fold
from headrace.windows.intake import Intake, counted_numbers
from headrace.windows.ledger import (
    CLOSED,
    EVENT_TIMER,
    INDEX,
    META,
    NEW,
    TIMER,
    Ledger,
    resplit_ledgers,
)
from headrace.windows.migration import only_aggregates_come_or_go
from headrace.windows.panes import PANE_COLUMNS, Panes, pane_rows
from headrace.windows.sequences import Sequence as RowWindows
from headrace.windows.sliced import SlicedOperator
from headrace.windows.triggers import check_trigger, default
from headrace.windows.turns import BOUNDS, WindowTurn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import timedelta

    from headrace.engine import MemorySegments, Segments, Turn
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner

OnError = Literal["raise", "dead_letter"]


@dataclass(frozen=True)
class WindowOperator:
    """Windows of one step on one key group.

    Args:
        keys: The key columns; none means that all rows belong together.
        assigner: The windows.
        aggregates: The result columns, by name.
        trigger: When a window fires; on time and with late rows by default.
        allowed_lateness: How long after its end a window still takes rows.
        panes: What the panes of a window hold.
        retractions: Whether rows may take back earlier ones (`is_retraction`), as those of a step that revises do.
        on_error: What happens to rows for which a user's aggregate raises: fail, or dismiss them with the reason.
        step: Name of the step, for messages.
        check: Refuse what cannot work; conformance cases of other engines switch it off.
        null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.

    >>> from headrace.engine import MemorySegments, Turn
    >>> from headrace.time import INSTANT
    >>> from headrace.windows import count, tumbling
    >>> operator = WindowOperator(("k",), tumbling("10s"), {"n": count()})
    >>> rows = pl.DataFrame({"k": ["a", "a"], "event_time": pl.Series([1_000_000, 2_000_000]).cast(INSTANT)})
    >>> outcome = operator.turn(MemorySegments(), Turn(rows, watermark=10_000_000, now=0))
    >>> outcome.rows.select("k", "n", "pane_timing", "pane_is_last").row(0)
    ('a', 2, 'on_time', True)
    """

    keys: tuple[str, ...]
    assigner: Assigner
    aggregates: Mapping[str, Aggregate]
    trigger: Trigger = field(default_factory=default)
    allowed_lateness: str | timedelta | int = 0
    panes: Panes = field(default_factory=Panes)
    retractions: bool = False
    on_error: OnError = "raise"
    step: str = "window"
    check: bool = True
    null_keys: bool = False
    lateness: int = field(init=False)
    intake: Intake = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lateness = micros(self.allowed_lateness, what="allowed_lateness")
        if self.check:
            self._refuse(lateness)
        # Beyond any real time, yet a sum with the end of any window stays within 64 bits.
        object.__setattr__(self, "lateness", min(lateness, END // 2))
        aggregates = tuple(
            (name, aggregate.retracting() if self.retractions else aggregate)
            for name, aggregate in self.aggregates.items()
        )
        timed = self.panes.timestamp != "end_of_window" or not self.assigner.ends or self.trigger.reads_time()
        intake = Intake(self.step, tuple(self.keys), self.assigner, aggregates, timed, self.null_keys)
        object.__setattr__(self, "intake", intake)

    def _refuse(self, lateness: int) -> None:
        if lateness < 0:
            raise PlanError(f"step {self.step!r} allows a lateness of {text(lateness)}", hint="Give zero or more.")
        if isinstance(self.assigner, RowWindows):
            raise PlanError(
                f"step {self.step!r} runs {self.assigner.describe()} on a WindowOperator",
                hint="Use a SequenceOperator, or operator_for, which chooses.",
            )
        if not self.assigner.ends and lateness:
            raise PlanError(
                f"step {self.step!r} allows a lateness of {text(lateness)} on a window that never ends",
                hint="Nothing is late in a global window: leave allowed_lateness out.",
            )
        if not self.aggregates:
            raise PlanError(f"step {self.step!r} has no aggregates", hint="Give at least one, such as n=count().")
        taken = {*self.keys, *PANE_COLUMNS}
        for name in self.aggregates:
            if name in taken or name.startswith("#"):
                raise PlanError(
                    f"step {self.step!r} has a result {name!r}, a name that is taken", hint="Give it another."
                )
        closes = self.panes.closing != "never"
        check_trigger(self.trigger, ends=self.assigner.ends, closes=closes, lateness=lateness)

    # What the runner asks

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Fold rows into slices or windows where that loses nothing.

        It loses something where a row may turn out late only in the key group: without the watermark, where windows
        merge, and where a trigger may close a window. Rows that are late or cannot be used stay as they are.
        """
        closes = self.trigger.can_finish() and not (self.trigger == AfterWatermark() and self.lateness == 0)
        if watermark is None or rows.is_empty() or self.assigner.merges or closes or self.on_error != "raise":
            return rows, None
        good = self.intake.sort_out(rows)
        if good.dismissed is not None or counted_numbers(good.rows) is not None:
            return rows, None
        late = self.intake.last_end() + self.lateness <= watermark
        folded = self.intake.fold(good.rows.filter(~late), self.intake.unit, watermark)
        return self.intake.without_units(good.rows.filter(late)), folded

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the results, given those of the rows."""
        empty = self.template(rows.to_frame())
        results = empty.with_columns(
            *[aggregate.result(name) for name, aggregate in self.intake.aggregates],
            pl.lit(0).alias(EVENT_TIME),
            pl.lit(0).alias(PANE_INDEX),
            pl.lit("").alias(PANE_TIMING),
            pl.lit(value=True).alias(PANE_IS_LAST),
        )
        return self.public(results).schema

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """Tell which columns of the rows are read; None where it may be all."""
        read = Fold(tuple(self.keys), tuple(self.aggregates.items())).reads()
        if read is None or not isinstance(self.assigner, Aligned):
            return None
        return {EVENT_TIME, IS_RETRACTION, *read} & set(rows)

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved windows depend on."""
        parts = {f"aggregate {name}": aggregate.describe() for name, aggregate in self.intake.aggregates}
        return {
            "keys": ",".join(self.keys),
            "window": self.assigner.describe(),
            "trigger": self.trigger.describe(),
            "mode": self.panes.mode,
            **parts,
        }

    def turn(self, state: Segments, turn: Turn, *, event_timers: bool = True) -> Outcome:
        """Take one turn; see the module.

        Args:
            state: The state of this key group.
            turn: Rows, watermark, processing time.
            event_timers: Let the watermark fire and expire windows; a test may hold that back to see what the clock
                does.
        """
        ledger = Ledger.load(state, self.keys)
        work = WindowTurn(self, ledger, turn)
        work.take_rows()
        work.watermark = max(ledger.watermark, turn.watermark)
        if event_timers:
            work.pass_watermark()
        work.pass_clock()
        work.write(event_timers=event_timers)
        return work.outcome()

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        """Read windows from before aggregates were added or taken out, or the trigger was another one.

        Windows that fired once were kept as slices; they are read, too.
        """
        mine = self.fingerprint()
        if "trigger" not in fingerprint:
            return self._migrate_slices(state, fingerprint)
        if not only_aggregates_come_or_go(fingerprint, mine, besides=["trigger"]):
            return False
        ledger = Ledger.load(state, tuple(self.keys))
        ledger.rewrite(
            [*self.keys, *BOUNDS, *META, *self.parts], forget_triggers=fingerprint["trigger"] != mine["trigger"]
        )
        ledger.save()
        return True

    def _migrate_slices(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        mine = self.fingerprint()
        if not isinstance(self.assigner, Aligned) or self.intake.timed or self.retractions or "operator" in fingerprint:
            return False
        if not only_aggregates_come_or_go(fingerprint, mine, besides=["trigger", "mode"]):
            return False
        before = SlicedOperator(tuple(self.keys), self.assigner, tuple(self.aggregates.items()), step=self.step)
        watermark, windows = before.open_windows(state)
        ledger = Ledger(state, tuple(self.keys), watermark, watermark)
        if windows is not None:
            meta = {name: pl.lit(None, dtype=kind).alias(name) for name, kind in META.items()}
            first = {NEW: 1, INDEX: 0, CLOSED: False}
            meta |= {name: pl.lit(value, dtype=META[name]).alias(name) for name, value in first.items()}
            books = windows.with_columns(meta.values())
            ledger.write((), books, None, width=self.bucket_width, due=pl.col(WINDOW_END))
        ledger.save()
        return True

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the windows over other key groups."""
        resplit_ledgers(old, new, tuple(self.keys))

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the open windows with what they would give now, and what their trigger has seen."""
        ledger = Ledger.load(state, tuple(self.keys))
        books, _ = ledger.read(ledger.buckets, None)
        if books is None or any(part not in books.columns for part in self.parts):
            return {} if books is None else {"windows": books}
        open_books = books.with_columns(instants(books.get_column(name)) for name in BOUNDS)
        shown = open_books.select(
            *self.keys,
            *BOUNDS,
            *[aggregate.result(name) for name, aggregate in self.intake.aggregates],
            pl.col(INDEX).alias("panes"),
            pl.col(NEW).alias("rows_since_pane"),
            pl.col(CLOSED).alias("closed"),
            pl.col(EVENT_TIMER).alias("timer"),
            pl.col(TIMER).alias("timer_by_clock"),
        )
        timers = [instants(shown.get_column(name)) for name in ("timer", "timer_by_clock")]
        return {"windows": shown.with_columns(timers)}

    # What a turn needs

    @property
    def bucket_width(self) -> int | None:
        """Width of the buckets of the books; None for one bucket."""
        return None if self.assigner.merges or not self.assigner.ends else self.assigner.bucket

    @property
    def parts(self) -> list[str]:
        """The columns of partials."""
        return [e.meta.output_name() for name, aggregate in self.intake.aggregates for e in aggregate.partial(name)]

    def template(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Books without a row, with all columns, from rows of which only the columns are looked at."""
        bounds = [pl.lit(0, dtype=pl.Int64).alias(name) for name in BOUNDS]
        empty = self.intake.fold(rows.head(0).with_columns(bounds), BOUNDS, 0)
        missing = {name: kind for name, kind in META.items() if name not in empty.columns}
        return empty.with_columns([pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items()])

    def public(self, results: pl.DataFrame) -> pl.DataFrame:
        """Give result rows their public columns."""
        return pane_rows(results, keys=self.keys, names=list(self.aggregates), mode=self.panes.mode)
