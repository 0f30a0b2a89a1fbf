"""Tables and functions as enrichments: what is found, what is refused, what is counted."""

from __future__ import annotations

import pickle
import threading
import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.enrich import State, bulk, table
from headrace.errors import JobError, PlanError
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded
from headrace.time.instants import INSTANT
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.enrich import Enrichment, Found

STOPS = pl.DataFrame({"line": ["1", "2"], "ends": ["Eira", "Pasila"], "zone": [1, 2]})


def states(found: Found) -> list[State]:
    return [State(number) for number in found.states.to_list()]


def until(condition: Any) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.01)


def lines(*names: str | None, **columns: Any) -> pl.DataFrame:
    at = pl.Series([0] * len(names)).cast(INSTANT)
    return pl.DataFrame({"line": pl.Series(names, dtype=pl.String), "event_time": at, **columns})


def counted(source: Enrichment, on: Any = "line") -> Stream:
    return (
        Stream.rows("trips", {"line": pl.String})
        .watermark(bounded("0s"))
        .enrich(source, on=on)
        .key_by("line")
        .window(tumbling("1s"))
        .aggregate(trips=count(), known=count("ends"))
    )


# --- tables


def test_rows_get_the_values_of_their_key_and_go_on_without() -> None:
    batch = run(counted(table(STOPS, name="stops")), lines("1", "3", "1", "2"))
    assert batch.results.sort("line").select("line", "trips", "known").rows() == [("1", 2, 2), ("2", 1, 1), ("3", 1, 0)]
    assert batch.counts == {"stops.found": 3, "stops.unknown": 1}


def test_a_row_without_a_key_goes_on_and_is_counted() -> None:
    stream = (
        Stream.rows("trips", {"line": pl.String, "vehicle": pl.String})
        .watermark(bounded("0s"))
        .enrich(table(STOPS, name="stops"), on="line")
        .key_by("vehicle")
        .window(tumbling("1s"))
        .aggregate(trips=count(), known=count("ends"))
    )
    batch = run(stream, lines("1", None, vehicle=["a", "b"]))
    assert batch.counts == {"stops.found": 1, "stops.keyless": 1}
    assert batch.results.sort("vehicle").select("trips", "known").rows() == [(1, 1), (1, 0)]
    batch = run(stream, lines(None, vehicle=["b"]))
    assert batch.counts == {"stops.keyless": 1}


def test_the_source_may_call_the_key_otherwise() -> None:
    source = table(STOPS.rename({"line": "route"}), name="stops")
    stream = counted(source, on={"line": "route"})
    assert "enrich by table stops on line as route -> ends, zone" in stream.explain()
    assert run(stream, lines("2")).results.get_column("known").to_list() == [1]


def test_only_the_key_is_read_of_a_source() -> None:
    stream = (
        Stream.rows("trips", {"line": pl.String, "vehicle": pl.String, "weight": pl.Float64})
        .watermark(bounded("0s"))
        .enrich(table(STOPS), on="line")
        .key_by("ends")
        .window(tumbling("1s"))
        .aggregate(trips=count())
    )
    assert set(compile_plan(stream.node, stream.schema).entries[0].columns) == {"line", "event_time"}


values = st.one_of(st.none(), st.sampled_from("abcd"))


@settings(deadline=None, max_examples=80)
@given(
    rows=st.lists(st.tuples(values, values), unique=True, max_size=20),
    keys=st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcde")), unique=True, min_size=1, max_size=12),
)
def test_a_null_in_the_table_is_any_value_and_the_row_that_says_most_wins(
    rows: list[tuple[str | None, str | None]], keys: list[tuple[str, str]]
) -> None:
    schema = {"one": pl.String, "two": pl.String}
    frame = pl.DataFrame(rows, schema=schema, orient="row").with_row_index("number").cast({"number": pl.Int64})
    asked = pl.DataFrame(keys, schema=schema, orient="row")
    found = table(frame, gives={"number": pl.Int64}).look_up(asked)
    for key, number in zip(keys, found.values.get_column("number").to_list(), strict=True):
        fitting = [
            place
            for place, row in enumerate(rows)
            if all(have is None or have == want for have, want in zip(row, key, strict=True))
        ]
        says = {place: sum(value is not None for value in rows[place]) for place in fitting}
        best = [place for place in fitting if says[place] == max(says.values())]
        assert number in best if best else number is None


def test_a_table_travels_with_the_plan_and_is_unpacked_once() -> None:
    source = table(STOPS, name="stops")
    packed = pickle.dumps(source)
    keys = pl.DataFrame({"line": ["2"]})
    copies = [pickle.loads(packed) for _ in range(2)]  # noqa: S301 - our own
    assert [copy.look_up(keys).values.rows() for copy in copies] == [source.look_up(keys).values.rows()] * 2
    assert copies[0].token == copies[1].token


def test_a_loaded_table_is_loaded_anew_in_the_background() -> None:
    loads: list[int] = []
    gate = threading.Event()

    def load() -> pl.DataFrame:
        loads.append(1)
        if len(loads) == 2:
            raise OSError("the file is being written")
        if len(loads) > 2:
            assert gate.wait(20)
        return STOPS.with_columns(ends=pl.lit(f"load {len(loads)}"))

    source = table(load, gives={"ends": pl.String}, name="stops", refresh="1ms")
    keys = pl.DataFrame({"line": ["1"]})

    def ends() -> str:
        return source.look_up(keys).values.item()

    assert not loads  # not when it is written, but when it is needed
    assert ends() == "load 1"
    until(lambda: ends() == "load 1" and len(loads) == 2)  # the second time it fails: the first stays


def test_a_refreshed_table_takes_the_place_of_the_old_one() -> None:
    loads: list[int] = []

    def load() -> pl.DataFrame:
        loads.append(1)
        return STOPS.with_columns(ends=pl.lit(f"load {len(loads)}"))

    source = table(load, gives={"ends": pl.String}, name="stops", refresh="1ms")
    keys = pl.DataFrame({"line": ["1"]})
    assert source.look_up(keys).values.item() == "load 1"
    until(lambda: source.look_up(keys).values.item() != "load 1")


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (None, "it gave a NoneType, not a DataFrame"),
        (pl.DataFrame({"line": [2**40], "ends": ["far"]}), "InvalidOperationError"),
    ],
    ids=["no frame", "a key too large for its type"],
)
@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_table_that_comes_back_unusable_is_loaded_again_later(
    bad: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    loads: list[int] = []

    def load() -> Any:
        loads.append(1)
        return bad if len(loads) == 2 else pl.DataFrame({"line": [1], "ends": [f"load {len(loads)}"]})

    source = table(load, gives={"ends": pl.String}, name="stops", refresh="1ms")
    keys = pl.DataFrame({"line": [1]}, schema={"line": pl.Int32})
    until(lambda: source.look_up(keys).values.item() not in ("load 1", "load 2"))
    assert says in caplog.text


def test_a_table_that_cannot_be_loaded_at_all_stops_the_job_with_the_reason() -> None:
    def load() -> pl.DataFrame:
        raise FileNotFoundError("no such feed")

    runner = Runner(counted(table(load, gives={"ends": pl.String}, name="stops")))
    with pytest.raises(JobError, match=r"table 'stops' cannot be loaded: FileNotFoundError: no such feed"):
        runner.step(lines("1"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.enrich(table(STOPS), on="time"), "there is no such column"),
        (lambda s: s.enrich(table(STOPS), on=[]), "without a key"),
        (lambda s: s.enrich(table(STOPS.drop("line")), on="line"), "has no column line"),
        (lambda s: s.enrich(table(pl.concat([STOPS, STOPS])), on="line"), "several rows for the key"),
        (lambda s: s.enrich(table(STOPS.cast({"line": pl.Int64})), on="line"), "looked up as String"),
        (lambda s: s.enrich(table(STOPS), on="line").enrich(table(STOPS), on="line"), "ends, zone is taken"),
        (lambda s: s.enrich(table(STOPS.select("line")), on="line"), "gives no column beside the key"),
        (lambda s: s.enrich(table(lambda: STOPS), on="line"), "without the columns it gives"),
        (lambda s: s.enrich(table(STOPS, refresh="1h"), on="line"), "refresh of a table that is a frame"),
        (lambda s: s.enrich(table(lambda: STOPS, gives={"ends": pl.String}, refresh="0s"), on="line"), "loaded anew"),
        (lambda s: s.enrich(bulk(lambda k: k, gives={}), on="line"), "gives no column"),
        (
            lambda s: s.enrich(bulk(lambda k: k, gives={"at": pl.Date()}, patience="1s"), on="line"),
            "cannot be kept in a cache",
        ),
    ],
)
def test_what_cannot_work_is_refused(make: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make(Stream.rows("trips", {"line": pl.String}))


# --- functions


def ending(keys: pl.DataFrame) -> pl.DataFrame:
    """Knows the lines that have a number."""
    return keys.filter(pl.col("line").str.contains(r"^\d+$")).with_columns(ends=pl.format("end of {}", "line"))


def test_a_function_is_called_with_different_keys_and_may_leave_some_out() -> None:
    seen: list[int] = []

    def watched(keys: pl.DataFrame) -> pl.DataFrame:
        seen.append(keys.height)
        return ending(keys)

    batch = run(counted(bulk(watched, gives={"ends": pl.String}, name="ends")), lines("1", "x", "1", "2"))
    assert seen == [3]
    assert batch.counts == {"ends.found": 3, "ends.unknown": 1}


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: "no frame", "returned str, not a Polars DataFrame"),
        (lambda keys: keys, "gave no column ends"),
        (lambda _: pl.DataFrame({"ends": ["a"]}), "gave 1 rows for 2 keys"),
        (lambda keys: keys.select(ends=pl.lit("a"))[:1], "gave 1 rows for 2 keys"),
    ],
)
def test_a_function_that_fails_lets_rows_go_on(function: Any, told: str, caplog: pytest.LogCaptureFixture) -> None:
    batch = run(counted(bulk(function, gives={"ends": pl.String}, name="ends")), lines("1", "2", "2"))
    assert batch.counts == {"ends.failed": 3}
    assert batch.results.get_column("known").to_list() == [0, 0]
    assert told in caplog.text


def test_a_slow_function_is_called_in_the_background_and_its_answers_are_kept(tmp_path: Path) -> None:
    gate = threading.Event()
    calls: list[list[str]] = []

    def slow(keys: pl.DataFrame) -> pl.DataFrame:
        calls.append(keys.get_column("line").to_list())
        assert gate.wait(20)
        return ending(keys)

    def source() -> Enrichment:
        return bulk(slow, gives={"ends": pl.String}, name="ends", patience="20ms", cache=tmp_path / "ends.sqlite")

    first = source()
    keys = pl.DataFrame({"line": ["1", "x"]})
    assert states(first.look_up(keys)) == [State.UNANSWERED] * 2
    gate.set()
    until(lambda: states(first.look_up(keys)) == [State.FOUND, State.UNKNOWN])
    assert calls == [["1", "x"]]
    second = source()  # as after a restart
    assert second.look_up(keys).values.get_column("ends").to_list() == ["end of 1", None]
    assert calls == [["1", "x"]]


def test_a_slow_function_that_fails_is_tried_again_and_then_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def failing(_: pl.DataFrame) -> pl.DataFrame:
        calls.append(1)
        raise OSError("no line")

    source = bulk(failing, gives={"ends": pl.String}, name="ends", patience="20s", retries=2)
    keys = pl.DataFrame({"line": ["1"]})
    assert states(source.look_up(keys)) == [State.FAILED]
    assert len(calls) == 3
    assert states(source.look_up(keys)) == [State.FAILED]  # not asked again for a while
    assert len(calls) == 3
    assert "OSError: no line" in caplog.text
