"""State that the version before pages has saved is read, and goes on as if it had been in pages all along.

`data/state_before_pages.json` was written by that version: the segments of each operator of `test_state_cost` after the
first two turns below.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tests.windows.test_state_cost import HOUR, OPERATORS, rows

from headrace.engine import MemorySegments, Turn
from headrace.errors import StateError
from headrace.time.instants import END

if TYPE_CHECKING:
    import polars as pl

SAVED = json.loads((Path(__file__).parent / "data" / "state_before_pages.json").read_text())


def saved(name: str) -> MemorySegments:
    return MemorySegments({segment: base64.b64decode(value) for segment, value in SAVED[name].items()})


def told(frame: pl.DataFrame | None) -> list[tuple[object, ...]]:
    return [] if frame is None else sorted(frame.rows(), key=repr)


@pytest.mark.parametrize("name", OPERATORS)
def test_it_goes_on_as_if_it_had_been_in_pages(name: str) -> None:
    operator, afresh, before = OPERATORS[name], MemorySegments(), saved(name)
    operator.turn(afresh, Turn(rows(np.arange(8), 0), 1, 0))
    operator.turn(afresh, Turn(rows(np.arange(4), 5_000_000), 6_000_000, 1))
    results = 0
    for turn in (
        Turn(rows(np.arange(6), 7_000_000), 8_000_000, 2),
        Turn(rows(np.arange(3, 10), 9_000_000), 10_000_000, 2 * HOUR),
        Turn(rows(np.arange(0), 0), 9 * HOUR, 3 * HOUR),
        Turn(rows(np.arange(0), 0), END, 4 * HOUR),
    ):
        one, two = operator.turn(before, turn), operator.turn(afresh, turn)
        assert told(one.rows) == told(two.rows)
        results += len(told(one.rows))
    assert results > 0
    assert before.content.keys() == afresh.content.keys()


@pytest.mark.parametrize("name", ["session", "deduplicate"])
def test_what_is_missing_in_it_is_told(name: str) -> None:
    state = saved(name)
    state.delete(next(segment for segment in state.content if segment != "index"))
    with pytest.raises(StateError, match="is missing"):
        OPERATORS[name].turn(state, Turn(rows(np.arange(1), 7_000_000), 8_000_000, 2))
