"""Advice to the source: a file that cannot be read is no reason for a run to fail."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.spark.source.advice import Advice, AdviceFile

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty after a power cut"),
        pytest.param('{"most": 5', id="cut off"),
        pytest.param('{"most": 5, "of_a_later_version": 1}', id="of a later version"),
        pytest.param("[]", id="no record"),
    ],
)
def test_advice_that_cannot_be_read_counts_as_none_and_is_written_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "advice"
    path.write_text(text)
    file = AdviceFile(path)
    assert file.read() is None
    file.write(Advice(most=7))
    assert file.read() == Advice(most=7)
