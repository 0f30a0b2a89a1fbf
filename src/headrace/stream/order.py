"""Whether a step goes by the time of its keys, or by the watermark alone: told by the steps before it.

`watermark(..., per="key")` says that rows are in order within the key that follows. That is the key of the first
`key_by` after the watermark. It holds for a step whose own key has all of these columns, as long as no step that keeps
state lies between: what leaves such a step is in another order.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.stream import plan
from headrace.time.key_time import KeyTime


@dataclass(frozen=True)
class _Order:
    """The order of a stream's rows: within these columns; None where no key was set yet."""

    time: KeyTime
    keys: frozenset[str] | None = None


def key_time_of(node: plan.Node, keys: tuple[str, ...]) -> KeyTime | None:
    """Tell what is promised of the rows of each key; None where the watermark alone decides.

    Args:
        node: The input of a step.
        keys: The key of the step.
    """
    order = _order(node)
    if order is None or order.keys is None or not order.keys <= set(keys):
        return None
    return order.time


def _order(node: plan.Node) -> _Order | None:
    if isinstance(node, plan.Watermark):
        return None if node.key_time is None else _Order(node.key_time)
    if isinstance(node, plan.Stateful):
        return None
    orders = [_order(part) for part in node.inputs]
    found = [order for order in orders if order is not None]
    if not found or len(found) < len(orders):
        return None
    time = KeyTime(max(each.time.tolerance for each in found), max(each.time.patience for each in found))
    known = [order.keys for order in found if order.keys is not None]
    keys = frozenset().union(*known) if known else None
    if keys is None and isinstance(node, plan.KeyBy):
        keys = frozenset(node.keys)
    return _Order(time, keys)
