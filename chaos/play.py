"""One run: things are killed in a random order, one after the other, then the results are judged."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from chaos.check import judge, read_input
from chaos.kills import APART, KINDS
from chaos.scene import Scene

if TYPE_CHECKING:
    from pathlib import Path


def kinds_of(*, apart: bool) -> dict[str, Any]:
    """The kinds of kills that fit: where state partitions write, tasks are killed at the points of the sink."""
    if not apart:
        return KINDS
    points = {name for name in KINDS if name.startswith("driver") and "moment" not in name and "state" not in name}
    return APART | {name: kind for name, kind in KINDS.items() if name not in points}


class Play:
    """A run.

    Args:
        home: Where everything is kept.
        seed: Decides what is fed and what is killed when.
        delivery: The promise under test.
        apart: Whether state partitions write for themselves.
        kinds: What is killed.
    """

    def __init__(self, home: Path, *, seed: int, delivery: str, apart: bool, kinds: list[str]) -> None:
        self._home = home
        self._seed = seed
        self._delivery = delivery
        self._apart = apart
        known = kinds_of(apart=apart)
        self._kinds = {name: known[name] for name in kinds}

    def run(self, kills: int, *, deadline: float | None = None) -> dict[str, Any]:
        """Kill, then judge."""
        chance = random.Random(self._seed)
        names = list(self._kinds)
        shares = [self._kinds[name][1] for name in names]
        each_once = chance.sample(names, len(names))
        done: list[dict[str, Any]] = []
        began = time.monotonic()
        with Scene(self._home, self._seed, self._delivery, self._apart) as scene:
            first = scene.await_event(0.0, "the first batch", lambda event: event["watermark"] is not None)
            start_seconds = round(first.at - began, 1)
            (self._home / "odd").touch()
            for number in range(kills):
                if deadline is not None and time.monotonic() > deadline:
                    break
                name = each_once[number] if number < len(names) else chance.choices(names, shares)[0]
                time.sleep(2 * chance.random())
                ended = self._kinds[name][0](scene, chance)
                recovered = scene.await_event(ended, f"a batch after kill {number + 1} ({name})")
                done.append({"kind": name, "recovery_s": round(recovered.at - ended, 2)})
                print(f"{number + 1:3} {name}: back after {recovered.at - ended:.1f} s", flush=True)
            scene.disarm()
            scene.set_clock(0)
            scene.end_feed()
            read = read_input(scene.broker.connection)
            scene.await_watermark(read.watermark)
            verdict = judge(scene.broker.connection, read, committed=self._delivery == "exactly_once")
            restarts = scene.restarts
        lost, duplicated = verdict.lost.total(), verdict.duplicated.total()
        return {
            "seed": self._seed,
            "delivery": self._delivery,
            "apart": self._apart,
            "kills": done,
            "minutes": round((time.monotonic() - began) / 60, 1),
            "first_batch_s": start_seconds,
            "restarts_in_process": restarts,
            "events": read.events.height,
            "expected": verdict.expected,
            "lost": lost,
            "duplicated": duplicated,
            "where": {
                "lost": {name: n for name, n in verdict.lost.items() if n},
                "duplicated": {name: n for name, n in verdict.duplicated.items() if n},
            },
            "as_promised": _as_promised(self._delivery, verdict.expected, lost, duplicated),
        }


def _as_promised(delivery: str, expected: int, lost: int, duplicated: int) -> bool:
    if delivery == "exactly_once":
        return expected > 0 and not lost and not duplicated
    return not lost if delivery == "at_least_once" else not duplicated
