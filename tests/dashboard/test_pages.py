"""The files of the page, where there are none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from headrace.dashboard.pages import Pages

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("path", "status"), [("/", 503), ("/index.html", 503), ("/nothing", 404), ("/assets/x.js", 404)]
)
def test_without_a_directory_of_the_page_every_path_has_its_answer(tmp_path: Path, path: str, status: int) -> None:
    app = Starlette(routes=[Mount("/", Pages(tmp_path / "static"))])

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as client:
            return await client.get(path)

    answer = asyncio.run(ask())
    assert answer.status_code == status
    assert ("make frontend" in answer.text) == (status == 503)
