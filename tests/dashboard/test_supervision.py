"""Hostile records and failing work: every thread of the dashboard goes on, and says what happened."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import polars as pl
import pytest
from confluent_kafka import Producer
from tests.dashboard.city import CELL_TEXTS, CELLS, Hand, fresh, serving, until, vehicles_job, window_end

from headrace.dashboard import reader as reader_module
from headrace.dashboard.board import Board
from headrace.dashboard.cleaning import Rows
from headrace.dashboard.declaration import declare
from headrace.dashboard.diagnosis import Facts, PartFacts, diagnose
from headrace.dashboard.figures import Figures
from headrace.dashboard.probe import Probe
from headrace.dashboard.reader import Reader
from headrace.dashboard.server import Dashboard
from headrace.dashboard.supervision import Part, Worker, keep_running
from headrace.kafka import Connection, Topics
from headrace.kafka.consumer import Record
from headrace.spark.run.publishing import PROGRESS, progress_spec

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

NOWHERE = Connection(bootstrap="127.0.0.1:1")

#: What is no number, no list, no object, no text and no time where one is expected.
WRONG = (
    "NaN", "Infinity", "-Infinity", "1e400", "-1", "1" + "0" * 400, '"text"', '"\\ud800"', "true", "[]", '[{"a": 1}]',
    "[[1], 2]", '{"a": {"b": []}}', "{}", '{"x": NaN}', '{"x": "9999-99-99"}', '{"x": "0001-01-01T00:00:00+14:00"}',
)  # fmt: skip
FIELDS = (
    "query", "jobs", "state", "detail", "started", "at", "restarts", "failed_jobs", "totals", "batch",
    "mostly_dead_letters", "totals.rows_in", "batch.batch", "batch.duration_ms", "batch.phases", "batch.limit",
    "batch.state_rows",
    "batch.watermarks", "mostly_dead_letters.share", "mostly_dead_letters.reason",
)  # fmt: skip
NO_RECORDS = (
    b"", b"\xff\xfe", b"{", b"null", b"[]", b"3", b'"text"', b"[" * 200_000, b'{"a":' * 100_000, b"NaN",
    b'{"query": ""}', b'{"query": "huge", "detail": "' + b"x" * 2_000_000 + b'"}',
)  # fmt: skip


def hostile(query: str, job: str) -> list[bytes | None]:
    """Records of the progress topic with each field wrong in each way."""
    found: list[bytes | None] = [None, *NO_RECORDS]
    for field in FIELDS:
        outer, _, inner = field.partition(".")
        for wrong in WRONG:
            value = f'{{"{inner}": {wrong}}}' if inner else wrong
            rest = {"query": query, "jobs": [job], "started": 1, "at": time.time_ns() // 1_000_000, "state": "running"}
            members = [f'"{name}": {json.dumps(other)}' for name, other in rest.items() if name != outer]
            found.append(("{" + ", ".join([*members, f'"{outer}": {value}']) + "}").encode())
    far = time.time_ns() // 1_000_000 + 10**12
    found.append(json.dumps({"query": query, "jobs": [job], "started": 1, "at": far, "state": "failed"}).encode())
    return found


def sound(query: str, job: str, batch: int) -> bytes:
    told = {
        "query": query,
        "jobs": [job],
        "started": 1,
        "at": time.time_ns() // 1_000_000,
        "state": "running",
        "totals": {"rows_in": batch * 100},
        "batch": {"batch": batch, "duration_ms": 400, "watermarks": {}},
    }
    return json.dumps(told).encode()


def test_no_progress_record_whatsoever_stops_the_probe_or_spoils_the_figures() -> None:
    dashboard = Dashboard(NOWHERE, [vehicles_job("counts")])
    probe, figures = dashboard.probe, dashboard.figures
    records = hostile("counts", "counts")
    probe.hear(sound("counts", "counts", 1), fresh=True, now=1.0)
    for number, record in enumerate(records):
        probe.hear(record, fresh=bool(number % 2), now=1.0 + number)
        figures.gather()
        json.dumps(
            {**figures.pipeline, **figures.status, "history": figures.history()}, allow_nan=False, ensure_ascii=False
        ).encode()
    assert probe.malformed.total() > len(records) // 2
    assert probe.malformed_reason
    probe.hear(sound("counts", "counts", 7), fresh=True, now=9_999.0)
    figures.gather()
    (query,) = [each for each in figures.pipeline["queries"] if each["query"] == "counts"]
    assert (query["batch"], query["state"]) == (7, "running")
    (told,) = [problem["text"] for problem in figures.pipeline["problems"] if "malformed" in problem["text"]]
    assert f"{probe.malformed.total():,} records" in told


def test_a_malformed_record_changes_nothing_of_what_is_known() -> None:
    probe = Probe(NOWHERE, [vehicles_job("counts")], lambda _job, _mark: None)
    probe.hear(sound("counts", "counts", 3), fresh=True, now=5.0)
    before = probe.runs["counts"].told
    probe.hear(b'{"query": "counts", "jobs": ["counts"], "batch": {"batch": Infinity}}', fresh=True, now=60.0)
    assert probe.runs["counts"].told == before
    assert probe.runs["counts"].heard == 5.0
    assert probe.malformed["progress"] == 1


# -------------------------------------------------------------------- supervision


def test_a_thread_that_fails_is_started_again_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.dashboard.supervision.FIRST_PAUSE", 0.001)
    monkeypatch.setattr("headrace.dashboard.supervision.MOST_PAUSE", 0.01)
    stop, calls = threading.Event(), []
    part = Part("offsets", "reader of offsets", stale_after=60.0, expected=(TimeoutError,))

    def work() -> None:
        calls.append(1)
        if len(calls) < 5:
            raise ZeroDivisionError("of no use")
        stop.wait(0.01)

    worker = Worker(part, work, stop)
    with caplog.at_level(logging.INFO, logger="headrace.dashboard.supervision"):
        worker.start()
        until(lambda: len(calls) > 6, what="the work to be done again")
    assert (part.failures, part.state, part.is_failing()) == (4, "restarting", True)
    assert "ZeroDivisionError: of no use" in part.to_dict()["text"]
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert errors[0].exc_info is not None
    stop.set()
    assert worker.join(10)
    assert part.state == "stopped"


def test_what_fails_right_after_each_start_does_not_look_well_in_between() -> None:
    part = Part("results", "reader of results", stale_after=10.0)
    pauses = []
    for _ in range(7):
        pauses.append(part.failed(KeyError("line")))
        part.refresh()
        assert part.is_failing()
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    part.refresh(now=time.monotonic() + 11)
    assert (part.state, part.reason, part.is_failing()) == ("running", "", False)
    assert part.failed(KeyError("line")) == 1.0


def test_kafka_that_cannot_be_reached_is_no_failure() -> None:
    part = Part("offsets", "reader of offsets", stale_after=10.0, expected=(TimeoutError,))
    part.failed(TimeoutError())
    assert (part.state, part.failures) == ("waiting", 0)
    part.refresh()
    assert part.state == "running"


def test_a_time_out_does_not_end_the_reader_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.dashboard.probe._EVERY", 0.01)
    monkeypatch.setattr("headrace.dashboard.supervision.FIRST_PAUSE", 0.01)
    probe = Probe(NOWHERE, [vehicles_job("counts")], lambda _job, _mark: None)
    asked = []

    class Answers:
        """An admin client whose first answers do not come in time."""

        def list_topics(self, *, timeout: float) -> Any:
            asked.append(timeout)
            if len(asked) < 3:
                raise TimeoutError
            return type("Metadata", (), {"topics": {}})

    monkeypatch.setattr(probe, "_admin", Answers())
    probe.start()
    try:
        until(lambda: probe.offsets.state == "running", what="offsets to be read again", seconds=20)
    finally:
        probe.stop()
    assert probe.offsets.failures == 0


def test_a_task_that_fails_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.dashboard.supervision.FIRST_PAUSE", 0.001)
    part = Part("figures", "figures", stale_after=60.0)
    calls = []

    async def work() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise ValueError("Infinity")
        await asyncio.sleep(60)

    async def story() -> None:
        task = asyncio.create_task(keep_running(part, work))
        while len(calls) < 4:
            await asyncio.sleep(0.001)
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(story())
    assert part.failures == 3


# -------------------------------------------------------------------- what is said


def test_figures_that_are_out_of_date_are_judged_as_such() -> None:
    part = PartFacts("offsets", "reader of offsets", ("ingest", "kafka"), stale=True, as_of="10:00:00 UTC")
    judged = diagnose(Facts(incoming=300.0, since_event=1.0, parts=(part,)))
    for stage in ("ingest", "kafka"):
        assert judged[stage].severity == "warning"
        assert "These figures are of 10:00:00 UTC" in judged[stage].text
    assert judged["results"].severity == "unknown"


def test_a_failing_part_is_an_error_of_the_dashboard() -> None:
    part = PartFacts("progress", "reader of the runs' progress", ("spark",), failing=True, reason="KeyError: 'x'")
    found = diagnose(Facts(parts=(part,)))["dashboard"]
    assert found.severity == "error"
    assert "KeyError: 'x'" in found.text


def test_stale_parts_are_in_every_view_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    dashboard = Dashboard(NOWHERE, [vehicles_job("counts")])
    dashboard.figures.gather()
    assert dashboard.figures.unwell == []
    clock = time.monotonic
    monkeypatch.setattr("headrace.dashboard.supervision.time.monotonic", lambda: clock() + 3_600)
    dashboard.figures.gather()
    stages = {stage["name"]: stage["stale"] for stage in dashboard.figures.pipeline["stages"]}
    assert stages == dict.fromkeys(stages, True)
    assert set(dashboard.figures.unwell) >= {"results", "progress", "offsets"}

    async def ask(path: str) -> httpx.Response:
        transport = httpx.ASGITransport(dashboard.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            return await client.get(path)

    health = asyncio.run(ask("/healthz"))
    assert health.json()["status"] == "degraded"
    assert set(health.json()["parts"]) >= {"results", "progress", "offsets"}
    parts = {part["name"]: part for part in asyncio.run(ask("/api/status")).json()["parts"]}
    assert parts["offsets"]["stale"] is True
    metrics = asyncio.run(ask("/metrics")).text
    assert 'headrace_dashboard_part_ok{part="offsets"} 0.0' in metrics
    assert 'headrace_dashboard_part_failures_total{part="offsets"} 0.0' in metrics
    assert "headrace_dashboard_malformed_records_total 0.0" in metrics


def test_a_figure_that_cannot_be_put_together_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures themselves cannot say that nobody puts them together any more."""
    dashboard = Dashboard(NOWHERE, [vehicles_job("counts")])
    dashboard.figures.gather()

    def fail(_self: Figures) -> None:
        raise TypeError("'>' not supported")

    monkeypatch.setattr(Figures, "gather", fail)

    async def story() -> httpx.Response:
        task = asyncio.create_task(keep_running(dashboard.figures.part, dashboard._gather))
        while not dashboard.figures.part.failures:
            await asyncio.sleep(0.001)
        transport = httpx.ASGITransport(dashboard.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as client:
            answer = await client.get("/api/status")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return answer

    parts = {part["name"]: part for part in asyncio.run(story()).json()["parts"]}
    assert parts["figures"]["state"] == "restarting"
    assert "'>' not supported" in parts["figures"]["text"]


# -------------------------------------------------------------------- with a real Kafka


@pytest.mark.broker
def test_every_thread_goes_on_after_hostile_records(broker: EmbeddedBroker) -> None:
    job = vehicles_job(fresh("hostile"))
    Topics(broker.connection).ensure([progress_spec()])
    producer = Producer(broker.connection.client_config())
    hand = Hand(broker.connection, (job,))
    with serving(broker.connection, [job]) as served:

        def pipeline() -> dict[str, Any]:
            answer = httpx.get(f"{served.url}/api/pipeline")
            assert answer.status_code == 200, answer.text
            found: dict[str, Any] = answer.json()
            return found

        until(lambda: pipeline()["stages"][1]["state"] != "unknown", what="Kafka to be seen")
        for value in hostile(job.name, job.name):
            if value is None or len(value) < 1_000_000:
                producer.produce(PROGRESS, value, key=job.name.encode())
        hand.send(job, [(job.name, value[:100_000]) for value in NO_RECORDS])
        producer.produce(PROGRESS, sound(job.name, job.name, 77), key=job.name.encode())
        producer.flush(10)
        hand.write(job, [{"cell": CELLS[0], "vehicles": 4}], end=window_end(30))
        until(
            lambda: any(query["batch"] == 77 for query in pipeline()["queries"] if query["query"] == job.name),
            what="the sound record after all the others",
        )
        until(
            lambda: CELL_TEXTS[0] in {e["key"] for e in served.dashboard.boards[job.name].entries()[1]}, what="results"
        )
        shown = pipeline()
        assert {part["name"] for part in shown["parts"]} == {"results", "progress", "offsets", "viewers", "figures"}
        assert {part["failures"] for part in shown["parts"]} == {0}
        status = httpx.get(f"{served.url}/api/status").json()
        assert status["malformed"] > 100
        assert httpx.get(f"{served.url}/healthz").json()["status"] == "ok"
    hand.close()


def test_results_beside_a_record_that_cannot_be_shown_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record out of many breaks the code that makes values safe; the others are shown, and it is counted."""
    board = Board(declare(vehicles_job("counts")), wall=lambda: 1_760_000_000_000)
    reader = Reader(NOWHERE, {"counts": board}, lambda: None)
    records = [
        Record(topic=board.declaration.topic, partition=0, offset=n, timestamp=n, key=None, value=str(n).encode())
        for n in range(9)
    ]
    monkeypatch.setattr(
        reader._decoder, "decode", lambda _job, held: pl.DataFrame({"offset": [each.offset for each in held]})
    )
    monkeypatch.setattr(reader.arrivals, "take", lambda *_args, **_options: None)

    def clean(frame: pl.DataFrame, _declaration: object) -> Rows:
        offsets = frame["offset"].to_list()
        if 4 in offsets:
            raise OverflowError("a number that nobody thought of")
        count = len(offsets)
        return Rows(
            key=[f"cell-{n}" for n in offsets],
            event_time=[1_760_000_000_000] * count,
            window_start=[None] * count,
            window_end=[None] * count,
            published=[0] * count,
            retraction=[False] * count,
            places={"cell": [str(n) for n in offsets]},
            values={"vehicles": offsets},
        )

    monkeypatch.setattr(reader_module, "clean", clean)
    reader._show(board, records, since=0)
    assert {entry["key"] for entry in board.entries()[1]} == {f"cell-{n}" for n in range(9) if n != 4}
    assert reader.arrivals.refused["counts"] == 1
