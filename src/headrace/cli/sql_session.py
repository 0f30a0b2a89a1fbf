"""The session of `headrace sql`: a catalog with the tables of `--table`, and the project's formats and functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.connect import connect
from headrace.cli.jobs import registry
from headrace.cli.tables import FileTable, TopicReader, TopicTable
from headrace.streaming_sql.session import Session
from headrace.streaming_sql.user_functions import function_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.config import Settings
    from headrace.kafka import Connection

#: A partition without events for this long does not hold the others back.
_IDLE_AFTER = "10s"


@dataclass
class SqlEnvironment:
    """What statements are carried out in.

    Args:
        settings: The settings.
        tables: The tables of `--table`.
        begin: Where to begin in topics, in microseconds since the epoch; 0 for their beginning.
        disorder: How late the events of the topics of `--table` may be.
        directories: Where functions are looked for, beside the project.
    """

    settings: Settings
    tables: Sequence[FileTable | TopicTable] = ()
    begin: int = 0
    disorder: str = "1s"
    directories: Sequence[Path] = field(default=())

    @cached_property
    def connection(self) -> Connection:
        """The Kafka; looked for when it is needed."""
        return connect(self.settings)

    def session(self, name: str = "sql", *, alone: bool = False) -> Session:
        """Make a session.

        Args:
            name: What its jobs are called.
            alone: Whether its only job has the plain name.

        Raises:
            HeadraceError: A table of `--table` is not there, or cannot be read.
        """
        load = partial(function_at, directories=(self.settings.project, Path.cwd(), *self.directories))
        catalog = registry(self.settings).catalog(load=load)
        for table in self.tables:
            catalog.add(table.name, table.frame() if isinstance(table, FileTable) else self._stream(table))
        return Session(catalog, name=name, alone=alone)

    def _stream(self, table: TopicTable) -> Any:
        from headrace.events import Codec

        reader = TopicReader(self.connection, Codec(registry(self.settings).types))
        return reader.stream(table, disorder=self.disorder, idle_after=_IDLE_AFTER)
