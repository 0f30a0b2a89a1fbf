"""Measure how smoothly the map moves while thousands of cells change: frames in a real Chromium, results from mock.py.

    .venv/bin/python frontend/dev/frames.py --cells 10000 --seconds 20 --out benchmarks/results/dashboard-frames.json

The map is dragged to and fro without a pause. Told are frames per second, the times between frames, and the processor
time of the browser's main thread: per frame while moving, per update (every 5 s) at rest. Where there is no graphics
card, Chromium draws in software on the same cores, and the frames tell about that; the main thread's time is what the
page itself costs, with any card.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import CDPSession, Page

HOME = Path(__file__).resolve().parent
SOFTWARE = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]
WATCH = """() => {
  window.frames_ = [];
  window.watching_ = true;
  const step = (at) => { window.frames_.push(at); if (window.watching_) requestAnimationFrame(step); };
  requestAnimationFrame(step);
}"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def mock(cells: int) -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(HOME / "mock.py"), "--port", str(port), "--cells", str(cells)]
    server = subprocess.Popen(command)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
                break
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/"
    finally:
        server.terminate()
        server.wait()


def metrics(session: CDPSession) -> dict[str, float]:
    found = session.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in found}


def drag(page: Page, seconds: float) -> None:
    """Move the map about with the mouse, as a hand does."""
    page.mouse.move(640, 400)
    page.mouse.down()
    end = time.monotonic() + seconds
    step = 0
    while time.monotonic() < end:
        step += 1
        page.mouse.move(640 + 250 * ((step // 40) % 2 * 2 - 1) * (step % 40) / 40, 400 + (step % 40) * 3)
    page.mouse.up()


def rest(page: Page, updates: int = 3) -> float:
    """Milliseconds of the main thread for one update of all cells, while nobody touches the map."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = metrics(session)["TaskDuration"]
    page.wait_for_timeout(5000 * updates)
    return round(1000 * (metrics(session)["TaskDuration"] - before) / updates, 1)


def measure(page: Page, seconds: float) -> dict[str, Any]:
    session = page.context.new_cdp_session(page)
    # Processor time of the main thread, not time on the clock: others on this machine do not count.
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    before = metrics(session)
    page.evaluate(WATCH)
    began = time.monotonic()
    drag(page, seconds)
    elapsed = time.monotonic() - began
    page.evaluate("() => { window.watching_ = false; }")
    after = metrics(session)
    times: list[float] = page.evaluate("() => window.frames_")
    gaps = sorted(late - early for early, late in itertools.pairwise(times))
    frames = len(gaps)
    busy = {name: after[name] - before[name] for name in ("TaskDuration", "ScriptDuration")}
    return {
        "seconds": round(elapsed, 1),
        "frames": frames,
        "frames_per_second": round(frames / elapsed, 1),
        "frame_ms": {
            name: round(gaps[min(frames - 1, int(share * frames))], 1)
            for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("longest", 1.0))
        },
        "main_thread_ms_per_frame": round(1000 * busy["TaskDuration"] / frames, 2),
        "script_ms_per_frame": round(1000 * busy["ScriptDuration"] / frames, 2),
    }


def wanted(arguments: argparse.Namespace) -> list[tuple[int, list[str]]]:
    """What is measured: so many cells, with which layers beside them."""
    if arguments.cells is None and arguments.others is None:
        return [(0, []), (400, []), (10_000, []), (10_000, ["flow-direction", "emergency-stop-pattern"])]
    return [(cells, arguments.others or []) for cells in arguments.cells or [0, 400, 10_000]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, action="append", help="how many change every 5 s; several may be given")
    parser.add_argument("--with", dest="others", action="append", help="a layer beside the cells, as often as you like")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--size", default="1280x800")
    parser.add_argument("--graphics-card", action="store_true", help="let Chromium use the card of this machine")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("Chromium is missing. Install it (Debian: apt-get install chromium), then try again.\n")
        return 4
    width, height = (int(part) for part in arguments.size.split("x"))
    flags = [] if arguments.graphics_card else SOFTWARE
    if os.geteuid() == 0:
        flags = [*flags, "--no-sandbox"]
    runs = []
    load_before = os.getloadavg()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for cells, others in wanted(arguments):
            with mock(cells or 400) as url:
                page = browser.new_page(viewport={"width": width, "height": height})
                layers = [*(["vehicle-distribution"] if cells else []), *others]
                page.goto(f"{url}#map=10.6/60.19/24.94&layers={','.join(layers)}")
                for _ in range(300):
                    drawn = page.evaluate("() => window.headrace?.jobs()['vehicle-distribution']?.drawn ?? -1")
                    if page.evaluate("() => window.headrace?.mapReady()") and drawn >= cells:
                        break
                    page.wait_for_timeout(100)
                page.wait_for_timeout(1500)
                resting = rest(page)
                moving = measure(page, arguments.seconds)
                runs.append({"cells": cells, "layers": layers, **moving, "main_thread_ms_per_update_at_rest": resting})
                print(json.dumps(runs[-1]), flush=True)
                page.close()
        version = browser.version
        browser.close()
    report = {
        "what": "frames while the map is dragged and cells change every 5 s",
        "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "browser": f"Chromium {version}",
        "drawn_by": "the graphics card" if arguments.graphics_card else "software (SwiftShader), on the same cores",
        "window": arguments.size,
        "cores": os.cpu_count(),
        "load_before": [round(each, 1) for each in load_before],
        "load_after": [round(each, 1) for each in os.getloadavg()],
        "machine": platform.machine(),
        "runs": runs,
    }
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(report, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
