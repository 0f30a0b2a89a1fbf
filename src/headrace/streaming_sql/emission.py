"""EMIT and ALLOWED LATENESS: when a window in GROUP BY gives results, and what becomes of rows that come too late.

| clause | a window gives |
|---|---|
| none | one result, when it closes |
| `ALLOWED LATENESS i` | a result when it ends, and a revised one whenever a row comes within `i` after that |
| `EMIT ON WINDOW CLOSE ALLOWED LATENESS i` | one result, `i` after its end |
| `EMIT EARLY EVERY i` or `n ROWS` | results before its end, too: by the clock, or with so many new rows |
| `EMIT LATE EVERY i` or `n ROWS` | revised results after its end no more often than that |
| `EMIT ON CHANGE` | a result with every batch that changes it |
| `EMIT WITH RETRACTIONS` | a revised result takes back the one before it; that is so without this clause, too |
| `EMIT WITH DELTAS` | each result holds what is new since the one before; nothing is taken back |
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from headrace.streaming_sql.intervals import interval_of
from headrace.windows import triggers

if TYPE_CHECKING:
    from headrace.streaming_sql.query import Planner
    from headrace.windows.panes import Mode
    from headrace.windows.triggers import Trigger


@dataclass(frozen=True)
class Emission:
    """When windows fire, and how long they wait for late rows.

    Args:
        trigger: When they fire; None: at their end, and again for late rows.
        mode: What a later result holds.
        lateness: How long after its end a window takes rows, in microseconds.
    """

    trigger: Trigger | None = None
    mode: Mode = "value"
    lateness: int = 0


def emission_of(planner: Planner, select: exp.Expr) -> Emission:
    """Read the EMIT and ALLOWED LATENESS of a SELECT that groups in windows."""
    emit = select.args.get("emit")
    if emit is None:
        return Emission()
    lateness = _length(planner, emit.args.get("lateness"), "ALLOWED LATENESS", least=0)
    early = _trigger(planner, emit, "early")
    late = _trigger(planner, emit, "late")
    mode: Mode = emit.args.get("mode") or "value_and_retraction"
    if emit.args.get("on_close"):
        if early or late or emit.args.get("on_change"):
            raise planner.error(emit, "EMIT ON WINDOW CLOSE with other results", hint="Leave one of them out.")
        # With a delay there is one result only, of all rows that came in time.
        return Emission(triggers.after_end(lateness) if lateness else None, "value", lateness)
    if late is not None and not lateness:
        hint = "Say how long a window takes late rows: ALLOWED LATENESS INTERVAL '1' MINUTE."
        raise planner.error(emit, "EMIT LATE without ALLOWED LATENESS", hint=hint)
    if emit.args.get("on_change"):
        early = triggers.after_count(1)
    if early is None and late is None:
        return Emission(None, mode if lateness else "value", lateness)
    again = late or (triggers.after_count(1) if lateness else None)
    return Emission(triggers.after_watermark(early=early, late=again), mode, lateness)


def refuse_emission(planner: Planner, node: exp.Expr) -> None:
    """Refuse an EMIT that nothing can follow; EMIT CHANGES is what happens without a window anyway."""
    emit = node.args.get("emit")
    if emit is None:
        return
    others = [name for name, value in emit.args.items() if value and name != "on_change"]
    if others:
        raise planner.error(
            node,
            "EMIT and ALLOWED LATENESS are of a GROUP BY in windows",
            hint="Group by window_start and window_end, and write them behind that query.",
        )


def _trigger(planner: Planner, emit: exp.Expr, which: str) -> Trigger | None:
    rows = emit.args.get(f"{which}_rows")
    if rows is not None:
        if not isinstance(rows, exp.Literal) or rows.is_string or not rows.name.isdigit() or not int(rows.name):
            raise planner.error(emit, f"EMIT {which.upper()} EVERY n ROWS takes a whole number above 0")
        return triggers.after_count(int(rows.name))
    if emit.args.get(which) is None:
        return None
    every = _length(planner, emit.args[which], f"EMIT {which.upper()} EVERY", least=1)
    return triggers.after_processing_time(every=every)


def _length(planner: Planner, node: exp.Expr | None, what: str, *, least: int) -> int:
    if node is None:
        return 0
    value = interval_of(node)
    micros = value // dt.timedelta(microseconds=1) if isinstance(value, dt.timedelta) else -1
    if micros < least:
        raise planner.error(node, f"{what} takes an interval of fixed length", hint="Write INTERVAL '10' SECOND.")
    return micros
