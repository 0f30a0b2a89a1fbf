"""Savepoints in files: what is written is read, and what is damaged is noticed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.savepoints.jobs import answers, every_kind, frame

from headrace.errors import PlanError, StateError
from headrace.inprocess import Runner
from headrace.savepoints import JobEntry, Manifest, read_manifest, read_savepoint, snapshot_of, state_of, verify
from headrace.savepoints.files import check_name, delete_savepoint, list_savepoints, write_savepoint

JOB = every_kind()
ROWS = [[(v, n % 3, float(n % 9), n + 20 * p) for n, v in enumerate("abcdefg" * 3)] for p in range(3)]
MANIFEST = Manifest("first", "2026-03-02T07:30:00+00:00", "0.1.0", query="q", key_groups=3)


@pytest.fixture(scope="module")
def runner() -> Runner:
    runner = Runner(JOB, key_groups=3)
    runner.step(frame(ROWS[0]))
    return runner


@pytest.fixture(params=["path", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str | Path:
    return tmp_path / "first" if request.param == "path" else f"memory://{tmp_path.name}/first"


def test_a_run_goes_on_from_a_savepoint_on_disk_or_at_a_url(runner: Runner, place: str | Path) -> None:
    written = write_savepoint(place, MANIFEST, {JOB.name: state_of(runner.snapshot())})
    assert read_manifest(place) == written
    assert verify(place) == []
    saved = read_savepoint(place)
    assert snapshot_of(saved.states[JOB.name]) == runner.snapshot()
    again = Runner(JOB, key_groups=2, snapshot=snapshot_of(saved.states[JOB.name]))
    ours = Runner(JOB, key_groups=3, snapshot=runner.snapshot())
    for part in ROWS[1:]:
        assert answers([again.step(frame(part))]) == answers([ours.step(frame(part))])
    assert answers([again.finish()]) == answers([ours.finish()])


def test_the_manifest_says_what_is_in_it(runner: Runner, tmp_path: Path) -> None:
    known = Manifest("a", "now", "v", jobs=(JobEntry(JOB.name, ("positions",), stopped={"message": "why"}),))
    written = write_savepoint(tmp_path / "a", known, {JOB.name: state_of(runner.snapshot())})
    entry = written.job(JOB.name)
    assert entry is not None
    assert (entry.sources, entry.stopped) == (("positions",), {"message": "why"})
    assert [step.step for step in entry.steps] == list(JOB.steps)
    sliced = entry.steps[0]
    assert sliced.shape["window"] == "sliding(10us every 5us)"
    assert sliced.columns["speed"] == "Float64"
    assert sliced.watermark == 16
    assert sliced.key_groups == 3
    assert written.state_bytes > sliced.state_bytes > 0 < written.file_bytes
    assert json.loads((tmp_path / "a" / "savepoint.json").read_text())["format"] == 1


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


@pytest.mark.parametrize(
    ("damage", "told"), [(Path.unlink, "is missing"), (_cut, "should have"), (_change, "another checksum")]
)
def test_a_damaged_file_is_found_and_refused(runner: Runner, tmp_path: Path, damage: Any, told: str) -> None:
    place = tmp_path / "a"
    written = write_savepoint(place, MANIFEST, {JOB.name: state_of(runner.snapshot())})
    file = written.jobs[0].steps[2].file
    damage(place / file)
    findings = verify(place)
    assert [finding.file for finding in findings] == [file]
    assert told in findings[0].problem
    with pytest.raises(StateError, match=told):
        read_savepoint(place)


def test_a_changed_or_later_manifest_is_refused(tmp_path: Path) -> None:
    write_savepoint(tmp_path / "a", MANIFEST, {})
    path = tmp_path / "a" / "savepoint.json"
    text = path.read_text()
    path.write_text(text.replace('"query": "q"', '"query": "p"'))
    with pytest.raises(StateError, match="its checksum is wrong"):
        read_manifest(tmp_path / "a")
    path.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(StateError, match="has form 2, and this version of Headrace reads forms up to 1"):
        read_manifest(tmp_path / "a")
    path.write_text(text[:-9])
    with pytest.raises(StateError, match="cannot be read"):
        read_manifest(tmp_path / "a")


def test_a_manifest_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    entry = JobEntry("j", steps=())
    manifest = Manifest("a", "now", "v", jobs=(entry,))
    told = json.loads(manifest.to_text())
    step = {"step": "s", "file": "../secret", "key_groups": 1, "segments": 0, "state_bytes": 0, "file_bytes": 1}
    told["jobs"][0]["steps"] = [{**step, "sha256": "", "watermark": None, "shape": {}, "columns": {}}]
    rewritten = Manifest.from_text(manifest.to_text(), where="here")
    assert rewritten == manifest
    del told["checksum"]
    from headrace.savepoints.manifest import _checksum

    text = json.dumps({**told, "checksum": _checksum(told)})
    with pytest.raises(StateError, match="names a file outside"):
        Manifest.from_text(text, where="here")


def test_savepoints_are_listed_by_age_and_deleted_as_a_whole(tmp_path: Path) -> None:
    for name, created in (("b", "2026-01-01"), ("a", "2026-01-02")):
        write_savepoint(tmp_path / name, Manifest(name, created, "v"), {})
    (tmp_path / "broken").mkdir()
    listed = list_savepoints(tmp_path)
    assert [name for name, _ in listed] == ["b", "a", "broken"]
    assert isinstance(listed[-1][1], StateError)
    delete_savepoint(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with pytest.raises(StateError, match="there is no savepoint"):
        delete_savepoint(tmp_path / "broken")
    assert (tmp_path / "broken").exists()
    with pytest.raises(StateError, match="already"):
        write_savepoint(tmp_path / "a", MANIFEST, {})


@pytest.mark.parametrize("name", ["", "a/b", "../a", ".hidden", "x" * 101])
def test_names_that_are_no_names_of_folders_are_refused(name: str) -> None:
    with pytest.raises(StateError, match="cannot be called"):
        check_name(name)


def test_a_protocol_that_nobody_knows_is_refused() -> None:
    with pytest.raises(PlanError, match="cannot reach nowhere://x"):
        read_manifest("nowhere://x")
