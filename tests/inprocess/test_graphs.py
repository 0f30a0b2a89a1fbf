"""Plans that are graphs: streams that are used twice, meet again and have several outputs, against plain sums."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import Operator, Outcome
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.inprocess import Batch, Runner
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.stream.pipeline import compile_outputs
from headrace.time import bounded, perfect
from headrace.windows import count, tumbling
from headrace.windows import sum as sum_

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

INSTANT = pl.Datetime("us", "UTC")
#: key, value, time
Row = tuple[str, int, int]
#: What a node does, and the numbers of the nodes that it takes its rows from; the source is number 0.
Node = tuple[str, tuple[int, ...]]
SIZE = {"small": 10, "large": 20}


def source(name: str = "rows") -> Stream:
    return Stream.rows(name, {"k": pl.String, "v": pl.Int64})


def totals(stream: Stream, size: int) -> Stream:
    """Add the values up by key and window."""
    return stream.key_by("k").window(tumbling(size)).aggregate(v=sum_("v"))


def totals_by_hand(rows: list[Row], size: int) -> list[Row]:
    """Do the same, in plain words."""
    found: dict[tuple[str, int], int] = defaultdict(int)
    for key, value, time in rows:
        found[key, time // size * size] += value
    return [(key, value, start + size - 1) for (key, start), value in found.items()]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Node], int, int]:
    """Nodes in an order in which each takes rows from earlier ones, and the two that give the outputs."""
    nodes: list[Node] = []
    for number in range(1, draw(st.integers(1, 6)) + 1):
        does = draw(st.sampled_from(["even", "more", "union", "small", "large"]))
        inputs = tuple(draw(st.integers(0, number - 1)) for _ in range(2 if does == "union" else 1))
        nodes.append((does, inputs))
    return nodes, draw(st.integers(0, len(nodes))), draw(st.integers(0, len(nodes)))


def as_streams(nodes: list[Node]) -> list[Stream]:
    streams = [source().watermark(bounded(100))]
    for does, inputs in nodes:
        first = streams[inputs[0]]
        if does == "even":
            streams.append(first.filter(pl.col("v") % 2 == 0))
        elif does == "more":
            streams.append(first.with_columns(v=pl.col("v") + 1))
        elif does == "union":
            streams.append(first.union(streams[inputs[1]]))
        else:
            streams.append(totals(first, SIZE[does]).select("k", "v", "is_retraction").drop("is_retraction"))
    return streams


def by_hand(nodes: list[Node], rows: list[Row]) -> list[list[Row]]:
    answers = [rows]
    for does, inputs in nodes:
        first = answers[inputs[0]]
        if does == "even":
            answers.append([row for row in first if row[1] % 2 == 0])
        elif does == "more":
            answers.append([(key, value + 1, time) for key, value, time in first])
        elif does == "union":
            answers.append(first + answers[inputs[1]])
        else:
            answers.append(totals_by_hand(first, SIZE[does]))
    return answers


def frame(rows: list[Row]) -> pl.DataFrame:
    columns = {"k": pl.String, "v": pl.Int64, "event_time": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row").cast({"event_time": INSTANT})


def told(results: list[pl.DataFrame]) -> Counter[Row]:
    return Counter(row for each in results for row in each.select("k", "v", pl.col("event_time").to_physical()).rows())


@settings(deadline=None, max_examples=60)
@given(
    graph=graphs(),
    rows=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(0, 60)), max_size=20),
    cuts=st.lists(st.integers(0, 20), max_size=3),
    groups=st.integers(1, 3),
    restarts=st.sets(st.integers(0, 3)),
    ready=st.booleans(),
    fuse=st.booleans(),
)
def test_any_graph_gives_what_plain_computation_gives(
    graph: tuple[list[Node], int, int],
    rows: list[Row],
    cuts: list[int],
    groups: int,
    restarts: set[int],
    ready: bool,
    fuse: bool,
) -> None:
    nodes, one, other = graph
    streams, answers = as_streams(nodes), by_hand(nodes, rows)
    pipeline = compile_outputs(
        {"": totals(streams[one], 40).node, "beside": totals(streams[other], 20).node}, fuse=fuse
    )
    runner = Runner(pipeline, key_groups=groups, prepare=ready)
    batches: list[Batch] = []
    for number, (low, high) in enumerate(pairwise([0, *sorted(cuts), len(rows)])):
        if number in restarts:
            runner = Runner(pipeline, key_groups=groups, prepare=ready, snapshot=runner.snapshot())
        batches.append(runner.step(frame(rows[low:high])))
    batches.append(runner.finish())
    assert all(batch.late is None and batch.dismissed is None for batch in batches)
    assert told([batch.results for batch in batches]) == Counter(totals_by_hand(answers[one], 40))
    assert told([batch.outputs["beside"] for batch in batches]) == Counter(totals_by_hand(answers[other], 20))


def test_results_of_two_steps_can_be_one_output_and_a_stream_is_computed_once() -> None:
    base = totals(source().watermark(bounded(0)), 10)
    again = base.select("k", "v").key_by("k").window(tumbling(20)).aggregate(v=sum_("v"))
    job = Job("both", base.union(again), outputs={"small": Output(base), "large": Output(again)})
    assert [(stage.step, stage.level) for stage in job.pipeline.stages] == [
        ("aggregate-by-k", 0),
        ("aggregate-by-k-2", 1),
    ]
    runner = Runner(job)
    batches = [runner.step(frame([("a", 1, 1), ("a", 2, 11)])), runner.finish()]
    assert told([batch.outputs["small"] for batch in batches]) == Counter([("a", 1, 9), ("a", 2, 19)])
    assert told([batch.outputs["large"] for batch in batches]) == Counter([("a", 3, 19)])
    assert told([batch.results for batch in batches]) == told([o for b in batches for o in b.outputs.values()])


def test_only_what_counts_on_it_is_told_what_a_later_result_takes_back() -> None:
    first = source().watermark(bounded(0)).key_by("k").window(tumbling(10), allowed_lateness=50).aggregate(n=count())
    second = first.key_by("k").window(tumbling(20)).aggregate(n=sum_("n"))
    runner = Runner(compile_outputs({"": first.node, "beside": second.node}))
    batches = [
        runner.step(frame([("a", 1, 1), ("a", 1, 15)])),
        runner.step(frame([("a", 1, 2)])),
        runner.finish(),
    ]
    plain = pl.concat([batch.results for batch in batches])
    assert plain.select("n", "is_retraction", "pane_index").rows() == [(1, False, 0), (2, False, 1), (1, False, 0)]
    assert pl.concat([batch.outputs["beside"] for batch in batches])["n"].to_list()[-1] == 3


def test_a_step_is_found_by_its_name_whatever_is_put_before_it() -> None:
    base = source().watermark(bounded(0))
    first = totals(base, 10).named("per-key")
    runner = Runner(first, key_groups=2)
    runner.step(frame([("a", 1, 1)]))
    other = base.key_by("k").window(tumbling(10)).aggregate(v=count()).union(first)
    saved = {**Runner(other, key_groups=2).snapshot(), **runner.snapshot()}
    assert set(saved) == {"aggregate-by-k", "per-key"}
    assert told([Runner(other, key_groups=2, snapshot=saved).finish().results]) == Counter([("a", 1, 9)])


@dataclass(frozen=True)
class Meet(Operator):
    """Gives each row of the second input the number of rows of its key that the first has brought so far."""

    keys: tuple[tuple[str, ...], ...]

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        left, right = turn.inputs
        saved = state.get("left")
        known = left.rows.select(self.keys[0])
        known = known if saved is None else pl.concat([frame_from_bytes(saved), known])
        state.put("left", frame_to_bytes(known))
        counted = known.group_by(self.keys[0]).agg(n=pl.len().cast(pl.Int64))
        late = right.rows.filter(pl.col("event_time").to_physical() < right.watermark_before)
        fresh = right.rows.filter(pl.col("event_time").to_physical() >= right.watermark_before)
        joined = fresh.join(counted, left_on=self.keys[1], right_on=self.keys[0], how="left")
        rows = joined.select(
            *self.keys[1],
            "event_time",
            pl.col("n").fill_null(0),
            left=pl.lit(left.watermark, pl.Int64),
            right=pl.lit(right.watermark, pl.Int64),
            both=pl.lit(turn.watermark, pl.Int64),
        )
        return Outcome(rows=rows if rows.height else None, late=late if late.height else None)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return rows

    def fingerprint(self) -> dict[str, str]:
        return {"operator": "meet"}


MET = pl.Schema(
    {"k": pl.String, "event_time": INSTANT, "n": pl.Int64, "left": pl.Int64, "right": pl.Int64, "both": pl.Int64}
)


def meeting() -> Stream:
    """Rows of one source meet windows of another, in keys of different names."""
    left = source("left").watermark(perfect()).with_columns(key=pl.col("k")).key_by("key")
    right = source("right").watermark(bounded(0)).key_by("k").window(tumbling(10)).aggregate(v=sum_("v"))
    return left.process_with(
        right.select("k", "v").key_by("k"), build=lambda keys, _: Meet(keys), schema=MET, name="meet"
    ).named("meet")


def test_an_operator_with_two_inputs_gets_rows_and_a_watermark_by_input() -> None:
    runner = Runner(meeting(), key_groups=3)
    assert [(stage.step, stage.level, len(stage.inputs)) for stage in runner.pipeline.stages] == [
        ("aggregate-by-k", 0, 1),
        ("meet", 1, 2),
    ]
    runner.step({"left": frame([("a", 1, 0), ("b", 1, 0), ("a", 1, 5)])}, watermark=7)
    batch = runner.step({"right": frame([("a", 1, 1), ("c", 1, 2), ("a", 1, 25)])})
    assert sorted(batch.results.drop("event_time").rows()) == [("a", 2, 7, 25, 7), ("c", 0, 7, 25, 7)]
    runner = Runner(meeting(), key_groups=3, snapshot=runner.snapshot())
    batch = runner.step({"right": frame([("a", 1, 60)])}, watermark=40)
    assert batch.results.drop("event_time").rows() == [("a", 2, 40, 60, 40)]
    assert batch.watermark == 40


def test_the_answer_of_two_inputs_does_not_depend_on_the_number_of_key_groups() -> None:
    left = [(key, 1, time) for time, key in enumerate("abcabcddea")]
    right = [(key, 1, time) for time, key in enumerate("edcbaabcdef")]
    answers = []
    for groups in (1, 2, 5):
        runner = Runner(meeting(), key_groups=groups)
        runner.step({"left": frame(left)}, watermark=10)
        batches = [runner.step({"right": frame(right)}), runner.finish()]
        answers.append(sorted(row for each in batches for row in each.results.select("k", "event_time", "n").rows()))
    assert answers[0] == answers[1] == answers[2]
    assert dict(Counter(left_key for left_key, _, _ in left)) == {k: n for k, _, n in answers[0] if n}
