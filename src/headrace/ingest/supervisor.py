"""The supervisor: several feeds side by side, each started again when it fails.

Every feed has a thread and a producer of its own: one that fails, or whose source is away, does not disturb the others.
A failed feed is started again after a pause that doubles from failure to failure and is short again after a good run. A
feed whose source has ended (a recording) is done.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import ConfigError, HeadraceError
from headrace.ingest.report import Tally
from headrace.ingest.runner import Ingestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from headrace.ingest.feeds import Feed
    from headrace.ingest.report import IngestReport
    from headrace.ingest.runner import Outlet

_PAUSE = (1.0, 30.0)
#: A run of so many seconds was a good one.
_GOOD_RUN = 60.0


@dataclass(frozen=True, slots=True)
class Restart:
    """A feed has failed and will be started again.

    Args:
        feed: Its name.
        error: Why.
        pause: Seconds until then.
        count: How often that has happened.
    """

    feed: str
    error: HeadraceError
    pause: float
    count: int


def supervise(
    feeds: Sequence[Feed],
    outlet: Callable[[], AbstractContextManager[Outlet]],
    *,
    stop: threading.Event,
    report: Callable[[IngestReport], None] = lambda _: None,
    restarted: Callable[[Restart], None] = lambda _: None,
    pause: tuple[float, float] = _PAUSE,
) -> None:
    """Run feeds until all have ended or `stop` is set; their reports come from their threads, one at a time.

    Args:
        feeds: What to run.
        outlet: Makes a producer.
        stop: Ends all of them.
        report: Called about once a second for each feed.
        restarted: Called when a feed has failed.
        pause: Seconds before the first restart, and at most.

    Raises:
        ConfigError: The settings of a feed are wrong; the others are stopped first.
        BaseException: A feed raised what is not a HeadraceError: a defect; likewise.
    """
    lock = threading.Lock()
    defects: list[BaseException] = []

    def run(feed: Feed) -> None:
        try:
            _keep_running(feed)
        except BaseException as error:  # noqa: BLE001 - handed to whoever called supervise
            defects.append(error)
            stop.set()

    def tell(what: IngestReport) -> None:
        with lock:
            report(what)

    def _keep_running(feed: Feed) -> None:
        wait, count = pause[0], 0
        # What a feed has counted and seen outlives its failures.
        tally, duplicates = Tally(), feed.delivery.duplicates()
        while not stop.is_set():
            began = time.monotonic()
            try:
                with outlet() as producer:
                    connector, processor = feed.make_connector(), feed.make_processor()
                    Ingestion(
                        connector, processor, producer, settings=feed.delivery, tally=tally, duplicates=duplicates
                    ).run(stop, tell)
                return
            except ConfigError:
                raise  # no pause will make it right
            except HeadraceError as error:
                count += 1
                wait = pause[0] if time.monotonic() - began > _GOOD_RUN else wait
                with lock:
                    restarted(Restart(feed.name, error, wait, count))
                stop.wait(wait)
                wait = min(wait * 2, pause[1])

    threads = [threading.Thread(target=run, args=(feed,), name=f"feed-{feed.name}", daemon=True) for feed in feeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        # With a time-out, so that signals reach the main thread.
        while thread.is_alive():
            thread.join(0.2)
    if defects:
        raise defects[0]
