"""A changed job reads the state of the one before, or says why it cannot."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.savepoints.jobs import COLUMNS, KEYED, POSITIONS, Row, batches, frame

from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.errors import StateError
from headrace.inprocess import Runner
from headrace.savepoints import fitted, plan_job, state_of
from headrace.savepoints.compatibility import StepPlan, check_possible
from headrace.savepoints.files import describe_step
from headrace.savepoints.state import steps_of
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.windows import (
    after_count,
    after_watermark,
    collect,
    count,
    distinct,
    frequent_items,
    histogram,
    latest,
    mean,
    quantile,
    session,
    sliding,
    std,
    top_k,
    tumbling,
    variance,
)
from headrace.windows import first as first_value
from headrace.windows import max as most
from headrace.windows import min as least
from headrace.windows import sum as total

EVERY_AGGREGATE: dict[str, Any] = {
    "n": count(),
    "sum": total("speed"),
    "least": least("speed"),
    "most": most("speed"),
    "mean": mean("speed"),
    "variance": variance("speed"),
    "std": std("speed"),
    "first": first_value("speed"),
    "latest": latest("speed"),
    "histogram": histogram("speed", edges=[1.0, 5.0]),
    "distinct": distinct("line"),
    "quantile": quantile("speed", 0.5),
    "frequent": frequent_items("line", k=2),
    "values": collect("line"),
    "top": top_k("speed", k=2),
}


def windowed(**changes: Any) -> Stream:
    window = changes.pop("window", tumbling(10))
    aggregates = changes.pop("aggregates", {"n": count(), "sum": total("speed")})
    stream: Stream = changes.pop("stream", KEYED)
    return stream.window(window, **changes).aggregate(**aggregates).named("step")


def upgraded(before: Stream, after: Stream, parts: list[list[Row]], *, at: int) -> list[pl.DataFrame]:
    """Run one for some batches and the other from then on; give the results of each batch."""
    runner = Runner(before, key_groups=2)
    found = [runner.step(frame(part)).results for part in parts[:at]]
    again = Runner(after, key_groups=2, snapshot=runner.snapshot())
    found += [again.step(frame(part)).results for part in parts[at:]]
    return [*found, again.finish().results]


def plans(before: Stream, after: Stream, **options: Any) -> list[StepPlan]:
    runner = Runner(before, key_groups=2)
    runner.step(frame([("a", 1, 2.0, 3)]))
    state = state_of(runner.snapshot())
    known = [describe_step(step, [state[step, 0], state[step, 1]]) for step in steps_of(state)]
    return plan_job("job", Runner(after, key_groups=2).pipeline, known, **options)


def values(results: list[pl.DataFrame], *columns: str) -> list[str]:
    names = ["vehicle", "window_start", "window_end", "pane_index", *columns]
    return [str(row) for part in results for row in sorted(part.select(names).rows(), key=str)]


LATE = {"allowed_lateness": 8}
EARLY = {"trigger": after_watermark(early=after_count(2))}


@settings(deadline=None, max_examples=6)
@given(parts=batches(), at=st.integers(1, 3), general=st.sampled_from([{}, LATE, EARLY]))
def test_what_is_common_to_both_versions_goes_on_as_if_nothing_had_changed(
    parts: list[list[Row]], at: int, general: dict[str, Any]
) -> None:
    before = windowed(**general)
    after = windowed(aggregates={"n": count(), "mean": mean("speed"), "latest": latest("line")}, **general)
    assert [plan.action for plan in plans(before, after)] == ["migrate"]
    assert values(upgraded(before, after, parts, at=at), "n") == values(upgraded(before, before, parts, at=at), "n")


@settings(deadline=None, max_examples=6)
@given(parts=batches(), at=st.integers(1, 3), window=st.sampled_from([tumbling(10), sliding(10, every=5)]))
def test_windows_that_begin_to_wait_for_late_rows_go_on(parts: list[list[Row]], at: int, window: Any) -> None:
    before, after = windowed(window=window), windowed(window=window, allowed_lateness=8)
    assert [plan.action for plan in plans(before, after)] == ["migrate"]
    found, expected = upgraded(before, after, parts, at=at), upgraded(before, before, parts, at=at)
    on_time = [part.filter(pl.col("pane_timing") == "on_time") for part in found]
    assert values(on_time, "n", "sum") == values(expected, "n", "sum")


@pytest.mark.parametrize("name", EVERY_AGGREGATE)
@pytest.mark.parametrize("general", [{}, LATE])
def test_an_aggregate_that_is_added_holds_the_rows_from_then_on(name: str, general: dict[str, Any]) -> None:
    parts: list[list[Row]] = [[("a", 1, 2.0, 1), ("b", 1, 3.0, 2)], [("a", 2, 4.0, 3)], []]
    only = {"n": count()} if name != "n" else {"m": count()}
    before = windowed(aggregates=only, **general)
    after = windowed(aggregates={**only, name: EVERY_AGGREGATE[name]}, **general)
    alone = windowed(aggregates={name: EVERY_AGGREGATE[name]}, **general)
    found = pl.concat(upgraded(before, after, parts, at=1), how="diagonal_relaxed")
    expected = pl.concat(upgraded(alone, alone, parts[1:], at=1))
    [shown], [was] = (each.filter(vehicle="a").get_column(name).to_list() for each in (found, expected))
    assert str(shown) == str(was)
    assert found.filter(vehicle="b").height == 1


def test_an_aggregate_that_comes_back_under_its_name_does_not_remember_another() -> None:
    parts: list[list[Row]] = [[("a", 1, 2.0, 1)], [("a", 1, 3.0, 2)], [("a", 1, 4.0, 3)]]
    for general in ({}, LATE):
        first_, second = windowed(**general), windowed(aggregates={"n": count()}, **general)
        third = windowed(aggregates={"n": count(), "sum": total("line")}, **general)
        one = Runner(first_, key_groups=2)
        one.step(frame(parts[0]))
        two = Runner(second, key_groups=2, snapshot=one.snapshot())
        two.step(frame(parts[1]))
        three = Runner(third, key_groups=2, snapshot=two.snapshot())
        three.step(frame(parts[2]))
        assert three.finish().results.select("n", "sum").rows() == [(3, 1)]


def test_a_shorter_window_of_the_same_slices_is_exact() -> None:
    before, after = windowed(window=sliding(20, every=5)), windowed(window=sliding(10, every=5))
    parts: list[list[Row]] = [[("a", 1, 2.0, second) for second in range(12)], [("a", 1, 1.0, 30)]]
    expected = {
        row[0]: row[1] for row in pl.concat(upgraded(after, after, parts, at=1)).select("window_end", "n").rows()
    }
    found = pl.concat(upgraded(before, after, parts, at=1)).filter(
        pl.col("window_end") - pl.col("window_start") == pl.duration(microseconds=10)
    )
    assert found.height >= 3
    assert all(expected[end] == n for end, n in found.select("window_end", "n").rows())


WIDE = {**COLUMNS, "line": pl.Int64}


def test_columns_may_become_wider_and_not_narrower() -> None:
    def job(columns: dict[str, Any], key: str) -> Job:
        rows = Stream.rows("positions", columns).watermark(bounded(4))
        keyed = rows.key_by(key)
        fast = Pattern.begin("slow", pl.col("speed") < 3).next("fast", pl.col("speed") > 3).within(50)
        outputs = {
            "revised": keyed.window(tumbling(10), allowed_lateness=5)
            .aggregate(n=count(), top=most("line"))
            .named("revised"),
            "session": keyed.window(session(20)).aggregate(n=count(), newest=latest("line")).named("session"),
            "before": keyed.previous(was="line", within=50).named("before"),
            "once": rows.deduplicate("vehicle", "line", within=15).named("once"),
            "fast": keyed.match(fast).select(slow=first("slow.line"), at=last("fast.event_time")).named("fast"),
        }
        sliced = keyed.window(tumbling(10)).aggregate(n=count(), top=most("line")).named("sliced")
        return Job("wide", sliced, outputs={name: Output(each) for name, each in outputs.items()})

    parts = [[("a", 1, 2.0, 1), ("b", 2, 2.0, 3)], [("a", 1, 4.0, 8), ("b", 2, 9.0, 9), ("b", 3, 9.0, 30)]]
    for key in ("vehicle", "line"):
        runner = Runner(job(COLUMNS, key), key_groups=3)
        runner.step(frame(parts[0]))
        wide = Runner(job(WIDE, key), key_groups=3, snapshot=runner.snapshot())
        whole = Runner(job(WIDE, key), key_groups=3)
        whole.step(frame(parts[0]))
        found, expected = wide.step(frame(parts[1])), whole.step(frame(parts[1]))
        ours, theirs = {"": found.results, **found.outputs}, {"": expected.results, **expected.outputs}
        for name, rows in theirs.items():
            assert sorted(map(str, ours[name].rows())) == sorted(map(str, rows.rows())), (key, name)
        with pytest.raises(StateError, match="column line was Int64, is Int32"):
            Runner(job(COLUMNS, key), key_groups=3, snapshot=wide.snapshot()).step(frame(parts[1]))


IMPOSSIBLE = [
    (windowed(), windowed(window=tumbling(9)), "window was 'tumbling(10us)', is 'tumbling(9us)'"),
    (windowed(), windowed(aggregates={"n": count("speed")}), "aggregate n was 'count()', is 'count(speed)'"),
    (windowed(**LATE), windowed(), "trigger is gone"),
    (windowed(), windowed(window=session(4)), "window was 'tumbling(10us)', is 'session(4us)'"),
    (windowed(), windowed(stream=POSITIONS.key_by("line")), "keys was 'vehicle', is 'line'"),
]


@pytest.mark.parametrize(("before", "after", "words"), IMPOSSIBLE)
def test_what_cannot_be_is_said_before_anything_is_started(before: Stream, after: Stream, words: str) -> None:
    [plan] = plans(before, after)
    assert plan.action == "impossible"
    assert words in plan.detail
    assert "--reset-step step" in plan.hint
    with pytest.raises(StateError, match="the state in here does not fit: step 'step' of job"):
        check_possible([plan], where="here")
    runner = Runner(before, key_groups=2)
    runner.step(frame([("a", 1, 2.0, 3)]))
    with pytest.raises(StateError, match="does not fit the job"):
        Runner(after, key_groups=2, snapshot=runner.snapshot()).step(frame([]))
    assert [each.action for each in plans(before, after, reset=["step"])] == ["reset"]


def test_steps_come_and_go_and_may_be_the_same_by_another_name() -> None:
    one = windowed()
    two = one.key_by("vehicle").window(tumbling(20)).aggregate(m=total("n")).named("second")
    told = {plan.step: plan.action for plan in plans(one, two)}
    assert told == {"step": "keep", "second": "new"}
    assert {plan.step: plan.action for plan in plans(two, one)} == {"step": "keep", "second": "drop"}
    renamed = plans(one, one.named("other"))
    assert [(plan.step, plan.action) for plan in renamed] == [("other", "new"), ("step", "impossible")]
    assert '.named("step")' in renamed[1].hint
    assert [plan.action for plan in plans(one, one.named("other"), reset=["step"])] == ["new", "drop"]
    [wider] = plans(one, one, key_groups=8)
    assert (wider.action, wider.detail) == ("migrate", "from 2 to 8 key groups")


def test_a_snapshot_is_made_to_fit_a_job_with_another_step() -> None:
    one = windowed()
    two = one.key_by("vehicle").window(tumbling(20)).aggregate(m=total("n")).named("second")
    runner = Runner(one, key_groups=2)
    runner.step(frame([("a", 1, 2.0, 3)]))
    pipeline = Runner(two).pipeline
    again = Runner(two, key_groups=2, snapshot=fitted(pipeline, runner.snapshot()))
    assert again.finish().results.select("vehicle", "m").rows() == [("a", 1)]
