"""A broker's log becomes one sentence and something to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.dev.diagnosis import explain, worst_line
from headrace.errors import BrokerError, EnvironmentProblem, HeadraceError

DATA = Path("/data")


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("java.io.IOException: No space left on device", EnvironmentProblem, "/data is full"),
        ("Caused by: java.io.IOException: File too large", EnvironmentProblem, "/data is full"),
        ("Caused by: java.net.BindException: Address already in use", EnvironmentProblem, "port was taken"),
        (
            "org.apache.kafka.common.KafkaException: Failed to acquire lock on file .lock in /data",
            BrokerError,
            "in use",
        ),
        ("java.lang.OutOfMemoryError: Java heap space", EnvironmentProblem, "too little memory"),
        ("Error occurred: Could not reserve enough space for object heap", EnvironmentProblem, "too little memory"),
        ("Invalid maximum heap size: -Xmxlots", EnvironmentProblem, "refuses the broker's memory"),
        ("java.nio.file.FileSystemException: /data/x: Read-only file system", EnvironmentProblem, "cannot write"),
        ("java.lang.RuntimeException: Invalid cluster.id in: /data/meta.properties", BrokerError, "damaged"),
    ],
)
def test_known_causes(line: str, kind: type[HeadraceError], says: str) -> None:
    found = explain(["2026-01-01T00:00:00,000 INFO fine (Server)", line, "\tat java.base/..."], data=DATA)
    assert type(found) is kind
    assert says in found.message
    assert found.hint


def test_a_warning_about_recovery_is_no_cause() -> None:
    lines = ["2026-01-01T00:00:00,000 WARN Found a corrupted index file, meta.properties (UnifiedLog)"]
    assert explain(lines, data=DATA) is None


def test_a_full_disk_counts_before_what_follows_from_it() -> None:
    lines = ["ERROR Failed to acquire lock on file .lock", "java.io.IOException: No space left on device"]
    found = explain(lines, data=DATA)
    assert found is not None
    assert "full" in found.message


def test_an_unknown_cause_is_quoted() -> None:
    assert worst_line(["INFO a", "2026 ERROR something new (Server)", "INFO b"]) == "2026 ERROR something new (Server)"
    assert worst_line(["INFO a"]) == ""
