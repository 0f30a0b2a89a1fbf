"""Any bytes through every format become a row or a rejection."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats.cases import CASES
from tests.formats.samples import records

from headrace.formats.format import Records
from headrace.testing.contracts import _outcomes, _part


@st.composite
def damaged(draw: st.DrawFn, good: list[bytes]) -> bytes:
    """A good value with a few bytes changed, cut off or put in."""
    value = bytearray(draw(st.sampled_from(good)))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(value)))
        kind = draw(st.sampled_from(["insert", "delete", "change", "cut"]))
        if kind == "insert":
            value[place:place] = draw(st.binary(max_size=4))
        elif kind == "delete":
            del value[place : place + draw(st.integers(1, 4))]
        elif kind == "change" and place < len(value):
            value[place] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x22, 0x2C]))
        elif kind == "cut":
            del value[place:]
    return bytes(value)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_any_bytes_become_a_row_or_a_rejection(case, data: st.DataObject) -> None:
    good = [value for value in case.samples.values.to_pylist() if value is not None]
    one = st.one_of(damaged(good), st.binary(max_size=60), st.none(), st.sampled_from(good))
    values = data.draw(st.lists(one, min_size=1, max_size=8))
    picks = data.draw(st.lists(st.integers(0, len(case.samples) - 1), min_size=len(values), max_size=len(values)))
    batch = records(*values)
    batch = Records(batch.values, case.samples.keys.take(picks), case.samples.headers.take(picks), batch.timestamps)
    whole = _outcomes(case.format, batch, None)
    single = [_outcomes(case.format, Records(**_part(batch, n, 1)), None)[0] for n in range(len(values))]
    assert whole == single
    rejected = [not isinstance(outcome, dict) for outcome in whole]
    assert rejected == [not isinstance(outcome, dict) for outcome in _outcomes(case.format, batch, [])]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
@pytest.mark.parametrize(
    "value",
    [b"[" * 10_000_000, b"\x00" * 10_000_000, b"\xff" * 10_000_000, b'"' * 10_000_001, b"\x02" * 10_000_000],
    ids=["brackets", "zeros", "ones", "quotes", "twos"],
)
def test_ten_megabytes(case, value: bytes) -> None:
    """A large value is read or rejected within the time limit of the test, and its neighbours are read."""
    neighbours = case.samples
    batch = records(value, *neighbours.values.to_pylist())
    first = [None, *range(len(neighbours))]
    batch = Records(batch.values, neighbours.keys.take(first), neighbours.headers.take(first), batch.timestamps)
    decoded = case.format.decode(batch)
    positions = list(range(len(batch))) if decoded.positions is None else decoded.positions.tolist()
    assert len(positions) + len(decoded.rejections) == len(batch)
    alone = case.format.decode(Records(**_part(batch, 1, len(neighbours))))
    assert decoded.frame.height - (0 in positions) == alone.frame.height
