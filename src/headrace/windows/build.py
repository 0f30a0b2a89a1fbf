"""The operator for a window step: which class runs which windows.

Windows by time, with any trigger, run on a `WindowOperator`; windows that rows end run on a `SequenceOperator`, which
fires each window once and knows neither triggers nor lateness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.windows.operator import OnError, WindowOperator
from headrace.windows.panes import Panes
from headrace.windows.sequences import Sequence, SequenceOperator
from headrace.windows.triggers import default

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner
    from headrace.windows.firing import Trigger


def operator_for(
    keys: tuple[str, ...],
    assigner: Assigner,
    aggregates: Mapping[str, Aggregate],
    *,
    trigger: Trigger | None = None,
    allowed_lateness: str | timedelta | int = 0,
    panes: Panes | None = None,
    retractions: bool = False,
    on_error: OnError = "raise",
    step: str = "window",
) -> WindowOperator | SequenceOperator:
    """Make the operator of a window step, and refuse what cannot work; the arguments are those of `WindowOperator`.

    >>> from headrace.windows import count, count_window, tumbling
    >>> type(operator_for(("k",), tumbling("5s"), {"n": count()})).__name__
    'WindowOperator'
    >>> type(operator_for(("k",), count_window(5), {"n": count()})).__name__
    'SequenceOperator'
    """
    if not isinstance(assigner, Sequence):
        return WindowOperator(
            keys,
            assigner,
            aggregates,
            trigger=trigger or default(),
            allowed_lateness=allowed_lateness,
            panes=panes or Panes(),
            retractions=retractions,
            on_error=on_error,
            step=step,
        )
    if trigger is not None and trigger != default():
        raise PlanError(
            f"step {step!r} has the trigger {trigger.describe()} on {assigner.describe()}",
            hint="Such windows fire once, when a row completes them: leave the trigger out.",
        )
    if allowed_lateness:
        raise PlanError(
            f"step {step!r} allows lateness on {assigner.describe()}",
            hint="Rows are taken in order, so one behind the watermark is late: hold the watermark back instead.",
        )
    if panes is not None and panes != Panes():
        raise PlanError(
            f"step {step!r} sets panes on {assigner.describe()}", hint="Such windows fire once: leave the panes out."
        )
    return SequenceOperator(keys, assigner, aggregates, retractions=retractions, on_error=on_error, step=step)
