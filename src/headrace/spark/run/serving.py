"""A running query answers what it is asked: a savepoint while it goes on, to stop, or both."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from headrace.errors import HeadraceError
from headrace.spark.checkpoint.requests import Request, answer, forget, pending
from headrace.spark.checkpoint.savepoints import take_savepoint
from headrace.spark.run.progress import StateChange

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.spark.checkpoint.identity import Identity
    from headrace.spark.run.progress import RunEvent

log = logging.getLogger(__name__)

_EVERY = 0.5


@dataclass
class Requests:
    """The requests to one query.

    Args:
        checkpoint: Its checkpoint.
        report: Is told what is done.
        stop: Set it to end the run.
    """

    checkpoint: Path
    report: Callable[[RunEvent], None]
    stop: threading.Event
    _looked: float = 0.0
    _leaving: list[Request] = field(default_factory=list)

    def begin(self) -> None:
        """Forget what an earlier run was asked."""
        forget(self.checkpoint)

    def serve(self, spark: SparkSession, identity: Identity) -> None:
        """Look for requests, at most twice a second, and do what can be done while the query runs."""
        if time.monotonic() - self._looked < _EVERY:
            return
        self._looked = time.monotonic()
        known = {request.id for request in self._leaving}
        for request in pending(self.checkpoint):
            if request.kind == "stop" and request.id not in known:
                self._leaving.append(request)
                self.stop.set()
            elif request.kind == "savepoint":
                self._take(spark, identity, request, running=True)

    def finish(self, spark: SparkSession, identity: Identity) -> None:
        """Answer those who asked to stop, and who asked since the last look, after the query has ended."""
        known = {request.id: request for request in (*self._leaving, *pending(self.checkpoint))}
        for request in known.values():
            if request.place is None:
                answer(self.checkpoint, request, {})
            else:
                self._take(spark, identity, request, running=False)
        self._leaving.clear()

    def _take(self, spark: SparkSession, identity: Identity, request: Request, *, running: bool) -> None:
        begun = time.monotonic()
        try:
            place = request.place or ""
            manifest = take_savepoint(spark, self.checkpoint, identity, place, request.name, running=running)
        except HeadraceError as problem:
            log.warning("no savepoint: %s", problem)
            answer(self.checkpoint, request, {"problem": problem.message, "hint": problem.hint})
            return
        except PySparkException as problem:
            log.warning("no savepoint", exc_info=problem)
            first = str(problem).splitlines()[0]
            answer(self.checkpoint, request, {"problem": f"the state could not be read: {first}"})
            return
        seconds = time.monotonic() - begun
        told = f"savepoint {request.name} of batch {manifest.batches - 1}: {manifest.file_bytes:,} bytes"
        log.info("%s in %.1f s", told, seconds)
        self.report(StateChange("running" if running else "stopping", told))
        answer(self.checkpoint, request, {"manifest": manifest.to_text(), "seconds": seconds})
