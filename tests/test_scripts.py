"""The scripts behind `make`: what they count and which Python they choose."""

from __future__ import annotations

import os
import runpy
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
REPORT = """<testsuites><testsuite>
<testcase classname="tests.a" name="test_runs"/>
<testcase classname="tests.a" name="test_one"><skipped type="pytest.skip" message="no data"/></testcase>
<testcase classname="tests.b" name="test_two[x]"><skipped type="pytest.skip" message="no data"/></testcase>
<testcase classname="tests.b" name="test_known"><skipped type="pytest.xfail" message="known"/></testcase>
</testsuite></testsuites>"""


def test_skipped_tests_are_counted_and_named(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(REPORT)
    (tmp_path / "b.xml").write_text(REPORT.replace("test_one", "test_three"))
    script = runpy.run_path(str(ROOT / "scripts" / "skipped.py"))
    told = script["summary"](script["skipped"]([tmp_path / "a.xml", tmp_path / "b.xml"]))
    assert told.splitlines() == [
        "==> 4 tests were skipped",
        "no data:",
        "  tests.a::test_one",
        "  tests.a::test_three",
        "  tests.b::test_two[x]",
        "  tests.b::test_two[x]",
    ]


def test_every_promised_python_is_tried_and_those_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "pythons.sh").write_text((ROOT / "scripts" / "pythons.sh").read_text())
    (tmp_path / "scripts" / "quick.sh").write_text('echo "ran $1"; exit "$(cat code)"\n')
    lines = [f'"Programming Language :: Python :: 3.{minor}",' for minor in (77, 78)]
    (tmp_path / "pyproject.toml").write_text("\n".join(lines))
    python = tmp_path / "venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\necho 3.77\n")  # what it says of its version
    python.chmod(0o755)
    for code in (0, 1):
        (tmp_path / "code").write_text(str(code))
        command = ["bash", "scripts/pythons.sh", "venv"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        told = f"passed {'3.77' if code == 0 else 'none'}; failed {'none' if code == 0 else '3.77'}"
        assert f"{told}; not on this machine 3.78" in done.stdout
        assert "ran venv/bin/python" in done.stdout
        assert done.returncode == code


def test_another_python_gets_both_packages(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "pythons.sh").write_text((ROOT / "scripts" / "pythons.sh").read_text())
    (tmp_path / "scripts" / "quick.sh").write_text("true\n")
    (tmp_path / "pyproject.toml").write_text('"Programming Language :: Python :: 3.78",')
    programs = tmp_path / "programs"
    programs.mkdir()
    python = programs / "python3.78"
    python.write_text(
        "#!/bin/sh\n"
        'case "$2" in\n'
        'venv) mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;\n'
        'pip) echo "$@" >> called ;;\n'
        "*) echo 3.78 ;;\n"
        "esac\n"
    )
    python.chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    command = ["bash", "scripts/pythons.sh", "venv"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "passed 3.78" in done.stdout
    assert "--editable . --editable transit" in (tmp_path / "called").read_text()
