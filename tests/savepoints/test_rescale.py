"""State on another number of key groups: no result is lost or changed."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.savepoints.jobs import KEYED, Row, answers, batches, every_kind, frame, run_through

from headrace.engine import Operator, Outcome, Segments, Turn
from headrace.errors import StateError
from headrace.inprocess import Batch, Runner

JOB = every_kind()


@settings(deadline=None, max_examples=8)
@given(parts=batches(), groups=st.lists(st.sampled_from([1, 2, 3, 8]), min_size=6, max_size=6))
def test_a_run_that_changes_its_key_groups_is_one_that_does_not(parts: list[list[Row]], groups: list[int]) -> None:
    found: list[Batch] = []
    runner = Runner(JOB, key_groups=groups[0])
    for number, part in enumerate(parts):
        runner = Runner(JOB, key_groups=groups[number], snapshot=runner.snapshot())
        found.append(runner.step(frame(part), now=number))
    runner = Runner(JOB, key_groups=groups[len(parts)], snapshot=runner.snapshot())
    found.append(runner.finish())
    assert answers(found) == answers(run_through(JOB, parts))


def test_all_kinds_of_steps_have_state_and_results_in_these_tests() -> None:
    parts = [[(v, n % 3, float(n % 9), n + 20 * p) for n, v in enumerate("abcdefg" * 3)] for p in range(4)]
    runner = Runner(JOB, key_groups=2)
    runner.step(frame(parts[0]))
    assert all(
        any(name.startswith("op/") for group in groups for name in group) for groups in runner.snapshot().values()
    )
    found = answers(run_through(JOB, parts))
    assert all(shown for name, shown in found.items() if not name.startswith("#")), found


def test_many_keys_in_pages_are_spread_evenly_and_found_again() -> None:
    numbers = pl.int_range(20_000, eager=True)
    many = pl.DataFrame({"vehicle": numbers.cast(pl.String), "line": numbers % 7, "speed": numbers * 0.5})
    many = many.with_columns(event_time=pl.lit(10).cast(pl.Datetime("us", "UTC")))
    runner = Runner(JOB, key_groups=1)
    runner.step(many)
    wide = Runner(JOB, key_groups=8, snapshot=runner.snapshot())
    sizes = [sum(map(len, group.values())) for group in wide.snapshot()["sessions"]]
    assert max(sizes) < 1.2 * min(sizes)
    narrow = Runner(JOB, key_groups=3, snapshot=wide.snapshot())
    assert answers([narrow.finish()]) == answers([runner.finish()])


class Total(Operator):
    """Adds up rows, and does not say how its state is spread over key groups."""

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        state.put("total", str(int(state.get("total") or b"0") + turn.rows.height).encode())
        return Outcome()

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return rows

    def fingerprint(self) -> dict[str, str]:
        return {"operator": "total"}


def test_an_operator_that_does_not_say_how_is_refused_with_what_can_be_done() -> None:
    stream = KEYED.process(lambda *_: Total()).named("total")
    runner = Runner(stream, key_groups=2)
    runner.step(frame([("a", 1, 2.0, 3)]))
    with pytest.raises(StateError, match="step 'total' is on 2 key groups and cannot be spread over 3: Total") as error:
        Runner(stream, key_groups=3, snapshot=runner.snapshot())
    assert "key_groups=2" in str(error.value.hint)
