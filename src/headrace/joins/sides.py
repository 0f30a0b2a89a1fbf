"""What a join compares and what it gives: the two sides, their keys, and the columns of a joined row.

Both sides are brought to names that do not clash: the names of the result, and names that begin with `#` for what is
only compared. So a pair of rows is one row of a frame, and the further condition is an expression over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, TypeAlias

import polars as pl

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME, IS_RETRACTION
from headrace.time.instants import BEGINNING, END, INSTANT

#: What happens to rows without a partner; semi and anti give rows of the left side only.
How: TypeAlias = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: Final[tuple[How, ...]] = ("inner", "left", "right", "full", "semi", "anti")

#: The event times of the two sides in a pair.
LEFT_TIME, RIGHT_TIME = "#left_time", "#right_time"
#: The ingestion time of the right side, where both have one.
RIGHT_INGESTION = "#right_ingestion"
#: Places of the rows of a pair in the frames that it comes from.
LEFT_PLACE, RIGHT_PLACE = "#left", "#right"
#: What a late row carries beside `lateness` and `watermark`.
LATE_SIDE, LATE_REASON = "join_side", "late_reason"

_NO_TIME: Final = "event_time is null"
#: So many pairs of equal keys are made at a time; those that fail the further conditions are then gone.
PAIRS_AT_ONCE: Final = 2_000_000
_PARTNERS: Final = "#partners_of_key"


@dataclass(frozen=True)
class Side:
    """One input of a join.

    Args:
        name: "left" or "right".
        columns: The columns that are kept: the name that comes in, and the name inside the join.
        keys: The names inside the join of the columns that are compared.
    """

    name: Literal["left", "right"]
    columns: tuple[tuple[str, str], ...]
    keys: tuple[str, ...]

    @property
    def time(self) -> str:
        """The name of the event time inside the join."""
        return LEFT_TIME if self.name == "left" else RIGHT_TIME

    def taken_in(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Bring rows to the names inside the join."""
        return rows.select(
            *(pl.col(name).alias(inside) for name, inside in self.columns),
            pl.col(EVENT_TIME).to_physical().alias(self.time),
        )

    def taken_in_updating(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Bring rows that may take back earlier ones to the names inside the join."""
        taken = self.taken_in(rows)
        if IS_RETRACTION not in rows.columns:
            return taken.with_columns(pl.lit(value=False).alias(IS_RETRACTION))
        return taken.with_columns(rows.get_column(IS_RETRACTION).fill_null(value=False))

    @cached_property
    def has_key(self) -> pl.Expr:
        """Whether a row has all keys."""
        return pl.all_horizontal([pl.col(key).is_not_null() for key in self.keys]) if self.keys else pl.lit(value=True)


@dataclass(frozen=True)
class Arrived:
    """The rows of one side in a turn.

    Args:
        rows: Those that take part, with the names inside the join.
        late: Those that came too late, as they came.
        dismissed: Those without a time.
    """

    rows: pl.DataFrame
    late: pl.DataFrame | None
    dismissed: pl.DataFrame | None


@dataclass(frozen=True)
class JoinColumns:
    """The columns of a join: how pairs are found, and what they give.

    Args:
        how: What happens to rows without a partner.
        left: The left side.
        right: The right side.
        result: The columns of the result, beside those that the join makes.
        merged: Key columns of the result that both sides have, and the name of the right side's inside the join.
        null_safe: Whether null is equal to null.
        where: A further condition on pairs.
        later_time: Whether a joined row has the later of both times; else that of the left row.
    """

    how: How
    left: Side
    right: Side
    result: pl.Schema
    merged: tuple[tuple[str, str], ...] = ()
    null_safe: bool = False
    where: pl.Expr | None = None
    later_time: bool = True

    @property
    def pads_left(self) -> bool:
        """Whether a left row without a partner gives a row with nulls on the right."""
        return self.how in ("left", "full")

    @property
    def pads_right(self) -> bool:
        """Whether a right row without a partner gives a row with nulls on the left."""
        return self.how in ("right", "full")

    @property
    def left_only(self) -> bool:
        """Whether results are rows of the left side."""
        return self.how in ("semi", "anti")

    @property
    def waits_left(self) -> bool:
        """Whether it matters if a left row has had a partner."""
        return self.how in ("left", "full", "semi", "anti")

    def pairs(self, left: pl.DataFrame, right: pl.DataFrame, *near: pl.Expr) -> pl.DataFrame:
        """Find the pairs of rows that belong together.

        Args:
            left: Rows of the left side.
            right: Rows of the right side.
            near: What else holds for a pair, over the columns of both.
        """
        conditions = [*near, *([] if self.where is None else [self.where])]
        if not conditions:
            return self._equal_keys(left, right)
        return pl.concat([self._equal_keys(part, right).filter(*conditions) for part in self._parts(left, right)])

    def partners_by_key(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.Series | None:
        """Count for each left row the right rows with its key; None where there are few rows altogether."""
        if left.height * right.height <= PAIRS_AT_ONCE:
            return None
        if not self.left.keys:
            return pl.select(pl.repeat(right.height, left.height, dtype=pl.Int64).alias(_PARTNERS)).to_series()
        counts = right.group_by(self.right.keys).agg(pl.len().cast(pl.Int64).alias(_PARTNERS))
        beside = left.select(self.left.keys).join(
            counts,
            left_on=self.left.keys,
            right_on=self.right.keys,
            how="left",
            nulls_equal=self.null_safe,
            maintain_order="left",
        )
        return beside.get_column(_PARTNERS).fill_null(0)

    def _parts(self, left: pl.DataFrame, right: pl.DataFrame) -> list[pl.DataFrame]:
        """Cut left rows so that not too many pairs are made at a time, whatever their keys are."""
        partners = self.partners_by_key(left, right)
        if partners is None or partners.sum() <= PAIRS_AT_ONCE:
            return [left]
        numbers = partners.cum_sum() // PAIRS_AT_ONCE
        return left.with_columns(numbers.alias(_PARTNERS)).partition_by(
            _PARTNERS, include_key=False, maintain_order=True
        )

    def _equal_keys(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        if not self.left.keys:
            return left.join(right, how="cross", maintain_order="left_right")
        return left.join(
            right,
            left_on=self.left.keys,
            right_on=self.right.keys,
            how="inner",
            nulls_equal=self.null_safe,
            coalesce=False,
            maintain_order="left_right",
        )

    def matched(self, pairs: pl.DataFrame) -> pl.DataFrame:
        """Give the joined rows of pairs."""
        time = pl.max_horizontal(LEFT_TIME, RIGHT_TIME) if self.later_time else pl.col(LEFT_TIME)
        later = pl.max_horizontal(INGESTION_TIME, RIGHT_INGESTION) if self._ingests else None
        return pairs.select(
            *(pl.col(name) if later is None or name != INGESTION_TIME else later.alias(name) for name in self.result),
            time.cast(INSTANT).alias(EVENT_TIME),
        )

    def padded_left(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Give left rows with nulls on the right."""
        return self._padded(rows, LEFT_TIME, {})

    def padded_right(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Give right rows with nulls on the left, and the key."""
        taken = dict(self.merged)
        if self._ingests:
            taken[INGESTION_TIME] = RIGHT_INGESTION
        return self._padded(rows, RIGHT_TIME, taken)

    def schema(self) -> pl.Schema:
        """The columns of the result, with the event time."""
        return pl.Schema({**self.result, EVENT_TIME: INSTANT})

    def fingerprint(self) -> dict[str, str]:
        """Name what the saved rows depend on."""
        return {
            "how": self.how,
            "left keys": ",".join(self.left.keys),
            "right keys": ",".join(self.right.keys),
            "left columns": ",".join(name for _, name in self.left.columns),
            "right columns": ",".join(name for _, name in self.right.columns),
            "null_safe": str(self.null_safe),
            "where": "" if self.where is None else str(self.where),
        }

    @cached_property
    def _ingests(self) -> bool:
        """Whether both sides have an ingestion time."""
        return any(name == RIGHT_INGESTION for _, name in self.right.columns)

    def _padded(self, rows: pl.DataFrame, time: str, taken: dict[str, str]) -> pl.DataFrame:
        own = set(rows.columns)
        columns = []
        for name, kind in self.result.items():
            source = taken.get(name, name)
            known = source in own
            columns.append((pl.col(source).cast(kind) if known else pl.lit(None, dtype=kind)).alias(name))
        return rows.select(*columns, pl.col(time).cast(INSTANT).alias(EVENT_TIME))


def arrived(side: Side, rows: pl.DataFrame, watermark: int, *, reason: str, late: bool = True) -> Arrived:
    """Sort out the rows of one side: those that take part, those that are late, those without a time.

    Args:
        side: The side.
        rows: Its rows of this turn.
        watermark: A row with an earlier time is late.
        reason: Why it is late, for people.
        late: Whether rows can be late at all.
    """
    times = rows.get_column(EVENT_TIME)
    dismissed = None
    if times.null_count():
        dismissed = rows.filter(pl.col(EVENT_TIME).is_null()).with_columns(pl.lit(_NO_TIME).alias("reason"))
        rows = rows.filter(pl.col(EVENT_TIME).is_not_null())
    behind = None
    if late and rows.height and rows.select(pl.col(EVENT_TIME).to_physical().min()).item() < watermark:
        is_late = pl.col(EVENT_TIME).to_physical() < watermark
        behind = late_rows(side, rows.filter(is_late), watermark, pl.col(EVENT_TIME).to_physical(), reason)
        rows = rows.filter(~is_late)
    return Arrived(side.taken_in(rows), behind, dismissed)


def late_rows(side: Side, rows: pl.DataFrame, watermark: int, limit: pl.Expr, reason: str) -> pl.DataFrame:
    """Mark rows that came too late with their side, by how much, and why."""
    hidden = [name for name in rows.columns if name.startswith("#")]
    mark = pl.lit(watermark, dtype=pl.Int64)
    return rows.with_columns(
        pl.lit(side.name).alias(LATE_SIDE),
        pl.lit(reason).alias(LATE_REASON),
        (mark - limit).cast(pl.Duration("us")).alias("lateness"),
        mark.cast(INSTANT).alias("watermark"),
    ).drop(hidden)


def later_by(watermark: int, time: int) -> int:
    """Give the watermark less a time; the beginning and the end of time stay what they are.

    >>> later_by(10, 3), later_by(END, 3) == END
    (7, True)
    """
    return watermark if watermark >= END or watermark <= BEGINNING else max(BEGINNING, watermark - time)
