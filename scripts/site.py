"""Hooks of mkdocs: what the site of `make docs` has besides the pages in docs/.

- The navigation follows docs/index.md: a section for each of its bold lines, with the pages that are listed below it.
- README, CONTRIBUTING, CHANGELOG and SECURITY, which lie outside docs/, become pages.
- Each public package of `headrace` gets a page of reference with the names in its `__all__`.
- Links to sources lose their target: the site has no sources.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
#: The pages outside docs/, and their addresses in the site.
OUTSIDE = {
    "README.md": "readme.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "SECURITY.md": "security.md",
}
#: The public packages and modules, in the order of the reference.
REFERENCE = (
    "headrace",
    "headrace.stream",
    "headrace.time",
    "headrace.windows",
    "headrace.patterns",
    "headrace.cep",
    "headrace.formats",
    "headrace.events",
    "headrace.enrich",
    "headrace.sinks",
    "headrace.inprocess",
    "headrace.spark",
    "headrace.kafka",
    "headrace.ingest",
    "headrace.registry",
    "headrace.plugins",
    "headrace.config",
    "headrace.testing",
    "headrace.engine",
    "headrace.dev",
    "headrace.errors",
)

_SECTION = re.compile(r"^\*\*(?P<title>[^*]+)\*\*$")
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\]\[]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)")
_FENCE = re.compile(r"^(?P<fence> *```+)(?P<language>[\w-]+)[^\n`]*$", re.MULTILINE)
_CODE = re.compile(r"^ *(```+).*?^ *\1 *$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Make the navigation from the index."""
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    config.nav = [{"Contents": "index.md"}, *navigation(index)]
    reference = [{name: f"reference/{name}.md"} for name in REFERENCE]
    config.nav.append({"Reference": reference})
    return config


def navigation(index: str) -> list[dict[str, list[str]]]:
    r"""Read the sections of the index and the pages that each of them lists.

    >>> navigation("**To try it**\n\n- [README](../README.md): what it is; [jobs](jobs.md#here)\n")
    [{'To try it': ['readme.md', 'jobs.md']}]
    """
    sections: list[dict[str, list[str]]] = []
    pages: list[str] = []
    for line in index.splitlines():
        if heading := _SECTION.match(line):
            pages = []
            sections.append({heading["title"]: pages})
        for link in _LINK.finditer(line):
            target = link["target"].partition("#")[0]
            page = OUTSIDE.get(target.removeprefix("../"), target)
            if sections and page not in pages:
                pages.append(page)
    return sections


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that do not lie in docs/."""
    for name, address in OUTSIDE.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, address, content=_LINK.sub(_from_top, text)))
    for name in REFERENCE:
        files.append(File.generated(config, f"reference/{name}.md", content=reference_page(name)))
    colours = HtmlFormatter(style="friendly").get_style_defs(".highlight")
    files.append(File.generated(config, "css/code.css", content=colours))
    return files


def reference_page(module: str) -> str:
    """Write the page of a module: its docstring and its public names.

    A function that has the name of its module, such as `formats.avro`, is asked for where it is defined.
    """
    names = public_names(module)
    hidden = {name: home for name, home in imported_from(module).items() if home == f"{module}.{name}"}
    members = [name for name in names if name not in hidden]
    heading = "    options:\n      show_root_heading: true\n      heading_level: 2\n"
    page = f"# {module}\n\n::: {module}\n    options:\n      members: {members}\n"
    for name in names:
        if name in hidden:
            page += f"\n::: {hidden[name]}.{name}\n{heading}"
    return page


def public_names(module: str) -> list[str]:
    """Read `__all__` of a module without importing it; nothing if it has none.

    >>> public_names("headrace.stream")[:2]
    ['Delivery', 'Job']
    """
    for statement in _parsed(module).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(statement.value) if not name.startswith("_")]
    return []


def imported_from(module: str) -> dict[str, str]:
    """Tell from which modules the names of a module are imported.

    >>> imported_from("headrace.formats")["avro"]
    'headrace.formats.avro'
    """
    found: dict[str, str] = {}
    for statement in _parsed(module).body:
        if isinstance(statement, ast.ImportFrom) and statement.module:
            found |= {alias.asname or alias.name: statement.module for alias in statement.names}
    return found


def _parsed(module: str) -> ast.Module:
    path = ROOT / "src" / Path(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text(encoding="utf-8"))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Fit links and code blocks of a page to the site."""
    del config, files
    depth = page.file.src_uri.count("/")

    def fitted(link: re.Match[str]) -> str:
        return _fit_link(link, depth)

    parts: list[str] = []
    end = 0
    for code in _CODE.finditer(markdown):
        parts += [_LINK.sub(fitted, markdown[end : code.start()]), _FENCE.sub(r"\g<fence>\g<language>", code[0])]
        end = code.end()
    return "".join([*parts, _LINK.sub(fitted, markdown[end:])])


def _from_top(link: re.Match[str]) -> str:
    """Let a link of a page at the top of the repository start from docs/."""
    target = link["target"]
    if re.match(r"[a-z]+:|#", target):
        return link[0]
    return _relinked(link, target.removeprefix("docs/") if target.startswith("docs/") else f"../{target}")


def _fit_link(link: re.Match[str], depth: int) -> str:
    up = "../" * (depth + 1)
    target, mark, anchor = link["target"].partition("#")
    if not target.startswith(up):
        return link[0]
    name = target.removeprefix(up)
    if name in OUTSIDE:
        return _relinked(link, "../" * depth + OUTSIDE[name] + mark + anchor)
    return link["text"]


def _relinked(link: re.Match[str], target: str) -> str:
    return f"{link['image']}[{link['text']}]({target})"
