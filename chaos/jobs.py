"""The jobs under test, and the same answers by a plain computation that shares no code with them.

`tally` counts per line in tumbling windows; its results may be written by the driver or by the state partitions.
`spread` takes the newest position of each vehicle in sliding windows and counts vehicles per line: the driver merges
what key groups say. `near` is an interval left join of early vehicles with slow ones of their line, and `version` joins
early vehicles with the slow one of their line that was the newest at their time: a table of versions. All have a bound
on disorder that the feed keeps, so that the answer does not depend on how events are cut into batches.
"""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta

import polars as pl

from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, latest, sliding, tumbling
from headrace.windows import sum as total
from headrace_transit.schemas import VehiclePosition

TOPIC = "input.chaos"
START = datetime(2026, 3, 2, 6, 0, tzinfo=UTC)
BOUND = timedelta(seconds=2)
SIZE = timedelta(seconds=5)

#: An early vehicle meets slow ones of its line from so long before it to so long after it.
BEFORE, AFTER = timedelta(seconds=1), timedelta(seconds=2)
#: Delays below the first are early, above the second slow.
EARLY, SLOW = -30, 240

Answer = tuple[str, datetime, datetime, str, int, int]
"""Job, window, key and values of one result; of a join the times of both sides, and who met whom."""


def jobs() -> list[Job]:
    source = Stream.topic(TOPIC, VehiclePosition).watermark(bounded(BOUND))
    tally = source.key_by("line").window(tumbling(SIZE)).aggregate(n=count(), delay=total("delay"))
    spread = (
        source.key_by("vehicle_id")
        .window(sliding(2 * SIZE, every=SIZE))
        .aggregate(line=latest("line"))
        .key_by("line")
        .same_window()
        .aggregate(n=count())
    )
    # Events that are too late have no delay.
    early = source.filter(pl.col("delay").is_null() | (pl.col("delay") < EARLY)).select(
        "line", "vehicle_id", seen=pl.col("event_time")
    )
    slow = source.filter(pl.col("delay") > SLOW).select(
        "line", slow=pl.col("vehicle_id"), slow_seen=pl.col("event_time")
    )
    near = early.join(slow, on="line", within=(-BEFORE, AFTER), how="left")
    version = early.join(slow.as_table("line", versioned=True), on="line", as_of="event_time", how="left")
    return [
        Job("chaos-near", near, "slow vehicles near early ones", result_topic="analytics.chaos-near"),
        Job("chaos-version", version, "the slow vehicle of the line then", result_topic="analytics.chaos-version"),
        Job("chaos-tally", tally, "events and delay per line", result_topic="analytics.chaos-tally"),
        Job("chaos-spread", spread, "vehicles per line", result_topic="analytics.chaos-spread"),
    ]


def expected(events: pl.DataFrame) -> Counter[Answer]:
    """The answers that must be there, each once.

    Args:
        events: All events of the input that are not late: partition, event_time, vehicle_id, line, delay.
    """
    ends = events.group_by("partition").agg(pl.col("event_time").max()).get_column("event_time")
    watermark = ends.min() - BOUND  # type: ignore[operator]
    answers: Counter[Answer] = Counter()
    tumbled = events.with_columns(start=pl.col("event_time").dt.truncate("5s"))
    for start, line, n, delay in (
        tumbled.group_by("start", "line").agg(pl.len().alias("n"), pl.col("delay").sum()).iter_rows()
    ):
        if start + SIZE <= watermark:
            answers["chaos-tally", start, start + SIZE, line, n, delay] += 1
    # A sliding window of two slices is two neighbouring tumbling ones.
    twice = pl.concat([tumbled, tumbled.with_columns(pl.col("start") - SIZE)])
    newest = twice.sort("event_time").group_by("start", "vehicle_id").agg(pl.col("line").last())
    for start, line, n in newest.group_by("start", "line").agg(pl.len().alias("n")).iter_rows():
        if start + 2 * SIZE <= watermark:
            answers["chaos-spread", start, start + 2 * SIZE, line, n, 0] += 1
    return answers + _joined(events, watermark)


def _joined(events: pl.DataFrame, watermark: datetime) -> Counter[Answer]:
    """The answers of both joins, row by row."""
    answers: Counter[Answer] = Counter()
    rows = events.sort("event_time").select("event_time", "line", "vehicle_id", "delay").rows()
    slow: dict[str, list[tuple[datetime, str]]] = {}
    for time, line, vehicle, delay in rows:
        if delay > SLOW:
            slow.setdefault(line, []).append((time, vehicle))
    for time, line, vehicle, delay in rows:
        if delay >= EARLY:
            continue
        others = slow.get(line, [])
        near = [other for other in others if time - BEFORE <= other[0] <= time + AFTER]
        for other_time, other in near:
            answers["chaos-near", time, other_time, f"{line} {vehicle} {other}", 0, 0] += 1
        if not near and watermark > time + AFTER:
            answers["chaos-near", time, time, f"{line} {vehicle} None", 0, 0] += 1
        if watermark > time:
            then, who = max((other for other in others if other[0] <= time), default=(time, None))
            answers["chaos-version", time, then, f"{line} {vehicle} {who}", 0, 0] += 1
    return answers


def given(job: str, results: pl.DataFrame) -> Counter[Answer]:
    """The answers that a job gave."""
    if "slow" in results.columns:
        joined = results.select("seen", pl.coalesce("slow_seen", "seen").alias("met"), "line", "vehicle_id", "slow")
        return Counter(
            (job, seen, met, f"{line} {vehicle} {slow}", 0, 0) for seen, met, line, vehicle, slow in joined.rows()
        )
    delay = pl.col("delay") if "delay" in results.columns else pl.lit(0)
    rows = results.select("window_start", "window_end", "line", pl.col("n").cast(int), delay.cast(int).alias("delay"))
    return Counter((job, *row) for row in rows.iter_rows())
