"""The site of the documentation: it builds without a warning, has every page, and fetches nothing from elsewhere."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow  # it builds the site

#: What a browser fetches by itself, as against links that somebody follows.
FETCHED = re.compile(r"<(?:script|img|link|iframe)\b[^>]*?(?:src|href)=\"(?P<address>[^\"]+)\"")
FETCHED_BY_STYLE = re.compile(r"(?:url\(\s*|@import\s+)[\"']?(?P<address>https?:[^\"')\s]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "--quiet", "build", "--strict", "--site-dir", str(target)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return target


def test_the_site_fetches_nothing_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 90
    addresses = {match["address"] for page in pages for match in FETCHED.finditer(page.read_text())}
    for style in site.rglob("*.css"):
        addresses |= {match["address"] for match in FETCHED_BY_STYLE.finditer(style.read_text())}
    assert addresses
    assert not [address for address in addresses if re.match(r"(?:https?:)?//", address)]


def test_the_reference_has_every_public_name(site: Path):
    script = runpy.run_path(str(ROOT / "scripts" / "site.py"))
    missing: list[str] = []
    for module in script["REFERENCE"]:
        anchors = set(re.findall(r' id="([^"]+)"', (site / "reference" / f"{module}.html").read_text()))
        names = {f"{module}.{name}" for name in script["public_names"](module)}
        missing += [name for name in names if not {name, f"{name}.{name.rpartition('.')[2]}"} & anchors]
    assert not missing


def test_code_that_needs_more_than_python_is_shown_as_code(site: Path):
    page = (site / "projects.html").read_text()
    assert 'class="highlight"' in page
    assert "```" not in page


@pytest.mark.parametrize("script", ["site", "site_docstrings"])
def test_the_scripts_of_the_site_do_what_their_examples_say(script: str):
    command = [sys.executable, "-m", "doctest", str(ROOT / "scripts" / f"{script}.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
