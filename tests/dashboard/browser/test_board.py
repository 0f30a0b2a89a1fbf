"""A project without places in a real browser: a board, no map, and the steps of a job with the rows on their edges."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest
from tests.dashboard.browser.conftest import AXE
from tests.dashboard.city import SECOND, serving, until, window_end
from tests.dashboard.parcels import Parcels

from headrace.dashboard.answers import GraphAnswer, SampleAnswer
from headrace.spark.run.progress import BatchDone, StateChange
from headrace.spark.run.publishing import ProgressTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Page
    from tests.dashboard.browser.conftest import OpenPage
    from tests.dashboard.city import Served

    from headrace.dashboard.pages import Pages
    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.fixture(scope="module")
def parcels(broker: EmbeddedBroker) -> Iterator[Parcels]:
    parcels = Parcels(broker.connection)
    yield parcels
    parcels.close()


@pytest.fixture(scope="module")
def served(broker: EmbeddedBroker, parcels: Parcels, pages: Pages) -> Iterator[Served]:
    with serving(broker.connection, parcels.jobs, pages=pages) as running:
        yield running


def bars(page: Page) -> list[tuple[str, str]]:
    """Names and numbers of the bars, from the greatest."""
    rows = page.locator(".bars li").all()
    return [(row.locator(".bars-name").inner_text(), row.locator("b").inner_text()) for row in rows]


def cell(page: Page, job: str, key: str, column: str) -> str:
    row = page.locator(f'.card[data-card="{job}"] tr', has_text=key)
    return row.locator(f'td[data-column="{column}"]').inner_text()


def test_the_board_shows_the_numbers_of_the_topics_and_keeps_up(
    parcels: Parcels, served: Served, open_page: OpenPage
) -> None:
    end = window_end(100)
    parcels.answer(parcels.depots, [{"depot": "north", "scans": 4}, {"depot": "south", "scans": 12_345}], end=end)
    weights = [{"depot": "north", "kilograms": 2.25}, {"depot": "south", "kilograms": 3.5}]
    parcels.answer(parcels.total, weights, end=end)
    parcels.answer(parcels.pairs, [{"depot": "<b>east</b>", "first": "P-1", "second": "P-2"}], end=end)
    with open_page(served.url) as page:
        page.wait_for_selector(".bars li")
        assert page.locator("canvas.maplibregl-canvas, .map").count() == 0, "no job has a place, so there is no map"
        assert page.get_by_role("button", name="Map", exact=True).count() == 0
        assert bars(page) == [("south", "12,345"), ("north", "4")]
        page.wait_for_selector(f'.card[data-card="{parcels.total.name}"] .numbers-value >> text=2.25')
        page.wait_for_selector(f'.card[data-card="{parcels.pairs.name}"] td >> text=<b>east</b>')
        page.wait_for_selector(f'.card[data-card="{parcels.depots.name}"] .u-over', state="attached")
        assert cell(page, parcels.total.name, "south", "kilograms") == "3.5"

        # The next window: the bars change places, the table has the new value and marks it.
        parcels.answer(parcels.depots, [{"depot": "north", "scans": 20_000}], end=end + 10 * SECOND)
        parcels.answer(parcels.depots, [{"depot": "south", "scans": 7}], end=end + 10 * SECOND)
        parcels.answer(parcels.total, [{"depot": "south", "kilograms": 9.75}], end=end + 10 * SECOND)
        page.wait_for_selector('tr td[data-column="kilograms"][data-changed="true"] >> text=9.75')
        until(lambda: page.wait_for_timeout(50) or bars(page)[:1] == [("north", "20,000")], what="the new bars")

        # Sorted by a click on the head, by the keyboard too.
        table = page.locator(f'.card[data-card="{parcels.total.name}"][data-kind="table"]')
        head = table.locator("th", has_text="kilograms")
        head.locator("button").focus()
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == "descending"
        assert "south" in table.locator("tbody tr").first.inner_text()

        # What is selected is told with its history, and is in the address.
        page.locator(".bars button").first.click()
        page.wait_for_selector('.drawer [data-card="selection"] .chart')
        page.wait_for_function("() => location.hash.includes('at=')")
        page.keyboard.press("Escape")
        page.wait_for_selector(".drawer", state="detached")


def test_the_steps_of_a_job_and_the_rows_on_their_edges(
    broker: EmbeddedBroker, parcels: Parcels, served: Served, open_page: OpenPage
) -> None:
    job, end = parcels.depots, window_end(200)
    at = end.isoformat()
    light = {"scanned_at": at, "depot": "north", "parcel": "P-light", "weight": 0.5}
    heavy = {"scanned_at": at, "depot": "south", "parcel": "P-heavy", "weight": 2.5}
    parcels.scan([light, heavy, {"parcel": "no time"}])
    parcels.answer(job, [{"depot": "west", "scans": 321}], end=end)
    now = int(window_end().timestamp() * 1_000_000)
    with (
        ProgressTopic(broker.connection, query="parcels", jobs=[job]) as publish,
        open_page(f"{served.url}/#page=job&job={job.name}", viewport={"width": 1280, "height": 900}) as page,
    ):
        publish(StateChange("running"))
        publish(BatchDone(1, 3, 1, 0, 1, 400, now, 0, watermarks={job.name: now}, state_rows=1204, state_bytes=903_000))
        publish(StateChange("running"))
        page.wait_for_selector('.step[data-step="stateful-0"] [data-figure="state rows"] dd >> text=1,204')
        titles = [step.inner_text() for step in page.locator(".step h3").all()]
        assert titles[0] == parcels.topic
        assert titles[1] == "filter [weight > 1]"
        assert "aggregate scans=count()" in titles
        assert page.locator('.step[data-step="stateful-0"] [data-figure="state size"] dd').inner_text() == "903 kB"

        # Before the filter are all records that can be read, behind it the heavy ones only.
        page.locator('.edge-button[data-edge="source-0.stateless-0"]').click()
        sample = page.locator(".sample")
        sample.locator("td", has_text="P-light").first.wait_for()
        assert sample.locator("td", has_text="P-heavy").count() == 1
        assert "1 cannot be read" in sample.locator("[data-sample-text]").inner_text()
        page.wait_for_function("() => location.hash.includes('edge=source-0.stateless-0')")
        page.locator('.edge-button[data-edge="stateless-1.stateful-0"]').click()
        sample.locator("th", has_text="grams").wait_for()
        assert sample.locator("td", has_text="2,500").count() == 1
        assert sample.locator("td", has_text="P-light").count() == 0

        # Inside the query nothing can be seen, and that is said; results can.
        page.locator('.edge-button[data-edge="stateful-0.stateless-2"]').click()
        sample.get_by_text("stay inside Spark").wait_for()
        page.locator('.edge-button[data-edge="stateless-2.results"]').click()
        sample.locator("td", has_text="321").wait_for()


def test_questions_about_steps_that_cannot_be_answered(served: Served, parcels: Parcels) -> None:
    for path, words in [
        ("/api/jobs/nobody/graph", parcels.depots.name),
        ("/api/jobs/nobody/sample?edge=x", parcels.depots.name),
        (f"/api/jobs/{parcels.depots.name}/sample?edge=elsewhere", "source-0.stateless-0"),
    ]:
        answer = httpx.get(served.url + path)
        assert answer.status_code == 404
        assert words in answer.json()["detail"]
    assert httpx.get(f"{served.url}/api/jobs/{parcels.depots.name}/sample").status_code == 422


def test_answers_about_steps_are_as_openapi_describes_them(served: Served, parcels: Parcels) -> None:
    job = parcels.depots.name
    graph = httpx.get(f"{served.url}/api/jobs/{job}/graph").raise_for_status().json()
    GraphAnswer.model_validate(graph)
    for edge in graph["edges"]:
        answer = httpx.get(f"{served.url}/api/jobs/{job}/sample", params={"edge": edge["id"]}, timeout=30)
        SampleAnswer.model_validate(answer.raise_for_status().json())
    paths = httpx.get(f"{served.url}/api/openapi.json").json()["paths"]
    assert {"/api/jobs/{job}/graph", "/api/jobs/{job}/sample"} <= paths.keys()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_pages_can_be_used_by_everybody(
    parcels: Parcels, served: Served, open_page: OpenPage, colours: str, width: int
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: make frontend")
    parcels.scan([{"scanned_at": window_end().isoformat(), "depot": "north", "parcel": "P-1", "weight": 2.0}])
    parcels.answer(parcels.depots, [{"depot": "north", "scans": 4}], end=window_end(300))
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": colours}
    with open_page(f"{served.url}/#page=board", **options) as page:
        page.wait_for_selector(".bars li")
        for address in ("#page=board", f"#page=job&job={parcels.depots.name}&edge=source-0.stateless-0"):
            page.evaluate("hash => { location.hash = hash; }", address)
            page.wait_for_selector(".sample td" if "edge" in address else ".bars li")
            page.evaluate(AXE.read_text(encoding="utf-8"))
            found = page.evaluate("async () => (await axe.run()).violations")
            serious = [each for each in found if each["impact"] in ("serious", "critical")]
            assert [(each["id"], each["nodes"][0]["html"][:200]) for each in serious] == []
            wide = page.evaluate("() => document.querySelector('main').scrollWidth")
            assert wide <= width, "nothing is wider than the page"
