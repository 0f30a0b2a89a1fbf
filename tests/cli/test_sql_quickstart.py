"""docs/sql-quickstart.md, typed into the real shell beside a real broker; its jobs are planned by `--check`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli.test_sql_shell import Terminal
from tests.docs.pages import ROOT, read_page

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Cli

    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.broker]


def test_five_minutes_of_sql(broker: EmbeddedBroker, cli: Cli, home: Path) -> None:
    page = read_page(ROOT / "docs" / "sql-quickstart.md")
    files = {block.words[1]: block.text for block in page.blocks if "." in "".join(block.words[1:2])}
    for name, text in files.items():
        (home / name).write_text(text)
    file, topic, query = [block for block in page.blocks if block.words[0] == "sql" and block.words[1:] != ["load.sql"]]
    shell = Terminal(home, "--bootstrap", broker.connection.bootstrap)
    try:
        shell.sees("headrace>")
        for line in file.text.splitlines():
            shell.enter(line)
        assert "23.0" not in shell.sees(r"\(4 rows\)")
        for line in topic.text.splitlines():
            shell.enter(line)
        shell.sees("5 rows into scans")
        for line in query.text.splitlines():
            shell.enter(line)
        shell.sees(r"north +3 +11\.0")
        shell.child.sendintr()
        shell.sees("headrace>")
        shell.enter("SELECT depot, window_start, COUNT(*) AS n FROM TUMBLE(scans, scanned_at, INTERVAL '10' SECOND) "
                    "GROUP BY depot, window_start, window_end;")  # fmt: skip
        shell.sees(r"north +2026-03-01 12:00:00\+00:00 +2")
        shell.child.sendintr()
        shell.sees(r"rows\)")
        shell.sees("headrace>")
        shell.child.sendeof()
        assert shell.ends() == 0
    finally:
        shell.child.close(force=True)
    checked = cli("sql", "-f", "load.sql", "--check")
    assert checked.exit_code == 0, checked.stderr
    assert "INSERT INTO parcels is the job load-parcels" in checked.stdout
