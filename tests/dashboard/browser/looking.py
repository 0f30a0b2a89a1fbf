"""What a page shows, asked through `window.headrace`, which only reads."""

from __future__ import annotations

import io
import time
from itertools import combinations
from operator import sub
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageStat

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page


def entry(page: Page, job: str, key: str) -> dict[str, Any] | None:
    """One entry as the page has it."""
    found: dict[str, Any] | None = page.evaluate("([job, key]) => window.headrace.entry(job, key)", [job, key])
    return found


def wait_value(page: Page, job: str, key: str, column: str, value: Any) -> None:
    """Wait until an entry has a value."""
    page.wait_for_function(
        "([job, key, column, value]) => window.headrace?.entry(job, key)?.values[column] === value",
        arg=[job, key, column, value],
    )


def wait_gone(page: Page, job: str, key: str) -> None:
    """Wait until an entry is gone."""
    page.wait_for_function("([job, key]) => window.headrace.entry(job, key) === null", arg=[job, key])


def wait_drawn(page: Page, job: str, least: int = 1) -> None:
    """Wait until so many entries of a job are drawn on the map."""
    page.wait_for_function(
        "([job, least]) => window.headrace?.mapReady() && window.headrace.jobs()[job]?.drawn >= least", arg=[job, least]
    )


def switch_on(page: Page, job: str) -> None:
    """Switch a layer on."""
    switch = page.locator(f'.layer[data-job="{job}"] input[role="switch"]')
    if not switch.is_checked():
        page.locator(f'.layer[data-job="{job}"] .switch-track').click()


def on_page(page: Page, cell: str) -> tuple[float, float]:
    """Where the middle of a map cell is on the page."""
    place = page.evaluate("cell => window.headrace.cellOnScreen(cell)", cell)
    box = page.locator(".map").bounding_box()
    assert box is not None
    return box["x"] + place["x"], box["y"] + place["y"]


def colours_of(page: Page, *cells: str) -> list[tuple[int, ...]]:
    """The colours of map cells as they are seen: the mean of some pixels, since a name may stand on one of them."""
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    found = []
    for cell in cells:
        x, y = on_page(page, cell)
        part = picture.crop((round(x) - 8, round(y) - 8, round(x) + 9, round(y) + 9))
        found.append(tuple(round(each) for each in ImageStat.Stat(part).mean))
    return found


def apart(*colours: tuple[int, ...]) -> bool:
    """Whether all of these colours differ so much that anybody sees it."""
    return all(max(map(abs, map(sub, one, two))) > 20 for one, two in combinations(colours, 2))


def wait_until(page: Page, condition: Callable[[], bool], *, what: str, seconds: float = 45.0) -> None:
    """Wait until something is so that the page cannot tell itself."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still waiting for: {what}"
        page.wait_for_timeout(100)
