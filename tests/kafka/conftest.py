"""What the tests of the broker share."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def topic_name() -> Callable[[], str]:
    """Makes topic names that nobody else uses: the broker is shared by all tests."""
    return lambda: f"test.{uuid.uuid4().hex[:12]}"
