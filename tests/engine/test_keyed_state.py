"""A table of rows by key answers as a plain dictionary does, in however many pages it lies."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import MemorySegments, keyed_state
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.row_pages import NEVER, Layouts
from headrace.errors import StateError
from headrace.time.instants import BEGINNING

Step = tuple[list[tuple[str, int, int | None]], int]

SCHEMA = {"k": pl.String, "n": pl.Int64, "due": pl.Int64}
keys = st.integers(0, 60).map(lambda number: "key" * (number % 3) + str(number))
steps = st.lists(
    st.tuples(
        st.lists(st.tuples(keys, st.integers(1, 9), st.one_of(st.none(), st.integers(-20, 20))), max_size=30),
        st.integers(0, 6),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_state, "SINGLE_PAGE_ROWS", 4)
    monkeypatch.setattr(keyed_state, "PAGE_ROWS", 2)
    monkeypatch.setattr(keyed_state, "PAGE_COST", 0)


class Kept:
    """A table that is opened anew for every turn, from bytes and a record alone."""

    def __init__(self) -> None:
        self.segments = MemorySegments()
        self.record = TableIndex().record()

    def open(self) -> KeyedTable:
        self.segments = MemorySegments(self.segments.content)
        return KeyedTable(self.segments, "t", ("k",), Layouts(self.segments), TableIndex.of(self.record))

    def close(self, table: KeyedTable) -> None:
        self.record = table.index.record()


def frame(rows: list[tuple[str, int, int | None]]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


@settings(deadline=None, max_examples=150)
@given(steps=steps)
def test_it_answers_as_a_dictionary_under_puts_expiries_and_restarts(steps: list[Step]) -> None:
    kept, model = Kept(), dict[str, tuple[int, int | None]]()
    watermark = -20  # times before the epoch, too
    for rows, advance in steps:
        watermark += advance
        asked = {key for key, _, _ in rows}
        table = kept.open()
        taken = table.take(hashes_of([frame(rows)], ("k",)), watermark=watermark)
        found = {} if taken is None else {key: (n, due) for key, n, due in taken.rows()}
        due = {key for key, (_, when) in model.items() if when is not None and when <= watermark}
        assert found == {key: value for key, value in model.items() if key in asked | due}
        # What was due is forgotten; of the others the numbers add up, and the newest due time counts.
        for key in due:
            del model[key]
        for key, n, when in rows:
            model[key] = (model.get(key, (0, None))[0] + n, when)
        back = frame([(key, *model[key]) for key in sorted(asked)])
        table.put(back, back.get_column("due"))
        kept.close(table)
        assert kept.record[1] == len(model)
    table = kept.open()
    everything = table.take(None)
    assert ({} if everything is None else {k: (n, d) for k, n, d in everything.rows()}) == model
    table.put(None)
    kept.close(table)
    assert kept.record[:2] == [0, 0]
    assert [name for name in kept.segments.content if name.startswith("t/")] == []


class Written(MemorySegments):
    """Takes down the names of what is written or deleted."""

    def __init__(self, content: dict[str, bytes]) -> None:
        super().__init__(content)
        self.names: set[str] = set()

    def put(self, name: str, value: bytes) -> None:
        self.names.add(name)
        super().put(name, value)

    def delete(self, name: str) -> None:
        self.names.add(name)
        super().delete(name)


@settings(deadline=None, max_examples=150)
@given(steps=steps, data=st.data())
def test_rows_that_stay_as_they_are_remain_and_are_not_written(steps: list[Step], data: st.DataObject) -> None:
    """Of the rows that were taken, some stay, some are replaced, some go; a key may have several rows."""
    kept, model = Kept(), list[tuple[str, int, int | None]]()
    for rows, watermark in steps:
        segments, pages = Written(kept.segments.content), kept.record[0]
        kept.segments = segments
        table = KeyedTable(segments, "t", ("k",), Layouts(segments), TableIndex.of(kept.record))
        taken = table.take(hashes_of([frame(rows)], ("k",)), watermark=watermark)
        before = [] if taken is None else taken.rows()
        asked = {key for key, _, _ in rows}
        assert sorted(before, key=str) == sorted(
            (row for row in model if row[0] in asked or (row[2] is not None and row[2] <= watermark)), key=str
        )
        stays = np.array(data.draw(st.lists(st.booleans(), min_size=len(before), max_size=len(before))), dtype=bool)
        new = frame(rows if data.draw(st.booleans()) else [])
        table.put(new, new.get_column("due"), stays=stays)
        kept.close(table)
        for row, stayed in zip(before, stays.tolist(), strict=True):
            if not stayed:
                model.remove(row)
        model += new.rows()
        assert kept.record[1] == len(model)
        if stays.all() and new.is_empty() and kept.record[0] == pages:
            assert not segments.names
    everything = kept.open().take(None)
    assert sorted([] if everything is None else everything.rows(), key=str) == sorted(model, key=str)


def test_a_turn_that_changes_nothing_writes_nothing_and_one_that_changes_a_row_writes_its_page() -> None:
    kept = Kept()
    rows = frame([(f"k{number}", number, number) for number in range(200)])
    table = kept.open()
    table.put(rows, rows.get_column("due"))
    kept.close(table)
    some = hashes_of([rows.slice(50, 30)], ("k",))
    for stays, names in ((30, 0), (29, 2)):
        segments = Written(kept.segments.content)
        table = KeyedTable(segments, "t", ("k",), Layouts(segments), TableIndex.of(kept.record))
        taken = table.take(some)
        assert taken is not None
        table.put(None, stays=np.arange(30) < stays)
        pages = {name for name in segments.names if "due" not in name}
        assert len(pages) == names / 2
        assert len(segments.names) <= names


def test_rows_of_every_type_come_back_as_they_were() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    rows = pl.DataFrame(
        {
            "k": [f"key {number}" for number in range(40)],
            "small": pl.Series([None, -3] * 20, dtype=pl.Int8),
            "large": pl.Series([2**64 - 1, None] * 20, dtype=pl.UInt64),
            "yes": [True, None, False, True] * 10,
            "real": [float("nan"), None, -0.0, 1e300] * 10,
            "at": [at, None] * 20,
            "day": [date(2026, 1, 1), None] * 20,
            "long": [timedelta(microseconds=3), None] * 20,
            "bytes": [b"\x00\xff", None, b"", b"x" * 100] * 10,
            "text": ["", None, "ä" * 30, "z"] * 10,
            "kind": pl.Series(["a", "b", None, "a"] * 10, dtype=pl.Enum(["a", "b"])),
            "list": [[1, None], None, [], [2]] * 10,
            "struct": [{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}] * 10,
            "kinds": pl.Series([["a", None], None, [], ["b"]] * 10, dtype=pl.List(pl.Enum(["a", "b"]))),
            "lines": pl.Series([["7"], None] * 20, dtype=pl.List(pl.Categorical)),
            "stop": pl.Series([{"kind": "b"}, None] * 20, dtype=pl.Struct({"kind": pl.Enum(["a", "b"])})),
            "money": pl.Series([Decimal("1.50"), None] * 20, dtype=pl.Decimal(10, 2)),
            "nothing": pl.Series([None] * 40, dtype=pl.Null),
        }
    )
    kept = Kept()
    for part in (rows.head(11), rows.slice(11)):
        table = kept.open()
        table.take(hashes_of([part], ("k",)))
        table.put(part)
        kept.close(table)
    assert kept.record[0] > 4
    one = kept.open().take(hashes_of([rows.slice(7, 1)], ("k",)))
    assert one is not None
    assert one.equals(rows.slice(7, 1), null_equal=True)
    found = kept.open().take(None)
    assert found is not None
    assert found.schema == rows.schema
    assert found.sort("k").equals(rows.sort("k"), null_equal=True)


def test_a_column_may_come_go_and_change_its_type() -> None:
    kept = Kept()
    for part in (
        pl.DataFrame({"k": [f"a{n}" for n in range(9)], "n": pl.Series([1] * 9, dtype=pl.Int32)}),
        pl.DataFrame({"k": [f"b{n}" for n in range(9)], "n": [2**40] * 9, "x": ["new"] * 9}),
        pl.DataFrame({"k": ["c"]}),
    ):
        table = kept.open()
        table.take(hashes_of([part], ("k",)))
        table.put(part)
        kept.close(table)
    found = kept.open().take(None)
    assert found is not None
    assert found.sort("k").select("k", "n", "x").rows() == [
        *[(f"a{n}", 1, None) for n in range(9)],
        *[(f"b{n}", 2**40, "new") for n in range(9)],
        ("c", None, None),
    ]


def test_timers_of_processing_time_are_found_in_many_pages() -> None:
    kept = Kept()
    rows = frame([(f"k{number}", number, None) for number in range(300)])
    table = kept.open()
    table.put(rows, None, rows.get_column("n"))
    kept.close(table)
    none = np.zeros(0, dtype=np.uint64)
    assert kept.open().take(none, watermark=NEVER - 1, now=-1) is None
    due = kept.open().take(none, watermark=BEGINNING, now=4)
    assert due is not None
    assert sorted(due.get_column("n").to_list()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda content: content.pop("t/1"), "page t/1 of the saved rows is missing"),
        (lambda content: content.update({"t/1": b"nonsense"}), "starts with b'nons'"),
        (lambda content: content.update({"t/1": content["t/1"] + b"!"}), "cannot be read"),
        (lambda content: content.pop("layouts"), "layout 0 is not known"),
        (lambda content: content.pop("t/due/0"), "block t/due/0 of due times is missing"),
    ],
)
def test_what_is_missing_or_damaged_is_told(spoil, message) -> None:  # type: ignore[no-untyped-def]
    kept = Kept()
    rows = frame([(f"k{number}", number, number) for number in range(40)])
    table = kept.open()
    table.put(rows, rows.get_column("due"))
    kept.close(table)
    spoil(kept.segments.content)
    table = kept.open()
    with pytest.raises(StateError, match=message):
        table.take(hashes_of([rows], ("k",)), watermark=5)


def test_pages_grow_where_every_turn_needs_all_of_them_and_shrink_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_state, "PAGE_ROWS", 8)
    monkeypatch.setattr(keyed_state, "PAGE_COST", 64)
    kept = Kept()
    rows = frame([(f"k{number}", number, None) for number in range(512)])

    def turn(part: pl.DataFrame) -> int:
        table = kept.open()
        table.take(hashes_of([part], ("k",)))
        table.put(part)
        kept.close(table)
        return int(kept.record[0])

    first = turn(rows)
    dense = [turn(rows) for _ in range(12)]
    assert dense[-1] < first / 4
    sparse = [turn(rows.slice(number, 1)) for number in range(400)]
    assert sparse[-1] > dense[-1] * 4
    found = kept.open().take(None)
    assert found is not None
    assert found.sort("n").equals(rows)
