"""Draw the pictures of the dashboard in docs/images: a real pipeline, a real Chromium, every layer.

    python scripts/screenshots.py                                 starts `headrace demo` and ends it again
    python scripts/screenshots.py --url http://127.0.0.1:8080     looks at a dashboard that runs already
    python scripts/screenshots.py --url ... --only board --only steps     pictures of a project without places

A picture is taken when its layer has something to show; one that never has is left as it was, said, and makes the exit
code 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
CITY = "map=11.6/60.1935/24.93"
CENTRE = "map=12.4/60.181/24.94"
#: Spark's first batches on a busy machine, and then five minutes of windows that fill.
PATIENCE = 240.0
#: Software rendering, so that the pictures need no graphics card; and no sandbox where we are root, as in containers.
FLAGS = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist"]


@dataclass(frozen=True)
class Picture:
    """One picture: what the address says, and how the page is looked at.

    Args:
        name: Of the file, without `dashboard-` and its ending.
        link: The part of the address after `#`.
        jobs: Each must have entries on the page before the picture is taken; none: the pipeline page.
        dark: The colours.
        phone: The size of a phone instead of a laptop.
        click: Select the busiest entry of the first job, which opens its history.
        enough: So many entries of the first job are worth a picture.
        shows: What must be on the page where no job is named.
        rows: Show the rows on the first edge.
        project: Of a project without places, which `headrace demo` is not: taken only if it is asked for.
    """

    name: str
    link: str
    jobs: tuple[str, ...] = ()
    dark: bool = False
    phone: bool = False
    click: bool = False
    enough: int = 1
    shows: str = ".stage"
    rows: bool = False
    project: bool = False


VEHICLES, DELAY, FLOW, STOPS = "vehicle-distribution", "delay-distribution", "flow-direction", "emergency-stop-pattern"
FINAL = "final-stop-distribution"
WAYS = f"{FINAL}.pairs"
PICTURES = (
    Picture("overview", f"{CITY}&layers={VEHICLES},{STOPS}", (VEHICLES, STOPS), enough=100),
    Picture("overview-dark", f"{CITY}&layers={VEHICLES},{STOPS}", (VEHICLES, STOPS), dark=True, enough=100),
    Picture(
        "vehicles-height", f"map=11.7/60.185/24.94/20/50&layers={VEHICLES}&high={VEHICLES}", (VEHICLES,), dark=True
    ),
    Picture("history", f"{CENTRE}&layers={VEHICLES}", (VEHICLES,), click=True),
    Picture("delay", f"{CITY}&layers={DELAY}:p90", (DELAY,), enough=50),
    Picture("final-stops", f"{CITY}&layers={FINAL},{WAYS}", (WAYS, FINAL), dark=True, enough=20),
    Picture("flow", f"{CENTRE}&layers={FLOW}", (FLOW,), enough=50),
    Picture("emergency-stops", f"{CITY}&layers={STOPS}", (STOPS,), dark=True),
    Picture("pipeline", "page=pipeline", (), dark=False),
    Picture("board", "page=board", shows=".cards .u-over", project=True),
    Picture("steps", "page=job", shows=".step", rows=True, project=True),
    Picture("phone", f"{CITY}&layers={VEHICLES},{STOPS}", (VEHICLES,), phone=True),
)


def say(text: str) -> None:
    """Tell what happens."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextlib.contextmanager
def pipeline(vehicles: int) -> Iterator[str]:
    """Run broker, fleet, jobs and dashboard in a home of their own; gives the dashboard's address."""
    home = Path(tempfile.mkdtemp(prefix="headrace-screenshots-"))
    program = Path(sys.executable).with_name("headrace")
    command = [str(program), "demo", "--json", "--fresh", "--vehicles", str(vehicles), "--set", "dashboard.port=0"]
    environment = {**os.environ, "HEADRACE_HOME": str(home)}
    jars = Path(os.environ.get("HEADRACE_HOME", ROOT / ".headrace")) / "jars"
    if jars.is_dir():
        environment["HEADRACE_PATHS__JARS"] = str(jars)
    log = home / "demo.log"
    with log.open("w") as errors:
        demo = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        yield _address(demo, log)
    finally:
        demo.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            demo.wait(20)
        demo.kill()
        demo.wait()
        shutil.rmtree(home, ignore_errors=True)


def _address(demo: subprocess.Popen[str], log: Path) -> str:
    for line in demo.stdout or ():
        record = json.loads(line)
        if record.get("event") == "dashboard":
            # Nobody reads on, and the demo goes on printing: its lines must not fill the pipe.
            import threading

            threading.Thread(target=lambda: [None for _ in demo.stdout or ()], daemon=True).start()
            return str(record["url"])
    raise SystemExit(f"the demo ended before its dashboard was there:\n{log.read_text()[-2000:]}")


def state(page: Page) -> dict[str, Any]:
    """What the page shows of each job."""
    # Not wait_for_function: the page's policy forbids the evaluation that it polls with.
    found: dict[str, Any] = page.evaluate("() => (window.headrace?.mapReady() ? window.headrace.jobs() : {})")
    return found


def has_enough(page: Page, picture: Picture) -> bool:
    """Whether there is something to see."""
    if not picture.jobs:
        return page.locator(picture.shows).count() > 0
    jobs = state(page)
    if not jobs:
        return False
    counts = [jobs.get(job, {}).get("drawn", 0) for job in picture.jobs]
    return all(counts) and counts[0] >= picture.enough


def take(browser: Browser, url: str, picture: Picture, into: Path, patience: float) -> bool:
    """Take one picture; False if there was nothing to see in time."""
    size = {"width": 390, "height": 780} if picture.phone else {"width": 1280, "height": 800}
    context = browser.new_context(
        viewport=size,  # type: ignore[arg-type]
        color_scheme="dark" if picture.dark else "light",
        device_scale_factor=2 if picture.phone else 1,
        has_touch=picture.phone,
        # The same clock on every picture, wherever it was taken.
        timezone_id="Europe/Helsinki",
    )
    try:
        page = context.new_page()
        page.goto(f"{url}#{picture.link}")
        end = time.monotonic() + patience
        while not has_enough(page, picture):
            if time.monotonic() > end:
                say(f"{picture.name}: nothing to see after {patience:.0f} s: {state(page)}")
                return False
            page.wait_for_timeout(500)
        if picture.click:
            page.click(".busiest summary")
            page.click(".busiest button")
            page.wait_for_timeout(2500)
        if picture.rows:
            page.locator(".edge-button").first.click()
            page.locator(".sample td").first.wait_for()
        page.wait_for_timeout(2500)
        file = into / f"dashboard-{picture.name}.png"
        page.screenshot(path=file)
        say(f"{picture.name}: {file.relative_to(ROOT) if file.is_relative_to(ROOT) else file}")
        return True
    finally:
        context.close()


def main() -> int:
    """Take the pictures; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="a dashboard that runs already")
    parser.add_argument("--out", type=Path, default=IMAGES, help="where the pictures go")
    parser.add_argument("--only", action="append", choices=[picture.name for picture in PICTURES], help="this one")
    parser.add_argument("--vehicles", type=int, default=700, help="of the simulated fleet")
    parser.add_argument("--warm-up", type=float, default=60, help="seconds of results before the first picture")
    arguments = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.stderr.write("Chromium is missing. Install it (Debian: apt-get install chromium), then try again.\n")
        return 4
    arguments.out.mkdir(parents=True, exist_ok=True)
    chosen = arguments.only or [picture.name for picture in PICTURES if not picture.project]
    wanted = [picture for picture in PICTURES if picture.name in chosen]
    with contextlib.ExitStack() as stack:
        url = arguments.url
        if url is None:
            say(f"starting broker, {arguments.vehicles} simulated vehicles, Spark and the dashboard")
            url = stack.enter_context(pipeline(arguments.vehicles))
            say(f"dashboard at {url}; {arguments.warm_up:.0f} s of results first")
            time.sleep(arguments.warm_up)
        playwright = stack.enter_context(sync_playwright())
        flags = [*FLAGS, "--no-sandbox"] if os.geteuid() == 0 else FLAGS
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        stack.callback(browser.close)
        taken = [take(browser, url, picture, arguments.out, PATIENCE) for picture in wanted]
    return 0 if all(taken) else 1


if __name__ == "__main__":
    sys.exit(main())
