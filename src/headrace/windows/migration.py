"""What windows can read of the state of an earlier version of their job.

An aggregate that is added begins with the rows that come from then on; what is known of one that is taken out is
forgotten. One that is another than before under the same name cannot begin anew beside itself, so that is refused.
"""

from __future__ import annotations

import re
from math import gcd
from typing import TYPE_CHECKING

from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Aligned

_AGGREGATE = "aggregate "
_ALIGNED = re.compile(r"(?:tumbling|sliding)\((\S+?)(?: every (\S+?))?(?:, offset (\S+))?\)")


def only_aggregates_come_or_go(
    before: Mapping[str, str], after: Mapping[str, str], *, besides: Iterable[str] = ()
) -> bool:
    """Tell whether two fingerprints differ by aggregates that only one of them has, and by what may differ besides.

    >>> old = {"keys": "a", "aggregate n": "count()"}
    >>> only_aggregates_come_or_go(old, {"keys": "a", "aggregate m": "sum(v)"})
    True
    >>> only_aggregates_come_or_go(old, {"keys": "a", "aggregate n": "sum(v)"})
    False
    """
    free = {*besides}
    for name in before.keys() | after.keys():
        if name in free or before.get(name) == after.get(name):
            continue
        if not name.startswith(_AGGREGATE) or (name in before and name in after):
            return False
    return True


def part_names(aggregates: Iterable[tuple[str, Aggregate]]) -> list[str]:
    """Name the columns of the partials of aggregates."""
    return [expr.meta.output_name() for name, aggregate in aggregates for expr in aggregate.partial(name)]


def same_slices(described: str, assigner: Aligned) -> bool:
    """Tell whether windows, as they were described, are made of the same slices as others."""
    found = _ALIGNED.fullmatch(described)
    if found is None:
        return False
    size, every, offset = (None if part is None else micros(part, what="window") for part in found.groups())
    width = gcd(size or 0, every or size or 0)
    return width == assigner.slice and ((offset or 0) - assigner.offset) % width == 0
