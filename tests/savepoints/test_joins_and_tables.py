"""Joins, tables, SQL and time by key: interrupted, rescaled, forked and changed, as if they were not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.savepoints.jobs import COLUMNS, INSTANT, Row, answers, batches, frame

import headrace
from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.inprocess import Runner
from headrace.savepoints import fitted, snapshot_of, state_of
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.windows import count, session, tumbling
from headrace.windows import sum as total

if TYPE_CHECKING:
    from headrace.inprocess import Batch

POSITIONS = Stream.rows("positions", COLUMNS).watermark(bounded(4))
BY_KEY = Stream.rows("positions", COLUMNS).watermark(bounded(4), per="key", tolerance=2, patience=8)
LINES = Stream.rows("lines", {"line": pl.Int32, "name": pl.String}).watermark(bounded(4))
NAMES = LINES.as_table("line")
VERSIONS = LINES.as_table("line", versioned=True)
NEWEST = POSITIONS.as_table("vehicle")
FAST = Pattern.begin("slow", pl.col("speed") < 3).followed_by("fast", pl.col("speed") > 5).within(30)
SQL = """SELECT vehicle, window_start, window_end, COUNT(*) AS n, MAX(speed) AS top
    FROM TABLE(TUMBLE(TABLE positions, DESCRIPTOR(event_time), INTERVAL '0.00001' SECOND))
    GROUP BY vehicle, window_start, window_end"""

STEPS: dict[str, Stream] = {
    "near": POSITIONS.join(LINES, on="line", within=(-10, 5), how="full"),
    "same": POSITIONS.join(LINES, on="line", window=tumbling(10), how="left"),
    "version": POSITIONS.join(VERSIONS, on="line", as_of="event_time", how="left"),
    "known": POSITIONS.join(NAMES, on="line", how="left"),
    "both": NEWEST.join(NAMES, on="line", how="left"),
    "groups": POSITIONS.key_by("line").aggregate(n=count(), speed=total("speed")),
    "tops": POSITIONS.key_by("line").top(2, by="speed"),
    "once": POSITIONS.select("vehicle", "line").distinct(),
    "moves": BY_KEY.key_by("vehicle").match(FAST).select(slow=first("slow.event_time"), fast=last("fast.event_time")),
    "visits": POSITIONS.key_by("vehicle").window(session(6), allowed_lateness=4).aggregate(n=count()),
}
COUNTS = POSITIONS.key_by("vehicle").window(tumbling(10)).aggregate(n=count()).named("counts")


def job(*names: str) -> Job:
    """The counts, and some of the steps."""
    outputs = {name: Output(STEPS[name].named(name)) for name in names}
    outputs["sql"] = Output(headrace.sql(SQL, {"positions": POSITIONS}))
    return Job("kinds", COUNTS, outputs=outputs)


EVERY = job(*STEPS)
Batches = list[tuple[list[Row], list[Row]]]


@st.composite
def two_sided(draw: st.DrawFn) -> Batches:
    """Batches of positions, and of what lines are called, at about the same times."""
    parts = draw(batches())
    names = []
    for part in parts:
        times = [row[3] for row in part] or [0]
        names.append([("", line, 1.0 * line, min(times) + line) for line in draw(st.sets(st.integers(1, 3)))])
    return list(zip(parts, names, strict=True))


def brought(parts: tuple[list[Row], list[Row]]) -> dict[str, pl.DataFrame]:
    lines = [(line, f"line {line} at {time}", time) for _, line, _, time in parts[1]]
    schema = {"line": pl.Int32, "name": pl.String, "event_time": pl.Int64}
    return {
        "positions": frame(parts[0]),
        "lines": pl.DataFrame(lines, schema=schema, orient="row").cast({"event_time": INSTANT}),
    }


def shown(given: list[Batch]) -> dict[str, list[str]]:
    """Give the answers without the numbers that a key group gives its results."""
    plain = [
        type(batch)(
            batch.results,
            batch.late,
            batch.dismissed,
            batch.watermark,
            outputs={
                name: rows.drop("pane_index")
                if "window_end" not in rows.columns and "pane_index" in rows.columns
                else rows
                for name, rows in batch.outputs.items()
            },
        )
        for batch in given
    ]
    found = answers(plain)
    for name in ("near", "same", "version", "known", "both"):
        found[name] = [
            each.split("('pane_index'")[0] + each.partition("('pane_index'")[2].partition(")")[2]
            for each in found.get(name, [])
        ]
        found[name].sort()
    return found


def uninterrupted(parts: Batches, *, of: Job = EVERY) -> list[Batch]:
    runner = Runner(of, key_groups=2)
    return [*(runner.step(brought(part), now=number) for number, part in enumerate(parts)), runner.finish()]


@settings(deadline=None, max_examples=3)
@given(parts=two_sided(), groups=st.lists(st.sampled_from([1, 2, 3, 8]), min_size=6, max_size=6))
def test_key_groups_that_change_at_every_start_change_no_result(parts: Batches, groups: list[int]) -> None:
    found: list[Batch] = []
    runner = Runner(EVERY, key_groups=groups[0])
    for number, part in enumerate(parts):
        runner = Runner(EVERY, key_groups=groups[number], snapshot=runner.snapshot())
        found.append(runner.step(brought(part), now=number))
    runner = Runner(EVERY, key_groups=groups[len(parts)], snapshot=runner.snapshot())
    found.append(runner.finish())
    assert shown(found) == shown(uninterrupted(parts))


@settings(deadline=None, max_examples=3)
@given(parts=two_sided(), at=st.integers(1, 2), groups=st.sampled_from([1, 3, 8]))
def test_a_fork_and_the_run_that_it_came_from_give_what_one_run_gives(parts: Batches, at: int, groups: int) -> None:
    runner = Runner(EVERY, key_groups=2)
    begun = [runner.step(brought(part), now=number) for number, part in enumerate(parts[:at])]
    saved = snapshot_of(state_of(runner.snapshot()))
    fork = Runner(EVERY, key_groups=groups, snapshot=saved)
    expected = shown(uninterrupted(parts))
    for each in (runner, fork):
        rest = [each.step(brought(part), now=number) for number, part in enumerate(parts[at:], at)]
        assert shown([*begun, *rest, each.finish()]) == expected


@settings(deadline=None, max_examples=3)
@given(
    parts=two_sided(),
    at=st.integers(1, 2),
    before=st.sets(st.sampled_from(sorted(STEPS)), max_size=5),
    after=st.sets(st.sampled_from(sorted(STEPS)), max_size=5),
)
def test_steps_that_come_and_go_leave_the_others_alone(
    parts: Batches, at: int, before: set[str], after: set[str]
) -> None:
    one, two = job(*sorted(before)), job(*sorted(after))
    runner = Runner(one, key_groups=2)
    found = [runner.step(_of(one, part), now=number) for number, part in enumerate(parts[:at])]
    changed = Runner(two, key_groups=3, snapshot=fitted(two.pipeline, runner.snapshot()))
    found += [changed.step(_of(two, part), now=number) for number, part in enumerate(parts[at:], at)]
    found.append(changed.finish())
    expected = shown(uninterrupted(parts))
    given = shown(found)
    for name in ("", "sql", *(before & after)):
        assert given.get(name, []) == expected.get(name, []), name


def _of(each: Job, part: tuple[list[Row], list[Row]]) -> dict[str, pl.DataFrame]:
    """Give the sources that a job has."""
    return {
        name: rows for name, rows in brought(part).items() if name in {e.source.name for e in each.pipeline.entries}
    }


def test_all_steps_have_state_and_results_in_these_tests() -> None:
    cars = "abcdefg"
    parts: Batches = [
        (
            [(car, 1 + n % 3, (1.0, 8.0)[n % 2], 20 * p + n) for n, car in enumerate(cars * 2)],
            [("", 1 + n, 1.0, 20 * p + n) for n in range(3)],
        )
        for p in range(3)
    ]
    runner = Runner(EVERY, key_groups=2)
    found = [runner.step(brought(part), now=number) for number, part in enumerate(parts)]
    kept = runner.state()
    assert all(kept.tables(step) for step in kept.steps if step != "sql"), kept.contents()
    found.append(runner.finish())
    results = shown(found)
    assert all(results[name] for name in ("", "sql", *STEPS)), {name: len(rows) for name, rows in results.items()}
