"""Any bytes through every format become a row or a rejection."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.formats import hostile
from tests.formats.cases import CASES
from tests.formats.samples import records

from headrace.formats.format import Records
from headrace.testing.contracts import _outcomes, _part

_HOSTILE = hostile.small()
#: A case of each class of formats: large values take long.
_ONE_OF_EACH = list({type(case.format): case for case in reversed(CASES)}.values())


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
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_hostile_values_keys_and_headers_become_a_row_or_a_rejection(case, data: st.DataObject) -> None:
    """Each is in the place of the value, of the key and of the headers, between good records."""
    good = case.samples
    hostile_value = data.draw(st.sampled_from(_HOSTILE))
    row = data.draw(st.integers(0, len(good) - 1))
    place = data.draw(st.sampled_from(["value", "key", "headers"]))
    parts: dict[str, list[Any]] = {
        "values": good.values.to_pylist(),
        "keys": good.keys.to_pylist(),
        "headers": good.headers.to_pylist(),
    }
    if place == "headers":
        names = ("at", "content-type", "trace-id", "ce_specversion", "ce_id", "ce_time")
        parts["headers"][row] = [{"key": name, "value": hostile_value} for name in names]
    else:
        parts[f"{place}s"][row] = hostile_value
    batch = Records(
        pa.array(parts["values"], pa.binary()),
        pa.array(parts["keys"], pa.binary()),
        pa.array(parts["headers"], good.headers.type),
        good.timestamps,
        good.partitions,
        good.offsets,
    )
    whole = _outcomes(case.format, batch, None)
    assert whole == [_outcomes(case.format, Records(**_part(batch, n, 1)), None)[0] for n in range(len(batch))]
    alone = _outcomes(case.format, good, None)
    assert [*whole[:row], *whole[row + 1 :]] == [*alone[:row], *alone[row + 1 :]], "its neighbours are as they were"


@pytest.mark.slow
@pytest.mark.parametrize("case", _ONE_OF_EACH, ids=lambda case: case.label)
def test_ten_megabytes(case) -> None:
    """A large value is read or rejected within the time limit of the test, and its neighbours are read."""
    neighbours = case.samples
    first = [None, *range(len(neighbours))]
    alone = case.format.decode(neighbours)
    for label, value in hostile.large().items():
        batch = records(value, *neighbours.values.to_pylist())
        keys, headers = neighbours.keys.take(first), neighbours.headers.take(first)
        batch = Records(batch.values, keys, headers, batch.timestamps, batch.partitions, batch.offsets)
        decoded = case.format.decode(batch)
        positions = list(range(len(batch))) if decoded.positions is None else decoded.positions.tolist()
        skipped = 0 if decoded.skipped is None else len(decoded.skipped)
        assert len(positions) + len(decoded.rejections) + skipped == len(batch), label
        assert decoded.frame.height - (0 in positions) == alone.frame.height, label


@pytest.mark.slow
def test_memory_is_bounded() -> None:
    """No value of ten megabytes takes gigabytes: in a process of its own, which tells the most that it held."""
    program = (
        "import resource\n"
        "from tests.formats import hostile\n"
        "from tests.formats.cases import CASES\n"
        "from tests.formats.samples import records\n"
        "large = hostile.large()\n"
        "for name in ('nested objects', 'repeated keys', 'a long array', 'columns', 'groups'):\n"
        "    for case in {type(case.format): case for case in CASES}.values():\n"
        "        case.format.decode(records(large[name]))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 3_000_000, "kilobytes"
