"""Supervision: a query that failed is started again, after a pause, and not for ever.

Most failures pass: a broker that restarts, a Java process that ran out of memory, a full disk that somebody clears. A
query continues from its checkpoint, so starting it again loses and repeats nothing. Others would only come back: a
plan that cannot work, state that does not fit, a right that is missing, another run of the same job. Those end the run
at once, as does an error in the job's own code that comes back in the same batch.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import BrokerError, EnvironmentProblem, FailedJobError, HeadraceError, JobError
from headrace.kafka.connection import AccessError
from headrace.kafka.producer import FencedError, TimeoutTooLongError
from headrace.spark.run.progress import StateChange

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from headrace.spark.run.progress import RunEvent

log = logging.getLogger(__name__)

#: Errors that may pass by themselves.
_PASSING = (BrokerError, EnvironmentProblem, JobError)
_LASTING = (FencedError, TimeoutTooLongError, AccessError)


@dataclass(frozen=True)
class Restarts:
    """How often a failed query is started again.

    Args:
        most: Times in a row; after a good run it counts from the beginning. 0: never.
        pause: Seconds before the first restart, and at most; it doubles in between.
        good_run: Seconds after which a run that got ahead was a good one.
    """

    most: int = 5
    pause: tuple[float, float] = (1.0, 30.0)
    good_run: float = 60.0


def may_pass(problem: HeadraceError) -> bool:
    """Tell whether starting again may help.

    >>> from headrace.errors import PlanError
    >>> may_pass(BrokerError("Kafka did not answer in time")), may_pass(PlanError("a window without an aggregate"))
    (True, False)
    """
    return isinstance(problem, _PASSING) and not isinstance(problem, _LASTING)


def supervise(
    attempt: Callable[[], None],
    *,
    restarts: Restarts,
    batch: Callable[[], int],
    report: Callable[[RunEvent], None],
    stop: threading.Event,
) -> None:
    """Run an attempt until it ends by itself or by an error that will not pass.

    Args:
        attempt: Runs the query; raises why it failed.
        restarts: How often.
        batch: Tells the last batch that is out.
        report: Is told of restarts.
        stop: Ends the run; also a pause.

    Raises:
        HeadraceError: The last failure.
    """
    failures = 0
    last: tuple[int, str] | None = None
    while True:
        began, before = time.monotonic(), batch()
        try:
            attempt()
        except HeadraceError as problem:
            if stop.is_set() and may_pass(problem):
                # A signal to the whole process group ends Java and the workers, too: that is no failure.
                log.info("ended while it was being stopped: %s", problem)
                return
            if time.monotonic() - began >= restarts.good_run and batch() > before:
                failures = 0
            failures += 1
            same = (batch(), problem.message)
            end = _reason_to_end(problem, failures, restarts, again=isinstance(problem, JobError) and same == last)
            last = same
            if end is not None:
                raise end from problem
            pause = min(restarts.pause[0] * 2 ** (failures - 1), restarts.pause[1])
            detail = f"in {pause:g} s ({failures} of {restarts.most}): {problem.message}"
            log.warning("restarting %s", detail, exc_info=problem)
            report(StateChange("restarting", detail))
            if stop.wait(pause):
                return
        else:
            return


def _reason_to_end(problem: HeadraceError, failures: int, restarts: Restarts, *, again: bool) -> HeadraceError | None:
    if not may_pass(problem):
        return problem
    if again:
        return _retold(problem, "twice, at the same batch")
    if failures <= restarts.most:
        return None
    if restarts.most == 0:
        return problem
    return _retold(problem, f"after {restarts.most} restarts in a row")


def _retold(problem: HeadraceError, how: str) -> HeadraceError:
    if isinstance(problem, FailedJobError):
        return FailedJobError(problem.job, f"{problem.reason} ({how})", hint=problem.hint)
    return type(problem)(f"{problem.message} ({how})", hint=problem.hint)
