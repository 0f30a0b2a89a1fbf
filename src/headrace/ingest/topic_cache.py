"""A cache of what topics say, bounded by bytes: whoever may publish chooses how many topics there are, and how long."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

KeyT = TypeVar("KeyT", str, bytes)
ValueT = TypeVar("ValueT")

#: Enough for the topics of some hundred thousand senders at a time.
CACHE_BYTES = 32 * 1024 * 1024
#: A topic of a real feed has about a hundred bytes. One of more than this is not worth its room.
LONGEST = 1_024
#: What a dictionary needs for an entry.
_ENTRY_BYTES = 100


class TopicCache(Generic[KeyT, ValueT]):
    """Remembers what was made of topics; forgets everything when it is full, which costs a batch of feeds once.

    Args:
        make: Makes what is remembered of a topic.
        size: Tells how many bytes that takes.
        most_bytes: How many bytes all of it may take.

    >>> cache = TopicCache(str.upper, sys.getsizeof, most_bytes=1_000)
    >>> cache.get("/a/b"), cache.get("/a/b"), cache.bytes < 1_000
    ('/A/B', '/A/B', True)
    """

    def __init__(
        self, make: Callable[[KeyT], ValueT], size: Callable[[ValueT], int], *, most_bytes: int = CACHE_BYTES
    ) -> None:
        self._make: Callable[[KeyT], ValueT] = make
        self._size = size
        self._most_bytes = most_bytes
        self._known: dict[KeyT, ValueT] = {}
        self._lock = threading.Lock()
        #: How many bytes the cache takes now.
        self.bytes = 0

    def __len__(self) -> int:
        """Tell how many topics are remembered."""
        return len(self._known)

    def get(self, topic: KeyT) -> ValueT:
        """Give what a topic says."""
        found = self._known.get(topic)
        if found is None:
            found = self._make(topic)
            if len(topic) <= LONGEST:
                self._keep(topic, found)
        return found

    def _keep(self, topic: KeyT, value: ValueT) -> None:
        size = _ENTRY_BYTES + sys.getsizeof(topic) + self._size(value)
        with self._lock:
            if self.bytes + size > self._most_bytes:
                self._known.clear()
                self.bytes = 0
            if topic not in self._known and size <= self._most_bytes:
                self._known[topic] = value
                self.bytes += size
