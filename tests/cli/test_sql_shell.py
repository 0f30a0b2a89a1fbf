"""The shell of `headrace sql`, driven by a pseudo-terminal; statements by a pipe, in a file and as an argument."""

# ruff: noqa: S608

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pexpect
import polars as pl
import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cli.conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
SCANS = pl.DataFrame(
    {
        "depot": ["north", "south", "north"],
        "weight": [1.5, 20.0, 40.0],
        "ts": ["2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z", "2026-03-01T12:00:09Z"],
    }
)
TABLE = """
    CREATE TABLE scans (depot STRING, weight DOUBLE, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND)
    WITH ('connector' = 'file', 'path' = 'scans.csv');
"""


@pytest.fixture
def files(home: Path) -> Path:
    SCANS.write_csv(home / "scans.csv")
    return home


def environment(home: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT / "transit" / "src"), os.environ.get("PYTHONPATH", "")])
    return {
        **os.environ,
        "PYTHONPATH": path,
        "HEADRACE_HOME": str(home / "state"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        **more,
    }


class Terminal:
    """A shell in a pseudo-terminal."""

    def __init__(self, home: Path, *words: str, **more: str) -> None:
        command = [sys.executable, "-m", "headrace.cli", "sql", *words]
        env = {**environment(home), **more}
        self.child = pexpect.spawn(
            command[0], command[1:], cwd=str(home), env=env, encoding="utf-8", timeout=40, dimensions=(40, 160)
        )

    def type(self, text: str) -> None:
        self.child.send(text)

    def enter(self, text: str) -> None:
        self.child.send(text + "\r")

    def sees(self, pattern: str) -> str:
        self.child.expect(pattern)
        return plain(self.child.before + self.child.after)

    def ends(self) -> int:
        self.child.expect(pexpect.EOF)
        self.child.close()
        return int(self.child.exitstatus if self.child.exitstatus is not None else -1)


def plain(text: str) -> str:
    """Text without what only moves the cursor and changes colours."""
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()=>][0-9A-Z]?|\r", "", text)


@pytest.fixture
def shell(files: Path) -> Iterator[Terminal]:
    terminal = Terminal(files)
    terminal.sees("headrace>")
    yield terminal
    terminal.child.close(force=True)


def test_statements_over_several_lines_commands_and_errors(shell: Terminal, files: Path) -> None:
    for line in TABLE.strip().splitlines():
        shell.enter(line.strip())
    shell.sees(r"Table scans is the file scans\.csv")
    shell.enter("SELECT depot FROM scans")
    shell.sees(r"\.\.\.>")
    shell.enter("WHERE weight > 10;")
    assert "south" in shell.sees(r"\(2 rows\)")
    shell.enter("SELECT depoot FROM scans;")
    assert "line 1, column" in shell.sees("Error: .*depoot.*\n.*\n.*\\^")
    shell.enter(r"\d")
    shell.sees("scans .*table .*the file scans.csv")
    shell.enter(r"\d scans")
    shell.sees("weight .*DOUBLE")
    shell.enter(r"\timing")
    shell.sees("Timing is on")
    shell.enter("SHOW VIEWS;")
    shell.sees(r"\d+ ms")
    shell.enter(r"\nothing")
    shell.sees("there is no command")
    shell.enter(r"\?")
    shell.sees(r"\\watch")
    shell.enter(r"\q")
    assert shell.ends() == 0
    assert "WHERE weight > 10" in (files / "state" / "sql-history").read_text()


def test_words_are_completed(shell: Terminal) -> None:
    for line in TABLE.strip().splitlines():
        shell.enter(line.strip())
    shell.sees(r"Table scans is the file scans\.csv")
    shell.type("SELECT weight FROM sc\t")
    shell.sees("ans")  # what is missing is drawn behind what was typed
    shell.enter(";")
    assert "20.0" in shell.sees(r"\(3 rows\)")
    shell.enter(r"\q")
    assert shell.ends() == 0


def test_watching_ends_with_ctrl_c_and_the_shell_does_not(shell: Terminal) -> None:
    for line in TABLE.strip().splitlines():
        shell.enter(line.strip())
    shell.sees(r"Table scans is the file scans\.csv")
    shell.enter("SELECT depot FROM scans WHERE weight > 30;")
    shell.sees(r"\(1 row\)")
    shell.enter(r"\watch 0.2")
    for _ in range(3):
        shell.sees(r"\(1 row\)")
    shell.child.sendintr()
    shell.sees("headrace>")
    shell.enter("SHOW TABLES;")
    shell.sees("scans .*the file")
    shell.sees("headrace>")
    shell.child.sendeof()
    assert shell.ends() == 0


def test_ctrl_c_gives_up_what_was_typed_and_the_history_outlives_the_shell(files: Path) -> None:
    shell = Terminal(files, "-t", "scans=scans.csv")
    shell.sees("headrace>")
    shell.enter("SELECT nothing")
    shell.sees(r"\.\.\.>")
    shell.child.sendintr()
    shell.sees("headrace>")
    shell.enter("SELECT weight FROM scans WHERE weight > 30;")
    assert "40.0" in shell.sees(r"\(1 row\)")
    shell.sees("headrace>")
    shell.child.sendeof()
    assert shell.ends() == 0
    again = Terminal(files, "-t", "scans=scans.csv")
    again.sees("headrace>")
    again.type("\x1b[A")  # the arrow key brings back the last statement
    again.sees("30")
    again.enter("")
    assert "40.0" in again.sees(r"\(1 row\)")
    again.enter(r"\q")
    assert again.ends() == 0


def test_a_dumb_terminal(files: Path) -> None:
    terminal = Terminal(files, "-t", "scans=scans.csv", TERM="dumb")
    terminal.sees("headrace>")
    terminal.enter("SELECT depot")
    terminal.sees(r"\.\.\.>")
    terminal.enter("FROM scans WHERE weight < 10;")
    shown = terminal.sees(r"\(1 row\)")
    assert "north" in shown
    terminal.enter("exit")
    assert terminal.ends() == 0
    assert "\x1b[" not in shown


def test_an_editor_writes_the_last_statement_anew(files: Path) -> None:
    editor = files / "editor.sh"
    editor.write_text("#!/bin/sh\nsed -i 's/> 10/< 10/' \"$1\"\n")
    editor.chmod(0o755)
    terminal = Terminal(files, "-t", "scans=scans.csv", EDITOR=str(editor))
    terminal.sees("headrace>")
    terminal.enter("SELECT weight FROM scans WHERE weight > 10;")
    terminal.sees(r"\(2 rows\)")
    terminal.enter(r"\e")
    assert "1.5" in terminal.sees(r"\(1 row\)")
    terminal.child.close(force=True)


def test_statements_by_a_pipe(files: Path) -> None:
    text = TABLE + "SELECT depot, weight FROM scans WHERE weight > 10;\n\\d\nSELECT depot FROM scans WHERE weight < 10"
    command = [sys.executable, "-m", "headrace.cli", "sql", "-f", "csv"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, cwd=files, env=environment(files))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[:3] == ["depot,weight", "south,20.0", "north,40.0"]
    assert done.stdout.splitlines()[-2:] == ["depot", "north"]
    failed = subprocess.run(
        command, input="SHOW TABLES;\nSELEC 1;\nSHOW VIEWS;\n", capture_output=True, text=True, cwd=files,
        env=environment(files),
    )  # fmt: skip
    assert failed.returncode == ExitCode.JOB
    assert "Did you mean SELECT?" in failed.stderr
    assert failed.stdout.splitlines() == ["table,what"]


def test_a_file_of_statements(cli: Cli, files: Path) -> None:
    (files / "heavy.sql").write_text(
        TABLE
        + """
        CREATE VIEW heavy AS SELECT depot, weight FROM scans WHERE weight > 10;
        CREATE TABLE out (place STRING, kilos INT) WITH ('connector' = 'file', 'path' = 'out/heavy.jsonl');
        CREATE TABLE shown (place STRING, kilos INT) WITH ('connector' = 'print');
        INSERT INTO out SELECT depot AS d, weight AS w FROM heavy;
        INSERT INTO shown SELECT depot AS d, weight AS w FROM heavy;
        """
    )
    checked = cli("sql", "-f", "heavy.sql", "--check")
    assert checked.exit_code == 0
    assert "INSERT INTO out is written by this process" in checked.stdout
    assert not (files / "out").exists()
    done = cli("sql", "--file", "heavy.sql", "-f", "json")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ['{"place":"south","kilos":20}', '{"place":"north","kilos":40}']
    assert (files / "out" / "heavy.jsonl").read_text() == done.stdout


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["-f", "nothing.sql"], ExitCode.USAGE, "nothing.sql cannot be read"),
        (["-f", "xml"], ExitCode.USAGE, "neither a format nor a file"),
        (["SELECT 1 FROM scans", "-f", "wrong.sql"], ExitCode.USAGE, "a query and the file wrong.sql"),
        (["-f", "wrong.sql", "--check"], ExitCode.JOB, "wrong.sql: line 2, column 19: "),
        (["-f", "wrong.sql"], ExitCode.JOB, "wrong.sql: line 2, column 19: "),
        (["SHOW TABLES; SHOW TABLE"], ExitCode.JOB, "line 1, column 19: SHOW TABLE"),
        (["SHOW TABLES", "--follow"], ExitCode.USAGE, "--follow and --engine are for one query"),
    ],
)
def test_what_is_wrong_is_said(cli: Cli, files: Path, words: list[str], code: ExitCode, message: str) -> None:
    (files / "wrong.sql").write_text("SHOW TABLES;\nCREATE TABLE t (a INTT);\n")
    result = cli("sql", *words)
    assert message in result.stderr
    assert result.exit_code == code


def test_check_reads_standard_input(files: Path) -> None:
    result = CliRunner().invoke(app, ["sql", "--check"], input=TABLE + "SELECT depot FROM scans;")
    assert result.exit_code == 0
    assert "SELECT gives depot" in result.stdout
