"""Cases of windows, patterns and joins on real Spark, in one query with a restart: our own and other engines'."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.testing.conformance import load, run_cases

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
FILES = (
    "beam_trigger_transcripts.yaml",
    "beam_trigger_simple.jsonl",
    "beam_reducefn.jsonl",
    "session_windows.jsonl",
    "flink_cep.jsonl",
    "match_recognize.jsonl",
    "joins.jsonl",
)
#: One case in so many runs here; all of them run in process, and with `--engine spark` by hand.
SAMPLED = {"joins.jsonl": 8}

OWN = [
    {
        "name": "own: early, on time, late",
        "window_fn": "FixedWindows(10)",
        "trigger_fn": "AfterWatermark(early=AfterCount(2), late=AfterCount(1))",
        "accumulation_mode": "accumulating",
        "allowed_lateness": 20,
        "transcript": [
            {"input": [1, 2]},
            {"expect": [{"window": [0, 9], "values": [1, 2], "early": True, "index": 0}]},
            {"input": [3]},
            {"watermark": 12},
            {"expect": [{"window": [0, 9], "values": [1, 2, 3], "late": False}]},
            {"input": [4]},
            {"expect": [{"window": [0, 9], "values": [1, 2, 3, 4], "late": True}]},
            {"watermark": 40},
            {"input": [5]},
        ],
    },
    {
        "name": "own: sessions merge",
        "window_fn": "Sessions(10)",
        "trigger_fn": "AfterWatermark",
        "transcript": [
            {"input": [1]},
            {"input": [20]},
            {"input": [11, 9]},
            {"watermark": 100},
            {"expect": [{"window": [1, 29], "values": [1, 9, 11, 20]}]},
        ],
    },
    {
        "id": "own: a pattern over the restart",
        "pattern": [
            {"contiguity": "begin", "name": "low", "condition": "price < 2.0"},
            {"contiguity": "followedBy", "name": "high", "condition": "price > ctx('low')[0].price + 5.0"},
        ],
        "events": [[1, "a", 1.0, 1], [2, "a", 4.0, 2], [3, "a", 0.0, 3], [4, "a", 5.5, 4], [5, "a", 8.0, 5]],
        "expected_idx": [[2, 3], [0, 4]],
    },
    {
        "id": "own: MATCH_RECOGNIZE over the restart",
        "sql": "SELECT k, n, total FROM t MATCH_RECOGNIZE (PARTITION BY k ORDER BY x MEASURES MATCH_NUMBER() AS n, "
        "SUM(x) AS total PATTERN (a b+) DEFINE b AS x > 2 * PREV(x)) ORDER BY k, n",
        "columns": ["k", "x"],
        "types": ["varchar", "integer"],
        "rows": [["p", 1], ["q", 2], ["p", 3], ["q", 5], ["p", 7], ["q", 6], ["p", 8], ["q", 13]],
        "expected_rows": [["p", 1, 11], ["q", 1, 7], ["q", 2, 19]],
        "ordered": True,
    },
    {
        "id": "own: an interval join over the restart",
        "kind": "interval",
        "how": "full",
        "left": {"columns": [["k", "int"], ["ts", "timestamp"]], "key": ["k"], "time": "ts"},
        "right": {"columns": [["k", "double"], ["ts", "timestamp"]], "key": ["k"], "time": "ts"},
        "bounds": {"lower_ms": 0, "upper_ms": 10},
        "select": ["left.k", "left.ts", "right.k", "right.ts"],
        "steps": [
            {"left": [[1, 100], [2, 100], [None, 100]]},
            {"right": [[1.0, 110], [3.0, 105]]},
            {"watermark": 109},
            {"left": [[3, 95]]},
            {"late": [["left", [3, 95]]]},
            {"right": [[2.0, 110]]},
            {"watermark": 200},
            {
                "expect": [
                    [1, 100, 1.0, 110],
                    [2, 100, 2.0, 110],
                    [None, 100, None, None],
                    [None, None, 3.0, 105],
                ]
            },
        ],
    },
    {
        "id": "own: a join of tables over the restart",
        "kind": "regular",
        "how": "left",
        "left": {
            "columns": [["id", "int"], ["k", "int"]],
            "key": ["k"],
            "primary_key": ["id"],
            "input": "upsert",
        },
        "right": {
            "columns": [["k", "int"], ["n", "int"]],
            "key": ["k"],
            "primary_key": ["k"],
            "input": "upsert",
        },
        "select": ["left.id", "right.n"],
        "result": "changelog",
        "steps": [
            {"left": [["upsert", 1, 7], ["upsert", 2, 7]]},
            {"expect": [["+", 1, None], ["+", 2, None]]},
            {"right": [["upsert", 7, 5]]},
            {"expect": [["-", 1, None], ["-", 2, None], ["+", 1, 5], ["+", 2, 5]]},
            {"left": [["delete", 2, None]]},
            {"right": [["upsert", 7, 6]]},
            {"expect": [["-", 2, 5], ["-", 1, 5], ["+", 1, 6]]},
        ],
    },
]


@pytest.mark.usefixtures("jars")
def test_windows_sessions_patterns_sql_and_joins_pass_on_spark_over_a_restart() -> None:
    cases = [*OWN, *(case for name in FILES if (SHARED / "conformance" / name).exists() for case in _cases(name))]
    results = list(run_cases(cases, "spark"))
    failed = [result for result in results if result.status == "fail"]
    assert not failed
    assert [result.status for result in results[: len(OWN)]] == ["pass"] * len(OWN)
    unsupported = [result.id for result in results if result.status == "unsupported"]
    assert len(unsupported) <= 3, unsupported


def _cases(name: str) -> list[dict[str, object]]:
    cases = list(load(SHARED / "conformance" / name))
    return cases[:: SAMPLED.get(name, 1)]
