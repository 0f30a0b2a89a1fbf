"""What the tests need to know of a Markdown page: its code blocks, links, headings, and what it names.

A Python block of the documentation is run, and what it prints is compared with the block that follows it if that one
is marked `output`:

    ```python                is run; the blocks of one page share their names, from the top of the page down
    ```python spark broker   is run with real Spark and a real broker, after the blocks before it; `tests/spark` does
                             that, and puts the address of its broker in place of `localhost:9092`
    ```python no-run REASON  is compiled only; the rest of the line, and the text of the page, say why
    ```text output           is what the Python block before it prints
"""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

#: What a block may need besides Python, written behind `python`.
NEEDS = frozenset({"spark", "broker"})
#: Where pages say that Kafka is.
DOCUMENTED_ADDRESS = "localhost:9092"

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>.*)$")
_HEADING = re.compile(r"^#{1,6} +(?P<text>.*?)#* *$")
_LINK = re.compile(r"(?<!\\)!?\[[^\]]*\]\((?P<target>[^)\s]+)(?: +\"[^\"]*\")?\)")
_SOURCE = re.compile(r"\b(?:src|srcset|href)=\"(?P<target>[^\"]+)\"")
_SPAN = re.compile(r"`([^`\n]+)`")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    line: int
    info: str
    text: str

    @property
    def words(self) -> list[str]:
        return self.info.split()

    @property
    def is_python(self) -> bool:
        return self.words[:1] == ["python"]

    @property
    def is_run(self) -> bool:
        return self.is_python and self.words[1:2] != ["no-run"]

    @property
    def needs(self) -> frozenset[str]:
        """What has to be there for it to run."""
        return frozenset(self.words[1:]) if self.is_run else frozenset()

    @property
    def where(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True)
class Page:
    """A Markdown page, taken apart."""

    path: Path
    blocks: tuple[Block, ...]
    prose: str

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @property
    def links(self) -> list[str]:
        plain = _SPAN.sub("", self.prose)
        return [match["target"] for pattern in (_LINK, _SOURCE) for match in pattern.finditer(plain)]

    @property
    def anchors(self) -> set[str]:
        """The anchors that GitHub makes of the headings."""
        found: set[str] = set()
        for line in self.prose.splitlines():
            match = _HEADING.match(line)
            if match:
                slug = re.sub(r"[^\w\- ]", "", match["text"].replace("`", "").lower()).replace(" ", "-")
                count = 0
                while (numbered := f"{slug}-{count}" if count else slug) in found:
                    count += 1
                found.add(numbered)
        return found

    @property
    def spans(self) -> list[str]:
        """What stands between backticks."""
        return _SPAN.findall(self.prose)

    @property
    def shell_lines(self) -> list[str]:
        """Lines of shell blocks, and of indented blocks, that might be commands."""
        lines = [
            line for block in self.blocks if block.words[:1] in (["sh"], ["bash"]) for line in block.text.splitlines()
        ]
        lines += [line for line in self.prose.splitlines() if line.startswith("    ")]
        return [line.strip().removeprefix("$ ") for line in lines]


def pages() -> list[Page]:
    """Every page that a reader meets: those at the top, and all under docs."""
    paths = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    return [read_page(path) for path in paths]


def read_page(path: Path) -> Page:
    """Take a page apart."""
    return parse_page(path, path.read_text(encoding="utf-8"))


def parse_page(path: Path, text: str) -> Page:
    """Take the text of a page apart."""
    blocks: list[Block] = []
    prose: list[str] = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            prose.append(line)
            continue
        inside: list[str] = []
        for _, content in lines:
            closing = _FENCE.match(content)
            if closing and closing["fence"].startswith(opening["fence"]) and not closing["info"].strip():
                break
            inside.append(content.removeprefix(opening["indent"]))
        blocks.append(Block(path, number, opening["info"].strip(), "\n".join(inside) + "\n"))
    return Page(path, tuple(blocks), re.sub(r"<!--.*?-->", "", "\n".join(prose), flags=re.DOTALL))


def run_blocks(page: Page, *, broker: str | None = None) -> None:
    """Run the Python blocks of a page, and compare what they print with what the page says.

    Args:
        page: The page.
        broker: The address of a broker, in a process that can start Spark; None: leave out the blocks that need them.
    """
    namespace: dict[str, Any] = {"__name__": "page"}
    for number, block in enumerate(page.blocks):
        if not block.is_run or (block.needs and broker is None):
            continue
        text = block.text.replace(DOCUMENTED_ADDRESS, broker) if block.needs and broker is not None else block.text
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            try:
                exec(compile(text, block.where, "exec", dont_inherit=True), namespace)  # noqa: S102
            except NameError as problem:
                problem.add_note("Define it earlier on the page.")
                raise
        following = page.blocks[number + 1] if number + 1 < len(page.blocks) else None
        if following is not None and "output" in following.words:
            assert printed.getvalue().rstrip() == following.text.rstrip(), f"{following.where} differs"
