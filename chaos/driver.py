"""The driver: a process that runs the jobs as `headrace run --json` does, with the settings of a test.

python -m chaos.driver BOOTSTRAP DIRECTORY DELIVERY APART
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chaos.jobs import jobs
from headrace.errors import HeadraceError
from headrace.kafka import Connection
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.spark.run.supervisor import Restarts

if TYPE_CHECKING:
    from headrace.spark.run.progress import RunEvent


def main() -> int:
    bootstrap, directory, delivery, apart = sys.argv[1:5]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    chosen: Any = delivery
    options = RunOptions(
        connection=Connection(bootstrap=bootstrap),
        checkpoint=Path(directory) / "checkpoint",
        driver_memory="1g",
        cadence_ms=300,
        delivery=chosen,
        apart_rows=0 if apart == "apart" else None,
        # Here it is the test that decides when it is enough.
        restarts=Restarts(most=1_000_000, pause=(0.2, 2.0)),
    )

    def report(event: RunEvent) -> None:
        print(json.dumps(event.to_dict()), flush=True)

    problems: list[HeadraceError] = []

    def run() -> None:
        try:
            run_jobs(jobs(), options, report, stop)
        except HeadraceError as problem:
            problems.append(problem)

    # Not in the main thread: pyspark would take over its signals.
    thread = threading.Thread(target=run, name="jobs")
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    for problem in problems:
        print(json.dumps({"event": "ended", "problem": str(problem)}), flush=True)
    return len(problems)


if __name__ == "__main__":
    sys.exit(main())
