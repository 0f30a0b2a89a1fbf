"""Random queries give what DuckDB gives, at once and as streams in batches with a restart."""

from __future__ import annotations

import pytest
from tests.streaming_sql.differential import compare

_FEW = 30


@pytest.mark.parametrize("seed", range(0, _FEW, 10))
def test_random_queries_are_the_same_in_duckdb(seed: int) -> None:
    differences = [compare(number) for number in range(seed, seed + 10)]
    assert [each for each in differences if each is not None] == []


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_random_queries_are_the_same_in_duckdb() -> None:
    differences = [compare(number) for number in range(_FEW, 3_000)]
    assert [each for each in differences if each is not None] == []
