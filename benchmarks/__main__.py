"""Run the benchmarks one after the other, each in a process of its own: `python -m benchmarks [NAME...]`."""

from __future__ import annotations

import argparse
import subprocess
import sys

NAMES = (
    "codec",
    "formats",
    "simulator",
    "ingest",
    "growth",
    "state",
    "patterns",
    "pattern_grid",
    "engine",
    "delivery",
    "joins",
    "nexmark",
    "yahoo",
    "dashboard",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(NAMES)}; all if none is named")
    parser.add_argument("--quick", action="store_true", help="little data: to see that they work, not for figures")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(NAMES)}")
    failed = []
    for name in chosen.names or NAMES:
        print(f"==> {name}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *(["--quick"] if chosen.quick else [])]
        if subprocess.run(command, check=False).returncode:
            failed.append(name)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
