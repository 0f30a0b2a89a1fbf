"""The Python of the documentation that needs Spark or Kafka runs, and prints what the pages say."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.docs.pages import Page, pages, run_blocks

from headrace.dev import EmbeddedBroker, ServerSettings

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]


def with_needs() -> list[Any]:
    return [pytest.param(page, id=page.name) for page in pages() if any(block.needs for block in page.blocks)]


@pytest.mark.parametrize("page", with_needs())
def test_blocks_that_need_spark_or_kafka_run(
    page: Page, jars: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # A broker of its own: pages write to the application's topics, which other tests read.
    with EmbeddedBroker(ServerSettings(data_dir=tmp_path / "broker")) as broker:
        run_blocks(page, broker=broker.connection.bootstrap)
