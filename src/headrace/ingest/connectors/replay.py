"""The replay connector: recordings as if they came in now.

Messages keep the gaps between their arrivals, divided by the speed; see `headrace.ingest.pacing`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, with_config

from headrace.errors import ConfigError
from headrace.ingest.connector import Connector
from headrace.ingest.lines import LineFile
from headrace.ingest.pacing import Pacer
from headrace.ingest.recording import Recording
from headrace.ingest.replay import ReplayPlan
from headrace.ingest.rules import FieldRule  # noqa: TC001 - the reader of feeds.toml needs the types of the fields

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from headrace.ingest.message import Batch
    from headrace.ingest.processor import Processor


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """What to replay, and how.

    Args:
        paths: The recordings: files, or URLs that fsspec understands; plain, .gz, .bz2, .xz or .zst.
        form: "dump": recordings, as `headrace record` writes them; "csv" or "jsonl": a message a line, which arrives
            when it says that it happened.
        time: For lines: the field with their time, and its format.
        header: For CSV: whether the first line names the cells.
        delimiter: For CSV: between two cells.
        storage: Options of the store that URLs lead to, as fsspec takes them.
        speed: Recorded seconds per second; `math.inf` for as fast as can be.
        plan: What is sent: offset, length, loops, copies, times kept or moved to now, recordings aligned.
        batch_size: How many messages are handed over at once at most.

    Raises:
        ConfigError: There is nothing to replay, or a number makes no sense.
    """

    paths: tuple[str, ...]
    form: Literal["dump", "csv", "jsonl"] = "dump"
    time: FieldRule | None = None
    header: bool = True
    delimiter: str = ","
    storage: dict[str, str | int | float | bool] = field(default_factory=dict)
    speed: float = 1.0
    plan: ReplayPlan = field(default_factory=ReplayPlan)
    batch_size: int = 20_000

    def __post_init__(self) -> None:
        if not self.paths:
            raise ConfigError("no recording is named", hint="Give at least one file.")
        if self.form == "dump" and self.time is not None:
            hint = 'Recordings hold arrival times: leave time out. For files of lines set form = "csv" or "jsonl".'
            raise ConfigError('time is set, but form is "dump"', hint=hint)
        if self.form != "dump" and self.time is None:
            hint = 'Lines are replayed by the time that they name: say where it is, such as time = {field = "time"}.'
            raise ConfigError(f'form is "{self.form}", but time is not set', hint=hint)
        if not self.speed > 0:
            raise ConfigError(f"speed is {self.speed}", hint="Give a number above 0; 1 is the recorded speed.")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", hint="Give a number above 0.")


class ReplayConnector(Connector[ReplaySettings]):
    """Sends recordings again.

    Args:
        settings: What and how.
        clock: Seconds that never go back.
        wall: Microseconds since the epoch.

    After the end, `recordings` tell what was torn or unreadable in them.
    """

    name = "replay"
    Settings = ReplaySettings

    def __init__(
        self,
        settings: ReplaySettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        super().__init__(settings)
        self.recordings = [self._opened(path) for path in settings.paths]
        self._wall = wall
        self._processor: Processor | None = None
        self._pacer = Pacer(speed=settings.speed, batch_size=settings.batch_size, clock=clock)

    def _opened(self, path: str) -> Recording | LineFile:
        how = self.settings
        if how.form == "dump" or how.time is None:
            return Recording(path, storage=how.storage)
        return LineFile(
            path, form=how.form, time=how.time, header=how.header, delimiter=how.delimiter, storage=how.storage
        )

    def check(self) -> str:
        """See whether every recording can be read.

        Raises:
            EnvironmentProblem: A file cannot be opened.
            ConfigError: A file holds no message.
        """
        first = min(recording.check().arrival for recording in self.recordings)
        count = len(self.recordings)
        at = datetime.fromtimestamp(first / 1e6, UTC)
        return f"{count} recording{'s' if count > 1 else ''} from {at:%Y-%m-%d %H:%M:%S} UTC on"

    def introduce(self, processor: Processor) -> None:
        """Take note of who knows event times, on which recordings are aligned."""
        self._processor = processor

    def open(self) -> None:
        """Check the files, so that a wrong name is noticed before anything is sent."""
        self.check()

    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        """Hand over what is due.

        Args:
            stop: Ends the replay.

        Raises:
            ConfigError: Recordings cannot be aligned.
        """
        blocks = self.settings.plan.blocks(self.recordings, now=self._wall(), processor=self._processor)
        yield from self._pacer.batches(blocks, stop)

    @property
    def behind(self) -> float:
        """Seconds by which the replay is behind its schedule."""
        return self._pacer.behind

    def close(self) -> None:
        """Nothing is held open between two batches."""
