"""What a page shows, asked through `window.headrace`, which only reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
