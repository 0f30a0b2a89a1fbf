"""Files that change, and a command that is started again for it."""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING

from headrace.cli.stopping import Stop
from headrace.cli.watching import FileWatch, run_again
from headrace.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Cli


def test_only_source_files_of_the_project_count(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("a")
    (tmp_path / ".headrace").mkdir()
    watch = FileWatch([tmp_path])
    assert watch.changed() == []
    (tmp_path / "notes.txt").write_text("b")
    (tmp_path / ".headrace" / "x.py").write_text("b")
    assert watch.changed() == []
    (tmp_path / "jobs.py").write_text("ab")
    (tmp_path / "more.sql").write_text("c")
    assert [path.name for path in watch.changed()] == ["jobs.py", "more.sql"]
    (tmp_path / "more.sql").unlink()
    assert [path.name for path in watch.changed()] == ["more.sql"]
    assert watch.changed() == []


def test_a_change_starts_the_command_again_also_after_it_has_failed(tmp_path: Path) -> None:
    source, runs = tmp_path / "jobs.py", tmp_path / "runs.txt"
    source.write_text("raise SystemExit(1)")
    program = f"open({str(runs)!r}, 'a').write('x'); exec(open({str(source)!r}).read())"
    stop = Stop()
    watched = threading.Thread(
        target=run_again, args=([sys.executable, "-c", program], FileWatch([tmp_path]), stop), daemon=True
    )
    watched.start()

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 60
        while not runs.exists() or runs.read_text() != text:
            assert time.monotonic() < deadline
            time.sleep(0.05)

    wait_for("x")
    source.write_text("import time; time.sleep(1000)")
    wait_for("xx")
    source.write_text("import time; time.sleep(1001)  # again")
    wait_for("xxx")
    stop.set()
    watched.join(30)
    assert not watched.is_alive()


def test_watching_without_a_job_is_wrong_usage(cli: Cli) -> None:
    refused = cli("run", "--watch")
    assert refused.exit_code == ExitCode.USAGE
    assert "name the jobs to run, or give --all" in refused.output
