"""What the pages about SQL show is run, statement by statement, as `headrace sql` runs it.

```csv scans.csv         writes a file of this name; so do `json FILE`, `py FILE` and `sql FILE`
```sql                   is carried out, in one session per page, from the top of the page down. Queries and INSERT
                         INTO over files are run; those over topics are planned
```sql error             fails; its message follows
```text output           is what the block before it prints
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole

from headrace.cli import terminal
from headrace.cli.sql_console import Console
from headrace.cli.sql_session import SqlEnvironment
from headrace.config import Settings
from headrace.errors import HeadraceError
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.session import Answer, Insertions

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.docs.pages import Block, Page

_FILES = ("csv", "json", "jsonl", "py", "sql")


class SqlPage:
    """A page with SQL, in a directory of its own.

    Args:
        page: The page.
        directory: Where its files are written; it is the working directory.
    """

    def __init__(self, page: Page, directory: Path) -> None:
        self.page = page
        self._directory = directory
        environment = SqlEnvironment(Settings(), directories=(directory,))
        self.console = Console(environment, environment.session(), start_job=lambda _: None)

    def outputs(self) -> list[tuple[Block, str, str | None]]:
        """Run the page; gives each block that prints, what it printed, and what the page says that it prints."""
        found = []
        for number, block in enumerate(self.page.blocks):
            following = self.page.blocks[number + 1] if number + 1 < len(self.page.blocks) else None
            said = following.text if following is not None and following.words[:2] == ["text", "output"] else None
            if block.words[:1] and block.words[0] in _FILES and len(block.words) == 2 and "." in block.words[1]:
                (self._directory / block.words[1]).write_text(block.text, encoding="utf-8")
            elif block.words[:1] == ["sql"]:
                found.append((block, self._run(block), said))
        return found

    def _run(self, block: Block) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            try:
                self._statements(block.text, kafka=block.words[1:2] == ["kafka"])
            except HeadraceError as problem:
                if block.words[1:2] != ["error"]:
                    problem.add_note(block.where)
                    raise
                return "\n".join(part for part in (f"Error: {problem.message}", problem.hint) if part) + "\n"
        assert block.words[1:2] != ["error"], f"{block.where} does not fail"
        return printed.getvalue()

    def _statements(self, text: str, *, kafka: bool) -> None:
        for statement in parse_script(text):
            result = self.console.session.execute(statement)
            if isinstance(result, Answer) and not result.is_bounded:
                continue
            if isinstance(result, Insertions) and (kafka or not all(part.answer.is_bounded for part in result.parts)):
                continue
            self.console.show(result)


def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as into a pipe: nothing is drawn or wrapped."""
    monkeypatch.setattr(terminal, "out", RichConsole(highlight=False, emoji=False, force_terminal=False, width=200))
