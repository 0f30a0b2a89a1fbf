"""The documentation says what is so: its Python runs, its links lead somewhere, what it names is there."""

from __future__ import annotations

import json
import re
import runpy
import sys
import tomllib
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest
import typer.main
from tests.docs.pages import NEEDS, ROOT, Block, Page, pages, parse_page, run_blocks

from headrace.cli.main import app

if TYPE_CHECKING:
    from pathlib import Path

PAGES = pages()
PROJECT_PATH = re.compile(
    r"^(?:src|docs|tests|scripts|benchmarks|requirements|examples|\.ci)/[\w./-]+$"
    r"|^[A-Z][A-Z]+\.md$|^Makefile$|^pyproject\.toml$|^hatch_build\.py$|^headrace\.example\.toml$"
)
#: Paths that documentation may name though a fresh clone has none: what a reader is to write, or what a command makes.
NOT_THERE_YET = re.compile(r"my_|^benchmarks/results/|<")


def blocks(page: Page, language: str) -> list[Block]:
    return [block for block in page.blocks if block.words[:1] == [language]]


def with_python() -> list[Any]:
    return [pytest.param(page, id=page.name) for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", with_python())
def test_python_blocks_run_and_print_what_the_page_says(page: Page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    run_blocks(page)


@pytest.mark.parametrize("page", with_python())
def test_python_blocks_are_python(page: Page):
    for block in blocks(page, "python"):
        compile(block.text, block.where, "exec", dont_inherit=True)


@pytest.mark.parametrize("page", with_python())
def test_every_python_block_runs_or_says_why_not(page: Page):
    assert not [problem for block in blocks(page, "python") if (problem := unclear(block))]


def unclear(block: Block) -> str:
    """Tell what is wrong with the line that opens a Python block; "" if nothing is."""
    if not block.is_run:
        return "" if len(block.words) > 4 else f"{block.where}: say why it is not run: ```python no-run REASON"
    unknown = block.needs - NEEDS
    return f"{block.where}: {', '.join(sorted(unknown))} is neither of {', '.join(sorted(NEEDS))}" if unknown else ""


@pytest.mark.parametrize(
    ("info", "words"),
    [
        ("python", ""),
        ("python spark broker", ""),
        ("python no-run because it deletes a topic", ""),
        ("python no-run", "say why it is not run"),
        ("python norun", "norun is neither of broker, spark"),
    ],
)
def test_a_block_that_is_not_run_needs_a_reason(info: str, words: str):
    found = unclear(Block(ROOT / "x.md", 1, info, "a = 1"))
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_data_and_settings_can_be_read(page: Page):
    for block in page.blocks:
        if block.words[:1] == ["json"]:
            json.loads(block.text)
        if block.words[:1] == ["toml"]:
            tomllib.loads(block.text)


def made_later(path: Path) -> bool:
    return path.is_relative_to(ROOT) and bool(NOT_THERE_YET.search(path.relative_to(ROOT).as_posix()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Page):
    lost = []
    for target in page.links:
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = unquote(target).partition("#")
        found = (page.path.parent / path).resolve() if path else page.path
        if not found.exists():
            if not made_later(found):
                lost.append(f"{target}: no such file")
        elif anchor and found.suffix == ".md" and anchor not in parse_page(found, found.read_text()).anchors:
            lost.append(f"{target}: no such heading")
    assert not lost


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Page):
    named = [span for span in page.spans if PROJECT_PATH.match(span) and not NOT_THERE_YET.search(span)]
    missing = [span for span in named if not any((base / span).exists() for base in (ROOT, page.path.parent))]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_that_are_named_exist(page: Page):
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    command = typer.main.get_command(app)
    unknown = []
    for text in [*page.spans, *page.shell_lines]:
        words = re.sub(r"^(?:[A-Z_]+=\S+ +)+", "", text).split()
        if words[:1] == ["make"] and len(words) > 1 and re.fullmatch(r"[a-z-]+", words[1]) and words[1] not in targets:
            unknown.append(text)
        if words[:1] == ["headrace"] and (missing := unknown_part(command, words[1:])):
            unknown.append(f"{text}: {missing}")
    assert not unknown


def unknown_part(command: Any, words: list[str]) -> str:
    """Name the first word that `headrace` would not know: a command, a command below it, or a long option."""
    at = command
    flags = {flag for parameter in at.params for flag in parameter.opts} | {"--help", "-h", "--install-completion"}
    takes_value = False
    for word in words:
        if word in ("|", "&&", ">", "·", "#", "..."):
            break
        if takes_value:
            takes_value = False
        elif word.startswith("--"):
            name = re.sub(r"[\],|).:]+$", "", word.partition("=")[0])
            if name not in flags:
                return name
            takes_value = "=" not in word and at is command and name in ("--config", "--set")
        elif hasattr(at, "commands") and re.fullmatch(r"[a-z][a-z-]*", word):
            below = at.get_command(None, word)
            if below is None:
                return word
            at = below
            flags |= {flag for parameter in at.params for flag in parameter.opts}
    return ""


def test_the_readme_has_its_first_screen():
    page = next(page for page in PAGES if page.name == "README.md")
    assert {"make run", "make test"} <= set(page.shell_lines)
    assert any(target.endswith(".svg") for target in page.links)
    first = blocks(page, "python")[0]
    assert first.is_run
    assert not first.needs


def test_every_page_is_listed_in_the_index():
    index = next(page for page in PAGES if page.name == "docs/index.md")
    listed = {(index.path.parent / target.partition("#")[0]).resolve() for target in index.links}
    unlisted = [page.name for page in PAGES if page.name.startswith("docs/") and page.path not in listed | {index.path}]
    assert not unlisted


def test_the_figures_of_the_readme_are_those_of_the_results():
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import figures
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    readme = (ROOT / "README.md").read_text()
    assert figures.refreshed(readme, figures.read_results(ROOT / "benchmarks" / "results")) == readme, (
        "run `python scripts/figures.py` to refresh the figures"
    )


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("demo --fresh", ""),
        ("broker start --port 9093", ""),
        ("--set spark.cadence_ms=200 demo", ""),
        ("dance", "dance"),
        ("broker sing", "sing"),
        ("demo --loud", "--loud"),
    ],
)
def test_an_unknown_command_is_noticed(text: str, part: str):
    assert unknown_part(typer.main.get_command(app), text.split()) == part


def test_a_page_is_taken_apart():
    text = "# A title\n\nSee [there](x.md#y) and `make run`.\n\n```python spark\na = 1\n```\n\n## A `title`\n"
    page = parse_page(ROOT / "x.md", text)
    assert [(block.info, block.text, block.line) for block in page.blocks] == [("python spark", "a = 1\n", 5)]
    assert page.links == ["x.md#y"]
    assert page.spans == ["make run", "title"]
    assert page.anchors == {"a-title", "a-title-1"}


@pytest.mark.slow  # their answers are in tests/examples
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
