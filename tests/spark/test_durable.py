"""Files of a checkpoint are on the disk before something relies on them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headrace.savepoints.durable_files import make_directory, write_durably
from headrace.spark.session.session import spark_settings, start_session


def test_a_file_is_synced_before_it_gets_its_name_and_the_directory_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topics.json"
    path.write_text("old")
    seen: list[tuple[str, str]] = []
    sync = os.fsync

    def watched(file: int) -> None:
        target = Path(f"/proc/self/fd/{file}").readlink()
        seen.append(("directory" if target == tmp_path else "file", path.read_text()))
        sync(file)

    monkeypatch.setattr(os, "fsync", watched)
    write_durably(path, "new")
    assert seen == [("file", "old"), ("directory", "new")]
    assert [each.name for each in tmp_path.iterdir()] == ["topics.json"]


def test_every_directory_that_is_made_is_synced_in_the_one_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(f"/proc/self/fd/{file}").readlink()))
    make_directory(tmp_path / "checkpoints" / "speeds")
    assert synced == [tmp_path, tmp_path / "checkpoints"]
    make_directory(tmp_path / "checkpoints" / "speeds")
    assert len(synced) == 2


@pytest.mark.spark
@pytest.mark.slow
def test_what_spark_writes_into_a_checkpoint_is_synced(tmp_path: Path, jars: list[Path]) -> None:
    settings = spark_settings(jars=jars, state_partitions=2, driver_memory="2g", local_directory=tmp_path / "local")
    spark = start_session("sync", master="local[2]", settings=settings)
    try:
        java = spark._jvm
        assert java is not None
        root = java.org.apache.hadoop.fs.Path(str(tmp_path))
        kind = java.org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager
        manager = kind(root, spark._jsc.hadoopConfiguration())
        syncs = java.headrace.LocalFiles.syncs()
        out = manager.createAtomic(java.org.apache.hadoop.fs.Path(root, "7"), True)
        out.writeBytes("v1")
        assert java.headrace.LocalFiles.syncs() == syncs
        out.close()
        assert java.headrace.LocalFiles.syncs() == syncs + 2, "the file, and the directory after its renaming"
        assert (tmp_path / "7").read_text() == "v1"
    finally:
        spark.stop()
