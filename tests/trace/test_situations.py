"""Thirty situations in which somebody asks why, or why not; the story names the cause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import headrace
from headrace.cep import Pattern
from headrace.cep.measures import last
from headrace.engine import Operator, Outcome
from headrace.formats import json
from headrace.inprocess import Runner
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.trace import Given, Story, why
from headrace.windows import (
    after_count,
    after_processing_time,
    after_watermark,
    count,
    count_window,
    session,
    sliding,
    tumbling,
)

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

S = 1_000_000
INSTANT = pl.Datetime("us", "UTC")
COLUMNS = {"k": pl.String, "v": pl.Float64}
Row = tuple[str | None, float, int]


def rows(*given: Row) -> pl.DataFrame:
    schema = {**COLUMNS, "event_time": pl.Int64}
    return pl.DataFrame([(k, v, t * S) for k, v, t in given], schema=schema, orient="row").cast({"event_time": INSTANT})


SOURCE = Stream.rows("in", COLUMNS).watermark(bounded("2s"), idle_after="30s")
KEYED = SOURCE.key_by("k")
TENS = KEYED.window(tumbling("10s")).aggregate(n=count())
STOP = (
    Pattern.begin("fast", pl.col("v") > 5)
    .next("brake", pl.col("v").is_between(2, 5))
    .next("stop", pl.col("v") < 2)
    .within("10s")
)
STOPS = KEYED.match(STOP).select(at=last("stop.event_time"))
CALM = Pattern.begin("fast", pl.col("v") > 5).not_next("crash", pl.col("v") < 0).followed_by("slow", pl.col("v") < 2)
RELAXED = Pattern.begin("fast", pl.col("v") > 5).followed_by("stop", pl.col("v") < 2).within("10s")
FALLS = """SELECT * FROM positions MATCH_RECOGNIZE (PARTITION BY k ORDER BY event_time
    MEASURES LAST(slow.v) AS ended PATTERN (fast slow) WITHIN INTERVAL '10' SECOND
    DEFINE fast AS fast.v > 5, slow AS slow.v < 2)"""
LEFT = Stream.rows("left", COLUMNS).watermark(bounded("0s"))
RIGHT = Stream.rows("right", {"k": pl.String, "w": pl.Int64}).watermark(bounded("0s"))
TOPIC = Stream.topic("doors", format=json({"k": str, "v": float}, time="t")).watermark(bounded("2s"))


class Refusing(Operator):
    """Dismisses all rows."""

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        del state
        return Outcome(dismissed=turn.rows.with_columns(reason=pl.lit("it is not wanted")))

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return rows

    def fingerprint(self) -> dict[str, str]:
        return {"operator": "refusing"}


@dataclass(frozen=True)
class Situation:
    """What was given, and what the story must say.

    Args:
        stream: The job.
        batches: What came, batch by batch.
        kind: The kind of the fact that is the cause.
        words: What its sentence must contain.
        absent: Kinds that must not be there.
        options: Further arguments of `why`.
    """

    stream: Stream
    batches: list[Any]
    kind: str
    words: list[str]
    absent: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def told(situation: Situation) -> Story:
    given = [
        Given(batch if isinstance(batch, (dict, pl.DataFrame)) else rows(*batch), now=(100 + number) * S)
        for number, batch in enumerate(situation.batches)
    ]
    return why(situation.stream, given, key="a", **situation.options)


SITUATIONS = {
    "filtered by a predicate": Situation(
        SOURCE.filter(pl.col("v") > 0).key_by("k").window(tumbling("10s")).aggregate(n=count()),
        [[("a", -1.0, 1)]],
        "filtered",
        ["offset 0", 'col("v")', "v = -1.0"],
        ("counted",),
    ),
    "filtered before the key is known": Situation(
        Stream.rows("in", COLUMNS)
        .watermark(bounded("2s"))
        .filter(pl.col("v") > 0)
        .with_columns(door=pl.col("k").str.to_lowercase())
        .key_by("door")
        .window(tumbling("10s"))
        .aggregate(n=count()),
        [[("A", -1.0, 1), ("B", -1.0, 1)]],
        "filtered",
        ["offset 0", "v = -1.0"],
    ),
    "a result filtered behind the window": Situation(
        TENS.filter(pl.col("n") > 1), [[("a", 1.0, 1), ("b", 1.0, 30)]], "filtered", ["n = 1", 'col("n")']
    ),
    "a null key": Situation(TENS, [[(None, 1.0, 1), ("b", 1.0, 2)]], "null_key", ["offset 0", "k is null"]),
    "a record that cannot be read": Situation(
        TOPIC.key_by("k").window(tumbling("10s")).aggregate(n=count()),
        [{"doors": {"doors/0": [b'{"k": "a", "v": "fast", "t": "1970-01-01T00:00:01Z"}', b'{"k": "b"']}}],
        "dead_letter",
        ["doors", "offset 0", "could not be read"],
    ),
    "an absurd time": Situation(TENS, [[("a", 1.0, 10_000_000)]], "absurd_time", ["offset 0"], ("counted",)),
    "late for its window": Situation(
        TENS,
        [[("b", 1.0, 15)], [("a", 1.0, 4)]],
        "late",
        ["by 3s", "[1970-01-01 00:00:00 UTC, 1970-01-01 00:00:10 UTC)", "stood at 1970-01-01 00:00:13 UTC"],
        ("counted",),
    ),
    "late against a watermark that another partition moved on": Situation(
        TENS,
        [
            {"in": {"in/0": rows(("b", 1.0, 50)), "in/1": rows(("b", 1.0, 20))}},
            {"in": {"in/1": rows(("a", 1.0, 3))}},
        ],
        "late",
        ["held back by in/1", "newest event is of 1970-01-01 00:00:20 UTC"],
    ),
    "late, but within the allowed lateness": Situation(
        KEYED.window(tumbling("10s"), allowed_lateness="20s").aggregate(n=count()),
        [[("b", 1.0, 15)], [("a", 1.0, 4)]],
        "given",
        ["fired", "n = 1"],
        ("late",),
    ),
    "late for a pattern": Situation(STOPS, [[("b", 1.0, 15)], [("a", 9.0, 4)]], "late", ["by 9s"], ("matched",)),
    "a window whose end the watermark has not reached": Situation(
        TENS,
        [[("a", 1.0, 1), ("b", 1.0, 9)]],
        "waits",
        ["n = 1", "come to 1970-01-01 00:00:10 UTC, 3s more"],
        ("given",),
    ),
    "held back by a partition that is behind": Situation(
        TENS,
        [{"in": {"in/0": rows(("a", 1.0, 1), ("a", 1.0, 40)), "in/1": rows(("b", 1.0, 5))}}],
        "waits",
        ["held back by in/1", "35s behind the furthest partition"],
    ),
    "held back by a partition that never spoke": Situation(
        TENS,
        [{"in": {"in/0": rows(("a", 1.0, 1), ("a", 1.0, 40))}}],
        "waits",
        ["held back by in/1, in/2", "have brought no event yet"],
        options={"partitions": {"in": 3}},
    ),
    "counted and fired": Situation(
        TENS, [[("a", 1.0, 1), ("a", 1.0, 2)], [("b", 1.0, 15)]], "given", ["fired on time: n = 2"], ("waits", "late")
    ),
    "counted in several windows": Situation(
        KEYED.window(sliding("10s", every="5s")).aggregate(n=count()), [[("a", 1.0, 7)]], "counted", ["2 windows"]
    ),
    "a session that is still open": Situation(
        KEYED.window(session("5s")).aggregate(n=count()),
        [[("a", 1.0, 1), ("a", 1.0, 3)]],
        "waits",
        ["1970-01-01 00:00:08 UTC)", "n = 2"],
    ),
    "a trigger by number that is not due": Situation(
        KEYED.window(tumbling("10s"), trigger=after_count(3)).aggregate(n=count()),
        [[("a", 1.0, 1), ("a", 1.0, 2)]],
        "waits",
        ["after_count(3)", "not due yet"],
        ("given",),
    ),
    "a trigger by the clock that is not due": Situation(
        KEYED.window(tumbling("10s"), trigger=after_processing_time("1min")).aggregate(n=count()),
        [[("a", 1.0, 1)]],
        "waits",
        ["not due yet", "asked again at 1970-01-01 00:02:40 UTC by the clock"],
    ),
    "an early pane, and the rest waits": Situation(
        KEYED.window(tumbling("10s"), trigger=after_watermark(early=after_count(2))).aggregate(n=count()),
        [[("a", 1.0, 1), ("a", 1.0, 2), ("a", 1.0, 3)]],
        "given",
        ["fired early", "n = 3"],
    ),
    "a window of so many rows that lacks one": Situation(
        KEYED.window(count_window(3)).aggregate(n=count()),
        [[("a", 1.0, 1), ("a", 1.0, 2)], [("b", 1.0, 30)]],
        "waits",
        ["count_window(3)", "n = 2"],
        ("given",),
    ),
    "a duplicate": Situation(
        SOURCE.deduplicate("k", within="10s"),
        [[("a", 1.0, 1)], [("a", 1.0, 3)]],
        "duplicate",
        ["offset 1", "the one of 1970-01-01 00:00:01 UTC"],
    ),
    "a pattern broken by a condition": Situation(
        STOPS,
        [[("a", 9.0, 1), ("a", 3.0, 2), ("a", 4.0, 3)], [("b", 1.0, 9)]],
        "broken",
        ["offset 2", "stop asks", "does not hold (v = 4.0)"],
        ("given",),
    ),
    "a pattern broken by contiguity": Situation(
        STOPS,
        [[("a", 9.0, 1), ("a", 9.0, 2)], [("b", 1.0, 9)]],
        "broken",
        ["offset 1", "began at 1970-01-01 00:00:01 UTC", "brake asks", "no other row may come between"],
    ),
    "a pattern broken by what must not come": Situation(
        KEYED.match(CALM.within("30s")).select(at=last("slow.event_time")),
        [[("a", 9.0, 1), ("a", -1.0, 2)], [("b", 1.0, 9)]],
        "broken",
        ["offset 1", "crash", "must not come"],
    ),
    "a pattern broken by time": Situation(
        STOPS,
        [[("a", 9.0, 1), ("a", 3.0, 2)], [("b", 1.0, 20)]],
        "timed_out",
        ["no stop came before 1970-01-01 00:00:11 UTC", "10s after its begin"],
    ),
    "a pattern that waits for its next row": Situation(
        STOPS,
        [[("a", 9.0, 1), ("a", 3.0, 2)], [("b", 1.0, 6)]],
        "waits",
        ["waits for stop", "until 1970-01-01 00:00:11 UTC"],
        ("broken", "timed_out"),
    ),
    "a row that fits nothing": Situation(
        KEYED.match(RELAXED).select(at=last("stop.event_time")),
        [[("a", 3.0, 1)], [("b", 1.0, 9)]],
        "passed_over",
        ["offset 0", "fast asks", "does not hold (v = 3.0)"],
    ),
    "a pattern that matched": Situation(
        STOPS,
        [[("a", 9.0, 1), ("a", 3.0, 2), ("a", 1.0, 3)], [("b", 1.0, 9)]],
        "matched",
        ["matched fast"],
        ("broken",),
    ),
    "a pattern in SQL that is not decided": Situation(
        headrace.sql(FALLS, {"positions": SOURCE}),
        [[("a", 9.0, 1)], [("b", 1.0, 6)]],
        "waits",
        ["not decided yet", "1970-01-01 00:00:01 UTC"],
    ),
    "a row of a join without a partner so far": Situation(
        LEFT.join(RIGHT, on="k", within=("-5s", "5s"), how="left"),
        [{"left": rows(("a", 1.0, 3))}],
        "waits",
        ["left side", "kept for a partner", "1970-01-01 00:00:08"],
        ("given",),
    ),
    "dismissed by a step of one's own": Situation(
        KEYED.process(lambda *_: Refusing()), [[("a", 1.0, 1)]], "dismissed", ["it is not wanted"]
    ),
    "not read yet": Situation(
        TENS,
        [[("b", 1.0, 1)]],
        "not_read",
        ["offset 1", "has not been read yet"],
        options={"unread": rows(("a", 1.0, 5))},
    ),
    "no such key": Situation(TENS, [[("b", 1.0, 1)]], "nothing", ["No event with the key a"]),
    "nothing near the time": Situation(
        TENS,
        [[("a", 1.0, 1), ("a", 1.0, 500)]],
        "nothing",
        [
            "near 1970-01-01 00:01:40 UTC",
            "before is the event of 1970-01-01 00:00:01",
            "after is the event of 1970-01-01 00:08:20",
        ],
        options={"at": 100 * S},
    ),
}


@pytest.mark.parametrize("name", SITUATIONS)
def test_the_story_names_the_cause(name: str) -> None:
    situation = SITUATIONS[name]
    story = told(situation)
    sentences = [fact.text for fact in story.of(situation.kind)]  # type: ignore[arg-type]
    assert any(all(word in text for word in situation.words) for text in sentences), story.text
    assert not story.kinds & set(situation.absent), story.text


def test_there_are_thirty_of_them() -> None:
    assert len(SITUATIONS) >= 30


def test_the_traced_run_gives_what_the_run_gave() -> None:
    situations = [each for each in SITUATIONS.values() if not each.options]
    for situation in situations:
        runner = Runner(situation.stream, key_groups=3)
        given = []
        for number, batch in enumerate(situation.batches):
            brought = batch if isinstance(batch, (dict, pl.DataFrame)) else rows(*batch)
            given.append(runner.step(brought, now=(100 + number) * S).results)
        expected = pl.concat(given)
        story = told(situation)
        dropped = [fact for fact in story.of("filtered") if fact.event is None]
        last_stage = runner.pipeline.stages[-1].step
        found = [fact for fact in story.of("given") if fact.step == last_stage]
        key = situation.stream.schema.names()
        mine = expected.filter(pl.col("k") == "a") if "k" in key else expected.clear()
        assert len(found) - len(dropped) == mine.height, story.text


def test_a_moment_chooses_what_is_about_it() -> None:
    story = why(TENS, [Given(rows(("a", 1.0, 1), ("a", 1.0, 25))), Given(rows(("b", 1.0, 60)))], key="a", at=3 * S)
    times = {fact.event.time for fact in story.facts if fact.event is not None}
    assert times == {1 * S}
    [fired] = story.of("given")
    assert fired.data["result"]["n"] == 1
    assert story.to_dict()["at"] == "1970-01-01 00:00:03 UTC"


def test_a_source_that_is_read_at_two_places_is_told_once() -> None:
    job = Job("two", TENS.named("tens"), outputs={"stops": Output(STOPS.named("stops"))})
    story = why(job, [Given(rows(("a", 9.0, 1))), Given(rows(("a", 9.0, 2)))], key="a")
    assert [fact.event.offset for fact in story.of("read") if fact.event is not None] == [0, 1]
    assert {fact.step for fact in story.of("counted", "kept")} == {"tens", "stops"}


def test_a_story_goes_on_from_a_snapshot() -> None:
    runner = Runner(TENS, key_groups=4)
    runner.step(rows(("a", 1.0, 1), ("a", 1.0, 2)), now=100 * S)
    story = why(TENS, [Given(rows(("b", 1.0, 15)), now=101 * S)], key="a", snapshot=runner.snapshot())
    [fired] = story.of("given")
    assert fired.data["result"]["n"] == 2
