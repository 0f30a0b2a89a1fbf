"""From records of a result topic to a frame, whichever way the job writes them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.dashboard.plain_results import plain_reader, read_plain
from headrace.events import Codec, Layout, Result
from headrace.events.dtype import from_text, to_text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.dashboard.declaration import Declaration
    from headrace.kafka.consumer import Record

log = logging.getLogger(__name__)

#: What is read of a result record beside the columns of its job.
_FIXED = (
    "key",
    "idempotency_key",
    "window_start",
    "window_end",
    "pane_timing",
    "is_retraction",
    "newest_event_time",
    "newest_ingestion_time",
)
_TIMES = pa.timestamp("us", "UTC")


class ResultDecoder:
    """Decodes results of jobs. Not to be shared by threads.

    Args:
        declarations: The jobs and their further outputs.
    """

    def __init__(self, declarations: Iterable[Declaration]) -> None:
        held = tuple(declarations)
        self._schemas = {each.job: _schema(each) for each in held}
        self._plain = {each.job: plain_reader(each.format, each.schema) for each in held if each.format is not None}
        self._codec = Codec()

    @property
    def unreadable(self) -> list[str]:
        """The jobs whose results are in a format that cannot be shown."""
        return [name for name, reader in self._plain.items() if reader is None]

    def decode(self, job: str, records: list[Record]) -> pl.DataFrame:
        """Read records; those that are no results of the job are left out."""
        plain = self._plain.get(job)
        if plain is not None:
            return read_plain(plain, records)
        batch = pa.table(
            {
                "value": pa.array([record.value for record in records], pa.binary()),
                "timestamp": pa.array([record.timestamp for record in records], _TIMES),
            }
        )
        decoded = self._codec.decode(batch, types=[Result], columns=self._schemas[job], keep=["timestamp"], job=job)
        return decoded.frame


def _schema(declaration: Declaration) -> pl.Schema:
    """What to read of a job's results: a column of another type than the job's own makes the record no result."""
    fixed = Layout(Result.DESCRIPTOR).schema
    own = {name: from_text(to_text(kind)) or pl.String() for name, kind in declaration.schema.items()}
    return pl.Schema({name: fixed[name] for name in _FIXED} | own)
