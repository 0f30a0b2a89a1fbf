"""Jobs with one step of every kind that keeps state, and rows for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from hypothesis import strategies as st

import headrace
from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.inprocess import Runner
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.windows import after_count, after_watermark, count, count_window, latest, session, sliding, tumbling
from headrace.windows import sum as total

if TYPE_CHECKING:
    from headrace.inprocess import Batch
    from headrace.savepoints.state import Snapshot

INSTANT = pl.Datetime("us", "UTC")
COLUMNS = {"vehicle": pl.String, "line": pl.Int32, "speed": pl.Float64}
SCHEMA = {**COLUMNS, "event_time": pl.Int64}

POSITIONS = Stream.rows("positions", COLUMNS).watermark(bounded(4))
KEYED = POSITIONS.key_by("vehicle")
STOP = Pattern.begin("moving", pl.col("speed") > 5).next("stopped", pl.col("speed") < 2).within(20)
FALLS = """SELECT * FROM positions MATCH_RECOGNIZE (PARTITION BY vehicle ORDER BY event_time
    MEASURES FIRST(fast.speed) AS began, LAST(slow.speed) AS ended PATTERN (fast+ slow)
    DEFINE fast AS fast.speed > 5, slow AS slow.speed <= 5)"""


def every_kind() -> Job:
    """One step of every kind that keeps state."""
    sliced = KEYED.window(sliding(10, every=5)).aggregate(n=count(), speed=latest("speed")).named("sliced")
    outputs = {
        "revised": KEYED.window(tumbling(10), allowed_lateness=8).aggregate(n=count()).named("revised"),
        "early": KEYED.window(tumbling(20), trigger=after_watermark(early=after_count(2)))
        .aggregate(total=total("speed"))
        .named("early"),
        "sessions": KEYED.window(session(4)).aggregate(n=count()).named("sessions"),
        "threes": KEYED.window(count_window(3)).aggregate(total=total("speed")).named("threes"),
        "stops": KEYED.match(STOP).select(at=last("stopped.event_time"), speed=first("moving.speed")).named("stops"),
        "falls": headrace.sql(FALLS, {"positions": POSITIONS}).named("falls"),
        "before": KEYED.previous(was="speed", within=50).named("before"),
        "once": POSITIONS.deduplicate("vehicle", "line", within=15).named("once"),
        "changes": KEYED.previous(was="line", within=30)
        .filter(pl.col("was") != pl.col("line"))
        .key_by("line")
        .window(tumbling(10))
        .aggregate(changes=count())
        .named("changes"),
        "deep": KEYED.window(tumbling(5), allowed_lateness=3)
        .aggregate(n=count(), line=latest("line"))
        .named("shallow")
        .key_by("line")
        .window(tumbling(10))
        .aggregate(n=total("n"))
        .named("deep"),
        **_tables(),
        **_joins(),
    }
    return Job("every-kind", sliced, outputs={name: Output(stream) for name, stream in outputs.items()})


def _tables() -> dict[str, Stream]:
    """Steps that keep tables and give updates."""
    newest = POSITIONS.as_table("vehicle", deletes=pl.col("speed") > 9)
    return {
        "grouped": KEYED.aggregate(n=count(), speed=latest("speed")).named("grouped"),
        "all": POSITIONS.aggregate(n=count()).named("all"),
        "fastest": POSITIONS.key_by("line").top(2, by="speed", rank="place").named("fastest"),
        "newest": newest.named("newest").changes(),
        "lines": newest.named("lines-newest").aggregate(by="line", vehicles=count()).named("lines"),
        "different": POSITIONS.select("line", "speed").distinct().named("different"),
        "both": POSITIONS.select("line").intersect(POSITIONS.filter(pl.col("speed") > 4).select("line")).named("both"),
        "running": KEYED.over(rows=2, speeds=total("speed")).named("running"),
    }


def _joins() -> dict[str, Stream]:
    """Joins of every kind; the numbers of their results are counted by key group, so they are left out."""
    slow, fast = POSITIONS.filter(pl.col("speed") < 5), POSITIONS.filter(pl.col("speed") > 2)
    versions = fast.as_table("vehicle", versioned=True)
    other = POSITIONS.select("line", other=pl.col("vehicle"), was=pl.col("speed")).as_table("other")
    return {
        "near": slow.join(fast, on="vehicle", within=(-6, 9), how="full", suffix="_2").named("near").drop("pane_index"),
        "together": slow.join(fast, on="line", window=tumbling(8), how="full", suffix="_2")
        .named("together")
        .drop("pane_index"),
        "versions": slow.join(versions, on="vehicle", as_of="event_time", how="left", suffix="_2")
        .named("versions")
        .drop("pane_index"),
        "looked-up": slow.join(fast.as_table("vehicle"), on="vehicle", how="left", suffix="_2")
        .named("looked-up")
        .drop("pane_index"),
        "revised-lookup": slow.as_table("vehicle")
        .changes()
        .join(fast.as_table("vehicle"), on="vehicle", how="left", suffix="_2")
        .named("revised-lookup"),
        "of-tables": slow.as_table("vehicle").join(other, on="line", how="full").named("of-tables"),
        "nearest": slow.as_table("vehicle")
        .join_nearest(other, on="line", by=("speed", ">=", "was"), how="left")
        .named("nearest"),
    }


#: vehicle, line, speed, time; a null line has no key in some steps.
Row = tuple[str, int | None, float, int]

rows = st.tuples(
    st.sampled_from(["a", "b", "c", "d", "e", "f", "g"]),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([0.0, 1.5, 4.0, 8.0, 9.5]),
    st.integers(0, 60),
)


@st.composite
def batches(draw: st.DrawFn, most: int = 5) -> list[list[Row]]:
    """Batches whose times go on, so that windows open and end between them."""
    found, begin = [], 0
    for _ in range(draw(st.integers(2, most))):
        found.append([(*row[:3], begin + row[3] // 3) for row in draw(st.lists(rows, max_size=18))])
        begin += draw(st.sampled_from([3, 8, 25]))
    return found


def frame(given: list[Row]) -> pl.DataFrame:
    """Make rows for the source."""
    return pl.DataFrame(given, schema=SCHEMA, orient="row").cast({"event_time": INSTANT})


def answers(given: list[Batch]) -> dict[str, list[str]]:
    """Give the rows of all outputs, late rows and dismissed ones, each in one order."""
    found: dict[str, list[str]] = {}
    for batch in given:
        for name, part in {
            "": batch.results,
            **batch.outputs,
            "#late": batch.late,
            "#dismissed": batch.dismissed,
        }.items():
            shown = [] if part is None else [str(sorted(row.items())) for row in part.to_dicts()]
            found.setdefault(name, []).extend(shown)
    return {name: sorted(shown) for name, shown in found.items()}


def run_through(job: Job, parts: list[list[Row]], *, groups: int = 2, snapshot: Snapshot | None = None) -> list[Batch]:
    """Run a job over batches to the end."""
    runner = Runner(job, key_groups=groups, snapshot=snapshot)
    return [*(runner.step(frame(part), now=number) for number, part in enumerate(parts)), runner.finish()]
