"""What worker processes do for themselves; in a process of its own, since it is done for good."""

from __future__ import annotations

import subprocess
import sys

_TASKS = """
import gc
from headrace.spark.stages.shipping import Packed
from headrace.spark.session.worker import settle

stage = Packed.of({"jobs": ["counts"]})
for task in range(1, 41):
    settle()
    opened = stage.open()
    assert opened is Packed(stage._content).open()
    garbage = []
    garbage.append(garbage)
    del garbage
    print(task, gc.get_freeze_count() > 10_000, gc.collect() > 0)
"""


def test_a_worker_collects_its_own_garbage_but_does_not_walk_through_its_libraries() -> None:
    done = subprocess.run([sys.executable, "-c", _TASKS], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [(int(task), frozen) for task, frozen, _ in lines] == [(task, str(task >= 3)) for task in range(1, 41)]
    assert {collected for _, _, collected in lines} == {"True"}
