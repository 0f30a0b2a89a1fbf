"""The window operator: panes, lateness, bad input, state."""

from __future__ import annotations

import math
from typing import Any

import polars as pl
import pytest

from headrace import windows as w
from headrace.engine import MemorySegments, Turn
from headrace.errors import JobError, PlanError, StateError
from headrace.testing import Harness, ScriptError, event_frame, run_script
from headrace.time import END
from headrace.windows import Panes, WindowOperator, global_, session, sliding, tumbling

N = {"n": w.count()}


def ev(*times: int, k: str = "a") -> dict[str, Any]:
    return {"events": [{"event_time": t, "k": k, "v": float(t)} for t in times]}


SCRIPTS: dict[str, tuple[WindowOperator, list[dict[str, Any]]]] = {
    "a window fires when the watermark passes its end, not before": (
        WindowOperator(("k",), tumbling(10), N),
        [
            ev(1, 2),
            {"watermark": 9},
            {"expect": []},
            {"watermark": 10},
            {"expect": [{"k": "a", "n": 2, "window": [0, 10], "timing": "on_time", "index": 0, "is_last": True}]},
            {"watermark": 100},
        ],
    ),
    "late rows revise, until the window expires": (
        WindowOperator(("k",), tumbling(10), N, allowed_lateness=5),
        [
            ev(1),
            {"watermark": 10},
            {"expect": [{"n": 1, "timing": "on_time", "is_last": False}]},
            ev(2, 3),
            {"expect": [{"n": 3, "timing": "late", "index": 1}]},
            {"watermark": 15},
            {"expect": []},
            ev(4),
        ],
    ),
    "a row counts in those of its windows that are still open": (
        WindowOperator(("k",), sliding(10, every=5), N),
        [
            {"watermark": 10},
            ev(6),
            {"watermark": 15},
            {"expect": [{"n": 1, "window": [5, 15]}]},
        ],
    ),
    "deltas hold what came since": (
        WindowOperator(("k",), tumbling(10), N, trigger=w.default(), allowed_lateness=50, panes=Panes(mode="delta")),
        [ev(1, 2), {"watermark": 10}, {"expect": [{"n": 2}]}, ev(3), {"expect": [{"n": 1, "mode": "delta"}]}],
    ),
    "retractions take back the pane before": (
        WindowOperator(("k",), tumbling(10), N, allowed_lateness=50, panes=Panes(mode="value_and_retraction")),
        [
            ev(1, 2),
            {"watermark": 10},
            {"expect": [{"n": 2, "is_retraction": False}]},
            {"restart": True},
            ev(3),
            {"expect": [{"n": 2, "is_retraction": True, "index": 0}, {"n": 3, "is_retraction": False, "index": 1}]},
        ],
    ),
    "merged sessions take back the panes of both": (
        WindowOperator(
            ("k",),
            session(5),
            N,
            trigger=w.after_watermark(early=w.after_count(1)),
            panes=Panes(mode="value_and_retraction"),
        ),
        [
            ev(0),
            {"expect": [{"n": 1, "window": [0, 5]}]},
            ev(8),
            {"expect": [{"n": 1, "window": [8, 13]}]},
            ev(4),
            {
                "expect": [
                    {"n": 1, "window": [0, 5], "is_retraction": True},
                    {"n": 1, "window": [8, 13], "is_retraction": True},
                    {"n": 3, "window": [0, 13], "is_retraction": False, "index": 0},
                ]
            },
        ],
    ),
    "processing time fires without a new row": (
        WindowOperator(("k",), tumbling(100), N, trigger=w.after_watermark(early=w.after_processing_time(10))),
        [
            ev(1),
            {"processing_time": 9},
            {"expect": []},
            {"restart": True},
            {"processing_time": 10},
            {"expect": [{"n": 1, "timing": "early"}]},
            {"processing_time": 1000},
            {"expect": []},
            {"watermark": 100},
            {"expect": [{"n": 1, "timing": "on_time", "index": 1, "is_last": True}]},
        ],
    ),
    "a batch fires at most once for its rows": (
        WindowOperator(("k",), tumbling(10), N, trigger=w.repeatedly(w.after_count(2))),
        [ev(1, 2, 3, 4, 5), {"expect": [{"n": 5}]}],
    ),
    "never fires only when the window expires": (
        WindowOperator(("k",), tumbling(10), N, trigger=w.never(), allowed_lateness=20),
        [ev(1), {"watermark": 15}, ev(2), {"watermark": 30}, {"expect": [{"n": 2, "timing": "late", "is_last": True}]}],
    ),
    "a global window fires by count, with the time of its newest row": (
        WindowOperator(("k",), global_(), N, trigger=w.repeatedly(w.after_count(2))),
        [
            ev(5, 3),
            {"expect": [{"n": 2, "window": [None, None], "timestamp": 5, "timing": "early"}]},
            ev(9),
            {"watermark": END},
            {"expect": [{"n": 3, "timing": "on_time", "is_last": True}]},
        ],
    ),
    "keys are apart, also those with two columns or none": (
        WindowOperator((), tumbling(10), N),
        [ev(1, k="a"), ev(2, k="b"), {"watermark": 10}, {"expect": [{"n": 2}]}],
    ),
    "the timestamp may be the earliest or latest of the rows": (
        WindowOperator(("k",), tumbling(10), N, panes=Panes(timestamp="latest")),
        [ev(1, 4), {"watermark": 10}, {"expect": [{"timestamp": 4}]}],
    ),
    "no pane on time without news, where so wished": (
        WindowOperator(
            ("k",),
            tumbling(10),
            N,
            trigger=w.after_watermark(early=w.after_count(1)),
            panes=Panes(on_time="if_non_empty"),
        ),
        [ev(1), {"expect": [{"n": 1}]}, {"watermark": 10}],
    ),
    "a last pane always, where so wished": (
        WindowOperator(("k",), tumbling(10), N, allowed_lateness=5, panes=Panes(closing="always")),
        [
            ev(1),
            {"watermark": 10},
            {"expect": [{"is_last": False}]},
            {"watermark": 15},
            {"expect": [{"n": 1, "timing": "late", "is_last": True, "index": 1}]},
        ],
    ),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str) -> None:
    run_script(*SCRIPTS[name])


def test_a_script_that_expects_too_little_or_too_much_fails() -> None:
    operator, steps = SCRIPTS["deltas hold what came since"]
    with pytest.raises(ScriptError, match="Unexpected"):
        run_script(operator, [steps[0], steps[1]])
    with pytest.raises(ScriptError, match="Unmatched"):
        run_script(operator, [steps[0], {"expect": [{"n": 99}]}])
    with pytest.raises(ScriptError, match="Unknown step"):
        run_script(operator, [{"sleep": 1}])


def test_late_rows_tell_window_lateness_and_watermark() -> None:
    harness = Harness(WindowOperator(("k",), sliding(10, every=5), N, allowed_lateness=2))
    harness.events([{"event_time": 100, "k": "a"}])
    harness.watermark(50)
    assert harness.events([{"event_time": 7, "k": "a"}]) == []
    assert harness.late == [
        {"event_time": 7, "k": "a", "lateness": 35, "watermark": 50, "window_start": 5, "window_end": 15}
    ]


def test_rows_of_a_window_that_its_trigger_closed_are_late() -> None:
    harness = Harness(WindowOperator(("k",), tumbling(10), N, trigger=w.after_count(1)))
    assert len(harness.events([{"event_time": 1, "k": "a"}])) == 1
    assert harness.events([{"event_time": 2, "k": "a"}, {"event_time": 2, "k": "b"}]) != []
    assert [row["k"] for row in harness.late] == ["a"]
    assert harness.open_windows() == (set(), {(0, 10)})
    harness.watermark(10)
    assert harness.open_windows() == (set(), set())


def test_rows_without_time_or_key_are_dismissed_with_a_reason() -> None:
    harness = Harness(WindowOperator(("k",), session(pl.col("gap")), N))
    harness.events(
        [
            {"event_time": None, "k": "a", "gap": 1},
            {"event_time": 1, "k": None, "gap": 1},
            {"event_time": 1, "k": "a", "gap": None},
            {"event_time": 1, "k": "a", "gap": -5},
            {"event_time": 1, "k": "a", "gap": 5},
        ]
    )
    assert [row["reason"] for row in harness.dismissed] == [
        "event_time is null",
        "key column 'k' is null",
        "the row belongs to no window",
        "the row belongs to no window",
    ]
    assert [pane["n"] for pane in harness.watermark(100)] == [1]


def inverse(*, on_error: Any) -> WindowOperator:
    total = w.custom(
        ["v"],
        create=lambda: 0.0,
        add=lambda state, rows: state + sum(1 / v for v in rows["v"]),
        merge=lambda one, two: one + two,
        result=float,
        dtype=pl.Float64,
        name="inverse",
    )
    return WindowOperator(("k",), tumbling(10), {"x": total}, on_error=on_error, step="inverses")


def test_an_aggregate_that_raises_names_the_step_and_a_row() -> None:
    harness = Harness(inverse(on_error="raise"))
    rows = [{"event_time": 1, "k": "a", "v": 2}, {"event_time": 2, "k": "a", "v": 0}]
    with pytest.raises(
        JobError, match=r"step 'inverses': add of aggregate 'inverse' raised ZeroDivisionError"
    ) as caught:
        harness.events(rows)
    assert "'v': 0" in str(caught.value)


def test_or_its_rows_go_to_the_dead_letters() -> None:
    harness = Harness(inverse(on_error="dead_letter"))
    harness.events([{"event_time": t, "k": k, "v": v} for t, k, v in [(1, "a", 2), (2, "a", 0), (3, "b", 0)]])
    assert [(row["event_time"], "ZeroDivisionError" in row["reason"]) for row in harness.dismissed] == [
        (2, True),
        (3, True),
    ]
    assert [(pane["k"], pane["x"]) for pane in harness.watermark(10)] == [("a", 0.5)]


def test_nan_is_a_value_and_no_key_is_lost() -> None:
    harness = Harness(WindowOperator(("k",), tumbling(10), {"s": w.sum("v"), "m": w.max("v"), "n": w.count("v")}))
    harness.events([{"event_time": 1, "k": "a", "v": math.nan}, {"event_time": 1, "k": "a", "v": 1.0}])
    (pane,) = harness.watermark(10)
    assert math.isnan(pane["s"])
    assert (pane["m"], pane["n"]) == (1.0, 2)


def test_a_batch_touches_the_buckets_of_its_rows_only() -> None:
    """The cost of a turn follows its rows: other windows are neither read nor written."""

    class Watched(MemorySegments):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def get(self, name: str) -> bytes | None:
            self.seen.append(f"get {name}")
            return super().get(name)

        def put(self, name: str, value: bytes) -> None:
            self.seen.append(f"put {name}")
            super().put(name, value)

    state = Watched()
    operator = WindowOperator(("k",), tumbling(10), N, allowed_lateness=1000)
    many = event_frame([{"event_time": t, "k": "a"} for t in range(0, 500, 5)])
    operator.turn(state, Turn(many, 0, 0))
    state.seen.clear()
    operator.turn(state, Turn(event_frame([{"event_time": 203, "k": "a"}]), 0, 0))
    assert state.seen == ["get index", "get bucket/21/0", "get layouts", "put bucket/21/0", "put index"]
    state.seen.clear()
    operator.turn(state, Turn(many.head(0), 5, 0))
    assert state.seen == ["get index", "put index"]


def test_a_job_may_gain_and_lose_aggregates() -> None:
    state = MemorySegments()
    rows = event_frame([{"event_time": 1, "k": "a", "v": 2}])
    WindowOperator(("k",), tumbling(10), {"n": w.count(), "s": w.sum("v")}).turn(state, Turn(rows, 0, 0))
    newer = WindowOperator(
        ("k",),
        tumbling(10),
        {"n": w.count(), "m": w.max("v"), "d": w.distinct("v", values=True), "q": w.quantile("v", 0.5)},
    )
    newer.turn(state, Turn(event_frame([{"event_time": 2, "k": "b", "v": 3}]), 0, 0))
    outcome = newer.turn(state, Turn(rows.head(0), 10, 0))
    assert outcome.rows is not None
    found = outcome.rows.sort("k").select("k", "n", "m", "d", "q").rows()
    assert found == [("a", 1, None, [], None), ("b", 1, 3, [3], 3.0)]


def test_state_that_is_not_ours_is_refused() -> None:
    operator = WindowOperator(("k",), tumbling(10), N)
    rows = event_frame([{"event_time": 1, "k": "a"}])
    state = MemorySegments()
    operator.turn(state, Turn(rows, 0, 0))
    with pytest.raises(StateError, match="missing"):
        operator.turn(MemorySegments({"index": state.content["index"]}), Turn(rows, 0, 0))
    with pytest.raises(StateError, match="starts with"):
        operator.turn(MemorySegments({**state.content, "bucket/1/0": b"nonsense"}), Turn(rows, 0, 0))


def test_the_schema_is_that_of_the_results() -> None:
    aggregates = {
        "n": w.count(),
        "top": w.top_k("v", 2),
        "mid": w.quantile("v", 0.5, method="kll"),
        "all": w.collect("v"),
    }
    operator = WindowOperator(("k",), tumbling(10), aggregates)
    rows = event_frame([{"event_time": 1, "k": "a", "v": 2.0}])
    outcome = operator.turn(MemorySegments(), Turn(rows, 10, 0))
    assert outcome.rows is not None
    assert operator.schema(rows.schema) == outcome.rows.schema


def test_the_fingerprint_names_what_state_depends_on() -> None:
    operator = WindowOperator(("k",), tumbling("5s"), N, trigger=w.after_watermark())
    assert operator.fingerprint() == {
        "keys": "k",
        "window": "tumbling(5s)",
        "trigger": "after_watermark()",
        "mode": "value",
        "aggregate n": "count()",
    }


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PlanError, match="never ends"):
        WindowOperator(("k",), global_(), N, allowed_lateness="1s", trigger=w.after_count(1))
    with pytest.raises(PlanError, match="no end to wait for"):
        WindowOperator(("k",), global_(), N)
    with pytest.raises(PlanError, match="zero or more"):
        WindowOperator(("k",), tumbling(5), N, allowed_lateness=-1)
    with pytest.raises(PlanError, match="no aggregates"):
        WindowOperator(("k",), tumbling(5), {})
    with pytest.raises(PlanError, match="taken"):
        WindowOperator(("k",), tumbling(5), {"k": w.count()})
    with pytest.raises(PlanError, match="taken"):
        WindowOperator(("k",), tumbling(5), {"window_end": w.count()})
    with pytest.raises(PlanError, match="cannot take back"):
        WindowOperator(("k",), tumbling(5), {"q": w.quantile("v", 0.5, method="kll")}, retractions=True)
    custom = inverse(on_error="raise").aggregates["x"]
    with pytest.raises(PlanError, match="remove"):
        WindowOperator(("k",), tumbling(5), {"x": custom}, retractions=True)
