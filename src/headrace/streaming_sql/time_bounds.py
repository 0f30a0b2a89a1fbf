"""Bounds of the time of one side of a join around the time of the other."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from headrace.streaming_sql.intervals import interval_of

if TYPE_CHECKING:
    from headrace.streaming_sql.scope import Scope

_MICROSECOND: Final = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Bounds:
    """Bounds of the right time minus the left time, in microseconds; both belong to them.

    >>> Bounds(-5, None).within(Bounds(None, 3))
    Bounds(lower=-5, upper=3)
    """

    lower: int | None = None
    upper: int | None = None

    @property
    def closed(self) -> bool:
        """Whether there are both."""
        return self.lower is not None and self.upper is not None

    def within(self, other: Bounds) -> Bounds:
        """Give what both allow."""
        lowers = [each for each in (self.lower, other.lower) if each is not None]
        uppers = [each for each in (self.upper, other.upper) if each is not None]
        return Bounds(max(lowers, default=None), min(uppers, default=None))


def time_bounds(node: exp.Expr, left: Scope, right: Scope) -> Bounds | None:
    """Read a condition on the times of both sides; None if it is none."""
    if isinstance(node, exp.Between):
        low = _compared(node.this, node.args["low"], left, right)
        high = _compared(node.this, node.args["high"], left, right)
        if low is None or high is None or low[0] != high[0]:
            return None
        first, second = _bound(*low, "GTE"), _bound(*high, "LTE")
        return None if first is None or second is None else first.within(second)
    kind = type(node).__name__
    if kind not in ("GT", "GTE", "LT", "LTE", "EQ"):
        return None
    found = _compared(node.this, node.expression, left, right)
    return None if found is None else _bound(*found, kind)


def _compared(one: exp.Expr, other: exp.Expr, left: Scope, right: Scope) -> tuple[str, int] | None:
    """Bring `one op other` to `time of a side op time of the other side + n`; the side, and n."""
    first, second = _shifted(one, left, right), _shifted(other, left, right)
    if first is None or second is None or first[0] == second[0]:
        return None
    return first[0], second[1] - first[1]


def _shifted(node: exp.Expr, left: Scope, right: Scope) -> tuple[str, int] | None:
    """Read `ts`, `ts + INTERVAL ...` or `ts - INTERVAL ...`: the side, and the shift in microseconds."""
    node = node.unnest()
    if isinstance(node, exp.Add | exp.Sub):
        base = _shifted(node.this, left, right)
        step = interval_of(node.expression)
        if isinstance(node, exp.Add) and base is None:
            base, step = _shifted(node.expression, left, right), interval_of(node.this)
        if base is None or not isinstance(step, dt.timedelta):
            return None
        shift = step // _MICROSECOND
        return base[0], base[1] + (shift if isinstance(node, exp.Add) else -shift)
    if not isinstance(node, exp.Column):
        return None
    known = [(side, scope.find(node)) for side, scope in (("left", left), ("right", right)) if scope.knows(node)]
    if len(known) != 1 or known[0][1].fields or known[0][1].column.role != "rowtime":
        return None
    return known[0][0], 0


def _bound(side: str, shift: int, kind: str) -> Bounds | None:
    """Give the bounds of right - left for `time of side kind time of the other + shift`."""
    # left >= right + n is right - left <= -n.
    if side == "left":
        flipped = {"GT": "LT", "GTE": "LTE", "LT": "GT", "LTE": "GTE", "EQ": "EQ"}[kind]
        return _bound("right", -shift, flipped)
    return {
        "GTE": Bounds(shift, None),
        "GT": Bounds(shift + 1, None),
        "LTE": Bounds(None, shift),
        "LT": Bounds(None, shift - 1),
        "EQ": Bounds(shift, shift),
    }[kind]
