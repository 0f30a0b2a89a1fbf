"""Which operator does the work of a window."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.windows.assigners import Aligned
from headrace.windows.operator import OnError, WindowOperator
from headrace.windows.panes import Panes
from headrace.windows.sequences import Sequence, SequenceOperator
from headrace.windows.sliced import SlicedOperator
from headrace.windows.triggers import default

if TYPE_CHECKING:
    from headrace.engine import Operator
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner
    from headrace.windows.panes import Mode
    from headrace.windows.triggers import Trigger


def window_operator(
    keys: tuple[str, ...],
    assigner: Assigner,
    aggregates: tuple[tuple[str, Aggregate], ...],
    *,
    trigger: Trigger | None,
    mode: Mode,
    allowed_lateness: int,
    on_error: OnError,
    revised: bool,
    step: str,
    null_keys: bool = False,
) -> Operator:
    """Choose the operator: slices where windows are aligned and fire once, the general one for the rest.

    Args:
        keys: The key columns.
        assigner: The windows.
        aggregates: The result columns.
        trigger: When they fire; None: once, at their end.
        mode: What a later firing holds.
        allowed_lateness: How long they wait for late rows.
        on_error: What a failing user-defined aggregate does.
        revised: Whether rows may take back earlier ones.
        step: Names the step in messages.
        null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.
    """
    again = fires_again(trigger, allowed_lateness)
    if isinstance(assigner, Aligned) and not again and mode == "value" and on_error == "raise" and not revised:
        return SlicedOperator(keys, assigner, aggregates, step=step)
    if isinstance(assigner, Sequence):
        if again:
            raise PlanError(
                f"a trigger or allowed lateness on {assigner.describe()}",
                hint="Such a window ends with a row, in the order of event time, and fires once, then; leave them out.",
            )
        return SequenceOperator(keys, assigner, dict(aggregates), retractions=revised, on_error=on_error, step=step)
    return WindowOperator(
        keys=keys,
        assigner=assigner,
        aggregates=dict(aggregates),
        trigger=trigger or default(),
        allowed_lateness=allowed_lateness,
        panes=Panes(mode=mode),
        retractions=revised,
        on_error=on_error,
        step=step,
        null_keys=null_keys,
    )


def fires_again(trigger: Trigger | None, allowed_lateness: int) -> bool:
    """Tell whether a window may fire more than once."""
    return trigger is not None or allowed_lateness > 0


def retracting(operator: Operator) -> Operator:
    """Let windows that fire again take back what they said before."""
    if isinstance(operator, WindowOperator) and operator.panes.mode == "value":
        return replace(operator, panes=replace(operator.panes, mode="value_and_retraction"))
    return operator
