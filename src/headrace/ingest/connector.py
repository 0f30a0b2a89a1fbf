"""Connectors: where raw messages come from.

A connector is one file in `headrace/ingest/connectors` (or in a package of your own) with two classes: its settings, a
frozen dataclass in which every field has a type and all but the essential ones a default, and the connector itself. It
hands over batches of raw messages and knows nothing about what they say.

The life of a connector, always on one thread:

1. `check()`, perhaps: can the source be reached and read? Answers with a sentence, or raises. Leaves nothing behind.
2. `introduce(processor)`: who will read the messages, for a connector that must know when their events happened.
3. `open()`: once, before the first message.
4. `batches(stop)`: the messages, until the source ends or `stop` is set. It may wait for messages, never longer than a
   fraction of a second without looking at `stop`. An empty batch says "nothing new, I am alive" and costs little.
5. `acknowledge(tokens)`: between two batches, for batches whose messages are safe in Kafka now. A source that can
   send again what was not acknowledged (MQTT with QoS 1) loses nothing when the process is killed.
6. `close()`: once, also after an error.

A connector holds at most a bounded number of messages. When the runner does not ask for more, because Kafka is slow,
the connector stops taking messages from its source: that is the back-pressure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Generic, Self, TypeVar

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from headrace.ingest.message import Batch
    from headrace.ingest.processor import Processor

SettingsT = TypeVar("SettingsT")


class SourceError(HeadraceError, ConnectionError):
    """A source of messages cannot be reached, or refuses us."""

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


class Connector(ABC, Generic[SettingsT]):
    """A source of raw messages.

    Args:
        settings: How to reach it; an instance of the class's `Settings`.
    """

    #: What a configuration calls it.
    name: ClassVar[str]
    #: The frozen dataclass of its settings.
    Settings: ClassVar[type]

    def __init__(self, settings: SettingsT) -> None:
        self.settings = settings
        #: How often the source was lost and reached again.
        self.reconnects = 0
        #: How often messages may have been lost because the source did not keep them for us.
        self.gaps = 0
        #: Whether the source is reached now.
        self.connected = True

    @property
    def behind(self) -> float:
        """Seconds by which a source with a schedule of its own is late; 0 for all others."""
        return 0.0

    @abstractmethod
    def check(self) -> str:
        """See whether the source can be reached and read.

        Returns:
            What was found, in one sentence for a person.

        Raises:
            HeadraceError: It cannot, with what to do about it.
        """

    def introduce(self, processor: Processor) -> None:
        """Hear who will read the messages; called before `open`. Most connectors need not know.

        Args:
            processor: What makes events of them.
        """

    @abstractmethod
    def open(self) -> None:
        """Begin to receive; called once, before `batches`.

        Raises:
            HeadraceError: The source cannot be reached.
        """

    @abstractmethod
    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        """Hand over what comes, until the source ends or `stop` is set.

        Args:
            stop: Set when the ingestion is to end; waits must notice it soon.

        Raises:
            HeadraceError: The source is gone for good.
        """

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Take note that the batches with these tokens are safe; called in the order of the batches.

        Args:
            tokens: Those that were not None.
        """

    @abstractmethod
    def close(self) -> None:
        """End, and let go of everything; called once, also when `open` or `batches` raised."""

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
