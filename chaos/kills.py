"""What is done to a scene: each function breaks something, mends what a person would mend, and tells since when."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from chaos.jobs import jobs
from chaos.scene import BrokenError, kill
from headrace.kafka import COMMITS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from chaos.scene import Scene


def driver_at(point: str) -> Callable[[Scene, random.Random], float]:
    """Kill the driver at a named point of the sink."""

    def strike(scene: Scene, chance: random.Random) -> float:
        scene.arm(point)
        return scene.revive_driver()

    return strike


def task_at(point: str) -> Callable[[Scene, random.Random], float]:
    """Kill the worker of a task that writes, at a named point; the driver notices."""

    def strike(scene: Scene, chance: random.Random) -> float:
        scene.arm(point)
        deadline = time.monotonic() + 60
        while (scene.home / "faults" / point).exists():
            if time.monotonic() > deadline:
                raise BrokenError(f"no task came to {point}")
            time.sleep(0.005)
        return time.monotonic()

    return strike


def driver(scene: Scene, chance: random.Random) -> float:
    """Kill the driver at any moment."""
    time.sleep(chance.random())
    kill(scene.driver)
    return scene.revive_driver()


def state_commit(scene: Scene, chance: random.Random) -> float:
    """Kill driver and Java together while a state partition writes its changes."""
    java = scene.java()
    wanted = chance.randrange(1, 4)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if _drafts(scene.checkpoint / "spark" / "state"):
            wanted -= 1
            if wanted == 0:
                break
            time.sleep(0.2)
    else:
        raise BrokenError("no state was written")
    kill(java)
    kill(scene.driver)
    return scene.revive_driver()


def _drafts(directory: Path) -> bool:
    """Whether a file of the state store is being written: Spark renames it when it is complete."""
    for operator in os.scandir(directory):
        for partition in os.scandir(operator.path) if operator.is_dir() else ():
            if partition.is_dir() and any(".tmp" in each.name for each in os.scandir(partition.path)):
                return True
    return False


def java(scene: Scene, chance: random.Random) -> float:
    """Kill Spark's Java process; the driver starts another."""
    time.sleep(chance.random())
    kill(scene.java())
    return time.monotonic()


def worker(scene: Scene, chance: random.Random) -> float:
    """Kill one of Spark's Python processes."""
    time.sleep(chance.random())
    kill(chance.choice(scene.workers()))
    return time.monotonic()


def broker(scene: Scene, chance: random.Random) -> float:
    """Kill the broker, and start it again on the same directory after a while."""
    os.kill(scene.broker.pid, signal.SIGKILL)
    killed = time.monotonic()
    scene.broker.stop()
    time.sleep(3 * chance.random())
    scene.start_broker()
    return killed


def feed(scene: Scene, chance: random.Random) -> float:
    """Kill the feed, which leaves a transaction open now and then, and start it again."""
    time.sleep(chance.random() / 5)
    kill(scene.feed)
    killed = time.monotonic()
    scene.end_feed()
    scene.start_feed()
    return killed


_HANGING = """
import sys, time
from headrace.kafka import Connection, TransactionalProducer
producer = TransactionalProducer(Connection(bootstrap=sys.argv[1]), transactional_id="chaos-hanging", timeout=8.0)
producer.begin()
for topic in sys.argv[2:]:
    producer.send(topic, b"never committed", key=b"nobody")
producer.flush()
print("open", flush=True)
time.sleep(60)
"""


def hanging(scene: Scene, chance: random.Random) -> float:
    """Leave somebody's transaction open in the results and the tokens, and kill the driver right after a commit."""
    topics = [COMMITS, *(job.result_topic for job in jobs())]
    with subprocess.Popen(
        [sys.executable, "-c", _HANGING, scene.broker.bootstrap, *topics], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
    scene.arm("after-commit")
    return scene.revive_driver()


def disk_full(scene: Scene, chance: random.Random) -> float:
    """Fill the checkpoint's disk for some seconds; without a disk of its own, forbid Java to write to files."""
    if scene.disk is None:
        import resource

        process = scene.java()
        before = process.rlimit(resource.RLIMIT_FSIZE)
        process.rlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        time.sleep(1 + chance.random())
        process.rlimit(resource.RLIMIT_FSIZE, before)
        return time.monotonic()
    filler = scene.disk / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * 65536)
    except OSError:
        time.sleep(2 + 2 * chance.random())
    finally:
        filler.unlink()
    return time.monotonic()


def clock(scene: Scene, chance: random.Random) -> float:
    """Move the driver's clock by up to some hours, forwards or back."""
    if scene.clock is None:
        raise BrokenError("no C compiler, so no clock to move; leave this kind out: --without clock")
    moved = time.monotonic()
    scene.set_clock(chance.choice((-7200, -90, 90, 7200, 0)))
    # The batch under way was planned before; only the next one shows that batches go on.
    return scene.await_event(moved, "the batch under way when the clock was moved").at


#: Every kind with its share.
KINDS: dict[str, tuple[Callable[[Scene, random.Random], float], int]] = {
    "driver before the transaction": (driver_at("before-transaction"), 6),
    "driver in the transaction": (driver_at("in-transaction"), 8),
    "driver before the commit": (driver_at("before-commit"), 8),
    "driver between sink and commit log": (driver_at("after-commit"), 10),
    "driver at any moment": (driver, 6),
    "driver and Java in a state commit": (state_commit, 8),
    "Java": (java, 10),
    "Python worker": (worker, 16),
    "broker": (broker, 10),
    "feed": (feed, 10),
    "driver, with a stranger's transaction left open": (hanging, 3),
    "disk full": (disk_full, 4),
    "clock jump": (clock, 4),
}
#: What replaces the points of the driver where state partitions write for themselves.
APART: dict[str, tuple[Callable[[Scene, random.Random], float], int]] = {
    "task before the transaction": (task_at("before-transaction"), 6),
    "task in the transaction": (task_at("in-transaction"), 10),
    "task before the commit": (task_at("before-commit"), 10),
    "task after the commit": (task_at("after-commit"), 10),
}
