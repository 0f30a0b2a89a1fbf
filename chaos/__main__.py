"""Kill things around running jobs, and see that every result is there exactly once: `python -m chaos`."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from chaos.play import Play
from chaos.report import RESULTS, add, show


def main() -> int:
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how many (default: 20, about 5 minutes on two cores)")
    parser.add_argument("--seed", type=int, help="repeats a run: the same input, the same kills; random if not given")
    parser.add_argument("--delivery", choices=("exactly_once", "at_least_once", "at_most_once"), default="exactly_once")
    parser.add_argument("--apart", action="store_true", help="let state partitions write for themselves")
    parser.add_argument("--only", action="append", default=[], metavar="KIND", help="kinds of kills; all if not given")
    parser.add_argument("--without", action="append", default=[], metavar="KIND", help="kinds of kills to leave out")
    parser.add_argument("--home", type=Path, help="where to work; a temporary directory if not given")
    parser.add_argument("--resume", action="store_true", help="go on with what --home holds")
    parser.add_argument("--minutes", type=float, help="end after so many minutes, with fewer kills")
    parser.add_argument("--report", type=Path, default=RESULTS, help="where to add what was found")
    parser.add_argument("--no-report", action="store_true", help="only print what was found")
    chosen = parser.parse_args()
    seed = chosen.seed if chosen.seed is not None else random.SystemRandom().randrange(10**6)
    home = chosen.home or Path(tempfile.mkdtemp(prefix="chaos-"))
    if chosen.home is not None and not chosen.resume and home.exists():
        shutil.rmtree(home)
    print(f"seed {seed}, {chosen.delivery}{', apart' if chosen.apart else ''}, in {home}", flush=True)
    play = Play(
        home,
        seed=seed,
        delivery=chosen.delivery,
        apart=chosen.apart,
        kinds=play_kinds(chosen.only, chosen.without, apart=chosen.apart, parser=parser),
    )
    deadline = None if chosen.minutes is None else time.monotonic() + 60 * chosen.minutes
    run = play.run(chosen.kills, deadline=deadline)
    print(json.dumps({name: value for name, value in run.items() if name != "kills"}, indent=2))
    if not chosen.no_report:
        add(chosen.report, run)
        show(chosen.report)
    if run["as_promised"] and chosen.home is None:
        shutil.rmtree(home, ignore_errors=True)
    return 0 if run["as_promised"] else 1


def play_kinds(only: list[str], without: list[str], *, apart: bool, parser: argparse.ArgumentParser) -> list[str]:
    from chaos.play import kinds_of

    known = kinds_of(apart=apart)
    for name in (*only, *without):
        if name not in known:
            parser.error(f"unknown kind {name!r}; there are: {'; '.join(known)}")
    return [name for name in known if (not only or name in only) and name not in without]


if __name__ == "__main__":
    sys.exit(main())
