"""The profiles of Hypothesis reach tests that say themselves how many examples they want."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COUNTED = """
import pytest
from hypothesis import given, settings, strategies as st

tried = {"explicit": 0, "plain": 0, "inside": 0}

@settings(deadline=None, max_examples=50)
@given(st.integers())
def test_explicit(number):
    tried["explicit"] += 1

@given(st.integers())
def test_plain(number):
    tried["plain"] += 1

class TestInside:
    @pytest.mark.parametrize("case", ["a", "b"])
    @settings(max_examples=30)
    @given(number=st.integers())
    def test_inside(self, case, number):
        tried["inside"] += 1

def test_count():
    raise RuntimeError(str(tried))
"""


@pytest.mark.parametrize(
    ("profile", "explicit", "plain", "inside"),
    [(None, 50, 100, 2 * 30), ("quick", 10, 20, 2 * 6), ("long", 250, 500, 2 * 150)],
)
def test_a_profile_takes_its_share_of_every_number(
    tmp_path: Path, profile: str | None, explicit: int, plain: int, inside: int
) -> None:
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text())
    (tmp_path / "test_counted.py").write_text(COUNTED)
    chosen = [f"--hypothesis-profile={profile}"] if profile else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-c",
        "/dev/null",
        *chosen,
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"{{'explicit': {explicit}, 'plain': {plain}, 'inside': {inside}}}" in done.stdout, done.stdout
