"""The log of Headrace's own code, for people and for programs."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from headrace.logs import configure_logs, in_batch
from headrace.spark.session.java_logs import TEXT, log_configuration

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

log = logging.getLogger("headrace.example")
other = logging.getLogger("somebody.else")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, ours = list(root.handlers), logging.getLogger("headrace").level
    yield
    root.handlers[:] = handlers
    logging.getLogger("headrace").setLevel(ours)


def test_text_has_a_line_per_record_with_its_batch() -> None:
    stream = io.StringIO()
    configure_logs("text", "info", stream)
    log.info("before")
    with in_batch("9d1c"):
        log.info("%d rows", 3)
    log.debug("too little")
    other.info("of others only warnings")
    lines = [line.split(" ", 1)[1] for line in stream.getvalue().splitlines()]
    assert lines == ["INFO headrace.example: before", "INFO headrace.example [batch 9d1c]: 3 rows"]


def test_json_is_one_object_per_record_whatever_it_says() -> None:
    stream = io.StringIO()
    configure_logs("json", "info", stream)
    with in_batch("9d1c"):
        log.info("done", extra={"figures": {"events": 5, "message": "does not replace the message"}})
    try:
        raise ValueError("line one\nline two \u2028 \x1b[31m")
    except ValueError:
        log.exception("it failed:\n%s", "{")
    done, failed = (json.loads(line) for line in stream.getvalue().split("\n")[:-1])
    assert (done["batch"], done["events"], done["message"]) == ("9d1c", 5, "done")
    assert (failed["level"], failed["message"], "batch" in failed) == ("ERROR", "it failed:\n{", False)
    assert "line two" in failed["exception"]


def test_configuring_again_does_not_write_twice() -> None:
    stream = io.StringIO()
    for log_format in ("text", "json"):
        configure_logs(log_format, "warning", stream)
    log.warning("once")
    assert len(stream.getvalue().splitlines()) == 1


def test_java_keeps_its_levels_when_it_writes_json(tmp_path: Path) -> None:
    assert log_configuration("text", tmp_path) == TEXT
    written = log_configuration("json", tmp_path / "new").read_text().splitlines()
    plain = TEXT.read_text().splitlines()
    assert [line for line in plain if ".layout." not in line] == [line for line in written if ".layout." not in line]
    template = next(line for line in written if "eventTemplate" in line).partition(" = ")[2]
    assert {"time", "level", "logger", "message", "exception"} <= set(json.loads(template))
