"""A real Chromium, without a screen and with WebGL drawn by the processor; and pages that are watched for trouble."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from headrace.dashboard.pages import STATIC, Pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from playwright.sync_api import Browser, Page

    OpenPage = Callable[..., AbstractContextManager[Page]]

CHROMIUM = shutil.which("chromium")
AXE = Path(__file__).resolve().parents[3] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
#: Milliseconds that a page may take for anything: WebGL without a graphics card is slow on a busy machine.
PATIENCE = 45_000


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """The page as it is built now; somebody may build it anew while the tests run."""
    if not Pages().built:
        pytest.skip("the page has not been built: make frontend")
    return Pages(shutil.copytree(STATIC, tmp_path_factory.mktemp("page") / "static"))


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: scripts/chromium.sh installs it")
    from playwright.sync_api import sync_playwright

    flags = ["--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-dev-shm-usage", "--no-sandbox"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium: Browser) -> OpenPage:
    """Open an address; at the end nothing may have gone wrong in it, and nothing may have been asked elsewhere."""

    @contextmanager
    def opened(url: str, *, expect: tuple[str, ...] = (), **options: Any) -> Iterator[Page]:
        context = chromium.new_context(**{"viewport": {"width": 1100, "height": 500}, **options})
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        troubles: list[str] = []
        foreign: list[str] = []
        home = urlsplit(url).netloc

        def on_console(message: Any) -> None:
            if message.type in ("error", "warning") and not any(text in message.text for text in expect):
                troubles.append(f"{message.type}: {message.text}")

        def on_request(request: Any) -> None:
            where = urlsplit(request.url)
            if where.scheme not in ("blob", "data") and where.netloc != home:
                foreign.append(request.url)

        page.on("console", on_console)
        page.on("pageerror", lambda error: troubles.append(f"exception: {error}"))
        page.on("request", on_request)
        page.on("websocket", lambda socket: on_request(socket))
        page.goto(url)
        yield page
        context.close()
        assert foreign == [], "requests to other hosts"
        assert troubles == [], "the console is not clean"

    return opened
