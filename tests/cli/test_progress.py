"""How steps end."""

from __future__ import annotations

import pytest

from headrace.cli.progress import Steps


@pytest.mark.parametrize(
    ("end", "told"),
    [
        pytest.param(None, "Counting done after", id="done"),
        pytest.param(ValueError("no such number"), "Counting failed after", id="failed"),
        pytest.param(KeyboardInterrupt(), "Counting stopped after", id="stopped by the user"),
    ],
)
def test_a_step_says_how_it_ended(end: BaseException | None, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    def count() -> None:
        with Steps() as steps, steps.step("Counting"):
            if end is not None:
                raise end

    if end is None:
        count()
    else:
        with pytest.raises(type(end)):
            count()
    assert told in capsys.readouterr().err
