"""Runs conformance cases: `python -m headrace.testing.conformance FILE... [--engine inprocess|spark] [--json]`.

Cases are data, one JSON object per line or one YAML document each; what kind a case is of is told by its fields, so a
file of the same format with other cases runs unchanged. Per case one line says pass, fail (with what was expected and
what came) or unsupported (with the reason); the last line counts. The exit code is 1 if a case failed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from headrace.extras import require

require("testing", by="headrace.testing.conformance")

import yaml

from headrace.errors import EnvironmentProblem, HeadraceError
from headrace.testing import window_cases
from headrace.testing.case import CaseResult
from headrace.testing.script import Harness
from headrace.testing.sketch_cases import run_sketch
from headrace.windows import WindowOperator

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.testing.turns import Taker

Engine = Literal["inprocess", "spark"]
Case = dict[str, Any]

#: What makes the harness that a window case is run in.
Maker = Callable[[WindowOperator], Harness]


class UnknownCaseError(HeadraceError, ValueError):
    """The fields of a case fit no known format."""


def kind_of(case: Case) -> str:
    """Tell the format of a case by its fields.

    >>> kind_of({"transcript": []}), kind_of({"sketch": "kll"})
    ('transcript', 'sketch')
    """
    if "transcript" in case:
        return "transcript"
    if "sketch" in case:
        return "sketch"
    if "steps" in case and (("left" in case and "right" in case) or "joins" in case):
        return "join"
    if "sql" in case:
        return "sql" if "tables" in case else "match_recognize"
    if "pattern" in case and "events" in case:
        return "pattern"
    if case.get("kind") in ("merge", "stream", "window_set") or "touching_windows_merge" in case:
        return "sessions"
    if "expected_panes" in case and "data" in case:
        return "bundles"
    if "steps" in case and "window_fn" in case:
        return "steps"
    raise UnknownCaseError(
        f"a case with the fields {', '.join(sorted(case))} fits no known format",
        hint="Known are trigger transcripts, bundles, steps, sessions, sketches, patterns, MATCH_RECOGNIZE and joins.",
    )


def run_case(case: Case, engine: Engine = "inprocess", make: Maker = Harness, take: Taker | None = None) -> CaseResult:
    """Run one case of any format.

    Args:
        case: The case.
        engine: Where it runs, for those that need to know.
        make: Makes the harness of a window case.
        take: Takes the turns of a pattern case, which is then run as a stream; None to run it over its rows at once.
    """
    name = str(case.get("id") or case.get("name") or "?")
    try:
        kind = kind_of(case)
    except UnknownCaseError as error:
        return CaseResult(name, "unsupported", None, None, error.message)
    if kind in ("pattern", "match_recognize"):
        module = "headrace.testing.patterns" if kind == "pattern" else "headrace.testing.match_recognize"
        result: CaseResult = importlib.import_module(module).run_case(case, take)
        return result
    if kind == "join":
        run_join = importlib.import_module("headrace.testing.join_cases").run_case
        found: CaseResult = run_join(case) if engine == "inprocess" else run_join(case, 1, take)
        return found
    if kind == "sketch":
        if engine != "inprocess":
            return CaseResult(name, "unsupported", None, None, f"a sketch is the same on {engine} as in process")
        return run_sketch(case)
    if kind == "sql":
        if engine != "inprocess":
            return CaseResult(name, "unsupported", None, None, f"cases of SQL are run in process, not on {engine}")
        from headrace.testing.sql_cases import run_case as run_sql

        return run_sql(case)
    runners = {
        "transcript": window_cases.run_transcript,
        "bundles": window_cases.run_bundles,
        "steps": window_cases.run_steps,
        "sessions": window_cases.run_sessions,
    }
    return runners[kind](case, make)


def run_cases(cases: Sequence[Case], engine: Engine = "inprocess") -> Iterator[CaseResult]:
    """Run cases of any formats, on Spark all of them together."""
    if engine == "inprocess":
        yield from (run_case(case) for case in cases)
        return
    # Only now: the kit itself needs no Spark.
    from headrace.testing.spark_turns import Recorder, play

    recorder = Recorder()
    for case in cases:
        run_case(case, "spark", recorder.harness, recorder.take)
    player = play(recorder.recordings)
    yield from (run_case(case, "spark", player.harness, player.take) for case in cases)


def load(path: Path) -> Iterator[Case]:
    """Read the cases of a file: JSON lines, a JSON array or object, or YAML documents."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        hint = "Give the path of a file of cases."
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}", hint=hint) from error
    if path.suffix in (".yaml", ".yml"):
        yield from (case for case in yaml.safe_load_all(text) if case)
    elif path.suffix == ".json":
        content = json.loads(text)
        yield from content if isinstance(content, list) else [content]
    else:
        yield from (json.loads(line) for line in text.splitlines() if line.strip())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="headrace.testing.conformance", description="Run conformance cases.")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="cases as JSON lines or YAML documents")
    parser.add_argument("--engine", choices=["inprocess", "spark"], default="inprocess", help="where to run them")
    parser.add_argument("--json", action="store_true", help="one JSON object per case, and one with the counts")
    options = parser.parse_args(arguments)
    # That state may grow without a time bound is no news for cases of a few rows.
    log = logging.getLogger("headrace.cep")
    level = log.level
    log.setLevel(logging.ERROR)
    counts = {"pass": 0, "fail": 0, "unsupported": 0}
    try:
        cases = [case for path in options.files for case in load(path)]
        for result in run_cases(cases, options.engine):
            counts[result.status] += 1
            _tell(result, as_json=options.json)
    except HeadraceError as error:
        sys.stderr.write(f"{error}\n")
        return int(error.exit_code)
    finally:
        log.setLevel(level)
    if options.json:
        sys.stdout.write(json.dumps({"counts": counts}) + "\n")
    else:
        summary = f"{counts['pass']} passed, {counts['fail']} failed, {counts['unsupported']} unsupported"
        sys.stdout.write(summary + "\n")
    return 1 if counts["fail"] else 0


def _tell(result: CaseResult, *, as_json: bool) -> None:
    if as_json:
        record = {
            "id": result.id,
            "status": result.status,
            "expected": result.expected,
            "got": result.got,
            "reason": result.reason,
        }
        sys.stdout.write(json.dumps(record, default=str) + "\n")
        return
    line = f"{result.status} {result.id}"
    if result.status != "pass" and result.reason:
        line += f": {result.reason}"
    sys.stdout.write(line + "\n")
    if result.status == "fail":
        sys.stdout.write(f"  expected: {result.expected}\n  got:      {result.got}\n")


if __name__ == "__main__":
    sys.exit(main())
