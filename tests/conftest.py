"""What all tests share: one real Kafka broker for the whole run, started when the first test asks for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.dev import EmbeddedBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """An embedded broker on a free port; mark tests that use it with `broker`, and give topics names of their own."""
    from headrace.dev import EmbeddedBroker, ServerSettings

    with EmbeddedBroker(ServerSettings(data_dir=tmp_path_factory.mktemp("broker"))) as running:
        yield running
