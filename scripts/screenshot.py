"""Draw the live view of `headrace demo` as a picture, from figures that a real run printed.

    headrace demo --json --for 120 > demo.jsonl
    python scripts/screenshot.py demo.jsonl docs/images/demo.svg

The last `status` line of the run is drawn, by the same code that draws the view in a terminal.
"""

from __future__ import annotations

import io
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from headrace.cli.demo import JOB
from rich.console import Console

from headrace.cli.gauges import Snapshot
from headrace.cli.view import screen

_FOOTER = (
    "Ctrl-C stops everything. Kafka at 127.0.0.1:9092, data and logs in .headrace",
    f"Elsewhere: headrace tail analytics.{JOB} -f · headrace tail input.vehicle-position · headrace topics",
)


def read_snapshot(lines: list[str]) -> Snapshot:
    """Find the last status of a run that had results."""
    found: dict[str, Any] | None = None
    for line in lines:
        record = json.loads(line)
        if record.get("event") == "status" and record.get("busiest"):
            found = record
    if found is None:
        raise SystemExit("no status with results in this file; let the demo run for longer")
    del found["event"]
    for name in ("watermark", "window_end"):
        found[name] = datetime.fromisoformat(found[name]) if found[name] else None
    found["busiest"] = tuple((each["key"], each["count"]) for each in found["busiest"])
    return Snapshot(**found)


def main() -> int:
    """Draw; returns the exit code."""
    if len(sys.argv) != 3:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    console = Console(record=True, width=104, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(screen(read_snapshot(source.read_text(encoding="utf-8").splitlines()), job=JOB, footer=_FOOTER))
    drawn = console.export_svg(title="headrace demo", unique_id="demo")
    kept = [line.rstrip() for line in _without_fonts(drawn).splitlines()]
    target.write_text("\n".join(kept) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {target}\n")
    return 0


def _without_fonts(svg: str) -> str:
    """Use the viewer's own fonts: a picture in a repository should fetch nothing from anywhere."""
    parts = svg.split("@font-face")
    plain = parts[0] + "".join(part.split("}", 1)[1] for part in parts[1:])
    return plain.replace("Fira Code", "ui-monospace, SFMono-Regular, Menlo, Consolas, DejaVu Sans Mono")


if __name__ == "__main__":
    sys.exit(main())
