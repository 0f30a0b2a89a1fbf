"""Sketches: quantiles, distinct counts and frequent values in little memory, with a stated error.

A sketch sums a stream up in a few kilobytes whatever its length, and two sketches of two streams merge into that of
both. They come from the `datasketches` package; a partial is one as bytes. Nothing can be taken out of a sketch
again, so they refuse retractions. The kinds:

- **kll**: quantiles with the same error of rank everywhere; `k=200` gives about 1.3 %.
- **tdigest**: quantiles that are sharper at the ends (p99, p999) and interpolated in between.
- **hll**: distinct counts; `lg_k=12` gives about 1.6 %.
- **theta**: distinct counts whose sketches can also be intersected elsewhere.
- **frequent**: the values that make up most of a stream, with bounds of their counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import datasketches
import numpy as np
import polars as pl

from headrace.errors import PlanError
from headrace.windows.aggregates import Aggregate, Bulk, Column, Need, column, label_of
from headrace.windows.bags import Values, exact_distinct, exact_quantile
from headrace.windows.tdigest import Digest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.windows.bags import Interpolation


@dataclass(frozen=True)
class Sketch(Aggregate):
    """A sketch of a column.

    Args:
        name_: What a user wrote.
        of: The column.
        build: Makes the sketch of values that are neither null nor NaN, as bytes.
        union: Makes one of several, as bytes; at least one is given.
        read: Reads the result out of the bytes.
        kind: Type of the result.
        empty: Result where nothing was seen.
        numbers: Whether `build` takes an array of numbers and not a series.
    """

    name_: str
    of: pl.Expr = field(compare=False)
    build: Callable[[Any], bytes] = field(compare=False)
    union: Callable[[Sequence[bytes]], bytes] = field(compare=False)
    read: Callable[[bytes], Any] = field(compare=False)
    kind: pl.DataType
    empty: Any = None
    numbers: bool = False

    def needs(self) -> Need | None:
        """Numbers, if `build` takes these; they are what the column is cast from."""
        return Need("numbers", self.of.meta.pop()[0]) if self.numbers else None

    def partial(self, name: str) -> list[pl.Expr]:
        """Make a sketch per group."""
        made = self.of.map_batches(self._one_built, return_dtype=pl.Binary, returns_scalar=True)
        return [made.alias(f"{name}.sketch")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Merge the sketches of each group."""
        parts = pl.col(f"{name}.sketch")
        return [parts.map_batches(self._merged, return_dtype=pl.Binary, returns_scalar=True)]

    def gather(self, name: str) -> Bulk:
        """Collect the values of each group, then make all sketches in one go."""
        made = pl.col(f"{name}.sketch").map_batches(self._built, return_dtype=pl.Binary)
        return Bulk([self.of.implode().alias(f"{name}.sketch")], [made])

    def regather(self, name: str) -> Bulk:
        """Collect the sketches of each group, then merge them in one go."""
        merged = pl.col(f"{name}.sketch").map_batches(self._merged_lists, return_dtype=pl.Binary)
        return Bulk([pl.col(f"{name}.sketch").implode()], [merged])

    def result(self, name: str) -> pl.Expr:
        """Read the result out of each sketch."""
        return pl.col(f"{name}.sketch").map_batches(self._read_all, return_dtype=self.kind).alias(name)

    def retracting(self) -> Aggregate:
        """Refuse: nothing can be taken out of a sketch."""
        raise PlanError(
            f"{self.name_} cannot take back what it has counted, but the step before revises its results",
            hint='Use the exact aggregate (method="exact"), or let the step before fire once.',
        )

    def columns(self) -> list[str]:
        """Name the columns that are read."""
        return self.of.meta.root_names()

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return self.name_

    def _merged(self, parts: pl.Series) -> bytes | None:
        return self._merged_list(parts.to_list())

    def _one_built(self, values: pl.Series) -> bytes:
        return self.build(_numbers(values.to_numpy()) if self.numbers else values.drop_nulls())

    def _built(self, groups: pl.Series) -> pl.Series:
        values = groups.explode(empty_as_null=False)
        ends = groups.list.len().cum_sum().to_list()
        bounds = list(zip([0, *ends], ends, strict=False))
        if self.numbers:
            # To take each group out of one array is many times as fast as to ask Polars for it.
            numbers = values.to_numpy()
            blobs = [self.build(_numbers(numbers[start:end])) for start, end in bounds]
        else:
            blobs = [self.build(values.slice(start, end - start).drop_nulls()) for start, end in bounds]
        return pl.Series(blobs, dtype=pl.Binary)

    def _merged_lists(self, groups: pl.Series) -> pl.Series:
        return pl.Series([self._merged_list(parts) for parts in groups.to_list()], dtype=pl.Binary)

    def _merged_list(self, parts: list[bytes | None]) -> bytes | None:
        if len(parts) == 1:
            return parts[0]
        known = [part for part in parts if part is not None]
        return self.union(known) if len(known) > 1 else known[0] if known else None

    def _read_all(self, sketches: pl.Series) -> pl.Series:
        values = [self.empty if blob is None else self.read(blob) for blob in sketches.to_list()]
        return pl.Series(values, dtype=self.kind)


Method = Literal["exact", "kll", "tdigest"]


def quantile(
    of: Column,
    q: float | Sequence[float],
    *,
    method: Method = "exact",
    k: int | None = None,
    interpolation: Interpolation = "linear",
) -> Values | Sketch:
    """Take one quantile of a column, or a list of several.

    Args:
        of: The column; nulls and NaN are left out.
        q: A share between 0 and 1, or several.
        method: "exact" keeps all values; "kll" and "tdigest" keep a sketch.
        k: Size of the sketch: 200 for kll, 100 for tdigest unless told.
        interpolation: Between two values, of the exact method.

    >>> rows = pl.DataFrame({"v": [1.0, 2.0, 3.0]})
    >>> for method in ("exact", "kll", "tdigest"):
    ...     median = quantile("v", 0.5, method=method)
    ...     print(rows.select(median.partial("m")).select(median.result("m")).item())
    2.0
    2.0
    2.0
    """
    exact = exact_quantile(of, q, interpolation=interpolation)
    if method == "exact":
        return exact
    levels = [float(q)] if isinstance(q, float | int) else [float(level) for level in q]
    one = isinstance(q, float | int)
    size = k or (200 if method == "kll" else 100)
    label = f"quantile({label_of(of)}, {q}, method={method!r}, k={size})"
    kind = pl.Float64() if one else pl.List(pl.Float64)
    empty = None if one else [None] * len(levels)
    expr = column(of).cast(pl.Float64)

    def told(values: list[float | None]) -> Any:
        return values[0] if one else values

    if method == "kll":

        def read_kll(blob: bytes) -> Any:
            sketch = datasketches.kll_doubles_sketch.deserialize(blob)
            return told([None] * len(levels) if sketch.is_empty() else list(sketch.get_quantiles(levels, True)))

        return Sketch(label, expr, partial(_kll, k=size), _kll_union, read_kll, kind, empty, numbers=True)
    if method == "tdigest":

        def read_digest(blob: bytes) -> Any:
            centroids = Digest.load(blob).centroids()
            return told([centroids.quantile(level) for level in levels])

        build = partial(_digest, k=size)
        return Sketch(label, expr, build, _digest_union, read_digest, kind, empty, numbers=True)
    raise PlanError(f"quantile has no method {method!r}", hint='Choose "exact", "kll" or "tdigest".')


def distinct(
    of: Column, *, values: bool = False, method: Literal["exact", "hll", "theta"] = "exact", lg_k: int = 12
) -> Values | Sketch:
    """Count the different values of a column.

    Args:
        of: The column; nulls are left out.
        values: Give the values, in order, instead of their number; exact only.
        method: "exact" keeps the values; "hll" and "theta" keep a sketch and give an estimate.
        lg_k: Size of the sketch, as a power of two.

    >>> rows = pl.DataFrame({"v": ["a", "b", "a"]})
    >>> estimate = distinct("v", method="hll")
    >>> round(rows.select(estimate.partial("n")).select(estimate.result("n")).item())
    2
    """
    if method == "exact":
        return exact_distinct(of, values=values)
    if values:
        raise PlanError(
            f"distinct(values=True, method={method!r})", hint="A sketch does not know the values: exact only."
        )
    label, expr = f"distinct({label_of(of)}, method={method!r}, lg_k={lg_k})", column(of)
    if method == "hll":
        return Sketch(
            label,
            expr,
            lambda seen: _hll(seen, lg_k),
            lambda parts: _hll_union(parts, lg_k),
            lambda blob: datasketches.hll_sketch.deserialize(blob).get_estimate(),
            pl.Float64(),
            0.0,
        )
    if method == "theta":
        return Sketch(
            label,
            expr,
            lambda seen: _theta(seen, lg_k),
            lambda parts: _theta_union(parts, lg_k),
            lambda blob: datasketches.compact_theta_sketch.deserialize(blob).get_estimate(),
            pl.Float64(),
            0.0,
        )
    raise PlanError(f"distinct has no method {method!r}", hint='Choose "exact", "hll" or "theta".')


def frequent_items(of: Column, k: int, *, lg_size: int = 10) -> Sketch:
    """List the `k` most frequent values, as text, with an estimate and bounds of their counts, from a sketch.

    Args:
        of: The column; values are taken as text.
        k: How many at most.
        lg_size: Size of the sketch, as a power of two; it knows every value that makes up more than 3.5 / 2^lg_size.

    >>> rows = pl.DataFrame({"v": ["a", "b", "a"]})
    >>> top = frequent_items("v", 1)
    >>> rows.select(top.partial("t")).select(top.result("t")).item().to_list()
    [{'value': 'a', 'count': 2, 'at_least': 2, 'at_most': 2}]
    """
    if k < 1:
        raise PlanError(f"frequent_items of {k} values", hint="Give a number of 1 or more.")
    counted = {"value": pl.String, "count": pl.Int64, "at_least": pl.Int64, "at_most": pl.Int64}

    def read(blob: bytes) -> list[dict[str, Any]]:
        sketch = datasketches.frequent_strings_sketch.deserialize(blob)
        found = sketch.get_frequent_items(datasketches.frequent_items_error_type.NO_FALSE_NEGATIVES)
        ordered = sorted(found, key=lambda item: (-item[1], item[0]))[:k]
        return [dict(zip(counted, item, strict=True)) for item in ordered]

    return Sketch(
        f"frequent_items({label_of(of)}, {k}, lg_size={lg_size})",
        column(of).cast(pl.String),
        lambda seen: _frequent(seen, lg_size),
        lambda parts: _frequent_union(parts, lg_size),
        read,
        pl.List(pl.Struct(counted)),
        [],
    )


def _numbers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    # Picking makes an array of its own, the only kind that the sketches take.
    return values[~np.isnan(values)]


def _kll(values: NDArray[np.float64], k: int) -> bytes:
    sketch = datasketches.kll_doubles_sketch(k)
    sketch.update(values)
    return bytes(sketch.serialize())


def _kll_union(parts: Sequence[bytes]) -> bytes:
    sketch = datasketches.kll_doubles_sketch.deserialize(parts[0])
    for blob in parts[1:]:
        sketch.merge(datasketches.kll_doubles_sketch.deserialize(blob))
    return bytes(sketch.serialize())


def _digest(values: NDArray[np.float64], k: int) -> bytes:
    digest = Digest(k)
    digest.update(values)
    return digest.pack()


def _digest_union(parts: Sequence[bytes]) -> bytes:
    digest = Digest.load(parts[0])
    for blob in parts[1:]:
        digest.merge(Digest.load(blob))
    return digest.pack()


def _hashable(values: pl.Series) -> list[Any]:
    plain = values.unique()
    if plain.dtype.is_integer() or plain.dtype.is_float() or plain.dtype == pl.String:
        return plain.to_list()
    if plain.dtype.is_temporal() or plain.dtype == pl.Boolean:
        return plain.to_physical().cast(pl.Int64).to_list()
    return plain.cast(pl.String).to_list()


def _hll(values: pl.Series, lg_k: int) -> bytes:
    sketch = datasketches.hll_sketch(lg_k)
    for value in _hashable(values):
        sketch.update(value)
    return bytes(sketch.serialize_compact())


def _hll_union(parts: Sequence[bytes], lg_k: int) -> bytes:
    union = datasketches.hll_union(lg_k)
    for blob in parts:
        union.update(datasketches.hll_sketch.deserialize(blob))
    return bytes(union.get_result().serialize_compact())


def _theta(values: pl.Series, lg_k: int) -> bytes:
    sketch = datasketches.update_theta_sketch(lg_k)
    for value in _hashable(values):
        sketch.update(value)
    return bytes(sketch.compact().serialize())


def _theta_union(parts: Sequence[bytes], lg_k: int) -> bytes:
    union = datasketches.theta_union(lg_k)
    for blob in parts:
        union.update(datasketches.compact_theta_sketch.deserialize(blob))
    return bytes(union.get_result().serialize())


def _frequent(values: pl.Series, lg_size: int) -> bytes:
    sketch = datasketches.frequent_strings_sketch(lg_size)
    counts = values.value_counts(sort=True, name="#count")
    for value, number in counts.iter_rows():
        sketch.update(value, number)
    return bytes(sketch.serialize())


def _frequent_union(parts: Sequence[bytes], lg_size: int) -> bytes:
    sketch = datasketches.frequent_strings_sketch(lg_size)
    for blob in parts:
        sketch.merge(datasketches.frequent_strings_sketch.deserialize(blob))
    return bytes(sketch.serialize())
