"""Tables: what CREATE TABLE makes of a topic or a file."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.formats import Records
from headrace.inprocess import Runner
from headrace.stream import plan
from headrace.stream.passing import runnable
from headrace.streaming_sql.catalog import Catalog, TableEntry
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.statements import CreateTable

if TYPE_CHECKING:
    from pathlib import Path

TOPIC = "WITH ('connector' = 'kafka', 'topic' = 't'"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def create(text: str) -> TableEntry:
    (statement,) = parse_script(text)
    assert isinstance(statement, CreateTable)
    return Catalog().create_table(statement)


def topic(columns: str, options: str = "") -> TableEntry:
    return create(f"CREATE TABLE scans ({columns}) WITH ('connector' = 'kafka', 'topic' = 'scans'{options})")


def read(table: TableEntry, *records: tuple[bytes | None, bytes | None, dict[str, bytes]]) -> tuple[list[Any], int]:
    """What a table makes of records of (key, value, headers): its columns, and how many records were no rows."""
    assert table.stream is not None
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = Records(
        pa.array([value for _, value, _ in records], pa.binary()),
        keys=pa.array([key for key, _, _ in records], pa.binary()),
        headers=pa.array([[{"key": k, "value": v} for k, v in each.items()] for _, _, each in records], kind),
        timestamps=pa.array([NOON] * len(records), pa.timestamp("us", "UTC")),
        partitions=pa.array([3] * len(records), pa.int32()),
        offsets=pa.array(list(range(len(records))), pa.int64()),
    )
    batch = Runner(runnable(table.stream), key_groups=1).step({"scans": given})
    return batch.results.select(*table.columns).rows(), 0 if batch.dead is None else batch.dead.height


def test_a_topic_of_json_with_a_time() -> None:
    table = topic(
        "parcel STRING, weight DECIMAL(6, 2), opened TIME, ts TIMESTAMP(3), kilos AS weight * 1000,"
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        ", 'format' = 'json', 'scan.watermark.idle-timeout' = '10s'",
    )
    assert table.columns == {
        "parcel": pl.String(),
        "weight": pl.Decimal(6, 2),
        "opened": pl.Time(),
        "ts": pl.Datetime("us", "UTC"),
        "kilos": table.columns["kilos"],
    }
    assert table.stream is not None
    assert "watermark bounded(5s)" in table.stream.explain()
    value = b'{"parcel": "a", "weight": 12.34, "opened": "12:30:00", "ts": "2026-03-01 12:00:01.5"}'
    rows, dead = read(table, (None, value, {}), (None, b'{"parcel": "b"}', {}), (None, b"x", {}))
    (row,) = rows
    assert (row[0], str(row[1]), str(row[2]), row[3], float(row[4])) == (
        "a",
        "12.34",
        "12:30:00",
        NOON.replace(second=1, microsecond=500_000),
        12340.0,
    )
    assert dead == 2  # without the time of an event, and no JSON


def test_key_headers_and_figures_of_a_record() -> None:
    table = topic(
        "parcel STRING, weight DOUBLE, trace STRING METADATA FROM 'headers.trace-id', `partition` BIGINT METADATA,"
        "place BIGINT METADATA FROM 'offset' VIRTUAL, at TIMESTAMP(3) METADATA FROM 'timestamp',"
        "seen TIMESTAMP(3) METADATA FROM 'event-time'",
        ", 'format' = 'json', 'key.format' = 'text', 'key.fields' = 'parcel', 'value.fields-include' = 'EXCEPT_KEY'",
    )
    rows, dead = read(table, (b"a", b'{"weight": 1}', {"trace-id": b"t"}), (b"b", b'{"weight": 2}', {}))
    assert rows == [("a", 1.0, "t", 3, 0, NOON, NOON), ("b", 2.0, None, 3, 1, NOON, NOON)]
    assert dead == 0
    (key,), _ = read(topic("who STRING METADATA FROM 'key', n INT", ", 'format' = 'json'"), (b"k", b'{"n": 1}', {}))
    assert key == ("k", 1)


@pytest.mark.parametrize(
    ("columns", "options", "value", "row"),
    [
        ("a STRING, n INT", ", 'format' = 'csv', 'csv.field-delimiter' = ';'", b"x;1", ("x", 1)),
        ("a STRING, n INT", ", 'format' = 'csv', 'csv.null-literal' = 'none'", b"none,1", (None, 1)),
        ("line STRING", ", 'format' = 'text'", b"hello", ("hello",)),
        ("line BYTES", ", 'value.format' = 'raw'", b"\xff", (b"\xff",)),
        ("a STRING, op STRING", ", 'format' = 'debezium-json', 'debezium-json.time' = 'ts_ms'",
         b'{"before": null, "after": {"a": "x"}, "op": "c", "ts_ms": 1772366400000}', ("x", "insert")),
        ("n BIGINT, ts TIMESTAMP(3) METADATA FROM 'event-time'",
         ", 'format' = 'json', 'time' = 'ms', 'time.format' = 'ms'", b'{"n": 1, "ms": 1772366400000}', (1, NOON)),
    ],
)  # fmt: skip
def test_formats(columns: str, options: str, value: bytes, row: tuple[Any, ...]) -> None:
    assert read(topic(columns, options), (None, value, {}))[0] == [row]


def test_a_topic_in_the_envelope() -> None:
    table = topic("door STRING, event_time TIMESTAMP(3), WATERMARK FOR event_time AS event_time - INTERVAL '1' SECOND")
    assert table.stream is not None
    assert table.stream.explain().splitlines() == [
        "topic scans of headrace.v1.Record",
        "  watermark bounded(1s), idle after 10s",
    ]


def test_a_watermark_on_a_computed_column() -> None:
    table = topic("s STRING, ts AS event_time, WATERMARK FOR ts AS ts", ", 'format' = 'json'")
    assert table.stream is not None
    assert "watermark ascending" in table.stream.explain()


def test_what_has_no_effect_is_noted() -> None:
    table = topic("a STRING", ", 'format' = 'json', 'properties.group.id' = 'g', 'scan.startup.mode' = 'latest-offset'")
    assert [note.split(" has no effect")[0] for note in table.notes] == [
        "table scans: 'properties.group.id'",
        "table scans: 'scan.startup.mode'",
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("(a INT) WITH ('connector' = 'kafak')", "'connector' is 'kafak'", "Did you mean 'kafka'?"),
        ("(a INT)", "'connector' is ''", "Choose one of"),
        ("(a INT) WITH ('connector' = 'kafka')", "no option 'topic'", "'topic' = 'scans'"),
        (f"(a INT) {TOPIC}, 'format' = 'jsno')", "'jsno'", "'json'?"),
        (f"(a INT) {TOPIC}, 'fromat' = 'json')", "unknown option", "'format'?"),
        (f"{TOPIC}, 'format' = 'json')", "has no columns", ""),
        (f"(a BYTES) {TOPIC}, 'format' = 'json')", "a is Binary", ""),
        (f"(a INT, WATERMARK FOR a AS a) {TOPIC}, 'format' = 'json')", "no timestamp", "TO_TIMESTAMP_LTZ(a, 3)"),
        (f"(a INT, b AS nope + 1) {TOPIC}, 'format' = 'json')", "nope", ""),
        (f"(a INT, b INT METADATA FROM 'colour') {TOPIC}, 'format' = 'json')", "no metadata 'colour'", "'offset'"),
        (f"(a INT, event_time TIMESTAMP) {TOPIC}, 'format' = 'json')", "event_time", "WATERMARK FOR event_time"),
        (f"(a INT) {TOPIC}, 'format' = 'json', 'key.format' = 'text')", "without 'key.fields'", ""),
        ("(a INT) WITH ('connector' = 'file', 'path' = 'a.txt')", "no format that is known", "'format'"),
        (f"(a INT, b INT) {TOPIC}, 'format' = 'raw')", "format raw", "one column"),
    ],
)
def test_what_cannot_be_a_table(
    text: str, message: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").touch()
    with pytest.raises(PlanError, match=r"^line 1, column \d+: ") as caught:
        create(f"CREATE TABLE t {text}")
    assert message in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_with_declared_columns(kind: str, tmp_path: Path) -> None:
    frame = pl.DataFrame({"depot": ["north", "south"], "n": [1, 2], "ts": ["2026-03-01T12:00:00Z"] * 2})
    path = tmp_path / f"scans.{kind}"
    if kind == "csv":
        frame.write_csv(path)
    elif kind == "jsonl":
        frame.write_ndjson(path)
    else:
        frame.with_columns(pl.col("ts").str.to_datetime(time_zone="UTC")).write_parquet(path)
    table = create(
        f"CREATE TABLE scans (depot STRING, n INT, ts TIMESTAMP(3), twice AS n * 2, WATERMARK FOR ts AS ts)"
        f"WITH ('connector' = 'file', 'path' = '{path}')"
    )
    assert table.bounded is not None
    assert table.stream is not None
    rows = table.bounded.read().frame
    assert rows.select("depot", "n", "ts").rows() == [("north", 1, NOON), ("south", 2, NOON)]
    batch = Runner(runnable(table.stream)).step({table.bounded.source: rows})
    assert batch.results.select("depot", "twice").sort("depot").rows() == [("north", 2), ("south", 4)]
    (read_node,) = [node for node in nodes(table.stream.node) if isinstance(node, plan.Read)]
    assert read_node.source.name == table.bounded.source


def nodes(node: plan.Node) -> list[plan.Node]:
    return [node, *(each for before in node.inputs for each in nodes(before))]


def test_a_file_with_columns_of_its_own_and_lines_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "scans.csv"
    path.write_text("depot,n,event_time\nnorth,1,2026-03-01T12:00:00\nsouth,x,2026-03-01T12:00:00\n")
    own = create(f"CREATE TABLE scans WITH ('connector' = 'file', 'path' = '{path}')")
    assert list(own.columns) == ["depot", "n", "event_time"]
    assert own.columns["event_time"] == pl.Datetime("us", "UTC")
    declared = create(
        f"CREATE TABLE scans (depot STRING, n INT, event_time TIMESTAMP, WATERMARK FOR event_time AS event_time)"
        f"WITH ('connector' = 'file', 'path' = '{path}')"
    )
    assert declared.bounded is not None
    rows = declared.bounded.read()
    assert rows.frame.rows(named=True) == [{"depot": "north", "n": 1, "event_time": NOON}]
    assert list(rows.problems) == [3]
    wrong = create(f"CREATE TABLE scans (a STRING, b INT) WITH ('connector' = 'file', 'path' = '{path}')")
    assert wrong.bounded is not None
    with pytest.raises(PlanError, match=r"names depot, n, event_time; the table has a, b"):
        wrong.bounded.read()
