"""All trials of an evaluation, one after the other, and what is kept between them.

The directory of an evaluation holds `plan.json`, a directory per trial with its raw data and `trial.json`, then
`summary.json` and `report.html`. A trial is done when its `trial.json` is there: it is written last. So an evaluation
that was interrupted, or whose machine went down, is continued by the same command; a plan that differs is refused,
since its trials could not be compared.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import psutil

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import ConfigError, HeadraceError
from headrace.evaluate.plan import next_volume
from headrace.evaluate.sizes import bytes_per_event
from headrace.evaluate.trial import InterruptedTrialError, TrialRun

if TYPE_CHECKING:
    import threading

    from headrace.evaluate.plan import Plan, Trial
    from headrace.evaluate.subject import Subject


class Observer(Protocol):
    """Is told how an evaluation gets on."""

    def trial(self, trial: Trial, *, done: int, total: int, left: float) -> None:
        """A trial begins.

        Args:
            trial: Which.
            done: How many are done.
            total: How many there are, as far as is known.
            left: About how many seconds are left in all.
        """
        ...

    def phase(self, what: str, seconds: float) -> None:
        """A trial enters a phase that takes about so long."""
        ...

    def finished(self, record: dict[str, Any]) -> None:
        """A trial is done; this is what it found."""
        ...

    def failed(self, trial: Trial, problem: HeadraceError) -> None:
        """A trial failed; the evaluation goes on."""
        ...


@dataclass
class Campaign:
    """Runs the trials of a plan that are not done yet.

    Args:
        plan: What to run.
        subject: The jobs of the plan, with what it takes to measure them.
        directory: Where everything is kept.
    """

    plan: Plan
    subject: Subject
    directory: Path
    _failed: list[dict[str, Any]] = field(default_factory=list)

    def prepare(self) -> list[dict[str, Any]]:
        """Make or check the directory.

        Returns:
            The records of trials that are done already.

        Raises:
            ConfigError: The directory holds another evaluation.
        """
        path = self.directory / "plan.json"
        if path.exists():
            kept = json.loads(path.read_text("utf-8"))
            if kept["fingerprint"] != self.plan.fingerprint:
                changed = _differences(kept["plan"], self.plan.to_dict())
                raise ConfigError(
                    f"{self.directory} holds an evaluation with another plan ({changed})",
                    hint="Continue it with the same options, or name another --output, or start again with --fresh.",
                )
        else:
            self.directory.mkdir(parents=True, exist_ok=True)
            known = {**conditions(), "load": self.subject.load.description}
            text = {"fingerprint": self.plan.fingerprint, "plan": self.plan.to_dict(), "conditions": known}
            path.write_text(json.dumps(text, indent=1) + "\n", "utf-8")
        return self.records()

    def records(self) -> list[dict[str, Any]]:
        """Give the records of all trials that are done."""
        found = [json.loads(path.read_text("utf-8")) for path in sorted(self.directory.glob("trials/*/trial.json"))]
        return sorted(found, key=lambda record: (record["searching"], record["volume"], record["repetition"]))

    def run(self, stop: threading.Event, observer: Observer) -> list[dict[str, Any]]:
        """Run what is not done yet.

        Args:
            stop: Set it to end after cleaning up.
            observer: Is told how it gets on.

        Returns:
            The records of all trials.

        Raises:
            InterruptedTrialError: `stop` was set; what is done is kept.
            HeadraceError: Not a single trial could be run; the reason of the last one.
        """
        done = {record["name"] for record in self.prepare()}
        trials = self.plan.trials()
        problem: HeadraceError | None = None
        for number, trial in enumerate(trials):
            if trial.name not in done:
                problem = self._one(trial, number, len(trials), stop, observer) or problem
        if self.plan.search:
            problem = self._search(stop, observer) or problem
        if problem is not None and not self.records():
            raise problem
        self._sizes(observer)
        return self.records()

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Trials that failed in this run, with the reason; the same command tries them again."""
        return list(self._failed)

    def _one(
        self, trial: Trial, number: int, total: int, stop: threading.Event, observer: Observer
    ) -> HeadraceError | None:
        observer.trial(trial, done=number, total=total, left=self._left(trial, number))
        directory = self.directory / "trials" / trial.name
        try:
            record = TrialRun(self.plan, self.subject, trial, directory, stop=stop, tell=observer.phase).run()
        except InterruptedTrialError:
            raise
        except HeadraceError as problem:
            self._failed.append({"name": trial.name, "problem": str(problem)})
            observer.failed(trial, problem)
            return problem
        observer.finished(record)
        return None

    def _left(self, trial: Trial, number: int) -> float:
        waiting = self.plan.trials()[number:] if not trial.searching else [trial]
        search = self.plan.search and not trial.searching
        return sum(self.plan.expected(each) for each in waiting) + (
            self.plan.expected_total() - sum(self.plan.expected(each) for each in self.plan.trials()) if search else 0
        )

    def _search(self, stop: threading.Event, observer: Observer) -> HeadraceError | None:
        problem = None
        tried = 0
        while True:
            volume = next_volume(*held_and_lost(self.records()))
            if volume is None or problem is not None:
                return problem
            trial = self.plan.search_trial(volume)
            problem = self._one(trial, tried, tried + 1, stop, observer)
            tried += 1

    def _sizes(self, observer: Observer) -> None:
        path = self.directory / "sizes.json"
        if path.exists():
            return
        observer.phase("bytes per event", 15)
        with EmbeddedBroker(ServerSettings(data_dir=self.directory / "sizes")) as broker:
            path.write_text(json.dumps(bytes_per_event(broker, self.subject.load.sample()), indent=1) + "\n", "utf-8")
        shutil.rmtree(self.directory / "sizes", ignore_errors=True)


def held_and_lost(records: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    """Tell which volumes were held and which were not.

    A volume that the generator itself could not give is not held: more than that cannot be shown here. Of several
    trials most decide.
    """
    votes: dict[float, list[bool]] = {}
    for record in records:
        votes.setdefault(record["volume"], []).append(bool(record["valid"] and record["held"]))
    held = [volume for volume, each in votes.items() if sum(each) * 2 > len(each)]
    return held, [volume for volume in votes if volume not in held]


def conditions() -> dict[str, Any]:
    """Tell what an evaluation runs on."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        **{name: version(name) for name in ("headrace", "pyspark", "polars")},
        "commit": _commit(),
        "broker": "embedded, on the same cores",
        "load_generator": "on the same cores",
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return told.stdout.strip() if told.returncode == 0 else ""


def _differences(one: dict[str, Any], two: dict[str, Any]) -> str:
    names = [name for name in two if one.get(name) != two[name]]
    return ", ".join(f"{name} was {one.get(name)}, is {two[name]}" for name in names) or "made by another version"
