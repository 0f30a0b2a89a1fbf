"""State that an earlier version has saved is read by this one.

The files in `saved_state/` are kept as they were written, one per layout of the checkpoint; a version that changes what
an operator saves adds one, and reads the others. `python -m tests.inprocess.test_saved_state` writes that of this
version.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.engine import Operator, Outcome
from headrace.errors import StateError
from headrace.inprocess import Runner
from headrace.spark.checkpoint.saved_state import read_state, write_state
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded, perfect
from headrace.windows import count, latest, session, sliding, tumbling

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

SAVED = Path(__file__).parent / "saved_state"
GROUPS = 2
COLUMNS = {"vehicle": pl.String, "speed": pl.Float64, "event_time": pl.Int64}
INSTANT = pl.Datetime("us", "UTC")

POSITIONS = (
    Stream.rows("positions", {"vehicle": pl.String, "speed": pl.Float64}).watermark(bounded(2)).key_by("vehicle")
)
STOP = Pattern.begin("moving", pl.col("speed") > 10).next("stopped", pl.col("speed") < 1).within(20)


def job() -> Job:
    """One step of every kind that keeps state."""
    sliced = POSITIONS.window(sliding(10, every=5)).aggregate(n=count(), speed=latest("speed")).named("sliced")
    revised = POSITIONS.window(tumbling(10), allowed_lateness=30).aggregate(n=count()).named("revised")
    sessions = POSITIONS.window(session(4)).aggregate(n=count()).named("sessions")
    stops = POSITIONS.match(STOP).select(at=last("stopped.event_time"), speed=first("moving.speed")).named("stops")
    before = POSITIONS.previous(was="speed", within=50).named("before")
    rounded = POSITIONS.with_columns(step=pl.col("speed").round().cast(pl.Int64))
    once = rounded.deduplicate("vehicle", "step", within=15).named("once")
    others = {"revised": revised, "sessions": sessions, "stops": stops, "before": before, "once": once}
    return Job("saved", sliced, outputs={name: Output(stream) for name, stream in others.items()})


def frame(first: int, last: int) -> pl.DataFrame:
    rows = [(f"v{n % 3}", 0.5 if n % 7 == 0 else 11.0 + n % 4, n - n % 3) for n in range(first, last)]
    return pl.DataFrame(rows, schema=COLUMNS, orient="row").cast({"event_time": INSTANT})


def test_state_of_this_layout_is_read() -> None:
    path = SAVED / "layout-3.arrow"
    saved = read_state(path)
    snapshot: dict[str, list[dict[str, bytes]]] = {}
    for (step, group), segments in saved.items():
        snapshot.setdefault(step, [{} for _ in range(GROUPS)])[group] = segments
    whole, again = Runner(job(), key_groups=GROUPS), Runner(job(), key_groups=GROUPS, snapshot=snapshot)
    whole.step(frame(0, 31))
    compared: dict[str, int] = {}
    for ours, theirs in ((whole.step(frame(31, 60)), again.step(frame(31, 60))), (whole.finish(), again.finish())):
        outputs = {"sliced": (ours.results, theirs.results)}
        outputs |= {name: (rows, theirs.outputs[name]) for name, rows in ours.outputs.items()}
        for name, (rows, read) in outputs.items():
            compared[name] = compared.get(name, 0) + rows.height
            assert sorted(rows.rows(), key=str) == sorted(read.rows(), key=str), name
    assert min(compared.values()) > 0, compared


@dataclass(frozen=True)
class Total(Operator):
    """Adds up how many rows there were; its second version keeps a number of eight bytes, its first kept a text."""

    version: int

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        before = state.get("total")
        read = 0 if before is None else int(before) if self.version == 1 else int.from_bytes(before, "big")
        total = read + turn.rows.height
        state.put("total", str(total).encode() if self.version == 1 else total.to_bytes(8, "big"))
        return Outcome(rows=turn.rows.select("vehicle", "event_time", total=pl.lit(total, pl.Int64)))

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return pl.Schema({"vehicle": rows["vehicle"], "event_time": INSTANT, "total": pl.Int64})

    def fingerprint(self) -> dict[str, str]:
        return {"operator": "total", "version": str(self.version)}


class Migrated(Total):
    """The second version, which reads what the first has kept."""

    def migrate(self, state: Segments, fingerprint: dict[str, str]) -> bool:
        if fingerprint != {"operator": "total", "version": "1"}:
            return False
        state.put("total", int(state.get("total") or b"0").to_bytes(8, "big"))
        return True


def totals(operator: Operator) -> Stream:
    rows = Stream.rows("positions", {"vehicle": pl.String, "speed": pl.Float64}).watermark(perfect())
    return rows.key_by("vehicle").process(lambda *_: operator).named("total")


def test_an_operator_reads_the_state_of_its_earlier_version() -> None:
    runner = Runner(totals(Total(1)), key_groups=1)
    runner.step(frame(0, 5))
    with pytest.raises(StateError, match="step 'total' does not fit the job: version was '1', is '2'"):
        Runner(totals(Total(2)), key_groups=1, snapshot=runner.snapshot()).step(frame(5, 6))
    migrated = Runner(totals(Migrated(2)), key_groups=1, snapshot=runner.snapshot())
    assert migrated.step(frame(5, 7)).results["total"].to_list() == [7, 7]
    again = Runner(totals(Migrated(2)), key_groups=1, snapshot=migrated.snapshot())
    assert again.step(frame(7, 8)).results["total"].to_list() == [8]


if __name__ == "__main__":
    writer = Runner(job(), key_groups=GROUPS)
    writer.step(frame(0, 31))
    state = {
        (step, group): segments for step, groups in writer.snapshot().items() for group, segments in enumerate(groups)
    }
    write_state(SAVED / "layout-3.arrow", state)
