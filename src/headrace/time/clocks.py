"""Clocks of keys: which of them are wrong, and the time that most of them show.

The time of an event is read from a clock: of a vehicle, a sensor, a phone. A column can say whose. Two things follow
from it, both small whatever the number of keys:

- **The front of most clocks** (`of="95%"`): the newest times of a sample of keys, those with the least hashes, so that
  it is always the same ones while they speak. The watermark follows the time that the furthest 5 % of them are past.
  A key that was not in the last batches with rows of the sample is forgotten, so keys that fell silent do not hold it
  back. Few keys give a coarse answer: with fewer than 20 of them 95 % means all.
- **Offsets**: by how much the time of each key is past its arrival, against the median of all keys of the batch. Rows
  of a recording or a backlog all arrive late, by about as much; a clock that is wrong differs from the others.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

import datasketches
import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

#: Keys in the sample that says how far most clocks are.
SAMPLE: Final = 128

#: A key of the sample that had no row in so many observations is forgotten.
_SILENT: Final = 60

#: Offsets up to this are the network's; beyond, a clock is wrong.
WRONG: Final = 1_000_000

#: How many of the worst clocks are named.
WORST: Final = 10

#: With fewer keys in a batch the median says nothing of the others.
_FEW_KEYS: Final = 5

#: The size of the sketches that count keys: exact for some hundred, within 2 % beyond.
_SKETCH: Final = 12


def key_times(names: pl.Series, times: NDArray[np.int64]) -> list[list[int]]:
    """The newest time of each key of a sample, as [hash, time]."""
    return [
        [key, time]
        for key, time in pl.DataFrame({"key": names.hash(seed=19), "time": times})
        .group_by("key")
        .agg(pl.col("time").max())
        .bottom_k(SAMPLE, by="key")
        .sort("key")
        .iter_rows()
    ]


def merge_key_times(kept: list[list[int]], seen: list[list[int]]) -> list[list[int]]:
    """Fold the key times of a batch into those that are kept, as [hash, time, observations since].

    >>> merge_key_times([[7, 100, 0], [8, 90, 60]], [[7, 99], [9, 50]])
    [[7, 100, 0], [9, 50, 0]]
    """
    entries = {key: [key, time, since + 1] for key, time, since in kept if since < _SILENT}
    for key, time in seen:
        entries[key] = [key, max(time, entries[key][1] if key in entries else time), 0]
    if len(entries) <= SAMPLE:
        return list(entries.values())
    # Those that speak, and of these the ones with the least hashes.
    return sorted(entries.values(), key=lambda entry: (entry[2], entry[0]))[:SAMPLE]


def front(kept: Sequence[Sequence[int]], share: float) -> int:
    """The time that most clocks have reached: the clocks furthest ahead, up to one less the share, do not count.

    >>> front([[key, 100 + key, 0] for key in range(20)] + [[99, 7_000, 0]], 0.95)
    119
    """
    times = sorted((time for _, time, *_ in kept), reverse=True)
    return times[min(int(len(times) * (1 - share) + 1e-9), len(times) - 1)]


def offsets(names: pl.Series, ahead: pl.Series, *, tolerance: int) -> dict[str, Any] | None:
    """What a batch shows of clocks; None where it has too few keys to tell.

    Args:
        names: Whose clock it is.
        ahead: By how much the event is past its arrival, in microseconds.
        tolerance: Offsets that are expected.
    """
    # Delays only make an event look older: the least delayed event of a key shows its clock best.
    keys = pl.DataFrame({"key": names, "by": ahead}).drop_nulls().group_by("key").agg(pl.col("by").max())
    if keys.height < _FEW_KEYS:
        return None
    usual = keys.get_column("by").median()
    # Where most events come at once the median is about zero; an arrival in advance is no delay.
    keys = keys.with_columns(pl.col("key").cast(pl.String), by=pl.col("by") - min(int(usual), 0))  # type: ignore[arg-type]
    wrong = keys.filter(pl.col("by").abs() > max(tolerance, WRONG)).sort("by", "key")
    return {
        "keys": _sketch_of(keys.get_column("key")),
        "ahead": _sketch_of(wrong.filter(pl.col("by") > 0).get_column("key")),
        "behind": _sketch_of(wrong.filter(pl.col("by") < 0).get_column("key")),
        "worst": [[key, by] for key, by in _worst(wrong.select("key", "by").rows())],
    }


def merge_clocks(kept: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """Fold what a batch showed of clocks into what is kept; the offset of a key is the one seen last."""
    named = dict([*kept.get("worst", []), *seen["worst"]])
    merged: dict[str, Any] = {"worst": [[key, by] for key, by in _worst(list(named.items()))]}
    for name in ("keys", "ahead", "behind"):
        merged[name] = _union(kept.get(name), seen[name])
    return merged


def clock_report(kept: dict[str, Any]) -> dict[str, Any] | None:
    """Say how many keys there were, how many clocks were ahead or behind, and which were the worst; None if unknown."""
    if not kept:
        return None
    counts = {name: _count(kept[name]) for name in ("keys", "ahead", "behind")}
    return {**counts, "worst": [{"key": key, "ahead": by} for key, by in kept["worst"]]}


def _worst(clocks: list[Any]) -> list[Any]:
    return sorted(clocks, key=lambda clock: (-abs(clock[1]), clock[0]))[:WORST]


def _sketch_of(names: pl.Series) -> str | None:
    if names.is_empty():
        return None
    sketch = datasketches.hll_sketch(_SKETCH)
    for name in names.to_list():
        sketch.update(name)
    return base64.b64encode(sketch.serialize_compact()).decode()


def _union(one: str | None, other: str | None) -> str | None:
    if one is None or other is None or one == other:
        return other if one is None else one
    union = datasketches.hll_union(_SKETCH)
    for each in (one, other):
        union.update(datasketches.hll_sketch.deserialize(base64.b64decode(each)))
    return base64.b64encode(union.get_result().serialize_compact()).decode()


def _count(sketch: str | None) -> int:
    return 0 if sketch is None else round(datasketches.hll_sketch.deserialize(base64.b64decode(sketch)).get_estimate())
