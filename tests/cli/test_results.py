"""What the live view makes of a result record."""

from __future__ import annotations

import pytest

from headrace.cli.results import row_of
from headrace.events import Codec
from headrace.events.schemas.records_pb2 import Column, Result
from headrace_transit.schemas import VehiclePosition

CELL = 617294884144414719


def value(**fields: object) -> bytes:
    result = Result(job="vehicle-distribution", key=str(CELL), pane_timing="on_time")
    result.window_end.FromMicroseconds(5_000_000)
    result.columns.append(Column(name="cell", type="u64", unsigned=CELL))
    result.columns.append(Column(name="vehicles", type="u32", unsigned=4))
    for name, content in fields.items():
        setattr(result, name, content)
    return Codec().write(result, event_time=5_000_000)


def test_a_result_is_a_cell_with_a_count() -> None:
    row = row_of(Codec(), value(), 5_700_000)
    assert row is not None
    assert (row.key, row.count, row.window_end, row.published) == ("891126d3317ffff", 4, 5_000_000, 5_700_000)
    assert row.on_time


@pytest.mark.parametrize(("timing", "on_time"), [("early", False), ("late", False), ("on_time", True)])
def test_only_the_first_complete_answer_counts_for_latency(timing: str, on_time: bool) -> None:
    row = row_of(Codec(), value(pane_timing=timing), 0)
    assert row is not None
    assert row.on_time is on_time


def test_what_is_no_windowed_result_is_left_out() -> None:
    codec = Codec()
    assert row_of(codec, None, 0) is None
    assert row_of(codec, b"rubbish", 0) is None
    assert row_of(codec, value(is_retraction=True), 0) is None
    assert row_of(codec, codec.write(Result(key="x"), event_time=1), 0) is None
    assert row_of(codec, codec.write(VehiclePosition(vehicle_id="x"), event_time=1), 0) is None
