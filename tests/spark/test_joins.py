"""Joins on Spark, from Kafka to Kafka: every kind in one query with a restart says what it says in process.

The conformance cases of joins run in `test_conformance.py`, turn by turn in Spark's state store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.events import Codec, Record
from headrace.formats import json
from headrace.inprocess import Runner
from headrace.kafka import Consumer, Topics
from headrace.kafka.job_topics import written_topics
from headrace.stream import Job, Stream
from headrace.tables import final
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

LEFT, RIGHT, PLACES = "input.join-left", "input.join-right", "input.join-places"
SECOND = 1_000_000
START = 1_772_000_000 * SECOND
KEYS = 12
#: What happens up to here is decided in both runs: the last rows of each topic are 100 s later.
SETTLED = 60
END = 160
PANES = ("pane_index", "pane_timing", "pane_is_last", "pane_mode")


def topic(name: str, columns: dict[str, Any]) -> Stream:
    return Stream.topic(name, schema=columns).watermark(bounded("2s")).drop("ingestion_time")


def jobs() -> dict[str, Job]:
    left, right = topic(LEFT, {"k": pl.Int64, "v": pl.Int64}), topic(RIGHT, {"k": pl.Int64, "w": pl.Int64})
    places = topic(PLACES, {"place": pl.Int64, "name": pl.String})
    gone = pl.col("w") % 5 == 0
    near = left.join(right, on="k", within=("-3s", "2s"), how="left")
    orders, stock = left.as_table("k"), right.as_table("k", deletes=gone)
    newest = places.as_table("place").named("places")
    by_place = left.with_columns(place=pl.col("k") % 3).key_by("k")
    streams = {
        "near": near,
        "together": left.join(right, on="k", window=tumbling("5s"), how="full"),
        "then": left.join(right.as_table("k", versioned=True, deletes=gone), on="k", as_of="event_time", how="left"),
        "everywhere": by_place.join(newest, on="place", how="left", broadcast=True, load_until=START + 20 * SECOND),
        "counted": orders.join(stock, on="k", how="left").key_by("w", null_keys=True).aggregate(rows=count()),
        "behind": near.key_by("k").window(tumbling("20s")).aggregate(rows=count()),
    }
    found = {name: Job(f"joins-{name}", stream) for name, stream in streams.items()}
    found["tables"] = Job("joins-tables", orders.join(stock, on="k"), format=json(), upsert=["k"])
    return found


def rows(value: str, first: int, last: int, every: int, lag: int) -> pl.DataFrame:
    """Rows whose times go up but for those of every seventh row, which is up to 2 s earlier."""
    numbers = pl.int_range(first, last, every, eager=True)
    frame = pl.DataFrame({"k": (numbers // every) % KEYS, value: numbers, "n": numbers}).with_columns(
        event_time=START + (pl.col("n") * 1000) * 100 - pl.when(pl.col("n") % 7 == 0).then(lag).otherwise(0)
    )
    return frame.drop("n").with_columns(pl.col("event_time").cast(pl.Datetime("us", "UTC")))


def at(value: str, k: int, second: float, number: int) -> pl.DataFrame:
    row = pl.DataFrame({"k": [k], value: [number]})
    return row.with_columns(pl.lit(START + int(second * SECOND)).cast(pl.Datetime("us", "UTC")).alias("event_time"))


def halves() -> list[dict[str, pl.DataFrame]]:
    """The input, in two parts; the second begins with a row of each side that is late, and ends with one far ahead."""
    lag = 1_500_000
    numbers = pl.int_range(3, eager=True)
    places = pl.DataFrame({"place": numbers, "name": [f"place {number}" for number in numbers]}).with_columns(
        pl.lit(START).cast(pl.Datetime("us", "UTC")).alias("event_time")
    )
    later, ahead = (
        places[:1].with_columns(pl.lit(START + second * SECOND).cast(pl.Datetime("us", "UTC")).alias("event_time"))
        for second in (30, END)
    )
    first = {LEFT: rows("v", 0, 300, 3, lag), RIGHT: rows("w", 0, 300, 4, lag), PLACES: pl.concat([places, later])}
    second = {
        LEFT: pl.concat([at("v", 1, 2, -1), rows("v", 300, 700, 3, lag), at("v", 0, END, 10_000)]),
        RIGHT: pl.concat([at("w", 1, 2, -2), rows("w", 300, 700, 4, lag), at("w", 0, END, 10_001)]),
        PLACES: ahead,
    }
    return [
        {name: frame.with_columns(ingestion_time=pl.col("event_time")) for name, frame in part.items()}
        for part in (first, second)
    ]


def settled(results: pl.DataFrame, like: pl.DataFrame) -> list[str]:
    """Results up to the time that both runs have decided, in one order, without what depends on key groups."""
    columns = [name for name in like.columns if name not in PANES]
    decided = results.filter(pl.col("event_time").dt.timestamp("us") < START + SETTLED * SECOND)
    return sorted(map(str, decided.select(columns).rows()))


def table_rows(changes: pl.DataFrame, like: pl.DataFrame) -> list[str]:
    """Fold changes to the table, without the times of its rows."""
    columns = [name for name in like.columns if name not in PANES or name == "is_retraction"]
    return sorted(map(str, final(changes.select(columns)).drop("event_time").rows()))


def table_of(bench: Bench, name: str) -> dict[bytes | None, bytes]:
    """Fold the records of a topic of upserts, as a reader of a compacted topic does."""
    table: dict[bytes | None, bytes] = {}
    with Consumer(bench.broker.connection, [name]) as consumer:
        for record in consumer:
            table.pop(record.key, None)
            if record.value is not None:
                table[record.key] = record.value
    return table


def test_every_kind_of_join_says_over_a_restart_what_it_says_in_process(bench: Bench) -> None:
    chosen = jobs()
    # The topic of upserts is compacted.
    Topics(bench.broker.connection).ensure(written_topics([chosen["tables"]]))
    for name, job in chosen.items():
        if name != "tables":
            bench.prepare(job, partitions=1)
    parts = halves()
    # Whatever comes before the row that moves the watermark so far has been read.
    # A join holds back what comes behind it by its bounds.
    for part, until in zip(parts, (24, END - 6), strict=True):
        for name, frame in part.items():
            key = "place" if name == PLACES else "k"
            bench.send(name, Codec().encode(frame, Record).to_pylist(), frame.get_column(key).cast(pl.String).to_list())
        bench.run_to(*chosen.values(), watermark=START + until * SECOND)

    for name, job in chosen.items():
        runner = Runner(job)
        steps = [runner.step({topic: part[topic] for topic in job.sources}) for part in parts]
        expected = pl.concat([step.results for step in steps])
        assert expected.height > 20, name
        if name == "tables":
            held = {str(k).encode(): (v, w) for k, v, w in final(expected).select("k", "v", "w").rows()}
            found = table_of(bench, job.result_topic)
            assert found.keys() == held.keys()
            assert all(
                f'"v":{v}'.encode() in found[k] and f'"w":{w}'.encode() in found[k] for k, (v, w) in held.items()
            )
            assert len(held) < KEYS, "nothing was deleted"
            continue
        found_rows = bench.read(job.result_topic)
        if name == "counted":
            tables = [table_rows(each, expected) for each in (found_rows, expected)]
            assert tables[0] == tables[1], name
            continue
        assert settled(found_rows, expected) == settled(expected, expected), name
        late = sum(step.late.height for step in steps if step.late is not None)
        assert bench.count(job.late_topic) == late, name
        assert late == {"near": 2, "together": 2, "then": 1}.get(name, late), name
    assert Topics(bench.broker.connection).get(chosen["tables"].result_topic).config["cleanup.policy"] == "compact"

    # A batch sees everything at once, so nothing is late: the in-process runner is given it the same way.
    answers = bench.batch(*chosen.values())
    whole = {name: pl.concat([part[name] for part in parts]) for name in parts[0]}
    for name, job in chosen.items():
        together = Runner(job).step({topic: whole[topic] for topic in job.sources})
        assert together.late is None
        answer, expected = answers[job.name].results, together.results
        if name in ("tables", "counted"):
            assert table_rows(answer, expected) == table_rows(expected, expected), f"{name} in a batch"
            continue
        assert settled(answer, expected) == settled(expected, expected), f"{name} in a batch"
