"""A sink of Parquet files, exactly once.

    <path>/<table>/<token>.parquet                     what readers see
    <path>/<table>/date=2026-03-01/<token>.parquet     with partition_by="date"
    <path>/_headrace/<job>/commit.json                 the token, and what is to be published
    <path>/_headrace/<job>/staged/                     files that readers do not see yet

A batch is written to files in `staged`. Replacing `commit.json` commits it: the file names the token of the batch, the
staged files that count, and those that are to be published. Then these are moved to their place, each by one rename. A
process that is killed before the commit leaves files in `staged` that nothing names; the next run removes them, and the
batch is written again. A process that is killed after the commit leaves moves undone; the next run does them first.

Small batches would make many small files. So batches stay staged until `roll` is over or `roll_rows` are there, and go
out as one file per table and date.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl
from pyarrow import fs

from headrace.errors import PlanError
from headrace.sinks.contract import BatchToken, Sink, SinkError, SinkWriter
from headrace.time.duration import micros

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.delivery import Delivery
    from headrace.sinks.contract import BatchFrames

Compression = Literal["zstd", "snappy", "lz4", "gzip", "uncompressed"]
_OWN = "_headrace"
_TIME = "event_time"


@dataclass(frozen=True, slots=True)
class ParquetSink(Sink):
    """Writes each table of a job to Parquet files. See `parquet`."""

    name: ClassVar[str] = "parquet"
    delivery: ClassVar[Delivery] = "exactly_once"
    path: str
    partition_by: Literal["date"] | None = None
    roll: int = 60_000_000
    roll_rows: int = 1_000_000
    compression: Compression = "zstd"

    def __post_init__(self) -> None:
        if not self.path:
            raise PlanError("a Parquet sink without a path", hint='Name a directory: parquet("out").')
        if self.partition_by not in (None, "date"):
            raise PlanError(f"parquet(partition_by={self.partition_by!r})", hint='It may be "date", or be left out.')
        if self.roll < 0 or self.roll_rows < 1:
            raise PlanError(
                f"parquet(roll={self.roll} us, roll_rows={self.roll_rows})",
                hint="Files are published after a duration of 0 s or more, or a number of rows from 1.",
            )

    @property
    def text(self) -> str:
        """Describe the sink in a line of `explain()`."""
        return f"parquet in {self.path}"

    def open(self, job: str) -> SinkWriter:
        """Finish what an earlier run has committed, and remove what it has not.

        Raises:
            SinkError: The directory cannot be used.
        """
        return _ParquetWriter(self, job)


def parquet(
    path: str | os.PathLike[str],
    *,
    partition_by: Literal["date"] | None = None,
    roll: str | timedelta = "1m",
    roll_rows: int = 1_000_000,
    compression: Compression = "zstd",
) -> ParquetSink:
    """Write results, late rows and dead letters to Parquet files, exactly once.

    Args:
        path: A directory, or a URI that `pyarrow.fs` knows (`s3://bucket/results`, `gs://...`, `hdfs://...`). Each
            table has a directory in it: `<job>`, `<job>.<output>`, `<job>.late`, `<job>.dead_letters`.
        partition_by: "date" puts rows into directories by the UTC date of their `event_time`.
        roll: Rows become visible after this time at the latest, with the next batch; "0s": with each batch. It bounds
            how many files there are: one per table (and date) and `roll`.
        roll_rows: Rows also become visible once there are so many.
        compression: How the files are compressed.

    >>> parquet("out", partition_by="date").text
    'parquet in out'

    Raises:
        PlanError: An option has a value that it cannot have.
    """
    return ParquetSink(os.fspath(path), partition_by, micros(roll), roll_rows, compression)


@dataclass(frozen=True, slots=True)
class _Segment:
    """A staged file.

    Args:
        file: Its name in the directory of staged files.
        directory: Where its rows go, below the path of the sink.
        rows: How many it has.
    """

    file: str
    directory: str
    rows: int


@dataclass(frozen=True)
class _Commit:
    """What `commit.json` says.

    Args:
        writer: The run that wrote it.
        token: The newest batch that is held; None for none.
        staged: Files that count, and are not to be published yet.
        publish: Names of staged files, and where each is to be.
    """

    writer: str
    token: BatchToken | None = None
    staged: tuple[_Segment, ...] = ()
    publish: tuple[tuple[str, str], ...] = field(default=())

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": 1,
                "writer": self.writer,
                "token": None if self.token is None else self.token.to_json(),
                "staged": [[each.file, each.directory, each.rows] for each in self.staged],
                "publish": self.publish,
            }
        )

    @classmethod
    def from_json(cls, text: str, place: str) -> _Commit:
        try:
            said: dict[str, Any] = json.loads(text)
            if said["version"] != 1:
                raise SinkError(
                    f"{place} has version {said['version']!r}; this version of Headrace reads version 1",
                    hint="Use the version of Headrace that wrote it, or another directory.",
                )
            token = None if said["token"] is None else BatchToken.from_json(said["token"])
            staged = tuple(_Segment(str(file), str(where), int(rows)) for file, where, rows in said["staged"])
            return cls(str(said["writer"]), token, staged, tuple((str(a), str(b)) for a, b in said["publish"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise SinkError(
                f"{place} cannot be read: {problem}",
                hint="Something other than Headrace has changed it. Restore it, or use another directory.",
            ) from problem


class _ParquetWriter(SinkWriter):
    def __init__(self, sink: ParquetSink, job: str) -> None:
        self._sink = sink
        self._files = _Files(sink.path)
        self._own = f"{_OWN}/{job}"
        self._writer = uuid.uuid4().hex
        self._files.make_directory(f"{self._own}/staged")
        before = self._read()
        self._commit = before or _Commit(self._writer)
        self._publish()
        self._replace(_Commit(self._writer, self._commit.token, self._commit.staged))
        self._remove_unnamed()
        #: When the oldest staged rows were written; those of an earlier run are due at once.
        self._since = 0.0 if self._commit.staged else None

    def last(self) -> BatchToken | None:
        return self._commit.token

    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        fresh = [
            self._stage(f"{token.name}.{directory.replace('/', '.')}.parquet", directory, part)
            for table, frame in frames.tables()
            for directory, part in self._parts(table, frame)
        ]
        staged = (*self._commit.staged, *fresh)
        if not staged:
            return  # nothing that a repetition could double
        self._since = time.monotonic() if self._since is None else self._since
        if self._is_due(staged):
            self._roll(token, staged)
        else:
            self._replace(_Commit(self._writer, token, staged))

    def close(self) -> None:
        """Publish what is staged."""
        commit = self._commit
        if commit.staged and commit.token is not None:
            self._roll(commit.token, commit.staged)

    def _is_due(self, staged: tuple[_Segment, ...]) -> bool:
        waited = time.monotonic() - (self._since or 0.0)
        return waited * 1e6 >= self._sink.roll or sum(each.rows for each in staged) >= self._sink.roll_rows

    def _parts(self, table: str, frame: pl.DataFrame) -> list[tuple[str, pl.DataFrame]]:
        if self._sink.partition_by is None or _TIME not in frame.columns:
            return [(table, frame)]
        dates = frame.with_columns(pl.col(_TIME).dt.date().cast(pl.String).fill_null("unknown").alias("\0date"))
        parts = dates.partition_by("\0date", as_dict=True, include_key=False, maintain_order=True)
        return [(f"{table}/date={date}", part) for (date,), part in sorted(parts.items())]

    def _stage(self, file: str, directory: str, frame: pl.DataFrame) -> _Segment:
        buffer = BytesIO()
        frame.write_parquet(buffer, compression=self._sink.compression)
        self._files.write(f"{self._own}/staged/{file}", buffer.getvalue())
        return _Segment(file, directory, frame.height)

    def _roll(self, token: BatchToken, staged: tuple[_Segment, ...]) -> None:
        """Commit a batch, and publish everything that is staged as one file per directory."""
        by_directory: dict[str, list[_Segment]] = {}
        for segment in staged:
            by_directory.setdefault(segment.directory, []).append(segment)
        whole = {
            directory: segments[0] if len(segments) == 1 else self._merged(token, directory, segments)
            for directory, segments in by_directory.items()
        }
        moves = tuple((one.file, f"{directory}/{token.name}.parquet") for directory, one in whole.items())
        self._replace(_Commit(self._writer, token, publish=moves))
        self._publish()
        kept = {one.file for one in whole.values()}
        for segment in staged:
            if segment.file not in kept:
                self._files.delete(f"{self._own}/staged/{segment.file}")
        self._since = None

    def _merged(self, token: BatchToken, directory: str, segments: list[_Segment]) -> _Segment:
        frames = [
            pl.read_parquet(BytesIO(self._files.read(f"{self._own}/staged/{each.file}") or b"")) for each in segments
        ]
        file = f"{token.name}.{directory.replace('/', '.')}.merged.parquet"
        return self._stage(file, directory, pl.concat(frames, how="diagonal_relaxed"))

    def _publish(self) -> None:
        """Move what is committed to its place; a move that was done before is passed over."""
        for file, place in self._commit.publish:
            self._files.move(f"{self._own}/staged/{file}", place)

    def _remove_unnamed(self) -> None:
        named = {each.file for each in self._commit.staged}
        for file in self._files.names(f"{self._own}/staged"):
            if file not in named:
                self._files.delete(f"{self._own}/staged/{file}")

    def _read(self) -> _Commit | None:
        place = f"{self._own}/commit.json"
        text = self._files.read(place)
        return None if text is None else _Commit.from_json(text.decode(), f"{self._sink.path}/{place}")

    def _replace(self, commit: _Commit) -> None:
        """Commit, unless another run has taken over.

        Raises:
            SinkError: One has.
        """
        now = self._read()
        if now is not None and now.writer not in (self._writer, self._commit.writer):
            raise SinkError(
                f"another run writes to {self._sink.path}, and this one may write no more",
                hint="Run a job in one place only, or give the sinks different directories.",
            )
        self._files.replace(f"{self._own}/commit.json", commit.to_json().encode())
        self._commit = commit


class _Files:
    """Files below a directory, local or remote; local ones are synced before anything relies on them."""

    def __init__(self, path: str) -> None:
        if "://" in path:
            self._system, self._root = fs.FileSystem.from_uri(path)
        else:
            self._system, self._root = fs.LocalFileSystem(), os.path.abspath(os.path.expanduser(path))  # noqa: PTH100, PTH111
        self._local = isinstance(self._system, fs.LocalFileSystem)
        self._made: set[str] = set()

    def _place(self, name: str) -> str:
        return f"{self._root}/{name}"

    def make_directory(self, name: str) -> None:
        if name not in self._made:
            self._system.create_dir(self._place(name), recursive=True)
            self._sync(os.path.dirname(self._place(name)))  # noqa: PTH120
            self._made.add(name)

    def write(self, name: str, content: bytes) -> None:
        with self._system.open_output_stream(self._place(name)) as stream:
            stream.write(content)
        self._sync(self._place(name))

    def read(self, name: str) -> bytes | None:
        if self._system.get_file_info(self._place(name)).type == fs.FileType.NotFound:
            return None
        with self._system.open_input_stream(self._place(name)) as stream:
            content: bytes = stream.read()
            return content

    def replace(self, name: str, content: bytes) -> None:
        """Replace a file as a whole or not at all."""
        if not self._local:
            self.write(name, content)  # an object store shows an object when all of it is there
            return
        self.write(f"{name}.new", content)
        self._system.move(self._place(f"{name}.new"), self._place(name))
        self._sync(os.path.dirname(self._place(name)))  # noqa: PTH120

    def move(self, source: str, target: str) -> None:
        """Move a file; nothing happens where it is not there any more."""
        if self._system.get_file_info(self._place(source)).type == fs.FileType.NotFound:
            return
        directory = os.path.dirname(target)  # noqa: PTH120
        self.make_directory(directory)
        self._system.move(self._place(source), self._place(target))
        self._sync(self._place(directory))

    def delete(self, name: str) -> None:
        self._system.delete_file(self._place(name))

    def names(self, name: str) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self._place(name), allow_not_found=True))
        return [os.path.basename(each.path) for each in found if each.type == fs.FileType.File]  # noqa: PTH119

    def _sync(self, place: str) -> None:
        """Bring a local file, or the names in a local directory, to the disk."""
        if self._local:
            descriptor = os.open(place, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
