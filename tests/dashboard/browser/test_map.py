"""The map in a real browser, with results that the tests write: the policies as a viewer sees them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from tests.dashboard.browser.conftest import AXE
from tests.dashboard.browser.looking import (
    apart,
    colours_of,
    entry,
    on_page,
    switch_on,
    wait_drawn,
    wait_gone,
    wait_until,
    wait_value,
)
from tests.dashboard.city import (
    CELL_TEXTS,
    CELLS,
    SECOND,
    Hand,
    delays_job,
    edges_job,
    fresh,
    serving,
    speeds_job,
    stops_job,
    vehicles_job,
    window_end,
)

from headrace.spark.run.progress import JobChange, StateChange
from headrace.spark.run.publishing import ProgressTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.dashboard.browser.conftest import OpenPage
    from tests.dashboard.city import Served

    from headrace.dashboard.pages import Pages
    from headrace.dev import EmbeddedBroker
    from headrace.stream import Job

pytestmark = [pytest.mark.broker, pytest.mark.slow]
A, B, C = CELL_TEXTS
#: Over the three cells, near enough to hit one of them with the pointer.
NEAR = "#map=14/60.1711/24.9431/0/0"


class City:
    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.vehicles = vehicles_job(fresh("vehicles"))
        self.delays = delays_job(fresh("delays"))
        self.edges = edges_job(fresh("edges"))
        self.stops = stops_job(fresh("stops"))
        self.speeds = speeds_job(fresh("speeds"))
        self.jobs: list[Job] = [self.vehicles, self.delays, self.edges, self.stops, self.speeds]
        self.hand = Hand(broker.connection, tuple(self.jobs))

    def everything(self, steps: int) -> int:
        """Write results of every job, of the window that is some steps ahead; give its end in milliseconds."""
        end = window_end(steps)
        self.hand.write(
            self.vehicles,
            [{"cell": cell, "vehicles": number} for number, cell in enumerate(CELLS, start=1)],
            end=end,
        )
        self.hand.write(self.delays, [{"cell": CELLS[0], "p50": -30.5, "p90": 61.25}], end=end)
        self.hand.write(self.edges, [{"cell": CELLS[0], "target": CELLS[1], "vehicles": 3}], end=end)
        self.hand.write(self.speeds, [{"line": "550", "speed": 9.25}], end=end)
        return int(end.timestamp() * 1000)


@pytest.fixture(scope="module")
def city(broker: EmbeddedBroker) -> Iterator[City]:
    city = City(broker)
    yield city
    city.hand.close()


@pytest.fixture(scope="module")
def served(city: City, pages: Pages) -> Iterator[Served]:
    with serving(city.broker.connection, city.jobs, pages=pages) as running:
        yield running


def test_every_layer_shows_the_record_of_its_topic(city: City, served: Served, open_page: OpenPage) -> None:
    end = city.everything(100)
    everything = ",".join(job.name for job in city.jobs)
    with open_page(f"{served.url}/{NEAR}&layers={everything}") as page:
        wait_drawn(page, city.vehicles.name, 3)
        for number, key in enumerate(CELL_TEXTS, start=1):
            wait_value(page, city.vehicles.name, key, "vehicles", number)
        for job in city.jobs:
            page.wait_for_selector(f'.layer[data-job="{job.name}"][data-on="true"]')
        wait_value(page, city.delays.name, A, "p50", -30.5)
        shown = entry(page, city.delays.name, A)
        assert shown is not None
        assert shown["values"] == {"p50": -30.5, "p90": 61.25}
        assert (shown["windowEnd"], shown["eventTime"]) == (end, end - 1)
        wait_value(page, city.edges.name, A, "vehicles", 3)
        shown = entry(page, city.edges.name, A)
        assert shown is not None
        assert shown["target"] == B
        wait_drawn(page, city.delays.name)
        wait_drawn(page, city.edges.name)
        page.wait_for_selector(f'.card[data-card="{city.speeds.name}"] >> text=550')

        # Links are followed in the page that is open, too. Cells have the colours of their values, down to the pixel.
        page.evaluate("hash => { location.hash = hash; }", f"{NEAR}&layers={city.vehicles.name}")
        page.wait_for_selector(f'.layer[data-job="{city.delays.name}"][data-on="false"]')
        wait_until(page, lambda: apart(*colours_of(page, A, B, C)), what="a colour for each value")
        coloured = colours_of(page, A, B, C)

        # What is under the pointer is told with its numbers, window and age.
        x, y = on_page(page, A)
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        tooltip = page.locator(".tooltip")
        tooltip.wait_for()
        told = {
            row.locator("dt").inner_text(): row.locator("dd").inner_text()
            for row in tooltip.locator(".lines > div").all()
        }
        assert told["vehicles"].startswith("1")
        assert {"window", "age"} <= told.keys()
        page.mouse.click(x, y)
        page.wait_for_selector('.card[data-card="selection"]')

        page.locator(f'.layer[data-job="{city.vehicles.name}"] .switch-track').click()
        wait_until(page, lambda: all(map(apart, colours_of(page, A, B, C), coloured)), what="the bare map")


def test_newer_older_retracted_expired(city: City, served: Served, open_page: OpenPage) -> None:
    job, base = city.vehicles, window_end(200)
    two = [{"cell": CELLS[0], "vehicles": 4}, {"cell": CELLS[1], "vehicles": 2}]
    city.hand.write(job, two, end=base)
    with open_page(served.url + "/" + NEAR) as page:
        wait_value(page, job.name, A, "vehicles", 4)
        wait_drawn(page, job.name, 2)

        city.hand.write(job, [{"cell": CELLS[0], "vehicles": 5}], end=base + 1 * SECOND)
        wait_value(page, job.name, A, "vehicles", 5)

        city.hand.write(job, [{"cell": CELLS[0], "vehicles": 99}], end=base - 5 * SECOND)
        city.hand.write(job, [{"cell": CELLS[2], "vehicles": 6}], end=base + 1 * SECOND)
        wait_value(page, job.name, C, "vehicles", 6)
        shown = entry(page, job.name, A)
        assert shown is not None
        assert shown["values"]["vehicles"] == 5, "an older result is ignored"

        city.hand.write(job, [{"cell": CELLS[2], "vehicles": 6}], end=base + 1 * SECOND, retraction=True)
        wait_gone(page, job.name, C)

        city.hand.write(job, [{"cell": CELLS[0], "vehicles": 7}], end=base + 10 * SECOND)
        wait_gone(page, job.name, B)
        wait_value(page, job.name, A, "vehicles", 7)


def test_an_emergency_stop_appears_is_listed_and_can_be_flown_to(
    city: City, served: Served, open_page: OpenPage
) -> None:
    script = "<script>document.title='hacked'</script>"
    image = '<img src="https://evil.example/x.png" onerror="document.title=\'hacked\'">'
    with open_page(served.url) as page:
        page.wait_for_selector(f'.layer[data-job="{city.stops.name}"]')
        switch_on(page, city.stops.name)
        stop = {"vehicle_id": script, "line": image, "latitude": 60.2, "longitude": 24.9}
        city.hand.write(city.stops, [stop], at=datetime.now(UTC))
        card = page.locator(f'.card[data-card="{city.stops.name}"]')
        card.get_by_text(script, exact=False).first.wait_for()
        wait_drawn(page, city.stops.name)
        assert image in card.inner_text(), "a stop's name is shown as the text it is"
        before = page.evaluate("window.headrace.view()")
        card.locator("button").filter(has_text="script").first.click()
        page.wait_for_function(
            "() => { const v = window.headrace.view();"
            " return Math.abs(v.latitude - 60.2) < 0.01 && Math.abs(v.longitude - 24.9) < 0.01; }"
        )
        assert page.evaluate("window.headrace.view()") != before
        assert page.title() != "hacked"
        assert page.locator("script", has_text="hacked").count() == 0
        assert page.locator('img[src*="evil"]').count() == 0


def test_numbers_beyond_measure_are_drawn_or_left_out_and_spoil_nothing(
    city: City, served: Served, open_page: OpenPage
) -> None:
    job, impossible = city.delays, 0x123
    values = [(math.nan, math.inf), (1e308, -1e18), (12.5, 5e-324)]
    rows = [{"cell": cell, "p50": p50, "p90": p90} for cell, (p50, p90) in zip(CELLS, values, strict=True)]
    city.hand.write(job, [*rows, {"cell": impossible, "p50": 1.0, "p90": 1.0}], end=window_end(400))
    address = f"{NEAR}&high={job.name}&layers={job.name}"
    with open_page(f"{served.url}/{address}:p50") as page:
        wait_value(page, job.name, C, "p50", 12.5)
        for shown in ("p50", "p90"):
            page.evaluate("hash => { location.hash = hash; }", f"{address}:{shown}")
            page.locator(f'.layer[data-job="{job.name}"] label', has_text=shown).locator("input:checked").wait_for()
            wait_drawn(page, job.name, 3)
            words = page.locator("body").inner_text()
            assert not [word for word in ("NaN", "Infinity", "undefined", "[object") if word in words]
        told = {key: found["values"] for key in CELL_TEXTS if (found := entry(page, job.name, key))}
        assert told == {
            A: {"p50": None, "p90": None},
            B: {"p50": None, "p90": -1e18},
            C: {"p50": 12.5, "p90": 5e-324},
        }
        assert page.evaluate("job => window.headrace.keys(job).length", job.name) == 3


def test_the_page_comes_back_after_the_backend_was_restarted(city: City, open_page: OpenPage, pages: Pages) -> None:
    job, base = city.vehicles, window_end(300)
    city.hand.write(job, [{"cell": CELLS[0], "vehicles": 11}], end=base)
    broken = ("ERR_CONNECTION_REFUSED", "WebSocket connection", "Failed to load resource", "ERR_")
    first = serving(city.broker.connection, city.jobs, pages=pages)
    running = first.__enter__()
    port = int(running.url.rpartition(":")[2])
    try:
        with open_page(running.url, expect=broken) as page:
            wait_value(page, job.name, A, "vehicles", 11)
            first.__exit__(None, None, None)
            page.wait_for_function("() => window.headrace.link() !== 'connected'")
            assert entry(page, job.name, A) is not None, "what was shown stays, marked as not current"
            page.wait_for_selector('.link[data-state="lost"], .link[data-state="connecting"]')
            city.hand.write(job, [{"cell": CELLS[0], "vehicles": 12}], end=base + 1 * SECOND)
            with serving(city.broker.connection, city.jobs, port=port, pages=pages):
                page.wait_for_function("() => window.headrace.link() === 'connected'")
                wait_value(page, job.name, A, "vehicles", 12)
    finally:
        first.__exit__(None, None, None)


def test_states_are_told(broker: EmbeddedBroker, open_page: OpenPage, pages: Pages) -> None:
    job = vehicles_job(fresh("nothing"))
    with serving(broker.connection, [job], pages=pages) as served, open_page(served.url) as page:
        page.wait_for_selector(f'.layer[data-job="{job.name}"] .badge[data-state="missing"]')
        page.get_by_role("button", name="Pipeline").click()
        page.locator("text=headrace run >> visible=true").first.wait_for()


def test_a_job_that_failed_alone_is_red_and_named(broker: EmbeddedBroker, open_page: OpenPage, pages: Pages) -> None:
    sound, broken = vehicles_job(fresh("sound")), speeds_job(fresh("broken"))
    query = fresh("both")
    why = "step 'x' failed: KeyError: <b>bold</b>. Mend it and start again"
    with (
        ProgressTopic(broker.connection, query=query, jobs=[sound, broken]) as publish,
        serving(broker.connection, [sound, broken], pages=pages) as served,
        open_page(served.url + "/#page=pipeline") as page,
    ):
        publish(StateChange("running"))
        publish(JobChange(broken.name, "stopped", why))
        problem = page.locator('.problems .notice[data-severity="error"]', has_text=broken.name)
        problem.wait_for()
        assert f"the others of {query} go on" in problem.inner_text()
        assert f"<b>bold</b>. Mend it and start again: headrace run {broken.name} {sound.name}." in problem.inner_text()
        assert page.locator('.stage[data-stage="spark"]').get_attribute("data-state") == "error"
        assert page.locator(f'tr[data-query="{query}"] th small s').all_inner_texts() == [broken.name]
        page.get_by_role("button", name="Map").click()
        page.wait_for_selector(f'.layer[data-job="{broken.name}"] .badge[data-state="failed"]')
        assert page.locator(f'.layer[data-job="{sound.name}"] .badge[data-state="failed"]').count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("where", ["map", "pipeline"])
def test_axe_finds_nothing_serious(city: City, served: Served, open_page: OpenPage, where: str, scheme: Any) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make frontend-check")
    city.everything(100)
    with open_page(served.url + f"/#page={where}", color_scheme=scheme) as page:
        page.wait_for_selector(f'.layer[data-job="{city.vehicles.name}"]', state="attached")
        page.wait_for_function("() => window.headrace?.link() === 'connected'")
        page.evaluate(AXE.read_text())
        found = page.evaluate("async () => (await axe.run()).violations")
        serious = [
            f"{rule['id']} ({rule['impact']}): {rule['nodes'][0]['html'][:200]}"
            for rule in found
            if rule["impact"] in ("serious", "critical")
        ]
        assert serious == []
