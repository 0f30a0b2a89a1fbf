r"""The shell of `headrace sql`: statements that end with a semicolon, and commands that begin with a backslash.

On a terminal lines are edited, completed and remembered. On a dumb terminal, and where statements come by a pipe, lines
are read as they come, and nothing is drawn.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.cli import terminal
from headrace.cli.sql_words import COMMANDS, SqlCompleter
from headrace.errors import HeadraceError, PlanError
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.script import is_complete, split_statements
from headrace.streaming_sql.statements import Query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.cli.sql_console import Console
    from headrace.cli.sql_jobs import ShellJobs

PROMPT: Final = "headrace> "
_MORE: Final = "     ...> "
_WATCH_SECONDS: Final = 2.0
_LEAVE: Final = ("exit", "quit", r"\q")


class Leave(Exception):  # noqa: N818 - the user leaves the shell
    """The shell is left."""


class Shell:
    """Reads statements and commands, and has them carried out.

    Args:
        console: Carries statements out.
        jobs: The jobs of INSERT INTO.
        stop_at_error: Whether the first error ends it, as where statements come by a pipe.
    """

    def __init__(self, console: Console, jobs: ShellJobs, *, stop_at_error: bool = False) -> None:
        self._console = console
        self._jobs = jobs
        self._stop_at_error = stop_at_error
        self._last = ""
        self._commands: dict[str, Callable[[list[str]], None]] = {
            r"\?": self._help,
            r"\d": self._describe,
            r"\dt": lambda _: self._console.run("SHOW TABLES"),
            r"\dv": lambda _: self._console.run("SHOW VIEWS"),
            r"\df": lambda _: self._console.run("SHOW FUNCTIONS"),
            r"\e": self._edit,
            r"\i": self._include,
            r"\jobs": self._list_jobs,
            r"\log": lambda words: terminal.line(self._jobs.log(_one(words, r"\log NAME"))),
            r"\stop": lambda words: self._jobs.stop(_one(words, r"\stop NAME")),
            r"\timing": self._time,
            r"\watch": self._watch,
        }

    def take(self, text: str) -> None:
        """Carry out what was typed: statements, or a command.

        Raises:
            Leave: The user leaves.
            HeadraceError: Something is wrong, and the first error ends the shell.
        """
        words = text.strip()
        if not words:
            return
        if words.rstrip(";").strip().lower() in _LEAVE:
            raise Leave
        try:
            if words.startswith("\\"):
                self._command(words)
                return
            self._last = text
            self._console.run(text)
        except HeadraceError as problem:
            if self._stop_at_error:
                raise
            terminal.error(problem)
        except KeyboardInterrupt:
            terminal.note("The statement was given up.")

    def _command(self, text: str) -> None:
        try:
            name, *words = shlex.split(text.replace("\\", "\\\\"))
        except ValueError as problem:
            raise PlanError(f"{text}: {problem}") from problem
        name = name.rstrip(";")
        if name not in self._commands:
            raise PlanError(f"there is no command {name}", hint=r"\? lists them.")
        self._commands[name]([word.rstrip(";") for word in words])

    def _help(self, words: list[str]) -> None:
        del words
        terminal.line("Statements end with a semicolon. Ctrl-C ends a query, Ctrl-D leaves. Commands:")
        terminal.rows(("command", "what it does"), list(COMMANDS.items()))

    def _describe(self, words: list[str]) -> None:
        if words:
            self._console.show(self._console.session.described(words[0]))
            return
        catalog = self._console.session.catalog
        listed = [(each.name, "table", each.what) for each in catalog.tables]
        listed += [(each.name, "view", ", ".join(table.name for table in each.tables)) for each in catalog.views]
        if not listed:
            terminal.note(
                "There are no tables. CREATE TABLE name WITH ('connector' = 'file', 'path' = 'scans.csv'); makes one."
            )
            return
        terminal.rows(("name", "kind", "what"), sorted(listed))

    def _edit(self, words: list[str]) -> None:
        del words
        editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
        with tempfile.NamedTemporaryFile("w+", suffix=".sql", encoding="utf-8") as file:
            file.write(self._last)
            file.flush()
            try:
                subprocess.run([*editor, file.name], check=True)
            except (OSError, subprocess.CalledProcessError) as problem:
                raise PlanError(
                    f"the editor {editor[0]} failed: {problem}", hint="Name another in EDITOR."
                ) from problem
            text = Path(file.name).read_text(encoding="utf-8")
        if text.strip() and text != self._last:
            terminal.line(text.rstrip())
            self._last = text
            self._console.run(text)

    def _include(self, words: list[str]) -> None:
        path = Path(_one(words, r"\i FILE"))
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise PlanError(f"{path} cannot be read: {problem}") from problem
        self._console.run(text)

    def _list_jobs(self, words: list[str]) -> None:
        del words
        rows = [(job.name, job.state, str(job.log)) for job in self._jobs.running.values()]
        if rows:
            terminal.rows(("job", "state", "log"), rows)
        else:
            terminal.note("This shell runs no jobs. INSERT INTO starts one.")

    def _time(self, words: list[str]) -> None:
        del words
        self._console.timing = not self._console.timing
        terminal.note(f"Timing is {'on' if self._console.timing else 'off'}.")

    def _watch(self, words: list[str]) -> None:
        """Run the last query again and again, until Ctrl-C."""
        try:
            seconds = float(words[0]) if words else _WATCH_SECONDS
        except ValueError:
            raise PlanError(f"{words[0]!r} is no number of seconds", hint=r"Write \watch 5.") from None
        queries = [each for each in parse_script(self._last) if isinstance(each, Query)]
        if not queries:
            raise PlanError("there is no query to watch", hint=r"Run a SELECT, then \watch.")
        text = queries[-1].query.text
        try:
            while True:
                terminal.note(time.strftime("%H:%M:%S"))
                self._console.run(text)
                time.sleep(max(0.1, seconds))
        except KeyboardInterrupt:
            return


def _one(words: list[str], usage: str) -> str:
    if len(words) != 1:
        raise PlanError(f"write {usage}")
    return words[0]


def read_pipe(shell: Shell, lines: Iterable[str]) -> None:
    """Carry out statements from a pipe or a file, each when it is complete.

    Raises:
        HeadraceError: A statement is wrong, or has no end.
    """
    waiting = ""
    try:
        for line in lines:
            if not waiting and line.lstrip().startswith("\\"):
                shell.take(line)
                continue
            waiting += line
            if waiting.strip() and is_complete(waiting):
                text, waiting = waiting, ""
                shell.take(text)
        if split_statements(waiting):
            shell.take(waiting)  # the last statement needs no semicolon
    except Leave:
        return


def is_editable() -> bool:
    """Tell whether lines can be edited: both ends are a terminal, and not a dumb one."""
    dumb = os.environ.get("TERM", "") in ("", "dumb", "unknown")
    return sys.stdin.isatty() and sys.stdout.isatty() and not dumb


def interact(shell: Shell, console: Console, history: Path, functions: Iterable[str]) -> None:
    """Read from a terminal until the user leaves."""
    read = _editor(console, history, functions) if is_editable() else _plain_lines
    terminal.note(r"Statements end with a semicolon; \? helps, \q leaves.")
    while True:
        try:
            text = read()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        try:
            shell.take(text)
        except Leave:
            return


def _plain_lines() -> str:
    """Read lines up to the end of a statement, from a terminal that can do nothing else."""
    text = input(PROMPT) + "\n"
    while text.strip() and not text.lstrip().startswith("\\") and not _is_done(text):
        text += input(_MORE) + "\n"
    return text


def _is_done(text: str) -> bool:
    return text.strip().lower() in _LEAVE or is_complete(text)


def _editor(console: Console, history: Path, functions: Iterable[str]) -> Callable[[], str]:
    """Make what reads a statement with an editor, completion and a history."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
    from prompt_toolkit.filters import Condition, completion_is_selected
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers.sql import SqlLexer

    keys = KeyBindings()
    history.parent.mkdir(parents=True, exist_ok=True)
    session: PromptSession[str]

    @Condition
    def is_statement() -> bool:
        text = session.default_buffer.text
        return not text.strip() or text.lstrip().startswith("\\") or _is_done(text)

    @keys.add("enter", filter=is_statement & ~completion_is_selected)
    def _accept(event: Any) -> None:
        event.current_buffer.validate_and_handle()

    session = PromptSession(
        PROMPT,
        multiline=True,
        prompt_continuation=lambda width, *_: _MORE.rjust(width),
        completer=SqlCompleter(console.session.catalog, functions),
        complete_while_typing=False,
        history=FileHistory(str(history)),
        auto_suggest=AutoSuggestFromHistory(),
        lexer=PygmentsLexer(SqlLexer),
        key_bindings=keys,
    )
    return session.prompt
