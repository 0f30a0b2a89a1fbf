"""One stage on one key group: whose time it keeps, what it keeps across restarts, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.engine import MemorySegments, Operator, Outcome, Turn
from headrace.engine.group import CLOCK, Arrivals, Group, Seen, Timekeeping
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time import bounded, perfect
from headrace.time.instants import BEGINNING, END

if TYPE_CHECKING:
    from headrace.engine import Segments

SECOND = 1_000_000
SCHEMA = pl.Schema({"k": pl.String, "event_time": pl.Datetime("us", "UTC")})


@dataclass
class Counting(Operator):
    """Counts all rows it ever got, and shows the turns it was given."""

    shape: dict[str, str] = field(default_factory=lambda: {"version": "1"})
    onward: int | None = None
    turns: list[Turn] = field(default_factory=list)

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        self.turns.append(turn)
        total = int(state.get("total") or b"0") + turn.rows.height
        state.put("total", str(total).encode())
        return Outcome(rows=pl.DataFrame({"total": [total]}), watermark=self.onward)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return pl.Schema({"total": pl.Int64})

    def fingerprint(self) -> dict[str, str]:
        return self.shape


def rows(*seconds: float) -> pl.DataFrame:
    times = pl.Series([round(s * SECOND) for s in seconds], dtype=pl.Int64)
    return pl.DataFrame({"k": ["a"] * len(seconds), "event_time": times}).cast(SCHEMA)  # type: ignore[arg-type]


def seen(partition: str, *seconds: float, source: int = 0) -> Seen:
    return Seen(source, partition, bounded(0).observe(rows(*seconds)))


def group(*inputs: Timekeeping, operator: Operator | None = None, schema: pl.Schema = SCHEMA) -> Group:
    return Group(operator or Counting(), inputs or (Timekeeping(bounded("1s")),), schema)


class Clock:
    """Runs turns on one group and tells the watermark in seconds."""

    def __init__(self, *inputs: Timekeeping) -> None:
        self.inputs = inputs
        self.segments = MemorySegments()

    def __call__(self, *seens: Seen, now: float | None = None, **more: Any) -> float | None:
        arrivals = Arrivals(seen=list(seens), now=None if now is None else round(now * SECOND), **more)
        # A new group each time: whatever it knows must come from the segments.
        watermark = group(*self.inputs).turn(self.segments, arrivals).watermark
        return None if watermark == BEGINNING else watermark / SECOND


def test_an_operator_gets_rows_partials_watermark_and_time() -> None:
    operator = Counting()
    partials = pl.DataFrame({"k": ["a"], "n": [3]})
    arrivals = Arrivals(
        rows=[rows(1), rows(2, 3)], partials=[partials, partials], seen=[seen("0", 1, 2, 3)], now=9 * SECOND
    )
    departures = group(operator=operator).turn(MemorySegments(), arrivals)
    (turn,) = operator.turns
    assert turn.rows.equals(rows(1, 2, 3))
    assert turn.partials is not None
    assert turn.partials.height == 2
    assert (turn.watermark, turn.now, turn.watermark_before) == (2 * SECOND, 9 * SECOND, BEGINNING)
    assert (departures.watermark, departures.reached, departures.now) == (2 * SECOND, 2 * SECOND, 9 * SECOND)


def test_without_rows_an_operator_still_gets_a_turn_with_the_columns() -> None:
    operator = Counting()
    segments = MemorySegments()
    group(operator=operator).turn(segments, Arrivals(rows=[rows(1)], seen=[seen("0", 1)]))
    group(operator=operator).turn(segments, Arrivals())
    last = operator.turns[-1]
    assert last.rows.schema == SCHEMA
    assert last.rows.is_empty()
    assert last.partials is None
    assert last.watermark == last.watermark_before == 0


def test_an_operator_keeps_its_own_segments_and_cannot_touch_the_clock() -> None:
    class Nosy(Counting):
        def turn(self, state: Segments, turn: Turn) -> Outcome:
            assert state.get("clock") is None
            state.put("clock", b"mine")
            state.delete("other")
            return Outcome()

    segments = MemorySegments()
    group(operator=Nosy()).turn(segments, Arrivals(seen=[seen("0", 5)]))
    assert segments.content["op/clock"] == b"mine"
    assert sorted(segments.content) == ["clock", "op/clock"]


def test_the_watermark_is_the_least_of_the_partitions_and_never_goes_back() -> None:
    clock = Clock(Timekeeping(bounded("1s")))
    assert clock() is None
    assert clock(seen("0", 10)) == 9
    assert clock(seen("1", 5)) == 9
    assert clock(seen("0", 30), seen("1", 20)) == 19
    assert clock(seen("1", 7)) == 19
    assert clock(seen("0", 31), seen("1", 32)) == 30


def test_a_known_partition_holds_back_until_it_is_idle() -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0", "1")))
    assert clock(seen("0", 10), now=100) is None
    assert clock(seen("0", 20), now=129) is None
    assert clock(seen("0", 21), now=130) == 21
    assert clock(seen("1", 15), seen("0", 22), now=131) == 21
    assert clock(seen("1", 23), now=132) == 22


def test_time_goes_on_by_the_heartbeat_alone() -> None:
    clock = Clock(Timekeeping(bounded(0), 10 * SECOND))
    assert clock(seen("0", 50), seen("1", 40), now=0) == 40
    assert clock(seen("0", 51), now=9) == 40
    assert clock(now=10) == 51
    assert clock(now=100) == 51


def test_the_watermark_of_several_inputs_is_the_least_of_theirs() -> None:
    clock = Clock(Timekeeping(bounded(0), name="fast"), Timekeeping(bounded("5s"), name="slow"))
    assert clock(seen("0", 10)) is None
    assert clock(seen("0", 10, source=1)) == 5
    assert clock(seen("0", 100)) == 5
    assert clock(seen("0", 50, source=1)) == 45


def test_an_idle_input_does_not_hold_the_others_back() -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, name="a"), Timekeeping(bounded(0), 30 * SECOND, name="b"))
    assert clock(seen("0", 10), seen("0", 5, source=1), now=0) == 5
    assert clock(seen("0", 20), now=29) == 5
    assert clock(seen("0", 21), now=30) == 21
    assert clock(seen("0", 22, source=1), seen("0", 40), now=31) == 22


def test_an_input_that_never_showed_anything_is_idle_in_the_end() -> None:
    idle = Timekeeping(bounded(0), 30 * SECOND, name="b")
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, name="a"), idle)
    assert clock(seen("0", 10), now=100) is None
    assert clock(seen("0", 11), now=129) is None
    assert clock(seen("0", 12), now=130) == 12
    patient = Clock(Timekeeping(bounded(0), name="a"), Timekeeping(bounded(0), name="b"))
    assert patient(seen("0", 10), now=0) is None
    assert patient(seen("0", 11), now=10_000_000) is None


def test_when_all_inputs_are_idle_time_goes_to_the_furthest() -> None:
    times = [Timekeeping(bounded(0), 10 * SECOND, name=name) for name in "ab"]
    clock = Clock(*times)
    assert clock(seen("0", 50), seen("0", 40, source=1), now=0) == 40
    assert clock(now=10) == 50


def test_processing_time_comes_from_the_heartbeat_or_first_from_ingestion_and_never_goes_back() -> None:
    operator, segments = Counting(), MemorySegments()
    for arrivals in (
        Arrivals(),
        Arrivals(first_now=7),
        Arrivals(first_now=900),
        Arrivals(now=20, first_now=900),
        Arrivals(now=10),
    ):
        group(operator=operator).turn(segments, arrivals)
    assert [turn.now for turn in operator.turns] == [BEGINNING, 7, 7, 20, 20]
    assert group().now(segments) == 20
    assert group().now(MemorySegments()) is None


def test_a_source_that_knows_says_its_watermark() -> None:
    clock = Clock(Timekeeping(perfect()))
    assert clock(Seen(0, "0", {"watermark": 4 * SECOND})) == 4
    assert clock(Seen(0, "0", {"watermark": 3 * SECOND})) == 4


def test_the_end_of_the_input_is_the_end_of_time() -> None:
    clock = Clock(Timekeeping(bounded("1s"), partitions=("0", "1")))
    assert clock(seen("0", 5)) is None
    assert clock(ended=True) == END / SECOND
    assert clock(seen("0", 6)) == END / SECOND


def test_an_operator_may_hold_the_next_stage_back_but_not_itself() -> None:
    operator, segments = Counting(onward=3 * SECOND), MemorySegments()
    departures = group(operator=operator).turn(segments, Arrivals(seen=[seen("0", 10)]))
    assert departures.watermark == 3 * SECOND
    assert departures.reached == 9 * SECOND
    group(operator=operator).turn(segments, Arrivals())
    assert operator.turns[-1].watermark_before == 9 * SECOND


def test_a_restart_goes_on_from_the_saved_segments() -> None:
    segments = MemorySegments()
    group().turn(segments, Arrivals(rows=[rows(1, 2)], seen=[seen("0", 10), seen("1", 20)], now=5))
    again = MemorySegments(segments.content)
    departures = group().turn(again, Arrivals(rows=[rows(3)], seen=[seen("0", 15)]))
    assert departures.outcome.rows is not None
    assert departures.outcome.rows.item() == 3
    assert (departures.watermark, departures.now) == (14 * SECOND, 5)


def test_inputs_are_found_again_by_name_when_others_join_or_leave() -> None:
    a, b, c = (Timekeeping(bounded(0), name=name) for name in "abc")
    clock = Clock(a, b)
    assert clock(seen("0", 10), seen("0", 30, source=1)) == 10
    clock.inputs = (c, b, a)
    assert clock(seen("0", 25, source=2)) == 10
    assert clock(seen("0", 28)) == 25
    clock.inputs = (b,)
    assert clock() == 30


def test_inputs_of_one_source_are_told_apart_by_their_order() -> None:
    clock = Clock(Timekeeping(bounded(0), name="a"), Timekeeping(bounded("5s"), name="a"))
    assert clock(seen("0", 10), seen("0", 10, source=1)) == 5
    assert clock(seen("0", 20), seen("0", 20, source=1)) == 15


def test_another_strategy_or_another_delay_goes_on_where_time_stands() -> None:
    clock = Clock(Timekeeping(bounded("1s")))
    assert clock(seen("0", 10)) == 9
    clock.inputs = (Timekeeping(bounded("5s")),)
    assert clock(seen("0", 12)) == 9
    assert clock(seen("0", 20)) == 15


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ({"window": "tumbling(10s)", "keys": "k"}, "window was 'tumbling(5s)', is 'tumbling(10s)'"),
        ({"window": "tumbling(5s)"}, "keys is gone: k"),
        ({"window": "tumbling(5s)", "keys": "k", "aggregate n": "count()"}, "aggregate n is new: count()"),
    ],
)
def test_state_of_another_job_is_refused_with_what_changed(shape: dict[str, str], words: str) -> None:
    segments = MemorySegments()
    group(operator=Counting({"window": "tumbling(5s)", "keys": "k"})).turn(segments, Arrivals())
    before = dict(segments.content)
    with pytest.raises(StateError) as caught:
        group(operator=Counting(shape)).turn(segments, Arrivals(rows=[rows(1)]))
    assert words in str(caught.value)
    assert "another name" in caught.value.hint
    assert segments.content == before


def test_a_column_of_another_type_is_refused_but_more_or_fewer_columns_are_not() -> None:
    segments = MemorySegments()
    group().turn(segments, Arrivals())
    group(schema=pl.Schema({**SCHEMA, "v": pl.Int64})).turn(segments, Arrivals())
    with pytest.raises(StateError, match="column v was Int64, is Float64"):
        group(schema=pl.Schema({**SCHEMA, "v": pl.Float64})).turn(segments, Arrivals())
    group().turn(segments, Arrivals())


HOUR = 3600
#: The machine's clock, in seconds, one value a second: 20 s as it is, then 10 s wrong, then 139 s as it is.
JUMPS = {
    "no jump": [100 + n for n in range(170)],
    "an hour forward and back": [100 + n + (HOUR if 20 <= n < 30 else 0) for n in range(170)],
    "an hour back and forward": [100 + n - (HOUR if 20 <= n < 30 else 0) for n in range(170)],
    "an hour forward for good": [100 + n + (HOUR if n >= 20 else 0) for n in range(170)],
    "an hour back for good": [100 + n - (HOUR if n >= 20 else 0) for n in range(170)],
}


@pytest.mark.parametrize("name", JUMPS)
def test_silence_is_measured_by_the_steady_clock_whatever_the_machine_says(name: str) -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0", "1")))
    marks = []
    for second, now in enumerate(JUMPS[name]):
        quiet = [] if second > 31 else [seen("1", second)]
        marks.append(clock(seen("0", second), *quiet, now=now, steady=(100 + second) * SECOND))
    # Partition 1 was heard last at 31 s, so it holds the watermark there until it has been silent for 30 s.
    assert marks == [*range(32), *[31] * 29, *range(61, 170)]


@pytest.mark.parametrize("name", ["no jump", "an hour forward and back", "an hour back for good"])
def test_without_a_steady_clock_a_clock_that_goes_back_does_not_keep_a_partition_active(name: str) -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0", "1")))
    marks = []
    for second, now in enumerate(JUMPS[name]):
        quiet = [] if second > 31 else [seen("1", second)]
        marks.append(clock(seen("0", second), *quiet, now=now))
    assert marks[32] == 31
    # The second in which the clock goes back is the only one that is not counted.
    assert marks[63:] == list(range(63, 170))


def test_state_without_a_steady_clock_is_carried_on() -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0", "1")))
    assert clock(seen("0", 1), seen("1", 1), now=100) == 1
    saved = record_from_bytes(clock.segments.content[CLOCK])
    del saved["clock"]  # as it was written before there was one
    clock.segments.put(CLOCK, record_to_bytes(saved))
    assert clock(seen("0", 20), now=129, steady=129 * SECOND) == 1
    assert clock(seen("0", 21), now=130, steady=130 * SECOND) == 21


def test_a_partition_that_appears_holds_back_until_it_brings_events_or_is_idle() -> None:
    clock = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0",)))
    assert clock(seen("0", 10), now=100) == 10
    appeared = Seen(0, "1", {"rows": 0})
    assert clock(seen("0", 20), appeared, now=101) == 10
    assert clock(seen("0", 30), now=102) == 10
    assert clock(seen("1", 12), now=103) == 12
    silent = Clock(Timekeeping(bounded(0), 30 * SECOND, ("0",)))
    assert silent(seen("0", 10), appeared, now=100) is None
    assert silent(seen("0", 20), now=130) == 20
