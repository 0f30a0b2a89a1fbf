"""A query that refuses nearly everything says so, with the first reason and a sample."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pytest
from rich.console import Console

from headrace.cli.gauges import Gauges
from headrace.cli.run import _Reporter
from headrace.cli.view import screen, status_line, summary
from headrace.dashboard.diagnosis import Facts, RunFacts, diagnose
from headrace.dashboard.progress_record import DeadLetters, read_progress_record
from headrace.engine.state import frame_to_bytes
from headrace.events.letters import SCHEMA, Reason, Rejection, dead_letter
from headrace.spark.run.dead_letter_watch import MOST_SAMPLE, DeadLetterWatch, Refused, first_refused, printable
from headrace.spark.run.progress import BatchDone, DeadLetterAlarm, StateChange

FIRST = Refused("malformed: no envelope (input.vehicle-position partition 0 offset 7)", "garbage")
ALARM = DeadLetterAlarm(True, 0.98, 200, FIRST.reason, FIRST.sample)


def told(batches: list[tuple[int, int]]) -> list[bool]:
    watch = DeadLetterWatch()
    found = [watch.after(records=records, refused=refused, first=FIRST) for records, refused in batches]
    return [alarm.active for alarm in found if alarm is not None]


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([(99, 99)], [], id="too few to say"),
        pytest.param([(100, 100)], [True], id="everything is refused"),
        pytest.param([(50, 50), (50, 50)], [True], id="over several batches"),
        pytest.param([(100, 50)], [], id="a half is not most"),
        pytest.param([(100, 51)], [True], id="most"),
        pytest.param([(100, 100), (0, 0), (0, 0)], [True], id="batches without records change nothing"),
        pytest.param([(100, 100), (100, 100), (900, 0)], [True, False], id="it is over when the share falls"),
        pytest.param([(100, 100)] + [(100, 10)] * 3, [True, True, False], id="a share that moves is told"),
        pytest.param([(10_000, 0)] + [(100, 100)] * 25, [True], id="what was long ago does not count"),
        pytest.param([(1, 1)] * 300, [True], id="a slow feed"),
        pytest.param([(100, 100), (900, 0), (9_000, 9_000)], [True, False, True], id="again"),
        pytest.param([(100, 400)], [True], id="never more than all"),
    ],
)
def test_when_the_watch_speaks(batches: list[tuple[int, int]], expected: list[bool]) -> None:
    assert told(batches) == expected


def test_the_first_reason_stays_the_first() -> None:
    watch = DeadLetterWatch()
    watch.after(records=60, refused=60, first=FIRST)
    alarm = watch.after(records=60, refused=60, first=Refused("another", "later"))
    assert alarm is not None
    assert (alarm.reason, alarm.sample, alarm.share, alarm.records) == (FIRST.reason, "garbage", 1.0, 120)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\x1b[2J\x07\r\nboo", "\\x1b[2J\\x07\\r\\nboo"),
        (b"\xff\x00\xfe", "\\xff\\x00\\xfe"),
        ("\u202eevil\u2028".encode(), "\\u202eevil\\u2028"),
        (b'{"token": "abc def", "x": 1}', '{"token": ***, "x": 1}'),
        (b"user=me&password=hunter2&x=1", "user=me&password=***&x=1"),
        (b"Authorization: Bearer abc.def.ghi next", "Authorization: *** next"),
        (b'{"apiKey":"abc"}', '{"apiKey":***}'),
    ],
)
def test_a_sample_is_printable_and_has_no_secrets(value: bytes, shown: str) -> None:
    assert printable(value) == shown


def test_a_sample_is_short() -> None:
    assert len(printable(b"\x00" * 100_000)) == MOST_SAMPLE


def test_the_sample_is_of_the_batch_itself() -> None:
    rejection = Rejection(Reason.MALFORMED, "no envelope\x1b[31m")
    letter = dead_letter(rejection, b"garbage", topic="input.vehicle-position", partition=0, offset=7)
    body = frame_to_bytes(pl.DataFrame([letter], schema=SCHEMA))
    found = first_refused({"dead": [body, b"not looked at"]})
    assert found is not None
    assert found.sample == "garbage"
    assert found.reason == "malformed: no envelope\\x1b[31m (input.vehicle-position partition 0 offset 7)"
    dismissed = frame_to_bytes(pl.DataFrame({"reason": ["no place"], "line": ["550"]}))
    assert first_refused({"dismissed": [dismissed]}) == Refused("no place", "{'line': '550'}")
    assert first_refused({"result": [body]}) is None


# -------------------------------------------------------------------- where it is said


def batch(**counts: int) -> dict[str, Any]:
    plain = {"rows_in": 0, "results": 0, "late": 0, "dead_letters": 0} | counts
    return BatchDone(batch=3, duration_ms=400, watermark=None, backlog=0, **plain).to_dict()  # type: ignore[arg-type]


def test_the_terminal_says_it_first_and_clears_it() -> None:
    gauges = Gauges()
    gauges.progress(StateChange("running").to_dict(), now=0.0)
    gauges.progress(batch(dead_letters=196, rows_in=4), now=1.0)
    gauges.progress(ALARM.to_dict(), now=1.0)
    shown = gauges.snapshot(now=1.0)
    line = status_line(shown)
    assert line.startswith("MOST INPUT IS REFUSED. 98 % of the last 200 records became dead letters. The first reason:")
    assert FIRST.reason in line
    assert "garbage" in line
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(screen(shown, job="counts", footer=[]))
    text = console.export_text()
    assert "MOST INPUT IS REFUSED" in text
    assert "running, but most input is refused" in text
    assert "headrace tail input.dead-letter" in text
    assert any("Most input was refused" in each for each in summary(shown, elapsed=9, first_result=None))
    assert shown.to_dict()["alarm"].startswith("98 %")
    gauges.progress(DeadLetterAlarm(False, 0.1, 900, FIRST.reason, "garbage").to_dict(), now=2.0)
    assert gauges.snapshot(now=2.0).alarm == ""
    assert status_line(gauges.snapshot(now=2.0)).startswith("running:")


def test_run_says_it_with_json_and_without(capsys: pytest.CaptureFixture[str]) -> None:
    _Reporter(json=True)(ALARM)
    (line,) = capsys.readouterr().out.splitlines()
    report = json.loads(line)
    assert (report["event"], report["state"], report["share"], report["records"]) == ("dead_letters", "most", 0.98, 200)
    assert (report["reason"], report["sample"]) == (FIRST.reason, "garbage")
    reporter = _Reporter(json=False)
    reporter(ALARM)
    assert "MOST INPUT IS REFUSED" in capsys.readouterr().err
    assert "Most input was refused" in reporter.summary()


def test_the_pipeline_page_says_it() -> None:
    record = {"query": "counts", "jobs": ["counts"], "state": "running", "mostly_dead_letters": ALARM.to_dict()}
    heard = read_progress_record(json.dumps(record).encode(), wall=0)
    assert heard.dead_letters == DeadLetters(0.98, 200, FIRST.reason, "garbage")
    run = RunFacts("counts", ("counts",), "running", refused=heard.dead_letters)
    found = diagnose(Facts(runs=(run,)))["spark"]
    assert found.severity == "error"
    assert "98 % of the last 200 records for counts became dead letters." in found.text
    assert FIRST.reason in found.text
    assert "garbage" in found.text
