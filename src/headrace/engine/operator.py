"""The operator contract: one turn in, one outcome out.

A turn holds the rows of one key group that arrived together (a micro-batch, or one step of a test script), then the
watermark after those rows, then the processing time. An operator handles them in that order: rows first (against the
watermark of the turn *before*, which it keeps in its state), then the advance of the watermark, then timers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from headrace.engine.state import MemorySegments, Segments

#: Columns that the engine itself reads or writes; every frame between two steps has `event_time`.
EVENT_TIME = "event_time"
INGESTION_TIME = "ingestion_time"
WINDOW_START = "window_start"
WINDOW_END = "window_end"
PANE_INDEX = "pane_index"
PANE_TIMING = "pane_timing"
PANE_IS_LAST = "pane_is_last"
PANE_MODE = "pane_mode"
IS_RETRACTION = "is_retraction"
#: A column beside a row's own: the Kafka value it was decoded from, so that a late event can be told in full.
ORIGINAL = "original_value"


@dataclass(frozen=True, slots=True)
class InputTurn:
    """What one input of an operator brings to a turn.

    Args:
        rows: Its rows of this key group, in any order; with the columns of a non-empty one if it is empty.
        watermark: Its watermark after these rows: the least of all that leads to this input.
        watermark_before: The same after the turn before; a row of this input with an earlier time is late.
    """

    rows: pl.DataFrame
    watermark: int
    watermark_before: int = BEGINNING


@dataclass(frozen=True, slots=True)
class Turn:
    """What one call of an operator is given.

    Args:
        rows: The rows of this key group, in any order; has `event_time` (Datetime us UTC) and the key columns. It
            may be empty, then with the columns of a non-empty one.
        partials: What `prepare` made of further rows of this key group, or None.
        watermark: The operator's watermark after these rows, in microseconds since the epoch; never goes back.
        now: Processing time in microseconds since the epoch, as the heartbeat of this batch says it; the same again
            when a batch is repeated after a crash.
        watermark_before: The watermark after the turn before, which rows are judged by; an operator that needs only
            this need not keep a watermark of its own.
        inputs: For an operator with several inputs, what each brings; `rows` is then that of the first, and
            `watermark` the least of all. Empty for an operator with one input.
    """

    rows: pl.DataFrame
    watermark: int
    now: int
    partials: pl.DataFrame | None = None
    watermark_before: int = BEGINNING
    inputs: tuple[InputTurn, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call of an operator gives back; None stands for no rows.

    Args:
        rows: Results, with the columns the operator declared.
        late: Input rows whose windows have all expired, with `lateness` (Duration us) and `watermark` (Datetime us
            UTC) added.
        dismissed: Input rows that the step could not use, with a text column `reason`.
        watermark: The watermark that the next step may rely on; None means that of the turn.
        keys: How many keys the operator has state of on this key group after the turn; None if it does not count them.
            What an operator keeps for each of several windows of a key counts as often.
    """

    rows: pl.DataFrame | None = None
    late: pl.DataFrame | None = None
    dismissed: pl.DataFrame | None = None
    watermark: int | None = None
    keys: int | None = None


class Operator(Protocol):
    """Pure stateful logic of one step on one key group; holds no state of its own between turns.

    Timers need nothing but this: keep in the state what is due and when, and look at `turn.watermark` (event time) or
    `turn.now` (processing time) at the end of every turn, which comes with or without rows.
    """

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Shrink rows before they are sent to their key group; called once per task and batch.

        Args:
            rows: Rows of any keys, as `turn` would get them.
            watermark: The operator's watermark after the batch before, exactly, or None where it is not known. Only
                with it can a row be told from a late one, so without it nothing may be folded away.

        Returns:
            The rows that stay as they are, and the partials that stand for the others (with the key columns), or None.
            An operator that inherits from this class without a method of its own lets all rows stay. An operator with
            several inputs is not asked.
        """
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Take one turn; called once per key group and batch, also when there are no rows."""
        ...

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the results, given those of the rows."""
        ...

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved state depends on; after a change of any entry the old state cannot be read."""
        ...


@runtime_checkable
class Migrating(Protocol):
    """An operator that can read state whose fingerprint is not its own any more: that of an earlier version."""

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        """Bring the state of a key group into today's form; called once, before the first turn with such state.

        Args:
            state: The segments, to be read and written.
            fingerprint: What the operator that wrote them named.

        Returns:
            Whether they could be read; False refuses the checkpoint, with the difference of the fingerprints.
        """
        ...


@runtime_checkable
class Resplitting(Protocol):
    """An operator that can spread its state over another number of key groups.

    Its state then consists of rows that have their keys, and of what all key groups have alike, such as a watermark.
    """

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread state over other key groups; `headrace.engine.resplit` has what it takes.

        Args:
            old: The segments of the key groups as they are, in their order; to be read.
            new: Those of the key groups that shall be, in their order and empty; to be written.
        """
        ...


@runtime_checkable
class Describing(Protocol):
    """An operator that can show its state as tables, for people; of one that cannot, the frames it keeps are shown."""

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show the state of a key group.

        Args:
            state: A copy of the segments; what is written to it is thrown away.

        Returns:
            Tables by name, such as "windows" or "pending", with the key columns among theirs.
        """
        ...


@runtime_checkable
class Reader(Protocol):
    """An operator that can tell which columns it reads; what nobody reads is neither decoded nor sent to it."""

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """Tell which columns of the rows are read, the event time and the key among them; None where all may be."""
        ...
