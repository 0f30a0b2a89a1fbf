"""A job as a graph of steps: what is a box, what goes between them, and which rows can be seen."""

from __future__ import annotations

import json as plain
from datetime import UTC, datetime

import polars as pl
import pytest

from headrace.dashboard.job_graph import LateRows, NoRows, ResultRows, SourceRows, job_graph
from headrace.dashboard.progress_record import MalformedRecordError, read_progress_record
from headrace.dashboard.sampling import _source_rows
from headrace.formats import json
from headrace.kafka.consumer import Record
from headrace.stream import Job, Output, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

SCANS = json(schema={"depot": pl.String, "weight": pl.Float64}, time="at")


def scans(topic: str = "scans") -> Stream:
    return Stream.topic(topic, format=SCANS)


def heavy(stream: Stream) -> Stream:
    return stream.filter(pl.col("weight") > 1.5, counted="light").with_columns(grams=pl.col("weight") * 1000)


def per_depot(stream: Stream) -> Stream:
    return stream.key_by("depot").window(tumbling("10s")).aggregate(scans=count())


def test_steps_from_the_source_to_the_results() -> None:
    graph = job_graph(Job("depots", per_depot(heavy(scans().watermark(bounded("2s"))))))
    assert [(box.id, box.kind, box.title) for box in graph.steps] == [
        ("source-0", "source", "scans"),
        ("stateless-0", "stateless", "filter [weight > 1.5], dropped rows counted as light"),
        ("stateless-1", "stateless", "with_columns grams"),
        ("stateful-0", "stateful", "aggregate scans=count()"),
        ("results", "results", "analytics.depots"),
        ("late", "late", "analytics.depots.late"),
    ]
    source, counting, _, stateful, *_ = graph.steps
    assert source.detail[-1].startswith("watermark bounded(2s)")
    assert counting.counted == "light"
    assert stateful.detail == ("by depot", "window tumbling(10s)")
    assert [edge.id for edge in graph.edges] == [
        "source-0.stateless-0",
        "stateless-0.stateless-1",
        "stateless-1.stateful-0",
        "stateful-0.results",
        "stateful-0.late",
    ]
    rows = [edge.rows for edge in graph.edges]
    assert [len(each.steps) for each in rows if isinstance(each, SourceRows)] == [0, 1, 2]
    assert rows[3:] == [ResultRows("depots", "analytics.depots"), LateRows("analytics.depots.late")]


def test_steps_that_call_a_function_and_steps_behind_state_have_no_rows() -> None:
    stream = scans().watermark(bounded("2s")).map_batches(lambda frame: frame, name="look up")
    graph = job_graph(Job("depots", per_depot(stream).with_columns(twice=pl.col("scans") * 2).drop("twice")))
    reasons = {edge.id: edge.rows.reason for edge in graph.edges if isinstance(edge.rows, NoRows)}
    assert "does not call" in reasons["stateless-0.stateful-0"]
    assert "stay inside Spark" in reasons["stateful-0.stateless-1"]
    assert "stay inside Spark" in reasons["stateless-1.stateless-2"]
    assert isinstance(graph.edges[0].rows, SourceRows)


def test_a_union_has_an_edge_for_each_source() -> None:
    both = scans("north").union(scans("south")).watermark(bounded("2s"))
    graph = job_graph(Job("depots", per_depot(heavy(both))))
    assert [box.title for box in graph.steps if box.kind == "source"] == ["north", "south"]
    into = [edge.source for edge in graph.edges if edge.target == "stateless-0"]
    assert into == ["source-0", "source-1"]
    behind = graph.edge("stateless-0.stateless-1")
    assert behind is not None
    assert isinstance(behind.rows, NoRows)
    assert graph.edge("nowhere") is None


def test_outputs_share_their_steps() -> None:
    shared = per_depot(scans().watermark(bounded("2s")))
    job = Job("depots", shared, outputs={"more": Output(shared.with_columns(twice=pl.col("scans") * 2))})
    graph = job_graph(job)
    assert [box.kind for box in graph.steps].count("stateful") == 1
    outputs = {box.id: (box.title, box.output) for box in graph.steps if box.kind == "results"}
    assert outputs == {
        "results": ("analytics.depots", "depots"),
        "results-more": ("analytics.depots.more", "depots.more"),
    }


def record(value: object, offset: int) -> Record:
    content = value if isinstance(value, bytes) else plain.dumps(value).encode()
    return Record(topic="scans", partition=0, offset=offset, timestamp=1_000_000 * offset, key=None, value=content)


def test_rows_behind_steps_are_made_by_the_steps() -> None:
    graph = job_graph(Job("depots", per_depot(heavy(scans().watermark(bounded("2s"))))))
    at = datetime(2026, 1, 1, tzinfo=UTC).isoformat()
    values = [{"at": at, "depot": "north", "weight": 1}, {"at": at, "depot": "south", "weight": 2.5}, b"no scan"]
    records = [record(value, offset) for offset, value in enumerate(values)]
    seen = {}
    for edge in graph.edges[:3]:
        assert isinstance(edge.rows, SourceRows)
        frame, text = _source_rows(edge.rows, records)
        assert "2 of the newest 3 records" in text
        assert "1 cannot be read" in text
        seen[edge.id] = frame
    assert seen["source-0.stateless-0"]["depot"].to_list() == ["north", "south"]
    assert seen["stateless-0.stateless-1"]["depot"].to_list() == ["south"]
    assert seen["stateless-1.stateful-0"]["grams"].to_list() == [2500.0]


def test_counters_of_a_run_are_read_as_the_rest_of_its_progress() -> None:
    told = read_progress_record(b'{"query": "q", "batch": {"counters": {"depots": {"light": 3}}}}', wall=0)
    assert told.counters == {"depots": {"light": 3}}
    with pytest.raises(MalformedRecordError, match="light is not a whole number"):
        read_progress_record(b'{"query": "q", "batch": {"counters": {"depots": {"light": "x"}}}}', wall=0)
