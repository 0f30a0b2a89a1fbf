"""Looking into the state of a job: what each kind of step shows, by key, by size, and in SQL."""

from __future__ import annotations

from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from tests.savepoints.jobs import COLUMNS, KEYED, POSITIONS, Row, batches, every_kind, frame

from headrace.engine import Operator, Outcome, Segments, Turn
from headrace.engine.state import frame_to_bytes
from headrace.errors import StateError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace.windows import sum as total

JOB = every_kind()
PARTS: list[list[Row]] = [[(v, n % 3, float(n % 9), n + 20 * p) for n, v in enumerate("abcdefg" * 3)] for p in range(3)]


def stopped(groups: int = 2) -> Runner:
    runner = Runner(JOB, key_groups=groups)
    for number, part in enumerate(PARTS):
        runner.step(frame(part), now=number)
    return runner


def at(micros: int) -> datetime:
    return datetime(1970, 1, 1, 0, 0, 0, micros, tzinfo=UTC)


def test_every_kind_of_step_shows_what_it_keeps_and_waits_for() -> None:
    state = stopped().state()
    found = {step: set(state.tables(step)) for step in state.steps}
    expected = {
        "sliced": {"windows"},
        "revised": {"windows"},
        "early": {"windows"},
        "sessions": {"windows"},
        "threes": {"windows", "pending"},
        "stops": {"pending", "partial_matches"},
        "falls": {"pending", "partial_matches"},
        "before": {"pending", "newest"},
        "once": {"passed"},
        "previous-by-vehicle+changes": {"pending", "newest", "windows"},
        "shallow.retracting": {"windows"},
        "deep": {"windows"},
    }
    assert {step: found[step] for step in expected} == expected
    [partial] = state.tables("stops")["partial_matches"].drop("key_group").rows(named=True)
    assert partial == {
        "vehicle": "b",
        "began": at(55),
        "rows": 1,
        "last": "moving",
        "last_time": at(55),
        "waits_for": "stopped",
        "deadline": at(75),
        "complete": False,
    }


@settings(deadline=None, max_examples=10)
@given(parts=batches())
def test_windows_show_what_they_would_give_and_looking_changes_nothing(parts: list[list[Row]]) -> None:
    for stream in (
        KEYED.window(tumbling(10)).aggregate(n=count(), speed=total("speed")),
        KEYED.window(tumbling(10), allowed_lateness=8).aggregate(n=count(), speed=total("speed")),
    ):
        runner = Runner(stream.named("step"), key_groups=3)
        for number, part in enumerate(parts):
            runner.step(frame(part), now=number)
        before = runner.snapshot()
        shown = runner.state().tables("step").get("windows")
        assert runner.snapshot() == before
        names = ["vehicle", "window_start", "window_end", "n", "speed"]
        unfired = [] if shown is None else shown.filter(pl.col("panes") == 0 if "panes" in shown.columns else True)
        expected = runner.finish().results
        assert sorted(() if shown is None else unfired.select(names).rows()) == sorted(expected.select(names).rows())


def test_the_number_of_key_groups_makes_no_difference_to_what_is_shown() -> None:
    one, many = stopped(1).state(), stopped(8).state()
    # Others may keep some rows longer on one key group than on another, until somebody looks at their page.
    for step in ("sliced", "revised", "early", "sessions", "threes", "stops", "falls", "deep"):
        for name, rows in one.tables(step).items():
            shown = [sorted(map(str, each.drop("key_group").rows())) for each in (rows, many.tables(step)[name])]
            assert shown[0] == shown[1], (step, name)


def test_sizes_tell_all_bytes_and_the_largest_keys_come_first() -> None:
    patient = Stream.rows("positions", COLUMNS).watermark(bounded(100)).key_by("vehicle")
    runner = Runner(patient.window(tumbling(10)).aggregate(n=count()).named("step"), key_groups=4)
    runner.step(frame([*(("a", 1, 1.0, second) for second in (101, 111, 121, 131)), ("b", 1, 1.0, 135)]))
    state, saved = runner.state(), runner.snapshot()["step"]
    assert state.sizes()["bytes"].to_list() == [sum(map(len, parts.values())) for parts in saved]
    assert state.sizes()["watermark"].to_list() == [at(35)] * 4
    assert sum(state.sizes()["rows"]) == 5
    assert state.largest_keys().select("step", "table", "key", "rows").rows() == [
        ("step", "windows", "a", 4),
        ("step", "windows", "b", 1),
    ]
    assert state.largest_keys(1).height == 1


def test_the_rows_of_a_key_are_found_by_value_or_by_what_it_looks_like() -> None:
    runner = Runner(
        POSITIONS.key_by("vehicle", "line").window(tumbling(10)).aggregate(n=count()).named("step"), key_groups=3
    )
    runner.step(frame([("a", 1, 1.0, 1), ("a", 1, 1.0, 2), ("a", 2, 1.0, 3)]))
    state = runner.state()
    assert state.of_key("a", 1)["step"]["windows"]["n"].to_list() == [2]
    assert state.of_key("a", "2")["step"]["windows"]["n"].to_list() == [1]
    assert state.of_key("a", 9) == {}
    assert state.of_key("a") == {}


def test_sql_over_the_state() -> None:
    state = stopped().state()
    expected = state.of_key("a")["sliced"]["windows"]["n"].sum()
    assert expected > 0
    assert state.sql("SELECT SUM(n) AS n FROM sliced_windows WHERE vehicle = 'a'")["n"].to_list() == [expected]
    assert state.sql("SELECT COUNT(*) AS n FROM sizes")["n"].to_list() == [2 * len(state.steps)]
    assert state.only("once").sql("SELECT vehicle FROM passed ORDER BY vehicle LIMIT 1")["vehicle"].to_list() == ["a"]
    with pytest.raises(StateError, match="cannot be answered") as error:
        state.sql("SELECT * FROM nothing")
    assert "sliced_windows" in str(error.value.hint)
    with pytest.raises(StateError, match="no state of a step 'other'"):
        state.only("other")


def test_joins_and_tables_show_the_rows_that_they_keep() -> None:
    left = Stream.rows("left", {"k": pl.String, "a": pl.Int64}).watermark(bounded(0))
    right = Stream.rows("right", {"k": pl.String, "b": pl.Int64}).watermark(bounded(0))
    joined = left.join(right, on="k", within=("-10us", "10us"), how="left").named("near")
    runner = Runner(joined)
    time = pl.Series("event_time", [3], dtype=pl.Datetime("us", "UTC"))
    runner.step({"left": pl.DataFrame({"k": ["x"], "a": [1]}).with_columns(time)})
    state = runner.state()
    [(name, rows)] = state.tables("near").items()
    assert name == "left"
    assert rows.height == 1
    assert state.of_key("x")["near"]["left"].height == 1


class Silent(Operator):
    """Keeps a frame, and says nothing of its state."""

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        if turn.rows.height:
            state.put("seen/7", frame_to_bytes(turn.rows.select("vehicle")))
        return Outcome()

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return rows

    def fingerprint(self) -> dict[str, str]:
        return {"operator": "silent"}


def test_an_operator_that_says_nothing_of_itself_is_shown_by_its_frames() -> None:
    runner = Runner(KEYED.process(lambda *_: Silent()).named("own"), key_groups=1)
    runner.step(frame([("a", 1, 2.0, 3)]))
    assert runner.state().of_key("a")["own"]["seen"].select("vehicle").rows() == [("a",)]
    # A changed job shows the old state as far as it can be read without its operator.
    other = Runner(
        Stream.rows("positions", COLUMNS).watermark(bounded(4)).key_by("vehicle").deduplicate("line", within=5)
    )
    assert other.state().steps != runner.state().steps
