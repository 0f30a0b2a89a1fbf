"""A routing service that is really asked, and no service left over from the test before."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
from tests.enrich.routing import RoutingServer

from headrace.enrich.service import close_services

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[RoutingServer]:
    """Knows the trips of route 1 on one day, one every minute: each ends at a stop of its own."""
    trips = {
        ("HSL:1", 0, "2026-01-01", 6 * 3600 + 60 * number): (f"HSL:S{number}", 60.1 + number / 1000, 24.9)
        for number in range(200)
    }
    running = RoutingServer(trips)
    running.start()
    yield running
    running.stop()


@pytest.fixture(autouse=True)
def _no_services_are_left() -> Iterator[None]:
    before = logging.getLogger("httpx").level
    yield
    close_services()
    logging.getLogger("httpx").setLevel(before)
