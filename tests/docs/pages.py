"""What the tests need to know of a Markdown page: its code blocks, links, headings, and what it names.

A Python block of the documentation is run, and what it prints is compared with the block that follows it if that one
is marked `output`:

    ```python            is run; the blocks of one page share their names, from the top of the page down
    ```python no-run     is compiled only, because it needs Spark, Kafka or something else that a quick test has not
    ```text output       is what the Python block before it prints
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

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
