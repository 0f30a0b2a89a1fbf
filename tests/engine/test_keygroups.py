"""Key groups: saved state depends on them, so the values below may never change."""

from __future__ import annotations

import zlib
from datetime import UTC, date, datetime, time, timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine.keygroups import check_key, key_groups, split_by_group
from headrace.errors import PlanError

GROUPS = 1000

PINNED = [
    pytest.param(pl.Series(["a", "40/456", "", "ä", None]), [21, 416, 55, 929, 984], id="text"),
    pytest.param(pl.Series([b"a", b"", b"\xff", None]), [21, 55, 232, 984], id="bytes are text without a name"),
    pytest.param(pl.Series([0, 1, -1, 2**63 - 1, -(2**63), None]), [55, 158, 767, 422, 976, 700], id="whole numbers"),
    pytest.param(pl.Series([0, 1, 2**64 - 1, None], dtype=pl.UInt64), [55, 158, 767, 700], id="unsigned"),
    pytest.param(pl.Series([True, False, None]), [158, 55, 700], id="booleans"),
    pytest.param(pl.Series([date(1970, 1, 2), date(2026, 1, 1), None]), [158, 668, 700], id="dates"),
    pytest.param(pl.Series([datetime(2026, 1, 1, tzinfo=UTC)], dtype=pl.Datetime("us", "UTC")), [711], id="instants"),
    pytest.param(pl.Series([time(0, 0, 1)]), [535], id="times of day"),
    pytest.param(pl.Series([timedelta(microseconds=1)]), [158], id="durations"),
    pytest.param(pl.Series(["a", "40/456", None], dtype=pl.Categorical), [21, 416, 984], id="categoricals"),
    pytest.param(pl.Series(["b", "a"], dtype=pl.Enum(["a", "b"])), [595, 21], id="enums"),
]


@pytest.mark.parametrize(("column", "groups"), PINNED)
def test_a_key_keeps_its_group_for_ever(column: pl.Series, groups: list[int]) -> None:
    assert key_groups(pl.DataFrame({"k": column}), ["k"], GROUPS).tolist() == groups


def test_composite_keys_keep_their_group_and_their_order_counts() -> None:
    frame = pl.DataFrame({"a": ["x", "y", "x", None], "b": [1, 1, None, None]})
    assert key_groups(frame, ["a", "b"], GROUPS).tolist() == [717, 959, 990, 364]
    assert key_groups(frame, ["b", "a"], GROUPS).tolist() != [717, 959, 990, 364]


@pytest.mark.parametrize("kind", [pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64])
def test_a_number_has_the_same_group_in_any_width(kind: type[pl.DataType]) -> None:
    numbers = list(range(100))
    narrow = key_groups(pl.DataFrame({"k": pl.Series(numbers, dtype=kind)}), ["k"], 64)
    assert narrow.tolist() == key_groups(pl.DataFrame({"k": numbers}), ["k"], 64).tolist()


@pytest.mark.parametrize(
    "keys",
    [
        pl.Series(range(20_000)),
        pl.Series(range(0, 20_000_000, 1000)),
        pl.Series([f"{number % 60}/{number}" for number in range(20_000)]),
        pl.Series(range(20_000)).cast(pl.Date),
    ],
    ids=["neighbours", "multiples", "vehicles", "dates"],
)
@pytest.mark.parametrize("groups", [2, 7, 64])
def test_keys_spread_evenly(keys: pl.Series, groups: int) -> None:
    sizes = np.bincount(key_groups(pl.DataFrame({"k": keys}), ["k"], groups), minlength=groups)
    expected = keys.len() / groups
    assert sizes.min() > 0.8 * expected
    assert sizes.max() < 1.25 * expected


@settings(deadline=None, max_examples=100)
@given(
    keys=st.lists(st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(-3, 3)), max_size=40),
    groups=st.integers(1, 9),
)
def test_splitting_keeps_the_order_and_loses_nothing(keys: list[tuple[str | None, int]], groups: int) -> None:
    frame = pl.DataFrame(keys, schema={"a": pl.String, "b": pl.Int64}, orient="row").with_row_index("number")
    parts = split_by_group(frame, ["a", "b"], groups)
    numbers = key_groups(frame, ["a", "b"], groups).tolist()
    found = {group: part.get_column("number").to_list() for group, part in parts.items()}
    assert found == {group: [n for n, of in enumerate(numbers) if of == group] for group in set(numbers)}
    assert all(part.equals(frame[part.get_column("number").to_list()]) for part in parts.values())


def test_without_keys_or_rows_all_is_in_group_0() -> None:
    frame = pl.DataFrame({"k": ["a", "b"]})
    assert key_groups(frame, [], 8).tolist() == [0, 0]
    assert split_by_group(frame.clear(), ["k"], 8) == {}
    assert key_groups(frame.clear(), ["k"], 8).tolist() == []


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (pl.Float64(), "floating-point"),
        (pl.Float32(), "floating-point"),
        (pl.List(pl.Int64), "List"),
        (pl.Struct({"a": pl.Int64}), "Struct"),
        (pl.Decimal(10, 2), "Decimal"),
        (pl.Int128(), "Int128"),
        (pl.Null(), "Null"),
    ],
)
def test_what_cannot_be_a_key_is_refused_by_name(kind: pl.DataType, words: str) -> None:
    with pytest.raises(PlanError, match=f"column 'k'.*{words}"):
        check_key("k", kind)
    with pytest.raises(PlanError, match="column 'k'"):
        key_groups(pl.DataFrame({"k": pl.Series([None], dtype=kind)}), ["k"], 8)


@settings(deadline=None)
@given(
    keys=st.lists(st.one_of(st.none(), st.text(max_size=60), st.text(max_size=8)), min_size=1, max_size=30),
    start=st.integers(0, 5),
)
def test_texts_are_told_apart_by_their_checksum_however_they_are_stored(keys: list[str | None], start: int) -> None:
    column = pl.Series(keys, dtype=pl.String)[start:]
    if not len(column):
        return
    by_number = [0xFFFFFFFFFF if key is None else zlib.crc32(key.encode()) for key in column.to_list()]
    numbers = pl.DataFrame({"k": pl.Series(by_number, dtype=pl.UInt64)})
    assert key_groups(pl.DataFrame({"k": column}), ["k"], 997).tolist() == key_groups(numbers, ["k"], 997).tolist()
