"""The files of a new project: a job, its test with scripted time, settings, sample data.

The sample data are the records of the topic, one JSON object per line; `headrace dev` sends them with their gaps, as if
they happened now.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

_PYPROJECT = """\
[project]
name = "{name}"
version = "0.1.0"
description = "Live answers from event streams"
requires-python = ">=3.11"
dependencies = ["headrace[dashboard,spark]"]

[project.optional-dependencies]
dev = ["pytest>=8", "ruff>=0.11"]

[tool.pytest.ini_options]
testpaths = ["tests"]
pythonpath = ["."]

[tool.ruff]
line-length = 120
"""

_JOBS = '''\
"""The jobs of {name}: what is computed from which topic."""

import polars as pl
from headrace import Job, Stream, bounded, tumbling
from headrace.formats import json
from headrace.windows import count

scans = Stream.topic("{topic}", format=json(schema={{"depot": pl.String, "parcel": pl.String}}, time="scanned_at"))

per_depot = Job(
    "{job}",
    scans.watermark(bounded("2s"), idle_after="10s")
    .key_by("depot")
    .window(tumbling("10s"))
    .aggregate(scans=count())
    .select("depot", "scans", "window_start", "window_end"),
    description="Scans per depot, every 10 seconds",
    format=json(),
)
'''

_TEST = '''\
"""What the jobs answer to records of a script. Time is part of the script; neither Kafka nor Spark is needed."""

import json

from headrace.inprocess import Runner

from jobs import per_depot


def scans(*rows: tuple[int, str]) -> list[bytes]:
    """Make records as they are on the topic, of (second, depot)."""
    return [
        json.dumps({{"scanned_at": f"2026-01-01T12:00:{{second:02}}Z", "depot": depot, "parcel": "P-1"}}).encode()
        for second, depot in rows
    ]


def test_a_window_is_counted_when_its_time_is_over() -> None:
    runner = Runner(per_depot)
    before = runner.step(scans((1, "north"), (9, "north"), (5, "south")))
    assert before.results.is_empty()  # the watermark is 2 s behind the newest scan: [0, 10) is open
    after = runner.step(scans((12, "north")))
    assert sorted(after.results.select("depot", "scans").rows()) == [("north", 2), ("south", 1)]


def test_a_scan_that_comes_too_late_is_not_lost() -> None:
    runner = Runner(per_depot)
    runner.step(scans((1, "north"), (30, "north")))
    late = runner.step(scans((3, "south"))).late
    assert late is not None
    assert late["depot"].to_list() == ["south"]


def test_a_record_that_cannot_be_read_is_a_dead_letter() -> None:
    dead = Runner(per_depot).step([b"no scan"]).dead
    assert dead is not None
    assert dead["reason"].to_list() == ["malformed_json"]
'''

_SETTINGS = """\
# Settings of this project; `headrace config` shows all of them, with where each came from.
jobs = ["jobs.py"]

[spark]
master = "local[2]"
"""

_README = """\
# {name}

Live answers from event streams, with Headrace.

| file | what is in it |
|---|---|
| `jobs.py` | the jobs |
| `tests/test_jobs.py` | their tests, with scripted time |
| `headrace.toml` | settings, and which files have jobs |
| `sample/{topic}.jsonl` | sample data: the records of the topic of that name, a line each |

    headrace jobs                # what can run
    python -m pytest             # neither Kafka nor Spark is needed
    headrace dev                 # broker, topics, sample data, jobs on Spark, live page; Ctrl-C ends all of it
    headrace tail {job} -f       # the results, in another terminal

The job reads the topic `{topic}` and writes `analytics.{job}`, both in JSON: any Kafka client can fill the one and read
the other. With a Kafka of your own:

    headrace run jobs.py --bootstrap HOST:PORT
"""

_IGNORED = """\
.headrace/
.venv/
__pycache__/
.pytest_cache/
.ruff_cache/
spark-warehouse/
"""


def project_files(name: str) -> dict[str, str]:
    """Give the files of a new project by their paths.

    Args:
        name: What it is called; an identifier.

    >>> sorted(project_files("parcels"))[:4]
    ['.gitignore', 'README.md', 'headrace.toml', 'jobs.py']
    """
    words = {"name": name, "topic": f"{name}.scans", "job": f"{name.lower().replace('_', '-').strip('-')}-per-depot"}
    texts = {
        "pyproject.toml": _PYPROJECT,
        "jobs.py": _JOBS,
        "tests/test_jobs.py": _TEST,
        "headrace.toml": _SETTINGS,
        "README.md": _README,
        ".gitignore": _IGNORED,
    }
    files = {path: text.format(**words) for path, text in texts.items()}
    return files | {f"sample/{words['topic']}.jsonl": _sample()}


def _sample() -> str:
    """Give two minutes of scans, the same ones in every project."""
    chance = random.Random(1)  # noqa: S311 - sample data
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    lines = []
    for number in range(360):
        at += timedelta(milliseconds=chance.randrange(50, 620))
        (depot,) = chance.choices(["north", "south", "harbour"], [5, 3, 1])
        row = {"scanned_at": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z", "depot": depot}
        row["parcel"] = f"P-{number:04d}"
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"
