"""Every aggregate: merged in any split it gives the brute-force value; nulls, NaN, nothing; rows taken back."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import windows as w
from headrace.errors import PlanError
from headrace.time import INSTANT
from headrace.windows import collect, count, distinct, first, histogram, latest, mean, quantile, std, top_k, variance
from headrace.windows.aggregates import check_values

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.windows.aggregates import Aggregate

Item = tuple[int, float | None]


def known(items: list[Item]) -> list[float]:
    return [v for _, v in items if v is not None]


def frequent(items: list[Item]) -> list[dict[str, float]]:
    counts = sorted(Counter(known(items)).items(), key=lambda pair: (-pair[1], pair[0]))
    return [{"value": v, "count": n} for v, n in counts[:2]]


def linear(values: list[float], q: float) -> float | None:
    if not values:
        return None
    ordered, place = sorted(values), q * (len(values) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def in_time(items: list[Item]) -> list[tuple[int, float]]:
    return sorted((t, v) for t, v in items if v is not None)


def oldest(items: list[Item]) -> float | None:
    pairs = in_time(items)
    return [v for t, v in pairs if t == pairs[0][0]][-1] if pairs else None


CASES: dict[str, tuple[w.Aggregate, Callable[[list[Item]], Any]]] = {
    "rows": (count(), len),
    "count": (count("v"), lambda items: len(known(items))),
    "sum": (w.sum("v"), lambda items: math.fsum(known(items))),
    "min": (w.min("v"), lambda items: min(known(items), default=None)),
    "max": (w.max("v"), lambda items: max(known(items), default=None)),
    "mean": (mean("v"), lambda items: statistics.fmean(known(items)) if known(items) else None),
    "variance": (variance("v"), lambda items: statistics.variance(known(items)) if len(known(items)) > 1 else None),
    "population": (
        variance("v", ddof=0),
        lambda items: statistics.pvariance(known(items)) if known(items) else None,
    ),
    "std": (std("v"), lambda items: statistics.stdev(known(items)) if len(known(items)) > 1 else None),
    "first": (first("v"), oldest),
    "latest": (latest("v"), lambda items: in_time(items)[-1][1] if in_time(items) else None),
    "latest by": (
        latest("v", by=-pl.col("v")),
        lambda items: min(known(items), default=None),
    ),
    "distinct": (distinct("v"), lambda items: len(set(known(items)))),
    "values": (distinct("v", values=True), lambda items: sorted(set(known(items)))),
    "top_k": (top_k("v", 2), frequent),
    "median": (quantile("v", 0.5), lambda items: linear(known(items), 0.5)),
    "quantiles": (quantile("v", [0.1, 0.9]), lambda items: [linear(known(items), 0.1), linear(known(items), 0.9)]),
    "collect": (collect("v"), lambda items: [v for _, v in in_time(items)]),
    "histogram": (
        histogram("v", [0, 2]),
        lambda items: [
            len([v for v in known(items) if v < 0]),
            len([v for v in known(items) if 0 <= v < 2]),
            len([v for v in known(items) if v >= 2]),
        ],
    ),
}


def frame(items: list[Item], *, back: list[bool] | None = None) -> pl.DataFrame:
    rows = pl.DataFrame(items, schema={"event_time": pl.Int64, "v": pl.Float64}, orient="row")
    rows = rows.with_columns(pl.col("event_time").cast(INSTANT))
    return rows if back is None else rows.with_columns(pl.Series("is_retraction", back, dtype=pl.Boolean))


def fold(aggregate: w.Aggregate, parts: list[pl.DataFrame]) -> Any:
    """Fold each part, merge the partials pairwise, and read the value."""
    merged: pl.DataFrame | None = None
    for part in parts:
        keyed = part.with_columns(key=pl.lit(1))
        fresh = (
            keyed.group_by("key").agg(aggregate.partial("x"))
            if part.height
            else keyed.select(pl.lit(1).alias("key"), *aggregate.partial("x"))
        )
        merged = fresh if merged is None else pl.concat([merged, fresh]).group_by("key").agg(aggregate.merge("x"))
        if compact := aggregate.compact("x"):
            merged = merged.with_columns(compact)
    assert merged is not None
    value = merged.select(aggregate.result("x")).item()
    return value.to_list() if isinstance(value, pl.Series) else value


def same(got: Any, expected: Any) -> bool:
    if isinstance(expected, list):
        return len(got) == len(expected) and all(same(g, e) for g, e in zip(got, expected, strict=True))
    if isinstance(expected, float):
        return got is not None and math.isclose(got, expected, rel_tol=1e-9, abs_tol=1e-6)
    return bool(got == expected)


values = st.one_of(st.none(), st.integers(-5, 5).map(float), st.sampled_from([0.5, 1.25]))
streams = st.lists(st.tuples(st.integers(0, 5), values), max_size=12)


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_any_split_gives_the_brute_force_value(name: str, data: st.DataObject) -> None:
    aggregate, brute = CASES[name]
    items = data.draw(streams)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(items)), max_size=3)))
    edges = [0, *cuts, len(items)]
    parts = [frame(items[a:b]) for a, b in itertools.pairwise(edges)]
    assert same(fold(aggregate, parts), brute(items))


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
@settings(deadline=None, max_examples=12)
def test_what_is_taken_back_counts_for_nothing(name: str, data: st.DataObject) -> None:
    aggregate, brute = CASES[name]
    kept, gone = data.draw(streams), data.draw(streams)
    marked = [*((item, False) for item in kept), *((item, False) for item in gone), *((item, True) for item in gone)]
    marked = data.draw(st.permutations(marked))
    cut = data.draw(st.integers(0, len(marked)))
    parts = [frame([i for i, _ in p], back=[b for _, b in p]) for p in (marked[:cut], marked[cut:])]
    assert same(fold(aggregate.retracting(), parts), brute(kept))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("count", 3),
        ("sum", math.nan),
        ("mean", math.nan),
        ("variance", math.nan),
        ("min", 1.0),
        ("max", 2.0),
        ("median", 1.5),
        ("distinct", 3),
        ("histogram", [0, 1, 1]),
    ],
)
def test_nan_is_a_value_and_null_is_not(name: str, expected: Any) -> None:
    got = fold(CASES[name][0], [frame([(1, 1.0), (2, math.nan), (3, None), (4, 2.0)])])
    if isinstance(expected, float) and math.isnan(expected):
        assert math.isnan(got)
    else:
        assert got == expected


def test_a_null_partial_counts_for_nothing() -> None:
    """A job that gains an aggregate finds windows in its state that have no partials for it."""
    for name, (aggregate, brute) in CASES.items():
        items: list[Item] = [(1, 2.0), (2, 3.0)]
        fresh = frame(items).select(aggregate.partial("x"))
        missing = pl.DataFrame({column: [None] for column in fresh.columns}, schema=fresh.schema)
        parts = pl.concat([missing, fresh, missing]).with_columns(key=pl.lit(1))
        merged = parts.group_by("key").agg(aggregate.merge("x"))
        value = merged.select(aggregate.result("x")).item()
        assert same(value.to_list() if isinstance(value, pl.Series) else value, brute(items)), name


def test_small_integers_are_summed_without_overflow() -> None:
    rows = pl.DataFrame({"v": pl.Series([2**31 - 1] * 4, dtype=pl.Int32)})
    assert rows.select(w.sum("v").partial("x")).item() == 4 * (2**31 - 1)


def test_text_and_structs_have_a_latest_value() -> None:
    rows = pl.DataFrame({"event_time": [1, 2, 2], "v": ["z", "a", "b"]}).with_columns(s=pl.struct("v"))
    assert rows.select(latest("v").partial("x")).select(latest("v").result("x")).item() == "b"
    assert rows.select(latest("s").partial("x")).select(latest("s").result("x")).item() == {"v": "b"}


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PlanError, match="ascending"):
        histogram("v", [3, 1])
    with pytest.raises(PlanError, match="1 or more"):
        top_k("v", 0)
    with pytest.raises(PlanError, match="between 0 and 1"):
        quantile("v", 50)
    for aggregate, _ in CASES.values():
        assert aggregate.describe()
        assert set(aggregate.columns()) <= {"v", "event_time"}


@pytest.mark.parametrize(
    "aggregate",
    [
        mean("v"),
        variance("v"),
        std("v"),
        histogram("v", [1, 2]),
        quantile("v", 0.5),
        quantile("v", [0.5, 0.9], method="kll"),
        quantile("v", 0.5, method="tdigest"),
    ],
    ids=lambda aggregate: aggregate.describe(),
)
def test_numbers_are_asked_for_where_numbers_are_folded(aggregate: Aggregate) -> None:
    for kind in (pl.String, pl.Binary, pl.List(pl.Int64), pl.Struct({"a": pl.Int64}), pl.Enum(["a"])):
        with pytest.raises(PlanError, match="it takes numbers"):
            check_values({"n": aggregate}, pl.Schema({"v": kind}))
    for kind in (pl.Int8, pl.Float32, pl.Boolean, pl.Decimal(10, 2), pl.Duration("us")):
        check_values({"n": aggregate}, pl.Schema({"v": kind}))


def test_the_largest_of_values_without_an_order_is_refused() -> None:
    for aggregate in (w.max("v"), w.min("v")):
        for kind in (pl.Struct({"a": pl.Int64}), pl.List(pl.Int64)):
            with pytest.raises(PlanError, match="have no order"):
                check_values({"n": aggregate}, pl.Schema({"v": kind}))
        check_values({"n": aggregate}, pl.Schema({"v": pl.String}))
