"""Updating results on their way out: idempotency keys, changes, upserts and tombstones."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.tables.changed_rows import INSTANT

from headrace.errors import PlanError
from headrace.events import Codec
from headrace.formats import json
from headrace.inprocess import Runner
from headrace.inprocess.to_sinks import write_to_sinks
from headrace.kafka.job_topics import written_topics
from headrace.sinks import memory
from headrace.spark.output.delivery import splittable
from headrace.spark.output.records import Writer
from headrace.stream import Job, Output, Stream
from headrace.stream.sink_frames import keyed_results
from headrace.tables import final
from headrace.time import bounded
from headrace.windows import count

if TYPE_CHECKING:
    from headrace.spark.output.sink import Outgoing


def counted() -> Stream:
    moves = Stream.rows("moves", {"depot": pl.String, "undo": pl.Boolean}).watermark(bounded("1s"))
    changed = moves.as_changelog(pl.col("undo")).drop("undo")
    return changed.key_by("depot", null_keys=True).aggregate(n=count())


def rows(*told: tuple[str | None, bool]) -> pl.DataFrame:
    """Rows of one and the same second."""
    frame = pl.DataFrame(told, schema={"depot": pl.String, "undo": pl.Boolean}, orient="row")
    return frame.with_columns(pl.lit(0).cast(INSTANT).alias("event_time"))


BATCHES = (
    rows(("a", False), ("b", False)),
    rows(("a", False), (None, False)),
    rows(("a", False), ("b", True)),
    rows(("a", True)),
)


def outgoing(job: Job) -> list[list[Outgoing]]:
    """The records of each batch."""
    runner, writer = Runner(job), Writer(job, Codec())
    found = []
    for number, batch in enumerate(BATCHES):
        results = runner.step(batch).results
        output = job.pipeline.outputs[0]
        finished = writer.finish({}, Counter(), batch=str(number))
        finished.results.append((output, keyed_results(job, output, results, batch=str(number))))
        found.append(list(writer.encode(finished, 0)))
    return found


def test_each_change_has_an_idempotency_key_of_its_own() -> None:
    names = []
    for _ in range(2):
        batches = outgoing(Job("depots", counted(), format=json()))
        headers = [each for batch in batches for records in batch for each in records.each_headers or ()]
        names.append([name for header in headers for _, name in header])
    assert len(names[0]) == len(set(names[0])) == 10
    assert names[0] == names[1]


def test_changes_are_records_with_is_retraction() -> None:
    batches = outgoing(Job("depots", counted(), format=json()))
    second = [value for records in batches[1] for value in records.values if value is not None]
    assert sorted(b'"is_retraction":true' in value for value in second) == [False, False, True]


def test_upserts_replace_rows_and_leave_tombstones() -> None:
    job = Job("depots", counted(), format=json(), upsert=["depot"])
    table: dict[bytes, bytes] = {}
    for batch in outgoing(job):
        for records in batch:
            assert records.size() > 0
            for key, value in zip(records.keys, records.values, strict=True):
                if value is None:
                    del table[key]
                else:
                    assert b"is_retraction" not in value
                    table[key] = value
    assert {key: b'"n":2' in value for key, value in table.items()} == {b"a": True, b'{"depot":null}': False}
    topics = {spec.name: spec.cleanup for spec in written_topics([job])}
    assert topics["analytics.depots"] == "compact"


def orders(*told: tuple[str, str]) -> pl.DataFrame:
    """Orders with their new status, in one and the same second."""
    frame = pl.DataFrame(told, schema={"order": pl.String, "status": pl.String}, orient="row")
    return frame.with_columns(pl.lit(0).cast(INSTANT).alias("event_time"))


CHANGED = (
    Stream.rows("orders", {"order": pl.String, "status": pl.String})
    .watermark(bounded("1s"))
    .as_table("order")
    .changes()
)


def test_a_row_that_goes_from_one_part_of_a_union_to_another_stays_in_the_topic() -> None:
    def part(status: str) -> Stream:
        mine = CHANGED.filter(pl.col("status") == status).key_by("order").aggregate(n=count())
        return mine.with_columns(place=pl.lit(status))

    job = Job("orders", part("open").union(part("closed")), format=json(), upsert=["order"])
    runner, writer = Runner(job), Writer(job, Codec())
    table: dict[bytes, bytes] = {}
    for number, status in enumerate(["closed", "open", "closed", "open"]):
        finished = writer.finish({}, Counter(), batch=str(number))
        step = runner.step(orders(("a", status)))
        finished.results.extend(
            (way, keyed_results(job, way, rows, batch=str(number)))
            for way, rows in zip(job.pipeline.outputs, step.ways, strict=True)
        )
        for records in writer.encode(finished, 0):
            table.update(zip(records.keys, [value or b"deleted" for value in records.values], strict=True))
        assert f'"place":"{status}"'.encode() in table[b"a"], f"after batch {number}"


def test_tasks_write_upserts_only_where_each_row_is_in_one_partition() -> None:
    by_depot = CHANGED.key_by("status").top(3, by="event_time")
    counts = CHANGED.key_by("order").aggregate(n=count())
    assert splittable(Job("changes", by_depot))
    assert splittable(Job("ranks", by_depot, upsert=["status", "order"]))
    assert not splittable(Job("orders", by_depot, upsert=["order"])), "an order goes from one status to another"
    assert splittable(Job("counts", counts, upsert=["order"]))
    assert not splittable(Job("both", counts.union(counts.with_columns(n=pl.col("n") + 1)), upsert=["order"]))


def test_upserts_are_checked() -> None:
    with pytest.raises(PlanError, match="upsert by place, which its results lack"):
        Job("depots", counted(), upsert=["place"])
    with pytest.raises(PlanError, match=r"upsert='depot'"):
        Job("depots", counted(), upsert="depot")
    stays = Stream.rows("moves", {"depot": pl.String}).watermark(bounded("1s")).deduplicate("depot", within="1s")
    with pytest.raises(PlanError, match="never taken back"):
        Job("depots", counted(), outputs={"first": Output(stays, upsert=["depot"])})


def test_a_changelog_in_a_sink_folds_to_its_table() -> None:
    sink = memory()
    job = Job("depots", counted(), sinks=[sink])
    runner = Runner(job)
    write_to_sinks(job, [runner.step(batch) for batch in BATCHES], run="one")
    table = final(sink.table("depots").drop("idempotency_key", "event_time"))
    assert sorted(table.rows(), key=str) == [("a", 2), (None, 1)]
    assert sink.table("depots").get_column("idempotency_key").is_unique().all()
